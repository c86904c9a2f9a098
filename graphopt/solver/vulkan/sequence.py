"""Programs that are submitted one after the other, recorded once.

Drivers end a submission that takes too long (a watchdog: 2 s to 10 s), so a step that moves many bytes is cut
into several programs; what fits into the budget is one. Timestamps between phases say where the time goes.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import Any

from graphopt.solver.vulkan.context import Context, Launch


class Sequence:
    """Records like a recorder; cuts where the budget of a submission is spent."""

    def __init__(self, context: Context):
        self._context = context
        self._programs: list[tuple[list[str], Any]] = []
        self._recorder: Any = None
        self._phases: list[str] = []
        self._spent = 0.0

    def begin(self, phase: str) -> Sequence:
        """Count what follows as `phase`."""
        if self._recorder is None:
            self._recorder = self._context.device.record()
        self._recorder.timestamp()
        self._phases.append(phase)
        return self

    def end(self) -> Sequence:
        """Finish the program that is being recorded."""
        if self._recorder is not None:
            self._programs.append((self._phases, self._recorder.timestamp().finish()))
            self._recorder, self._phases, self._spent = None, [], 0.0
        return self

    def dispatch(self, kernel: Any, buffers: Series[Any], params: Series[int], groups: int) -> None:
        """Run a kernel."""
        self._recorder.dispatch(kernel, buffers, params, groups)

    def barrier(self) -> None:
        """Finish everything before."""
        self._recorder.barrier()

    def copy(self, *arguments: Any) -> None:
        """Copy between buffers."""
        self._recorder.copy(*arguments)

    def fill(self, buffer: Any) -> None:
        """Set a buffer to 0."""
        self._recorder.fill(buffer)

    def step(self, launches: Series[Launch]) -> None:
        """Independent launches, then a barrier; cut where they are too much for one program."""
        for launch in launches:
            self.spend(launch.nbytes)
            launch.record(self)
        self.barrier()

    def spend(self, nbytes: float) -> None:
        """Cut here if the program would move too much with `nbytes` more."""
        if self._spent > 0.0 and self._spent + nbytes > self._context.submission_bytes:
            phase = self._phases[-1]
            self.end().begin(phase)
        self._spent += nbytes

    @property
    def num_programs(self) -> int:
        """Submissions of one run."""
        return len(self._programs)

    def submit(self) -> Running:
        """Start everything; it runs after what was submitted before."""
        device = self._context.device
        return Running(self._programs, [device.submit(program) for _, program in self._programs])

    def run(self, seconds: dict[str, float]) -> None:
        """Submit everything, wait, and add the time on the device to `seconds` by phase."""
        self.submit().wait(seconds)


class Tape:
    """Takes commands like a recorder, to record them many times: finding out what to launch takes long."""

    def __init__(self) -> None:
        self._commands: list[tuple[str, tuple[Any, ...]]] = []

    def dispatch(self, kernel: Any, buffers: Series[Any], params: Series[int], groups: int) -> None:
        """Run a kernel."""
        self._commands.append(("dispatch", (kernel, buffers, params, groups)))

    def barrier(self) -> None:
        """Finish everything before."""
        self._commands.append(("barrier", ()))

    def copy(self, *arguments: Any) -> None:
        """Copy between buffers."""
        self._commands.append(("copy", arguments))

    def fill(self, buffer: Any) -> None:
        """Set a buffer to 0."""
        self._commands.append(("fill", (buffer,)))

    def record(self, recorder: Any) -> None:
        """Add all commands to a program."""
        for name, arguments in self._commands:
            getattr(recorder, name)(*arguments)


class Running:
    """A submitted sequence."""

    def __init__(self, programs: list[tuple[list[str], Any]], tickets: list[Any]):
        self._programs = programs
        self._tickets = tickets

    def wait(self, seconds: dict[str, float]) -> None:
        """Wait for the end, and add the time on the device to `seconds` by phase."""
        for ticket in self._tickets:
            ticket.wait()
        for phases, program in self._programs:
            times = program.timestamps()
            if len(times) != len(phases) + 1:  # timed as a whole
                seconds[phases[-1]] += 1e-9 * times[-1]
                continue
            for phase, begin, end in zip(phases, times[:-1], times[1:], strict=True):
                seconds[phase] += 1e-9 * (end - begin)
