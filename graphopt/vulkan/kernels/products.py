"""Products with H and its parts from the edges, as launches, beside those from stored blocks.

    y_a = sum over edges of J_a' w Omega sum over t of J_t x_t

One launch per group and slot a: destinations are the vertices of the slot, sources t the other slots. What a
vertex contributes to its own row is in H's diagonal block, which is stored; where an edge names one vertex
twice, the diagonal block has its cross terms too, so then all slots are sources and the block is not used.

    eliminated   y_l = H_lp x_p         destinations that Schur eliminates, sources that stay
    kept         y_p = (H_pp without diagonal) x_p + H_pl x_l
    whole        both, with all sources

Jacobians are computed anew; groups of schedule "jacobians" read what they have stored
(`stored_numbers`), those of schedule "jp" J x (`moved_vectors`). Parts with the same vertices as
destinations may be summed by one launch (`merging`); launches that write the same rows run one after the
other and add, as in `linearization`; groups of schedule "blocks" have no part in them,
their blocks come first (`stored_blocks`). Estimates and x are read from packed records. Where one launch
makes all of y_l, it can go on to x_l = -H_ll^-1 y_l (`record_solve`), and where one launch makes all of y_p
with a workgroup per vertex, to d and q of the conjugate gradients (`can_end`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.codegen.gpu import GpuKernel
from graphopt.codegen.gpu.merged_kernels import merged_product_kernel
from graphopt.codegen.gpu.product_shapes import STOPPABLE, EdgeProduct, rows_kernel, tiles_kernel
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.blocks import BlockInverse, StoredBlocks
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.parts import (
    PackedRecords,
    Part,
    ProductPlan,
    Unit,
    solve_arrays,
    tiles_of,
    units_of,
)
from graphopt.vulkan.kernels.sums import LaunchGroup, plan_writes, steps_of
from graphopt.vulkan.program import NOTHING, Context, Launch, Places, Program


class EdgeProducts:
    """Launches of the products; x and y are vectors like dx."""

    def __init__(self, context: Context, linearizer: DeviceLinearizer, structure: Structure, num_kept: int):
        """num_kept: blocks that Schur does not eliminate."""
        self._context = context
        self._linearizer = linearizer
        self._edges = [edges for edges in linearizer.edges if not edges.schedule.stores_blocks]
        stores = len(self._edges) < len(linearizer.edges)
        self._blocks = StoredBlocks(context, linearizer.storage.layout) if stores else None
        self._records = PackedRecords(context, structure, linearizer.estimates, self._record_sets())
        self._arrays: dict[tuple[int, int], dict[str, DeviceArray]] = {}
        self._solving: dict[tuple[tuple[int, int], ...], dict[str, Places]] = {}
        self._structure = structure
        self._num_kept = num_kept
        self.uses_diagonal = linearizer.uses_diagonal
        """The products leave out what H's diagonal blocks hold."""
        estimates = linearizer.estimates
        num_blocks = structure.num_blocks
        self._eliminated = self._plan("eliminated", estimates.kept_offsets, num_kept, num_blocks)
        self._kept = self._plan("kept", estimates.offsets, 0, num_kept)
        self._whole = self._plan("whole", estimates.offsets, 0, num_blocks)
        self.packed_set, self.packing = self._find_packing(linearizer.storage.layout.kept_dim)

    def _find_packing(self, kept_dim: int) -> tuple[int | None, tuple[Any, Any] | None]:
        """The one vertex set that stays, and places and buffer for `Pcg` to pack its part of d itself."""
        offsets, has_kept = self._structure.vertex_offsets, self._linearizer.estimates.has_kept
        numbers = self._numbers([*self._eliminated.parts, *self._kept.parts])
        staying = [number for number in numbers if has_kept[number]]
        if len(staying) != 1:
            return None, None
        places = self._records.places(staying[0], offsets[staying[0]], kept_dim)
        if (places == NOTHING).any():  # rows that no product reads
            return None, None
        return staying[0], (self._context.indices(places), self._records.buffer(staying[0]))

    def _plan(self, part: str, offsets: Mapping[int, DeviceArray], first: int, last: int) -> ProductPlan:
        parts = [
            found_part
            for edges in self._edges
            for slot in edges.views
            if (found_part := self._part(edges, slot, part)) is not None
        ]
        units = units_of(parts, part, self._linearizer.merging)
        rows = [unit.blocks for unit in units]
        writes = plan_writes(rows, self._structure.num_blocks, slice(first, last))
        if self._blocks is not None:  # all add to what stored blocks have left
            writes = replace(writes, adds=[True] * len(units), clears=True)
        return ProductPlan(part, units, writes, offsets)

    def _record_sets(self) -> dict[int, bool]:
        """Vertex sets of the edges, and whether products of some of them read estimates."""
        found: dict[int, bool] = {}
        for edges in self._edges:
            for slot, number in enumerate(edges.group.vertex_sets):
                found[number] = found.get(number, False) or edges.schedule.reads_estimate(slot)
        return found

    def _part(self, edges: DeviceEdges, slot: int, part: str) -> Part | None:
        view = edges.views[slot].view
        boundary = view.num_kept_tiles
        tiles = tiles_of(part, boundary, view.num_tiles)
        sources = tuple(
            t
            for t in edges.views
            if (t != slot or not self.uses_diagonal) and (part != "eliminated" or self._has_kept(edges, t))
        )
        if tiles[0] == tiles[1] or not sources:
            return None
        destinations = slice(int(view.tiles[tiles[0]]), int(view.tiles[tiles[1]]))
        return Part(edges, slot, sources, tiles, view.blocks[destinations])

    def _has_kept(self, edges: DeviceEdges, slot: int) -> bool:
        return edges.views[slot].view.num_kept_tiles > 0

    # ---------------------------------------------------------------- launches

    @property
    def nbytes(self) -> int:
        """Device memory of what only products need."""
        named = [*self._arrays.values(), *self._solving.values()]
        arrays = [array for arrays_of in named for array in arrays_of.values()]
        return self._records.nbytes + sum(array.nbytes for array in arrays)

    def estimate_launches(self) -> list[Launch]:
        """Before the first product at the estimates that H is linearised at."""
        estimates = self._linearizer.estimates
        return self._records.estimate_launches(estimates.version(estimates.held))

    def record(
        self,
        program: Program,
        part: str,
        x: Any,
        y: Any,
        own: Equations,
        ping_pong: int | None,
        end: Mapping[str, Any] | None = None,
    ) -> None:
        """y = a part of H x, with last barrier: "eliminated", "kept" or "whole".

        ping_pong: of the conjugate gradient iteration it belongs to, None: of none. end: of the kept part,
        what makes d and q instead of y, see `can_end`.
        """
        plan = self._plan_of(part)
        numbers = self._to_pack(plan.parts, ping_pong)
        self._record_start(program, plan, x, y, own, ping_pong)
        pack = self._records.vector_launches(numbers, plan.offsets, x, own.status, ping_pong)
        first = self._first_launches(plan.parts, own.status, ping_pong)
        for step in filter(None, [pack, first, *self._product_steps(plan, y, own.status, ping_pong, end)]):
            program.step(step)

    def _first_launches(self, parts: list[Part], status: Any, ping_pong: int | None) -> list[Launch]:
        """What schedules launch before the sums."""
        return [
            launch
            for edges in self._edges
            for launch in edges.schedule.first_launches(
                [part.sources for part in parts if part.edges is edges], self._records, status, ping_pong
            )
        ]

    def _record_start(
        self, program: Program, plan: ProductPlan, x: Any, y: Any, own: Equations, ping_pong: int | None
    ) -> None:
        """The part of stored blocks; zeros where there are none and all launches add."""
        steps = []
        if self._blocks is not None:
            steps = self._blocks.steps(plan.name, own.values, x, y, own.status, ping_pong)
        if plan.writes.clears and not steps:
            program.fill(y).barrier()
        for step in steps:
            program.step(step)

    @cached_property
    def can_solve(self) -> bool:
        """`record_solve` is possible: each y_l comes from one workgroup."""
        plan = self._eliminated
        if self._blocks is not None and self._blocks.couples:
            return False
        if any(part.long[0] < part.long[1] for part in plan.parts):
            return False
        once = len(plan.writes.steps) == 1
        return self.uses_diagonal and once and bool(plan.writes.touched[self._num_kept :].all())

    @cached_property
    def keeps_direction(self) -> bool:
        """Conjugate gradients leave the eliminated part of d to packed records, and y_l fills its rows alone.

        Then no vector but dx needs rows of eliminated vertices, and y_l may stand where x_l will.
        """
        has_eliminated = self._num_kept < self._structure.num_blocks
        return has_eliminated and self.can_solve and not self._eliminated.writes.clears

    @cached_property
    def can_end(self) -> bool:
        """The kernel of the kept part can end an iteration's product: each y_p comes from one workgroup."""
        plan = self._kept
        if self._blocks is not None or not self.uses_diagonal or len(plan.units) != 1 or plan.writes.clears:
            return False
        unit = plan.units[0]
        if unit.views is not None or not unit.parts[0].has_many_edges:
            return False
        (part,) = unit.parts
        return part.long[0] == part.long[1] and bool(plan.writes.touched[: self._num_kept].all())

    def record_solve(
        self,
        program: Program,
        inverse: BlockInverse,
        x: Any,
        y: Any,
        own: Equations,
        ping_pong: int | None,
        end: Mapping[str, Any] | None = None,
    ) -> None:
        """y_p = H_pp x_p - H_pl H_ll^-1 H_lp x_p without diagonal blocks of H_pp; inverse: of H_ll.

        end: as `record` has it.
        """
        eliminated, kept = self._eliminated, self._kept
        estimates = self._linearizer.estimates
        numbers = self._to_pack([*eliminated.parts, *kept.parts], ping_pong)
        numbers = [
            number for number in numbers if estimates.has_kept[number]
        ]  # x of the others is being solved for
        self._record_start(program, kept, x, y, own, ping_pong)
        offsets = estimates.kept_offsets
        pack = self._records.vector_launches(numbers, offsets, x, own.status, ping_pong)
        solve = [
            launch
            for unit in eliminated.units
            for launch in self._solve_launches(unit, inverse, own, ping_pong)
        ]
        before, after = (self._first_launches(x.parts, own.status, ping_pong) for x in (eliminated, kept))
        products = self._product_steps(kept, y, own.status, ping_pong, end)
        for step in filter(None, [pack, before, solve, after, *products]):
            program.step(step)

    def pack_launches(self, x: Any) -> list[Launch]:
        """What `Pcg` goes on to pack: x, and 0 where a vertex is not optimized."""
        numbers = [] if self.packed_set is None else [self.packed_set]
        offsets = self._linearizer.estimates.kept_offsets if self.keeps_direction else self._whole.offsets
        return self._records.vector_launches(numbers, offsets, x, x, None)

    def _to_pack(self, parts: list[Part], ping_pong: int | None) -> list[int]:
        """Vertex sets that parts read x of, without what `Pcg` has packed."""
        numbers = self._numbers(parts)
        return numbers if ping_pong is None else [number for number in numbers if number != self.packed_set]

    def _numbers(self, parts: list[Part]) -> list[int]:
        """Vertex sets that parts read x of."""
        return sorted({part.edges.group.vertex_sets[t] for part in parts for t in part.sources})

    def _product_steps(
        self,
        plan: ProductPlan,
        y: Any,
        status: Any,
        ping_pong: int | None,
        end: Mapping[str, Any] | None = None,
    ) -> list[list[Launch]]:
        if end is not None:
            (unit,) = plan.units
            return [self._ending_launches(unit.parts[0], {**end, "status": status}, ping_pong)]
        passes = [
            self._product_pass(unit, y, status, ping_pong, adds)
            for unit, adds in zip(plan.units, plan.writes.adds, strict=True)
        ]
        return list(steps_of(passes, plan.writes.steps))

    def _product_pass(
        self, unit: Unit, y: Any, status: Any, ping_pong: int | None, adds: bool
    ) -> LaunchGroup:
        more, params = {"y": y, "status": status}, {"accumulate": int(adds)}
        if unit.views is not None:
            return LaunchGroup(self._merged_launches(unit, more, params, ping_pong))
        (part,) = unit.parts
        edges, slot = part.edges, part.slot
        direct, parts, folds = [], [], []
        if pieces := edges.pieces(slot, part.tiles, reads_stored=True):
            kernel = self._kernel(part, "rows" if part.has_many_edges else "tiles")
            direct = self._launches(part, kernel, more, params, ping_pong, pieces)
        long = edges.views[slot].long
        if long is not None and part.long[0] < part.long[1]:
            kernel, more = self._kernel(part, "rows"), {**long.buffers, "status": status}
            pieces = edges.long_pieces(slot, part.long, reads_stored=True)
            parts = self._launches(part, kernel, more, {"accumulate": 0}, ping_pong, pieces, are_parts=True)
            fold = long.fold_product(self._context, y, part.long, (status, ping_pong), adds)
            folds = [fold]
        return LaunchGroup(direct, parts, folds)

    def _ending_launches(self, part: Part, more: Mapping[str, Any], ping_pong: int | None) -> list[Launch]:
        pieces = part.edges.pieces(part.slot, part.tiles, reads_stored=True)
        return self._launches(part, self._kernel(part, "ends"), more, {}, ping_pong, pieces)

    def _solve_launches(
        self, unit: Unit, inverse: BlockInverse, own: Equations, ping_pong: int | None
    ) -> list[Launch]:
        more = {"inverse": inverse.buffer, "status": own.status, **self._solve_arrays(unit, inverse)}
        if unit.views is not None:
            return self._merged_launches(unit, more, {}, ping_pong, solve=True)
        (part,) = unit.parts
        pieces = part.edges.pieces(part.slot, part.tiles, reads_stored=True)
        return self._launches(part, self._kernel(part, "solve"), more, {}, ping_pong, pieces)

    def _solve_arrays(self, unit: Unit, inverse: BlockInverse) -> dict[str, Any]:
        if unit.key not in self._solving:
            arrays = solve_arrays(self._structure, self._num_kept, unit, inverse.offset)
            self._solving[unit.key] = {
                name: DeviceArray.places(self._context, array) for name, array in arrays.items()
            }
        return self._solving[unit.key]

    def _merged_launches(
        self,
        unit: Unit,
        more: Mapping[str, Any],
        params: Mapping[str, int],
        ping_pong: int | None,
        solve: bool = False,
    ) -> list[Launch]:
        """Launches over the tiles of several parts."""
        assert unit.views is not None
        kernel = merged_product_kernel(tuple(self._product(part) for part in unit.parts), solve)
        named = [self._part_buffers(part) for part in unit.parts]
        nbytes = sum(part.edges.view_bytes(part.slot, reads_stored=True) for part in unit.parts)
        return unit.views.launches(
            self._context,
            kernel,
            {**unit.views.buffers(named), **more},
            {**params, "ping_pong": ping_pong or 0},
            unit.tiles,
            nbytes,
            {STOPPABLE: int(ping_pong is not None)},
        )

    def _product(self, part: Part) -> EdgeProduct:
        holds = tuple(map(self._records.holds_estimate, part.edges.group.vertex_sets))
        return part.edges.schedule.product(part.slot, part.sources, holds)

    def _part_buffers(self, part: Part) -> dict[str, Any]:
        """What a product of a part reads."""
        sets = enumerate(part.edges.group.vertex_sets)
        packed = {f"packed{slot}": self._records.buffer(number) for slot, number in sets}
        own = part.edges.schedule.buffers(part.slot, part.sources)
        return {**part.edges.product_buffers(part.slot), **packed, **own}

    def _kernel(self, part: Part, shape: str) -> GpuKernel:
        """A product in shape "tiles", "rows", "solve" or "ends"."""
        product = self._product(part)
        if shape in ("rows", "ends"):
            return rows_kernel(product, shape == "ends")
        return tiles_kernel(product, shape == "solve")

    def _launches(
        self,
        part: Part,
        kernel: Any,
        more: Mapping[str, Any],
        params: Mapping[str, int],
        ping_pong: int | None,
        pieces: list[tuple[int, int, float]],
        are_parts: bool = False,
    ) -> list[Launch]:
        """Launches of a kernel over runs of tiles, over their destinations, or over parts of these."""
        edges = part.edges
        own = {name: array.buffer for name, array in self._own_arrays(part).items()}
        buffers = {**self._part_buffers(part), **own, **more}
        constants = {STOPPABLE: int(ping_pong is not None)}
        by_rows = "num_destinations" in kernel.params
        view = edges.views[part.slot].view
        launches = []
        for begin, end, nbytes in pieces:
            rows = (begin, end) if are_parts else (int(view.tiles[begin]), int(view.tiles[end]))
            values = {**params, "ping_pong": ping_pong or 0, "first_tile": begin, "num_tiles": end}
            values |= {"first_destination": rows[0], "num_destinations": rows[1]}
            groups = rows[1] - rows[0] if by_rows else end - begin
            launches.append(self._context.generated(kernel, buffers, values, groups, nbytes, constants))
        return launches

    def _own_arrays(self, part: Part) -> dict[str, DeviceArray]:
        """Arrays of a view that only products need."""
        key = (id(part.edges), part.slot)
        if key not in self._arrays:
            view = part.edges.views[part.slot].view
            begin, end = view.tiles[:-1], view.tiles[1:]
            ranges = np.stack([begin, end - begin, view.first[begin], view.first[end]], axis=1)
            self._arrays[key] = {"tile_ranges": DeviceArray.of(self._context, ranges)}
        return self._arrays[key]

    def schur_diagonal_steps(
        self, inverse: Any, offsets: Mapping[int, Any], values: Any
    ) -> list[list[Launch]]:
        """Subtract H_pl H_ll^-1 H_lp from kept diagonal blocks in `values`, one launch after the other.

        offsets: by vertex set, buffers of where each eliminated vertex has its block in `inverse`.
        """
        estimates = self._linearizer.estimates
        records = estimates.version(estimates.held)
        return [
            step
            for edges in self._linearizer.edges
            for slot in edges.views
            if self._has_kept(edges, slot)
            for other in edges.views
            if other != slot and self._has_eliminated(edges, other)
            for step in steps_of(
                [edges.schur_diagonal_pass(slot, other, records, offsets, inverse, values)], [[0]]
            )
        ]

    def _has_eliminated(self, edges: DeviceEdges, slot: int) -> bool:
        view = edges.views[slot].view
        return view.num_kept_tiles < view.num_tiles

    def _plan_of(self, part: str) -> ProductPlan:
        return {"eliminated": self._eliminated, "kept": self._kept, "whole": self._whole}[part]
