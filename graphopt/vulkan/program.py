"""A device in one precision, launches of its kernels, and programs: the one way to record commands.

    launch = context.launch("pcg_init", buffers, params, groups)     a shader of `shaders/`
    launch = context.generated(kernel, buffers, params, groups)      a kernel of `codegen.gpu`
    program.phase("schur").step([launch, ...]).copy(...)             commands, and barriers between steps
    program.run(seconds)                                             as often as wanted

A program is a list of commands until it first runs, so that programs can be joined and parts repeated.
Drivers end a submission that takes too long (a watchdog: 2 s to 10 s): what moves more bytes than the budget
is cut into several submissions. Timestamps between phases say where the time goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu import GpuKernel
from graphopt.cpu_kernels import kernels
from graphopt.device import Device
from graphopt.device.protocol import Precision
from graphopt.errors import DeviceLimitError

T = TypeVar("T")
NOTHING = 0xFFFFFFFF
"""An offset that is not there; `NOTHING` of common.glsl."""
VECTOR_WORKGROUP = 128
_WAIT = 0.02  # [s] between two questions whether to stop
MAX_VECTOR_GROUPS = 512
"""Workgroups of vector kernels at most: each of them adds up the partial sums of all."""
SUBMISSION_SECONDS = 0.5
"""Aim for the longest submission: watchdogs of drivers wait 2 s and more."""
BYTES_PER_SECOND = {"discrete": 1.5e11, "integrated": 2e10, "cpu": 2e9}
"""Assumed of a slow device of each kind; others count as integrated."""
LARGE_BYTES = 1 << 32
"""Size of a buffer from which on kernels reach it with 64 bits."""
NEAR_BYTES = 1 << 32
"""What kernels reach with 32-bit offsets."""
MAX_QUEUE_ITEMS = 1 << 30
"""Queues are arrays of uint32, which must stay below 4 GiB."""
LARGE = 15  # the specialization constant of common.glsl
ACCUMULATOR_BYTES = 8  # one float64 or two float32
_FAR = """\
add_entries 2; add_sums 3; apply_inverse 1; copy_entries 2; finish_product 1; fold_parts 3; gather_diagonal 1;
invert_blocks 1 3 5;
landmark_product 5 6; pcg_init 1 7; pcg_update 1 13; ranks_collect 2;
ranks_precondition 1 7; row_product 3; schur_combine 2 4;
schur_lookup 5 6 8; schur_pairs 4 5 7; schur_tiles 4 5 7; sum_records 2; symmetric_product 3"""
FAR_SLOTS = {name: frozenset(map(int, slots)) for name, *slots in (word.split() for word in _FAR.split(";"))}
"""Buffers of shaders that are reached with 64 bits, by slot, as their text declares them."""


def check_queue(num_items: int, name: str) -> None:
    """Raise where a work queue is longer than the kernels can count."""
    if num_items >= MAX_QUEUE_ITEMS:
        raise DeviceLimitError(
            f"The work queue of {name} has {num_items} items; a queue may have {MAX_QUEUE_ITEMS - 1}. "
            "Use schur='implicit', which needs one item per block of H, or device='cpu'."
        )


def arithmetic_for(precision: Precision, has_float64: bool) -> Arithmetic:
    """How generated kernels compute: "double", "mixed" with float64 where chi2 needs it, or "two_float"."""
    if precision == "double":
        return "double"
    return "mixed" if has_float64 else "two_float"


@dataclass(frozen=True, eq=False)
class Launch:
    """One dispatch: kernel, buffers, parameters, number of workgroups."""

    kernel: Any
    """Of the device, or a `Future` of one that is being built."""
    buffers: tuple[Any, ...]
    params: tuple[int, ...]
    groups: int
    nbytes: float = 0.0
    """Bytes it moves, where that is much."""


@dataclass(frozen=True)
class Places:
    """Places of something, one after the other, for kernels that declare `Interface.add_places`."""

    array: Any
    """`DeviceArray` of uint32: the places, or of regular ones the first, and the distance to the next."""
    are_regular: bool

    @property
    def buffer(self) -> Any:
        """Of the array."""
        return self.array.buffer

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self.array.nbytes


class Context:
    """A device used in one precision."""

    def __init__(self, device: Device, precision: Precision):
        self.device = device
        self.precision: Precision = precision
        self.real = np.dtype(np.float64 if precision == "double" else np.float32)
        self.arithmetic: Arithmetic = arithmetic_for(precision, device.has_float64)
        """Of generated kernels."""
        bandwidth = BYTES_PER_SECOND.get(device.info["kind"], BYTES_PER_SECOND["integrated"])
        self.submission_bytes = SUBMISSION_SECONDS * bandwidth
        """Bytes that one submission may move."""
        self.has_conditions = bool(device.info.get("conditional", False))
        """Launches can be skipped by the device, see `Program.unless`."""
        self.has_repeats = bool(device.info.get("repeats", False))
        """Its recorder repeats commands by itself, see `Program.repeated`."""

    # ---------------------------------------------------------------- buffers that only kernels touch

    def reals(self, count: int) -> Any:
        """A device buffer of `count` reals."""
        return self.device.allocate(max(count, 1) * self.real.itemsize)

    def accumulators(self, count: int) -> Any:
        """A device buffer of `count` accumulators."""
        return self.device.allocate(max(count, 1) * ACCUMULATOR_BYTES)

    def indices(self, array: np.ndarray) -> Any:
        """A device buffer with an array as uint32."""
        return self.device.upload(np.ascontiguousarray(array, np.uint32))

    def download(self, buffer: Any, count: int) -> np.ndarray:
        """Contents of a buffer of reals, as float64."""
        return self.device.download(buffer, self.real, count).astype(np.float64)

    # ---------------------------------------------------------------- launches

    def launch(
        self,
        name: str,
        buffers: Sequence[Any],
        params: Sequence[int],
        groups: int,
        constants: Mapping[int, int] | None = None,
        nbytes: float = 0.0,
        precision: Precision | None = None,
    ) -> Launch:
        """A launch of `shaders/<name>.comp`; constants: 0, the workgroup's size, is VECTOR_WORKGROUP.

        precision: another one than the context's.
        """
        far = FAR_SLOTS.get(name, frozenset())
        values = {0: VECTOR_WORKGROUP, **(constants or {})}
        if _is_large(name, range(len(buffers)), buffers, far):
            values[LARGE] = 1
        kernel = self.device.start_shader(
            name, precision or self.precision, len(buffers), len(params), values
        )
        return Launch(kernel, tuple(buffers), tuple(params), groups, nbytes)

    def generated(
        self,
        kernel: GpuKernel,
        buffers: Mapping[str, Any],
        params: Mapping[str, int],
        groups: int,
        nbytes: float = 0.0,
        constants: Mapping[int, int] | None = None,
    ) -> Launch:
        """A launch of a generated kernel; buffers, or what makes them when asked, and params by its names."""
        found = {name: buffers[name] for name in kernel.buffers}
        places = {name: buffer for name, buffer in found.items() if isinstance(buffer, Places)}
        found |= {name: place.buffer for name, place in places.items()}
        taken = tuple(buffer() if callable(buffer) else buffer for buffer in found.values())
        regular = {kernel.places[name]: 1 for name, place in places.items() if place.are_regular}
        large = {LARGE: 1} if _is_large(kernel.name, kernel.buffers, taken, kernel.far) else {}
        compiled = self.device.start_generated(kernel, {**large, **regular, **(constants or {})})
        return Launch(compiled, taken, tuple(params[name] for name in kernel.params), groups, nbytes)

    def cut(self, run: tuple[int, int], nbytes: float) -> list[tuple[int, int, float]]:
        """Cut a run of workgroups by the budget of a submission: (begin, end, bytes) of each piece."""
        first, last = run
        count = min(last - first, int(nbytes / self.submission_bytes) + 1)
        bounds = [first + (last - first) * at // max(count, 1) for at in range(count + 1)]
        return [(begin, end, nbytes / count) for begin, end in pairwise(bounds)]

    def vector_groups(self, num_rows: int) -> int:
        """Workgroups of a vector kernel over `num_rows` scalars."""
        return max(1, min(MAX_VECTOR_GROUPS, -(-num_rows // VECTOR_WORKGROUP)))


def _is_large(kernel: str, names: Iterable[Any], buffers: Sequence[Any], far: Collection[Any]) -> bool:
    """Some buffer is reached with 64 bits; `DeviceLimitError` where one is too large for 32.

    far: names of those that can be.
    """
    sizes = [buffer.size for buffer in buffers]
    if max(sizes, default=0) < min(NEAR_BYTES, LARGE_BYTES):
        return False
    for name, size in zip(names, sizes, strict=True):
        if size >= NEAR_BYTES and name not in far:
            raise DeviceLimitError(
                f"Kernel '{kernel}' reads '{name}', which takes {size} bytes here, with 32-bit "
                f"offsets: it reaches {NEAR_BYTES} bytes. Use device='cpu', or fewer vertices or edges per "
                "call."
            )
    return any(size >= LARGE_BYTES for size in sizes)


class InThread(Generic[T]):
    """What a function returns that runs in a thread of its own."""

    def __init__(self, name: str, function: Callable[..., T], *arguments: Any):
        executor = ThreadPoolExecutor(1, name)
        self._future = executor.submit(function, *arguments)
        executor.shutdown(wait=False)

    def done(self) -> bool:
        """Nobody has to wait for `result`."""
        return self._future.done()

    def result(self) -> T:
        """What the function returns, or raises; `Stopped` where the caller's watch says so meanwhile."""
        return _result(self._future)


