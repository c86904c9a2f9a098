"""Times of the linear solvers on the structures of real graphs, beside their floors.

    python benchmarks/linear.py [--data FOLDER] [--repeats N] [--json FILE] [NAME ...]

The structure (block pattern) is that of the file's graph with its first pose fixed; the numbers are a
random, diagonally dominant matrix, so that only the linear algebra is timed. The floor of a factorisation is
its number of operations over the measured rate of the dense kernel (a dense factorisation that fits into the
cache) times the number of threads. Times are minima over the repeats; the load of the machine before and
after is printed, since other work on the cores shows up in every figure.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphopt.cpu_kernels import isa, kernels
from graphopt.linear import BlockPattern, DenseCholesky, Pcg, SchurComplement, SparseCholesky

DIMS = {"VERTEX_SE2": 3, "VERTEX_XY": 2, "VERTEX_SE3:QUAT": 6}
POSE_GRAPHS = {
    "sphere2500": "posegraph/sphere2500.g2o.xz",
    "M3500": "posegraph/M3500.g2o.xz",
    "parking-garage": "posegraph/parking-garage.g2o.xz",
    "intel": "posegraph/intel.g2o",
    "victoriaPark": "landmark/victoriaPark-full.g2o.xz",
}
BUNDLES = {"ladybug-49": "bal/problem-49-7776-pre.txt.xz", "trafalgar-21": "bal/problem-21-11315-pre.txt.xz"}


def minimum_time(call: Callable[[], object], repeats: int) -> float:
    """Shortest of `repeats` runs in seconds."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def make_pattern(dims: np.ndarray, edges: np.ndarray) -> BlockPattern:
    """Pattern of all diagonal blocks and the blocks of `edges` (n, 2)."""
    num_blocks = len(dims)
    keys = np.concatenate(
        [edges.max(axis=1) * num_blocks + edges.min(axis=1), np.arange(num_blocks) * (num_blocks + 1)]
    )
    col, row = np.divmod(np.unique(keys), num_blocks)
    return BlockPattern(dims, np.searchsorted(col, np.arange(num_blocks + 1)), row)


def dominant_values(pattern: BlockPattern) -> np.ndarray:
    """Random values whose diagonal exceeds the length of the row."""
    values = np.random.default_rng(0).uniform(-1.0, 1.0, pattern.values_size)
    dims = pattern.dims.astype(np.int64)
    columns = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    length = np.bincount(pattern.row_idx, dims[columns], pattern.num_blocks)
    length += np.bincount(columns, dims[pattern.row_idx], pattern.num_blocks)
    starts = pattern.value_offsets[pattern.col_ptr[1:] - 1]
    for dim in np.unique(dims):
        own = np.flatnonzero(dims == dim)
        places = starts[own, None] + np.arange(dim * dim)
        blocks = values[places].reshape(-1, dim, dim)
        blocks = 0.5 * (blocks + blocks.transpose(0, 2, 1)) + (1.0 + length[own, None, None]) * np.eye(dim)
        values[places] = blocks.reshape(len(own), -1)
    return values


def open_text(path: Path):
    """Open a text file, also through .xz."""
    return lzma.open(path, "rt") if path.suffix == ".xz" else path.open()


def read_graph(path: Path) -> BlockPattern:
    """Structure of a .g2o file with its first vertex fixed."""
    blocks: dict[str, int] = {}
    dims, edges = [], []
    with open_text(path) as file:
        for tokens in (line.split() for line in file):
            if tokens and tokens[0] in DIMS:
                blocks[tokens[1]] = len(dims) - 1  # -1: the first one, fixed
                dims.append(DIMS[tokens[0]])
            elif tokens and tokens[0].startswith("EDGE"):
                edges.append((tokens[1], tokens[2]))
    pairs = np.array([(blocks[a], blocks[b]) for a, b in edges])
    return make_pattern(np.array(dims[1:]), pairs[(pairs >= 0).all(axis=1)])


def read_bundle(path: Path) -> tuple[BlockPattern, int]:
    """Structure of a BAL file (cameras of 9, points of 3) and its number of cameras."""
    with open_text(path) as file:
        num_cameras, num_points, num_observations = map(int, file.readline().split())
        edges = np.array([file.readline().split()[:2] for _ in range(num_observations)], dtype=np.int64)
    edges[:, 1] += num_cameras
    return make_pattern(np.repeat([9, 3], [num_cameras, num_points]), edges), num_cameras


def kernel_rate(repeats: int) -> float:
    """Operations per second and thread of the dense kernel: a 384 x 384 factorisation on one thread."""
    pattern = make_pattern(np.array([384]), np.empty((0, 2), dtype=np.int64))
    values, solver, threads = dominant_values(pattern), DenseCholesky(pattern), kernels.num_threads()
    kernels.set_num_threads(1)
    seconds = minimum_time(lambda: solver.factorize(values), repeats)
    kernels.set_num_threads(threads)
    return solver.flops / seconds


