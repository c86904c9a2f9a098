"""Long sums as accumulators: terms join when they are ready, so that not all of them are alive at once.

Caspar's accumulators: a sum of products is a set of contributions in any order. Instructions and
contributions are scheduled together, greedily by the registers that each step frees; contributions to one sum
that end up next to each other become one SUM again, which takes up the sum so far as its first term.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.liveness import count_uses, max_live

SHORTEST = 3
"""Sums of fewer contributions stay as they are."""

_FIXED = {"DOT2": (2, 0, 0, 0), "DOT3": (3, 0, 0, 0), "FMA": (1, 0, 1, 0)}


@dataclass(frozen=True)
class _Step:
    """An instruction, or one contribution to a sum."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    """Of a contribution the sum, which is ready after its last one."""
    instruction: Instruction | None
    sign: int = 1


def accumulate(
    instructions: Sequence[Instruction], outputs: Sequence[int], constants: set[int]
) -> list[Instruction]:
    """The same program in another order, with long sums in several pieces where that frees registers."""
    steps = [step for i in instructions for step in _steps(i)]
    candidates = [_fuse(_schedule(steps, outputs, constants, newest)) for newest in (True, False)]
    return min(candidates, key=lambda c: max_live(c, outputs, constants))


def _counts(i: Instruction) -> tuple[int, int, int, int] | None:
    if i.name == "SUM":
        return i.counts
    return _FIXED.get(i.name)


def _steps(i: Instruction) -> list[_Step]:
    counts = _counts(i)
    if counts is None or sum(counts) < SHORTEST:
        return [_Step(i.sources, i.destinations, i)]
    pos, neg, plus, _ = counts
    pairs = [i.sources[2 * k : 2 * k + 2] for k in range(pos + neg)]
    terms = [(x,) for x in i.sources[2 * (pos + neg) :]]
    signs = [1 if k < pos else -1 for k in range(len(pairs))]
    signs += [1 if k < plus else -1 for k in range(len(terms))]
    return [_Step(s, i.destinations, None, sign) for s, sign in zip([*pairs, *terms], signs, strict=True)]


def _schedule(steps: list[_Step], outputs: Sequence[int], constants: set[int], newest: bool) -> list[_Step]:
    """Of the steps that could run, always one that frees most registers.

    Of equals the one that reads what is newest, or the oldest step.
    """
    uses = count_uses(steps, outputs)
    readers: dict[int, list[int]] = {}
    missing = []
    unfinished = Counter(d for step in steps for d in step.destinations)
    for k, step in enumerate(steps):
        waiting = [s for s in dict.fromkeys(step.sources) if s in unfinished]
        missing.append(len(waiting))
        for s in dict.fromkeys(step.sources):
            readers.setdefault(s, []).append(k)
    counts = [Counter(step.sources) for step in steps]
    begun: set[int] = set()
    siblings: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        if step.instruction is None:
            siblings.setdefault(step.destinations[0], []).append(k)

    def growth(k: int) -> int:
        freed = sum(1 for s, n in counts[k].items() if s not in constants and uses[s] == n)
        return sum(d not in begun for d in steps[k].destinations) - freed

    born: dict[int, int] = {}

    def rank(k: int) -> tuple[int, int, int]:
        age = -max((born.get(s, -1) for s in steps[k].sources), default=-1) if newest else 0
        return growth(k), age, k

    queue = [rank(k) for k, n in enumerate(missing) if n == 0]
    heapq.heapify(queue)
    placed = [False] * len(steps)
    result: list[_Step] = []
    while queue:
        *_, k = top = heapq.heappop(queue)
        if placed[k]:
            continue
        if rank(k) != top:  # things have changed since
            heapq.heappush(queue, rank(k))
            continue
        placed[k] = True
        step = steps[k]
        result.append(step)
        again: list[int] = []
        for s, n in counts[k].items():
            uses[s] -= n
            if s not in constants and uses[s] > 0:
                again += [r for r in readers[s] if uses[s] == counts[r][s]]
        for d in step.destinations:
            if d not in begun:
                begun.add(d)
                born[d] = len(result)
                again += siblings.get(d, ())
            unfinished[d] -= 1
            if unfinished[d] == 0:
                for reader in readers.get(d, ()):
                    missing[reader] -= 1
                    again.append(reader)
        for reader in again:
            if not placed[reader] and missing[reader] == 0:
                heapq.heappush(queue, rank(reader))
    return result


def _fuse(steps: list[_Step]) -> list[Instruction]:
    """Runs of contributions to one sum as one instruction each."""
    remaining = Counter(step.destinations[0] for step in steps if step.instruction is None)
    so_far: dict[int, int] = {}
    result: list[Instruction] = []
    at = 0
    while at < len(steps):
        step = steps[at]
        if step.instruction is not None:
            result.append(step.instruction)
            at += 1
            continue
        target = step.destinations[0]
        end = at
        while end < len(steps) and steps[end].instruction is None and steps[end].destinations[0] == target:
            end += 1
        remaining[target] -= end - at
        # a fresh id for a part of the sum, below those that `lower` makes
        name = target if remaining[target] == 0 else -(1 << 48) - len(result)
        result.append(_sum(name, steps[at:end], so_far.get(target)))
        so_far[target] = name
        at = end
    return result


def _sum(name: int, steps: list[_Step], before: int | None) -> Instruction:
    parts = [
        [s.sources for s in steps if len(s.sources) == size and s.sign == sign]
        for size in (2, 1)
        for sign in (1, -1)
    ]
    if before is not None:
        parts[2].insert(0, (before,))
    counts = (len(parts[0]), len(parts[1]), len(parts[2]), len(parts[3]))
    sources = tuple(s for part in parts for group in part for s in group)
    special = {
        (1, 0, 0, 0): "MUL",
        (0, 0, 1, 0): None,
        (0, 0, 2, 0): "ADD",
        (0, 0, 1, 1): "SUB",
        (0, 0, 0, 1): "NEG",
        (1, 0, 1, 0): "FMA",
        (0, 1, 1, 0): "FNMA",
        (2, 0, 0, 0): "DOT2",
        (3, 0, 0, 0): "DOT3",
    }.get(counts)
    if special is not None:
        return Instruction(special, (name,), sources)
    return Instruction("SUM", (name,), sources, counts)