def _result(future: Future[T]) -> T:
    """What it brings, or raises; `Stopped` where the caller's watch says so meanwhile."""
    while not (future.done() or wait([future], _WAIT).done):
        kernels.check_stop()
    return future.result()


def built(kernel: Any) -> Any:
    """A kernel, once it is built."""
    return _result(kernel) if isinstance(kernel, Future) else kernel


Command = tuple[str, Any]
"""Name and argument of a command of a program."""
_NUM_BUFFERS = {"copy": 2, "fill": 1, "begin_unless": 1}
"""How many of a command's arguments, the first ones, are buffers."""


def with_buffers(commands: Iterable[Command], others: Mapping[Any, Any]) -> list[Command]:
    """Commands with other buffers instead of some."""
    return [(name, _with_buffers(name, argument, others)) for name, argument in commands]


def _with_buffers(name: str, argument: Any, others: Mapping[Any, Any]) -> Any:
    if name == "launch":
        buffers, own = argument.buffers, argument
        if others.keys().isdisjoint(buffers):
            return own
        changed = tuple([others.get(buffer, buffer) for buffer in buffers])
        return Launch(own.kernel, changed, own.params, own.groups, own.nbytes)
    if name == "repeat":
        commands, times = argument
        return with_buffers(commands, others), times
    count = _NUM_BUFFERS.get(name, 0)
    return (
        (*(others.get(value, value) for value in argument[:count]), *argument[count:]) if count else argument
    )


