"""What a run on the CPU will take, before it runs: seconds of set-up and of an iteration, memory.

    iteration = linearize + solve + a round of Python
    linearize   edges times what one of a sample takes, measured: up to 20,000 of each edge set
    solve       and update: rows of H or S, those whose numbers have left the cache once more, edges of
                landmarks, flops of pairs, scalars and flops of L, each by a figure

Counts are exact: the system is analyzed as a run would do it, which is most of the set-up. The figures are
fitted to iterations of a few generated problems (a few seconds) and kept in the cache folder with their date
for a month, those of a machine that had more to do than it has cores for an hour. The fastest of several
times counts: that of a machine that nothing else keeps busy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.optimize

from graphopt import disk_cache
from graphopt.cpu_kernels import isa, kernels
from graphopt.evaluate.datasets import ba, manhattan, sphere, street
from graphopt.evaluate.solve import Clock
from graphopt.graph import Graph
from graphopt.linear.memory import available_bytes
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import LinearSystem, choose_system
from graphopt.optimizer.optimize import optimize
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import HostEquations

T = TypeVar("T")

TYPICAL = 10
"""Iterations of a run, of which nobody can know the number."""
_SAMPLE = 20_000
_TRUSTED, _TRUSTED_BUSY = 30 * 86400.0, 3600.0  # [s] figures, and those of a machine that was busy
_VERSION = 7  # of what is measured
_PRODUCTS = 30.0  # of conjugate gradients per step, a guess: nobody can know
_ROUND = 1e-4  # [s] of Python per iteration
_CACHED = 1 << 20  # bytes of H and L that stay in a core's cache from one step to the next
_AHEAD = 1 << 23  # scalars of H up to which a run keeps a second one


@dataclass(frozen=True)
class Run:
    """What a run takes, on any device; None: not predicted."""

    device: str
    setup: float | None
    """[s] of analysis and preparation."""
    iteration: float | None
    """[s] of one."""
    memory_bytes: int | None
    available_bytes: int | None

    @property
    def seconds(self) -> float | None:
        """[s] of a run of `TYPICAL` iterations."""
        if self.setup is None or self.iteration is None:
            return None
        return self.setup + TYPICAL * self.iteration

    @property
    def fits(self) -> bool:
        """There is as much memory now."""
        if self.memory_bytes is None or self.available_bytes is None:
            return True
        return self.memory_bytes <= self.available_bytes

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        names = ("device", "setup", "iteration", "seconds", "memory_bytes", "available_bytes", "fits")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Plan(Run):
    """A run on the CPU."""

    linearize: float
    """[s] per iteration."""
    solve: float
    """[s] per iteration."""
    linear_solver: str
    schur: str
    measured: str
    """Date of the machine's figures."""


def structure_of(graph: Graph) -> Structure:
    """What a run with defaults analyzes."""
    return Structure(fix_gauge(graph, graph.select(), "auto")[0])


