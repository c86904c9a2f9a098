"""`HyperDijkstra` and `EstimatePropagator`: shortest paths, and start values along them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from graphopt.g2o.elements.base import native
from graphopt.g2o.elements.initial_estimates import initial_estimate_cost

LONGEST = 1.7976931348623157e308  # the largest double, as in g2o


class HyperDijkstraAdjacencyMapEntry:
    """How a vertex was reached."""

    def __init__(
        self, _child: Any = None, _parent: Any = None, _edge: Any = None, _distance: float = LONGEST
    ) -> None:
        self._child, self._parent, self._edge, self._distance = _child, _parent, _edge, _distance
        self._children: set[Any] = set()

    def child(self) -> Any:
        """The vertex."""
        return self._child

    def parent(self) -> Any:
        """The vertex before it, None at a start."""
        return self._parent

    def edge(self) -> Any:
        """The edge to the vertex before it."""
        return self._edge

    def distance(self) -> float:
        """Cost of the path from a start."""
        return self._distance

    def children(self) -> set[Any]:
        """Vertices reached through this one; `HyperDijkstra.compute_tree` fills it."""
        return self._children


class HyperDijkstraCostFunction:
    """Cost of going through an edge; override `__call__(edge, from_, to)`."""

    def __call__(self, edge: Any, from_: Any, to: Any) -> float:
        """Cost of going from one vertex to another."""
        raise NotImplementedError("Override __call__(edge, from_, to) -> cost.")


class UniformCostFunction(HyperDijkstraCostFunction):
    """Every edge costs 1."""

    def __call__(self, edge: Any, from_: Any, to: Any) -> float:
        """Cost of going from one vertex to another."""
        return 1.0


class HyperDijkstraTreeAction:
    """Called for each vertex of a tree; override `perform`."""

    def perform(self, v: Any, vParent: Any, e: Any, distance: float = 0.0) -> float:
        """Do something at a vertex; a value <= 0 stops going down from it."""
        return 1.0


def _starts(v: Any, vset: Any) -> list[Any]:
    """One vertex or several, given in either argument."""
    if v is None:
        v = vset
    return list(dict.fromkeys(v)) if isinstance(v, Iterable) else [v]


class HyperDijkstra:
    """Shortest paths in a hyper graph from one or several vertices."""

    HyperDijkstraAdjacencyMapEntry = HyperDijkstraAdjacencyMapEntry
    HyperDijkstraCostFunction = HyperDijkstraCostFunction
    HyperDijkstraTreeAction = HyperDijkstraTreeAction

    def __init__(self, g: Any) -> None:
        self._graph = g
        self._map: dict[Any, HyperDijkstraAdjacencyMapEntry] = {}
        self._visited: set[Any] = set()

    def graph(self) -> Any:
        """The graph."""
        return self._graph

    def adjacency_map(self) -> dict[Any, HyperDijkstraAdjacencyMapEntry]:
        """Vertex -> how it was reached; vertices that were not have the largest distance."""
        return self._map

    adjacency_map_const = adjacency_map

    def visited(self) -> set[Any]:
        """Vertices that were reached."""
        return self._visited

    visited_const = visited

    def shortest_paths(
        self,
        v: Any = None,
        cost: Callable[[Any, Any, Any], float] = UniformCostFunction(),  # noqa: B008 - it has no state
        maxDistance: float = LONGEST,
        comparisonConditioner: float = 1e-3,
        directed: bool = False,
        maxEdgeCost: float = LONGEST,
        *,
        vset: Any = (),
    ) -> None:
        """Find the paths from a vertex `v` or a set of vertices (`v` or `vset`)."""
        starts = _starts(v, vset)
        self._map = {
            each_vertex: HyperDijkstraAdjacencyMapEntry(each_vertex)
            for each_vertex in self._graph._vertices.values()
        }
        self._visited = set()
        order = count()
        queue: list[tuple[float, int, Any]] = []
        for start in starts:
            self._map[start]._distance = 0.0
            heapq.heappush(queue, (0.0, next(order), start))
        while queue:
            distance, _, vertex = heapq.heappop(queue)
            if vertex in self._visited and distance > self._map[vertex]._distance:
                continue
            self._visited.add(vertex)
            for edge in sorted(self._graph._edges_of(vertex), key=lambda e: e._internal_id):
                if directed and edge.vertex(0) is not vertex:
                    continue
                for other in edge.vertices():
                    if other is None or other is vertex:
                        continue
                    step = cost(edge, vertex, other)
                    if not (math.isfinite(step) and step <= maxEdgeCost) or step == LONGEST:
                        continue
                    total = distance + step
                    if total + comparisonConditioner < self._map[other]._distance and total < maxDistance:
                        self._map[other] = HyperDijkstraAdjacencyMapEntry(other, vertex, edge, total)
                        heapq.heappush(queue, (total, next(order), other))

    @staticmethod
    def compute_tree(amap: dict[Any, HyperDijkstraAdjacencyMapEntry]) -> None:
        """Fill the children of all entries."""
        for entry in amap.values():
            entry._children = set()
        for entry in amap.values():
            if entry._parent is not None:
                amap[entry._parent]._children.add(entry._child)

    @staticmethod
    def visit_adjacency_map(amap: Any, action: HyperDijkstraTreeAction, useDistance: bool = False) -> None:
        """Call an action for each vertex of the tree, parents first."""
        queue = [entry for entry in amap.values() if entry._parent is None]
        while queue:
            entry = queue.pop(0)
            if entry._parent is not None:
                value = action.perform(
                    entry._child, entry._parent, entry._edge, *((entry._distance,) if useDistance else ())
                )
                if value <= 0.0:
                    continue
            queue.extend(amap[each_child] for each_child in entry._children)


class EstimatePropagatorCostBase:
    """What it costs to set a vertex from others through an edge; the largest double: not possible."""

    def __call__(self, edge: Any, from_: set[Any], to: Any) -> float:
        """Cost of setting `to` from `from_`."""
        raise NotImplementedError("Override __call__(edge, from_, to) -> cost.")

    def name(self) -> str:
        """Name of the cost."""
        return type(self).__name__


class EstimatePropagatorCost(EstimatePropagatorCostBase):
    """Every edge that can give a start value costs 1."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._selection: Any = None
        self._active: set[Any] = set()

    def _is_active(self, edge: Any) -> bool:
        """In the selection of the last `initialize_optimization`, which may come after the constructor."""
        problem = self._graph._problem
        selection = None if problem is None else problem.selection
        if selection is not self._selection:
            self._selection = selection
            self._active = set(native(self._graph).active_edges(self._graph))
        return edge in self._active

    def __call__(self, edge: Any, from_: set[Any], to: Any) -> float:
        """Cost of setting `to` from `from_`."""
        if not self._is_active(edge) or initial_estimate_cost(edge, from_, to) <= 0.0:
            return LONGEST
        return 1.0

    def name(self) -> str:
        """The words "spanning tree"."""
        return "spanning tree"