class Program:
    """Commands in their order; recorded at the first run."""

    def __init__(self, context: Context):
        self._context = context
        self._commands: list[Command] = []
        self._submissions: list[tuple[list[str], Any]] = []

    # ---------------------------------------------------------------- commands

    def phase(self, name: str) -> Program:
        """Count what follows as this phase."""
        self._commands.append(("phase", name))
        return self

    def step(self, launches: Sequence[Launch]) -> Program:
        """Independent launches, then a barrier."""
        return self.launch(*launches).barrier()

    def launch(self, *launches: Launch) -> Program:
        """Launches without a barrier after them."""
        self._commands += [("launch", each_launch) for each_launch in launches]
        return self

    def dispatch(self, kernel: Any, buffers: Sequence[Any], params: Sequence[int], groups: int) -> Program:
        """One launch of a kernel that is at hand, as recorders have it."""
        return self.launch(Launch(kernel, tuple(buffers), tuple(params), groups))

    def barrier(self) -> Program:
        """Finish everything before."""
        self._commands.append(("barrier", ()))
        return self

    def copy(
        self, source: Any, target: Any, nbytes: int, source_offset: int = 0, target_offset: int = 0
    ) -> Program:
        """Copy between buffers; offsets in bytes."""
        self._commands.append(("copy", (source, target, nbytes, source_offset, target_offset)))
        return self

    def fill(self, buffer: Any) -> Program:
        """Set a buffer to 0."""
        self._commands.append(("fill", (buffer,)))
        return self

    @contextmanager
    def unless(self, flag: Any, place: int) -> Iterator[None]:
        """What is recorded inside is skipped where uint32 number `place` of a buffer is not 0 by then.

        Only its launches, and where the device can; else each kernel has to look itself.
        """
        can = self._context.has_conditions
        if can:
            self._commands.append(("begin_unless", (flag, 4 * place)))
        yield
        if can:
            self._commands.append(("end_unless", ()))

    def append(self, other: Program) -> Program:
        """All commands of another program."""
        self._commands += other._commands
        return self

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """What is recorded inside runs so many times: finding out what to launch takes long."""
        before, self._commands = self._commands, []
        yield
        before.append(("repeat", (self._commands, times)))
        self._commands = before

    def extend(self, commands: Iterable[Command]) -> Program:
        """Commands that another program has found."""
        self._commands += commands
        return self

    @property
    def commands(self) -> list[Command]:
        """Name and argument of each, before the first run."""
        return self._commands

    # ---------------------------------------------------------------- running

    @property
    def recorded(self) -> list[Any]:
        """The native programs of one run, in their order."""
        return [program for _, program in self._recorded()]

    def prepare(self) -> None:
        """Do now what the first run would do first."""
        self._recorded()

    def submit(self) -> Running:
        """Start everything; it runs after what was submitted before."""
        device, submissions = self._context.device, self._recorded()
        return Running(submissions, [device.submit(program) for _, program in submissions])

    def run(self, seconds: dict[str, float] | None = None) -> None:
        """Submit everything, wait, and add the time on the device to `seconds` by phase."""
        self.submit().wait(seconds)

    def _recorded(self) -> list[tuple[list[str], Any]]:
        """Phases and native program of each submission."""
        if not self._submissions:
            recording = _Recording(self._context)
            for name, argument in self._commands:
                recording.add(name, argument)
            self._submissions = recording.finish()
            self._commands = [("done", ())]  # the native programs keep argument they need
        return self._submissions


