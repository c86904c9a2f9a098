"""How many values are alive at once: what an order of instructions is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphopt.codegen.bytecode import Instruction


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
