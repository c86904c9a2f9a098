"""Segments of H and b to which edges add that somebody else evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from graphopt.problem.segments import runs
from graphopt.problem.structure import EdgeGroup, Structure

Places = list[tuple[Any, np.ndarray, int]]
"""(pair of slots or slot, (m,) first scalar in H or b, -1: none, scalars) of a group's edges."""


def vertices_of(groups: Sequence[EdgeGroup]) -> dict[int, np.ndarray]:
    """Number of a vertex set -> (k,) ascending rows of vertices that the edges have."""
    rows: dict[int, list[np.ndarray]] = {}
    for group in groups:
        for slot, number in enumerate(group.vertex_sets):
            rows.setdefault(number, []).append(group.vertex_rows[:, slot])
    return {number: np.unique(np.concatenate(some)).astype(np.int64) for number, some in rows.items()}


def places_of(structure: Structure, group: EdgeGroup) -> tuple[Places, Places]:
    """Of the blocks of H by pair of slots, and of the parts of b by slot."""
    dims = [vertex.tangent_dim for vertex in group.edge_set.type.vertices]
    blocks = [
        (pair, group.block_offset[:, number], dims[pair[0]] * dims[pair[1]])
        for number, pair in enumerate(combinations_with_replacement(range(len(dims)), 2))
    ]
    parts = [
        (slot, structure.vertex_offsets[number][group.vertex_rows[:, slot]], dims[slot])
        for slot, number in enumerate(group.vertex_sets)
    ]
    return blocks, parts


def stored_blocks(group: EdgeGroup, number: int, block: np.ndarray, size: int) -> np.ndarray:
    """(m, size) what H stores of a pair's blocks (m, rows, columns), by columns."""
    turned = group.block_transposed[:, number]
    flat = block.transpose(0, 2, 1).reshape(-1, size)
    flat[turned] = block.reshape(-1, size)[turned]
    return flat


class Segments:
    """Where the segments of many edges begin among all scalars that they add to."""

    def __init__(self, groups: list[Places]):
        found = [(offset[offset >= 0], size) for segments in groups for _, offset, size in segments]
        begins = np.concatenate([np.zeros(0, np.int64), *(offset for offset, _ in found)])
        sizes = np.repeat([size for _, size in found], [len(offset) for offset, _ in found])
        self._known, first = np.unique(begins, return_index=True)
        lengths = sizes[first].astype(np.int64)
        self._first = np.concatenate([[0], np.cumsum(lengths)])
        self.places: np.ndarray = runs(self._known, lengths)
        """(n,) int64: all scalars."""
        self._rows = {
            id(segments): [self._placed(offset) for _, offset, _ in segments] for segments in groups
        }
        """By segments, which stay: edges that have one, and its first scalar among all."""

    def destinations(self, segments: Places) -> np.ndarray:
        """(k,) place among all scalars of each number of segments (m, size) after one another, -1: none."""
        found = [np.zeros(0, np.int64)]
        for (_, offset, size), (rows, first) in zip(segments, self._rows[id(segments)], strict=True):
            places = np.full((len(offset), size), -1)
            places[rows] = first[:, None] + np.arange(size)
            found.append(places.ravel())
        return np.concatenate(found)

    def _placed(self, offset: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
        rows = np.flatnonzero(offset >= 0)
        first = self._first[np.searchsorted(self._known, offset[rows])]
        return slice(None) if len(rows) == len(offset) else rows, first

    def add(self, segments: Places, numbers: list[np.ndarray], sums: np.ndarray) -> None:
        """Add numbers (m, size) of segments to the sums, in the order of the edges."""
        for (_, _, size), own, (rows, first) in zip(segments, numbers, self._rows[id(segments)], strict=True):
            places = (first[:, None] + np.arange(size)).ravel()
            sums += np.bincount(places, own[rows].ravel(), len(sums))
