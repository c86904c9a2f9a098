"""Where the seconds of a rank's iteration go: host, device and other ranks, call by call.

    with measuring() as calls: ...          # around a distributed optimization
    print(*described(calls), sep=chr(10))

Each call is counted by itself, without those that it makes. `device` is time between the timestamps of the
submissions that a call waited for; `waited` is all of its time in waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch


@dataclass
class Calls:
    """Of one name, on one thread."""

    number: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    device: float = 0.0


@dataclass
class _Frame:
    calls: Calls
    inside: float = 0.0
    """Seconds of the calls that it made."""


class _Record:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Calls] = {}
        self._local = threading.local()

    def frames(self) -> list[_Frame]:
        """Of this thread."""
        if not hasattr(self._local, "frames"):
            self._local.frames = []
        return self._local.frames

    def timed(self, name: str, function: Any) -> Any:
        """The function, with its calls counted."""

        def wrapper(*arguments: Any, **options: Any) -> Any:
            frames = self.frames()
            key = threading.current_thread().name, name
            frames.append(_Frame(self.found.setdefault(key, Calls())))
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds = time.perf_counter() - start
                frame = frames.pop()
                frame.calls.number += 1
                frame.calls.seconds += seconds - frame.inside
                if frames:
                    frames[-1].inside += seconds

        return wrapper

    def waiting(self, function: Any) -> Any:
        """`Running.wait`: its time, and that of the device."""

        def wrapper(running: Any, seconds: dict[str, float] | None = None) -> None:
            own: dict[str, float] = {}
            start = time.perf_counter()
            function(running, own)
            if self.frames():
                calls = self.frames()[-1].calls
                calls.waited += time.perf_counter() - start
                calls.device += sum(own.values())
            if seconds is not None:
                for name, value in own.items():
                    seconds[name] = seconds.get(name, 0.0) + value

        return wrapper


@contextmanager
def measuring() -> Iterator[dict[tuple[str, str], Calls]]:
    """Count what the ranks of this process do inside; by thread and name."""
    from graphopt.distributed.communicator import ThreadCommunicator
    from graphopt.distributed.mpi import MpiCommunicator
    from graphopt.distributed.resident import ResidentIterating, ResidentPart
    from graphopt.distributed.solver import IteratingBlockSolver
    from graphopt.solver.vulkan.program import Program, Running
    from graphopt.solver.vulkan.solver import ResidentBlockSolver

    record = _Record()
    names = {
        ResidentIterating: (
            "linearized",
            "reduce",
            "start",
            "advance",
            "solution",
            "_finish",
            "substitute_and_move",
            "largest_own",
        ),
        ResidentPart: ("linearize",),
        IteratingBlockSolver: ("linearize", "trial", "_iterated"),
        ResidentBlockSolver: ("linearize", "trial", "wait_linearized", "chi2", "finish"),
        ThreadCommunicator: ("sum", "share"),
        MpiCommunicator: ("sum", "share"),
        Program: ("_recorded",),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.object(Running, "wait", record.waiting(Running.wait)))
        for owner, methods in names.items():
            for method in methods:
                timed = record.timed(f"{owner.__name__}.{method}", getattr(owner, method))
                stack.enter_context(patch.object(owner, method, timed))
        yield record.found


def described(calls: dict[tuple[str, str], Calls]) -> list[str]:
    """Markdown, milliseconds of all calls together."""
    lines = ["| thread | call | number | ms | waiting for the device | on it |", "|---|---|---|---|---|---|"]
    for (thread, name), call in sorted(calls.items(), key=lambda each: (each[0][0], -each[1].seconds)):
        numbers = " | ".join(f"{1e3 * value:.2f}" for value in (call.seconds, call.waited, call.device))
        lines.append(f"| {thread} | {name} | {call.number} | {numbers} |")
    return lines
