"""Rewrites: the problem of one call as a graph in other types, which any block solver takes.

    Rewrite(graph, selection) -> (graph', selection'),   write_back: estimates of graph' into the user's graph

`FIXED_COMPONENTS` leaves out single components that stay, `SMALL_BLOCKS` takes large vertices apart,
`INLINED_VALUES` puts the functions of computed values into those of the edges. They follow each other.

A rewritten graph is kept with the graph that it was made of, while vertices, edges and the part of the graph
that takes part are the same: numbers are taken anew (`refresh`), and `solver.reuse` finds the block solver of
the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.graph import EdgeSet, Graph, Selection, VertexSet
from graphopt.graph.columns import Columns
from graphopt.graph.edge_columns import edge_set_of as columns_of_edges
from graphopt.graph.gather import gathered
from graphopt.types.base import EdgeType, VertexType

_NUMBERS = ("information", "kernel", "kernel_width")
"""Columns of the edge itself, information first; the measurement goes on with those of inlined terms."""
Sources = tuple[tuple[EdgeSet, np.ndarray], ...]
"""Where the numbers of rewritten edges are: (edge set, (m,) rows) of the edges, then of terms inlined."""


@dataclass(frozen=True, eq=False)
class VertexCopy:
    """A vertex set of the rewritten graph whose estimates are part of another set's."""

    made: VertexSet
    source: VertexSet
    index: Any
    """Into the source's estimates: rows, and which components of the storage."""

    def refresh(self) -> None:
        """Take the present estimates."""
        self.made.estimate[...] = self.source.look("estimate")[self.index]

    def write_back(self) -> None:
        """Give the estimates back."""
        self.source.estimate[self.index] = self.made.estimate

    def origin(self, rows: np.ndarray, places: np.ndarray) -> tuple[VertexSet, np.ndarray, np.ndarray]:
        """The source, and where some rows' components of the estimate are in it."""
        if isinstance(self.index, tuple):
            return self.source, rows, np.asarray(self.index[1])[places]
        return self.source, np.asarray(self.index)[rows], places


