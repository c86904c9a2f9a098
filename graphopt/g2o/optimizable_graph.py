"""`HyperGraph` and `OptimizableGraph`: vertices, edges and parameters as objects.

Adding and removing only changes dictionaries; the arrays of a `graphopt.Graph` are filled in bulk when
something needs them (`problem.Problem`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o.actions import HyperGraphAction
from graphopt.g2o.edges import Edge, OptimizableGraph_Edge
from graphopt.g2o.elements import (
    ActionType,
    Data,
    HyperGraphDefaultIds,
    HyperGraphElement,
    HyperGraphElementType,
)
from graphopt.g2o.parameters import Parameter, ParameterContainer
from graphopt.g2o.storage import fast_method
from graphopt.g2o.vertices import OptimizableGraph_Vertex, Vertex


class HyperGraph(kernels.GraphBase):
    """Vertices by id, and edges between them."""

    Vertex = Vertex
    Edge = Edge
    Data = Data
    HyperGraphElement = HyperGraphElement
    HyperGraphElementType = HyperGraphElementType
    HyperGraphDefaultIds = HyperGraphDefaultIds
    HGET_VERTEX = HyperGraphElementType.HGET_VERTEX
    HGET_EDGE = HyperGraphElementType.HGET_EDGE
    HGET_PARAMETER = HyperGraphElementType.HGET_PARAMETER
    HGET_CACHE = HyperGraphElementType.HGET_CACHE
    HGET_DATA = HyperGraphElementType.HGET_DATA
    HGET_NUM_ELEMS = HyperGraphElementType.HGET_NUM_ELEMS
    UnassignedId = HyperGraphDefaultIds.UnassignedId
    InvalidId = HyperGraphDefaultIds.InvalidId

    def __init__(self) -> None:
        self._vertices: dict[int, Any] = {}
        self._edges: dict[Any, None] = {}
        self._version = 0
        self._next_edge = 0
        self._incidence: dict[Any, dict[Any, None]] | None = None
        self._has_strangers = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._vertices)} vertices, {len(self._edges)} edges>"

    def _topology_changed(self) -> None:
        self._version += 1
        self._incidence = None

    # ---------------------------------------------------------------- looking up

    def vertex(self, id: int) -> Any:
        """The vertex with this id, None if there is none."""
        return self._vertices.get(id)

    def vertices(self) -> dict[int, Any]:
        """Id -> vertex (a new dictionary), in the order in which they were added."""
        return dict(self._vertices)

    def edges(self) -> set[Any]:
        """All edges (a new set)."""
        return set(self._edges)

    def _edges_of(self, vertex: Any) -> set[Any]:
        if self._incidence is None:
            self._incidence = {}
            for edge in self._edges:
                for one in edge._vertices:
                    self._incidence.setdefault(one, {})[edge] = None
        return set(self._incidence.get(vertex, ()))

    # ---------------------------------------------------------------- changing

    def add_vertex(self, v: Any, user_data: Data | None = None) -> bool:
        """Add a vertex; False if its id is negative or taken."""
        id = v._id
        if id < 0 or id in self._vertices:
            return False
        if user_data is not None:
            v.set_user_data(user_data)
        self._vertices[id] = v
        v._graph = self
        self._version += 1
        return True

    def add_edge(self, e: Any) -> bool:
        """Add an edge; False if a vertex is missing or given twice, or it is in the graph already.

        As in g2o, its vertices need not be in the graph: they are optimized all the same.
        """
        if not e._fits(self) and not self._may_join(e):
            return False
        self._edges[e] = None
        e._graph = self
        self._version += 1
        if self._incidence is not None:
            for one in e._vertices:
                self._incidence.setdefault(one, {})[e] = None
        return True

    def _may_join(self, edge: Any) -> bool:
        """For edges that are in another graph too, or that have vertices that are not in this one."""
        vertices = edge._vertices
        if edge in self._edges or None in vertices or len(set(map(id, vertices))) != len(vertices):
            return False
        self._has_strangers = True
        for one in vertices:
            if one._graph is None:
                one._graph = self
        return True

    def _has_vertex(self, vertex: Any) -> bool:
        return self._vertices.get(vertex._id) is vertex

    def remove_edge(self, e: Any) -> bool:
        """Take an edge out; False if it is not in this graph. The object keeps its data."""
        if e not in self._edges:
            return False
        del self._edges[e]
        if e._graph is self:
            e._graph = None
        self._version += 1
        if self._incidence is not None:
            for one in e._vertices:
                self._incidence.get(one, {}).pop(e, None)
        return True

    def remove_vertex(self, v: Any, detach: bool = False) -> bool:
        """Take a vertex and its edges out; False if it is not in this graph.

        With `detach` its edges stay, without this vertex, and are left out of optimizations.
        """
        if not self._has_vertex(v):
            return False
        for edge in self._edges_of(v):
            if detach:
                edge._vertices[:] = [None if one is v else one for one in edge._vertices]
            else:
                HyperGraph.remove_edge(self, edge)
        del self._vertices[v._id]
        if v._graph is self:
            v._graph = None
        if detach:
            self._incidence = None
        self._version += 1
        return True

    def detach_vertex(self, v: Any) -> bool:
        """Take a vertex out of its edges, which stay incomplete; the vertex stays."""
        if not self._has_vertex(v):
            return False
        for edge in self._edges_of(v):
            edge._vertices[:] = [None if one is v else one for one in edge._vertices]
        self._topology_changed()
        return True

    def change_id(self, v: Any, new_id: int) -> bool:
        """Rename a vertex; False if it is not in this graph or the id is taken."""
        if not self._has_vertex(v) or new_id in self._vertices:
            return False
        del self._vertices[v._id]
        v._id = int(new_id)
        self._vertices[v._id] = v
        self._version += 1
        return True

    def set_edge_vertex(self, e: Any, pos: int, v: Any) -> bool:
        """Replace one vertex of an edge."""
        e.set_vertex(pos, v)
        return True

    def merge_vertices(self, v_big: Any, v_small: Any, erase: bool) -> bool:
        """Let all edges of `v_small` have `v_big` instead, and remove `v_small` if `erase`."""
        if not (self._has_vertex(v_big) and self._has_vertex(v_small)):
            return False
        for edge in self._edges_of(v_small):
            if v_big in edge._vertices:
                HyperGraph.remove_edge(self, edge)
            else:
                edge._vertices[:] = [v_big if one is v_small else one for one in edge._vertices]
        self._topology_changed()
        return HyperGraph.remove_vertex(self, v_small) if erase else True

    def clear(self) -> None:
        """Take everything out; objects that are held elsewhere keep their data."""
        strangers = [one for edge in self._edges for one in edge._vertices] if self._has_strangers else []
        for one in (*self._vertices.values(), *self._edges, *strangers):
            if one is not None and one._graph is self:
                one._graph = None
        self._has_strangers = False
        self._vertices.clear()
        self._edges.clear()
        self._next_edge = 0
        self._topology_changed()

    def hash(self, include_estimates: bool = False) -> int:
        """A number that changes when vertices or edges (or estimates) do."""
        parts = [
            (id, type(v).__name__, v.get_estimate_data().tobytes() if include_estimates else b"")
            for id, v in sorted(self._vertices.items())
        ]
        edges = sorted(
            (type(e).__name__, tuple(-1 if v is None else v.id() for v in e._vertices)) for e in self._edges
        )
        return hash((tuple(parts), tuple(edges))) & (2**63 - 1)

    def __hash__(self) -> int:
        return id(self)


class OptimizableGraph(HyperGraph):
    """A hyper graph whose vertices can be moved and whose edges have errors."""

    OptimizableGraph_Vertex = OptimizableGraph_Vertex
    OptimizableGraph_Edge = OptimizableGraph_Edge
    ActionType = ActionType
    AT_PREITERATION = ActionType.AT_PREITERATION
    AT_POSTITERATION = ActionType.AT_POSTITERATION
    AT_NUM_ELEMENTS = ActionType.AT_NUM_ELEMENTS
    _is_optimizer: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._parameter_container = ParameterContainer(self)
        self._pre_actions: dict[Any, None] = {}
        self._post_actions: dict[Any, None] = {}

    # ---------------------------------------------------------------- elements

    @fast_method
    def add_edge(self, e: Any) -> bool:
        """Add an edge.

        False as for a hyper graph, or if a parameter that it needs is missing or of the wrong class.
        """
        if (e._type.parameters and not self._parameters_fit(e)) or not HyperGraph.add_edge(self, e):
            return False
        e._internal_id = self._next_edge
        self._next_edge += 1
        return True

    def _parameters_fit(self, edge: Any) -> bool:
        found = [self._parameter_container.get_parameter(one) for one in edge.param_ids()]
        kinds = edge._type.parameters
        return all(one is not None and one._type is kind for one, kind in zip(found, kinds, strict=True))

    def add_parameter(self, p: Parameter) -> bool:
        """Add a parameter; False if its id is negative or taken."""
        return self._parameter_container.add_parameter(p)

    def parameter(self, id: int) -> Parameter | None:
        """The parameter with this id, None if there is none."""
        return self._parameter_container.get_parameter(id)

    def parameters(self) -> ParameterContainer:
        """All parameters."""
        return self._parameter_container

    def clear_parameters(self) -> None:
        """Remove all parameters."""
        self._parameter_container.clear()

    def clear(self) -> None:
        """Take everything out, parameters too."""
        super().clear()
        self._parameter_container.clear()

    def add_graph(self, graph: OptimizableGraph) -> None:
        """Move all vertices, edges and parameters of another graph into this one.

        Its ids that are taken stay there.
        """
        for parameter in list(graph._parameter_container._by_id.values()):
            if OptimizableGraph.add_parameter(self, parameter):
                graph._parameter_container._by_id.pop(parameter.id())
        edges = list(graph._edges)
        for edge in edges:
            HyperGraph.remove_edge(graph, edge)
        for vertex in list(graph._vertices.values()):
            if vertex._id not in self._vertices:
                HyperGraph.remove_vertex(graph, vertex)
                HyperGraph.add_vertex(self, vertex)
        for edge in edges:
            OptimizableGraph.add_edge(self, edge)

    def set_fixed(self, vset: Iterable[Any], fixes: bool) -> None:
        """Fix or free several vertices."""
        for one in vset:
            one.set_fixed(fixes)

    def dimensions(self) -> set[int]:
        """Dimensions of the vertices."""
        return {one.dimension() for one in self._vertices.values()}

    def max_dimension(self) -> int:
        """Largest dimension of a vertex, 0 without vertices."""
        return max(OptimizableGraph.dimensions(self), default=0)

    # ---------------------------------------------------------------- estimates

    def push(self, vlist: Iterable[Any] | None = None) -> None:
        """Remember estimates, of all vertices by default."""
        for one in self._vertices.values() if vlist is None else vlist:
            one.push()

    def pop(self, vlist: Iterable[Any] | None = None) -> None:
        """Return to the last pushed estimates."""
        for one in self._vertices.values() if vlist is None else vlist:
            one.pop()

    def discard_top(self, vlist: Iterable[Any] | None = None) -> None:
        """Forget the last pushed estimates."""
        for one in self._vertices.values() if vlist is None else vlist:
            one.discard_top()

    def chi2(self) -> float:
        """Sum of all edges' chi2, of their last `compute_error`."""
        return float(sum(edge.chi2() for edge in self._edges))

    def optimize(self, iterations: int, online: bool = False) -> int:
        """Only a `SparseOptimizer` has an algorithm: -1."""
        return -1

    def verify_information_matrices(self, verbose: bool = False) -> bool:
        """All information matrices are symmetric and positive definite."""
        good = True
        for edge in self._edges:
            matrix = edge._chunk.information[edge._row]
            if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-9) or np.linalg.eigvalsh(matrix)[0] <= 0.0:
                good = False
                if verbose:
                    print(f"{edge!r}: the information matrix is not symmetric and positive definite.")
        return good

    # ---------------------------------------------------------------- actions

    def add_pre_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call an action before each iteration; False if it is there already."""
        return _add(self._pre_actions, action)

    def add_post_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call an action after each iteration; False if it is there already."""
        return _add(self._post_actions, action)

    def remove_pre_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call it no more; False if it was not there."""
        return self._pre_actions.pop(action, self) is None

    def remove_post_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call it no more; False if it was not there."""
        return self._post_actions.pop(action, self) is None

    def pre_iteration(self, iteration: int) -> None:
        """Called before each iteration (-1: before the first); runs the actions."""
        for action in list(self._pre_actions):
            action(self, {"iteration": iteration})

    def post_iteration(self, iteration: int) -> None:
        """Called after each iteration (-1: before the first); runs the actions."""
        for action in list(self._post_actions):
            action(self, {"iteration": iteration})

    # ---------------------------------------------------------------- files

    def load(self, filename: str, format: Any = None) -> bool:
        """Replace the graph by a file's; False if the file cannot be read. `format`: an `IoFormat`."""
        from graphopt.g2o.files import load

        return load(self, filename, format)

    def save(self, filename: str, format: Any = None, level: int = 0) -> bool:
        """Write the edges of a level (all if negative) with all vertices and parameters.

        False if it fails.
        """
        from graphopt.g2o.files import save

        return save(self, filename, format, level)

    # ---------------------------------------------------------------- kept for programs

    @staticmethod
    def init_multi_threading() -> bool:
        """True: the native code uses threads by itself."""
        return True

    def recompute_jacobian_workspace_size(self) -> None:
        """Kept for programs: there is no workspace."""

    def _number_hessian(self) -> None:
        """An optimizer numbers its active vertices here."""

    def _hessian_block(self, vertex: Any) -> np.ndarray:
        raise GraphError("Only a SparseOptimizer has Hessian blocks.")

    _b_block = _hessian_block


def _add(actions: dict[Any, None], action: Any) -> bool:
    if action in actions:
        return False
    actions[action] = None
    return True
