"""How a trial gets from lambda to a step: by conjugate gradients or by a factorization, here or there."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphopt.solver.trial import Damping
from graphopt.vulkan.program import Program


class TrialSolver(Protocol):
    """One of `iterations` or `factorize`; tail: what follows a solution."""

    factorized_on: str
    """Where Cholesky runs: "device", "cpu", or "" for conjugate gradients."""
    is_one_program: bool
    """A trial is `first_program`, always: nothing reads H after it."""

    def reset(self) -> None:
        """At the start of an optimization."""
        ...

    def set_rules(self, damping: Damping | None) -> None:
        """Before a trial: bring what `first_program` reads besides D."""
        ...

    def is_coarse(self, damping: Damping) -> bool:
        """A trial with this damping stops before the tolerance."""
        ...

    def first_program(self, tail: Program) -> Program | None:
        """The first submission of a trial, which may begin ahead; None: `finish` does it all."""
        ...

    def solve_again(self, right: np.ndarray) -> np.ndarray | None:
        """x (dim,) for another right-hand side after a good trial; None: that takes another trial."""
        ...

    def finish(self, tail: Program, damping: Any) -> bool | None:
        """After that has run: the rest. False: not positive definite; None: given up for a factorization."""
        ...
