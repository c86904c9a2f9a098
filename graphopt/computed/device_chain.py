"""The chain rule of computed values on a device.

    c = values of the terms,   L = dc/dx,   E = [1; L]: from vertices to vertices and values, type after type

    values     c at a version of the estimates
    forward    e_c = L e          one sum per value
    backward   y_x += L' y_c      one sum per vertex, over the views of the terms
    blocks     B_xx += sum over terms   L' B_cc L      diagonal blocks, for damping and block-Jacobi

Terms are edges with the residual value + term (`types.computed.chained_type`): off-diagonal blocks of their
J'J are L. So products, stored derivatives and sums over views are the edges' own kernels; a schedule of an
edge set ("matrix-free", "jacobians") is one of the terms, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.codegen.gpu import EdgeSignature
from graphopt.codegen.gpu.value_kernels import ADDED, VALUE_WORKGROUP, values_kernel
from graphopt.computed.device_grid import DeviceGrid
from graphopt.computed.structure import ValuesStructure
from graphopt.types.base import working_edge_type
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import BlockLayout, DiagonalLayout
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.parts import PackedRecords, Part, ProductPlan, Unit
from graphopt.vulkan.kernels.products import EdgeProducts
from graphopt.vulkan.kernels.sums import plan_writes, steps_of
from graphopt.vulkan.operators.interface import EdgeSchedule
from graphopt.vulkan.operators.jacobians import Jacobians
from graphopt.vulkan.operators.matrix_free import MatrixFree
from graphopt.vulkan.program import Context, Launch, Program

TERM_OPERATORS: dict[str, type[EdgeSchedule]] = {"jacobians": Jacobians, "matrix-free": MatrixFree}
"""What a set of terms may keep, by name."""
TERM_SCHEDULE = "jacobians"
"""Where nobody says."""


class DeviceTerms(DeviceEdges):
    """The terms of one set on a device; slot 0 is the value."""

    def sources(self, uses_diagonal: bool) -> dict[int, tuple[int, ...]]:
        """Values from what they follow from, and these from values."""
        inputs = tuple(slot for slot in self.views if slot)
        return {0: inputs, **dict.fromkeys(inputs, (0,))} if inputs and 0 in self.views else {}

    def values_launch(self, version: Mapping[int, Any], definition: Any) -> Launch:
        """The values of all destinations, into the version."""
        view = self.views[0]
        kernel = values_kernel(EdgeSignature(definition, "identity"), self._arithmetic)
        target = version[self.group.vertex_sets[0]]
        buffers = {**self.buffers(view, version), "values_out": target.wide.buffer}
        buffers["value_row"] = self._value_row
        if target.narrow is not None:
            buffers["float32_out"] = target.narrow.buffer
        num = view.view.num_destinations
        nbytes = self.bytes_of(view.view.num_edges)
        groups = -(-num // VALUE_WORKGROUP)
        return self._context.generated(kernel, buffers, {"num_destinations": num}, groups, nbytes)

    def find_rows(self, is_begun: np.ndarray) -> None:
        """Rows of the values of slot 0's view; is_begun: as of `DeviceGrid`."""
        blocks = self.structure.vertex_blocks[self.group.vertex_sets[0]]
        row_of = np.zeros(self.structure.num_blocks, np.int64)
        row_of[blocks[blocks >= 0]] = np.flatnonzero(blocks >= 0)
        rows = row_of[self.views[0].view.blocks]
        self._value_row = self._context.indices(rows + ADDED * is_begun[rows])
        is_begun[rows] = True


@dataclass(frozen=True)
class _Level:
    """Values of one type."""

    number: int
    """Of their vertex set."""
    terms: list[DeviceTerms]
    definitions: list[Any]
    """Their types, in working form."""
    grids: list[DeviceGrid]
    forward: ProductPlan
    backward: ProductPlan
    adds: bool
    """Its sums are added to zeros."""


