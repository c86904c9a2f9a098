"""`optimize(n, online=True)`: the active part of an optimizer in a `graphopt.Online` that is kept.

While vertices and edges are only added, each call hands over the new ones and takes the estimates back.
After any other change (an edge removed or switched off, another measurement, an estimate that a program has
set) the next call begins anew with what is there then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.g2o.engine.problem import Problem
from graphopt.online import Edges, Online, OnlineReport, Vertices


@dataclass
class _Known:
    """Objects of a list as they were after the last update, and which of them are in it."""

    objects: list[Any]
    mask: np.ndarray
    columns: list[np.ndarray]

    def is_part_of(self, objects: list[Any], mask: np.ndarray, columns: list[np.ndarray]) -> bool:
        """A list has the same objects with the same numbers first, and all that were active still are."""
        count = len(self.objects)
        return (
            objects[:count] == self.objects
            and not (self.mask > mask[:count]).any()
            and all(
                [np.array_equal(then, now[:count]) for then, now in zip(self.columns, columns, strict=True)]
            )
        )


class Incremental:
    """The active part of an optimizer, which grows.

    iterations: steps of an update at most.
    """

    def __init__(self, problem: Problem, iterations: int):
        self._iterations = iterations
        self._online = Online(max_iterations=iterations)
        self._known: tuple[list[_Known], list[_Known]] = [], []
        self._parameters = _parameters(problem)
        for kind, ids, values in self._parameters:
            self._online.add_parameters(kind, ids, values)

    def serves(self, problem: Problem, iterations: int) -> bool:
        """The problem is the last one and what was added to it."""
        then, now = self._parameters, _parameters(problem)
        if iterations != self._iterations or len(then) != len(now):
            return False
        if any(
            a[0] is not b[0] or not (np.array_equal(a[1], b[1]) and np.array_equal(a[2], b[2]))
            for a, b in zip(then, now, strict=True)
        ):
            return False
        lists = _lists(problem)
        return all(
            len(known) <= len(present)
            and all([one.is_part_of(*other) for one, other in zip(known, present, strict=False)])
            for known, present in zip(self._known, lists, strict=True)
        )

    def update(self, problem: Problem) -> OnlineReport:
        """Hand over what is new, and write estimates to the graph; `GraphError`: nothing has changed."""
        lists = _lists(problem)
        new = [_rows_to_add(known, present) for known, present in zip(self._known, lists, strict=True)]
        vertices = [
            Vertices(one.vertex_set.type, one.vertex_set.ids[rows], *(column[rows] for column in columns))
            for one, rows, (_, _, columns) in zip(problem.vertex_lists, new[0], lists[0], strict=True)
            if len(rows)
        ]
        edges = [
            Edges(one.edge_set.type, one.edge_set.vertices[rows], *(column[rows] for column in columns))
            for one, rows, (_, _, columns) in zip(problem.edge_lists, new[1], lists[1], strict=True)
            if len(rows)
        ]
        report = self._online.update(vertices, edges)
        for one, (_, mask, _) in zip(problem.vertex_lists, lists[0], strict=True):
            rows = mask.nonzero()[0]
            if len(rows):
                one.vertex_set.estimate[rows] = self._online.estimate(one.vertex_set.look("ids")[rows])
        known = [
            [
                _Known(list(objects), mask.copy(), [np.array(c) for c in columns])
                for objects, mask, columns in part
            ]
            for part in lists
        ]
        self._known = known[0], known[1]
        return report


def _rows_to_add(known: list[_Known], lists: list[Any]) -> list[np.ndarray]:
    """Per list the rows that are active and were not."""
    found = []
    for number, (_, mask, _) in enumerate(lists):
        fresh = mask.copy()
        if number < len(known):
            fresh[: len(known[number].mask)] &= ~known[number].mask
        found.append(fresh.nonzero()[0])
    return found


def _lists(problem: Problem) -> tuple[list[Any], list[Any]]:
    """(objects, active, arrays as `Vertices` and `Edges` take them) of vertex lists and of edge lists."""
    assert problem.selection is not None
    vertices = [
        (one.objects, active, [one.vertex_set.estimate, fixed])
        for one, active, fixed in zip(
            problem.vertex_lists, problem.selection.active, problem.selection.fixed, strict=True
        )
    ]
    names = ("measurement", "information", "kernel", "kernel_width")
    edges = []
    for one in problem.edge_lists:
        columns = [one.edge_set.look(name) for name in names]
        if one.edge_set.type.parameters:
            columns.append(one.edge_set.look("parameters"))
        edges.append((one.objects, one.mask, columns))
    return vertices, edges


def _parameters(problem: Problem) -> list[tuple[Any, np.ndarray, np.ndarray]]:
    return [(one.type, one.ids.copy(), one.values.copy()) for one in problem.graph.parameter_sets]
