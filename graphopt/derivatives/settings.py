"""What is asked of the derivatives of an optimum, and what a solve returns to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphopt.derivatives.refine import Doubts
from graphopt.errors import GradientError, OptionError
from graphopt.optimizer.summary import Summary

GRADIENTS = ("implicit", "truncated")
ON_DOUBT = ("raise", "warn")
SINGULAR = ("error", "damp")


@dataclass(frozen=True)
class Solved:
    """What a solve has found."""

    estimates: tuple[Any, ...]
    """Per vertex set of the graph (n, storage_dim); of a batch also arrays of CUDA's."""
    summary: Summary
    doubts: Doubts


@dataclass(frozen=True)
class GradientSettings:
    """Options of `graphopt.torch.solve` beside those of `optimize`."""

    gradient: str = "implicit"
    """"implicit": of the optimum. "truncated": through the last `steps` Gauss-Newton iterations only, as
    backpropagation through them would give it (Shaban et al., Truncated Back-propagation for Bilevel
    Optimization, AISTATS 2019); with more steps it converges to the other."""
    steps: int = 5
    """Of gradient="truncated"."""
    on_doubt: str = "raise"
    """What `vjp` does where a derivative cannot be trusted: "raise" `GradientError`, or "warn"."""
    singular: str = "error"
    """"damp": a share of 1e-8 of the Hessian's diagonal is added to it, for graphs that can move without
    changing chi2, and losses that do not change with it."""
    warm_start: bool = False
    """Leave the optimum in the graph, for the next solve to start from."""

    def __post_init__(self) -> None:
        for name, known in (("gradient", GRADIENTS), ("on_doubt", ON_DOUBT), ("singular", SINGULAR)):
            if getattr(self, name) not in known:
                raise OptionError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(known)}.")
        if not isinstance(self.steps, int) or self.steps < 1:
            raise OptionError(f"steps is {self.steps!r}, expected a whole number >= 1.")

    def tell(self, doubts: Doubts, why_not_definite: Callable[[], str]) -> None:
        """Raise or warn, if there are doubts; why_not_definite: a sentence about the Hessian."""
        sentences = list(doubts.sentences)
        if not sentences:
            return
        if doubts.is_singular:
            sentences[0] = why_not_definite()
        text = " ".join(sentences)
        if self.on_doubt == "raise":
            raise GradientError(f"{text} on_doubt='warn' returns the derivative nevertheless.")
        warnings.warn(text, GradientWarning, stacklevel=2)


class GradientWarning(UserWarning):
    """A derivative of an optimum that cannot be trusted."""
