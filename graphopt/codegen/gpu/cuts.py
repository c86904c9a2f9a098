"""Which values of a function to store so that what is left of it costs least: a minimum cut.

A function is evaluated again and again with some inputs that change (x of a product) and others that do not.
Of the values that depend on the latter only, some are computed once and stored; the function then starts from
them. Per statement that does not change there is one decision, evaluated each time or not, and what it costs
adds up over the edges of a graph:

    each time -> sink            the statement's operations
    value -> its statement       bytes of a stored number: paid where somebody reads the value each time and
                                 its statement is not evaluated
    input -> sink                bytes of a number of an edge's data
    input -> word -> sink        scattered read of 16 bytes of a record, shared by the numbers in it

so the cheapest choice is a minimum cut, and exact. What a GPU takes is not the sum of these but about the
largest of bytes, operations and scattered reads: minimum cuts for a few weights of the three are compared by
that (`Use.cost`).

What a `select` chooses between may have to be computed in wide numbers, from the inputs on: a stored number
would lose what the width is for. So where such a select is evaluated each time, all that its choices depend
on is, too, and costs more:

    select -> wide value -> its statement, -> wide values that it reads, -> sink
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from graphopt.codegen.assignment import Assignment, Statement
from graphopt.codegen.gpu.max_flow import INFINITE, source_side

_FUNCTION_FLOPS = {"RECIP": (8, 20), "SQRT": (8, 25)}
_TRANSCENDENTAL_FLOPS = (24, 100)
"""Instructions in float32 and in float64, roughly; as written in shaders/include/generated_math.glsl."""
_TRANSCENDENTAL = {"SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "EXP", "LOG", "POW", "SINCOS"}
_SAMPLE_READS = {"SAMPLE": 2, "SAMPLE_CUBIC": 4}
_WEIGHTS = ((1.0, 1.0), (0.25, 0.5), (1.0, 0.25), (0.05, 0.1))
"""Of operations and of scattered reads, against bytes; which of them limits is only known afterwards."""


@dataclass(frozen=True)
class Balance:
    """What a device does in the time of one operation in `real`."""

    byte: float = 8.0
    """Operations in the time of a byte of a long array."""
    gather: float = 64.0
    """Operations in the time of a scattered read of 16 bytes."""
    wide: float = 2.0
    """Operations in `real` in the time of one in wide numbers."""


@dataclass(frozen=True)
class Reads:
    """Where a function's inputs come from; numbers of an input that is nowhere here cost nothing."""

    number_bytes: int
    """Of a stored number and of a number of data."""
    data: frozenset[str]
    """Numbers that are read from long arrays."""
    words: Mapping[str, Sequence[tuple[str, int]]]
    """Numbers of records -> what must be read for them, words of the record, and its scattered reads."""
    known: frozenset[str]
    """Inputs that many edges share: what depends on them alone is computed once for all."""
    closed: frozenset[str]
    """Choices of selects that are computed in wide numbers."""
    wide_flops: float = 1.0
    """Operations in `real` in the time of one in wide numbers."""


@dataclass(frozen=True)
class Use:
    """What an evaluation takes."""

    numbers: int
    """Stored ones that it reads."""
    data: int
    """Numbers of data."""
    gathers: int
    flops: float
    """Weighted: divisions, functions and wide numbers count more."""
    operations: int
    """As people count, `Assignment.num_flops`."""
    number_bytes: int
    base_bytes: int = 0
    """Read in any case."""

    @property
    def nbytes(self) -> int:
        """Bytes of long arrays."""
        return self.base_bytes + self.number_bytes * (self.numbers + self.data)

    def cost(self, balance: Balance) -> tuple[float, float]:
        """The largest of bytes, operations and reads, in operations; then their sum, to break ties."""
        parts = (self.nbytes * balance.byte, self.flops, self.gathers * balance.gather)
        return max(parts), sum(parts)


@dataclass(frozen=True)
class Split:
    """A function in two parts."""

    stored: tuple[str, ...]
    """Values that are computed once, in the order of their statements."""
    rest: Assignment
    """What is evaluated each time; it reads the stored values as inputs."""


def changing(assignment: Assignment, inputs: Iterable[str]) -> set[str]:
    """These inputs and every value that depends on them."""
    found = set(inputs)
    for statement in assignment.statements:
        if not found.isdisjoint(statement.names()):
            found.update(statement.targets)
    return found


def best_split(assignment: Assignment, moving: set[str], reads: Reads, balance: Balance) -> Split:
    """The split whose evaluation costs least; moving: what changes, by `changing`."""
    graph = _Graph(assignment, moving, reads)
    found = {graph.cut(balance, *weights) for weights in _WEIGHTS}
    splits = [split_at(assignment, moving, stored) for stored in sorted(found)]
    return min(splits, key=lambda split: use_of(split, reads).cost(balance))


def split_at(assignment: Assignment, moving: set[str], stored: Sequence[str]) -> Split:
    """The function without what only these values need."""
    needed = {v for v in assignment.outputs.values() if isinstance(v, str)}
    kept: list[Statement] = []
    for statement in reversed(assignment.statements):
        wanted = needed.intersection(statement.targets) - set(stored)
        if wanted or not moving.isdisjoint(statement.targets):
            kept.append(statement)
            needed.update(statement.names())
    kept.reverse()
    inside = {t for s in kept for t in s.targets}
    used = {n for s in kept for n in s.names()} | needed
    ordered = [t for s in assignment.statements for t in s.targets]
    chosen = tuple(name for name in ordered if name in stored and name in used and name not in inside)
    return Split(chosen, Assignment(tuple(kept), assignment.outputs))


