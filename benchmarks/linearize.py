"""Edges per second and core of the linearisation: EdgeSE3 and the camera of Bundle Adjustment in the Large.

    python benchmarks/linearize.py [--edges 200000] [--repeats 7]

Beside each rate stands the floor: the floating-point operations of the compiled program divided by what one
core can do (a multiply-add on every lane of its widest registers, twice per cycle; half of that on processors
that split 512-bit registers), at the clock that the kernel reports. The floor ignores every load, store and
scatter.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

import vm_example_types as examples

from graphopt import codegen
from graphopt.cpu_kernels import isa, kernels
from graphopt.types import slam3d
from graphopt.types.base import working_edge_type

EDGE_SE3 = working_edge_type(slam3d.EdgeSE3)
VERTEX_SE3 = EDGE_SE3.vertices[0]
LANES = {"v4": 8, "v3": 4, "baseline": 2}


def clock_ghz() -> float:
    """Clock of the first core; 3 GHz where it is not reported."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("cpu MHz"):
                return float(line.split(":")[1]) / 1000.0
    except OSError:
        pass
    return 3.0


def pose_graph(num_edges: int) -> tuple:
    """Chain of poses with three loop closures per pose: rows, vertex sets."""
    rng = np.random.default_rng(0)
    num_vertices = num_edges // 4
    first = np.arange(num_edges) % num_vertices
    second = (first + rng.integers(1, 50, size=num_edges)) % num_vertices
    return np.stack([first, second], axis=1).astype(np.int32), [VERTEX_SE3], [num_vertices]


def bundle(num_edges: int) -> tuple:
    """Landmarks seen by 4 of 200 cameras each."""
    rng = np.random.default_rng(0)
    points = np.arange(num_edges) // 4
    cameras = rng.integers(0, 200, size=num_edges)
    rows = np.stack([cameras, points], axis=1).astype(np.int32)
    return rows, [examples.VERTEX_CAMERA, examples.VERTEX_XYZ], [200, num_edges // 4]


def random_storage(vertex, count: int, rng) -> np.ndarray:
    """Estimates; of poses in space as matrices, the form in which they are optimized."""
    if vertex is VERTEX_SE3:
        return slam3d.MATRIX_FORM.encode(examples.random_storage(examples.VERTEX_SE3, count, rng))
    return examples.random_storage(vertex, count, rng)


def make_linearizer(
    edge, variant: str, rows: np.ndarray, sets: list, counts: list[int], robust=None
) -> tuple:
    """Linearizer of a random graph of this shape, with its H and b."""
    rng = np.random.default_rng(1)
    lin, starts, dim = kernels.Linearizer(), [], 0
    for v, n in zip(sets, counts, strict=True):
        offset = dim + v.tangent_dim * np.arange(n, dtype=np.int64)
        starts.append(offset)
        dim += v.tangent_dim * n
        lin.add_vertex_set(random_storage(v, n, rng), codegen.compile_vertex(v).native, offset)
    k = codegen.compile_edge(edge, variant, robust)
    slots = [sets.index(v) for v in edge.vertices]
    blocks = np.stack([rows[:, a] + (0 if s == 0 else counts[0]) for a, s in enumerate(slots)], axis=1)
    dims = np.concatenate([np.full(n, v.tangent_dim) for v, n in zip(sets, counts, strict=True)])
    pairs = [(a, b) for a in range(len(slots)) for b in range(a, len(slots))]
    keys = [
        (np.minimum(blocks[:, a], blocks[:, b]), np.maximum(blocks[:, a], blocks[:, b])) for a, b in pairs
    ]
    codes = np.concatenate([high * len(dims) + low for low, high in keys])
    unique, inverse = np.unique(codes, return_inverse=True)
    sizes = dims[unique // len(dims)] * dims[unique % len(dims)]
    block_starts = np.concatenate([[0], np.cumsum(sizes)])
    offsets = np.ascontiguousarray(block_starts[:-1][inverse].reshape(len(pairs), -1).T)
    transposed = np.ascontiguousarray(np.stack([blocks[:, a] > blocks[:, b] for a, b in pairs], axis=1))
    m = len(rows)
    measurement = examples.random_measurement(examples.EDGE_SE3 if edge is EDGE_SE3 else edge, m, rng)
    information = codegen.pack_information(examples.random_information(edge, m, rng, variant), variant)
    arguments = [
        np.zeros((m, 0), np.int32),
        measurement,
        information,
        np.ones(m),
    ]
    kernel = k.kernel.native if k.kernel is not None else None
    lin.add_edge_group(
        k.chi2.native, k.linearize.native, kernel, slots, rows, [], *arguments, offsets, transposed
    )
    lin.prepare(int(block_starts[-1]), dim)
    return lin, k, np.empty(int(block_starts[-1])), np.empty(dim)


def best_time(action, repeats: int) -> float:
    """Least processor time of several runs, after one to warm up: other processes do not count."""
    action()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    kernels.set_num_threads(options.threads)
    ghz = clock_ghz()
    print(f"{isa}, {ghz:.2f} GHz, {options.threads} thread(s), {options.edges} edges")
    print(f"{'edge':24s} {'what':10s} {'M edges/s':>10s} {'floor':>8s} {'flops':>6s} {'registers':>9s}")
    cases = [
        ("EdgeSE3 full", EDGE_SE3, "full", pose_graph, None),
        ("EdgeSE3 identity", EDGE_SE3, "identity", pose_graph, None),
        ("Snavely identity", examples.EDGE_SNAVELY, "identity", bundle, None),
        ("Snavely identity huber", examples.EDGE_SNAVELY, "identity", bundle, examples.huber),
    ]
    for name, edge, variant, shape, robust in cases:
        lin, k, values, b = make_linearizer(edge, variant, *shape(options.edges), robust=robust)
        for what, program, action in (
            ("linearize", k.linearize, lambda lin=lin, v=values, b=b: lin.linearize(v, b)),
            ("chi2", k.chi2, lambda lin=lin: lin.chi2()),
        ):
            rate = options.edges / best_time(action, options.repeats) / 1e6
            floor = LANES[isa] * 2 * ghz * 1e9 / program.num_flops / 1e6
            print(
                f"{name:24s} {what:10s} {rate:10.2f} {floor:8.1f} "
                f"{program.num_flops:6d} {program.num_registers:9d}"
            )


if __name__ == "__main__":
    main()
