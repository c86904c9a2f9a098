"""Configuration of the block solver: which linear solver, which Schur complement, which preconditioner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphopt.errors import OptionError
from graphopt.linear.table import check_linear_solver, factorizes, iterates
from graphopt.option_names import (
    PRECONDITIONERS,
    SCHUR_CHOICES,
    WORK_QUEUES,
)
from graphopt.vulkan.data.layout import BlockLayout


@dataclass(frozen=True)
class Configuration:
    """How (H + D) dx = b is solved."""

    linear_solver: str = "auto"
    """"pcg"; "cholesky" (sparse) or "dense", of S or of H: on the device or the CPU (`kernels.factorize`)."""
    schur: str = "auto"
    """Elimination of landmarks: "explicit" (S is stored), "implicit" (only products with S), "off"."""
    preconditioner: str = "schur_jacobi"
    """Block-Jacobi of the Schur complement, or "jacobi": of H_pp, cheaper and weaker (implicit only)."""
    work_queues: str = "auto"
    """Pairs of an explicit S: listed by the "cpu", by the "gpu", or found at each use ("lookup")."""
    tolerance: float = 1e-6
    """PCG stops when r' J r fell by this factor (g2o's `_tolerance`)."""
    max_iterations: int = 0
    """PCG iterations at most; 0: as many as there are rows (g2o)."""
    is_chosen: bool = False
    """"auto" chose the linear solver: a factorization runs where it is faster. Else it runs on the device."""

    def __post_init__(self) -> None:
        check_linear_solver(self.linear_solver)
        for name, known in (
            ("schur", SCHUR_CHOICES),
            ("preconditioner", PRECONDITIONERS),
            ("work_queues", WORK_QUEUES),
        ):
            if getattr(self, name) not in known:
                raise OptionError(f"{name} is '{getattr(self, name)}', expected one of {', '.join(known)}.")
        if self.schur == "implicit" and factorizes(self.linear_solver):
            raise OptionError("schur='implicit' needs linear_solver='pcg': Cholesky needs the matrix.")
        if not 0.0 < self.tolerance < 1.0:
            raise OptionError(f"tolerance is {self.tolerance}, must be between 0 and 1.")

    @property
    def needs_blocks(self) -> bool:
        """The matrix must be formed to factor it."""
        return not iterates(self.linear_solver)

    @property
    def may_factor(self) -> bool:
        """Nobody asked for conjugate gradients, or for something that only they have."""
        return (
            (self.is_chosen or self.linear_solver == "auto")
            and self.schur != "implicit"
            and self.preconditioner == Configuration.preconditioner
            and not self.max_iterations
        )

    def with_products(self) -> Configuration:
        """The same where products are all that there is of the matrix: "auto" is what needs no more."""
        if self.linear_solver != "auto" or self.schur == "explicit":
            return self
        return replace(self, linear_solver="pcg", is_chosen=True)

    def choose_linear_solver(self, kept_dim: int | None) -> str:
        """What "auto" stands for; kept_dim: rows that elimination leaves, None if nothing is eliminated."""
        if self.linear_solver != "auto":
            return self.linear_solver
        if kept_dim is None:
            return "cholesky"  # pose graphs: block-Jacobi is weak
        return "cholesky" if kept_dim <= DIRECT_MAX_DIM and self.schur != "implicit" else "pcg"

    def resolve(self, layout: BlockLayout) -> Configuration:
        """The same without "auto", for a problem."""
        eliminates = layout.num_landmarks > 0 and layout.num_kept > 0 and self.schur != "off"
        linear_solver = self.choose_linear_solver(layout.kept_dim if eliminates else None)
        is_chosen = self.is_chosen or self.linear_solver == "auto"
        schur = self.schur if eliminates else "off"
        if schur == "auto":
            needs_blocks = replace(self, linear_solver=linear_solver).needs_blocks
            schur = "explicit" if needs_blocks or _explicit_is_cheaper(layout) else "implicit"
        return replace(self, linear_solver=linear_solver, schur=schur, is_chosen=is_chosen)


DIRECT_MAX_DIM = 600
"""Kept rows up to which `auto` takes Cholesky: its time grows with the cube, PCG's does not."""


def _explicit_is_cheaper(layout: BlockLayout) -> bool:
    """Whether a product with a full S reads fewer numbers than one through H_pl (twice per product)."""
    full_schur = layout.kept_dim**2
    return full_schur <= layout.values_size
