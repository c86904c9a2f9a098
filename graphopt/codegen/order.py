"""Order of the instructions: few values alive at once, so that the register file stays cached.

Two orders are tried and the one with fewer live registers wins: depth first from the outputs (finish what was
begun), and greedy (of the instructions that could run now, the one that frees most registers).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from graphopt.codegen.accumulate import accumulate
from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.liveness import count_uses, max_live


def order(
    instructions: list[Instruction], outputs: Sequence[int], constants: set[int], accumulates: bool = False
) -> list[Instruction]:
    """Reorder instructions so that they need few registers. `constants` never occupy one.

    `accumulates`: long sums may be taken apart (`accumulate`). That trades registers for instructions.
    """
    by_output = depth_first(instructions, outputs)
    candidates = [by_output, _greedy(by_output, outputs, constants)]
    if accumulates:
        candidates.append(accumulate(by_output, outputs, constants))
    return min(candidates, key=lambda c: max_live(c, outputs, constants))


def depth_first(instructions: list[Instruction], outputs: Sequence[int]) -> list[Instruction]:
    """Each output with everything that it needs and that is not there yet, one after the other."""
    producer = {d: i for i in instructions for d in i.destinations}
    weight: dict[int, int] = {}
    for i in instructions:
        # registers that a tree of this shape would need (Sethi and Ullman 1970)
        needs = sorted((weight.get(s, 0) for s in dict.fromkeys(i.sources)), reverse=True)
        need = max((n + k for k, n in enumerate(needs)), default=0)
        for d in i.destinations:
            weight[d] = max(need, 1)
    placed: set[int] = set()
    result: list[Instruction] = []
    for output in outputs:
        stack = [producer[output]] if output in producer else []
        while stack:
            top = stack[-1]
            if top.destinations[0] in placed:
                stack.pop()
                continue
            waiting = [s for s in dict.fromkeys(top.sources) if s in producer and s not in placed]
            if waiting:
                stack.append(producer[max(waiting, key=lambda s: weight[s])])
            else:
                placed.update(top.destinations)
                result.append(stack.pop())
    return result


def _greedy(
    instructions: list[Instruction], outputs: Sequence[int], constants: set[int]
) -> list[Instruction]:
    uses = count_uses(instructions, outputs)
    readers: dict[int, list[int]] = {}
    missing: list[int] = []
    defined = {d for i in instructions for d in i.destinations}
    for k, i in enumerate(instructions):
        waiting = [s for s in dict.fromkeys(i.sources) if s in defined]
        missing.append(len(waiting))
        for s in dict.fromkeys(i.sources):
            readers.setdefault(s, []).append(k)

    counts = [Counter(i.sources) for i in instructions]

    def growth(k: int) -> int:
        freed = sum(1 for s, n in counts[k].items() if s not in constants and uses[s] == n)
        return len(instructions[k].destinations) - freed

    queue = [(growth(k), k) for k, n in enumerate(missing) if n == 0]
    heapq.heapify(queue)
    placed = [False] * len(instructions)
    result: list[Instruction] = []
    while queue:
        _, k = heapq.heappop(queue)
        if placed[k]:
            continue
        placed[k] = True
        instruction = instructions[k]
        result.append(instruction)
        for s, n in counts[k].items():
            uses[s] -= n
            if s not in constants and 0 < uses[s]:
                for reader in readers[s]:
                    if not placed[reader] and missing[reader] == 0 and uses[s] == counts[reader][s]:
                        heapq.heappush(queue, (growth(reader), reader))
        for d in instruction.destinations:
            for reader in readers.get(d, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(queue, (growth(reader), reader))
    return result
