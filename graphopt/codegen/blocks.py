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

Factor = int
"""2 v of value v in an added product, 2 v + 1 in a subtracted one."""
Product = tuple[Factor, Factor]
"""The smaller one first."""
Side = tuple[Factor, ...]
"""A factor of each product of a sum."""


@dataclass(frozen=True, eq=False)
class _Sum:
    """A signed sum of products."""

    position: int
    products: tuple[Product, ...]

    def other_side(self, side: dict[Factor, int]) -> Side | None:
        """Return the factors that belong to those in `side` (factor -> place)."""
        result: list[Factor] = [0] * len(side)
        places = set()
        for x, y in self.products:
            if x not in side:
                x, y = y, x
            place = side.get(x)
            if place is None or place in places or y in side:
                return None
            places.add(place)
            result[place] = y
        return tuple(result)


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
                tuple([factor >> 1 for side in (*rows, *columns) for factor in side]),
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
    factors = [2 * value for value in i.sources[: 2 * counts[0]]]
    factors += [2 * value + 1 for value in i.sources[2 * counts[0] :]]
    return tuple(map(_product, factors[::2], factors[1::2]))


def _product(x: Factor, y: Factor) -> Product:
    return (x, y) if x < y else (y, x)


Block = tuple[list[Side], list[Side], list[list[_Sum]]]
_Lines = list[tuple[Side, list[_Sum]]]


class _Packing:
    """Greedy choice of blocks among sums of one shape."""

    def __init__(self, sums: list[_Sum]):
        self.free = {s.position: s for s in sums}
        self.by_products = {frozenset(s.products): s for s in sums}
        self.by_factor: dict[Factor, list[_Sum]] = {}
        for s in sums:
            for product in s.products:
                for factor in product:
                    self.by_factor.setdefault(factor, []).append(s)

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
        for row in self._sides(s):
            places = _places(row)
            column = s.other_side(places)
            if column is None:
                continue
            columns = self._along(places, column)
            rows = self._along(_places(column), row)
            grid = [[self._member(each_row, other) for other in columns] for each_row in rows]
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
        for product in s.products:
            for factor in product:
                common.update([o.position for o in self.by_factor[factor] if o.position in self.free])
        del common[s.position]
        enough = {position: count for position, count in common.items() if count >= len(s.products)}
        result: list[Side] = []
        for position in sorted(enough, key=enough.__getitem__, reverse=True):
            if len(result) == 2:
                break
            factors = {factor for product in self.free[position].products for factor in product}
            if all((x in factors) != (y in factors) for x, y in s.products):
                side = tuple([x if x in factors else y for x, y in s.products])
                if side not in result:
                    result.append(side)
        return result

    def _along(self, places: dict[Factor, int], first: Side) -> list[Side]:
        """Return the sides that stand opposite to a side in free sums, `first` first."""
        found = [first]
        for s in self.by_factor[next(iter(places))]:
            if len(found) == 2 * LARGEST_SIDE:
                break
            other = s.other_side(places) if s.position in self.free else None
            if other is not None and other not in found:
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

    def _member(self, row: Side, column: Side) -> _Sum | None:
        """Return the free sum of the products of a row and a column."""
        member = self.by_products.get(frozenset(map(_product, row, column)))
        return member if member is not None and member.position in self.free else None


def _places(side: Side) -> dict[Factor, int]:
    return {factor: place for place, factor in enumerate(side)}
