"""Edges at every place of a grid, without index arrays: the domains of Opt.

A stencil has one offset per slot. The edge at place p joins the vertices p + offset. Places whose stencil
lies inside the grid are the *interior*: ids follow from the offsets alone. At the border a rule says what
happens:

    skip      there is no edge
    clamp     the nearest place of the border            -1 -> 0        n -> n - 1
    wrap      the grid continues on the other side       -1 -> n - 1    n -> 0
    mirror    the grid is reflected at its border places -1 -> 1        n -> n - 2

Where two slots meet the same vertex the edge has a type with fewer slots (`types.merged`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.graph.access import Access
from graphopt.graph.grids import Grid
from graphopt.types.base import EdgeType
from graphopt.types.merged import merged_edge_type

BOUNDARIES = ("skip", "clamp", "wrap", "mirror")

Offset = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """Edges of one type and where they are."""

    type: EdgeType
    places: np.ndarray
    """(m,) int64: flat place of each edge in the grid."""
    vertices: np.ndarray
    """(m, arity of `type`) int64 ids."""


def first_slots(ids: np.ndarray) -> np.ndarray:
    """Of each slot of edges with these vertices (m, arity), the first slot that has the same one."""
    same = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    for slot in range(ids.shape[1]):
        for other in range(slot - 1, -1, -1):
            same[ids[:, other] == ids[:, slot], slot] = other
    return same


class Stencil:
    """Slots of an edge type on a grid."""

    def __init__(self, edge_type: EdgeType, slots: Any, offsets: Sequence[Any], boundary: str):
        self.type = edge_type
        self.boundary = boundary
        self.slots = _checked_slots(edge_type, slots)
        self.shape = next(slot.shape for slot in self.slots if isinstance(slot, Grid))
        self.offsets = _checked_offsets(edge_type, self.slots, offsets, len(self.shape))
        if boundary not in BOUNDARIES:
            raise OptionError(f"boundary is {boundary!r}, expected one of {', '.join(BOUNDARIES)}.")

    def interior(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(origin, extent) of the box of places whose stencil lies inside the grid."""
        moves = np.array([offset for offset in self.offsets if offset is not None])
        low = np.maximum(0, -moves.min(axis=0))
        high = np.minimum(self.shape, np.array(self.shape) - moves.max(axis=0))
        return tuple(low.tolist()), tuple(np.maximum(high - low, 0).tolist())

    def parts(self, mask: np.ndarray | None) -> Iterator[Part]:
        """All edges: the interior, then the border by which slots coincide."""
        origin, extent = self.interior()
        inside = np.zeros(self.shape, bool)
        inside[tuple(slice(a, a + n) for a, n in zip(origin, extent, strict=True))] = True
        wanted = inside if mask is None else inside & mask
        places = np.flatnonzero(wanted)
        ids = self._interior_ids(places)
        yield Part(self.type, places, ids)
        if self.boundary == "skip":
            return
        border = ~inside if mask is None else ~inside & mask
        yield from self._border(np.flatnonzero(border))

    def _border(self, places: np.ndarray) -> Iterator[Part]:
        ids = self._ids(places)
        same = first_slots(ids)
        # columns reversed: patterns are ordered by their last slot first
        patterns, number = np.unique(same[:, ::-1], axis=0, return_inverse=True)
        for k, first in enumerate(patterns[:, ::-1]):
            here = number == k
            kept = np.unique(first)
            pattern = tuple(np.searchsorted(kept, first).tolist())
            yield Part(merged_edge_type(self.type, pattern), places[here], ids[here][:, kept])

    def _interior_ids(self, places: np.ndarray) -> np.ndarray:
        """(m, arity) vertex ids of the edges at flat places whose stencil lies inside the grid."""
        strides = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        ids = np.empty((len(places), len(self.slots)), np.int64)
        for slot, (each_slot, offset) in enumerate(zip(self.slots, self.offsets, strict=True)):
            if isinstance(each_slot, Access) or offset is None:
                ids[:, slot] = self._shared_id(each_slot)
            else:
                step = sum(a * b for a, b in zip(offset, strides, strict=True))
                np.add(places, each_slot.first_id + step, out=ids[:, slot])
        return ids

    @staticmethod
    def _shared_id(argument: Grid | Access) -> int:
        return int(argument.ids(1)[0]) if isinstance(argument, Access) else argument.first_id

    def _ids(self, places: np.ndarray) -> np.ndarray:
        """(m, arity) vertex ids of the edges at any flat places, by the boundary rule."""
        coordinates = np.unravel_index(places, self.shape)
        ids = np.empty((len(places), len(self.slots)), np.int64)
        for slot, (each_slot, offset) in enumerate(zip(self.slots, self.offsets, strict=True)):
            if isinstance(each_slot, Access) or offset is None:
                ids[:, slot] = self._shared_id(each_slot)
                continue
            moved = [
                _fold(axis + step, length, self.boundary)
                for axis, step, length in zip(coordinates, offset, self.shape, strict=True)
            ]
            ids[:, slot] = each_slot.first_id + np.ravel_multi_index(moved, self.shape)
        return ids


