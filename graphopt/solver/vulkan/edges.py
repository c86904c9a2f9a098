"""The edges of one group on the device: their views, and the kernels that run over them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from graphopt.codegen import gpu, sampled_runs
from graphopt.codegen.gpu import EDGE_BLOCK
from graphopt.codegen.gpu.edge_kernels import CHI2_WORKGROUP
from graphopt.solver.cpu import compiled_edge
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.edge_views import (
    EdgeView,
    PairList,
    edge_view,
    loop_lists,
    pair_lists,
    primary_slot,
    write_data,
    write_rows,
)
from graphopt.solver.vulkan.generated import arithmetic_of, bound
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.planes import DevicePlanes
from graphopt.solver.vulkan.records import DeviceEstimates, DeviceParameters, RecordSet
from graphopt.solver.vulkan.storage import Products
from graphopt.solver.vulkan.stored_numbers import StoredNumbers, stored_numbers
from graphopt.solver.vulkan.transfer import WIDE_BYTES, DeviceArray, Width, array_of, digest_of
from graphopt.symbolic import sampling
from graphopt.types.base import working_edge_type

Version = Mapping[int, RecordSet]
RUN_BYTES = 16
"""Of a run of neighbouring pixels, as memory moves them."""
BlocksOfPairs = tuple[np.ndarray, np.ndarray]
"""(m, num_pairs) int64 and bool, as `EdgeGroup.block_offset` and `block_transposed`."""


class ViewArrays:
    """One view's arrays."""

    def __init__(
        self,
        context: Context,
        group: EdgeGroup,
        signature: gpu.EdgeSignature,
        view: EdgeView,
        layout: BlockLayout,
    ):
        self._context, self._group, self.view = context, group, view
        num = -(-view.num_edges // EDGE_BLOCK) * EDGE_BLOCK
        self._rows = DeviceArray(context, num * signature.num_rows * 4)
        self._num_blocks = num // EDGE_BLOCK
        self._rows.fill(
            EDGE_BLOCK * signature.num_rows * 4,
            self._num_blocks,
            lambda first, out: write_rows(group, view, first, out),
        )
        self._num_data = signature.num_data
        self._data = DeviceArray(context, num * self._num_data * WIDE_BYTES)
        self._narrow = (
            DeviceArray(context, num * self._num_data * 4) if context.precision == "mixed" else None
        )
        arrays = {
            "first": view.first,
            "tiles": view.tiles,
            "dest_block": layout.diagonal_offset[view.blocks],
            "dest_scalar": layout.scalar[view.blocks],
        }
        small = {name: array_of(context, array.astype(np.uint32)) for name, array in arrays.items()}
        self.buffers: dict[str, Any] = {name: one.buffer for name, one in small.items()}
        self.buffers |= {"rows": self._rows.buffer, "data": self._data.buffer}
        if self._narrow is not None:
            self.buffers["data_narrow"] = self._narrow.buffer
        self.nbytes = self._rows.nbytes + self._data.nbytes + sum(one.nbytes for one in small.values())
        self.nbytes += 0 if self._narrow is None else self._narrow.nbytes
        self.write_data()

    def write_data(self) -> None:
        """Measurements, information and kernel widths, from the graph."""
        if not self._num_data:
            return
        self._write_data(self._data, "float64" if self._context.device.has_float64 else "two_floats")
        if self._narrow is not None:
            self._write_data(self._narrow, "float32")

    def _write_data(self, target: DeviceArray, width: Width) -> None:
        target.fill(
            EDGE_BLOCK * self._num_data * (4 if width == "float32" else WIDE_BYTES),
            self._num_blocks,
            lambda first, out: write_data(self._group, self.view, first, width, out),
        )


class PairArrays:
    """One pair list's arrays."""

    def __init__(self, context: Context, pairs: PairList):
        self.pairs = pairs
        arrays = {"pair_first": pairs.first, "pair_edge": pairs.edge, "pair_block": pairs.offset}
        stored = {name: array_of(context, array) for name, array in arrays.items()}
        self.buffers: dict[str, Any] = {name: one.buffer for name, one in stored.items()}
        self.nbytes = sum(one.nbytes for one in stored.values())


class DeviceEdges:
    """A group on the device. The primary view is there at once, the others after `prepare`."""

    def __init__(
        self,
        context: Context,
        structure: Structure,
        group: EdgeGroup,
        layout: BlockLayout,
        estimates: DeviceEstimates,
        parameters: DeviceParameters,
        planes: DevicePlanes,
    ):
        """layout: where the diagonal blocks are, and which blocks Schur eliminates."""
        self.group = group
        self._context, self._structure, self._layout = context, structure, layout
        self._estimates, self._parameters, self._planes = estimates, parameters, planes
        edge_type = working_edge_type(group.edge_set.type)
        self.signature = gpu.EdgeSignature(edge_type, group.information, group.kernel)
        self._arithmetic = arithmetic_of(context)
        self.primary_slot = primary_slot(structure, group)
        view = edge_view(structure, group, self.primary_slot, is_primary=True, num_kept=layout.num_kept)
        self.primary = ViewArrays(context, group, self.signature, view, layout)
        self.views: dict[int, ViewArrays] = {self.primary_slot: self.primary}
        """By slot; slots without optimized vertices have none."""
        self.pairs: list[PairArrays] = []
        self._products: Products = "blocks"
        self.stored: dict[int, StoredNumbers] = {}
        """By slot, after `prepare_stored`."""
        self._digest = self._digest_of_data()
        self._parameter_buffers: dict[str, Any] = {}
        for slot, number in enumerate(group.parameter_sets):
            records = parameters.records[number]
            self._parameter_buffers[f"parameter{slot}"] = records.wide.buffer
            if records.narrow is not None:
                self._parameter_buffers[f"parameter_narrow{slot}"] = records.narrow.buffer

    def prepare(self, places: BlocksOfPairs | None) -> None:
        """Make the other views and, for stored blocks of H, the pair lists; places: of these blocks."""
        group, layout = self.group, self._layout
        for slot, number in enumerate(group.vertex_sets):
            if slot != self.primary_slot and (self._structure.vertex_blocks[number] >= 0).any():
                view = edge_view(self._structure, group, slot, is_primary=False, num_kept=layout.num_kept)
                if view.num_edges:
                    self.views[slot] = ViewArrays(self._context, group, self.signature, view, layout)
        lists = [] if places is None else pair_lists(group, self.primary.view, *places)
        lists += loop_lists(self._structure, group, self.primary.view, layout.diagonal_offset)
        self.pairs = [PairArrays(self._context, one) for one in lists]

    def in_context(self, context: Context) -> DeviceEdges:
        """The same arrays, computed with in another precision."""
        own = copy.copy(self)
        own._context, own._arithmetic = context, arithmetic_of(context)
        sources = {slot: one.sources for slot, one in self.stored.items()}
        own.stored = own._stored_numbers(sources)
        return own

    def prepare_stored(self, uses_diagonal: bool, products: Products) -> None:
        """Make room for what products "jacobians" or "expressions" read.

        uses_diagonal: products leave out a vertex's part of its own row.
        """
        self._products = products
        sources = {s: tuple(t for t in self.views if t != s or not uses_diagonal) for s in self.views}
        self.stored = self._stored_numbers({slot: one for slot, one in sources.items() if one})

    def _stored_numbers(self, sources: Mapping[int, tuple[int, ...]]) -> dict[int, StoredNumbers]:
        views = {slot: arrays.view for slot, arrays in self.views.items()}
        group = self._structure, self.group, self.signature
        return stored_numbers(self._context, *group, views, sources, self._products)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(one.nbytes for one in [*self.views.values(), *self.pairs, *self.stored.values()])

    @property
    def names_a_vertex_twice(self) -> bool:
        """Some edge has one vertex in two slots."""
        return any(one.pairs.on_diagonal for one in self.pairs)

    def refresh(self) -> bool:
        """Take measurements, information and kernel widths where they have changed; False: nowhere."""
        digest = self._digest_of_data()
        if digest == self._digest:
            return False
        self._digest = digest
        for view in self.views.values():
            view.write_data()
        return True

    def _digest_of_data(self) -> bytes:
        return digest_of(*(array for array, _ in self.group.data_columns()))

    # ---------------------------------------------------------------- launches

    def _buffers(self, view: ViewArrays, version: Version) -> dict[str, Any]:
        named = self._shared_buffers(view)
        for slot, number in enumerate(self.group.vertex_sets):
            named[f"estimate{slot}"] = version[number].wide.buffer
            narrow = version[number].narrow
            if narrow is not None:
                named[f"narrow{slot}"] = narrow.buffer
        return named

    def _shared_buffers(self, view: ViewArrays) -> dict[str, Any]:
        """What does not depend on the estimates."""
        planes = dict(zip(("planes", "pixels"), self._planes.buffers, strict=True))
        return {**self._parameter_buffers, **planes, **view.buffers}

    def bytes_of(self, num_edges: float) -> float:
        """Bytes that a kernel moves for so many edges, records and pixels counted once per edge."""
        own = self.signature
        records = sum(one.storage_dim for one in own.edge_type.vertices)
        return num_edges * (4 * own.num_rows + WIDE_BYTES * (own.num_data + records) + self._pixel_bytes)

    @cached_property
    def _pixel_bytes(self) -> int:
        """Bytes of pixels that an edge samples."""
        if not sampling.has_planes():
            return 0  # without images there is nothing to sample, and no program to look at
        own = self.signature
        return RUN_BYTES * sampled_runs(compiled_edge(own.edge_type, own.information, own.kernel).chi2)

    def chi2_launch(self, version: Version, partial: Any, first_partial: int) -> Launch:
        """The parts of chi2, from first_partial on."""
        view, kernel = self.primary, gpu.chi2_kernel(self.signature, self._arithmetic)
        buffers = self._buffers(view, version) | {"partial": partial}
        num = view.view.num_edges
        params = {"num_edges": num, "first_partial": first_partial}
        groups = -(-num // kernel.workgroup_size)
        return bound(self._context, kernel, buffers, params, groups, self.bytes_of(num))

    @property
    def num_chi2_partials(self) -> int:
        """Parts that `chi2_launch` leaves."""
        return -(-self.primary.view.num_edges // CHI2_WORKGROUP)

    def record_buffers(self, version: Version) -> list[Any]:
        """Buffers of the records of each vertex slot, then of each parameter."""
        estimates = [version[number].wide.buffer for number in self.group.vertex_sets]
        slots = range(len(self.group.parameter_sets))
        return [*estimates, *(self._parameter_buffers[f"parameter{slot}"] for slot in slots)]

    def kernels(self) -> Iterator[gpu.GpuKernel]:
        """What the launches of chi2, views and pair lists run; made one after the other."""
        yield gpu.chi2_kernel(self.signature, self._arithmetic)
        for slot in self.views:
            yield gpu.linearize_kernel(self.signature, slot, False, self._arithmetic)
        for one in self.pairs:
            yield gpu.pair_kernel(self.signature, *one.pairs.slots, self._arithmetic)

    def pieces(
        self, slot: int, tiles: tuple[int, int], *, reads_stored: bool = False
    ) -> list[tuple[int, int, float]]:
        """(begin, end, bytes) of runs of tiles, as many as the budget of a submission asks for."""
        first, last = tiles
        view = self.views[slot].view
        share = (last - first) / max(view.num_tiles, 1)
        nbytes = self.bytes_of(view.num_edges * share)
        if reads_stored and slot in self.stored:
            nbytes += share * self.stored[slot].nbytes
        count = min(last - first, int(nbytes / self._context.submission_bytes) + 1)
        bounds = [first + (last - first) * at // max(count, 1) for at in range(count + 1)]
        return [(begin, end, nbytes / count) for begin, end in pairwise(bounds)]

    def _in_pieces(
        self,
        kernel: gpu.GpuKernel,
        slot: int,
        buffers: dict[str, Any],
        params: dict[str, int],
        tiles: tuple[int, int],
    ) -> list[Launch]:
        """Launches over tiles[0] to tiles[1] of a view."""
        launches = []
        for begin, end, nbytes in self.pieces(slot, tiles):
            own = {**params, "first_tile": begin, "num_tiles": end}
            launches.append(bound(self._context, kernel, buffers, own, end - begin, nbytes))
        return launches

    def linearize_launches(
        self, slot: int, version: Version, values: Any, b: Any, *, accumulate: bool
    ) -> list[Launch]:
        """Diagonal blocks and b of the destinations of a slot."""
        arrays = self.views[slot]
        kernel = gpu.linearize_kernel(self.signature, slot, False, self._arithmetic)
        buffers = self._buffers(arrays, version) | {"values": values, "b": b}
        params = {"accumulate": int(accumulate)}
        return self._in_pieces(kernel, slot, buffers, params, (0, arrays.view.num_tiles))

    def pair_launch(self, arrays: PairArrays, version: Version, values: Any, *, accumulate: bool) -> Launch:
        """The blocks of a pair list."""
        pairs = arrays.pairs
        kernel = gpu.pair_kernel(self.signature, *pairs.slots, self._arithmetic)
        buffers = self._buffers(self.primary, version) | arrays.buffers | {"values": values}
        params = {"num_blocks": pairs.num_blocks, "accumulate": int(accumulate)}
        groups = -(-pairs.num_blocks // kernel.workgroup_size)
        nbytes = self.bytes_of(len(pairs.edge))
        return bound(self._context, kernel, buffers, params, groups, nbytes)

    def store_launches(self, version: Version) -> list[Launch]:
        """What products read of each view."""
        launches = []
        for slot, one in self.stored.items():
            arrays = self.views[slot]
            buffers = self._buffers(arrays, version)
            launches += one.launches(buffers, self.bytes_of(arrays.view.num_edges))
        return launches

    def product_buffers(self, slot: int) -> dict[str, Any]:
        """What products over a slot's view read beside packed records."""
        stored = self.stored.get(slot)
        own = {} if stored is None else {"stored": stored.buffer}
        return {**self._shared_buffers(self.views[slot]), **own}

    def schur_diagonal_launches(
        self, slot: int, other: int, version: Version, offsets: Mapping[int, Any], inverse: Any, values: Any
    ) -> list[Launch]:
        """Subtract W M W' of the slots' vertices from the diagonal blocks of kept destinations.

        offsets: by vertex set, buffers of where each eliminated vertex has its inverse M.
        """
        arrays = self.views[slot]
        kernel = gpu.schur_diagonal_kernel(self.signature, slot, other, self._arithmetic)
        buffers = self._buffers(arrays, version) | {"inverse": inverse, "values": values}
        for k, number in enumerate(self.group.vertex_sets):
            buffers[f"inverse_offset{k}"] = offsets[number]
        return self._in_pieces(kernel, slot, buffers, {}, (0, arrays.view.num_kept_tiles))