class EdgeCopy:
    """Edges of the rewritten graph and where their numbers come from."""

    def __init__(self, made: EdgeSet, rows: np.ndarray | slice, sources: Sources):
        self.made, self._rows, self._sources = made, rows, sources
        self._taken: dict[str, tuple[bytes, ...]] = {}

    def refresh(self) -> None:
        """Take the numbers that have changed."""
        if self._is_new("measurement", self._sources):
            parts = [source.look("measurement")[rows] for source, rows in self._sources]
            self.made.measurement[self._rows] = np.concatenate(parts, axis=1)
        edge, rows = self._sources[0]
        for name in _NUMBERS:
            if self._is_new(name, self._sources[:1]):
                getattr(self.made, name)[self._rows] = edge.look(name)[rows]

    def note(self) -> None:
        """The present numbers have been taken."""
        self._is_new("measurement", self._sources)
        for name in _NUMBERS:
            self._is_new(name, self._sources[:1])

    def _is_new(self, name: str, sources: Sources) -> bool:
        found = tuple(source.fingerprint(name) for source, _ in sources)
        before, self._taken[name] = self._taken.get(name), found
        return before != found


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A graph made of another one. It refers to sets of that, not to the graph itself, which keeps it."""

    graph: Graph
    selection: Selection
    vertices: Sequence[VertexCopy] = ()
    edges: Sequence[EdgeCopy] = ()
    has_values_inlined: bool = False
    """Computed values of the other graph follow from the estimates, which both share."""

    def refresh(self) -> None:
        """Take the present numbers of the other graph."""
        for copy in (*self.vertices, *self.edges):
            copy.refresh()


class Rewriter(NamedTuple):
    """One way to rewrite."""

    applies: Callable[[Graph, Selection], bool]
    make: Callable[[Graph, Selection], Rewritten]


class Rewrite:
    """The problem of one call: the user's graph, or what it was rewritten to."""

    def __init__(self, graph: Graph, selection: Selection):
        self.graph, self.selection = graph, selection
        self._given = graph
        self._steps: list[Rewritten] = []

    @property
    def is_other_graph(self) -> bool:
        """Something was rewritten."""
        return bool(self._steps)

    def apply(self, rewriter: Rewriter) -> Rewrite:
        """Rewrite further, where it applies."""
        if rewriter.applies(self.graph, self.selection):
            step = _rewritten(rewriter, self.graph, self.selection)
            self.graph, self.selection = step.graph, step.selection
            self._steps.append(step)
        return self

    def write_back(self) -> None:
        """Write the estimates into the user's graph."""
        for step in reversed(self._steps):
            for copy in step.vertices:
                copy.write_back()
        if any(step.has_values_inlined for step in self._steps):
            self._given.compute()

    def origin(
        self, vertex_set: VertexSet, rows: np.ndarray, places: np.ndarray
    ) -> tuple[VertexSet, np.ndarray, np.ndarray]:
        """The user's vertex set, and where some rows' components of the estimate are in it."""
        for step in reversed(self._steps):
            for copy in step.vertices:
                if copy.made is vertex_set:
                    vertex_set, rows, places = copy.origin(rows, places)
                    break
        return vertex_set, rows, places

    def callback(self, users: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        """The user's callback, which finds the present estimates in the user's graph."""
        if not self._steps or users is None or not getattr(users, "looks_at_graph", True):
            return users

        def called(iteration: Any) -> object:
            self.write_back()
            return users(iteration)

        return called


class _Kept(NamedTuple):
    state: Hashable
    selection: Selection
    step: Rewritten


_kept: WeakKeyDictionary[Graph, dict[Rewriter, _Kept]] = WeakKeyDictionary()
"""The last one of each kind."""


def forget(graph: Graph) -> None:
    """Release what a graph was rewritten to."""
    _kept.pop(graph, None)


def _rewritten(rewriter: Rewriter, graph: Graph, selection: Selection) -> Rewritten:
    state = _state(graph)
    kept = _kept.setdefault(graph, {})
    last = kept.get(rewriter)
    if last is not None and last.state == state and _is_same(selection, last.selection):
        last.step.refresh()
        return last.step
    step = rewriter.make(graph, selection)
    kept[rewriter] = _Kept(state, selection, step)
    return step


def _state(graph: Graph) -> Hashable:
    """What a rewritten graph depends on beside the selection."""
    flags = [
        vertex_set.fingerprint(name)
        for vertex_set in graph.vertex_sets
        for name in ("marginalized", "held", "lower", "upper")
        if vertex_set.has(name)
    ]
    terms = [
        edge_set.fingerprint(name)
        for edge_set in graph.edge_sets
        if edge_set.type.defines
        for name in ("vertices", "parameters")
    ]
    return graph.version, tuple(flags), tuple(terms)


def _is_same(selection: Selection, other: Selection) -> bool:
    """Both choose the same edges and hold the same vertices."""
    if selection is other:
        return True
    if selection.chosen_by_edges != other.chosen_by_edges or len(selection.edges) != len(other.edges):
        return False
    masks = zip((*selection.active, *selection.fixed), (*other.active, *other.fixed), strict=True)
    return all(np.array_equal(mine, its) for mine, its in masks) and all(
        mine.edge_set is its.edge_set
        and np.array_equal(mine.rows, its.rows)
        and np.array_equal(mine.vertex_rows, its.vertex_rows)
        and np.array_equal(mine.parameter_rows, its.parameter_rows)
        for mine, its in zip(selection.edges, other.edges, strict=True)
    )


def vertex_copy(
    kind: VertexType, source: VertexSet, index: Any, fixed: np.ndarray, **columns: np.ndarray
) -> VertexCopy:
    """Vertices of a type whose estimates are `source.estimate[index]`.

    columns: `sequence`, `ids` and `marginalized`, (n,) each; fixed: (n,) bool.
    """
    for name in ("estimate", "lower", "upper"):
        if source.has(name):
            columns[name] = np.ascontiguousarray(source.look(name)[index])
    return VertexCopy(VertexSet(kind, Columns.holding({**columns, "fixed": fixed})), source, index)


def edge_set_of(
    kind: EdgeType, vertices: np.ndarray, parts: Sequence[tuple[np.ndarray | slice, Sources]]
) -> tuple[EdgeSet, list[EdgeCopy]]:
    """Edges of a type, with numbers and the order of files from their sources.

    vertices: (m, arity) ids. parts: which rows of the new set have which sources.
    """
    first, sources = parts[0]
    if isinstance(first, slice) and len(sources) == 1:
        return _chosen_edges(kind, vertices, first, sources)
    made = EdgeSet(kind)
    made.columns.append(len(vertices), {"vertices": vertices})
    columns = made.columns
    copies = []
    for rows, sources in parts:
        edge, edge_rows = sources[0]
        columns["sequence"][rows] = edge.look("sequence")[edge_rows]
        columns["parameters"][rows] = np.concatenate(
            [source.look("parameters")[source_rows] for source, source_rows in sources], axis=1
        )
        copies.append(EdgeCopy(made, rows, sources))
        copies[-1].refresh()
    return made, copies


def _chosen_edges(
    kind: EdgeType, vertices: np.ndarray, every: slice, sources: Sources
) -> tuple[EdgeSet, list[EdgeCopy]]:
    """The same, where all rows are edges of one set; identities are not written."""
    ((edge, rows),) = sources
    is_identity = edge.information_kind() == "identity"
    names = ["sequence", "measurement", "parameters", *_NUMBERS[is_identity:]]
    columns = {name: gathered(edge.look(name), rows) for name in names}
    copy = EdgeCopy(columns_of_edges(kind, vertices=vertices, **columns), every, sources)
    copy.note()
    return copy.made, [copy]


def select_all(made: Graph, selection: Selection) -> Selection:
    """All edges of a rewritten graph, chosen by level or one by one as those of `selection` were."""
    every = {each: np.arange(len(each)) for each in made.edge_sets} if selection.chosen_by_edges else None
    return made.select(-1, edges=every)
