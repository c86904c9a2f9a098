"""Cholesky on a device beside the CPU's, on dense systems and on the structures of pose graphs.

    python benchmarks/device_cholesky.py [CASE ...] [--precision double mixed refined] [--repeats N]
                                         [--no-cpu] [--json FILE] [--profile] [--list]

Precisions: double; mixed, all in float32; refined, a float32 factor with refinement to float64's answer.

Without names: everything up to 10^5 poses and 16,002 dense rows (about 12 GB of device memory). Names:
dense-N, manhattan-N, sphere-N, torus-N, grid2d-N, grid3d-N (N poses), inertial-N (keyframes of 15 rows).
The numbers are random and diagonally dominant: only linear algebra is timed. Needs numpy and the package,
no peers.

Per case: rows, operations counted with the zeros that merged fronts store, fronts, levels; analysis (once per
structure); the device's own time of a factorisation and of a solve (timestamps, median, after 0.4 s of work;
"cold": before, with the clocks of an idle device), with GFLOP/s;
`floor`: operations over the device's measured rate plus dispatches times the measured dispatch; the same on
the CPU with all threads; and the error of the solution, |b - H x| / (|H| |x| + |b|) in the largest entry.
--profile adds the device time by kind of step. --outer, --at-once: others than in `work`. --ordering: one of
`analysis.ORDERINGS`. --define: names that are defined for all kernels, to compare forms of one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from linear import dominant_values

from graphopt import datasets
from graphopt.cpu_kernels import kernels
from graphopt.device import spirv
from graphopt.device.figures import device_figures
from graphopt.device.shared import shared_device
from graphopt.solver.linear import BlockPattern, DenseCholesky, SparseCholesky
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.cholesky import DeviceCholesky, RefinedCholesky, analyse, work
from graphopt.solver.vulkan.cholesky.analysis import ORDERINGS

_WARM_UP = 0.4  # [s] of work after which a device's clocks are up
_MOST_RUNS = 250  # timestamps of a program, less one
DEFAULT = (
    "dense-441 dense-1000 dense-2000 dense-4000 dense-8721 dense-16002 sphere-2500 manhattan-10000 "
    "torus-5000 grid2d-100000 manhattan-100000 grid3d-8000 sphere-100000"
).split()


def make_pattern(dims: np.ndarray, edges: np.ndarray) -> BlockPattern:
    """Pattern of all diagonal blocks and the blocks of `edges` (n, 2)."""
    num = len(dims)
    keys = np.concatenate([edges.max(axis=1) * num + edges.min(axis=1), np.arange(num) * (num + 1)])
    col, row = np.divmod(np.unique(keys), num)
    return BlockPattern(dims, np.searchsorted(col, np.arange(num + 1)), row)


def dense(rows: int) -> BlockPattern:
    """Blocks of up to 9 rows, all there."""
    dims = np.full(-(-rows // 9), 9)
    dims[-1] -= dims.sum() - rows
    col_ptr = np.concatenate([[0], np.cumsum(np.arange(1, len(dims) + 1))])
    return BlockPattern(dims, col_ptr, np.concatenate([np.arange(k + 1) for k in range(len(dims))]))


def planar_grid(poses: int) -> BlockPattern:
    """Poses of three rows on a square lattice, joined to their neighbours."""
    side = int(np.ceil(np.sqrt(poses)))
    index = np.arange(side * side).reshape(side, side)
    edges = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in edges])
    return make_pattern(np.full(side * side, 3), pairs)


def inertial(keyframes: int) -> BlockPattern:
    """S of a visual-inertial map: keyframes share points with the next 20, one in ten with another place."""
    random = np.random.default_rng(0)
    own, ahead = np.arange(keyframes)[:, None], np.arange(1, 21)[None, :]
    near = np.stack(np.broadcast_arrays(own, own + ahead), axis=-1).reshape(-1, 2)
    again = random.integers(0, keyframes, (keyframes // 10, 2))
    pairs = np.concatenate([near[near[:, 1] < keyframes], again[again[:, 0] != again[:, 1]]])
    return make_pattern(np.full(keyframes, 15), pairs)


def pattern_of(name: str) -> BlockPattern:
    """The block pattern of a case."""
    kind, text = name.rsplit("-", 1)
    size = int(text)
    side = round(np.sqrt(size))
    if kind == "dense":
        return dense(size)
    if kind == "grid2d":
        return planar_grid(size)
    if kind == "inertial":
        return inertial(size)
    makers: dict[str, Callable[[], Any]] = {
        "manhattan": lambda: datasets.manhattan(size),
        "sphere": lambda: datasets.sphere(side, side),
        "torus": lambda: datasets.torus(side, side),
        "grid3d": lambda: datasets.grid(round(size ** (1 / 3)), closures=1.0),
    }
    structure = Structure(makers[kind]().select())
    return BlockPattern(structure.dims, structure.col_ptr, structure.row_idx)


def residual(pattern: BlockPattern, values: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """Largest entry of b - H x, relative."""
    product = kernels.SymmetricProduct(pattern).multiply(values, x)
    return float(np.abs(b - product).max() / (np.abs(values).max() * np.abs(x).max() + np.abs(b).max()))


class Counting:
    """Passes commands on; counts dispatches and barriers."""

    def __init__(self, recorder: Any):
        self._recorder = recorder
        self.dispatches = self.barriers = 0

    def dispatch(self, *arguments: Any) -> None:
        """Count and record."""
        self.dispatches += 1
        self._recorder.dispatch(*arguments)

    def barrier(self) -> None:
        """Count and record."""
        self.barriers += 1
        self._recorder.barrier()

    def fill(self, *arguments: Any) -> None:
        """Record."""
        self._recorder.fill(*arguments)


class Profile(Counting):
    """Gives every run between two barriers timestamps of its own, by the names of its kernels.

    A program has room for 256: there are several.
    """

    def __init__(self, device: Any):
        super().__init__(device.record().timestamp())
        self._device = device
        self._current: list[str] = []
        self.programs: list[tuple[Any, list[str]]] = []
        """Programs, and what runs between their timestamps."""
        self._names: list[str] = []

    def dispatch(self, kernel: Any, *arguments: Any) -> None:
        """Note the kernel's name."""
        self._current.append(kernel.name if hasattr(kernel, "name") else str(kernel))
        super().dispatch(kernel, *arguments)

    def barrier(self) -> None:
        """End a run."""
        super().barrier()
        self._recorder.timestamp()
        self._names.append("+".join(sorted(set(self._current))) or "fill")
        self._current = []
        if len(self._names) == _MOST_RUNS:
            self.finish()
            self._recorder = self._device.record().timestamp()

    def finish(self) -> None:
        """End the present program."""
        self.programs.append((self._recorder.finish(), self._names))
        self._names = []