def load_modules() -> None:
    """Run a graph of two vertices: a process's first run takes some 25 ms more than others."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1], np.zeros((2, 3)))
    graph.add_edges("EDGE_SE2", [[0, 1]], [1.0, 0.0, 0.0], np.eye(3))
    optimize(graph, device="cpu", method="lm", max_iterations=1)


def plan(graph: Graph, structure: Structure, analysis: float, options: SolverOptions) -> Plan:
    """Predict a run on the CPU. `SolverError` with the way out where a factor does not fit into memory.

    analysis: what `structure_of` has taken [s].
    """
    choose, system = fastest(lambda: choose_system(structure, options))
    figures, date = machine_figures()
    prepare, linearize = _linearize_seconds(graph, structure)
    solve = float(_counts(structure, system) @ figures)
    return Plan(
        "cpu",
        analysis + choose + prepare,
        linearize + solve + _ROUND,
        _memory(graph, structure, system),
        available_bytes(),
        linearize,
        solve,
        system.linear_solver,
        system.schur,
        date,
    )


def _counts(structure: Structure, system: LinearSystem) -> np.ndarray:
    """What a solve takes time for: see the module."""
    eliminates, factor = system.schur != "off", system.counts
    rows = float(structure.kept_dim if eliminates else structure.dim)
    edges = float(structure.num_edges) if eliminates else 0.0
    stored = 8.0 * (structure.values_size + factor.scalars)
    far = rows * max(0.0, 1.0 - _CACHED / stored)
    pairs = _pair_flops(structure) if system.schur == "explicit" else 0.0
    if system.pcg is not None:
        return np.array([rows, far, edges, pairs, _PRODUCTS * 2.0 * structure.values_size, 0.0])
    return np.array([rows, far, edges, pairs, factor.scalars, factor.flops])


def _pair_flops(structure: Structure) -> float:
    """Operations of forming S."""
    degrees = np.diff(structure.pattern.col_ptr)[structure.num_kept :] - 1.0
    block = structure.kept_dim / structure.num_kept
    return float((degrees**2 * structure.dims[structure.num_kept :]).sum()) * block**2


def _memory(graph: Graph, structure: Structure, system: LinearSystem) -> int:
    """Graph, H (twice where a run looks ahead), vectors, factor or S."""
    copies = 2 if structure.values_size <= _AHEAD else 1
    vectors = 5 * 8 * structure.dim
    equations = copies * 8 * structure.values_size + vectors
    return graph.nbytes + structure.nbytes + equations + system.counts.nbytes


def _linearize_seconds(graph: Graph, structure: Structure) -> tuple[float, float]:
    """Preparing for, and one pass over all edges, from those of a sample of each set."""
    chosen = {group.edge_set: group.rows[:: -(-len(group.rows) // _SAMPLE)] for group in structure.groups}
    is_whole = sum(map(len, chosen.values())) == structure.num_edges
    sample = structure if is_whole else Structure(graph.select(edges=chosen))

    zeros = np.zeros(sample.values_size), np.zeros(sample.dim)
    prepare, equations = fastest(lambda: HostEquations(graph, sample, *zeros))
    share = structure.num_edges / sample.num_edges
    return share * prepare, share * fastest(equations.linearize)[0]


def fastest(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and the result: of five times, so that what a process loads once does not count.

    What takes long is not repeated.
    """
    seconds: list[float] = []
    while True:
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 5 or sum(seconds) > 0.5:
            return min(seconds), result


def machine_figures() -> tuple[np.ndarray, str]:
    """Seconds of a unit of each of `_counts`, and their date."""
    entry = f"devices/{_key()}.json"
    stored = disk_cache.load_dated(entry)
    if stored is not None:
        record, age = stored
        if age < (_TRUSTED_BUSY if record["was_busy"] else _TRUSTED):
            return np.array(record["figures"]), record["measured"]
    was_busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1)
    figures = _measure()
    return figures, disk_cache.store_dated(entry, {"figures": figures.tolist(), "was_busy": was_busy})


def _key() -> str:
    import hashlib

    from graphopt.evaluate.machine import describe_cpu

    text = f"{_VERSION} {describe_cpu()['name']} {isa} {kernels.num_threads()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fastest_iteration(graph: Graph) -> float:
    """Seconds of an iteration with one trial.

    The first one, which also prepares, does not count, nor does the last, which does not linearize any more.
    """
    clock = Clock()
    summary = optimize(graph, device="cpu", method="lm", max_iterations=6, callback=clock)
    ends = np.array([second for second, _ in clock.points[:-1]])
    return float(np.min(np.diff(ends) / [iteration.trials for iteration in summary.iterations[1:-1]]))


def _measure() -> np.ndarray:
    """Least squares of relative errors; flops take half of the time where most are done per second."""
    problems: list[Graph] = [
        manhattan(1500, seed=1), manhattan(6000, seed=2), manhattan(20000, seed=3), sphere(20, 20, seed=1),
        sphere(40, 40, seed=2), sphere(60, 60, seed=3), ba(12, 2000, seed=1), ba(40, 3000, seed=2),
        ba(150, 2000, seed=3), street(50, 6000, 24_000, seed=1), street(20, 4000, 24_000, seed=2),
    ]  # fmt: skip
    rows, seconds = [], []
    for graph in problems:
        structure = structure_of(graph)
        rows.append(_counts(structure, choose_system(structure, SolverOptions("cpu"))))
        _, linearize = _linearize_seconds(graph, structure)
        fastest = _fastest_iteration(graph)
        seconds.append(max(fastest - linearize - _ROUND, 0.1 * fastest))
    counts, left = np.array(rows), np.array(seconds)
    flop = 0.5 * float(np.min(left / counts[:, -1]))
    rest = left - flop * counts[:, -1]
    found, _ = scipy.optimize.nnls(counts[:, :-1] / rest[:, None], np.ones(len(rest)))
    return np.append(found, flop)
