"""An order of statements in which few values are alive, and reads where they are needed first.

A kernel's registers decide how many of its invocations a GPU holds at a time, and so how much of the waiting
for memory they hide. Compilers keep near the order of the text. So a statement comes when it ends the life of
most values for those that it starts (list scheduling), with a leaning towards values made last; of several
attempts that with the fewest values at a time is taken. What a statement computes is the same in any order.

The order as it was is no candidate, even where it counts fewer values: of the product at BAL points it counts
fewer, and for NVIDIA's compiler it takes 82 registers for 72 (with Huber's kernel 96 for 80).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.codegen.assignment import Assignment, Statement
from graphopt.codegen.gpu.kept_orders import kept

MOST_ATTEMPTS, LEAST_ATTEMPTS = 24, 8
WORK = 220_000
"""Of all attempts, each the square of the number of statements: some 0.03 s, once for a cache folder."""
_LEANINGS = (0.5, 1.0, 3.0)
"""Values that it may cost to go on with what was made last, by attempt."""
_NOISE = 0.3
"""Of choices between statements that cost the same."""


def with_few_live(assignment: Assignment, words: Mapping[str, int]) -> Assignment:
    """The same statements in another order.

    words: of inputs that are read together, the number of the word. Other inputs are at hand all the time.
    The same arguments give the same order, which is kept on disk. Statements so many that `WORK`
    leaves few attempts stay as they are.
    """
    num = len(assignment.statements)
    attempts = min(MOST_ATTEMPTS, WORK // max(num, 1) ** 2)
    if attempts < LEAST_ATTEMPTS:
        return assignment

    def find() -> dict[str, list[int]]:
        return {"order": _best(_Graph(assignment.statements, words), attempts)}

    plain = [tuple(statement) for statement in assignment.statements]
    order = kept(("order", plain, sorted(words.items())), find).get("order", [])
    if sorted(order) != list(range(num)):  # somebody else's file
        order = find()["order"]
    return replace(assignment, statements=tuple([assignment.statements[i] for i in order]))


def _best(graph: _Graph, attempts: int) -> list[int]:
    """The order of the attempt with the fewest values alive."""
    best, order = (math.inf, math.inf), list(range(graph.num))
    for number in range(attempts):
        attempt = _Attempt(graph, number)
        if attempt.run(best):
            best, order = (attempt.most, attempt.total), attempt.done
    return order


class _Graph:
    """Statements by number, and who makes and reads what."""

    def __init__(self, statements: Sequence[Statement], words: Mapping[str, int]):
        made = {target: i for i, statement in enumerate(statements) for target in statement.targets}
        self.num = len(statements)
        self.words = words
        self.reads = [[n for n in sorted(set(s.names())) if n in words or n in made] for s in statements]
        """Values whose life counts."""
        self.readers: dict[str, list[int]] = {}
        for i, names in enumerate(self.reads):
            for name in names:
                self.readers.setdefault(name, []).append(i)
        self.targets = [[target for target in s.targets if target in self.readers] for s in statements]
        """Values that are read."""
        self.in_word: dict[int, list[str]] = {}
        for name, word in words.items():
            if name in self.readers:
                self.in_word.setdefault(word, []).append(name)


class _Attempt:
    """One order."""

    def __init__(self, graph: _Graph, number: int):
        self._graph, self._random = graph, random.Random(number)
        self._leaning = _LEANINGS[number % len(_LEANINGS)] / graph.num if graph.num else 0.0
        self._left = {name: len(readers) for name, readers in graph.readers.items()}
        self._open = [sum(name not in graph.words for name in names) for names in graph.reads]
        """Values that a statement waits for."""
        self._place: dict[str, int] = {}
        self._read: set[int] = set()
        self._alive = self.most = self.total = 0
        """Values alive: most at a time, and their sum over all statements."""
        self.done: list[int] = []

    def run(self, best: tuple[float, float]) -> bool:
        """Whether it beats the best attempt so far; given up where it cannot."""
        ready = [i for i, num in enumerate(self._open) if num == 0]
        while ready:
            chosen = min(ready, key=self._price)
            ready.remove(chosen)
            ready += self.take(chosen)
            if (self.most, self.total) >= best:
                return False
        return True

    def _price(self, i: int) -> float:
        recent = max((self._place.get(name, -1) for name in self._graph.reads[i]), default=-1)
        return self._begins(i) - self._ends(i) - self._leaning * recent + _NOISE * self._random.random()

    def _begins(self, i: int) -> int:
        """Values whose life a statement starts: its own, and those of the words that it reads first."""
        graph = self._graph
        new = {graph.words[name] for name in graph.reads[i] if name in graph.words} - self._read
        return len(graph.targets[i]) + sum(len(graph.in_word[word]) for word in new)

    def _ends(self, i: int) -> int:
        return sum(self._left[name] == 1 for name in self._graph.reads[i])

    def take(self, i: int) -> list[int]:
        """The next statement; those that are ready now."""
        graph, ready, begun = self._graph, list[int](), self._begins(i)
        self.most = max(self.most, self._alive + begun)
        self._alive += begun - self._ends(i)
        self.total += self._alive
        for name in graph.reads[i]:
            self._left[name] -= 1
            if name in graph.words:
                self._read.add(graph.words[name])
        for target in graph.targets[i]:
            self._place[target] = len(self.done)
            for reader in graph.readers[target]:
                self._open[reader] -= 1
                if self._open[reader] == 0:
                    ready.append(reader)
        self.done.append(i)
        return ready


_DECLARED = re.compile(r"const (?!uint\b)\w+ (\w+) = ")
_NAME = re.compile(r"[A-Za-z_]\w*")


def where_needed(
    reads: Sequence[str], lines: Sequence[str], additions: Sequence[tuple[str, str]]
) -> list[str]:
    """Text of reads and statements, with each read before the first line that needs it.

    Rows of records stay in front. additions: values, and the lines that follow where these are known.
    """
    waiting = {found[1]: line for line in reads if (found := _DECLARED.match(line))}
    text = [line for line in reads if not _DECLARED.match(line)]
    adding: dict[str, list[str]] = {}
    for value, line in additions:
        adding.setdefault(value, []).append(line)

    def bring(statement: Sequence[str]) -> None:
        for line in statement:
            for name in _NAME.findall(line):
                if name in waiting:
                    bring([waiting.pop(name)])
        text.extend(statement)

    for statement in _statements(lines):
        bring(statement)
        found = _DECLARED.match(statement[0])
        text += adding.pop(found[1], []) if found else []
    for rest in adding.values():
        bring(rest)
    return text


def _statements(lines: Sequence[str]) -> Iterator[list[str]]:
    """Long ones take several lines."""
    statement: list[str] = []
    for line in lines:
        statement.append(line)
        if line.rstrip().endswith((";", "{", "}")):
            yield statement
            statement = []
    if statement:
        yield statement
