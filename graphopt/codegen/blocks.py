"""Sums of products that share factors become blocks: matrix products that read every factor once.

H_ab = J_a' (Omega J_b) is sum_r a_ir b_jr for all columns i and j. One by one, each product loads two values;
in a BLOCK of M x N sums it is (M + N) / (M N) values, because a_i and b_j stay in processor registers.

Sums with the same number of terms and the same signs are put together greedily, up to 3 x 3. Sums in one
block must not need each other, nor blocks each other in a circle: a block takes either sums that no other
instruction reads, or sums of the same level (the length of the longest path to them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from graphopt.codegen.bytecode import Instruction

LARGEST_SIDE = 3

Product = tuple[int, int, int]
"""Sign, and two value ids, the smaller first."""


def _key(sign: int, value: int) -> int:
    """One number for a value in an added or a subtracted product."""
    return 2 * value + (sign < 0)


@dataclass(frozen=True, eq=False)
class _Sum:
    """A signed sum of products."""

    position: int
    products: tuple[Product, ...]

    def other_side(self, side: dict[int, int]) -> tuple[int, ...] | None:
        """Return the factors that belong to those in `side` (key -> place)."""
        result: list[int | None] = [None] * len(side)
        for sign, x, y in self.products:
            x, y = (x, y) if _key(sign, x) in side else (y, x)
            place = side.get(_key(sign, x))
            if place is None or result[place] is not None or _key(sign, y) in side:
                return None
            result[place] = y
        return tuple(y for y in result if y is not None)


def form_blocks(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Replace sums of products by blocks where they share factors."""
    result: list[Instruction | None] = list(instructions)
    for (num_pos, num_neg, _), sums in _groups(instructions).items():
        for rows, columns, grid in _Packing(sums).blocks() if len(sums) > 1 else ():
            positions = [s.position for line in grid for s in line]
            first = min(positions)
            block = Instruction(
                "BLOCK",
                tuple([instructions[p].destinations[0] for p in positions]),
                tuple([v for side in (*rows, *columns) for v in side]),
                (len(rows), len(columns), num_pos, num_neg),
            )
            for p in positions:
                result[p] = block if p == first else None
    return [i for i in result if i is not None]


def _groups(instructions: Sequence[Instruction]) -> dict[tuple[int, int, int], list[_Sum]]:
    """Sums of products by shape and by level; level 0: nobody reads them."""
    groups: dict[tuple[int, int, int], list[_Sum]] = {}
    read = {s for i in instructions for s in i.sources}
    level: dict[int, int] = {}
    for position, i in enumerate(instructions):
        depth = 1 + max([level.get(s, 0) for s in i.sources], default=0)
        for d in i.destinations:
            level[d] = depth
        counts = _num_products(i)
        if counts is not None and sum(counts) > 1 and len(set(i.sources)) == len(i.sources):
            key = (*counts, depth if i.destinations[0] in read else 0)
            groups.setdefault(key, []).append(_Sum(position, _products(i, counts)))
    return groups


def _num_products(i: Instruction) -> tuple[int, int] | None:
    """Added and subtracted products of an instruction that has nothing else."""
    if i.name == "SUM":
        assert i.counts is not None
        return None if i.counts[2] or i.counts[3] else (i.counts[0], i.counts[1])
    return _DOTS.get(i.name)


_DOTS = {"DOT2": (2, 0), "DOT3": (3, 0)}


def _products(i: Instruction, counts: tuple[int, int]) -> tuple[Product, ...]:
    signs = [1] * counts[0] + [-1] * counts[1]
    return tuple(map(_product, signs, i.sources[::2], i.sources[1::2]))


def _product(sign: int, x: int, y: int) -> Product:
    return (sign, x, y) if x < y else (sign, y, x)


Side = tuple[int, ...]
Block = tuple[list[Side], list[Side], list[list[_Sum]]]
_Lines = list[tuple[Side, list[_Sum]]]


