"""Whole calls of `optimize`, from arrays in memory to arrays in memory: the first, and later ones.

    python benchmarks/calls.py venice-1778 PROBLEM.txt [--device vulkan] [--precision double]
    python benchmarks/calls.py ladybug-969 --profile     # and which functions of Python take the time

A PROBLEM is a graph file, or a published size that ../shared/tools/synthetic_bal.py makes. The first call of
a graph sets up; later ones have other estimates of the same structure. Per precision: milliseconds of the
first call, the median of four later ones, and the phases of the last; iterations, trials, chi2.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from pathlib import Path
from typing import Any

import numpy as np
from device_resident import graph_of

import graphopt
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.optimizer.summary import Summary

LATER = 4


def calls(graph: Graph, later: int, **options: Any) -> tuple[list[float], Summary]:
    """Seconds of the first call and of `later` ones, each from the same start, and what the last did."""
    start = [vertices.estimate.copy() for vertices in graph.vertex_sets]
    seconds = []
    for _ in range(1 + later):
        for vertices, values in zip(graph.vertex_sets, start, strict=True):
            vertices.estimate[...] = values
        began = time.perf_counter()
        summary = graphopt.optimize(graph, **options)
        seconds.append(time.perf_counter() - began)
    for vertices, values in zip(graph.vertex_sets, start, strict=True):
        vertices.estimate[...] = values
    return seconds, summary


def main() -> None:
    """Print one line per problem and precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", action="append", choices=("double", "mixed"))
    parser.add_argument("--profile", action="store_true", help="one more call under cProfile")
    arguments = parser.parse_args()
    for name in arguments.problems:
        graph = read(name) if Path(name).exists() else graph_of(name)
        for precision in arguments.precision or ("double", "mixed"):
            seconds, summary = calls(graph, LATER, device=arguments.device, precision=precision)
            phases = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in summary.seconds.items() if v >= 2e-4)
            print(
                f"{Path(name).name} {precision}: first {1e3 * seconds[0]:.1f} ms, later "
                f"{1e3 * np.median(seconds[1:]):.1f}; {len(summary.iterations)} iterations, "
                f"{sum(one.trials for one in summary.iterations)} trials, chi2 {summary.final_chi2:.8g}, "
                f"{summary.linear_solver} {summary.schur} on {summary.device_name}; ms: {phases}",
                flush=True,
            )
            if arguments.profile:
                profile = cProfile.Profile()
                profile.runcall(graphopt.optimize, graph, device=arguments.device, precision=precision)
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