def everywhere(mask: Any, offsets: Sequence[Sequence[int]]) -> np.ndarray:
    """Places (bool, shape of `mask`) where the mask holds at every offset; it ends with the grid."""
    inside = np.asarray(mask, bool)
    result = inside.copy()
    for offset in offsets:
        shifted = np.zeros_like(inside)
        source, target = [], []
        for step, length in zip(offset, inside.shape, strict=True):
            low, high = max(0, -step), min(length, length - step)
            target.append(slice(low, max(low, high)))
            source.append(slice(low + step, max(low, high) + step))
        shifted[tuple(target)] = inside[tuple(source)]
        result &= shifted
    return result


def _fold(index: np.ndarray, length: int, boundary: str) -> np.ndarray:
    """Indices into an axis by the boundary rule."""
    if boundary == "wrap":
        return index % length
    if boundary == "mirror":
        period = max(2 * length - 2, 1)
        folded = index % period
        return np.minimum(folded, period - folded) if length > 1 else np.zeros_like(index)
    return np.clip(index, 0, length - 1)


def _checked_slots(edge_type: EdgeType, slots: Any) -> tuple[Grid | Access, ...]:
    arity = len(edge_type.vertices)
    given = (slots,) * arity if isinstance(slots, Grid) else tuple(slots)
    if len(given) != arity:
        raise ShapeError(f"{edge_type.tag} joins {arity} vertices, got {len(given)} grids, one per slot.")
    shape = None
    for slot, (argument, vertex_type) in enumerate(zip(given, edge_type.vertices, strict=True)):
        grid = argument.grid if isinstance(argument, Access) else argument
        if not isinstance(grid, Grid) or (isinstance(argument, Access) and argument.kind != "unique"):
            raise GraphError(
                f"{edge_type.tag}: slot {slot} is {argument!r}, expected a grid (graph.add_grid), "
                "or graphopt.unique(grid) for a vertex that all edges share."
            )
        if grid.type is not vertex_type:
            raise GraphError(
                f"{edge_type.tag}: slot {slot} takes {vertex_type.tag}, the grid has {grid.type.tag}."
            )
        if isinstance(argument, Grid):
            if shape is not None and argument.shape != shape:
                raise ShapeError(
                    f"{edge_type.tag}: grids of shapes {shape} and {argument.shape}; one is needed."
                )
            shape = argument.shape
    if shape is None:
        raise GraphError(f"{edge_type.tag}: no slot is a grid; use graph.add_edges with graphopt.unique.")
    return given


def _checked_offsets(
    edge_type: EdgeType, slots: tuple[Grid | Access, ...], offsets: Sequence[Any], num_axes: int
) -> tuple[Offset | None, ...]:
    if len(offsets) != len(slots):
        raise ShapeError(
            f"{edge_type.tag} joins {len(slots)} vertices, got {len(offsets)} offsets, one per slot."
        )
    result: list[Offset | None] = []
    for slot, (each_slot, offset) in enumerate(zip(slots, offsets, strict=True)):
        if isinstance(each_slot, Access):
            result.append(None)
            continue
        steps = tuple(int(step) for step in np.atleast_1d(() if offset is None else offset))
        if len(steps) != num_axes:
            raise ShapeError(
                f"{edge_type.tag}: offset {offset!r} of slot {slot} needs {num_axes} whole numbers "
                "(rows down, columns to the right), one per axis of the grid."
            )
        for other in range(slot):
            if slots[other] is each_slot and result[other] == steps:
                raise GraphError(f"{edge_type.tag}: slots {other} and {slot} have the same offset {steps}.")
        result.append(steps)
    return tuple(result)
