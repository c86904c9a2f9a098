"""Packed records on the device: of each vertex its estimate and its part of a vector x, side by side.

Kernels of products (`codegen.gpu.packed_products`) read both from there, in the type of H. The estimates are
packed once per linearisation, x before each product. Where all products of a vertex set read stored Jacobians
(`codegen.gpu.stored_products`), its records are of x alone.

What a product from the edges consists of: parts, units that one launch sums, and their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.codegen.gpu import float32_record_dim, record_dim
from graphopt.codegen.gpu.packed_products import packed_record_dim
from graphopt.codegen.gpu.product_shapes import STOPPABLE
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.estimates import DeviceEstimates, RecordSet
from graphopt.vulkan.data.views import MANY_EDGES
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.sums import WritePlan
from graphopt.vulkan.program import NOTHING, VECTOR_WORKGROUP, Context, Launch


@dataclass(frozen=True)
class _Set:
    num_rows: int
    storage_dim: int
    """Numbers of the estimate, 0: records of x alone."""
    tangent_dim: int
    packed_dim: int
    packed: DeviceArray


class PackedRecords:
    """Records of some vertex sets."""

    def __init__(
        self, context: Context, structure: Structure, estimates: DeviceEstimates, sets: Mapping[int, bool]
    ):
        """sets: vertex sets, and whether their records hold estimates."""
        self._context = context
        self._sets = {number: self._make(structure, estimates, number, set_) for number, set_ in sets.items()}

    def _make(
        self, structure: Structure, estimates: DeviceEstimates, number: int, holds_estimate: bool
    ) -> _Set:
        num_rows, storage_dim = estimates.working[number].array.shape
        storage_dim = storage_dim if holds_estimate else 0
        tangent_dim = structure.selection.vertex_sets[number].type.tangent_dim
        dim = packed_record_dim(storage_dim, tangent_dim, self._context.arithmetic)
        packed = DeviceArray(self._context, num_rows * dim, is_mapped=False)
        return _Set(num_rows, storage_dim, tangent_dim, dim, packed)

    def buffer(self, number: int) -> Any:
        """Records of a vertex set."""
        return self._sets[number].packed.buffer

    def places(self, number: int, offsets: np.ndarray, num_rows: int) -> np.ndarray:
        """(num_rows,) uint32: where x of the first scalar rows is in the records of a set, or NOTHING.

        offsets (n,): first scalar row of each record, -1: none.
        """
        vertices, places = self._sets[number], np.full(num_rows, NOTHING, np.uint32)
        rows = np.flatnonzero((offsets >= 0) & (offsets < num_rows))
        for k in range(vertices.tangent_dim):
            places[offsets[rows] + k] = rows * vertices.packed_dim + vertices.storage_dim + k
        return places

    def holds_estimate(self, number: int) -> bool:
        """The records of a vertex set are not of x alone."""
        return self._sets[number].storage_dim > 0

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(set_.packed.nbytes for set_ in self._sets.values())

    def estimate_launches(self, version: Mapping[int, RecordSet]) -> list[Launch]:
        """Pack the estimates of a version."""
        launches = []
        for number, set_ in self._sets.items():
            if not set_.storage_dim:
                continue
            records = version[number]
            narrow = records.narrow
            source, dim = (
                (records.wide.buffer, record_dim(set_.storage_dim))
                if narrow is None or self._context.precision == "double"
                else (narrow.buffer, float32_record_dim(set_.storage_dim))
            )
            count = set_.num_rows * set_.storage_dim
            params = (set_.num_rows, set_.storage_dim, dim, set_.packed_dim)
            groups = -(-count // VECTOR_WORKGROUP)
            nbytes = 2.0 * count * self._context.real.itemsize
            buffers = (source, set_.packed.buffer)
            launches.append(self._context.launch("pack_estimates", buffers, params, groups, None, nbytes))
        return launches

    def vector_launches(
        self,
        numbers: Iterable[int],
        offsets: Mapping[int, DeviceArray],
        x: Any,
        status: Any,
        ping_pong: int | None,
    ) -> list[Launch]:
        """Pack x of some vertex sets; 0 where `offsets` says NOTHING."""
        constants = {STOPPABLE: int(ping_pong is not None)}
        launches = []
        for number in numbers:
            vertices = self._sets[number]
            count = vertices.num_rows * vertices.tangent_dim
            params = (
                vertices.num_rows,
                vertices.storage_dim,
                vertices.tangent_dim,
                vertices.packed_dim,
                ping_pong or 0,
            )
            buffers = (offsets[number].buffer, x, vertices.packed.buffer, status)
            groups = -(-count // VECTOR_WORKGROUP)
            nbytes = 2.0 * count * self._context.real.itemsize
            launches.append(self._context.launch("pack_vector", buffers, params, groups, constants, nbytes))
        return launches


@dataclass(frozen=True)
class Part:
    """The tiles of a slot's view, and the slots that their product reads x of."""

    edges: DeviceEdges
    slot: int
    sources: tuple[int, ...]
    tiles: tuple[int, int]
    blocks: np.ndarray
    """Blocks of the destinations."""

    @property
    def has_many_edges(self) -> bool:
        """Its destinations that are not long have many edges each."""
        view = self.edges.views[self.slot].view
        runs = view.short_tiles(self.tiles)
        count = sum(int(view.tiles[last]) - int(view.tiles[first]) for first, last in runs)
        return sum(map(view.edges_of, runs)) >= MANY_EDGES * count

    @property
    def long(self) -> tuple[int, int]:
        """Its long destinations, as `EdgeView.long_destinations`."""
        return self.edges.views[self.slot].view.long_destinations(self.tiles)


