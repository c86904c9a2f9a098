"""Programs that are submitted one after the other, recorded once.

Drivers end a submission that takes too long (a watchdog: 2 s to 10 s), so a step that moves many bytes is cut
into several programs. Each begins and ends with a timestamp; their times are added up by phase.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import Any

from graphopt.solver.vulkan.context import Context, Launch


class Sequence:
    """Records like a recorder; cuts where the budget of a submission is spent."""

    def __init__(self, context: Context):
        self._context = context
        self._programs: list[tuple[str, Any]] = []
        self._recorder: Any = None
        self._phase = ""
        self._spent = 0.0

    def begin(self, phase: str) -> Sequence:
        """Start a new program, whose time counts as `phase`."""
        self.end()
        self._phase, self._spent = phase, 0.0
        self._recorder = self._context.device.record().timestamp()
        return self

    def end(self) -> Sequence:
        """Finish the program that is being recorded."""
        if self._recorder is not None:
            self._programs.append((self._phase, self._recorder.timestamp().finish()))
            self._recorder = None
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
            if self._spent > 0.0 and self._spent + launch.nbytes > self._context.submission_bytes:
                self.begin(self._phase)
            self._spent += launch.nbytes
            launch.record(self)
        self.barrier()

    @property
    def num_programs(self) -> int:
        """Submissions of one run."""
        return len(self._programs)

    def run(self, seconds: dict[str, float]) -> None:
        """Submit everything, wait, and add the time on the device to `seconds` by phase."""
        device = self._context.device
        tickets = [device.submit(program) for _, program in self._programs]
        for ticket in tickets:
            ticket.wait()
        for phase, program in self._programs:
            seconds[phase] += 1e-9 * program.timestamps()[-1]
