"""Edge groups and vertex sets whose programs the device's interpreter runs: nothing is compiled for a type.

Edges are evaluated in chunks, so that the scratch buffer stays in the device's cache:

    interpret_load    inputs of the chunk -> scratch rows; a dispatch per vertex slot, parameter, the data
    interpret         the program; partial sums of chi2
    gather_sum_wide   scratch rows -> blocks of H, segments of b (interpret_store: records of a vertex set)

with barriers between. Sums have a fixed order: the same numbers give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.codegen.interpreter import DeviceProgram
from graphopt.vulkan.data.array import pack_wide
from graphopt.vulkan.data.images import DevicePlanes
from graphopt.vulkan.program import NOTHING, Context, Launch
from graphopt.vulkan.schedules.gather import GatherList, Target

WORKGROUP = 128
"""As of the compiled chi2 kernel: both leave equally many partial sums."""
GATHER_WORKGROUP = 128
"""As of the compiled chi2 kernel: both leave equally many partial sums."""
SCRATCH_BYTES = 32 << 20
"""Scratch buffer at most, unless WORKGROUP edges need more."""
MAX_CHUNK = 1 << 16
BYTES_PER_INSTRUCTION = 24
"""Of scratch memory that an instruction moves for an edge, roughly."""
Steps = list[list[Launch]]
"""Launches; those of one step do not depend on each other, a barrier follows each step."""
_RECORDS, _DATA, _IN_ORDER, _STEP = range(4)  # source_kind of interpret_load


@dataclass(frozen=True, eq=False)
class Records:
    """How a vertex or parameter set lies on the device."""

    record: int
    """Numbers from one record to the next."""
    num_components: int
    """Numbers that are read of each."""


@dataclass(frozen=True, eq=False)
class EdgeArrays:
    """A view of all edges of a group."""

    num_edges: int
    rows: Any
    """Blocked rows of the vertices, then of the parameters."""
    data: Any
    """Blocked measurement, information, kernel width."""
    data_dim: int
    """Numbers per edge in `data`."""
    sources: Sequence[Records]
    """Per vertex slot, then per parameter."""


class Interpreter:
    """Kernels and scratch buffer of all interpreted programs of a context."""

    def __init__(
        self, context: Context, scratch_bytes: int = SCRATCH_BYTES, planes: DevicePlanes | None = None
    ):
        """planes: what programs sample; None: its own, without any image."""
        self.context = context
        self.scratch_bytes = scratch_bytes
        self.dummy = context.device.allocate(16)
        self.planes = planes or DevicePlanes(context)
        self._scratch: Any = None

    def launch(
        self, name: str, buffers: Sequence[Any], params: Sequence[int], items: int, nbytes: float = 0.0
    ) -> Launch:
        """A launch of one of the interpreter's shaders, an invocation per item."""
        if not self.context.device.has_float64:
            name += "_two_float"
        return self.context.launch(name, buffers, params, -(-items // WORKGROUP), {0: WORKGROUP}, nbytes)

    def chunk(self, num_rows: int, num_items: int) -> int:
        """Items of one chunk, a multiple of WORKGROUP."""
        fitting = self.scratch_bytes // (8 * max(num_rows, 1) * WORKGROUP)
        wanted = -(-num_items // WORKGROUP)
        return WORKGROUP * max(1, min(fitting, wanted, MAX_CHUNK // WORKGROUP))

    def scratch(self, num_rows: int, chunk: int) -> Any:
        """A buffer for so many rows; programs that do not run together get the same one."""
        nbytes = 8 * max(num_rows, 1) * chunk
        if self._scratch is None or self._scratch.size < nbytes:
            self._scratch = self.context.device.allocate(nbytes)
        return self._scratch

    def gather(
        self, lanes: int, wide: bool, buffers: Sequence[Any], params: Sequence[int], groups: int
    ) -> Launch:
        """A launch that sums wide or real contributions with `lanes` invocations per target."""
        name, constants = "gather_sum", {0: GATHER_WORKGROUP, 1: lanes}
        if wide and self.context.precision == "mixed":
            name = "gather_sum_wide" if self.context.device.has_float64 else "gather_sum_wide_two_float"
        return self.context.launch(name, buffers, params, groups, constants)

    def program(self, packed: DeviceProgram, num_items: int) -> InterpretedProgram:
        """Put a program on the device, to be run on `num_items` edges or vertices."""
        return InterpretedProgram(self, packed, num_items)


class InterpretedProgram:
    """A program on the device and the launches that run it on a chunk."""

    def __init__(self, interpreter: Interpreter, packed: DeviceProgram, num_items: int):
        self.packed = packed
        self.num_items = num_items
        self.chunk = interpreter.chunk(packed.num_rows, num_items)
        self.num_chunks = -(-num_items // self.chunk)
        self.scratch = interpreter.scratch(packed.num_rows, self.chunk)
        self._interpreter = interpreter
        device = interpreter.context.device
        self._words = device.upload(packed.words)
        constants = pack_wide(packed.constants, device.has_float64)
        self._constants = device.upload(constants) if len(constants) else interpreter.dummy

    def items_of(self, chunk: int) -> tuple[int, int]:
        """First item of a chunk, and how many it has."""
        first = chunk * self.chunk
        return first, min(self.chunk, self.num_items - first)

    def targets(
        self, first_input: int, num_components: int, with_width: bool = False, columns: int = 0
    ) -> Any:
        """Buffer for `load`: scratch rows of inputs, of the kernel width behind them, columns of the view."""
        rows = self.packed.input_rows[first_input : first_input + num_components].tolist()
        rows += [self.packed.width_row] if with_width else []
        return self._interpreter.context.indices(np.array([*rows, columns], np.int64).astype(np.uint32))

    def load(self, source: int, buffers: Sequence[Any], chunk: int, dims: Sequence[int]) -> Launch:
        """Inputs of one source; buffers: source, dx, rows, targets; dims: num_components, record, column."""
        first, count = self.items_of(chunk)
        params = (source, first, count, self.chunk, *dims)
        return self._interpreter.launch("interpret_load", (*buffers, self.scratch), params, count)

    def run(self, chunk: int, partial: Any = None, first_partial: int = 0) -> Launch:
        """Run the program; with `partial`: sums of output 0 per workgroup, all chunks in one array."""
        first, count = self.items_of(chunk)
        row = NOTHING if partial is None else int(self.packed.output_rows[0])
        own = self._interpreter
        code = (self._words, self._words, self._constants, self.scratch)
        buffers = (*code, partial or own.dummy, *own.planes.buffers)
        params = (count, self.chunk, len(self.packed.constants), row, first_partial + first // WORKGROUP)
        nbytes = BYTES_PER_INSTRUCTION * len(self.packed.words) * count
        return own.launch("interpret", buffers, params, count, nbytes)

    @property
    def num_partials(self) -> int:
        """Numbers that `run` writes into `partial` over all chunks."""
        return -(-self.num_items // WORKGROUP)


class InterpretedEdges:
    """One program on the edges of a group."""

    def __init__(self, interpreter: Interpreter, packed: DeviceProgram, edges: EdgeArrays):
        self._interpreter = interpreter
        self._edges = edges
        self.program = interpreter.program(packed, edges.num_edges)
        columns = len(edges.sources)
        self._targets, first = [], 0
        for source in edges.sources:
            self._targets.append(self.program.targets(first, source.num_components, columns=columns))
            first += source.num_components
        own = len(packed.input_rows) - first
        self._data_targets = self.program.targets(first, own, with_width=edges.data_dim > own)

    def evaluate(
        self, chunk: int, buffers: Sequence[Any], partial: Any = None, first_partial: int = 0
    ) -> Steps:
        """Load and run one chunk; buffers: those of `edges.sources`."""
        own, dummy = self._edges, self._interpreter.dummy
        loads = []
        for column, (source, buffer, targets) in enumerate(
            zip(own.sources, buffers, self._targets, strict=True)
        ):
            dims = (source.num_components, source.record, column)
            loads.append(self.program.load(_RECORDS, (buffer, dummy, own.rows, targets), chunk, dims))
        if own.data_dim:
            inputs = (own.data, dummy, dummy, self._data_targets)
            loads.append(self.program.load(_DATA, inputs, chunk, (own.data_dim, own.data_dim, 0)))
        return [loads, [self.program.run(chunk, partial, first_partial)]]

    def chi2(self, buffers: Sequence[Any], partial: Any, first_partial: int = 0) -> Steps:
        """Partial sums of output 0, chi2, of all edges: `program.num_partials` wide numbers."""
        chunks = range(self.program.num_chunks)
        return [step for k in chunks for step in self.evaluate(k, buffers, partial, first_partial)]


@dataclass(frozen=True, eq=False)
class _DeviceList:
    lists: GatherList
    first: Any
    items: Any
    places: dict[Target, Any] = field(default_factory=dict)
    maps: dict[Target, Any] = field(default_factory=dict)


class Gather:
    """`gather.gather_lists` on the device, for contributions in rows of `stride` numbers."""

    def __init__(
        self,
        interpreter: Interpreter,
        lists: Sequence[GatherList],
        output_rows: np.ndarray,
        stride: int,
        *,
        wide: bool = True,
    ):
        """output_rows: row of each output of `linearize`. wide: type of the contributions, else real."""
        self._interpreter, self._stride, self._wide = interpreter, stride, wide
        self._lists = [self._upload(list_, output_rows.astype(np.uint32)) for list_ in lists]

    def _upload(self, gathered: GatherList, output_rows: np.ndarray) -> _DeviceList:
        indices = self._interpreter.context.indices
        return _DeviceList(
            gathered,
            indices(gathered.first),
            indices(gathered.items),
            {name: indices(places) for name, (places, _) in gathered.targets.items()},
            {name: indices(output_rows[outputs]) for name, (_, outputs) in gathered.targets.items()},
        )

    def steps(self, chunk: int, contributions: Any, results: dict[Target, Any]) -> Steps:
        """Add the contributions of a chunk to the buffers `results`."""
        steps: Steps = [[], []]
        for list_ in self._lists:
            begin, end = list_.lists.chunk_first[chunk : chunk + 2].tolist()
            if begin == end:
                continue
            tiles = -(-(end - begin) * list_.lists.lanes // GATHER_WORKGROUP)
            for name, (_, outputs) in list_.lists.targets.items():
                num_elements = outputs.shape[1]
                buffers = (
                    contributions,
                    list_.first,
                    list_.items,
                    list_.places[name],
                    list_.maps[name],
                    results[name],
                )
                params = (begin, end - begin, num_elements, self._stride, 1)
                groups = tiles * num_elements
                launch = self._interpreter.gather(list_.lists.lanes, self._wide, buffers, params, groups)
                steps[list_.lists.is_second].append(launch)
        return [step for step in steps if step]


class InterpretedLinearization:
    """linearize of a group: adds to H and b, which start as zeros; with `partial` also sums of chi2."""

    def __init__(
        self, interpreter: Interpreter, packed: DeviceProgram, edges: EdgeArrays, lists: Sequence[GatherList]
    ):
        """lists: made for chunks of `interpreter.chunk(packed.num_rows, edges.num_edges)`."""
        self.edges = InterpretedEdges(interpreter, packed, edges)
        self._gather = Gather(interpreter, lists, packed.output_rows, self.edges.program.chunk)

    def steps(self, buffers: Sequence[Any], values: Any, b: Any, partial: Any = None) -> Steps:
        """Everything, chunk after chunk; buffers: those of `edges.sources`."""
        program = self.edges.program
        steps: Steps = []
        for chunk in range(program.num_chunks):
            steps += self.edges.evaluate(chunk, buffers, partial)
            steps += self._gather.steps(chunk, program.scratch, {"values": values, "b": b})
        return steps


class InterpretedOplus:
    """estimate_out = oplus(estimate_in, dx) on all rows of a vertex set; rows without offset are copied."""

    def __init__(
        self,
        interpreter: Interpreter,
        packed: DeviceProgram,
        num_vertices: int,
        storage_dim: int,
        record: int,
    ):
        self.program = interpreter.program(packed, num_vertices)
        self._interpreter = interpreter
        self._storage_dim, self._record = storage_dim, record
        self._tangent_dim = len(packed.input_rows) - storage_dim
        self._estimate_targets = self.program.targets(0, storage_dim)
        self._dx_targets = self.program.targets(storage_dim, self._tangent_dim)
        self._outputs = interpreter.context.indices(packed.output_rows)

    def steps(
        self,
        estimate_in: Any,
        estimate_out: Any,
        dx: Any,
        offset: Any,
        narrow: Any = None,
        narrow_record: int = 0,
    ) -> Steps:
        """Everything, chunk after chunk. narrow: buffer of float32 copies."""
        program, dummy = self.program, self._interpreter.dummy
        narrow_record = 0 if narrow is None else narrow_record
        steps: Steps = []
        for chunk in range(program.num_chunks):
            first, count = program.items_of(chunk)
            state = (estimate_in, dummy, dummy, self._estimate_targets)
            step = (dummy, dx, offset, self._dx_targets)
            steps.append(
                [
                    program.load(_IN_ORDER, state, chunk, (self._storage_dim, self._record, 0)),
                    program.load(_STEP, step, chunk, (self._tangent_dim, 0, 0)),
                ]
            )
            steps.append([program.run(chunk)])
            buffers = (estimate_in, offset, self._outputs, program.scratch, estimate_out, narrow or dummy)
            params = (first, count, program.chunk, self._storage_dim, self._record, narrow_record)
            steps.append([self._interpreter.launch("interpret_store", buffers, params, count)])
        return steps
