"""Pictures of graphs and runs, and errors of trajectories. matplotlib is imported when something is drawn."""

from graphopt.evaluate.report.pictures import plot_before_after, plot_convergence, plot_graph, plot_run
from graphopt.evaluate.report.sparsity import plot_sparsity
from graphopt.evaluate.report.trajectory import (
    TrajectoryErrors,
    alignment,
    match_by_time,
    poses_of_graph,
    trajectory_errors,
)

__all__ = [
    "TrajectoryErrors",
    "alignment",
    "match_by_time",
    "plot_before_after",
    "plot_convergence",
    "plot_graph",
    "plot_run",
    "plot_sparsity",
    "poses_of_graph",
    "trajectory_errors",
]
