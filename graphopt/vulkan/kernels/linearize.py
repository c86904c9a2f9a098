"""H, b, chi2 and oplus by kernels: what `cpu.CpuBlockSolver` asks of the native Linearizer, on the device.

    chi2        one pass over the primary view of each group; parts are added up in a fixed order
    linearize   per group and slot the diagonal blocks and b of the slot's vertices, then what else is stored
                of the group: off-diagonal blocks by the pair lists, or Jacobians
    oplus       per vertex set, from one version of the estimates into another

Views with the same vertices as destinations may be summed by one launch (`merging`). Launches that write the
same block of H run one after the other, the first one assigns and the others add (`write_plan`).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.codegen import gpu
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.array import WIDE, WIDE_BYTES, DeviceArray, unpack_wide
from graphopt.vulkan.data.estimates import DeviceEstimates, DeviceParameters
from graphopt.vulkan.data.images import DevicePlanes, captured_handles, parameter_handles
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.merging import Merging
from graphopt.vulkan.kernels.sums import plan_writes, steps_of
from graphopt.vulkan.kernels.writers import Chi2Launches, Writer, plan_writers, writers_of
from graphopt.vulkan.operators.interface import Operators
from graphopt.vulkan.plan.storage import Storage
from graphopt.vulkan.program import Context, Launch, Program

SUM_GROUPS = 256
"""Workgroups that add up the parts of chi2, before one adds up theirs."""
PARTS_PER_SUM = 1024
"""Parts of chi2 that one workgroup adds up, where that makes no more workgroups."""


@dataclass(frozen=True)
class Sized:
    """What a launch asks of a buffer while its kernel is chosen."""

    size: int


class DeviceLinearizer:
    """Kernels over all edges of a structure."""

    is_exact = False
    """H is the Hessian of chi2 / 2."""

    def __init__(
        self,
        context: Context,
        structure: Structure,
        storage: Storage,
        operators: Operators,
        merged: frozenset[int] = frozenset(),
    ):
        """structure: with rows of vertices as the records have them. operators: those of `storage`.

        merged: vertex sets, by number, whose sums come from one launch.
        """
        self._context, self.structure, self.storage = context, structure, storage
        self._operators = operators
        layout = storage.layout
        self.estimates = DeviceEstimates(context, structure)
        self.parameters = DeviceParameters(context, structure)
        self._captured = captured_handles(structure)
        self.planes = DevicePlanes(context, self._captured | parameter_handles(structure))
        """Images that edges sample."""
        self._has_moved = False  # the planes are in other buffers than launches say
        self._generation = 0
        self.edges = [
            DeviceEdges(context, structure, group, layout, self.estimates, self.parameters, self.planes)
            for group in structure.groups
        ]
        self._offer_edges()
        counts = [edge.num_chi2_partials for edge in self.edges]
        self._first_partials = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        self._partial = context.device.allocate(WIDE_BYTES * max(self._first_partials[-1], 1))
        self._sums = context.device.allocate(WIDE_BYTES * SUM_GROUPS)
        self._total = DeviceArray(context, 1, WIDE, is_mapped=False)
        self._chi2_launches = Chi2Launches(context, self.edges, self._first_partials)
        self.merging = Merging(context, structure, layout, merged)
        """Which views are summed together."""
        self.writers: list[Writer] = []
        self._plan = plan_writes([], 0)

    def _offer_edges(self) -> None:
        """Hand columns of the edge sets over to other libraries."""
        for group in self.structure.external:
            self.estimates.foreign.offer(group.edge_set)
        for edges in self.edges:
            edges.offer()

    def rebind(self, structure: Structure) -> None:
        """After `Structure.rebind`: `refresh` takes the numbers of the other graph."""
        if structure is not self.structure:
            self.structure.rebind(structure.selection)
        self.estimates.rebind(self.structure)
        self.parameters.rebind(self.structure)
        self._offer_edges()

    def prepare(self, *, starts_kernels: bool = False) -> None:
        """Make what only the linearisation needs: the other views, pair lists, the plan.

        starts_kernels: have all kernels of the linearisation built meanwhile.
        """
        evaluations = self._operators.evaluations
        for edges, places, evaluation in zip(self.edges, self.storage.places, evaluations, strict=True):
            edges.prepare(places, only_primary=self.storage.is_whole and evaluation.writes_alone)
        self._follow()
        if starts_kernels:
            self._start_kernels()

    def _follow(self) -> None:
        """Make the operators, and the plan."""
        products, evaluations = self._operators.products, self._operators.evaluations
        uses_diagonal = self.uses_diagonal
        for edges, stored, evaluation in zip(self.edges, products, evaluations, strict=True):
            edges.follow(
                stored(self._context, edges, uses_diagonal),
                evaluation(self._context, edges),
            )
        self._plan_writers()

    def _start_kernels(self) -> None:
        """Make the launches for buffers that have sizes only: that starts to build what they run."""
        layout, current = self.storage.layout, self.estimates.current
        values, b = (Sized(n * self._context.real.itemsize) for n in (layout.values_size, layout.dim))
        deque(self.linearize_steps(current, values, b), maxlen=0)
        deque(self.oplus_steps(b, current, current), maxlen=0)

    def in_context(self, context: Context) -> DeviceLinearizer:
        """The same over the same arrays in another precision, once prepared."""
        own = copy.copy(self)
        own._context = context
        own.edges = [edge.in_context(context) for edge in self.edges]
        own._chi2_launches = Chi2Launches(context, own.edges, own._first_partials)
        own._plan_writers()
        return own

    def exact(self, storage: Storage, operators: Operators) -> DeviceLinearizer | None:
        """The same over the same arrays with the Hessian of chi2 / 2 for H, once prepared.

        storage: of all blocks, with gathered edges. None: edges have one view only, see `Evaluation`.
        """
        if any(evaluation.writes_alone for evaluation in self._operators.evaluations):
            return None
        own = copy.copy(self)
        own.is_exact, own.storage, own._operators = True, storage, operators
        own.edges = [
            edge.exact(storage.layout, places)
            for edge, places in zip(self.edges, storage.places, strict=True)
        ]
        own.merging = Merging(self._context, self.structure, storage.layout, frozenset())
        own._follow()
        return own

    @property
    def uses_diagonal(self) -> bool:
        """Products leave out what H's diagonal blocks hold.

        Not where an edge names a vertex twice, nor where the one schedule of all multiplies it anyway.
        """
        twice = any(edges.names_a_vertex_twice for edges in self.edges)
        kinds = set(self._operators.products)
        return not twice and not (len(kinds) == 1 and kinds.pop().needs_diagonal(self.edges))

    def advance(self) -> bool:
        """Call between submissions; True: launches are others now, record anew."""
        changed, self._has_moved = self._has_moved, False
        self._generation += changed
        return changed

    @property
    def generation(self) -> int:
        """Changes with each `advance` that is True: a key for recorded programs."""
        return self._generation

    @property
    def edge_bytes(self) -> float:
        """What one pass over all edges moves."""
        return sum(edge.bytes_of(edge.primary.view.num_edges) for edge in self.edges)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        own = self.estimates.nbytes + self.planes.nbytes + self.merging.nbytes
        return own + sum(edge.nbytes for edge in self.edges)

    def refresh(self) -> bool:
        """Take what has changed in the graph beside estimates; False: nothing."""
        images, moved = self.planes.update(self._captured | parameter_handles(self.structure))
        self._has_moved |= moved
        changed = [
            images,
            self.parameters.refresh(),
            *[edge.refresh() for edge in self.edges],
        ]
        return any(changed)

    # ---------------------------------------------------------------- plan

    def _plan_writers(self) -> None:
        """Order of the launches, and which of them assign."""
        layout = self.storage.layout
        self.writers = writers_of(self._context, self.edges, self.merging, layout, self.storage.places)
        self._plan = plan_writers(self.writers, layout)

    # ---------------------------------------------------------------- recording

    def record_chi2(self, program: Program, version: int) -> None:
        """The sum of all edges, and its way to the host."""
        firsts = self._first_partials
        for step in self.chi2_steps(version, self._partial, firsts):
            program.step(step)
        groups = min(SUM_GROUPS, -(-firsts[-1] // PARTS_PER_SUM))
        if groups > 1:
            program.step([self._sum(self._partial, firsts[-1], groups, self._sums)])
        source, count = (self._sums, groups) if groups > 1 else (self._partial, firsts[-1])
        program.step([self._sum(source, count, 1, self._total.buffer)])
        self._total.record_download(program)

    def record_chi2_by_vertex(
        self, program: Program, version: int, number: int, slot: int, sums: Any
    ) -> None:
        """chi2 of group `number` by the vertices of a slot, an accumulator each in the order of the view."""
        records = self.estimates.version(version)
        program.step(self.edges[number].chi2_by_vertex_launches(slot, records, sums))

    def _sum(self, source: Any, count: int, groups: int, target: Any) -> Launch:
        precision = "double" if self._context.device.has_float64 else "mixed"
        params = (0, count, groups, 0)
        return self._context.launch("sum_partials", (source, target), params, groups, precision=precision)

    def record_linearize(self, program: Program, version: int, values: Any, b: Any) -> None:
        """H and b."""
        if self.clears:
            program.fill(values).fill(b).barrier()
        for step in self.linearize_steps(version, values, b):
            program.step(step)

    def chi2_steps(self, version: int, partial: Any, firsts: list[int]) -> Iterator[list[Launch]]:
        """Independent launches, then others: the parts of each group's chi2 from its entry of `firsts` on."""
        yield self._chi2_launches.launches(self.estimates.version(version), partial)

    @property
    def clears(self) -> bool:
        """H and b must be zeros before `linearize_steps`."""
        return self._plan.clears

    def linearize_steps(self, version: int, values: Any, b: Any) -> Iterator[list[Launch]]:
        """Independent launches, then others: H and b."""
        records = self.estimates.version(version)
        before = [launch for edges in self.edges for launch in edges.schedule.store_launches(records)]
        evaluations = [launch for edges in self.edges for launch in edges.evaluation.launches(records)]
        if evaluations:
            yield [*evaluations, *before]
            before = []
        passes = [
            writer.write(records, values, b, accumulate=adds)
            for writer, adds in zip(self.writers, self._plan.adds, strict=True)
        ]
        yield from steps_of(passes, self._plan.steps, before)

    def record_oplus(self, program: Program, dx: Any, source: int, target: int) -> None:
        """Version `target` = version `source` oplus dx."""
        for step in self.oplus_steps(dx, source, target):
            program.step(step)

    def oplus_steps(self, dx: Any, source: int, target: int) -> Iterator[list[Launch]]:
        """Independent launches, then others: version `target`."""
        before, after = self.estimates.version(source), self.estimates.version(target)
        planes, pixels = self.planes.buffers
        step = []
        for number in self.estimates.moving:
            working = self.estimates.working[number]
            kernel = gpu.oplus_kernel(working.type, self._context.arithmetic)
            buffers = {
                "estimate_in": before[number].wide.buffer,
                "estimate_out": after[number].wide.buffer,
                "dx": dx,
                "offset": self.estimates.offsets[number].buffer,
                "planes": planes,
                "pixels": pixels,
            }
            narrow = after[number].narrow
            if narrow is not None:
                buffers["float32_out"] = narrow.buffer
            num = before[number].num_rows
            groups = -(-num // kernel.workgroup_size)
            nbytes = 2.0 * num * working.type.storage_dim * WIDE_BYTES
            step.append(self._context.generated(kernel, buffers, {"num_rows": num}, groups, nbytes))
        yield step

    @property
    def chi2(self) -> float:
        """What the last run of `record_chi2` has found."""
        words = self._total.downloaded.copy()
        return float(unpack_wide(words, self._context.device.has_float64)[0])
