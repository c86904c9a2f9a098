"""What a run on the CPU will take, before it runs: seconds of set-up and of an iteration, memory.

    iteration = linearize + solve + a round of Python
    linearize   edges times what one of a sample takes, measured: up to 20,000 of each edge set
    solve       rows of H, edges of landmarks, flops of pairs, scalars and flops of L, each by a figure

Counts are exact: the system is analyzed as a run would do it, which is most of the set-up. The figures are
fitted to a few generated problems (a second) and kept in the cache folder with their date for a month.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from graphopt import disk_cache
from graphopt.cpu_kernels import isa, kernels
from graphopt.evaluate.datasets import ba, manhattan, sphere
from graphopt.graph import Graph
from graphopt.linear.memory import available_bytes
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import LinearSystem, choose_system
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver, HostEquations

TYPICAL = 10
"""Iterations of a run, of which nobody can know the number."""
_SAMPLE = 20_000
_TRUSTED = 30 * 86400.0  # [s] of figures
_VERSION = 5  # of what is measured
_PRODUCTS = 30.0  # of conjugate gradients per step, a guess: nobody can know
_ROUND = 1e-4  # [s] of Python per iteration
_AHEAD = 1 << 23  # scalars of H up to which a run keeps a second one


@dataclass(frozen=True)
class Plan:
    """What a run takes."""

    setup: float
    """[s] of analysis and preparation."""
    linearize: float
    """[s] per iteration."""
    solve: float
    """[s] per iteration."""
    memory_bytes: int
    available_bytes: int | None
    linear_solver: str
    schur: str
    measured: str
    """Date of the machine's figures."""

    @property
    def iteration(self) -> float:
        """[s] of one."""
        return self.linearize + self.solve + _ROUND

    @property
    def seconds(self) -> float:
        """[s] of a run of `TYPICAL` iterations."""
        return self.setup + TYPICAL * self.iteration

    @property
    def fits(self) -> bool:
        """There is as much memory now."""
        return self.available_bytes is None or self.memory_bytes <= self.available_bytes


def structure_of(graph: Graph) -> Structure:
    """What a run with defaults analyzes."""
    return Structure(fix_gauge(graph, graph.select(), "auto")[0])


def plan(graph: Graph, structure: Structure, analysis: float, options: SolverOptions) -> Plan:
    """Predict a run on the CPU. `SolverError` with the way out where a factor does not fit into memory.

    analysis: what `structure_of` has taken [s].
    """
    start = time.perf_counter()
    system = choose_system(structure, options)
    setup = analysis + time.perf_counter() - start
    figures, date = machine_figures()
    prepare, linearize = _linearize_seconds(graph, structure)
    return Plan(
        setup + prepare,
        linearize,
        float(_counts(structure, system) @ figures),
        _memory(graph, structure, system),
        available_bytes(),
        system.linear_solver,
        system.schur,
        date,
    )


def _counts(structure: Structure, system: LinearSystem) -> np.ndarray:
    """What a solve takes time for: see the module."""
    solver, eliminates = getattr(system, "_solver", None), system.schur != "off"
    rows, edges = float(structure.dim), float(structure.num_edges) if eliminates else 0.0
    pairs = _pair_flops(structure) if system.schur == "explicit" else 0.0
    if system.pcg is not None:
        return np.array([rows, edges, pairs, _PRODUCTS * 2.0 * structure.values_size, 0.0])
    dim = float(structure.kept_dim if eliminates else structure.dim)
    scalars = float(getattr(solver, "num_nonzeros", 0.5 * dim**2))
    return np.array([rows, edges, pairs, scalars, float(getattr(solver, "flops", dim**3 / 3.0))])


def _pair_flops(structure: Structure) -> float:
    """Operations of forming S."""
    degrees = np.diff(structure.pattern.col_ptr)[structure.num_kept :] - 1.0
    block = structure.kept_dim / structure.num_kept
    return float((degrees**2 * structure.dims[structure.num_kept :]).sum()) * block**2


def _memory(graph: Graph, structure: Structure, system: LinearSystem) -> int:
    """Graph, H (twice where a run looks ahead), vectors, factor or S."""
    copies = 2 if structure.values_size <= _AHEAD else 1
    factor = max(system.memory_bytes, int(getattr(getattr(system, "_solver", None), "required_bytes", 0)))
    vectors = 5 * 8 * structure.dim
    return graph.nbytes + structure.nbytes + copies * 8 * structure.values_size + vectors + factor


def _linearize_seconds(graph: Graph, structure: Structure) -> tuple[float, float]:
    """Preparing for, and one pass over all edges, from those of a sample of each set."""
    chosen = {group.edge_set: group.rows[:: -(-len(group.rows) // _SAMPLE)] for group in structure.groups}
    is_whole = sum(map(len, chosen.values())) == structure.num_edges
    sample = structure if is_whole else Structure(graph.select(edges=chosen))
    start = time.perf_counter()
    equations = HostEquations(graph, sample, np.zeros(sample.values_size), np.zeros(sample.dim))
    prepare = time.perf_counter() - start
    share = structure.num_edges / sample.num_edges
    return share * prepare, share * _typical(equations.linearize)


def _typical(work: Callable[[], object], times: int = 5) -> float:
    """Median seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def machine_figures() -> tuple[np.ndarray, str]:
    """Seconds of a unit of each of `_counts`, and their date."""
    entry = f"devices/{_key()}.json"
    stored = disk_cache.load_dated(entry)
    if stored is not None and stored[1] < _TRUSTED:
        record, _ = stored
        return np.array(record["figures"]), record["measured"]
    figures = _measure()
    return figures, disk_cache.store_dated(entry, {"figures": figures.tolist()})


def _key() -> str:
    import hashlib

    from graphopt.evaluate.machine import describe_cpu

    text = f"{_VERSION} {describe_cpu()['name']} {isa} {kernels.num_threads()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _measure() -> np.ndarray:
    """Least squares of relative errors; flops take half of the time where most are done per second."""
    problems: list[Graph] = [
        manhattan(1500, seed=1), manhattan(6000, seed=2), sphere(20, 20, seed=1), sphere(40, 40, seed=2),
        sphere(60, 60, seed=3), ba(12, 2000, seed=1), ba(40, 3000, seed=2), ba(150, 2000, seed=3),
    ]  # fmt: skip
    rows, seconds = [], []
    for graph in problems:
        structure = structure_of(graph)
        solver = CpuBlockSolver(graph, structure, SolverOptions("cpu"))
        solver.linearize()
        damping = 1e-3 * solver.largest_diagonal()
        rows.append(_counts(structure, solver._system))
        seconds.append(_typical(lambda solver=solver, damping=damping: solver.solve(damping)))
    counts, left = np.array(rows), np.array(seconds)
    flop = 0.5 * float(np.min(left / counts[:, -1]))
    rest = left - flop * counts[:, -1]
    found, _ = scipy.optimize.nnls(counts[:, :-1] / rest[:, None], np.ones(len(rest)))
    return np.append(found, flop)
