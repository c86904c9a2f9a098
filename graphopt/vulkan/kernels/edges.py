"""Arrays on the device: of the view of a slot, of the pair list of two.

The edges of one group on the device: their views, and the kernels that run over them.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.codegen import gpu, sampled_runs
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu import EDGE_BLOCK, EdgeSignature
from graphopt.codegen.gpu.edge_kernels import CHI2_WORKGROUP
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.value_kernels import residuals_kernel
from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge
from graphopt.symbolic import sampling
from graphopt.types.base import working_edge_type
from graphopt.types.cache import per_type_cache
from graphopt.vulkan.data.array import WIDE, WIDE_BYTES, DeviceArray, Width
from graphopt.vulkan.data.estimates import DeviceEstimates, DeviceParameters, RecordSet
from graphopt.vulkan.data.foreign import Rows, rows_of, take_column, without_owner
from graphopt.vulkan.data.images import DevicePlanes
from graphopt.vulkan.data.layout import BlockLayout, as_slice
from graphopt.vulkan.data.views import (
    MANY_EDGES,
    EdgeView,
    PairList,
    are_long_blocks,
    edge_view,
    loop_lists,
    pair_lists,
    primary_slot,
    write_data,
    write_places,
    write_rows,
)
from graphopt.vulkan.kernels.sums import LaunchGroup, LongArrays, LongBlocks
from graphopt.vulkan.program import Context, Launch, Program, built


class ViewArrays:
    """One view's arrays."""

    def __init__(
        self,
        context: Context,
        group: EdgeGroup,
        signature: EdgeSignature,
        view: EdgeView,
        layout: BlockLayout,
        whole: ViewArrays | None = None,
    ):
        """whole: the view whose numbers this one reads, if it has none of its own."""
        self._context, self._group, self.view, self._whole = context, group, view, whole
        self.signature = replace(signature, shares_data=whole is not None)
        """Of kernels over this view."""
        num = -(-view.num_edges // EDGE_BLOCK) * EDGE_BLOCK
        self._rows = DeviceArray(context, num * signature.num_rows, np.uint32)
        self._num_blocks = num // EDGE_BLOCK
        self._rows.fill(
            EDGE_BLOCK * signature.num_rows * 4,
            self._num_blocks,
            lambda first, out: write_rows(group, view, first, out),
        )
        self._num_data = signature.num_data
        self._data: DeviceArray | None = None
        self._narrow: DeviceArray | None = None
        self._narrowing = threading.Lock()
        arrays = {"first": view.first, "tiles": view.tiles}
        small = {name: DeviceArray.shared(context, array) for name, array in arrays.items()}
        self._set_layout(layout)
        self._arrays = {**small, "rows": self._rows}
        if whole is None:
            self._data = self._arrays["data"] = DeviceArray(context, num * self._num_data, WIDE)
            self.write_data()
        else:
            self._arrays["data_place"] = self._places_in(whole.view)

    def exact(self, layout: BlockLayout) -> ViewArrays:
        """The same arrays for kernels of the Hessian of chi2 / 2, whose blocks are in another layout."""
        own = copy.copy(self)
        own.signature = replace(self.signature, is_exact=True)
        own._set_layout(layout)
        return own

    def _set_layout(self, layout: BlockLayout) -> None:
        """Where the destinations' blocks are."""
        context, blocks = self._context, as_slice(self.view.blocks)
        self._places = {
            "dest_block": DeviceArray.places(context, layout.diagonal_offset[blocks]),
            "dest_scalar": DeviceArray.places(context, layout.scalar[blocks]),
        }
        self.long = _long_arrays(context, self.view, layout)

    @property
    def buffers(self) -> dict[str, Any]:
        """By the names of kernels: buffers, and what makes one when a kernel asks for it."""
        made: dict[str, Any] = {
            **{name: array.buffer for name, array in self._arrays.items()},
            **self._places,
        }
        if self._whole is None:
            return {**made, "data_float32": self._narrow_data}
        theirs = self._whole.buffers
        return {**made, **{f"shared_{name}": theirs[name] for name in ("data", "data_float32")}}

    @property
    def nbytes(self) -> int:
        """Device memory."""
        arrays = (*self._arrays.values(), *self._places.values(), self._narrow, self.long)
        return sum(array.nbytes for array in arrays if array is not None)

    def _places_in(self, whole: EdgeView) -> DeviceArray:
        """Where this view's edges are in another one."""
        array = DeviceArray(self._context, self._num_blocks * EDGE_BLOCK, np.uint32)
        places = whole.place_of_row
        array.fill(
            4 * EDGE_BLOCK, self._num_blocks, lambda first, out: write_places(places, self.view, first, out)
        )
        return array

    def _narrow_data(self) -> Any:
        """The numbers in float32, made when a kernel that reads them is first launched: most do not."""
        with self._narrowing:
            if self._narrow is None:
                narrow = DeviceArray(
                    self._context, self._num_blocks * EDGE_BLOCK * self._num_data, np.float32
                )
                self._write_data(narrow)
                self._narrow = narrow
        return self._narrow.buffer

    def write_data(self) -> None:
        """Measurements, information and kernel widths, from the graph."""
        for target in self._targets:
            self._write_data(target)

    @property
    def _targets(self) -> list[DeviceArray]:
        return [] if self._data is None or not self._num_data else [self._data, *filter(None, [self._narrow])]

    def take_data(self, rows: Mapping[str, Rows]) -> None:
        """As `write_data`, of columns that are on the device."""
        for target in self._targets:
            self._take_data(target, rows)

    def _take_data(self, target: DeviceArray, rows: Mapping[str, Rows]) -> None:
        context = Context(self._context.device, "mixed" if target.dtype == np.float32 else "double")
        num, first, launches = self._num_blocks * EDGE_BLOCK, 0, []
        for name, columns in self._group.data_taken.items():
            if name in rows:
                layout = first, EDGE_BLOCK, EDGE_BLOCK * self._num_data
                places = num, self.edge_rows.buffer
                launches.append(take_column(context, rows[name], columns, places, target.buffer, layout))
            first += len(columns)
        Program(self._context).barrier().step(launches).run()

    @cached_property
    def edge_rows(self) -> DeviceArray:
        """(num_blocks * EDGE_BLOCK,) uint32: row of the edge set that each place has."""
        rows = self.view.order if self._group.chosen_rows is None else self._group.rows[self.view.order]
        missing = self._num_blocks * EDGE_BLOCK - len(rows)
        return DeviceArray.of(self._context, np.append(rows, np.repeat(rows[-1:], missing)))

    def _write_data(self, target: DeviceArray) -> None:
        rows = rows_of(self._context.device, self._group.edge_set, self._group.data_taken)
        if rows is not None:
            self._take_data(target, rows)
            return
        width: Width = "float64" if self._context.device.has_float64 else "two_floats"
        width = "float32" if target.dtype == np.float32 else width
        target.fill(
            EDGE_BLOCK * self._num_data * (4 if width == "float32" else WIDE_BYTES),
            self._num_blocks,
            lambda first, out: write_data(self._group, self.view, first, width, out),
        )


def shares_data(signature: EdgeSignature, view: EdgeView) -> bool:
    """A view that is not the primary one reads measurements there, through an index: linearisations do.

    Not where products read them, too, nor where a merged kernel may sum over the view.
    """
    if signature.num_data == 0 or view.edges_of((0, view.num_tiles)) < MANY_EDGES * view.num_destinations:
        return False
    return not _products_read_data(signature, view.slot)


@per_type_cache
def _products_read_data(signature: EdgeSignature, slot: int) -> bool:
    """Products that evaluate edges again read their measurements."""
    product: Any = recomputed_product(signature, slot, tuple(range(signature.arity)), "double")
    return product.uses_data()


def _long_arrays(context: Context, view: EdgeView, layout: BlockLayout) -> LongArrays | None:
    if view.long is None:
        return None
    begin, end = (int(view.tiles[tile]) for tile in view.long.tiles)
    return LongArrays(context, view.long, view.blocks[begin:end], layout)


class PairArrays:
    """One pair list's arrays; blocks with many edges come last."""

    def __init__(self, context: Context, pairs: PairList, size: int):
        """size: scalars of a block."""
        self.pairs, self.num_short, edge = pairs, pairs.num_blocks, pairs.edge
        first, offset = pairs.first, pairs.offset
        is_long = are_long_blocks(first[1:] - first[:-1])
        if is_long.any():
            self.num_short = int(np.count_nonzero(~is_long))
            moved = np.argsort(is_long, kind="stable")
            (first, edge), offset = kernels.take_segments(first, moved, edge), offset[moved]
        arrays = {"pair_first": first, "pair_edge": edge, "pair_block": offset}
        stored = {name: DeviceArray.of(context, array) for name, array in arrays.items()}
        self.buffers: dict[str, Any] = {name: array.buffer for name, array in stored.items()}
        self.nbytes = sum(array.nbytes for array in stored.values())
        self.short_share = int(first[self.num_short]) / max(len(edge), 1)
        self.long: LongBlocks | None = None
        if is_long.any():
            self.long = LongBlocks(context, first[self.num_short :], offset[self.num_short :], size)
            self.nbytes += self.long.nbytes


Version = Mapping[int, RecordSet]
RUN_BYTES = 16
"""Of a run of neighbouring pixels, as memory moves them."""
BlocksOfPairs = tuple[np.ndarray, np.ndarray]
"""(m, num_pairs) int64 and bool, as `EdgeGroup.block_offset` and `block_transposed`."""


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
        self._context, self.structure, self._layout = context, structure, layout
        self._estimates, self._parameters, self._planes = estimates, parameters, planes
        edge_type = working_edge_type(group.edge_set.type)
        self.signature = gpu.EdgeSignature(edge_type, group.information, group.kernel)
        self._arithmetic: Arithmetic = context.arithmetic
        self.primary_slot = primary_slot(structure, group)
        view = edge_view(structure, group, self.primary_slot, is_primary=True, num_kept=layout.num_kept)
        self.primary = ViewArrays(context, group, self.signature, view, layout)
        self.views: dict[int, ViewArrays] = {self.primary_slot: self.primary}
        """By slot; slots without optimized vertices have none."""
        self.pairs: list[PairArrays] = []
        self.schedule: Any = None
        """`schedules.interface.EdgeSchedule`: how products come about; after `follow`."""
        self.evaluation: Any = None
        """`schedules.interface.Evaluation`: who evaluates the edges for H and b; after `follow`."""
        self._digests = group.data_fingerprints()
        self._last_buffers: tuple[ViewArrays, Version, Any, dict[str, Any]] | None = None
        """The view, records and images that were asked for last, and their buffers: many launches ask."""
        self._parameter_buffers: dict[str, Any] = {}
        for slot, number in enumerate(group.parameter_sets):
            records = parameters.records[number]
            self._parameter_buffers[f"parameter{slot}"] = records.wide.buffer
            if records.narrow is not None:
                self._parameter_buffers[f"float32_parameter{slot}"] = records.narrow.buffer

    def offer(self) -> None:
        """Hand columns of the edge set over to other libraries."""
        offer = self._estimates.foreign.offer
        offer(self.group.edge_set, residuals=without_owner(self._pack_residuals))

    def prepare(self, places: BlocksOfPairs | None, *, only_primary: bool = False) -> None:
        """Make the other views and, for stored blocks of H, the pair lists; places: of these blocks.

        only_primary: nothing of that, since nobody reads it.
        """
        group, layout = self.group, self._layout
        if only_primary:
            return
        for slot, number in enumerate(group.vertex_sets):
            if slot != self.primary_slot and self.structure.num_free[number]:
                view = edge_view(self.structure, group, slot, is_primary=False, num_kept=layout.num_kept)
                if view.num_edges:
                    whole = self.primary if shares_data(self.signature, view) else None
                    self.views[slot] = ViewArrays(self._context, group, self.signature, view, layout, whole)
        self._make_pairs(places)

    def _make_pairs(self, places: BlocksOfPairs | None) -> None:
        group, layout = self.group, self._layout
        lists = [] if places is None else pair_lists(group, self.primary.view, *places)
        lists += loop_lists(self.structure, group, self.primary.view, layout.diagonal_offset)
        dims = [vertex.tangent_dim for vertex in self.signature.edge_type.vertices]
        self.pairs = [
            PairArrays(self._context, list_, dims[list_.slots[0]] * dims[list_.slots[1]]) for list_ in lists
        ]

    def in_context(self, context: Context) -> DeviceEdges:
        """The same arrays, computed with in another precision."""
        own = copy.copy(self)
        own._context, own._arithmetic = context, context.arithmetic
        own.schedule = self.schedule.in_context(context, own)
        own.evaluation = self.evaluation.in_context(context, own)
        return own

    def exact(self, layout: BlockLayout, places: BlocksOfPairs | None) -> DeviceEdges:
        """The same arrays, with the Hessian of chi2 / 2 for H, whose blocks are in another layout."""
        own = copy.copy(self)
        own.signature = replace(self.signature, is_exact=True)
        own._layout, own._last_buffers = layout, None
        own.views = {slot: view.exact(layout) for slot, view in self.views.items()}
        own.primary = own.views.get(self.primary_slot) or self.primary.exact(layout)
        own._make_pairs(places)
        return own

    def sources(self, uses_diagonal: bool) -> dict[int, tuple[int, ...]]:
        """By slot, those whose x its products read; uses_diagonal: without a vertex's part of its own row."""
        own = {s: tuple(t for t in self.views if t != s or not uses_diagonal) for s in self.views}
        return {slot: sources for slot, sources in own.items() if sources}

    def follow(self, schedule: Any, evaluation: Any) -> None:
        """Take a schedule and an evaluation, made for these edges."""
        self.schedule, self.evaluation = schedule, evaluation

    @property
    def nbytes(self) -> int:
        """Device memory."""
        arrays = [*self.views.values(), *self.pairs, *filter(None, (self.schedule, self.evaluation))]
        return sum(array.nbytes for array in arrays)

    @property
    def names_a_vertex_twice(self) -> bool:
        """Some edge has one vertex in two slots."""
        return any(pair.pairs.on_diagonal for pair in self.pairs)

    def refresh(self) -> bool:
        """Take measurements, information and kernel widths where they have changed; False: nowhere."""
        digests = self.group.data_fingerprints()
        changed = [name for name, digest in digests.items() if digest != self._digests.get(name)]
        if not changed:
            return False
        self._digests = {}  # of nothing, should the rest fail
        rows = rows_of(self._context.device, self.group.edge_set, changed)
        for view in self.views.values():
            if rows is not None:
                view.take_data(rows)
            else:
                view.write_data()
        self._digests = digests
        return True

    def _pack_residuals(self, digest: bytes, memory: Any) -> Any:
        """See `foreign.Pack`: where all edges of the set are here, and all is as in the graph."""
        group, current = self.group, self._estimates.current
        is_here = (
            len(group.rows) == len(group.edge_set)
            and self._digests == group.data_fingerprints()
            and self._estimates.are_graphs(group.vertex_sets)
            and self._parameters.are_graphs(group.parameter_sets)
        )
        if not is_here:
            return None
        context = Context(self._context.device, "double")
        kernel = residuals_kernel(self.signature)
        num = self.primary.view.num_edges
        buffers = self._named_buffers(self.primary, self._estimates.version(current))
        buffers |= {"edge_row": self.primary.edge_rows.buffer, "residuals": memory.buffer}
        launch = context.generated(kernel, buffers, {"num_edges": num}, -(-num // kernel.workgroup_size))
        recorder = context.device.record("residuals for CUDA").barrier()
        recorder.dispatch(built(launch.kernel), launch.buffers, launch.params, launch.groups)
        return recorder.barrier().finish()

    # ---------------------------------------------------------------- launches

    def buffers(self, view: ViewArrays, version: Version) -> dict[str, Any]:
        """What kernels over a view's edges read, by their names."""
        last = self._last_buffers
        if last is not None and last[0] is view and last[1] is version and last[2] == self._planes.buffers:
            return dict(last[3])
        named = self._named_buffers(view, version)
        self._last_buffers = view, version, self._planes.buffers, named
        return dict(named)

    def _named_buffers(self, view: ViewArrays, version: Version) -> dict[str, Any]:
        named = self._shared_buffers(view)
        for slot, number in enumerate(self.group.vertex_sets):
            named[f"estimate{slot}"] = version[number].wide.buffer
            narrow = version[number].narrow
            if narrow is not None:
                named[f"float32_estimate{slot}"] = narrow.buffer
        return named

    def _shared_buffers(self, view: ViewArrays) -> dict[str, Any]:
        """What does not depend on the estimates."""
        planes = dict(zip(("planes", "pixels"), self._planes.buffers, strict=True))
        return {**self._parameter_buffers, **planes, **view.buffers}

    def bytes_of(self, num_edges: float) -> float:
        """Bytes that a kernel moves for so many edges, records and pixels counted once per edge."""
        return num_edges * self._edge_bytes

    @cached_property
    def _edge_bytes(self) -> int:
        own = self.signature
        records = sum(vertex.storage_dim for vertex in own.edge_type.vertices)
        return 4 * own.num_rows + WIDE_BYTES * (own.num_data + records) + self._pixel_bytes

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
        buffers = self.buffers(view, version) | {"partial": partial}
        num = view.view.num_edges
        params = {"num_edges": num, "first_partial": first_partial}
        groups = -(-num // kernel.workgroup_size)
        return self._context.generated(kernel, buffers, params, groups, self.bytes_of(num))

    def chi2_by_vertex_launches(self, slot: int, version: Version, sums: Any) -> list[Launch]:
        """chi2 of each destination of a slot, an accumulator each."""
        arrays = self.views[slot]
        kernel = gpu.chi2_by_vertex_kernel(arrays.signature, slot, self._arithmetic)
        num_tiles = arrays.view.num_tiles
        pieces = self._pieces(slot, (0, num_tiles), arrays.view.num_edges, reads_stored=False)
        return self._in_pieces(kernel, self.buffers(arrays, version) | {"sums": sums}, {}, pieces)

    @property
    def num_chi2_partials(self) -> int:
        """Parts that `chi2_launch` leaves."""
        return -(-self.primary.view.num_edges // CHI2_WORKGROUP)

    def _linearize_kernel(self, slot: int, parts: bool = False) -> gpu.GpuKernel:
        return self.evaluation.linearize_kernel(slot, parts)

    def pair_kernel(self, arrays: PairArrays) -> gpu.GpuKernel:
        """What `pair_pass` runs."""
        return self.evaluation.pair_kernel(arrays.pairs.slots)

    def _sum_buffers(self, view: ViewArrays, version: Version) -> dict[str, Any]:
        """What the kernels of H and b read of a view's edges."""
        return self.buffers(view, version) | self.evaluation.buffers(view.view.slot)

    def view_bytes(self, slot: int, *, reads_stored: bool = False) -> float:
        """Bytes that a pass over a slot's view moves."""
        nbytes = self.bytes_of(self.views[slot].view.num_edges)
        return nbytes + (self.schedule.bytes_of(slot) if reads_stored else 0)

    def pieces(
        self, slot: int, tiles: tuple[int, int], *, reads_stored: bool = False
    ) -> list[tuple[int, int, float]]:
        """(begin, end, bytes) of runs of tiles, as many as the budget of a submission asks for.

        Tiles of long destinations are left out: see `long_pieces`.
        """
        view = self.views[slot].view
        return [
            piece
            for run in view.short_tiles(tiles)
            for piece in self._pieces(slot, run, view.edges_of(run), reads_stored)
        ]

    def long_pieces(
        self, slot: int, long: tuple[int, int], *, reads_stored: bool = False
    ) -> list[tuple[int, int, float]]:
        """(begin, end, bytes) of runs of parts of a range of long destinations, likewise."""
        cut = self.views[slot].view.long
        if cut is None or long[0] == long[1]:
            return []
        parts = int(cut.part[long[0]]), int(cut.part[long[1]])
        num_edges = int(cut.first[parts[1]]) - int(cut.first[parts[0]])
        return self._pieces(slot, parts, num_edges, reads_stored)

    def _pieces(
        self, slot: int, run: tuple[int, int], num_edges: int, reads_stored: bool
    ) -> list[tuple[int, int, float]]:
        nbytes = self.bytes_of(num_edges)
        if reads_stored:
            nbytes += num_edges / max(self.views[slot].view.num_edges, 1) * self.schedule.bytes_of(slot)
        return self._context.cut(run, nbytes)

    def _in_pieces(
        self,
        kernel: gpu.GpuKernel,
        buffers: dict[str, Any],
        params: dict[str, int],
        pieces: list[tuple[int, int, float]],
    ) -> list[Launch]:
        """Launches over runs of tiles, or of parts."""
        launches = []
        for begin, end, nbytes in pieces:
            own = {**params, "first_tile": begin, "num_tiles": end}
            launches.append(self._context.generated(kernel, buffers, own, end - begin, nbytes))
        return launches

    def linearize_pass(
        self, slot: int, version: Version, values: Any, b: Any, *, accumulate: bool
    ) -> LaunchGroup:
        """Diagonal blocks and b of the destinations of a slot."""
        arrays = self.views[slot]
        view, long = arrays.view, arrays.long
        buffers = self._sum_buffers(arrays, version) | {"values": values, "b": b}
        direct, parts, folds = [], [], []
        if pieces := self.pieces(slot, (0, view.num_tiles)):
            kernel = self._linearize_kernel(slot)
            direct = self._in_pieces(kernel, buffers, {"accumulate": int(accumulate)}, pieces)
        if long is not None:
            kernel = self._linearize_kernel(slot, parts=True)
            pieces = self.long_pieces(slot, (0, long.num_sums))
            parts = self._in_pieces(kernel, buffers | long.buffers, {}, pieces)
            folds = long.fold_linearized(self._context, values, b, accumulate=accumulate)
        return LaunchGroup(direct, parts, folds)

    def pair_pass(
        self, arrays: PairArrays, version: Version, values: Any, *, accumulate: bool
    ) -> LaunchGroup:
        """The blocks of a pair list."""
        kernel = self.pair_kernel(arrays)
        buffers = self._sum_buffers(self.primary, version) | arrays.buffers | {"values": values}
        nbytes = self.bytes_of(len(arrays.pairs.edge))
        direct, parts, folds = [], [], []
        if arrays.num_short:
            params = {"num_blocks": arrays.num_short, "accumulate": int(accumulate)}
            groups = -(-arrays.num_short // kernel.workgroup_size)
            own = nbytes * arrays.short_share
            direct = [self._context.generated(kernel, buffers, params, groups, own)]
        long = arrays.long
        if long is not None:
            params = {"num_blocks": long.num_parts, "accumulate": 0}
            groups = -(-long.num_parts // kernel.workgroup_size)
            own = nbytes * (1 - arrays.short_share)
            parts = [self._context.generated(kernel, buffers | long.buffers, params, groups, own)]
            folds = [long.fold(self._context, values, accumulate=accumulate)]
        return LaunchGroup(direct, parts, folds)

    def product_buffers(self, slot: int) -> dict[str, Any]:
        """What products over a slot's view read of its edges."""
        return self._shared_buffers(self.views[slot])

    def schur_diagonal_pass(
        self,
        slot: int,
        other: int,
        version: Version,
        offsets: Mapping[int, Any],
        inverse: Any,
        values: Any,
        *,
        adds: bool = False,
    ) -> LaunchGroup:
        """Subtract W M W' of the slots' vertices from the diagonal blocks of kept destinations.

        offsets: by vertex set, buffers of where each eliminated vertex has its inverse M. adds: to the blocks
        of all destinations, from M with both triangles.
        """
        arrays = self.views[slot]
        tiles = 0, arrays.view.num_tiles if adds else arrays.view.num_kept_tiles
        buffers = self.buffers(arrays, version) | {"inverse": inverse, "values": values}
        for k, number in enumerate(self.group.vertex_sets):
            buffers[f"inverse_offset{k}"] = offsets[number]
        direct, parts, folds = [], [], []
        if pieces := self.pieces(slot, tiles):
            kernel = gpu.schur_diagonal_kernel(arrays.signature, slot, other, self._arithmetic, whole=adds)
            direct = self._in_pieces(kernel, buffers, {"adds": int(adds)}, pieces)
        kept = arrays.view.long_destinations(tiles)
        if arrays.long is not None and kept[0] < kept[1]:
            kernel = gpu.schur_diagonal_kernel(
                arrays.signature, slot, other, self._arithmetic, parts=True, whole=adds
            )
            parts = self._in_pieces(kernel, buffers | arrays.long.buffers, {}, self.long_pieces(slot, kept))
            folds = [arrays.long.fold_schur_diagonal(self._context, values, kept, adds=adds)]
        return LaunchGroup(direct, parts, folds)