class DeviceCase:
    """One factorisation on the device."""

    def __init__(
        self,
        device: Any,
        pattern: BlockPattern,
        precision: Any,
        values: np.ndarray,
        b: np.ndarray,
        ordering: str,
    ):
        begin = time.perf_counter()
        self.analysis = analyse(pattern, ordering)
        analysed = time.perf_counter()
        if precision == "refined":
            self.solver: Any = RefinedCholesky(device, pattern, analysis=self.analysis)
            inner, real = self.solver.inner, np.dtype(float)
        else:
            self.solver = inner = DeviceCholesky(device, pattern, precision, analysis=self.analysis)
            real = inner.real
        self.analyse_seconds, self.prepare_seconds = analysed - begin, time.perf_counter() - analysed
        self.device, self.pattern = device, pattern
        self._real = real
        self.values = device.upload(values.astype(real))
        self.b, self.x = device.upload(b.astype(real)), device.allocate(pattern.dim * real.itemsize)
        begin = time.perf_counter()
        self.factorize = self._program(lambda recorder: self.solver.record_factorize(recorder, self.values))
        self.barriers = self._count.barriers
        self.solve = self._program(lambda recorder: self.solver.record_solve(recorder, self.b, self.x))
        self.record_seconds = time.perf_counter() - begin

    def _program(self, record: Callable[[Any], None]) -> Any:
        recorder = self.device.record()
        recorder.timestamp()
        self._count = Counting(recorder)
        record(self._count)
        return recorder.timestamp().finish()

    def seconds(self, program: Any, repeats: int) -> tuple[float, float]:
        """Median of the device's time once its clocks have risen, and the second run's, before they have."""
        cold = [self._run(program) for _ in range(2)][1]
        begin = time.perf_counter()
        while time.perf_counter() - begin < _WARM_UP:
            self._run(program)
        return float(np.median([self._run(program) for _ in range(repeats)])), cold

    def _run(self, program: Any) -> float:
        self.device.submit(program).wait()
        stamps = program.timestamps()
        return 1e-9 * (stamps[-1] - stamps[0])

    def solution(self) -> np.ndarray:
        """x, after both programs have run."""
        return self.device.download(self.x, self._real, self.pattern.dim).astype(float)

    def profile(self) -> dict[str, tuple[int, float]]:
        """Milliseconds by kind of step."""
        watch = Profile(self.device)
        self.solver.record_factorize(watch, self.values)
        watch.finish()
        begin = time.perf_counter()
        while time.perf_counter() - begin < _WARM_UP:
            for program, _ in watch.programs:
                self.device.submit(program).wait()
        found: dict[str, tuple[int, float]] = {}
        for program, names in watch.programs:
            stamps = program.timestamps()
            for name, begin, end in zip(names, stamps[:-1], stamps[1:], strict=True):
                num, spent = found.get(name, (0, 0.0))
                found[name] = num + 1, spent + 1e-6 * (end - begin)
        return found


