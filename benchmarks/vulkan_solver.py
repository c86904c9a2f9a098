"""The Vulkan block solver by itself: steps, work queues (thesis, table 5.1), configurations (table 5.4).

    python benchmarks/vulkan_solver.py steps trafalgar-257 final-961        # ms per solver step, on random H
    python benchmarks/vulkan_solver.py kernels final-961                    # ms per dispatch
    python benchmarks/vulkan_solver.py queues final-961                     # set-up and multiplication
    python benchmarks/vulkan_solver.py configurations problem.txt.xz        # time, mean squared error, memory

`steps` and `queues` need the Vulkan module only. NAME is a published size, or an .npz file with camera_index
and point_index. H is random, J'J of 2 x 9 and 2 x 3 Jacobians per observation: it says nothing about
convergence, so PCG runs a fixed number of iterations. Times are the device's own timestamps, medians of the
repeats, after a second of the same work: clocks rise under load.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Literal

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.errors import GraphOptError
from graphopt.solver.vulkan.configuration import CONFIGURATIONS, Configuration
from graphopt.solver.vulkan.context import Context, record_step
from graphopt.solver.vulkan.inverse import BlockInverse
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.schur import explicit_schur
from graphopt.solver.vulkan.system import VulkanSystem

PUBLISHED = {  # cameras, points, observations; Agarwal et al., Bundle Adjustment in the Large
    "ladybug-49": (49, 7776, 31843),
    "trafalgar-257": (257, 65132, 225911),
    "dubrovnik-356": (356, 226730, 1255268),
    "final-961": (961, 187103, 1692975),
    "venice-1778": (1778, 993923, 5001946),
    "final-4585": (4585, 1324582, 9125125),
    "final-13682": (13682, 4456117, 28987644),
}
CAMERA_DIM, POINT_DIM = 9, 3
Precision = Literal["double", "mixed"]


def observations(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(m,) camera and point of each observation, sorted by point, then camera."""
    if Path(name).suffix == ".npz":
        arrays = np.load(name)
        camera, point = arrays["camera_index"].astype(np.int64), arrays["point_index"].astype(np.int64)
        key = np.unique(point * (camera.max() + 1) + camera)
        return key % (camera.max() + 1), key // (camera.max() + 1)
    num_cameras, num_points, num_observations = PUBLISHED[name]
    rng = np.random.default_rng(0)
    # Tracks of geometric length around a camera of their own; duplicates are drawn again.
    share = rng.exponential(size=num_points) + 0.4
    center = rng.integers(num_cameras, size=num_points)
    keys = np.empty(0, np.int64)
    while len(keys) < num_observations:
        missing = int(1.1 * (num_observations - len(keys))) + 100
        point = rng.choice(num_points, size=missing, p=share / share.sum())
        spread = rng.normal(scale=0.12 * num_cameras, size=missing)
        camera = (center[point] + np.rint(spread).astype(np.int64)) % num_cameras
        keys = np.unique(np.concatenate([keys, point * num_cameras + camera]))
    if len(keys) > num_observations:
        keys = np.sort(rng.choice(keys, size=num_observations, replace=False))
    return keys % num_cameras, keys // num_cameras


def layout_of(camera: np.ndarray, point: np.ndarray) -> BlockLayout:
    """Block pattern: cameras kept, points eliminated."""
    num_cameras, num_points = int(camera.max()) + 1, int(point.max()) + 1
    degree = np.bincount(point, minlength=num_points)
    per_column = np.concatenate([np.ones(num_cameras, np.int64), degree + 1])
    col_ptr = np.concatenate([[0], np.cumsum(per_column)])
    row_idx = np.empty(col_ptr[-1], np.int32)
    row_idx[col_ptr[1:] - 1] = np.arange(num_cameras + num_points)
    place = np.ones(len(row_idx), bool)
    place[col_ptr[1:] - 1] = False
    row_idx[place] = camera
    dims = np.repeat(np.array([CAMERA_DIM, POINT_DIM], np.int32), [num_cameras, num_points])
    return BlockLayout(dims, col_ptr, row_idx, num_cameras)


def fill(
    layout: BlockLayout, camera: np.ndarray, point: np.ndarray, values: np.ndarray, b: np.ndarray
) -> None:
    """Random J'J, with 1 on the diagonal besides."""
    rng = np.random.default_rng(1)
    num_cameras = layout.num_kept
    hpp = np.zeros((num_cameras, CAMERA_DIM, CAMERA_DIM)) + np.eye(CAMERA_DIM)
    hll = np.zeros((layout.num_landmarks, POINT_DIM, POINT_DIM)) + np.eye(POINT_DIM)
    items = layout.block_offset[layout.items]
    for first in range(0, len(camera), 500_000):
        part = slice(first, first + 500_000)
        jc = rng.normal(size=(len(camera[part]), 2, CAMERA_DIM))
        jp = rng.normal(size=(len(camera[part]), 2, POINT_DIM))
        w = np.einsum("nki,nkj->nji", jc, jp).reshape(-1, CAMERA_DIM * POINT_DIM)  # column-major
        values[items[part][:, None] + np.arange(CAMERA_DIM * POINT_DIM)] = w
        np.add.at(hpp, camera[part], np.einsum("nki,nkj->nij", jc, jc))
        np.add.at(hll, point[part], np.einsum("nki,nkj->nij", jp, jp))
    for blocks, offset in (
        (hpp, layout.diagonal_offset[:num_cameras]),
        (hll, layout.diagonal_offset[num_cameras:]),
    ):
        size = blocks[0].size
        values[offset[:, None] + np.arange(size)] = blocks.reshape(-1, size)
    b[:] = rng.normal(size=layout.dim)


