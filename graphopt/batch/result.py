"""Result of `optimize_batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from graphopt.batch.problems import ProblemArrays
from graphopt.errors import UnknownIdError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.summary import TerminationType
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver


@dataclass(frozen=True, eq=False)
class BatchSummary:
    """What `optimize_batch` found; B problems."""

    problems: ProblemArrays = field(repr=False)
    """What was given."""
    method: str
    estimates: Mapping[str, np.ndarray] = field(repr=False)
    """Tag of a vertex type -> (B, n, storage_dim), rows as in the graph's set. Vertices that were not
    optimized have their start."""
    initial_chi2: np.ndarray
    """(B,) robustified chi2 at the start; NaN where it is not finite or the problem was not begun."""
    final_chi2: np.ndarray
    """(B,) at `estimates`."""
    iterations: np.ndarray
    """(B,) int32."""
    trials: np.ndarray
    """(B,) int32: steps tried, accepted or not."""
    termination: np.ndarray
    """(B,) `TerminationType`: why each ended."""
    covariances: Mapping[int, np.ndarray]
    """Id of a vertex -> (B, tangent_dim, tangent_dim): its marginal covariance at `estimates`, NaN where the
    edges of a problem do not determine it."""
    fixed_by_gauge: list[int]
    """Vertices held constant in all problems because nothing else fixes them."""
    linear_solver: str
    device: str
    seconds: dict[str, float]
    """"prepare" (checks, structure, memory), "optimize" and "total"."""
    why_not_device: str = ""
    """What a GPU that device="auto" would have taken said; empty: nothing."""

    def __len__(self) -> int:
        return self.problems.count

    @cached_property
    def endings(self) -> dict[TerminationType, int]:
        """How many problems ended how."""
        rest, found = self.termination.tolist(), dict[TerminationType, int]()
        while rest:  # few kinds of many problems
            kind = rest[0]
            found[kind] = rest.count(kind)
            rest = [each for each in rest if each is not kind] if found[kind] < len(rest) else []
        return found

    @property
    def is_usable(self) -> np.ndarray:
        """(B,) bool: the estimates are an optimization's result, see `TerminationType.is_usable`."""
        usable = {kind: kind.is_usable for kind in self.endings}
        return np.array([usable[kind] for kind in self.termination.tolist()], bool)

    @property
    def converged(self) -> np.ndarray:
        """(B,) bool: a tolerance was met, or no step lowers chi2 any more."""
        ends = (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT)
        return np.array([kind in ends for kind in self.termination.tolist()], bool)

    def vertex(self, vertex_id: int) -> np.ndarray:
        """(B, storage_dim) estimates of one vertex of every problem."""
        number, row = self.problems.graph.vertex_place(vertex_id)
        return self.estimates[self.problems.graph.vertex_sets[number].type.tag][:, row]

    def graph(self, problem: int) -> Graph:
        """One of the problems as a graph of its own, with its result."""
        number = self._checked(problem)
        made = self.problems.graph_of(number)
        for vertex_set in made.vertex_sets:
            vertex_set.estimate[...] = self.estimates[vertex_set.type.tag][number]
        return made

    def message(self, problem: int) -> str:
        """A sentence about how a problem ended; where a number is not finite, of which edge."""
        number = self._checked(problem)
        ending = self.termination[number]
        if ending is not TerminationType.NON_FINITE:
            return f"Problem {number}: {ending.value}"
        graph = self.graph(number)
        structure = Structure(graph.select(-1))
        named = CpuBlockSolver(graph, structure, SolverOptions(device="cpu")).first_non_finite()
        return f"Problem {number}: {ending.value} {named or 'chi2 overflows: the errors are too large.'}"

    def brief_report(self) -> str:
        """One line."""
        counts = sorted((kind.name, count) for kind, count in self.endings.items())
        ends = ", ".join(f"{count} {name}" for name, count in counts)
        return (
            f"{len(self)} problems by {self.method} on {self.device}: {ends}; "
            f"{int(self.iterations.sum())} iterations, {self.seconds['total']:.3g} s."
        )

    def _checked(self, problem: int) -> int:
        if not -len(self) <= problem < len(self):
            raise UnknownIdError(f"There is no problem {problem}: there are {len(self)}.")
        return int(problem) % len(self)
