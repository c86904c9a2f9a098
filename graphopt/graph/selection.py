"""Which part of a graph takes part in an optimization, as g2o's `initializeOptimization` chooses it.

* by level: the edges of this level (all levels if negative) that have at least one vertex that is not fixed;
* by vertices: of these, the edges whose vertices are all in the set;
* by edges: exactly the edges given.

A vertex is active if an active edge has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphopt.cpu_kernels import kernels

if TYPE_CHECKING:
    from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet


@dataclass(frozen=True, eq=False)
class EdgeSelection:
    """The active edges of one edge set."""

    edge_set: EdgeSet
    rows: np.ndarray
    """(k,) int64, ascending: active rows of the edge set."""
    vertex_sets: tuple[int, ...]
    """Per slot: index into `Selection.vertex_sets`."""
    vertex_rows: np.ndarray
    """(k, arity) int32: row in the slot's vertex set."""
    parameter_sets: tuple[int, ...]
    """Per parameter slot: number of the graph's parameter set."""
    parameter_rows: np.ndarray
    """(k, num_parameters) int32: row in the slot's parameter set."""
    source: object = None
    """Selections of one edge set with the same source, unless None, have these rows from one table."""

    @property
    def takes_all(self) -> bool:
        """Every edge of the set is active."""
        return len(self.rows) == len(self.edge_set)


@dataclass(frozen=True, eq=False)
class Selection:
    """The active part of a graph."""

    vertex_sets: tuple[VertexSet, ...]
    active: tuple[np.ndarray, ...]
    """Per vertex set (n,) bool: an active edge has this vertex."""
    fixed: tuple[np.ndarray, ...]
    """Per vertex set (n,) bool: held constant; the graph's own flags plus those this optimization adds."""
    edges: tuple[EdgeSelection, ...]
    """Edge sets that have active edges, in the graph's order."""
    chosen_by_edges: bool = False
    """The edges were given one by one: they stay active even if all their vertices are fixed."""
    parameter_sets: tuple[ParameterSet, ...] = ()
    """The graph's parameter sets, which `EdgeSelection.parameter_sets` numbers."""
    whole: Selection | None = None
    """A selection with the same vertices, active, fixed and marginalized, and these and more edges."""
    masks: tuple[np.ndarray, ...] = ()
    """Per edge set of `whole` (n,) bool, over all its edges: who is in this selection."""
    _with_fixed: dict[tuple[tuple[int, int], ...], Selection] = field(default_factory=dict)
    """The last result of `with_fixed`."""

    @cached_property
    def num_active_vertices(self) -> int:
        """Active vertices, fixed ones included."""
        return sum([int(np.count_nonzero(mask)) for mask in self.active])

    @cached_property
    def num_active_edges(self) -> int:
        """Active edges."""
        return sum([len(edges.rows) for edges in self.edges])

    def free(self, set_number: int) -> np.ndarray:
        """(n,) bool: active and not fixed."""
        return self.active[set_number] & ~self.fixed[set_number]

    def with_fixed(self, places: list[tuple[int, int]]) -> Selection:
        """The same selection with more vertices fixed, given as (vertex set, row); the graph stays.

        For the same places again the same object: nothing has to be prepared anew for it.
        """
        key = tuple(places)
        if key and key not in self._with_fixed:
            self._with_fixed.clear()
            self._with_fixed[key] = self._made_with_fixed(places)
        return self._with_fixed[key] if key else self

    def _made_with_fixed(self, places: list[tuple[int, int]]) -> Selection:
        fixed = tuple(mask.copy() for mask in self.fixed)
        for number, row in places:
            fixed[number][row] = True
        edges = self.edges
        if not self.chosen_by_edges:
            edges = tuple(kept for edge in edges if len((kept := _without_fixed(edge, fixed)).rows))
        active = tuple(np.zeros(len(mask), bool) for mask in self.active)
        for edge in edges:
            for slot, number in enumerate(edge.vertex_sets):
                kernels.mark(edge.vertex_rows, slot, active[number])
        return replace(self, active=active, fixed=fixed, edges=edges, whole=None, masks=(), _with_fixed={})


def _without_fixed(edges: EdgeSelection, fixed: tuple[np.ndarray, ...]) -> EdgeSelection:
    """Leave out the edges whose vertices are all fixed."""
    keep, num_kept = kernels.edges_with_free_vertex(
        edges.vertex_rows, [fixed[number] for number in edges.vertex_sets]
    )
    if num_kept == len(keep):
        return edges
    return replace(
        edges,
        rows=edges.rows[keep],
        vertex_rows=edges.vertex_rows[keep],
        parameter_rows=edges.parameter_rows[keep],
    )
