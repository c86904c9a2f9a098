"""One graph, optimized several times from the same start: seconds, convergence over time, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.optimizer.summary import Iteration, Summary


def measure(
    graph: Graph, configuration: str, options: Mapping[str, Any], runs: int
) -> tuple[dict[str, Any], Graph]:
    """Optimize copies of `graph` and return the numbers of the median run, and the graph it made.

    The clock runs around the whole call, set-up included; the first call of a process also compiles and is
    given apart. chi2 is recomputed on the CPU in float64, without robust kernels.
    """
    chosen = solver_options(graph, configuration, options)
    timed = [_one(graph, chosen) for _ in range(runs)]
    seconds = [run["seconds"] for run, _ in timed]
    entry, solved = timed[seconds.index(statistics.median_low(seconds))]
    entry["seconds_of_runs"] = seconds
    entry["initial_chi2"], entry["chi2"] = graph.chi2(robust=False), solved.chi2(robust=False)
    return entry, solved


def _one(graph: Graph, options: Mapping[str, Any]) -> tuple[dict[str, Any], Graph]:
    import graphopt

    graph = graph.copy()
    clock = _Clock()
    several = "," in options.get("device", "auto")
    optimize = graphopt.distributed.optimize if several else graphopt.optimize
    summary = optimize(graph, callback=clock, **options)
    seconds = time.perf_counter() - clock.start
    return {**_facts(summary), "seconds": seconds, "convergence": clock.points}, graph


def solver_options(graph: Graph, configuration: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `optimize` for a configuration of `solver.configurations`, or "auto".

    The configurations are those of bundle adjustment; where nothing is marginalized they are solved without
    Schur.
    """
    from graphopt.linear.options import SolverOptions
    from graphopt.solver.configurations import configured

    if configuration == "auto" or any(vertex_set.marginalized.any() for vertex_set in graph.vertex_sets):
        return {**options, **({} if configuration == "auto" else {"configuration": configuration})}
    known = {name: options[name] for name in ("device", "precision") if name in options}
    chosen = configured(SolverOptions(**known, configuration=configuration))
    return {**options, "device": chosen.device, "linear_solver": chosen.linear_solver, "schur": "off"}


class _Clock:
    """A callback that writes down when which chi2 was reached."""

    looks_at_graph = False

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self.start = time.perf_counter()

    def __call__(self, done: Iteration) -> None:
        self.points.append((time.perf_counter() - self.start, done.chi2))


def _facts(summary: Summary) -> dict[str, Any]:
    document = summary.to_dict()
    taken = (
        "method",
        "linear_solver",
        "schur",
        "device",
        "device_name",
        "precision",
        "schedule",
        "termination",
    )
    return {
        **{name: document[name] for name in taken},
        "iterations": len(summary.iterations),
        "trials": sum(iteration.trials for iteration in summary.iterations),
        "memory_bytes": summary.memory_bytes,
        "phases": document["seconds"],
        "robust_initial_chi2": summary.initial_chi2,
        "robust_chi2": summary.final_chi2,
    }
