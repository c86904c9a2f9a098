"""Partial common sub-expressions: what sums, or products, of three and more operands have in common.

Hash-consing shares equal expressions, but a + b + c and a + d + c are different, although both need a + c.
Here sums and products are taken as n-ary: a chain of additions and subtractions that nobody else reads is one
set of signed terms, a chain of multiplications one set of factors. Then, as in Caspar (E. Martens et al.,
"Common Partial Subexpression Elimination"),

    while a pair occurs in two or more sets: make the most frequent pair an expression of its own and put it
    into those sets; where a set is that pair, it is used itself

Each round saves (occurrences - 1) operations. Longer sub-expressions are found as pairs of pairs. Pairs are
counted in an index from pair to sets that is updated as sets change, and a heap gives the most frequent one:
the effort is the number of pairs, that is linear in the number of sets, whose size is limited.

A difference inside a sum keeps its parentheses, unless it is one of products: moving terms between (a - b)
and (c - d) would lose digits where the differences are small.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from operator import is_, itemgetter

from graphopt.symbolic.expr import Expr, Roots, const, make

SMALLEST_SAVING = 0.01
"""Of all additions, subtractions and multiplications of a program."""
_MAX_OPERANDS = 24
_SIGNS = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}

Operand = tuple[int, int]
"""Sign (of products always 1) and the id of an expression, or a negative number for a pair."""
Pair = tuple[int, int, int]
"""Two ids, the smaller first, and the sign of the second where the first has sign 1."""
_Sets = dict[int, list[Operand]]


def share_partial(outputs: Sequence[Expr]) -> Roots:
    """`outputs` with partial common sub-expressions shared; the same objects where that saves too little.

    A shared value occupies a register for longer: to save less than SMALLEST_SAVING is not worth it.
    """
    roots = Roots.of(outputs)
    num_before = num_arithmetic(roots.nodes)
    sums, products = _collect(roots.nodes, {e.id for e in roots})
    sharings = {"sum": _Sharing(sums, -1)}
    sharings["product"] = _Sharing(products, sharings["sum"].next_id)
    if sum(s.num_saved for s in sharings.values()) < max(1, SMALLEST_SAVING * num_before):
        return roots
    result = _Rebuild(roots.nodes, sharings).outputs(roots)
    return result if num_arithmetic(result.nodes) < num_before else roots


def num_arithmetic(nodes: Sequence[Expr]) -> int:
    """Additions, subtractions and multiplications; a sign costs nothing, it becomes part of a sum."""
    return sum([e.op in ("add", "sub", "mul") for e in nodes])


def _collect(nodes: list[Expr], outputs: set[int]) -> tuple[_Sets, _Sets]:
    """Return the n-ary sums and products by the id of their last operation."""
    uses = Counter([a.id for e in nodes for a in e.args])
    private = {i for i, n in uses.items() if n == 1} - outputs
    sums: _Sets = {}
    products: _Sets = {}  # without constants, which `make` moves to the outside
    closed: set[int] = set()  # sums that keep their parentheses
    inner: set[int] = set()
    for e in nodes:
        operands: list[Operand] = []
        if e.op == "mul":
            x, y = e.args
            if x.op == "const" or y.op == "const":
                continue
            for a in e.args:
                if a.id in products and a.id in private:
                    operands += products[a.id]
                    inner.add(a.id)
                else:
                    operands.append((1, a.id))
            products[e.id] = operands
        elif e.op in _SIGNS:
            is_open = True
            for sign, a in zip(_SIGNS[e.op], e.args, strict=False):
                if a.op in _SIGNS and a.id in private and a.id not in closed:
                    operands += [(sign * s, i) for s, i in sums[a.id]]
                    inner.add(a.id)
                else:
                    operands.append((sign, a.id))
                    is_open &= a.op == "mul"
            sums[e.id] = operands
            if e.op == "sub" and not is_open:
                closed.add(e.id)
    return _useful(sums, inner), _useful(products, inner)


def _useful(sets: _Sets, inner: set[int]) -> _Sets:
    """Complete sets, if there is one of three or more operands."""
    sets = {o: s for o, s in sets.items() if o not in inner and 2 <= len(s) <= _MAX_OPERANDS}
    return sets if any(len(s) > 2 for s in sets.values()) else {}


class _Sharing:
    """Greedy sharing over sets of one kind, which it changes in place."""

    def __init__(self, sets: _Sets, next_id: int):
        self.sets = sets
        self.pairs: dict[int, Pair] = {}
        self.changed: set[int] = set()
        self.num_saved = 0
        self.next_id = next_id
        self.index: dict[Pair, set[int]] = {}
        frequent = Counter([i for operands in sets.values() for _, i in operands])
        self.shared = {i for i, n in frequent.items() if n > 1}
        for owner, operands in sets.items():
            common = [o for o in operands if o[1] in self.shared]
            if len(common) > 1:
                self._count(owner, _pairs(common))
        self.queue = [(-len(owners), pair) for pair, owners in self.index.items() if len(owners) > 1]
        heapq.heapify(self.queue)
        while self.queue:
            self._share_next()

    def _count(self, owner: int, pairs: set[Pair]) -> None:
        for pair in pairs:
            self.index.setdefault(pair, set()).add(owner)

    def _share_next(self) -> None:
        """Share the most frequent pair, if it still occurs as often as when it was queued."""
        count, pair = heapq.heappop(self.queue)
        owners = sorted(self.index.get(pair, ()))
        if len(owners) < 2 or all(len(self.sets[o]) == 2 for o in owners):
            return
        if len(owners) != -count:
            heapq.heappush(self.queue, (-len(owners), pair))
            return
        self.num_saved += len(owners) - 1
        whole = next((o for o in owners if len(self.sets[o]) == 2), None)
        if whole is not None:  # a set that is this pair; its sign is that of its first operand
            name, sign = whole, _sign(self.sets[whole], pair)
        else:
            name, sign = self.next_id, 1
            self.next_id -= 1
            self.pairs[name] = pair
        self.shared.add(name)
        touched: set[Pair] = set()
        for owner in owners:
            operands = self.sets[owner]
            if len(operands) == 2:
                continue
            before = _pairs([o for o in operands if o[1] in self.shared])
            self.sets[owner] = operands = _replace(operands, pair, (sign * _sign(operands, pair), name))
            self.changed.add(owner)
            after = _pairs([o for o in operands if o[1] in self.shared])
            for gone in before - after:
                self.index.get(gone, set()).discard(owner)
            self._count(owner, after - before)
            touched |= after - before
        self.index.pop(pair, None)
        for new in touched:
            if len(self.index[new]) > 1:
                heapq.heappush(self.queue, (-len(self.index[new]), new))


def _pairs(operands: list[Operand]) -> set[Pair]:
    ordered = sorted(operands, key=itemgetter(1))
    return {(i, j, s * t) for (s, i), (t, j) in combinations(ordered, 2)}


def _find(operands: list[Operand], pair: Pair) -> tuple[int, int]:
    """Return the places of a pair in a set."""
    first, second, relative = pair
    for a, (s, i) in enumerate(operands):
        if i == first:
            for b, (t, j) in enumerate(operands):
                if a != b and j == second and s * t == relative:
                    return a, b
    raise ValueError(f"pair {pair} is not in {operands}")


def _sign(operands: list[Operand], pair: Pair) -> int:
    """Sign with which a pair stands in a set."""
    return operands[_find(operands, pair)[0]][0]


def _replace(operands: list[Operand], pair: Pair, by: Operand) -> list[Operand]:
    a, b = _find(operands, pair)
    low, high = min(a, b), max(a, b)
    return [*operands[:low], by, *operands[low + 1 : high], *operands[high + 1 :]]


class _Rebuild:
    """Expressions made again from changed sets."""

    def __init__(self, nodes: list[Expr], sharings: dict[str, _Sharing]):
        self.old = {e.id: e for e in nodes}
        self.new: dict[int, Expr] = {}  # what differs from `old`, and what was needed before its turn
        self.turn = -1
        self.pairs = {i: (kind, pair) for kind, s in sharings.items() for i, pair in s.pairs.items()}
        self.changed = {i: (kind, s.sets[i]) for kind, s in sharings.items() for i in s.changed}
        for e in nodes:
            self.turn = e.id
            if e.id not in self.new and (
                e.id in self.changed or not self.new.keys().isdisjoint([a.id for a in e.args])
            ):
                self._build(e)
        self.turn += 1

    def outputs(self, outputs: Sequence[Expr]) -> Roots:
        """Return what became of these expressions."""
        return Roots([self._value(e.id) for e in outputs])

    def _value(self, identity: int) -> Expr:
        if identity in self.new:
            return self.new[identity]
        if identity < 0:
            kind, (first, second, relative) = self.pairs[identity]
            self.new[identity] = self._join(kind, [(1, first), (relative, second)])
            return self.new[identity]
        e = self.old[identity]
        return e if identity < self.turn or not e.args else self._build(e)

    def _build(self, e: Expr) -> Expr:
        if e.id in self.changed:
            result = self._join(*self.changed[e.id])
        else:
            args = [self._value(a.id) for a in e.args]
            result = e if all(map(is_, args, e.args)) else make(e.op, *args)
        if result is not e:
            self.new[e.id] = result
        return result

    def _join(self, kind: str, operands: list[Operand]) -> Expr:
        result = const(1.0 if kind == "product" else 0.0)
        for sign, identity in operands:
            op = "mul" if kind == "product" else "add" if sign > 0 else "sub"
            result = make(op, result, self._value(identity))
        return result