def time_direct(solver, values, b, repeats: int, rate: float) -> dict[str, float]:
    """Milliseconds of a factorisation and a solve, with floor."""
    x = np.empty_like(b)
    factorize = minimum_time(lambda: solver.factorize(values), repeats)
    return {
        "factorize_ms": 1e3 * factorize,
        "factorize_floor_ms": 1e3 * solver.flops / rate / kernels.num_threads(),
        "solve_ms": 1e3 * minimum_time(lambda: solver.solve(b, x), repeats),
        "mflop": solver.flops / 1e6,
        "memory_mb": solver.memory_bytes / 1e6,
    }


def time_pose_graph(pattern: BlockPattern, repeats: int, rate: float) -> dict[str, dict[str, float]]:
    """Analysis, factorisation and solve under each ordering, and PCG."""
    values = dominant_values(pattern)
    b = np.random.default_rng(1).standard_normal(pattern.dim)
    rows = {}
    for ordering in ("auto", "amd", "metis"):
        solver = SparseCholesky(pattern, ordering)
        row = {"analyze_ms": 1e3 * minimum_time(lambda o=ordering: SparseCholesky(pattern, o), 3)}
        rows[f"{ordering} ({solver.ordering})"] = row | time_direct(solver, values, b, repeats, rate)
    pcg = Pcg(pattern, absolute_tolerance=False)
    pcg.factorize(values)
    rows["pcg"] = {
        "solve_ms": 1e3 * minimum_time(lambda: pcg.solve(b), repeats),
        "iterations": pcg.iterations,
    }
    return rows


def time_bundle(
    pattern: BlockPattern, num_cameras: int, repeats: int, rate: float
) -> dict[str, dict[str, float]]:
    """Schur complement in both forms, the reduced system, back substitution."""
    values = dominant_values(pattern)
    b = np.random.default_rng(1).standard_normal(pattern.dim)
    x = np.empty(pattern.dim)
    schur = SchurComplement(pattern, num_cameras)
    form = minimum_time(lambda: schur.form(values, None, b), repeats)
    points = np.diff(pattern.col_ptr)[num_cameras:] - 1
    flops = float((points * (points + 1) // 2).sum()) * 2 * 9 * 9 * 3
    rows = {"explicit": {"form_ms": 1e3 * form, "form_floor_ms": 1e3 * flops / rate / kernels.num_threads()}}
    for solver in (DenseCholesky(schur.reduced_pattern), SparseCholesky(schur.reduced_pattern)):
        rows[type(solver).__name__] = time_direct(
            solver, schur.reduced_values, schur.reduced_b, repeats, rate
        )
        x_kept = solver.solve(schur.reduced_b)
    rows["explicit"]["back_substitute_ms"] = 1e3 * minimum_time(
        lambda: schur.back_substitute(x_kept, x), repeats
    )
    implicit = SchurComplement(pattern, num_cameras, "implicit")
    rows["implicit"] = {
        "form_ms": 1e3 * minimum_time(lambda: implicit.form(values, None, b), repeats),
        "multiply_ms": 1e3 * minimum_time(lambda: implicit.multiply(x_kept), repeats),
        "diagonal_blocks_ms": 1e3 * minimum_time(implicit.diagonal_blocks, repeats),
    }
    return rows


def time_one_pose(repeats: int) -> dict[str, dict[str, float]]:
    """One 6 x 6 block: the overhead of a call."""
    pattern = make_pattern(np.array([6]), np.empty((0, 2), dtype=np.int64))
    values, b, x = dominant_values(pattern), np.ones(6), np.empty(6)
    rows = {}
    for solver in (SparseCholesky(pattern), DenseCholesky(pattern)):
        factorize = minimum_time(lambda s=solver: [s.factorize(values) for _ in range(1000)], repeats)
        solve = minimum_time(lambda s=solver: [s.solve(b, x) for _ in range(1000)], repeats)
        rows[type(solver).__name__] = {"factorize_us": 1e3 * factorize, "solve_us": 1e3 * solve}
    return rows


def main() -> None:
    """Run the chosen cases and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join([*POSE_GRAPHS, *BUNDLES])}"
    )
    parser.add_argument("--data", type=Path, default=root / "data", help="folder of the real data sets")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    args = parser.parse_args()
    rate = kernel_rate(args.repeats)
    print(
        f"{isa}, {kernels.num_threads()} threads, dense kernel {rate / 1e9:.1f} GFLOP/s per thread, ", end=""
    )
    print(f"load {os.getloadavg()[0]:.1f}")
    results = {}

    def show(name: str, rows: dict[str, dict[str, float]]) -> None:
        results[name] = rows
        for row, figures in rows.items():
            print(f"{name:15} {row:16} " + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()))

    if not args.names:
        show("one pose", time_one_pose(args.repeats))
    for name, path in POSE_GRAPHS.items():
        if not args.names or name in args.names:
            show(name, time_pose_graph(read_graph(args.data / path), args.repeats, rate))
    for name, path in BUNDLES.items():
        if not args.names or name in args.names:
            show(name, time_bundle(*read_bundle(args.data / path), args.repeats, rate))
    print(f"load {os.getloadavg()[0]:.1f}")
    if args.json is not None:
        args.json.write_text(json.dumps({"isa": isa, "rate": rate, "results": results}, indent=1))


if __name__ == "__main__":
    main()
