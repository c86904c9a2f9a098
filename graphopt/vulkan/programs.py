"""Programs that are recorded at their first use and run many times, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from graphopt.vulkan.program import Command, Context, Program, with_buffers

Versions = tuple[Hashable, ...]
"""What buffers of commands depend on, such as versions of the estimates."""


class CommandLists:
    """Commands by key: what to launch is found out once, and repeated with the buffers of other versions."""

    def __init__(self, context: Context):
        self._context = context
        self._known: dict[Hashable, tuple[Versions, list[Command]]] = {}
        self.buffers_of: Callable[[Any, Any], Mapping[Any, Any]] | None = None
        """By each buffer of some versions that of other ones, which take their places; None: not known."""

    def of(
        self, key: Hashable, versions: Versions, record: Callable[..., None], *arguments: Any
    ) -> list[Command]:
        """What record(program, *arguments) records at these versions."""
        place = key if self.buffers_of is not None else (key, versions)
        if place not in self._known:
            program = Program(self._context)
            record(program, *arguments)
            self._known[place] = versions, program.commands
        recorded_for, commands = self._known[place]
        if recorded_for == versions:
            return commands
        assert self.buffers_of is not None
        return with_buffers(commands, self.buffers_of(recorded_for, versions))

    def forget(self) -> None:
        """Find everything out anew: kernels or buffers are others now."""
        self._known.clear()


class Programs:
    """Programs by key, and by the point that all of them depend on."""

    def __init__(self, context: Context, seconds: dict[str, float]):
        """seconds: time on the device by phase, to which each run adds its own."""
        self._context, self.seconds = context, seconds
        self.known: dict[Hashable, Program] = {}
        self.parts = CommandLists(context)
        """Of programs, whose versions are (point,)."""
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

    def add_part(self, program: Program, key: Hashable, record: Callable[..., None], *arguments: Any) -> None:
        """Add what record(part, *arguments) records, which several programs have."""
        program.extend(self.parts.of(key, (self.point,), record, *arguments))

    def forget(self) -> None:
        """Record everything anew: kernels or buffers are others now."""
        self.known.clear()
        self.parts.forget()
