"""The table of linear solvers: name -> how it is made, and what it can do.

One of a program's own is a function `make(pattern)` for `register_linear_solver`. It returns an object with

    factorize(values, damping) -> bool   take the numbers of A = H + D; False: A is not positive definite.
                                         values: (pattern.values_size,), see `BlockPattern`.
                                         damping: (pattern.dim,) D, or None for 0
    solve(b, out=None) -> x              x (pattern.dim,) of A x = b, written to `out` where that is given

and may have `memory_bytes` and `flops` (of one factorization). H is that of the whole problem, or S where
landmarks are eliminated. `values` is only to look at, and changes after the call. Where a device linearizes,
the host solves with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt import option_names
from graphopt.errors import OptionError, PluginError
from graphopt.plugins import Table
from graphopt.problem.pattern import BlockPattern


class DirectSolver(Protocol):
    """See the module's header."""

    def factorize(self, values: np.ndarray, damping: np.ndarray | None = None) -> bool:
        """Take numbers; False: not positive definite."""
        ...

    def solve(self, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """x of A x = b."""
        ...


@dataclass(frozen=True)
class LinearSolver:
    """A row: either `make` or `iterate` is there."""

    make: Callable[[BlockPattern], DirectSolver] | None = None
    """A solver that needs the matrix, see the module's header."""
    iterate: Callable[[BlockPattern, Any], Any] | None = None
    """Conjugate gradients of a pattern and `SolverOptions`, which need no more than products."""
    native: bool = False
    """`kernels.Trials` and `kernels.SmallLoop` know what `make` returns."""
    ordering: str | None = None
    """With which ordering `cholesky.DeviceCholesky` factorizes on a device instead; None: the host does."""

    def create(self, pattern: BlockPattern, options: Any) -> Any:
        """The solver of a pattern."""
        if self.iterate is not None:
            return self.iterate(pattern, options)
        return self.make_direct(pattern)

    def make_direct(self, pattern: BlockPattern) -> Any:
        """The solver that needs the matrix."""
        assert self.make is not None
        solver = self.make(pattern)
        missing = [name for name in ("factorize", "solve") if not callable(getattr(solver, name, None))]
        if missing:
            raise PluginError(
                f"The linear solver that {getattr(self.make, '__qualname__', self.make)} returned, a "
                f"{type(solver).__name__}, has no method {' and no '.join(missing)}; "
                "see graphopt.register_linear_solver."
            )
        return solver


@dataclass(frozen=True)
class Preconditioner:
    """What a preconditioner of conjugate gradients takes, where S is not formed."""

    is_of_h: bool = False
    """The diagonal blocks of H_pp, cheaper and weaker than those of S; elsewhere there is nothing like it."""


PRECONDITIONERS = {
    "schur_jacobi": Preconditioner(),
    "jacobi": Preconditioner(is_of_h=True),
}
LINEAR_SOLVERS = Table("graphopt.linear_solvers", "linear_solver", option_names.LINEAR_SOLVERS, LinearSolver)


def register_linear_solver(name: str, make: Callable[[BlockPattern], DirectSolver]) -> None:
    """Let `linear_solver=name` solve (H + D) dx = b with `make(pattern)`, on the CPU.

    name: none of "auto", "cholesky", "dense", "pcg"; one's own of before is replaced.
    make: a function of a `linear.BlockPattern`, called once per structure, that returns an object with
        `factorize(values, damping) -> bool` and `solve(b, out=None) -> x`; what these get says the header of
        `linear.table`. Options of its own are bound before: functools.partial(make, ordering="amd").

    A package offers one by an entry point of the group "graphopt.linear_solvers", whose object is a
    `linear.LinearSolver(make)`. Raises `OptionError` for a name that is taken, or no function.
    """
    if not callable(make):
        raise OptionError(f"linear_solver '{name}': make is {make!r}, expected a function of a BlockPattern.")
    LINEAR_SOLVERS.register(name, LinearSolver(make))


def check_linear_solver(name: Any) -> None:
    """`OptionError` for what neither is in the table nor "auto"."""
    if name != "auto":
        LINEAR_SOLVERS.row(name, "auto")


def iterates(name: str) -> bool:
    """It needs products only. "auto" has not been decided: False."""
    return name != "auto" and LINEAR_SOLVERS.row(name, "auto").iterate is not None


def factorizes(name: str) -> bool:
    """It needs the matrix. "auto" has not been decided: False."""
    return name != "auto" and LINEAR_SOLVERS.row(name, "auto").make is not None
