"""The active part of a graph: vertices, edges, errors, the Hessian, components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import GraphError
from graphopt.g2o.elements.hyper_edge import Edge
from graphopt.g2o.engine.problem import Problem
from graphopt.g2o.engine.sparse_block_matrix import SparseBlockMatrixX
from graphopt.g2o.optimizable_graph import OptimizableGraph
from graphopt.graph import Graph
from graphopt.graph.components import connected_components
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver

if TYPE_CHECKING:
    from graphopt.g2o.engine.incremental import Incremental


class ActiveGraph(OptimizableGraph):
    """What of a graph takes part in an optimization: its active vertices and edges, their errors and H."""

    def __init__(self) -> None:
        super().__init__()
        self._problem: Problem | None = None
        self._solver: Any = None
        self._incremental: Incremental | None = None
        self._numbered: Any = None
        self._error_actions: dict[Any, None] = {}

    # ---------------------------------------------------------------- active part

    def initialize_optimization(
        self, selection: Any = 0, level: int = 0, *, vset: Any = None, eset: Any = None
    ) -> bool:
        """Choose the active part; False if it is empty. Runs the actions with iteration -1.

        `initialize_optimization(level=0)`: all edges of a level, of all levels if negative. With a set of
        vertices (also `vset`): the edges between them. With a set of edges (also `eset`): exactly these.
        """
        selection = selection if vset is None else vset
        selection = selection if eset is None else eset
        if not self._edges:
            return self._choose_nothing()
        self.pre_iteration(-1)
        problem = self._present_problem()
        if isinstance(selection, (int, np.integer)):
            problem.choose_level(int(selection) or level)
        else:
            chosen = list(selection)
            if chosen and isinstance(chosen[0], Edge):
                problem.choose_edges(chosen)
            else:
                problem.choose_vertices(chosen, level)
        return self._initialized()

    def _initialized(self) -> bool:
        self._numbered = None
        self.post_iteration(-1)
        selection = None if self._problem is None else self._problem.selection
        return bool(selection and selection.num_active_edges)

    def _choose_nothing(self) -> bool:
        """Of a graph without edges nothing is active."""
        self._present_problem().choose_edges([])
        self._numbered = None
        return False

    def update_initialization(self, vset: Iterable[Any], eset: Iterable[Any]) -> bool:
        """Make new vertices and edges active beside those that are; the edges bring their vertices."""
        if not self._edges:
            return self._choose_nothing()
        before = self._problem
        self.pre_iteration(-1)
        self._present_problem().choose_more(before, eset)
        return self._initialized()

    def _present_problem(self) -> Problem:
        if self._problem is None or self._problem.version != self._version:
            self._problem = Problem(self)
            self._solver = None
        return self._problem

    def _active_problem(self, what: str) -> Problem:
        if self._problem is None or self._problem.selection is None:
            raise GraphError(f"{what}: call initialize_optimization() first.")
        return self._problem

    def active_vertices(self) -> list[Any]:
        """Vertices of active edges by ascending id."""
        return [] if self._problem is None else self._problem.active_vertices()

    def active_edges(self) -> list[Any]:
        """Active edges in the order in which they were added."""
        return [] if self._problem is None else self._problem.active_edges()

    def find_active_edge(self, e: Any) -> Any:
        """The edge itself if it is active, else None."""
        return e if e in ActiveGraph.active_edges(self) else None

    def find_active_vertex(self, v: Any) -> Any:
        """The vertex itself if it is active, else None."""
        return v if v in ActiveGraph.active_vertices(self) else None

    def index_mapping(self) -> list[Any]:
        """Vertices that are optimized, in the order of their Hessian indices: marginalized ones last."""
        free = [
            active_vertex for active_vertex in ActiveGraph.active_vertices(self) if not active_vertex.fixed()
        ]
        return sorted(free, key=lambda vertex: (vertex.marginalized(), vertex._id))

    def _number_hessian(self) -> None:
        selection = None if self._problem is None else self._problem.selection
        if selection is None or self._numbered is selection:
            return
        for vertex in self._vertices.values():
            vertex._hessian_index = -1
        for number, mapped in enumerate(ActiveGraph.index_mapping(self)):
            mapped._hessian_index = number
        self._numbered = selection

    # ---------------------------------------------------------------- errors

    def compute_active_errors(self) -> None:
        """Compute the errors of all active edges at the present estimates."""
        for action in list(self._error_actions):
            action(self, {"iteration": -1})
        if self._problem is not None and self._problem.selection is not None:
            self._problem.take_values()
            self._problem.compute_errors()

    def active_chi2(self) -> float:
        """Sum of the active edges' chi2, of their last errors."""
        return 0.0 if self._problem is None else self._problem.active_chi2()

    def active_robust_chi2(self) -> float:
        """The same with robust kernels."""
        return 0.0 if self._problem is None else self._problem.active_robust_chi2()

    # ---------------------------------------------------------------- estimates

    def push(self, vlist: Iterable[Any] | None = None) -> None:
        """Remember estimates, of the active vertices by default."""
        super().push(ActiveGraph.active_vertices(self) if vlist is None else vlist)

    def pop(self, vlist: Iterable[Any] | None = None) -> None:
        """Return to the last pushed estimates."""
        super().pop(ActiveGraph.active_vertices(self) if vlist is None else vlist)

    def discard_top(self, vlist: Iterable[Any] | None = None) -> None:
        """Forget the last pushed estimates."""
        super().discard_top(ActiveGraph.active_vertices(self) if vlist is None else vlist)

    def clear(self) -> None:
        """Take everything out; objects that are held elsewhere keep their data."""
        super().clear()
        self._problem = self._solver = self._incremental = None

    # ---------------------------------------------------------------- Hessian

    def block_solver(self) -> Any:
        """The block solver that the last `optimize` ran with, as of `graphopt.optimize`.

        After one with `online` it is that of the whole active part.
        """
        if self._solver is None and self._incremental is not None:
            problem = self._active_problem("hessian")
            assert problem.selection is not None
            self._solver = CpuBlockSolver(problem.graph, Structure(problem.selection), SolverOptions("cpu"))
            self._solver.linearize()
        if self._solver is None:
            raise GraphError("There is no Hessian: call optimize() first.")
        return self._solver

    def _hessian_block(self, vertex: Any) -> np.ndarray:
        solver, block = self._block_of(vertex)
        solver = self._with_blocks(solver)
        structure = solver.structure
        last = int(structure.pattern.col_ptr[block + 1]) - 1
        dim = int(structure.dims[block])
        values = solver.values[
            structure.pattern.value_offsets[last] : structure.pattern.value_offsets[last + 1]
        ]
        return values.reshape(dim, dim).copy()

    def _with_blocks(self, solver: Any) -> Any:
        """A block solver whose H the CPU can read: a device may keep its own for itself."""
        if hasattr(solver, "values"):
            return solver
        problem = self._active_problem("hessian")
        with_blocks = CpuBlockSolver(problem.graph, solver.structure, SolverOptions("cpu"))
        with_blocks.linearize()
        return with_blocks

    def _b_block(self, vertex: Any) -> np.ndarray:
        solver, block = self._block_of(vertex)
        first = int(solver.structure.offsets[block])
        return solver.b[first : first + int(solver.structure.dims[block])].copy()

    def _block_of(self, vertex: Any) -> tuple[Any, int]:
        solver = self.block_solver()
        block = solver.structure.block_of(*self._active_problem("hessian").place_of(vertex))
        if block < 0:
            raise GraphError(f"{vertex!r} is fixed or has no active edge: it has no Hessian block.")
        return solver, block

    def compute_marginals(self, *arguments: Any) -> tuple[SparseBlockMatrixX, bool]:
        """Covariance blocks: (matrix by Hessian indices, success).

        Of a vertex, of a sequence of vertices (each with itself), of a sequence of pairs of Hessian
        indices, or of Hessian indices. The second form of older bindings, `compute_marginals(spinv,
        vertices)`, fills `spinv`.
        """
        from graphopt.g2o.engine.marginals import compute_marginals

        return compute_marginals(self, arguments)

    # ---------------------------------------------------------------- gauge and components

    def gauge_freedom(self) -> bool:
        """No vertex of the largest dimension is fixed or has a unary edge of that dimension."""
        return self._flagged_graph().gauge_freedom()

    def find_gauge(self) -> Any:
        """The vertex that g2o would fix, None for an empty graph."""
        vertex = self._flagged_graph().find_gauge()
        return None if vertex is None else self._vertices.get(vertex)

    def is_connected(self, level: int = 0) -> bool:
        """All vertices of the level's edges are connected."""
        return ActiveGraph.num_connected_components(self, level) <= 1

    def num_connected_components(self, level: int = 0) -> int:
        """Connected components by the edges of a level (of all if negative); a vertex without edge is one."""
        graph = self._flagged_graph()
        chosen = {
            edge_list.edge_set: np.flatnonzero(
                np.ones(len(edge_list.objects), bool) if level < 0 else edge_list.take_levels() == level
            )
            for edge_list in self._present_problem().edge_lists
        }
        count, labels = connected_components(graph.select(edges=chosen))
        return count + sum(int(np.count_nonzero(label < 0)) for label in labels)

    def _flagged_graph(self) -> Graph:
        problem = self._present_problem()
        for vertex_list in problem.vertex_lists:
            vertex_list.take_flags()
        return problem.graph

    def graph(self) -> Graph:
        """A `graphopt.Graph` with the present content: a copy, without edges that are defined in Python."""
        problem = Problem(self)
        problem.take_values()
        for vertices in problem.vertex_lists:
            vertices.take_flags()
        for edges in problem.edge_lists:
            edges.edge_set.level = edges.take_levels()
        return problem.graph

    def print_graph_summary(self) -> str:
        """Counts and chi2 in a few lines, g2o's text."""
        lines = ["Graph summary:", f"  vertices: {len(self._vertices)}", f"  edges: {len(self._edges)}"]
        if self._vertices:
            largest = OptimizableGraph.max_dimension(self)
            poses = sum(vertex.dimension() == largest for vertex in self._vertices.values())
            lines.append(f"  poses: {poses}")
            lines.append(f"  landmarks: {len(self._vertices) - poses}")
            lines.append(f"  levels: {len({edge.level() for edge in self._edges})}")
        active = ActiveGraph.active_edges(self)
        lines.append(f"  active vertices: {len(ActiveGraph.active_vertices(self))}")
        lines.append(f"  active edges: {len(active)}")
        if active:
            lines.append(f"  active chi2: {ActiveGraph.active_chi2(self):g}")
            lines.append(f"  active robust chi2: {ActiveGraph.active_robust_chi2(self):g}")
        lines.append(f"  connected_components: {ActiveGraph.num_connected_components(self)}")
        return "\n".join(lines) + "\n"
