"""One graph, optimized several times from the same start: seconds, convergence over time, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.evaluate.runner import Unit

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.optimizer.summary import Iteration, Summary


def units_of(
    entries: tuple[str, str],
    paths: dict[str, Path],
    configurations: Sequence[str],
    peers: Sequence[str],
    options: dict[str, Any],
    runs: int,
    **common: Any,
) -> list[Unit]:
    """One unit per problem and configuration, and per problem and peer.

    entries: functions that make the entry of a configuration, and of a peer. paths: problems by name.
    configurations: names of `solver.configurations`, or "auto". common: more arguments of both functions.
    """
    made = []
    for name, path in paths.items():
        given = {"name": name, "path": str(path), "runs": runs, **common}
        for entry, argument, chosen, more in (
            (entries[0], "configuration", configurations, {"options": options}),
            (entries[1], "peer", peers, {}),
        ):
            made += [Unit(f"{name} {one}", entry, {**given, argument: one, **more}) for one in chosen]
    return made


def timed_peer(solve: Callable[[], tuple[Any, ...]], runs: int) -> tuple[dict[str, Any], list[Any]]:
    """Seconds of the median run of another solver, for an entry, and what else `solve` returned in it."""
    timed = sorted((solve() for _ in range(runs)), key=lambda run: run[0])
    seconds, *rest = timed[(len(timed) - 1) // 2]
    return {"seconds": seconds, "seconds_of_runs": [run[0] for run in timed], "device": "cpu"}, rest


def chi2_before_and_after(graph: Graph, solved: Graph) -> dict[str, float]:
    """In float64 on the CPU, without robust kernels."""
    return {"initial_chi2": graph.chi2(robust=False), "chi2": solved.chi2(robust=False)}


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
    return entry | chi2_before_and_after(graph, solved), solved


def _one(graph: Graph, options: Mapping[str, Any]) -> tuple[dict[str, Any], Graph]:
    import graphopt

    graph = graph.copy()
    clock = Clock()
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


class Clock:
    """A callback that writes down when which chi2 was reached."""

    looks_at_graph = False

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        """Seconds and chi2 after each iteration."""
        self.start = time.perf_counter()

    def __call__(self, done: Iteration) -> None:
        """Write down the time."""
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