def floors(layout: BlockLayout, real: int) -> dict[str, float]:
    """Bytes that have to move at least: one pass over H_pl, and twice S's triangle, [GB]."""
    w = float(np.sum(layout.dims[layout.item_row].astype(np.int64) * POINT_DIM)) * real
    return {"hpl_gb": w / 1e9, "implicit_product_ms_at_4TBs": 2e3 * w / 4e12}


WARM_UP_SECONDS = 1.0


def warm_up(system: VulkanSystem) -> None:
    """Work until clocks have risen."""
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_UP_SECONDS:
        system.solve(1.0)


def timed_solve(system: VulkanSystem) -> dict[str, float]:
    """Seconds of one solve on the device by phase, and as the host sees it."""
    before = dict(system.device_seconds)
    started = time.perf_counter()
    assert system.solve(1.0)
    wall = time.perf_counter() - started
    return {phase: system.device_seconds[phase] - before[phase] for phase in before} | {"solve": wall}


def run_kernels(device: VulkanDevice, names: list[str], precision: Precision, repeats: int) -> None:
    """Milliseconds of each dispatch of a solver step by itself, of the explicit and the implicit solver."""
    for name in names:
        camera, point = observations(name)
        layout = layout_of(camera, point)
        for title in ("PCG (GPU)", "PCG Implicit (GPU)"):
            base = CONFIGURATIONS[title]
            configuration = Configuration(
                base.linear_solver, base.schur, tolerance=1e-30, absolute_tolerance=False, max_iterations=2
            )
            system = VulkanSystem(device, layout, configuration, precision)
            fill(layout, camera, point, system.values, system.b)
            system.upload()
            warm_up(system)
            print(f"# {name} {title}: ms per dispatch")
            for kernel, milliseconds in time_dispatches(system, repeats):
                print(f"{kernel:20s} {milliseconds:9.4f}", flush=True)
            del system


def time_dispatches(system: VulkanSystem, repeats: int) -> list[tuple[str, float]]:
    """Record a solve again with a timestamp after each dispatch."""

    class Timed:
        def __init__(self) -> None:
            self.recorder = system.context.device.record().timestamp()
            self.names: list[str] = []

        def dispatch(self, kernel, buffers, params, groups):
            self.recorder.dispatch(kernel, buffers, params, groups).barrier().timestamp()
            self.names.append(kernel.name)

        def step(self, launches):
            for launch in launches:
                launch.record(self)

        def begin(self, phase):
            return self

        def end(self):
            return self

        def __getattr__(self, name):
            return getattr(self.recorder, name)

    from graphopt.solver.vulkan import system as module

    timed = Timed()
    kept, module.Sequence = module.Sequence, lambda context: timed
    try:
        system._chunk = 2
        system._record_pcg_start("scalar")
        system._record_finish()
    finally:
        module.Sequence = kept
    program = timed.recorder.finish()
    times = []
    for _ in range(repeats):
        device = system.context.device
        device.submit(program).wait()
        times.append(np.diff(program.timestamps()) * 1e-6)
    return list(zip(timed.names, np.median(times, axis=0).tolist(), strict=True))


def run_steps(
    device: VulkanDevice, names: list[str], repeats: int, precision: Precision, iterations: int, only: str
) -> None:
    """Milliseconds of the Schur complement, of PCG and of the landmarks, per configuration."""
    for name in names:
        camera, point = observations(name)
        layout = layout_of(camera, point)
        print(
            f"# {name}: {layout.num_kept} cameras, {layout.num_landmarks} points, {len(camera)} edges,",
            end=" ",
        )
        print(json.dumps(floors(layout, 8 if precision == "double" else 4)))
        filled = None
        for title, base in CONFIGURATIONS.items():
            if base.linear_solver != "pcg" or only not in title.lower():
                continue
            configuration = Configuration(
                base.linear_solver,
                base.schur,
                base.preconditioner,
                tolerance=1e-200 if precision == "double" else 1e-30,
                absolute_tolerance=False,
                max_iterations=iterations,
            )
            system = None  # frees the one before
            start = time.perf_counter()
            system = VulkanSystem(device, layout, configuration, precision)
            if filled is None:
                fill(layout, camera, point, system.values, system.b)
                filled = system.values.copy(), system.b.copy()
            system.values[:], system.b[:] = filled
            system.upload()
            system.wait_upload()
            try:
                system.solve(1.0)
            except GraphOptError as error:
                print(f"{title:24s} {error}", flush=True)
                continue
            ready = time.perf_counter() - start
            warm_up(system)
            times = [timed_solve(system) for _ in range(repeats)]
            best = {phase: float(np.median([one[phase] for one in times])) for phase in times[0]}
            wall = best["solve"]
            assert system.outcome is not None
            done = system.outcome.iterations
            print(
                f"{title:24s} schur {1e3 * best['schur']:8.3f} ms  pcg {1e3 * best['linear_solver']:8.3f} ms "
                f"({done} it, {1e6 * best['linear_solver'] / done:7.1f} us/it)"
                f"   landmarks {1e3 * best['landmarks']:7.3f} ms   solve() {1e3 * wall:8.2f} ms"
                f"   prepare {system.prepare_seconds:6.2f} s (first solve after {ready:6.2f} s)"
                f"   {device.memory_statistics()['used'] / 2**20:8.0f} MiB",
                flush=True,
            )


