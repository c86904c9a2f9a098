"""What an adjustment did: `graphopt`'s summary, and what Ceres and pycolmap call its fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

import numpy as np

from graphopt.graph import Graph, Selection
from graphopt.graph.residuals import robust_chi2
from graphopt.optimizer import Summary
from graphopt.optimizer.summary import TerminationType


class CeresTermination(Enum):
    """Names of `pycolmap.BundleAdjustmentTerminationType`."""

    CONVERGENCE = 0
    NO_CONVERGENCE = 1
    FAILURE = 2
    USER_SUCCESS = 3
    USER_FAILURE = 4

    def __eq__(self, other: object) -> bool:
        """Equal to the member of that name of pycolmap's or pyceres' enumerations, too."""
        return getattr(other, "name", None) == self.name

    __hash__ = Enum.__hash__


_CERES = {
    TerminationType.CONVERGENCE: CeresTermination.CONVERGENCE,
    TerminationType.NO_IMPROVEMENT: CeresTermination.CONVERGENCE,
    TerminationType.NO_CONVERGENCE: CeresTermination.NO_CONVERGENCE,
    TerminationType.SLOW_PROGRESS: CeresTermination.NO_CONVERGENCE,
    TerminationType.TIME_LIMIT: CeresTermination.NO_CONVERGENCE,
    TerminationType.USER_STOP: CeresTermination.USER_SUCCESS,
    TerminationType.USER_INTERRUPT: CeresTermination.USER_SUCCESS,
}


@dataclass
class BundleAdjustmentSummary(Summary):
    """`graphopt.Summary` with Ceres' names as well. Costs are half of chi2, as Ceres has them."""

    fixed_cost: float = 0.0
    """Of residuals that depend on nothing variable; part of `initial_cost` and `final_cost`, not of chi2."""
    num_residuals_reduced: int = 0
    """Scalar residuals that depend on something variable."""
    num_residual_blocks_reduced: int = 0
    num_parameters_reduced: int = 0
    """Scalars of variable blocks."""
    num_effective_parameters_reduced: int = 0
    """Components that move."""
    num_parameter_blocks_reduced: int = 0

    @property
    def ceres_summary(self) -> BundleAdjustmentSummary:
        """Itself: pycolmap's summary has that of Ceres beside it."""
        return self

    @property
    def num_residuals(self) -> int:
        """As pycolmap has it: `num_residuals_reduced`."""
        return self.num_residuals_reduced

    @property
    def initial_cost(self) -> float:
        """Half of chi2 at the start."""
        return self.fixed_cost + 0.5 * self.initial_chi2

    @property
    def final_cost(self) -> float:
        """Half of chi2 at the end."""
        return self.fixed_cost + 0.5 * self.final_chi2

    @property
    def termination_type(self) -> CeresTermination:
        """As Ceres names it."""
        return _CERES.get(self.termination, CeresTermination.FAILURE)

    @property
    def num_successful_steps(self) -> int:
        """Iterations that lowered the cost."""
        return len(self.iterations)

    @property
    def num_unsuccessful_steps(self) -> int:
        """Trials that did not."""
        return sum(max(iteration.trials - 1, 0) for iteration in self.iterations)

    @property
    def total_time_in_seconds(self) -> float:
        """Of the optimization, without conversion."""
        return self.seconds["total"]

    def is_solution_usable(self) -> bool:
        """As Ceres has it: converged, ran its course, or the user stopped it."""
        return self.termination_type not in (CeresTermination.FAILURE, CeresTermination.USER_FAILURE)

    IsSolutionUsable = is_solution_usable

    def BriefReport(self) -> str:
        """Ceres' line."""
        return (
            f"Ceres Solver Report: Iterations: {self.num_successful_steps + self.num_unsuccessful_steps}, "
            f"Initial cost: {self.initial_cost:e}, Final cost: {self.final_cost:e}, "
            f"Termination: {self.termination_type.name}"
        )

    def FullReport(self) -> str:
        """`full_report`."""
        return self.full_report()

    def report(self) -> str:
        """What COLMAP prints at the end; costs are root mean squares [px]."""
        count = max(self.num_residuals_reduced, 1)
        rows = {
            "Residuals": self.num_residuals_reduced,
            "Parameters": self.num_effective_parameters_reduced,
            "Iterations": self.num_successful_steps + self.num_unsuccessful_steps,
            "Time": f"{self.total_time_in_seconds:.6g} [s]",
            "Initial cost": f"{(self.initial_cost / count) ** 0.5:.6g} [px]",
            "Final cost": f"{(self.final_cost / count) ** 0.5:.6g} [px]",
            "Termination": self.termination_type.name,
        }
        return "Bundle adjustment report\n" + "\n".join(
            f"{name:>13} : {value}" for name, value in rows.items()
        )


def summary_of(summary: Summary, graph: Graph, scale_is_fixed: bool = False) -> BundleAdjustmentSummary:
    """Ceres' counts beside the summary of an optimization of a graph.

    scale_is_fixed: a coordinate of a frame counts as constant, though the graph does not hold it.
    """
    values = {each.name: getattr(summary, each.name) for each in fields(Summary)}
    selection = graph.select(0)
    result = BundleAdjustmentSummary(**values, fixed_cost=_fixed_cost(graph, selection))
    for edges in selection.edges:
        result.num_residual_blocks_reduced += len(edges.rows)
        result.num_residuals_reduced += len(edges.rows) * edges.edge_set.type.residual_dim
    for vertex_set, active in zip(selection.vertex_sets, selection.active, strict=True):
        free = active & ~vertex_set.fixed
        count, held = int(free.sum()), vertex_set.held
        result.num_parameter_blocks_reduced += count
        result.num_parameters_reduced += count * vertex_set.type.storage_dim
        result.num_effective_parameters_reduced += count * vertex_set.type.tangent_dim
        result.num_effective_parameters_reduced -= 0 if held is None else int(held[free].sum())
    result.num_effective_parameters_reduced -= int(scale_is_fixed)
    return result


def _fixed_cost(graph: Graph, selection: Selection) -> float:
    """Half of the robust chi2 of observations of which nothing moves."""
    active = {id(edges.edge_set): edges.rows for edges in selection.edges}
    total = 0.0
    for edge_set in graph.edge_sets:
        if edge_set.type.inequality:
            continue
        rows = active.get(id(edge_set), np.empty(0, np.int64))
        if len(rows) < len(edge_set):
            others = np.setdiff1d(np.arange(len(edge_set)), rows)
            total += float(robust_chi2(graph, edge_set, others).sum())
    return 0.5 * total
