"""What an optimization did: `Summary`, its iterations, and why it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from graphopt.errors import SolverError
from graphopt.html import html_table

if TYPE_CHECKING:
    from graphopt.optimizer.certificate import Certificate, Certifier
    from graphopt.optimizer.kkt import KktConditions


class TerminationType(Enum):
    """Why the optimizer stopped. The value is the sentence shown to the user."""

    CONVERGENCE = "A tolerance was met."
    NO_CONVERGENCE = "max_iterations was reached; the estimate may still be improving."
    NO_IMPROVEMENT = "No trial step lowered chi2 any more; the estimate is at a minimum up to rounding."
    SLOW_PROGRESS = "chi2 creeps far above what the measurements explain; the run was given up."
    UNBOUNDED = "chi2 is below zero: information is indefinite, and there may be no minimum."
    TIME_LIMIT = "The time limit was reached; the estimate may still be improving."
    USER_STOP = "The callback or the stop flag asked to stop; the best estimate so far is kept."
    USER_INTERRUPT = "Interrupted by the user; the best estimate so far is kept."
    LINEAR_SOLVER_FAILURE = "The linear system is not positive definite; the estimate before it is kept."
    INFEASIBLE = "The inequalities were not met; the estimate violates them little, but does."
    REFUSED = "The data do not determine what was asked for; nothing was changed."
    NON_FINITE = "An error, a Jacobian or a step became NaN or infinite; the last finite estimate is kept."

    @property
    def is_usable(self) -> bool:
        """The estimate is an optimization's result: it converged or ran its course."""
        return self in (
            TerminationType.CONVERGENCE,
            TerminationType.NO_CONVERGENCE,
            TerminationType.NO_IMPROVEMENT,
            TerminationType.SLOW_PROGRESS,
            TerminationType.TIME_LIMIT,
        )


HEAD = f"{'iteration':>9} {'chi2':>16} {'lambda':>10} {'trials':>6} {'ms':>9}"