@dataclass(frozen=True)
class Unit:
    """What one launch sums: a part, or several with the same destinations."""

    parts: tuple[Part, ...]
    views: Any | None
    """None: of a single part."""
    tiles: tuple[int, int]
    blocks: np.ndarray
    """Blocks of the destinations."""

    @property
    def key(self) -> tuple[tuple[int, int], ...]:
        """Tells the views of the parts."""
        return tuple((id(part.edges), part.slot) for part in self.parts)

    @property
    def all_blocks(self) -> np.ndarray:
        """Blocks of the destinations of all tiles, those of other products, too."""
        if self.views is not None:
            return self.views.tiles.blocks
        (part,) = self.parts
        return part.edges.views[part.slot].view.blocks


@dataclass(frozen=True)
class ProductPlan:
    """A product: "eliminated", "kept" or "whole"."""

    name: str
    units: list[Unit]
    writes: WritePlan
    offsets: Mapping[int, DeviceArray]

    @property
    def parts(self) -> list[Part]:
        """Those of all units."""
        return [part for unit in self.units for part in unit.parts]


def units_of(parts: Sequence[Part], name: str, merging: Any) -> list[Unit]:
    """Parts of a product, those together that one launch sums."""
    own = {(id(part.edges), part.slot): part for part in parts}
    units = []
    for members in merging.units([(part.edges, part.slot) for part in parts]):
        chosen = tuple(own[id(edges), slot] for edges, slot in members)
        if len(chosen) == 1:
            units.append(Unit(chosen, None, chosen[0].tiles, chosen[0].blocks))
            continue
        views = merging.views(members)
        tiles = tiles_of(name, views.tiles.num_kept_tiles, views.tiles.num_tiles)
        begin, end = (int(views.tiles.tiles[tile]) for tile in tiles)
        units.append(Unit(chosen, views, tiles, views.tiles.blocks[begin:end]))
    return units


def tiles_of(name: str, boundary: int, num_tiles: int) -> tuple[int, int]:
    """Tiles of a product's destinations: those that stay come before the boundary."""
    return {"eliminated": (boundary, num_tiles), "kept": (0, boundary), "whole": (0, num_tiles)}[name]


def solve_arrays(
    structure: Structure, num_kept: int, unit: Unit, inverse_offset: np.ndarray
) -> dict[str, np.ndarray]:
    """Where destinations have their inverses and, of several parts, packed records; kept ones: 0.

    inverse_offset: (num_eliminated,) where each eliminated block's inverse begins.
    """
    landmark = unit.all_blocks - num_kept
    if len(landmark) and landmark.min() >= 0:
        arrays = {"dest_inverse": inverse_offset[landmark]}
    else:
        arrays = {"dest_inverse": np.where(landmark >= 0, inverse_offset[np.maximum(landmark, 0)], 0)}
    if unit.views is not None:
        first = unit.parts[0]
        blocks = structure.vertex_blocks[first.edges.group.vertex_sets[first.slot]]
        row_of = np.zeros(structure.num_blocks, np.int64)
        row_of[blocks[blocks >= 0]] = np.flatnonzero(blocks >= 0)
        arrays["dest_row"] = row_of[unit.all_blocks]
    return arrays
