"""How many values are alive at once: what an order of instructions is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from graphopt.codegen.bytecode import Instruction


class HasSources(Protocol):
    """Something that reads values."""

    @property
    def sources(self) -> tuple[int, ...]:
        """Ids of the values."""
        ...


def max_live(instructions: list[Instruction], outputs: Sequence[int], constants: set[int]) -> int:
    """Largest number of values that are needed later, over all points of the program."""
    last_use = {s: k for k, i in enumerate(instructions) for s in i.sources}
    last_use.update(dict.fromkeys(outputs, len(instructions)))
    dies = Counter([k for s, k in last_use.items() if s not in constants])
    defined = {d for i in instructions for d in i.destinations}
    live = peak = sum([v not in defined and v not in constants for v in last_use])  # inputs
    for k, instruction in enumerate(instructions):
        live += sum([d in last_use for d in instruction.destinations])
        peak = max(peak, live)
        live -= dies[k]
    return peak


def count_uses(instructions: Sequence[HasSources], outputs: Sequence[int]) -> Counter[int]:
    """How often each value is read; an output once more, at the end."""
    uses = Counter([s for i in instructions for s in i.sources])
    uses.update(outputs)
    return uses
