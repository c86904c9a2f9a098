"""The arrays behind an optimizer.

A `graphopt.Graph` that is built from the objects, and the active part of it.

    objects --gather--> Graph --Structure, block solver--> estimates --scatter--> objects

A `Problem` is made by the first `initialize_optimization` after the graph changed and serves until it
changes again, so repeated optimizations of one graph keep their analysis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o.engine.lists import EdgeList, VertexList, grouped, vertices_by_type
from graphopt.graph import Graph, Selection, validate
from graphopt.graph.columns import Columns
from graphopt.graph.edge_columns import edge_set_of
from graphopt.graph.selection import EdgeSelection
from graphopt.graph.sets import VertexSet
from graphopt.types import EdgeType, VertexType


class Problem:
    """A `Graph` built from the objects of an optimizer."""

    def __init__(self, owner: Any):
        self.version = owner._version
        self.graph = Graph()
        self.selection: Selection | None = None
        self.has_free_vertices = False
        """The selection has a vertex that is not fixed."""
        self._whole: tuple[Selection, list[EdgeList], list[np.ndarray]] | None = None
        """The last selection that is not one before without some edges; its lists and their masks."""
        self._ids: dict[Any, int] = {}
        """Ids here of vertices whose own id is another vertex', see `_strangers`."""
        edges = kernels.complete_edges(list(owner._edges))
        vertices, ids = list(owner._vertices.values()), list(owner._vertices)
        if owner._has_strangers:
            strangers = self._strangers(owner, edges)
            vertices += strangers
            ids += map(self._id_of, strangers)
        self._add_vertices(vertices, np.array(ids, np.int64))
        self._add_parameters(list(owner._parameter_container._by_id.values()))
        self._add_edges(edges, len(vertices) + len(owner._parameter_container))
        self.may_need_python = any(
            [edge_list.is_python or edge_list.has_planes for edge_list in self.edge_lists]
        ) or any([bool(vertex_list.is_python) for vertex_list in self.vertex_lists])
        """Some edge or vertex is not evaluated natively; see `python_edges.needs_python`."""

    # ---------------------------------------------------------------- building

    def _strangers(self, owner: Any, edges: list[Any]) -> list[Any]:
        """Vertices of edges that were not added to the graph; g2o optimizes them all the same."""
        vertices = owner._vertices
        strangers = dict.fromkeys(v for edge in edges for v in edge._vertices if vertices.get(v._id) is not v)
        next_id = max((element._id for element in (*vertices.values(), *strangers)), default=0) + 1
        taken = set(vertices)
        for vertex in strangers:
            if vertex._id < 0 or vertex._id in taken:
                self._ids[vertex] = next_id
                next_id += 1
            taken.add(vertex._id)
        return list(strangers)

    def _id_of(self, vertex: Any) -> int:
        id = self._ids.get(vertex) if self._ids else None
        return vertex._id if id is None else id

    def _add_vertices(self, vertices: list[Any], ids: np.ndarray) -> None:
        self.vertex_lists: list[VertexList] = []
        for kind, places in vertices_by_type(vertices).items():
            whole = len(places) == len(vertices)
            objects = vertices if whole else [vertices[place] for place in places]
            order = np.array(places)
            self._add_vertex_list(kind, objects, order, ids if whole else ids[order])

    def _add_vertex_list(
        self, kind: VertexType, objects: list[Any], order: np.ndarray, ids: np.ndarray
    ) -> None:
        rows = kernels.RowList(objects)
        columns = {
            "sequence": order,
            "ids": ids,
            "estimate": rows.column("estimate"),
            "fixed": rows.column("fixed"),
            "marginalized": rows.column("marginalized"),
        }
        vertex_set = VertexSet(kind, Columns.holding(columns))
        kernels.number_vertices(objects, len(self.vertex_lists))
        self.graph.adopt(vertex_set)
        self.vertex_lists.append(VertexList(vertex_set, objects, rows))

    def _add_parameters(self, parameters: list[Any]) -> None:
        self._parameter_lists: list[tuple[Any, Any]] = []
        groups: dict[Any, list[Any]] = {}
        for parameter in parameters:
            groups.setdefault(parameter._type, []).append(parameter)
        for kind, objects in groups.items():
            rows = kernels.RowList(objects)
            values = rows.column("estimate")
            self.graph.add_parameters(kind, [object_._id for object_ in objects], values)
            self._parameter_lists.append((self.graph.parameter_set(kind), rows))

    def _add_edges(self, edges: list[Any], first_order: int) -> None:
        self.edge_lists: list[EdgeList] = []
        for (is_python, kind), places in grouped(edges).items():
            objects = edges if len(places) == len(edges) else [edges[place] for place in places]
            order = first_order + (np.arange(len(edges)) if objects is edges else np.array(places))
            self.edge_lists.append(self._add_group(kind, objects, is_python, order))

    def _add_group(self, kind: EdgeType, objects: list[Any], is_python: bool, order: np.ndarray) -> EdgeList:
        sets, vertex_rows = self._vertex_places(kind, objects)
        rows, count, dim = kernels.RowList(objects), len(objects), kind.residual_dim
        columns: dict[str, np.ndarray] = {}
        if not is_python:
            columns["measurement"] = np.zeros((count, kind.measurement_dim))
            columns["information"] = np.empty((count, dim, dim))
            for name, column in columns.items():
                rows.gather(name, column)
        if kind.parameters:
            parameters = np.array([object_.param_ids() for object_ in objects], np.int64)
            columns["parameters"] = parameters.reshape(count, len(kind.parameters))
            self.graph.check_parameters(columns["parameters"], kind)
        tables = [self.graph.vertex_sets[number].look("ids") for number in sets]
        slots = [(table, vertex_rows[:, slot]) for slot, table in enumerate(tables)]
        edge_set = edge_set_of(kind, order, slots, **columns)
        validate.check_no_loops(edge_set.look("vertices"), kind.tag)
        self.graph.adopt(edge_set)
        parameter_sets, parameter_rows = self.graph.parameter_places(edge_set)
        places = EdgeSelection(
            edge_set, np.arange(count), sets, vertex_rows, parameter_sets, parameter_rows, edge_set
        )
        return EdgeList(places, objects, rows, is_python)

    def _vertex_places(self, kind: EdgeType, objects: list[Any]) -> tuple[tuple[int, ...], np.ndarray]:
        """Per slot the number of its vertex set, and (m, arity) rows in them."""
        types = [vertex_set.type for vertex_set in self.graph.vertex_sets]
        sets = tuple(types.index(vertex) if vertex in types else -1 for vertex in kind.vertices)
        rows, wrong = kernels.vertex_places(objects, sets)
        if wrong is not None:
            edge, slot, number = wrong
            raise GraphError(
                f"{objects[edge]!r}: vertex {slot} is a {types[number].name}, "
                f"expected a {kind.vertices[slot].name}."
            )
        return sets, rows

    # ---------------------------------------------------------------- choosing

    def choose_level(self, level: int) -> None:
        """All edges of a level, of all levels if negative."""
        self._choose(
            [
                np.ones(len(edge_list.objects), bool) if level < 0 else edge_list.take_levels() == level
                for edge_list in self.edge_lists
            ]
        )

    def choose_vertices(self, vertices: Iterable[Any], level: int) -> None:
        """The edges of a level whose vertices are all given."""
        ids = np.array([self._id_of(vertex) for vertex in vertices], np.int64)
        masks = []
        for edge_list in self.edge_lists:
            mask = np.isin(edge_list.edge_set.vertices, ids).all(axis=1)
            masks.append(mask if level < 0 else mask & (edge_list.take_levels() == level))
        self._choose(masks)

    def choose_edges(self, edges: Iterable[Any]) -> None:
        """Exactly these edges."""
        chosen = set(edges)
        self._choose(
            [
                np.fromiter((e in chosen for e in edge_list.objects), bool, len(edge_list.objects))
                for edge_list in self.edge_lists
            ]
        )

    def choose_more(self, before: Problem | None, edges: Iterable[Any]) -> None:
        """The edges that were active in the problem before this one, those that are left, and these."""
        chosen = set(edges)
        then = [] if before is None or before.selection is None else before.edge_lists
        lists = dict(zip([(one.is_python, one.edge_set.type) for one in then], then, strict=True))
        masks, firsts = [], []
        for edge_list in self.edge_lists:
            old = lists.get((edge_list.is_python, edge_list.edge_set.type))
            mask, first = np.zeros(len(edge_list.objects), bool), 0
            if old is not None and edge_list.objects[: len(old.objects)] == old.objects:
                first = len(old.objects)
                mask[:first] = old.mask
            elif old is not None:
                chosen.update(old.active_objects())
            masks.append(mask)
            firsts.append(first)
        left = len(chosen)
        for edge_list, mask, first in zip(self.edge_lists, masks, firsts, strict=True):
            mask[first:] = [edge in chosen for edge in edge_list.objects[first:]]
            left -= np.count_nonzero(mask[first:])
        if left:  # edges that were there before
            for edge_list, mask, first in zip(self.edge_lists, masks, firsts, strict=True):
                mask[:first] |= [edge in chosen for edge in edge_list.objects[:first]]
        self._choose(masks)

    def _choose(self, masks: list[np.ndarray]) -> None:
        changed = [edge_list.choose(mask) for edge_list, mask in zip(self.edge_lists, masks, strict=True)]
        if self._take_flags():
            self._whole = None
        elif self.selection is not None and not any(changed):
            return
        sets = tuple(self.graph.vertex_sets)
        edges = tuple([edge_list.selection() for edge_list in self.edge_lists if len(edge_list.active)])
        active = tuple([np.zeros(len(set_), bool) for set_ in sets])
        for edge in edges:
            for slot, number in enumerate(edge.vertex_sets):
                kernels.mark(edge.vertex_rows, slot, active[number])
        whole, part = self._narrowed(active)
        if whole is not None:
            self.selection = Selection(
                sets, whole.active, whole.fixed, edges, True, whole.parameter_sets, whole, part
            )
            return
        fixed = tuple([set_.fixed.copy() for set_ in sets])
        self.selection = Selection(sets, active, fixed, edges, True, tuple(self.graph.parameter_sets))
        self.has_free_vertices = any([(a & ~f).any() for a, f in zip(active, fixed, strict=True)])
        chosen = [edge_list for edge_list in self.edge_lists if len(edge_list.active)]
        self._whole = self.selection, chosen, [chunk.mask for chunk in chosen]

    def _take_flags(self) -> bool:
        """Flags of the objects -> graph; True if they are not those of the present selection."""
        changed = False
        for vertex_list in self.vertex_lists:
            vertex_list.take_flags()
            changed |= vertex_list.has_new_flags
            vertex_list.has_new_flags = False
        return changed

    def _narrowed(self, active: tuple[np.ndarray, ...]) -> tuple[Selection | None, tuple[np.ndarray, ...]]:
        """Of which selection the chosen edges are a part with the same active vertices, and their masks.

        That is the last one that was not part of another itself.
        """
        if self._whole is None:
            return None, ()
        whole, lists, before = self._whole
        if any([len(edge_list.active) and edge_list not in lists for edge_list in self.edge_lists]):
            return None, ()
        if any([now.tobytes() != then.tobytes() for now, then in zip(active, whole.active, strict=True)]):
            return None, ()
        masks = tuple([list_.mask for list_ in lists])
        if any([np.count_nonzero(now > then) for now, then in zip(masks, before, strict=True)]):
            return None, ()
        return whole, masks

    def active_vertices(self) -> list[Any]:
        """Vertices of active edges by ascending id, as in g2o."""
        if self.selection is None:
            return []
        vertices = [
            vertex_list.objects[row]
            for vertex_list, active in zip(self.vertex_lists, self.selection.active, strict=True)
            for row in np.flatnonzero(active).tolist()
        ]
        return sorted(vertices, key=lambda vertex: vertex._id)

    def active_edges(self) -> list[Any]:
        """Active edges in the order in which they were added."""
        edges = [edge for edge_list in self.edge_lists for edge in edge_list.active_objects()]
        return sorted(edges, key=lambda edge: edge._internal_id)

    # ---------------------------------------------------------------- moving values

    def take_values(self) -> None:
        """All values of the objects -> graph."""
        for vertex_list in self.vertex_lists:
            vertex_list.take_estimates()
        for parameter_set, rows in self._parameter_lists:
            rows.gather("estimate", parameter_set.values)
        for edges in self.edge_lists:
            edges.take_values()

    def give_estimates(self) -> None:
        """Estimates of the graph -> objects."""
        for vertex_list in self.vertex_lists:
            vertex_list.give_estimates()

    def compute_errors(self) -> None:
        """Errors and chi2 of all active edges -> objects, at the estimates, which both have."""
        for edge_list in self.edge_lists:
            if len(edge_list.active):
                edge_list.compute_errors(self.graph)

    def active_chi2(self) -> float:
        """Sum of chi2 of the active edges, of their last errors."""
        total = 0.0
        for edge_list in self.edge_lists:
            if not len(edge_list.active):
                continue
            total += float(edge_list.chi2().sum())
        return total

    def active_robust_chi2(self) -> float:
        """Sum of rho(chi2) of the active edges, of their last errors."""
        return sum(edge_list.robust_chi2() for edge_list in self.edge_lists if len(edge_list.active))

    def place_of(self, vertex: Any) -> tuple[int, int]:
        """(vertex set, row) of a vertex object."""
        try:
            return self.graph.vertex_place(self._id_of(vertex))
        except GraphError:
            raise GraphError(
                f"{vertex!r} was not in the graph at the last initialize_optimization."
            ) from None
