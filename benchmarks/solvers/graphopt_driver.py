"""graphopt itself, through its public API, `method="auto"` with its own convergence tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from problems import Answer, Estimates

import graphopt


def load(path: Path) -> graphopt.Graph:
    """Read a file."""
    return graphopt.io.read(path)


def solve(path: Path, **options: Any) -> Answer:
    """Optimize a freshly read graph until graphopt's convergence tests stop it."""
    graph = load(path)
    started = time.perf_counter()
    summary = graphopt.optimize(graph, **options)
    seconds = time.perf_counter() - started
    return Answer(estimates(graph), seconds, len(summary.iterations))


def trace(path: Path, **options: Any) -> list[Answer]:
    """Return the estimates after each iteration, with the time spent until then."""
    graph = load(path)
    answers: list[Answer] = []
    spent, resumed = 0.0, time.perf_counter()

    def record(iteration: Any) -> None:
        nonlocal spent, resumed
        spent += time.perf_counter() - resumed
        answers.append(Answer(estimates(graph), spent, iteration.iteration + 1))
        resumed = time.perf_counter()

    graphopt.optimize(graph, callback=record, **options)
    return answers


def estimates(graph: graphopt.Graph) -> Estimates:
    """Return copies of the estimates, by vertex tag."""
    return {
        vertex_set.type.tag: (np.array(vertex_set.ids), np.array(vertex_set.estimate))
        for vertex_set in graph.vertex_sets
    }