class _Packing:
    """Greedy choice of blocks among sums of one shape."""

    def __init__(self, sums: list[_Sum]):
        self.free = {s.position: s for s in sums}
        self.by_products = {frozenset(s.products): s for s in sums}
        self.by_value: dict[int, list[_Sum]] = {}
        for s in sums:
            for sign, x, y in s.products:
                self.by_value.setdefault(_key(sign, x), []).append(s)
                self.by_value.setdefault(_key(sign, y), []).append(s)

    def blocks(self) -> list[Block]:
        """Return blocks of two and more sums."""
        result = []
        for s in list(self.free.values()):
            if s.position in self.free:
                block = self._best(s)
                if block is not None:
                    result.append(block)
                    for line in block[2]:
                        for member in line:
                            del self.free[member.position]
        return result

    def _best(self, s: _Sum) -> Block | None:
        """Return the block with `s` that saves most loads."""
        best, best_saving = None, 0
        signs = [sign for sign, _, _ in s.products]
        for row in self._sides(s):
            side = self._signed(s, row)
            column = s.other_side(side)
            if column is None:
                continue
            columns = self._along(side, column)
            rows = self._along(self._signed(s, column), row)
            grid = [[self._member(signs, one, other) for other in columns] for one in rows]
            for count in range(min(LARGEST_SIDE, len(columns)), 0, -1):
                for others in combinations(range(1, len(columns)), count - 1):
                    chosen = (0, *others)  # the first column is that of `s`
                    full = self._lines(grid, rows, chosen)
                    saving = (2 * len(full) * count - len(full) - count) if full else 0
                    if len(full) * count > 1 and saving > best_saving:
                        best_saving = saving
                        sides = [row for row, _ in full], [columns[c] for c in chosen]
                        best = (*sides, [line for _, line in full])
        return best

    def _sides(self, s: _Sum) -> list[Side]:
        """One factor per product, as some other sum has them; at most two choices."""
        common: Counter[int] = Counter()
        for sign, x, y in s.products:
            for value in (_key(sign, x), _key(sign, y)):
                common.update([o.position for o in self.by_value[value] if o.position in self.free])
        del common[s.position]
        enough = {position: count for position, count in common.items() if count >= len(s.products)}
        result: list[Side] = []
        for position in sorted(enough, key=enough.__getitem__, reverse=True):
            if len(result) == 2:
                break
            values = {_key(sign, v) for sign, x, y in self.free[position].products for v in (x, y)}
            if all((_key(sign, x) in values) != (_key(sign, y) in values) for sign, x, y in s.products):
                side = tuple(x if _key(sign, x) in values else y for sign, x, y in s.products)
                if side not in result:
                    result.append(side)
        return result

    @staticmethod
    def _signed(s: _Sum, side: Side) -> dict[int, int]:
        return {_key(sign, v): k for k, ((sign, _, _), v) in enumerate(zip(s.products, side, strict=True))}

    def _along(self, side: dict[int, int], first: Side) -> list[Side]:
        """Return the sides that stand opposite to `side` in free sums, `first` first."""
        found = [first]
        for s in self.by_value[next(iter(side))]:
            if len(found) == 2 * LARGEST_SIDE:
                break
            other = s.other_side(side) if s.position in self.free else None
            if other is not None and len(other) == len(side) and other not in found:
                found.append(other)
        return found

    @staticmethod
    def _lines(grid: Sequence[Sequence[_Sum | None]], rows: list[Side], chosen: Sequence[int]) -> _Lines:
        """Return rows that have every chosen column; of a symmetric product no sum twice."""
        lines: _Lines = []
        used: set[int] = set()
        for row, members in zip(rows, grid, strict=True):
            line = [member for c in chosen if (member := members[c]) is not None]
            positions = {member.position for member in line}
            if len(positions) == len(chosen) and len(lines) < LARGEST_SIDE and not positions & used:
                used |= positions
                lines.append((row, line))
        return lines

    def _member(self, signs: Sequence[int], row: Side, column: Side) -> _Sum | None:
        """Return the free sum of the products of a row and a column."""
        member = self.by_products.get(frozenset(map(_product, signs, row, column)))
        return member if member is not None and member.position in self.free else None