def wall_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median after one run to warm up."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def run_cpu(name: str, pattern: BlockPattern, values: np.ndarray, b: np.ndarray, repeats: int) -> dict:
    """Times of the CPU's solver."""
    solver = (DenseCholesky if name.startswith("dense") else SparseCholesky)(pattern)
    factorize = wall_seconds(lambda: solver.factorize(values), repeats)
    return {
        "cpu_ms": 1e3 * factorize,
        "cpu_solve_ms": 1e3 * wall_seconds(lambda: solver.solve(b), repeats),
        "cpu_gflops": 1e-9 * solver.flops / factorize,
        "cpu_residual": residual(pattern, values, solver.solve(b), b),
    }


def run_device(device: Any, pattern: BlockPattern, precision: Any, args: argparse.Namespace) -> dict:
    """Times of one case in one precision."""
    values, b = dominant_values(pattern), np.random.default_rng(1).standard_normal(pattern.dim)
    case = DeviceCase(device, pattern, precision, values, b, args.ordering)
    factorize, cold = case.seconds(case.factorize, args.repeats)
    solve, cold_solve = case.seconds(case.solve, args.repeats)
    own, figures = case.analysis, device_figures(device)
    rate = figures.flops("double" if precision == "double" else "mixed")
    row = {
        "rows": pattern.dim,
        "gflop": 1e-9 * own.flops,
        "ordering": own.symbolic.ordering,
        "fronts": len(own.level),
        "levels": own.num_levels,
        "barriers": case.barriers,
        "device_mb": case.solver.memory_bytes / 1e6,
        "analyse_ms": 1e3 * case.analyse_seconds,
        "prepare_ms": 1e3 * case.prepare_seconds,
        "record_ms": 1e3 * case.record_seconds,
        "factorize_ms": 1e3 * factorize,
        "gflops": 1e-9 * own.flops / factorize,
        "floor_ms": 1e3 * (own.flops / rate + case.barriers * figures.dispatch_seconds),
        "solve_ms": 1e3 * solve,
        "cold_ms": 1e3 * cold,
        "cold_solve_ms": 1e3 * cold_solve,
        "residual": residual(pattern, values, case.solution(), b),
    }
    if args.profile:
        for kind, (num, spent) in sorted(case.profile().items(), key=lambda item: -item[1][1]):
            print(f"      {kind:40} {num:5} times  {spent:9.3f} ms")
    return row


def define(names: list[str]) -> None:
    """Have all kernels compiled with these names defined."""
    usual = spirv._defines
    spirv._defines = lambda access, precision: usual(access, precision) | dict.fromkeys(names, "1")


def show(name: str, row: dict) -> None:
    """One line."""
    text = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
    print(f"{name:18} {text}", flush=True)


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=DEFAULT, metavar="CASE")
    precisions = ["double", "mixed", "refined"]
    parser.add_argument("--precision", nargs="+", default=precisions, choices=precisions)
    parser.add_argument("--device", help="number or part of the name")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--outer", type=int, help="columns between trailing updates, a multiple of 32")
    parser.add_argument("--at-once", type=int, help="workgroups up to which updates go beside pivots")
    parser.add_argument("--ordering", default="auto", choices=ORDERINGS)
    parser.add_argument("--define", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the default cases")
    args = parser.parse_args()
    if args.list:
        print(*DEFAULT)
        return
    work.OUTER = args.outer or work.OUTER
    work.AT_ONCE = work.AT_ONCE if args.at_once is None else args.at_once
    define(args.define)
    device = shared_device(args.device)
    figures = device_figures(device)
    rates = figures.float64_flops / 1e12, figures.float32_flops / 1e12
    print(
        f"{device.name}: float64 {rates[0]:.2f}, float32 {rates[1]:.2f} TFLOP/s, dispatch "
        f"{1e6 * figures.dispatch_seconds:.1f} us; CPU {kernels.num_threads()} threads"
    )
    results = {}
    for name in args.cases:
        pattern = pattern_of(name)
        for precision in args.precision:
            try:
                row = run_device(device, pattern, precision, args)
            except Exception as error:  # the other cases still count
                row = {"error": f"{type(error).__name__}: {error}"}
            results[f"{name} {precision}"] = row
            show(f"{name} {precision}", row)
        if not args.no_cpu:
            values, b = dominant_values(pattern), np.random.default_rng(1).standard_normal(pattern.dim)
            row = run_cpu(name, pattern, values, b, min(3, args.repeats))
            results[f"{name} cpu"] = row
            show(f"{name} cpu", row)
        if args.json is not None:
            args.json.write_text(json.dumps({"device": device.name, "results": results}, indent=1))


if __name__ == "__main__":
    main()