class EstimatePropagatorCostOdometry(EstimatePropagatorCost):
    """Only edges between poses with consecutive ids."""

    def __call__(self, edge: Any, from_: set[Any], to: Any) -> float:
        """Cost of setting `to` from `from_`."""
        known = next(iter(from_), None)
        if len(from_) != 1 or known is None or abs(known.id() - to.id()) != 1:
            return LONGEST
        if known.dimension() != to.dimension() or to.dimension() != native(self._graph).max_dimension(
            self._graph
        ):
            return LONGEST
        return super().__call__(edge, from_, to)

    def name(self) -> str:
        """The word "odometry"."""
        return "odometry"


class EstimatePropagateAction:
    """Sets the estimate of a vertex that was reached, unless it is fixed."""

    def __call__(self, edge: Any, from_: set[Any], to: Any) -> None:
        """Set `to`."""
        if not to.fixed():
            edge.initial_estimate(from_, to)


class EstimatePropagatorAdjacencyMapEntry:
    """How a vertex was reached."""

    def __init__(self, child: Any = None) -> None:
        self._child, self._parent, self._edge = child, set(), None
        self._distance, self._level = LONGEST, 0

    def child(self) -> Any:
        """The vertex."""
        return self._child

    def parent(self) -> set[Any]:
        """The vertices that it was set from."""
        return self._parent

    def edge(self) -> Any:
        """The edge that it was set by."""
        return self._edge

    def distance(self) -> float:
        """Cost of the path."""
        return self._distance

    def frontier_level(self) -> int:
        """Number of edges from a start."""
        return self._level


