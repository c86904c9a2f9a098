"""Where a warm call of `optimize` on a device leaves the device idle: trips, and what the host does between.

    python benchmarks/trip.py trafalgar-257 PROBLEM.txt [--iterations 2] [--precision double]

A PROBLEM as in calls.py. Of the call with the median time among some warm ones:

    trips    programs by their phases: how often, microseconds of one from its submission to the end of the
             wait for it, of that on the device, and the rest, which is submission and waking up
    gaps     time in which nothing was submitted, by what came before and after: there the host works
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from calls import WARM_UP_SECONDS
from device_resident import graph_of

import graphopt
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.solver.vulkan.program import Program, Running

CALLS = 15
_SHOWN = 14


@dataclass
class Trip:
    """One submitted program."""

    name: str
    submitted: float
    ended: float = np.nan
    """Of the wait for it."""
    device: float = 0.0


@dataclass
class Call:
    """One call: its trips in order, and when it began and ended."""

    trips: list[Trip] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the whole call."""
        return self.ended - self.began

    def gaps(self) -> Iterator[tuple[str, float]]:
        """(before -> after, seconds) in which nothing is under way, as the host sees it."""
        last, free = "start", self.began
        for trip in self.trips:
            if trip.submitted > free:
                yield f"{last} -> {trip.name}", trip.submitted - free
            if np.isfinite(trip.ended) and trip.ended > free:
                last, free = trip.name, trip.ended
        yield f"{last} -> end", self.ended - free


@contextmanager
def noting(call: Call) -> Iterator[None]:
    """Note all programs that are submitted inside."""
    submit, wait = Program.submit, Running.wait
    under_way: dict[int, Trip] = {}

    def noted_submit(self: Program) -> Running:
        start = time.perf_counter()
        running = submit(self)
        phases = [phase for phases, _ in running._submissions for phase in phases]
        trip = Trip("+".join(dict.fromkeys(phases)) or "nothing", start)
        call.trips.append(trip)
        under_way[id(running)] = trip
        return running

    def noted_wait(self: Running, seconds: dict[str, float] | None = None) -> None:
        own: dict[str, float] = {}
        wait(self, own)
        trip = under_way.get(id(self))
        if trip is not None and np.isnan(trip.ended):
            trip.ended, trip.device = time.perf_counter(), sum(own.values())
        for name, value in own.items():
            if seconds is not None:
                seconds[name] = seconds.get(name, 0.0) + value

    Program.submit, Running.wait = noted_submit, noted_wait
    try:
        yield
    finally:
        Program.submit, Running.wait = submit, wait


def one_call(graph: Graph, start: list[np.ndarray], options: dict[str, Any]) -> tuple[Call, Any]:
    """A call from the same start."""
    for vertices, values in zip(graph.vertex_sets, start, strict=True):
        vertices.estimate[...] = values
    call = Call()
    with noting(call):
        call.began = time.perf_counter()
        summary = graphopt.optimize(graph, **options)
        call.ended = time.perf_counter()
    return call, summary


def report(name: str, call: Call, summary: Any) -> None:
    """Print trips and gaps."""
    device = sum(trip.device for trip in call.trips)
    trials = sum(iteration.trials for iteration in summary.iterations)
    phases = ", ".join(f"{k} {1e3 * v:.2f}" for k, v in summary.seconds.items() if v >= 2e-5)
    print(
        f"{name}: {1e3 * call.seconds:.2f} ms, on the device {1e3 * device:.2f} "
        f"({100 * device / call.seconds:.0f} %), {len(summary.iterations)} iterations, "
        f"{trials} trials, chi2 {summary.final_chi2:.10g}; ms: {phases}"
    )
    by_name: dict[str, list[Trip]] = defaultdict(list)
    for trip in call.trips:
        by_name[trip.name].append(trip)
    print(f"  {'trips':58} {'times':>5} {'each us':>9} {'device us':>9} {'rest us':>9} {'rest, all ms':>12}")
    for label, trips in by_name.items():
        walls = np.array([trip.ended - trip.submitted for trip in trips])
        on_device = np.array([trip.device for trip in trips])
        rest = np.nansum(walls - on_device)
        print(
            f"  {label:58} {len(trips):5d} {1e6 * np.nanmean(walls):9.1f} {1e6 * on_device.mean():9.1f} "
            f"{1e6 * rest / len(trips):9.1f} {1e3 * rest:12.3f}"
        )
    gaps: dict[str, list[float]] = defaultdict(list)
    for label, seconds in call.gaps():
        gaps[label].append(seconds)
    print(f"  {'gaps':88} {'times':>5} {'each us':>9} {'all ms':>9}")
    for label, found in sorted(gaps.items(), key=lambda gap: -sum(gap[1]))[:_SHOWN]:
        print(f"  {label:88} {len(found):5d} {1e6 * np.mean(found):9.1f} {1e3 * sum(found):9.3f}")


def main() -> None:
    """Print the tables of each problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--iterations", type=int, help="at most")
    arguments = parser.parse_args()
    options = {"device": arguments.device, "precision": arguments.precision}
    if arguments.iterations is not None:
        options["max_iterations"] = arguments.iterations
    for name in arguments.problems:
        graph = read(name) if Path(name).exists() else graph_of(name)
        start = [vertices.estimate.copy() for vertices in graph.vertex_sets]
        one_call(graph, start, options)
        warm = time.perf_counter() + WARM_UP_SECONDS
        while time.perf_counter() < warm:
            one_call(graph, start, options)
        found = [one_call(graph, start, options) for _ in range(CALLS)]
        call, summary = sorted(found, key=lambda pair: pair[0].seconds)[CALLS // 2]
        report(f"{Path(name).name} {arguments.precision}", call, summary)


if __name__ == "__main__":
    main()