class DeviceChain(EdgeProducts):
    """All values of a structure."""

    def __init__(
        self,
        context: Context,
        structure: ValuesStructure,
        linearizer: DeviceLinearizer,
        kept: Mapping[str, str],
    ):
        """linearizer: of the edges; estimates are shared. kept: schedules of terms by tag."""
        self._context, self._structure, self._linearizer = context, structure, linearizer
        self.layout: BlockLayout = DiagonalLayout(structure, structure.num_moved)
        """Of the diagonal blocks."""
        estimates = linearizer.estimates
        self._terms = [
            DeviceTerms(
                context, structure, group, self.layout, estimates, linearizer.parameters, linearizer.planes
            )
            for group in structure.terms
        ]
        begun = {number: np.zeros(len(structure.vertex_blocks[number]), bool) for number in structure.levels}
        for terms in self._terms:
            terms.prepare(None)
            if 0 in terms.views:
                terms.find_rows(begun[terms.group.vertex_sets[0]])
        self._edges: list[Any] = [terms for terms in self._terms if 0 in terms.views]
        for terms in self._edges:
            name = kept.get(terms.group.edge_set.type.tag, kept.get("", TERM_SCHEDULE))
            terms.follow(TERM_OPERATORS[name](context, terms, True), None)
        self._grids = [
            DeviceGrid(context, structure, convolution, self.layout.diagonal_offset, begun[convolution[2]])
            for convolution in structure.convolutions
        ]
        sets = self._record_sets()
        self._records = PackedRecords(context, structure, estimates, sets)
        self._arrays: dict[tuple[int, int], dict[str, DeviceArray]] = {}
        self._solving = {}
        self._blocks = None
        self.uses_diagonal = True
        self.packed_set, self.packing = None, None
        self._levels = [self._level(number) for number in structure.levels]
        num_values = structure.dim - structure.moved_dim
        self._zeros = DeviceArray.of(context, np.zeros(num_values), context.real)
        self._offsets = {number: context.indices(self._block_offsets(number)) for number in estimates.numbers}

    def _block_offsets(self, number: int) -> np.ndarray:
        blocks = self._structure.vertex_blocks[number]
        return np.where(blocks >= 0, np.append(self.layout.diagonal_offset, 0)[blocks], -1).astype(np.uint32)

    def _level(self, number: int) -> _Level:
        terms = [edge for edge in self._edges if edge.group.vertex_sets[0] == number]
        grids = [grid for grid in self._grids if grid.value == number]
        inputs = [(term, slot) for term in terms for slot in term.schedule.sources if slot]
        moving = [(term, 0) for term in terms if 0 in term.schedule.sources]
        forward = self._chain_plan("values", [self._chain_part(*part) for part in moving], number)
        backward = self._chain_plan("sources", [self._chain_part(*input_) for input_ in inputs], None)
        definitions = [working_edge_type(term.group.edge_set.type.made_by[1][0]) for term in terms]
        adds = len(moving) + len(grids) > 1 or (not grids and forward.writes.clears)
        if adds:
            forward = replace(forward, writes=replace(forward.writes, adds=[True] * len(moving)))
        return _Level(number, terms, definitions, grids, forward, backward, adds)

    def _chain_part(self, terms: DeviceTerms, slot: int) -> Part:
        view = terms.views[slot].view
        return Part(terms, slot, terms.schedule.sources[slot], (0, view.num_tiles), view.blocks)

    def _chain_plan(self, name: str, parts: list[Part], number: int | None) -> ProductPlan:
        """number: of the values that it writes; None: it adds."""
        units = [Unit((part,), None, part.tiles, part.blocks) for part in parts]
        blocks = np.empty(0, np.int64) if number is None else self._structure.vertex_blocks[number]
        rows, num_blocks = [part.blocks for part in parts], self._structure.num_blocks
        writes = plan_writes(rows, num_blocks, blocks[blocks >= 0])
        if number is None:
            writes = replace(writes, adds=[True] * len(parts), clears=False)
        return ProductPlan(name, units, writes, self._linearizer.estimates.offsets)

    # ---------------------------------------------------------------- recording

    def record_values(self, program: Program, number: int) -> None:
        """Values of a version of the estimates, into it; with last barrier."""
        version = self._linearizer.estimates.version(number)
        for level in self._levels:
            for terms, definition in zip(level.terms, level.definitions, strict=True):
                program.step([terms.values_launch(version, definition)])
            for grid in level.grids:
                program.step([grid.values_launch(version)])

    def record_derivatives(self, program: Program, number: int) -> None:
        """What is kept of the derivatives at a version, with last barrier."""
        version = self._linearizer.estimates.version(number)
        program.step([launch for edge in self._edges for launch in edge.schedule.store_launches(version)])

    def record_start(self, program: Program) -> None:
        """Pack the estimates that H is linearised at, where products compute derivatives anew."""
        program.step(self.estimate_launches())

    def record_forward(self, program: Program, e: Any, status: Any, ping_pong: int | None) -> None:
        """The values' rows of e from the vertices', with last barrier."""
        if any(level.adds for level in self._levels):
            self.record_clear(program, e)
        for level in self._levels:
            numbers = self._numbers(level.forward.parts)
            self._record_product(program, level.forward, numbers, e, status, ping_pong)
            for grid in level.grids:
                program.step([grid.forward_launch(e, status, ping_pong, adds=level.adds)])

    def record_backward(self, program: Program, y: Any, status: Any, ping_pong: int | None) -> None:
        """The vertices' rows of y += L' the values' rows, with last barrier."""
        for level in reversed(self._levels):
            self._record_product(program, level.backward, [level.number], y, status, ping_pong)
            for grid in level.grids:
                program.step([grid.backward_launch(y, status, ping_pong)])

    def record_clear(self, program: Program, y: Any) -> None:
        """Zeros in the values' rows."""
        nbytes = self._zeros.count * self._context.real.itemsize
        first = self._structure.moved_dim * self._context.real.itemsize
        program.copy(self._zeros.buffer, y, nbytes, 0, first).barrier()

    def record_blocks(self, program: Program, number: int, blocks: Any, status: Any) -> None:
        """Add to the diagonal blocks of what values follow from theirs, with last barrier."""
        version = self._linearizer.estimates.version(number)
        for level in reversed(self._levels):
            for terms in level.terms:
                for slot in terms.schedule.sources.get(0, ()):
                    diagonal_pass = terms.schur_diagonal_pass(
                        slot, 0, version, self._offsets, blocks, blocks, adds=True
                    )
                    for step in steps_of([diagonal_pass], [[0]]):
                        program.step(step)
            for grid in level.grids:
                program.step([grid.blocks_launch(blocks, status)])

    def _record_product(
        self,
        program: Program,
        plan: ProductPlan,
        numbers: list[int],
        y: Any,
        status: Any,
        ping_pong: int | None,
    ) -> None:
        if not plan.parts:
            return
        program.step(self._records.vector_launches(numbers, plan.offsets, y, status, ping_pong))
        first = self._first_launches(plan.parts, status, ping_pong)
        for step in filter(None, [first, *self._product_steps(plan, y, status, ping_pong)]):
            program.step(step)

    # ---------------------------------------------------------------- the graph

    @property
    def nbytes(self) -> int:
        """Device memory."""
        own = [*self._terms, *self._grids, self._zeros]
        return super().nbytes + sum(array.nbytes for array in own)

    @property
    def schedules(self) -> list[str]:
        """What is kept, per set of terms."""
        return [f"{edge.group.edge_set.type.tag}={edge.schedule.name}" for edge in self._edges]

    def refresh(self) -> bool:
        """Take data of terms that has changed; False: none."""
        return any([term.refresh() for term in self._terms])