class EstimatePropagator:
    """Sets estimates along shortest paths from vertices that are known."""

    EstimatePropagateAction = EstimatePropagateAction
    EstimatePropagatorAdjacencyMapEntry = EstimatePropagatorAdjacencyMapEntry

    def __init__(self, g: Any) -> None:
        self._graph = g
        self._map: dict[Any, EstimatePropagatorAdjacencyMapEntry] = {}
        self._visited: set[Any] = set()

    def graph(self) -> Any:
        """The graph."""
        return self._graph

    def adjacency_map(self) -> dict[Any, EstimatePropagatorAdjacencyMapEntry]:
        """Vertex -> how it was reached."""
        return self._map

    def visited(self) -> set[Any]:
        """Vertices that were reached."""
        return self._visited

    def propagate(
        self,
        v: Any = None,
        cost: EstimatePropagatorCostBase | None = None,
        action: EstimatePropagateAction | None = None,
        maxDistance: float = LONGEST,
        maxEdgeCost: float = LONGEST,
        *,
        vset: Any = (),
    ) -> None:
        """Start at a vertex `v` or a set of vertices (`v` or `vset`) and set those that can be reached."""
        act = EstimatePropagateAction() if action is None else action
        cost = EstimatePropagatorCost(self._graph) if cost is None else cost
        starts = _starts(v, vset)
        self._map = {
            each_vertex: EstimatePropagatorAdjacencyMapEntry(each_vertex)
            for each_vertex in self._graph._vertices.values()
        }
        self._visited = set()
        order = count()
        queue: list[tuple[float, int, Any]] = []
        for start in sorted(starts, key=lambda vertex: vertex._id):
            self._map[start]._distance = 0.0
            heapq.heappush(queue, (0.0, next(order), start))
        while queue:
            distance, _, vertex = heapq.heappop(queue)
            entry = self._map[vertex]
            if vertex in self._visited or distance > entry._distance:
                continue
            self._visited.add(vertex)
            if entry._edge is not None:
                act(entry._edge, entry._parent, vertex)
            for edge in sorted(self._graph._edges_of(vertex), key=lambda e: e._internal_id):
                known = {each_vertex for each_vertex in edge.vertices() if each_vertex in self._visited}
                for other in edge.vertices():
                    if other in self._visited:
                        continue
                    step = cost(edge, known, other)
                    total = (
                        max((self._map[known_vertex]._distance for known_vertex in known), default=0.0) + step
                    )
                    if (
                        0.0 < step <= maxEdgeCost
                        and step < LONGEST
                        and total < min(maxDistance, self._map[other]._distance)
                    ):
                        found = self._map[other]
                        found._parent, found._edge, found._distance = known, edge, total
                        found._level = entry._level + 1
                        heapq.heappush(queue, (total, next(order), other))


def compute_initial_guess(optimizer: Any, cost: EstimatePropagatorCostBase | None = None) -> None:
    """See `SparseOptimizer.compute_initial_guess`."""
    if cost is None:
        cost = EstimatePropagatorCost(optimizer)
    active = native(optimizer).active_vertices(optimizer)
    is_active = set(active)
    starts = {vertex for vertex in active if vertex.fixed()}
    for edge in native(optimizer).active_edges(optimizer):
        if len(edge.vertices()) == 1 and initial_estimate_cost(edge, (), edge.vertex(0)) > 0.0:
            vertex = edge.vertex(0)
            if not vertex.fixed():
                edge.initial_estimate(set(), vertex)
                starts.add(vertex)
    propagator = EstimatePropagator(optimizer)
    while True:
        if starts:
            propagator.propagate(starts, cost)
            is_active -= propagator.visited()
        remaining = [vertex for vertex in active if vertex in is_active]
        if starts or not remaining:
            return
        starts = {max(remaining, key=lambda vertex: (vertex.dimension(), -vertex._id))}
