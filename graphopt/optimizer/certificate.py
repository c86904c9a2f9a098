"""What an optimization's end is worth: how far from a minimum, how well determined.

    gradient            max_i |b_i| / sqrt(H_ii chi2): cosine of errors and a Jacobian's column (MINPACK)
    predicted decrease  max over dx of 2 b' dx - dx' H dx: of chi2, by Gauss-Newton's quadratic model
    condition           |A|_1 |inv(A)|_1,  A = S H S,  S = diag(H)^-1/2

Found in double on the CPU when asked for, with the edges, fixed vertices and kernels of the run: an
optimization itself pays for nothing but a weak reference. The norms are W. Hager's estimates, Condition
estimates, SIAM J. Sci. Stat. Comput. 5, 1984: never above the norms, seldom below a third of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import SolverError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.linear.vectors import dot
from graphopt.optimizer.algorithm import PROBES
from graphopt.optimizer.computed import materializes
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.inline import INLINED_VALUES
from graphopt.problem.rewrite import Rewrite
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver

_SAME = {"double": 1e-9, "mixed": 1e-5}
"""Relative difference of chi2 at the run's end and now that rounding explains, by the run's precision."""
_ROUNDING = 16.0 * float(np.finfo(float).eps)
_MOST_PRODUCTS = 5  # of Hager's method
_SINGULAR = 1e12  # condition from which rounding spoils the solution of the undamped system


@dataclass(frozen=True)
class Certificate:
    """Of the estimates that an optimization has left; see the module's header."""

    chi2: float
    gradient: float
    """Dimensionless, 0 at a minimum; where robust kernels bound chi2 it may exceed 1."""
    predicted_decrease: float
    """In units of chi2. By conjugate gradients: at least this much."""
    condition: float
    """Of H scaled to a unit diagonal. Infinite: H is singular, something is undetermined. NaN: not known,
    because conjugate gradients solve."""
    is_exact: bool
    """chi2 is as small as rounding of the estimates allows: the measurements agree with each other."""

    def is_minimum(self, tolerance: float) -> bool:
        """The quadratic model promises to lower chi2 by at most this share, or chi2 is 0 but for rounding.

        That is a point where chi2 is stationary and the model is bounded. Whether chi2 is lower elsewhere,
        and curvature of errors that are far from 0, it does not tell.
        """
        return self.is_exact or bool(self.predicted_decrease <= tolerance * self.chi2)

    def sentence(self) -> str:
        """A line of a report."""
        return (
            f"certificate: scaled gradient {self.gradient:.3g}, the quadratic model promises another "
            f"{self.predicted_decrease:.3g} of chi2, condition {self.condition:.3g}"
        )


@dataclass(frozen=True)
class Certifier:
    """What `certify` needs of a run. It does not keep the graph."""

    graph: Callable[[], Graph | None]
    part: tuple[int, Any, Any]
    """level, vertices and edges of `Graph.select`."""
    solver: SolverOptions
    has_kernels: bool = True
    """False: edges counted without their robust kernels, as `robust="graduated"` has it at the end."""

    def __reduce__(self) -> Any:
        """In a pickle, None: graphs do not travel with summaries."""
        return _none, ()

    def certify(self, fixed: list[int], final_chi2: float, precision: str) -> Certificate:
        """Of the graph as it is now, if chi2 is still that of the run's end; else `SolverError`.

        fixed: ids of the vertices that the run held.
        """
        graph = self.graph()
        if graph is None:
            raise SolverError("There is no certificate: the graph that was optimized is gone.")
        with graph.held_still(), nullcontext() if self.has_kernels else _kernels_off(graph, self):
            solver = _solver(graph, self, fixed)
            chi2 = solver.linearize()
            scale = max(abs(chi2), abs(final_chi2))
            found = _certificate(graph, solver, chi2)
        if abs(chi2 - final_chi2) <= _SAME.get(precision, _SAME["mixed"]) * scale or found.is_exact:
            return found
        raise SolverError(
            f"There is no certificate: chi2 of the graph is {chi2:.9g} now and was {final_chi2:.9g} at "
            "the end of the optimization. Ask before estimates, edges or kernels change."
        )


