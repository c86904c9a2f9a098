"""Options of solvers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypedDict

from graphopt.errors import OptionError
from graphopt.linear.table import PRECONDITIONERS, check_linear_solver, factorizes
from graphopt.option_names import (
    COMPUTED,
    EDGE_SCHEDULES,
    OLD_NAMES,
    PRECISIONS,
    SCHEDULES,
    SCHUR_CHOICES,
    SUMMATIONS,
    WORK_QUEUES,
)

Schedule = str | Mapping[str, str] | tuple[tuple[str, str], ...]
"""One for all, or those of some edge and vertex types by tag."""


@dataclass(frozen=True)
class SolverOptions:
    """How the normal equations are solved."""

    device: str = "auto"
    """"auto", "cpu", or another registered device, with an optional number: "vulkan:1"."""
    linear_solver: str = "auto"
    """"cholesky" (sparse), "dense" (Cholesky), "pcg" (conjugate gradients); "auto" by size and density."""
    schur: str = "auto"
    """Elimination of marginalized vertices: "explicit", "implicit" (with pcg), "off", or "auto"."""
    precision: str = "auto"
    """"double" or "mixed" (single precision where it does not change the answer)."""
    schedule: Schedule = "auto"
    """On a GPU: "blocks" (kernels compute H), "matrix-free" (products compute Jacobians anew), "jacobians"
    (products read stored ones), "jp" (they compute J x per edge first), "host": the CPU. For H and b "gather"
    evaluates edges anew in each sum, "scatter" and "collect" once; "blocks+scatter" says both. All but "host"
    also by edge type's tag, others are "auto". By vertex type's tag: "merged" (one kernel sums over all edge
    types) or "separate"."""
    preconditioner: str = "schur_jacobi"
    """Of pcg: block-Jacobi; with an implicit S also "jacobi", that of H_pp, cheaper and weaker."""
    pcg_tolerance: float | None = None
    """pcg stops when r' inv(M) r fell by this factor; None: 1e-12, in float32 1e-9."""
    pcg_iterations: int | None = None
    """pcg iterations per step at most; None: as many as there are rows."""
    work_queues: str = "auto"
    """On a GPU with schur="explicit", who finds the pairs of observations of each block of S: "cpu", "gpu",
    or "lookup" (nobody before: the kernel does, each time)."""
    configuration: str | None = None
    """Name of a set of these options, such as "PCG Implicit (GPU)", see `solver.configurations`."""
    computed: str = "auto"
    """Of computed values: "inline", "materialize", or "auto" by the size of what inlining makes."""

    def __post_init__(self) -> None:
        if not isinstance(self.device, str):
            raise OptionError(
                f"device is {self.device!r}, expected a name such as 'auto', 'cpu' or 'vulkan'."
            )
        if not isinstance(self.schedule, str):
            object.__setattr__(self, "schedule", _by_tag(self.schedule))
        for name, kind in (("pcg_tolerance", Real), ("pcg_iterations", Integral)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                whole = "whole " if kind is Integral else ""
                raise OptionError(f"{name} is {value!r}, expected a {whole}number.")
        object.__setattr__(self, "preconditioner", OLD_NAMES.get(self.preconditioner, self.preconditioner))
        check_linear_solver(self.linear_solver)
        for name, known in (
            ("schur", SCHUR_CHOICES),
            ("precision", PRECISIONS),
            ("schedule", SCHEDULES),
            ("preconditioner", PRECONDITIONERS),
            ("work_queues", WORK_QUEUES),
            ("computed", COMPUTED),
        ):
            if name == "schedule" and not isinstance(self.schedule, str):
                continue
            if getattr(self, name) not in known:
                raise OptionError(f"{name} is '{getattr(self, name)}', expected one of {', '.join(known)}.")
        if self.schur == "implicit" and factorizes(self.linear_solver):
            raise OptionError(
                f"schur 'implicit' needs linear_solver 'pcg', got '{self.linear_solver}': "
                "a factorization needs the reduced matrix. Use schur='explicit'."
            )
        if self.work_queues != "auto" and (self.schur != "explicit" or self.device == "cpu"):
            raise OptionError(
                f"work_queues '{self.work_queues}' is for an explicit Schur complement on a GPU, got schur="
                f"'{self.schur}' and device='{self.device}': nothing else has such a queue."
            )
        if PRECONDITIONERS[self.preconditioner].is_of_h and self.schur != "implicit":
            raise OptionError(
                f"preconditioner '{self.preconditioner}' is for schur='implicit', got schur='{self.schur}': "
                "elsewhere the diagonal blocks of the matrix itself are at hand."
            )
        if self.pcg_tolerance is not None and not 0.0 < self.pcg_tolerance < 1.0:
            raise OptionError(f"pcg_tolerance is {self.pcg_tolerance}, must be between 0 and 1.")
        if self.pcg_iterations is not None and self.pcg_iterations < 1:
            raise OptionError(f"pcg_iterations is {self.pcg_iterations}, must be at least 1.")

    @property
    def schedule_words(self) -> str:
        """The schedule as the command line has it: a name, or TAG=NAME,TAG=NAME."""
        if isinstance(self.schedule, str):
            return self.schedule
        return ",".join(f"{tag}={name}" for tag, name in dict(self.schedule).items())


class SolverChanges(TypedDict, total=False):
    """Fields of `SolverOptions` as keywords of `optimize`; those that are left out have their defaults."""

    device: str
    linear_solver: str
    schur: str
    precision: str
    schedule: str | Mapping[str, str]
    preconditioner: str
    pcg_tolerance: float | None
    pcg_iterations: int | None
    work_queues: str
    configuration: str | None
    computed: str


def _by_tag(schedule: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Sorted pairs of tag and schedule, which can be hashed; `OptionError` where a schedule is unknown."""
    try:
        pairs = dict(schedule)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"schedule is {schedule!r}, expected a name, or names by tag: {{'EDGE_SE2': 'jacobians'}}."
        ) from error
    for tag, pair in pairs.items():
        if pair not in EDGE_SCHEDULES + SUMMATIONS:
            raise OptionError(
                f"schedule of '{tag}' is '{pair}', expected one of {', '.join(EDGE_SCHEDULES)} for "
                f"an edge type, one of {', '.join(SUMMATIONS)} for a vertex type."
            )
    return tuple(sorted(pairs.items()))