def run_queues(device: VulkanDevice, names: list[str], precision: Precision) -> None:
    """Table 5.1: set-up of the large product, and the multiplication at risen clocks."""
    for name in names:
        camera, point = observations(name)
        layout = layout_of(camera, point)
        context = Context(device, precision)
        first = layout.num_kept
        inverse = BlockInverse(
            context, layout.dims[first:], layout.diagonal_offset[first:], layout.scalar[first:-1]
        )
        host, b = np.zeros(layout.values_size), np.zeros(layout.dim)
        fill(layout, camera, point, host, b)
        values, damping = (
            device.upload(host.astype(context.real)),
            device.upload(np.ones(layout.dim, context.real)),
        )
        status = device.upload(np.zeros(8, np.uint32))
        recorder = device.record()
        record_step(recorder, inverse.launches(values, damping, status))
        device.submit(recorder.finish()).wait()
        print(f"# {name}: {len(camera)} observations")
        for kind in ("cpu", "lookup", "gpu"):
            for attempt in ("cold", "warm"):
                start = time.perf_counter()
                blocks, _ = explicit_schur(context, layout, inverse.offset, kind)
                recorder = device.record().timestamp()
                record_step(recorder, blocks.pair_launches(values, inverse.buffer, damping))
                record_step(recorder, blocks.combine_launches(values, damping))
                program = recorder.timestamp().finish()
                setup = time.perf_counter() - start
                times = []
                begin = time.perf_counter()
                while time.perf_counter() < begin + WARM_UP_SECONDS or len(times) < 10:
                    device.submit(program).wait()
                    times.append(1e-9 * program.timestamps()[-1])
                multiply = float(np.median(times[-5:]))
                print(
                    f"{kind:8s} {attempt:5s} setup {setup:8.3f} s   multiplication {multiply:8.4f} s",
                    flush=True,
                )
                del blocks, program, recorder


def run_configurations(device: VulkanDevice, files: list[str], iterations: int) -> None:
    """Table 5.4: time, mean squared error (chi2 / observations) and device memory."""
    from graphopt import io
    from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
    from graphopt.optimizer.options import LevenbergMarquardtOptions
    from graphopt.optimizer.run import run
    from graphopt.optimizer.signals import StopSignals
    from graphopt.optimizer.summary import Summary
    from graphopt.solver.registry import SolverOptions
    from graphopt.solver.structure import Structure
    from graphopt.solver.vulkan.block_solver import VulkanBlockSolver

    for file in files:
        print(f"# {file}")
        for title, base in CONFIGURATIONS.items():
            graph = io.read(file)
            selection = graph.select()
            limited = Configuration(base.linear_solver, base.schur, base.preconditioner, max_iterations=50)
            start = time.perf_counter()
            solver = VulkanBlockSolver(
                graph,
                Structure(selection),
                SolverOptions(device="vulkan"),
                device=device,
                configuration=limited,
            )
            options = LevenbergMarquardtOptions(max_iterations=iterations)
            summary = Summary(selection.num_active_vertices, selection.num_active_edges, "lm")
            run(LevenbergMarquardt(options), options, solver, summary, StopSignals(None, None, start), None)
            seconds = time.perf_counter() - start
            phases = {k: round(1e3 * v, 2) for k, v in solver.system.device_seconds.items()}
            memory = device.memory_statistics()["used"] / 2**20
            mse = summary.final_chi2 / summary.edges
            print(
                f"{title:24s} {seconds:8.3f} s   mse {mse:10.5f}   {memory:7.0f} MiB   device ms {phases}",
                flush=True,
            )
            del solver


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("steps", "kernels", "queues", "configurations"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--only", default="", help="steps: only configurations whose name has this in it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    device = VulkanDevice(arguments.device)
    print(f"# {device.name}, {device.info['driver_info']}, memory {device.memory_scheme}, {device.access}")
    if arguments.what == "steps":
        precision, only = arguments.precision, arguments.only.lower()
        run_steps(device, arguments.names, arguments.repeats, precision, arguments.iterations, only)
    elif arguments.what == "kernels":
        run_kernels(device, arguments.names, arguments.precision, arguments.repeats)
    elif arguments.what == "queues":
        run_queues(device, arguments.names, arguments.precision)
    else:
        run_configurations(device, arguments.names, arguments.iterations)


if __name__ == "__main__":
    main()