class Iteration(NamedTuple):
    """One iteration: a linearization and the trials from it."""

    iteration: int
    """From 0."""
    chi2: float
    """Robustified chi2 at the estimate that the iteration ended with."""
    lambda_: float | None
    """Damping after the iteration; None for an algorithm (or a step) without."""
    trials: int
    """Steps that were tried."""
    seconds: float
    """Wall-clock time of the iteration."""

    def line(self) -> str:
        """Under `HEAD`."""
        damping = "" if self.lambda_ is None else f"{self.lambda_:.3g}"
        numbers = f"{self.iteration:9d} {self.chi2:16.9g} {damping:>10} {self.trials:6d}"
        return f"{numbers} {1e3 * self.seconds:9.2f}"

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON summary."""
        return {
            "iteration": self.iteration,
            "chi2": self.chi2,
            "lambda": self.lambda_,
            "trials": self.trials,
            "seconds": self.seconds,
        }


class Phase(NamedTuple):
    """A part of an optimization: who did it, how long, in which arithmetic."""

    name: str
    """As in `Summary.seconds`."""
    device: str
    """"cpu", or the device of the summary."""
    milliseconds: float
    precision: str
    """Of the phases that compute: "double", "mixed", or both where the run changed over."""


_ON_THE_DEVICE = ("linearize", "solve", "update")


def _no_seconds() -> dict[str, float]:
    measured = ("read", "analyze", "prepare", "linearize", "solve", "update", "restart", "verify")
    return dict.fromkeys((*measured, "other", "total"), 0.0)


@dataclass
class Summary:
    """Result of `graphopt.optimize`."""

    vertices: int
    """Active vertices, fixed ones included."""
    edges: int
    """Active edges."""
    method: str
    """"auto", "lm", "gn" or "dogleg"."""
    termination: TerminationType = TerminationType.NO_CONVERGENCE
    initial_chi2: float = float("nan")
    final_chi2: float = float("nan")
    iterations: list[Iteration] = field(default_factory=list)
    linear_solver: str = ""
    factorized_on: str = ""
    """"device" or "cpu": where Cholesky ran; "" where conjugate gradients did."""
    schur: str = ""
    device: str = ""
    device_name: str = ""
    precision: str = ""
    """"double" or "mixed"; of a run that changed over, "double"."""
    precision_note: str = ""
    """Why the precision is not the one that was asked for, or what float32 left undone."""
    switched_at: int | None = None
    """First iteration in double of a run that began in mixed precision; None: it did not change over."""
    schedule: str = "host"
    """Who computes H: "host" (the CPU); or what a device stores of it, see `SolverOptions`."""
    schedule_note: str = ""
    """Why the CPU computes H on a device that was asked to solve, where nobody asked for that."""
    seconds: dict[str, float] = field(default_factory=_no_seconds)
    """read, analyze (selection, gauge, structure), prepare (compile, memory), linearize (with chi2), solve,
    update, restart (relaxation, re-seating), verify (float32's result in double), other (what is left:
    vectors, stop rules, callback), total (the sum of all).

    On a Vulkan device also what of its set-up ran beside the first linearization (`prepare_beside`), and how
    long the first `solve` waited for the rest (`prepare_wait`, part of `solve`); neither adds to the total.
    """
    memory_bytes: int = 0
    """Arrays of the graph, the structure and the block solver."""
    points_behind: dict[str, list[int]] = field(default_factory=dict)
    """Edges at the end whose point is not in front of its camera, which sees nothing there: tag of the set
    -> rows. chi2 counts them as g2o does. Looked for where there are at most `optimize.MOST_VIEWS` images."""
    outliers: list[tuple[str, int]] = field(default_factory=list)
    """Edges that `robust="graduated"` left out: tag of the edge set, row in it."""
    fixed_by_gauge: list[int] = field(default_factory=list)
    """Vertices held constant in this optimization because nothing else fixed the graph."""
    ranks: list[dict[str, Any]] = field(default_factory=list)
    """Of a distributed optimization, per rank: `rank`, `host`, `device`, `device_name`, `edges`, `kept` and
    `eliminated` vertices, `memory_bytes`, `seconds` of the iterations and how many of these it communicated,
    waiting for others included (`seconds_communicating`)."""
    partition: dict[str, Any] = field(default_factory=dict)
    """Of a distributed optimization: how many `ranks` of how many (`of`) took part and the `reason`; of
    several the `method` of the partition; `kept` vertices and their copies on all ranks
    together (`kept_copies`); largest over mean number of edges (`edge_imbalance`) and of seconds of computing
    (`imbalance`); `communication_share` of the iterations' seconds."""
    kkt: KktConditions | None = None
    """With bounds or inequalities: which are active, and how well the conditions of an optimum hold."""
    message: str = ""
    """What else there is to say, such as the edge whose error is not finite."""

    certifier: Certifier | None = field(default=None, repr=False, compare=False)
    """Finds the `certificate` when asked for it; None: nothing can, as in another process."""
    known_certificate: Certificate | None = field(default=None, repr=False, compare=False)
    """The certificate, where it was found before."""

    @property
    def certificate(self) -> Certificate:
        """How far from a minimum the estimates are and how well the data determine them.

        Computed at the first look: one linearization and factorization on the CPU in double, whatever ran the
        optimization. `SolverError` where it cannot be known: the graph is gone or has changed since, or
        is on another rank.
        """
        if self.known_certificate is None:
            if self.kkt is not None:
                raise SolverError(
                    "With bounds or inequalities chi2 alone has no minimum at the end: see summary.kkt."
                )
            if self.certifier is None:
                raise SolverError(
                    "There is no certificate: this summary came without its graph (from another process or "
                    "rank, or from a call that optimizes no graph of the caller's)."
                )
            self.known_certificate = self.certifier.certify(
                self.fixed_by_gauge, self.final_chi2, self.precision if self.switched_at is None else "mixed"
            )
        return self.known_certificate

    def is_minimum(self, tolerance: float = 1e-6) -> bool:
        """Whether the quadratic model promises to lower chi2 by at most this share, see `Certificate`.

        With bounds or inequalities: whether no single component promises more, the conditions of `kkt` given,
        and no inequality is violated by more than `tolerance`. Raises as `certificate` does.
        """
        if self.kkt is not None:
            stationary = self.kkt.scaled_stationarity**2 <= tolerance
            return bool(stationary and self.kkt.violation <= tolerance)
        return self.certificate.is_minimum(tolerance)

    @property
    def phases(self) -> list[Phase]:
        """Who did what, how long, in which precision, of the phases that took time."""
        both = f"mixed, double from iteration {self.switched_at}"
        precision = self.precision if self.switched_at is None else both
        found = []
        for name, seconds in self.seconds.items():
            computes = name in _ON_THE_DEVICE
            on_cpu = not computes or (name == "solve" and self.factorized_on == "cpu")
            device = "cpu" if on_cpu else self.device
            arithmetic = precision if computes else "double" if name in ("restart", "verify") else ""
            if seconds > 0.0 and name != "total":
                found.append(Phase(name, device, 1e3 * seconds, arithmetic))
        return found

    @property
    def is_usable(self) -> bool:
        """The estimate is an optimization's result."""
        return self.termination.is_usable

    def take_description(self, description: dict[str, Any]) -> None:
        """What `BlockSolver.describe` says; its seconds are added to those here."""
        for name, value in description.items():
            if name == "seconds":
                self.seconds.update(value)
            elif value or name != "precision_note":
                setattr(self, name, value)
        if self.switched_at is not None:
            self.precision = "double"

    def brief_report(self) -> str:
        """One line."""
        return (
            f"{self.method} on {self.device_name or self.device}: "
            f"chi2 {self.initial_chi2:.6g} -> {self.final_chi2:.6g} in {len(self.iterations)} iterations, "
            f"{self.seconds['total']:.3g} s. {self.termination.value}"
        )

    def full_report(self) -> str:
        """A paragraph and a line per iteration."""
        lines = [
            f"vertices {self.vertices}, edges {self.edges}, memory {self.memory_bytes / 2**20:.1f} MiB",
            f"method {self.method}, linear solver {self.linear_solver}"
            f"{f' on the {self.factorized_on}' if self.factorized_on else ''}, schur {self.schur}, "
            f"device {self.device} ({self.device_name}), precision {self.precision}, "
            f"schedule {self.schedule}",
        ]
        if self.fixed_by_gauge:
            ids = ", ".join(map(str, self.fixed_by_gauge[:10]))
            more = f" and {len(self.fixed_by_gauge) - 10} more" if len(self.fixed_by_gauge) > 10 else ""
            lines.append(f"held constant, because nothing fixed the graph: vertex {ids}{more}")
        lines.append(HEAD)
        lines.append(f"{'start':>9} {self.initial_chi2:16.9g}")
        lines += [iteration.line() for iteration in self.iterations]
        lines.append(f"{'phase':<14} {'device':<10} {'ms':>12}  precision")
        for phase in self.phases:
            line = f"{phase.name:<14} {phase.device:<10} {phase.milliseconds:12.3f}  {phase.precision}"
            lines.append(line.rstrip())
        lines.append(f"{'total':<25} {1e3 * self.seconds['total']:12.3f}")
        if self.known_certificate is not None:
            lines.append(self.known_certificate.sentence())
        lines += self.rank_lines()
        for tag, rows in self.points_behind.items():
            named = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
            lines.append(f"{len(rows)} points behind their cameras: {tag}, edges {named}")
        if self.kkt is not None:
            lines.append(self.kkt.line())
        lines += [note for note in (self.precision_note, self.schedule_note) if note]
        lines.append(self.termination.value + (f" {self.message}" if self.message else ""))
        return "\n".join(lines)

    def rank_lines(self) -> list[str]:
        """A line per rank of a distributed optimization, and one about all."""
        lines = [
            f"rank {rank['rank']} on {rank['host']}: {rank['device_name']}, {rank['edges']} edges, "
            f"{rank['kept']} vertices kept, {rank['eliminated']} eliminated, "
            f"{rank['memory_bytes'] / 2**20:.1f} MiB, {rank['seconds']:.4g} s, of these "
            f"{rank['seconds_communicating']:.4g} s communicating"
            for rank in self.ranks
        ]
        if self.partition.get("ranks", 0) < self.partition.get("of", 0):
            lines.append(
                f"{self.partition['ranks']} of {self.partition['of']} ranks: {self.partition['reason']}"
            )
        if "kept" in self.partition:
            lines.append(
                f"partition {self.partition['method']}: {self.partition['kept_copies']} copies of "
                f"{self.partition['kept']} kept vertices, imbalance of edges "
                f"{self.partition['edge_imbalance']:.3f}, of time {self.partition['imbalance']:.3f}; "
                f"communication {self.partition['communication_share']:.1%}, "
                f"by {self.partition['transport']}"
            )
        return lines

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON text; numbers that are not finite become null, as the standard has none."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    def _repr_html_(self) -> str:
        """For notebooks: the result, and the iterations to unfold."""
        rows = [
            [
                each_iteration.iteration,
                f"{each_iteration.chi2:.9g}",
                _damping(each_iteration),
                each_iteration.trials,
                f"{1e3 * each_iteration.seconds:.2f}",
            ]
            for each_iteration in self.iterations
        ]
        solver = (self.method, self.linear_solver, self.device_name or self.device, self.precision)
        facts = [
            ["chi2", f"{self.initial_chi2:.9g} → {self.final_chi2:.9g}"],
            ["ended", f"{self.termination.value} {self.message}".strip()],
            ["graph", f"{self.vertices} vertices, {self.edges} edges"],
            ["solved by", ", ".join(solver)],
            ["seconds", f"{self.seconds['total']:.3g}"],
        ]
        iterations = html_table(rows, ["iteration", "chi2", "lambda", "trials", "ms"])
        summary = f"{len(self.iterations)} iterations"
        return f"{html_table(facts)}<details><summary>{summary}</summary>{iterations}</details>"

    def count_in(self, earlier: Sequence[Summary]) -> None:
        """Take the iterations and seconds of earlier parts of the same optimization as one's own."""
        iterations = [each for summary in (*earlier, self) for each in summary.iterations]
        self.iterations = [each._replace(iteration=number) for number, each in enumerate(iterations)]
        for summary in earlier:
            for name, seconds in summary.seconds.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain numbers, strings, lists and dictionaries."""
        return {
            "vertices": self.vertices,
            "edges": self.edges,
            "initial_chi2": self.initial_chi2,
            "final_chi2": self.final_chi2,
            "iterations": [each_iteration.to_dict() for each_iteration in self.iterations],
            "termination": self.termination.name.lower(),
            "termination_message": self.termination.value,
            "message": self.message,
            "method": self.method,
            "linear_solver": self.linear_solver,
            "factorized_on": self.factorized_on,
            "schur": self.schur,
            "device": self.device,
            "device_name": self.device_name,
            "precision": self.precision,
            "precision_note": self.precision_note,
            "switched_at": self.switched_at,
            "schedule": self.schedule,
            "schedule_note": self.schedule_note,
            "points_behind": {tag: len(rows) for tag, rows in self.points_behind.items()},
            "outliers": [list(outlier) for outlier in self.outliers],
            "fixed_by_gauge": list(self.fixed_by_gauge),
            "ranks": [dict(rank) for rank in self.ranks],
            "partition": dict(self.partition),
            "kkt": None if self.kkt is None else self.kkt.to_dict(),
            "seconds": dict(self.seconds),
            "phases": [phase._asdict() for phase in self.phases],
            "certificate": None if self.known_certificate is None else asdict(self.known_certificate),
            "memory_bytes": self.memory_bytes,
        }


def _damping(iteration: Iteration) -> str:
    return "" if iteration.lambda_ is None else f"{iteration.lambda_:.3g}"


def _finite(value: Any) -> Any:
    """The same with None for NaN and infinity."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