def wide_values(assignment: Assignment, closed: Set[str]) -> set[str]:
    """Values that are computed in wide numbers; closed: choices of selects that have to be."""
    return assignment.cone(assignment.choices() & closed)


def use_of(split: Split, reads: Reads, base_bytes: int = 0, base_gathers: int = 0) -> Use:
    """What evaluating the rest takes; base: what is read in any case."""
    inputs = split.rest.inputs() - set(split.stored)
    wide = wide_values(split.rest, reads.closed)
    known = set(reads.known)
    flops, gathers = 0.0, 0
    for statement in split.rest.statements:
        if set(statement.names()) <= known:
            known.update(statement.targets)
            continue
        flops += weight_of(statement, reads, not wide.isdisjoint(statement.targets))
        gathers += _SAMPLE_READS.get(statement.operation, 0)
    words = dict(word for name in inputs for word in reads.words.get(name, ()))
    return Use(
        numbers=len(split.stored),
        data=len(inputs & reads.data),
        gathers=base_gathers + gathers + sum(words.values()),
        flops=flops,
        operations=split.rest.num_flops,
        number_bytes=reads.number_bytes,
        base_bytes=base_bytes,
    )


def weight_of(statement: Statement, reads: Reads, is_wide: bool) -> float:
    """Operations of a statement in `real`; functions and wide numbers count more."""
    name = statement.operation
    few, many = _TRANSCENDENTAL_FLOPS if name in _TRANSCENDENTAL else _FUNCTION_FLOPS.get(name, (0, 0))
    flops = many if is_wide or reads.number_bytes == 8 else few
    return (flops or max(statement.num_flops, 1)) * (reads.wide_flops if is_wide else 1.0)


class _Graph:
    """The graph of the module's header; its capacities depend on the weights."""

    def __init__(self, assignment: Assignment, moving: set[str], reads: Reads):
        self._reads, self._moving = reads, moving
        self._nodes: dict[tuple[str, str], int] = {}
        self._edges: dict[tuple[int, int], tuple[str, float]] = {}
        self._source, self._sink = self._node("", "source"), self._node("", "sink")
        steady = [s for s in assignment.statements if moving.isdisjoint(s.targets)]
        self._made_by = {t: s.targets[0] for s in steady for t in s.targets}
        known = set(reads.known)
        for statement in assignment.statements:
            is_known = set(statement.names()) <= known
            if is_known:
                known.update(statement.targets)
            place = self._place(statement)
            if place != self._source:
                self._cost(statement, place, is_known)
            for name in statement.names():
                if name not in moving:
                    self._reads_value(place, name)
            for name in reads.closed.intersection(statement.names()):
                if statement.operation == "SELECT":
                    self._needs_wide(place, assignment.cone([name]) if name in moving else {name})
        for value in assignment.outputs.values():
            if isinstance(value, str) and value not in moving:
                self._reads_value(self._source, value)

    def _node(self, kind: str, name: str) -> int:
        return self._nodes.setdefault((kind, name), len(self._nodes))

    def _place(self, statement: Statement) -> int:
        """The source for statements that are evaluated each time in any case."""
        first = statement.targets[0]
        return self._source if first in self._moving else self._node("statement", first)

    def _cost(self, statement: Statement, place: int, is_known: bool) -> None:
        flops, more = (0.0 if is_known else weight_of(statement, self._reads, wide) for wide in (False, True))
        self._edges[place, self._sink] = "flops", flops
        wide = self._node("wide", statement.targets[0])
        self._edges[wide, place] = "never", 1.0
        self._edges[wide, self._sink] = "flops", more - flops
        self._needs_wide(wide, statement.names())
        samples = _SAMPLE_READS.get(statement.operation, 0)
        if samples:
            pixels = self._node("pixels", statement.targets[0])
            self._edges[place, pixels] = "never", 1.0
            self._edges[pixels, self._sink] = "gather", float(samples)

    def _needs_wide(self, place: int, names: Iterable[str]) -> None:
        for name in names:
            if name in self._made_by:
                self._edges[place, self._node("wide", self._made_by[name])] = "never", 1.0

    def _reads_value(self, place: int, name: str) -> None:
        reads = self._reads
        if name in self._made_by:
            maker = self._node("statement", self._made_by[name])
            value = self._node("value", name)
            self._edges[place, value] = "never", 1.0
            self._edges[value, maker] = "byte", float(reads.number_bytes)
        elif name in reads.data or name in reads.words:
            needs = [("gather", *word) for word in reads.words.get(name, ())]
            for kind, needed, size in needs or [("byte", name, reads.number_bytes)]:
                value = self._node("input", needed)
                self._edges[place, value] = "never", 1.0
                self._edges[value, self._sink] = kind, float(size)

    def cut(self, balance: Balance, flops_weight: float, gather_weight: float) -> tuple[str, ...]:
        """Values to store where operations and scattered reads have these weights."""
        units = {
            "flops": flops_weight,
            "gather": balance.gather * gather_weight,
            "byte": balance.byte,
            "never": INFINITE,
        }
        edges = [(a, b, units[kind] * amount) for (a, b), (kind, amount) in self._edges.items()]
        reached = source_side(len(self._nodes), edges, self._source, self._sink)
        return tuple(
            sorted(
                name
                for (kind, name), number in self._nodes.items()
                if kind == "value"
                and number in reached
                and self._node("statement", self._made_by[name]) not in reached
            )
        )