def _none() -> None:
    return None


@contextmanager
def _kernels_off(graph: Graph, certifier: Certifier) -> Iterator[None]:
    """Within it the edges that took part have no robust kernels."""
    parts = [(each.edge_set, each.rows) for each in graph.select(*certifier.part).edges]
    before = [edge_set.kernel[rows] for edge_set, rows in parts]
    for edge_set, rows in parts:
        edge_set.kernel[rows] = 0
    try:
        yield
    finally:
        for (edge_set, rows), kernel in zip(parts, before, strict=True):
            edge_set.kernel[rows] = kernel


def _solver(graph: Graph, certifier: Certifier, fixed: list[int]) -> Any:
    """A block solver on the CPU, of what was optimized."""
    options = SolverOptions(device="cpu")
    selection = fix_gauge(graph, graph.select(*certifier.part), fixed)[0]
    problem = Rewrite(graph, selection)
    if graph.has_computed():
        if materializes(graph, selection, certifier.solver):
            from graphopt.computed.materialized import materialized_solver  # loads scipy

            return materialized_solver(graph, selection, options, {"analyze": 0.0, "prepare": 0.0})
        problem.apply(INLINED_VALUES)
    problem.apply(FIXED_COMPONENTS)
    return create_block_solver(problem.graph, Structure(problem.selection), options)


def _certificate(graph: Graph, solver: Any, chi2: float) -> Certificate:
    b, diagonal = solver.b.copy(), solver.diagonal.copy()
    if not (np.isfinite(b).all() and np.isfinite(diagonal).all()):
        return Certificate(chi2, np.nan, np.nan, np.nan, False)
    is_exact = abs(chi2) <= float(np.abs(diagonal).sum()) * (_ROUNDING * _largest(graph)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.abs(b) / np.sqrt(diagonal * abs(chi2))
    gradient = float(np.nan_to_num(cosines, nan=0.0, posinf=np.inf).max())  # 0 / 0: the row is not observed
    decrease, condition = np.nan, np.inf
    for damping in (0.0, *PROBES):
        if not solver.solve(damping * diagonal if damping else 0.0):
            continue
        dx = solver.dx.copy()
        decrease = np.fmax(decrease, 2.0 * dot(dx, b) - dot(dx, solver.multiply(dx)))  # each is a lower bound
        if not damping:
            condition = _condition(solver, diagonal)
        if not condition > _SINGULAR:  # else rounding may take some percent of each
            break
    return Certificate(chi2, gradient, np.maximum(decrease, 0.0), condition, is_exact)


def _largest(graph: Graph) -> float:
    """Largest estimate, at least 1."""
    return max([1.0, *(float(np.abs(each.look("estimate")).max(initial=0.0)) for each in graph.vertex_sets)])


def _condition(solver: Any, diagonal: np.ndarray) -> float:
    """Of the factorized H, scaled."""
    again = getattr(solver, "solve_again", None)
    if again is None or not (diagonal > 0.0).all() or not solver.describe()["factorized_on"]:
        return float("nan")
    scale = np.sqrt(diagonal)
    whole = _norm(lambda x: solver.multiply(x / scale) / scale, len(scale))
    inverse = _norm(lambda x: scale * again(scale * x), len(scale))
    return whole * inverse


def _norm(product: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """1-norm of a symmetric matrix, estimated from products."""
    x = np.full(size, 1.0 / size)
    found = 0.0
    for _ in range(_MOST_PRODUCTS):
        y = product(x)
        found = max(found, float(np.abs(y).sum()))
        z = product(np.where(y >= 0.0, 1.0, -1.0))
        row = int(np.argmax(np.abs(z)))
        if abs(z[row]) <= dot(z, x):
            break
        x = np.zeros(size)
        x[row] = 1.0
    return found
