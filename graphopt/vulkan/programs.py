"""Programs that are recorded at their first use and run many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from graphopt.vulkan.program import Context, Program


class Programs:
    """Programs by key, and by the point that all of them depend on."""

    def __init__(self, context: Context, seconds: dict[str, float]):
        """seconds: time on the device by phase, to which each run adds its own."""
        self._context, self.seconds = context, seconds
        self.known: dict[Hashable, Program] = {}
        self.point: Hashable = None
        """What buffers of programs depend on besides their keys, such as the version of the estimates."""

    def get(self, key: Hashable, record: Callable[..., None], *arguments: object) -> Program:
        """The program that record(program, *arguments) makes, recorded at its first use."""
        at_point = key, self.point
        if at_point not in self.known:
            program = Program(self._context)
            record(program, *arguments)
            self.known[at_point] = program
        return self.known[at_point]

    def run(self, key: Hashable, record: Callable[..., None], *arguments: object) -> None:
        """Run it to its end."""
        self.get(key, record, *arguments).run(self.seconds)

    def forget(self) -> None:
        """Record everything anew: kernels or buffers are others now."""
        self.known.clear()
