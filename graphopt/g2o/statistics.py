"""`G2OBatchStatistics`: what each iteration did."""

from __future__ import annotations

from typing import ClassVar


class G2OBatchStatistics:
    """One iteration in numbers. Times are in seconds; g2o's finer ones that we do not measure are zero."""

    __slots__ = (
        "chi2",
        "choleskyNNZ",
        "hessian_dimension",
        "hessian_landmark_dimension",
        "hessian_pose_dimension",
        "iteration",
        "iterations_linear_solver",
        "levenberg_iterations",
        "num_edges",
        "num_vertices",
        "time_iteration",
        "time_linear_solution",
        "time_linear_solver",
        "time_linearize",
        "time_marginals",
        "time_numeric_decomposition",
        "time_quadratic_form",
        "time_residuals",
        "time_schur_complement",
        "time_symbolic_decomposition",
        "time_update",
    )
    _global: ClassVar[G2OBatchStatistics | None] = None

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0.0 if name.startswith("time") or name == "chi2" else 0)

    def __repr__(self) -> str:
        return f"<G2OBatchStatistics iteration {self.iteration}: chi2 {self.chi2:.9g}>"

    @staticmethod
    def global_stats() -> G2OBatchStatistics | None:
        """What `set_global_stats` set."""
        return G2OBatchStatistics._global

    @staticmethod
    def set_global_stats(statistics: G2OBatchStatistics | None) -> None:
        """Set the global statistics."""
        G2OBatchStatistics._global = statistics