class _Recording:
    """Native programs of a list of commands, cut where the budget of a submission is spent."""

    def __init__(self, context: Context):
        self._context = context
        self._found: list[tuple[list[str], Any]] = []
        self._recorder: Any = None
        self._phases: list[str] = []
        self._phase = ""
        self._spent = 0.0
        self._condition: tuple[Any, int] | None = None
        self._is_repeating = False

    def add(self, name: str, argument: Any) -> None:
        if name == "phase":
            self._phase = argument
            self._begin()
            return
        if name == "repeat":
            self._repeat(*argument)
            return
        if self._recorder is None:
            self._begin()
        if name == "launch":
            if argument.nbytes:
                self._spend(argument.nbytes)
            own = argument
            assert self._recorder is not None
            self._recorder.dispatch(built(own.kernel), own.buffers, own.params, own.groups)
            return
        getattr(self._recorder, name)(*argument)
        if name in ("begin_unless", "end_unless"):
            self._condition = argument or None

    def _repeat(self, commands: list[Command], times: int) -> None:
        """By the recorder itself where that stays within one phase and submission."""
        nbytes = times * _bytes_of(commands)
        fits = not self._is_repeating and self._spent + nbytes <= self._context.submission_bytes
        by_recorder = times > 1 and fits and self._context.has_repeats and not _has_phases(commands)
        if by_recorder:
            self._is_repeating = True
            if self._recorder is None:
                self._begin()
            assert self._recorder is not None
            self._recorder.begin_repeat()
        spent = self._spent
        for name, argument in commands if by_recorder else times * commands:
            self.add(name, argument)
        if by_recorder:
            assert self._recorder is not None
            self._recorder.end_repeat(times)
            self._is_repeating, self._spent = False, spent + nbytes

    def _begin(self) -> None:
        if self._recorder is None:
            self._recorder = self._context.device.record()
            if self._condition is not None:
                self._recorder.begin_unless(*self._condition)
        self._recorder.timestamp()
        self._phases.append(self._phase)

    def _spend(self, nbytes: float) -> None:
        """Cut here if the submission would move too much with `nbytes` more."""
        if self._spent > 0.0 and self._spent + nbytes > self._context.submission_bytes:
            self._end()
            self._begin()
        self._spent += nbytes

    def _end(self) -> None:
        if self._recorder is not None:
            if self._condition is not None:
                self._recorder.end_unless()
            self._found.append((self._phases, self._recorder.timestamp().finish()))
        self._recorder, self._phases, self._spent = None, [], 0.0

    def finish(self) -> list[tuple[list[str], Any]]:
        self._end()
        return self._found


def _bytes_of(commands: list[Command]) -> float:
    """That launches move."""
    total = 0.0
    for name, argument in commands:
        if name == "launch":
            total += argument.nbytes
        elif name == "repeat":
            inner, times = argument
            total += times * _bytes_of(inner)
    return total


def _has_phases(commands: list[Command]) -> bool:
    inner = [argument[0] for name, argument in commands if name == "repeat"]
    return any(name == "phase" for name, _ in commands) or any(map(_has_phases, inner))


class Running:
    """A submitted program."""

    def __init__(self, submissions: list[tuple[list[str], Any]], tickets: list[Any]):
        self._submissions = submissions
        self._tickets = tickets

    def wait(self, seconds: dict[str, float] | None = None) -> None:
        """Wait for the end, and add the time on the device to `seconds` by phase."""
        for ticket in self._tickets:
            ticket.wait()
        if seconds is None:
            return
        for phases, program in self._submissions:
            times = program.timestamps()
            if len(times) != len(phases) + 1:  # timed as a whole
                seconds[phases[-1]] = seconds.get(phases[-1], 0.0) + 1e-9 * times[-1]
                continue
            for phase, begin, end in zip(phases, times[:-1], times[1:], strict=True):
                seconds[phase] = seconds.get(phase, 0.0) + 1e-9 * (end - begin)
