"""Bundle adjustment: whole calls from fresh objects to each solver's own stop rule, chi2 recomputed."""

from __future__ import annotations

import statistics
from typing import Any

from graphopt.evaluate import peers
from graphopt.reproduce.calls import timed
from graphopt.reproduce.graphs import Source, facts, graph_of
from graphopt.solver.reuse import forget


def measure(graph: Source, device: str, solver: str = "graphopt", repeats: int = 3) -> dict[str, Any]:
    """The entry of a solver: the median time, and chi2 of its answer."""
    problem = graph_of(graph)
    if solver != "graphopt":
        entry = peers.solve(problem, solver, repeats)
        return facts(problem) | {"seconds": {"fresh": entry["seconds"]}, "chi2": entry["chi2"]}
    seconds, chi2, name = [], 0.0, ""
    for _ in range(1 + repeats):
        solved = problem.copy()
        call, summary = timed(solved, {"device": device})
        seconds.append(call)
        chi2, name = float(solved.chi2(robust=False)), summary.device_name
        forget(solved)  # no other copy takes its block solver
    median = {"fresh": statistics.median(seconds[1:])}  # the first run compiles
    return facts(problem) | {"seconds": median, "chi2": chi2, "device_name": name}
