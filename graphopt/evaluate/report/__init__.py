"""Pictures of graphs and runs, and errors of trajectories. matplotlib is imported when something is drawn."""

from graphopt.evaluate.report.pictures import plot_before_after, plot_convergence, plot_graph, plot_run
from graphopt.evaluate.report.sparsity import plot_sparsity
from graphopt.evaluate.report.thumbnails import frustum_rows, write_atlas
from graphopt.evaluate.report.trajectory import (
    TrajectoryErrors,
    alignment,
    match_by_time,
    poses_of_graph,
    trajectory_errors,
)
from graphopt.evaluate.report.viewer import trajectory_document

__all__ = [
    "TrajectoryErrors",
    "alignment",
    "frustum_rows",
    "match_by_time",
    "plot_before_after",
    "plot_convergence",
    "plot_graph",
    "plot_run",
    "plot_sparsity",
    "poses_of_graph",
    "trajectory_document",
    "trajectory_errors",
    "write_atlas",
]
