"""Order of the instructions: few values alive at once, so that the register file stays cached.

Two orders are tried and the one with fewer live registers wins: depth first from the outputs (finish what was
begun), and greedy (of the instructions that could run now, the one that frees most registers).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from operator import add

from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.liveness import max_live


def order(instructions: list[Instruction], outputs: Sequence[int], constants: set[int]) -> list[Instruction]:
    """Reorder instructions so that they need few registers. `constants` never occupy one."""
    by_output = depth_first(instructions, outputs)
    candidates = [by_output, _greedy(by_output, outputs, constants)]
    return min(candidates, key=lambda c: max_live(c, outputs, constants))


def depth_first(instructions: list[Instruction], outputs: Sequence[int]) -> list[Instruction]:
    """Each output with everything that it needs and that is not there yet, one after the other."""
    producer = {d: i for i in instructions for d in i.destinations}
    weight = _weights(instructions)

    def heaviest_first(sources: list[int]) -> list[int]:
        return sorted(dict.fromkeys(sources), key=weight.__getitem__, reverse=True)[::-1]

    return before_use(instructions, [producer[o] for o in outputs if o in producer], heaviest_first)


def before_use(
    instructions: Sequence[Instruction],
    roots: Sequence[Instruction],
    arranged: Callable[[list[int]], list[int]],
) -> list[Instruction]:
    """Roots, one after the other, each with what it needs and what is not there yet before it.

    arranged: values that are waited for, the one to place first last.
    """
    producer = {d: i for i in instructions for d in i.destinations}
    missing = set(producer)  # what is not placed yet
    result: list[Instruction] = []
    for root in roots:
        stack = [root]
        while stack:
            top = stack[-1]
            if top.destinations[0] not in missing:
                stack.pop()
            elif missing.isdisjoint(top.sources):
                missing.difference_update(top.destinations)
                result.append(stack.pop())
            else:
                stack += [producer[s] for s in arranged([s for s in top.sources if s in missing])]
    return result


def _weights(instructions: list[Instruction]) -> dict[int, int]:
    """Registers that a tree of this shape would need, by value (Sethi and Ullman 1970)."""
    weight: dict[int, int] = {}
    for i in instructions:
        needs = sorted([weight.get(s, 0) for s in set(i.sources)], reverse=True)
        need = max(map(add, needs, count()), default=0)
        for d in i.destinations:
            weight[d] = max(need, 1)
    return weight


def _greedy(
    instructions: list[Instruction], outputs: Sequence[int], constants: set[int]
) -> list[Instruction]:
    """Of the instructions that could run, always one that frees most registers, the first of equals."""
    reads = [set(i.sources) - constants for i in instructions]
    final = set(outputs)
    readers: dict[int, list[int]] = {}
    for k, values in enumerate(reads):
        for s in values:
            readers.setdefault(s, []).append(k)
    # of what is yet to read a value: how many, and the sum of their numbers, which of one is its number
    num_readers = Counter({s: len(those) for s, those in readers.items()})
    num_readers.update(final)
    rest = {s: sum(those) for s, those in readers.items()}
    defined = {d for i in instructions for d in i.destinations}
    missing = [len(values & defined) for values in reads]
    growth = [
        len(i.destinations) - sum([num_readers[s] == 1 for s in values])
        for i, values in zip(instructions, reads, strict=True)
    ]
    queue = [(growth[k], k) for k, n in enumerate(missing) if n == 0]
    heapq.heapify(queue)
    is_placed = [False] * len(instructions)
    result: list[Instruction] = []
    while queue:
        _, k = heapq.heappop(queue)
        if is_placed[k]:
            continue
        is_placed[k] = True
        result.append(instructions[k])
        for s in reads[k]:
            num_readers[s] -= 1
            rest[s] -= k
            if num_readers[s] == 1 and s not in final:
                last = rest[s]
                growth[last] -= 1
                if missing[last] == 0:
                    heapq.heappush(queue, (growth[last], last))
        for d in instructions[k].destinations:
            for reader in readers.get(d, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(queue, (growth[reader], reader))
    return result
