"""The structure of a graph whose computed values are kept on a device.

    blocks:   x (what steps move), then c (the values); H_in and b_in of the edges are over both

Values are blocks like vertices, so the edges' kernels know nothing of them. Steps have zeros in their rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.graph.convolution import Convolution
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.types.computed import ComputedVertexType, chained_type


class ValuesStructure(Structure):
    """Numbering of vertices and values, and the edges' pattern."""

    def __init__(self, graph: Graph, selection: Selection):
        moved = outer_selection(graph, selection)
        active = tuple(
            np.ones(len(vertex_set), bool) if isinstance(vertex_set.type, ComputedVertexType) else mask
            for vertex_set, mask in zip(selection.vertex_sets, moved.active, strict=True)
        )
        super().__init__(replace(moved, active=active, edges=selection.edges))
        self.num_moved = self.num_kept
        """Blocks before this one are vertices, the others values."""
        self.moved_dim = int(self.offsets[self.num_moved])
        """Scalars of the vertices."""
        self.num_kept = self.num_blocks  # nothing is eliminated
        self.levels = [
            number
            for number, vertex_set in enumerate(selection.vertex_sets)
            if isinstance(vertex_set.type, ComputedVertexType)
        ]
        """Numbers of the sets of values, each after those that it follows from."""
        self.terms = [_term_group(graph, definition) for definition in graph.definitions()]
        self.convolutions: list[tuple[Convolution, int, int, slice, slice]] = []
        """With the numbers of the sets of sources and values, and their rows there."""
        kinds = [vertex_set.type for vertex_set in selection.vertex_sets]
        for convolution in graph.convolutions:
            numbers = kinds.index(convolution.source_type), kinds.index(convolution.value_type)
            self.convolutions.append((convolution, *numbers, *graph.rows_of(convolution)))

    def _placed_last(self, free: list[np.ndarray]) -> list[np.ndarray]:
        sets = self.selection.vertex_sets
        return [
            mask if isinstance(set_.type, ComputedVertexType) else np.zeros(len(mask), bool)
            for set_, mask in zip(sets, free, strict=True)
        ]


def outer_selection(graph: Graph, selection: Selection) -> Selection:
    """What is optimized: the vertices that selected edges name, and those that values follow from."""
    computed = [isinstance(vertex_set.type, ComputedVertexType) for vertex_set in selection.vertex_sets]
    active = tuple(
        np.zeros(len(mask), bool) if is_computed else mask.copy()
        for mask, is_computed in zip(selection.active, computed, strict=True)
    )
    for edge_set in graph.definitions():
        sets, rows, _, _ = graph.edge_places(edge_set, None)
        for slot, number in enumerate(sets):
            if not computed[number]:
                active[number][rows[:, slot]] = True
    kinds = [vertex_set.type for vertex_set in selection.vertex_sets]
    for convolution in graph.convolutions:
        if not computed[number := kinds.index(convolution.source_type)]:
            active[number][graph.rows_of(convolution)[0]] = True
    return replace(selection, active=active, edges=(), whole=None, masks=())


def _term_group(graph: Graph, edge_set: EdgeSet) -> EdgeGroup:
    """All terms of a set, as edges whose blocks of J'J are derivatives of the values."""
    sets, rows, parameter_sets, parameter_rows = graph.edge_places(edge_set, None)
    chained = EdgeSet(chained_type(edge_set.type), edge_set.columns)
    every = np.arange(len(edge_set))
    return EdgeGroup(
        chained, every, "identity", 0, tuple(sets), rows, tuple(parameter_sets), parameter_rows
    )  # fmt: skip
