"""`HyperGraph`: vertices by id and edges between them, as objects.

Adding and removing only changes dictionaries; the arrays of a `graphopt.Graph` are filled in bulk when
something needs them (`problem.Problem`).
"""

from __future__ import annotations

from typing import Any

from graphopt.cpu_kernels import kernels
from graphopt.g2o.elements.base import (
    Data,
    DataContainer,
    HyperGraphDefaultIds,
    HyperGraphElement,
    HyperGraphElementType,
)
from graphopt.g2o.elements.hyper_edge import Edge
from graphopt.g2o.elements.vertices import LARGEST_ID, Vertex, as_id


class HyperGraph(kernels.GraphBase):
    """Vertices by id, and edges between them."""

    Vertex = Vertex
    Edge = Edge
    Data = Data
    DataContainer = DataContainer
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
                for each_vertex in edge._vertices:
                    self._incidence.setdefault(each_vertex, {})[edge] = None
        return set(self._incidence.get(vertex, ()))

    # ---------------------------------------------------------------- changing

    def add_vertex(self, v: Any, user_data: Data | None = None) -> bool:
        """Add a vertex; False if its id is negative or taken."""
        try:
            id = v._id
        except AttributeError:
            raise TypeError(_not_a_vertex(v)) from None
        if id < 0 or id in self._vertices:
            return False
        if id > LARGEST_ID:
            as_id(id)
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
            for vertex in e._vertices:
                self._incidence.setdefault(vertex, {})[e] = None
        return True

    def _may_join(self, edge: Any) -> bool:
        """For edges that are in another graph too, or that have vertices that are not in this one."""
        vertices = edge._vertices
        if edge in self._edges or None in vertices or len(set(map(id, vertices))) != len(vertices):
            return False
        self._has_strangers = True
        for vertex in vertices:
            if vertex._graph is None:
                vertex._graph = self
        return True

    def _has_vertex(self, vertex: Any) -> bool:
        try:
            return self._vertices.get(vertex._id) is vertex
        except AttributeError:
            raise TypeError(_not_a_vertex(vertex)) from None

    def remove_edge(self, e: Any) -> bool:
        """Take an edge out; False if it is not in this graph. The object keeps its data."""
        if e not in self._edges:
            return False
        del self._edges[e]
        if e._graph is self:
            e._graph = None
        self._version += 1
        if self._incidence is not None:
            self._forget_incidence(e)
        return True

    def _forget_incidence(self, edge: Any) -> None:
        """Vertices without an edge have no entry, so a vertex that is removed is kept alive by nobody."""
        assert self._incidence is not None
        for vertex in edge._vertices:
            edges = self._incidence.get(vertex)
            if edges is not None:
                edges.pop(edge, None)
                if not edges:
                    del self._incidence[vertex]

    def remove_vertex(self, v: Any, detach: bool = False) -> bool:
        """Take a vertex and its edges out; False if it is not in this graph.

        With `detach` its edges stay, without this vertex, and are left out of optimizations.
        """
        if not self._has_vertex(v):
            return False
        for edge in self._edges_of(v):
            if detach:
                edge._vertices = [None if each_vertex is v else each_vertex for each_vertex in edge._vertices]
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
            edge._vertices = [None if each_vertex is v else each_vertex for each_vertex in edge._vertices]
        self._topology_changed()
        return True

    def change_id(self, v: Any, new_id: int) -> bool:
        """Rename a vertex; False if it is not in this graph or the id is taken."""
        new = as_id(new_id)
        if not self._has_vertex(v) or new in self._vertices:
            return False
        del self._vertices[v._id]
        v._id = new
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
                edge._vertices = [
                    v_big if each_vertex is v_small else each_vertex for each_vertex in edge._vertices
                ]
        self._topology_changed()
        return HyperGraph.remove_vertex(self, v_small) if erase else True

    def clear(self) -> None:
        """Take everything out; objects that are held elsewhere keep their data."""
        strangers = (
            [each_vertex for edge in self._edges for each_vertex in edge._vertices]
            if self._has_strangers
            else []
        )
        for element in (*self._vertices.values(), *self._edges, *strangers):
            if element is not None and element._graph is self:
                element._graph = None
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


def _not_a_vertex(value: Any) -> str:
    return f"Expected a vertex, got {value!r}; vertex(id) of the graph gives the one with an id."
