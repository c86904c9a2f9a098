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
    remaining = count_uses(instructions, outputs)
    defined = {d for i in instructions for d in i.destinations}
    live = {v for v in remaining if v not in defined and v not in constants}  # inputs
    peak = len(live)
    for instruction in instructions:
        live.update(d for d in instruction.destinations if remaining[d] > 0)
        peak = max(peak, len(live))
        for s in instruction.sources:
            remaining[s] -= 1
            if remaining[s] == 0:
                live.discard(s)
    return peak


def count_uses(instructions: Sequence[HasSources], outputs: Sequence[int]) -> Counter[int]:
    """How often each value is read; an output once more, at the end."""
    uses = Counter(s for i in instructions for s in i.sources)
    uses.update(outputs)
    return uses
