"""The table of optimization algorithms: name -> its options and how it is made.

One of a program's own is a class, made with its options, that has what `algorithm.Algorithm` says. It drives
a `solver.block_solver.BlockSolver`: `linearize`, `trial` or `solve`, `push`, `update`, `chi2`, and `pop`
where a step is not taken; `optimizer.gauss_newton` is a short one to start from. Iterations, stop rules,
callback, interrupts and summary are `optimizer.run`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from graphopt import option_names
from graphopt.errors import OptionError
from graphopt.optimizer.algorithm import Algorithm
from graphopt.optimizer.options import StopRules
from graphopt.plugins import Table


@dataclass(frozen=True)
class Method:
    """A row."""

    make: Callable[[Any], Any]
    """`algorithm.Algorithm` of its options."""
    options: type[StopRules] = StopRules
    has_tolerances: bool = False
    """It stops at an optimum in all digits: quaternions of files with few digits are made unit before."""


METHODS = Table("graphopt.algorithms", "method", option_names.METHODS, Method)


def register_algorithm(
    name: str, make: Callable[[Any], Algorithm], options: type[StopRules] = StopRules
) -> None:
    """Let `method=name` optimize with `make(options)`.

    name: none of "auto", "lm", "gn", "dogleg"; one's own of before is replaced.
    make: returns an object with what `optimizer.algorithm.Algorithm` says; a class derived from
        `optimizer.AlgorithmBase` has all but `step`.
    options: frozen dataclass derived from `optimizer.StopRules`, what `optimize(options=...)` takes.

    A package offers one by an entry point of the group "graphopt.algorithms", whose object is an
    `optimizer.Method(make, options)`. Raises `OptionError` for a name that is taken, for no function, or for
    options of another kind.
    """
    if not callable(make):
        raise OptionError(f"method '{name}': make is {make!r}, expected a function or class of its options.")
    if not (isinstance(options, type) and issubclass(options, StopRules) and is_dataclass(options)):
        raise OptionError(
            f"method '{name}': options is {options!r}, expected a dataclass derived from StopRules."
        )
    METHODS.register(name, Method(make, options))
