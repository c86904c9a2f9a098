"""The Vulkan block solver by itself: steps, work queues (thesis, table 5.1), configurations (table 5.4).

    python benchmarks/vulkan_solver.py steps trafalgar-257 final-961        # ms per solver step, on random H
    python benchmarks/vulkan_solver.py kernels final-961                    # ms per dispatch
    python benchmarks/vulkan_solver.py queues final-4585                    # set-up and multiplication
    python benchmarks/vulkan_solver.py configurations final-961             # time, mean squared error, memory

A problem is a published size or a file. With --generator PATH published sizes come from `python PATH NAME
FILE.npz` (arrays camera_index, point_index, and for `configurations` observations, cameras, points), kept in
the folder for temporary files; without it `steps`, `kernels` and `queues` draw a random pattern. There H is
random, J'J of 2 x 9 and 2 x 3 Jacobians per observation: it says nothing about convergence, so PCG runs a
fixed number of iterations. Times are the device's own timestamps, medians of the repeats, after a second of
the same work: clocks rise under load. Beside them stands what others reached (vulkan_peers.py).
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Literal

import numpy as np
import vulkan_peers as peers
from vulkan_problems import PUBLISHED, fill, floors, generated, layout_of, observations

from graphopt.device import VulkanDevice
from graphopt.errors import GraphOptError
from graphopt.solver.configurations import CONFIGURATIONS
from graphopt.solver.vulkan.kernels.blocks import BlockInverse
from graphopt.solver.vulkan.kernels.schur import explicit_schur
from graphopt.solver.vulkan.kernels.system import DampedSystem
from graphopt.solver.vulkan.plan.configuration import Configuration
from graphopt.solver.vulkan.program import Context, Program

Precision = Literal["double", "mixed"]
WARM_UP_SECONDS = 1.0
ON_THE_GPU = {
    title: configuration
    for title, configuration in CONFIGURATIONS.items()
    if configuration.device == "vulkan"
}


def warm_up(system: DampedSystem) -> None:
    """Work until clocks have risen."""
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_UP_SECONDS:
        system.solve(1.0)


def timed_solve(system: DampedSystem) -> dict[str, float]:
    """Seconds of one solve on the device by phase, and as the host sees it."""
    before = dict(system.device_seconds)
    started = time.perf_counter()
    assert system.solve(1.0)
    wall = time.perf_counter() - started
    return {phase: system.device_seconds[phase] - before[phase] for phase in before} | {"solve": wall}


def run_kernels(
    device: VulkanDevice, names: list[str], generator: str, precision: Precision, repeats: int
) -> None:
    """Milliseconds of each dispatch of a solver step by itself, of the explicit and the implicit solver."""
    for name in names:
        camera, point = observations(generated(name, generator))
        layout = layout_of(camera, point)
        for title in ("PCG (GPU)", "PCG Implicit (GPU)"):
            base = CONFIGURATIONS[title]
            configuration = Configuration(
                base.linear_solver, base.schur, tolerance=1e-30, absolute_tolerance=False, max_iterations=2
            )
            system = DampedSystem(Context(device, precision), layout, configuration)
            fill(layout, camera, point, system.values, system.b)
            system.upload()
            warm_up(system)
            print(f"# {name} {title}: ms per dispatch")
            for kernel, milliseconds in time_dispatches(system, repeats):
                print(f"{kernel:20s} {milliseconds:9.4f}", flush=True)
            del system


def time_dispatches(system: DampedSystem, repeats: int) -> list[tuple[str, float]]:
    """A solve again, each launch a phase of its own."""
    program, timed = Program(system.context), Program(system.context)
    system.wait_prepared()
    assert system.iterations is not None
    system.iterations.record_trial(program, "scalar", 2, Program(system.context))
    names = []
    for command, argument in program.commands:
        if command == "launch":
            names.append(f"{len(names)} {argument.kernel.name}")
            timed.phase(names[-1]).step([argument])
        elif command != "phase":
            getattr(timed.phase("copies"), command)(*argument)
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        seconds: dict[str, float] = {}
        timed.run(seconds)
        for name in names:
            times[name].append(1e3 * seconds[name])
    return [(name.split(" ", 1)[1], float(np.median(each_time))) for name, each_time in times.items()]


def run_steps(
    device: VulkanDevice,
    names: list[str],
    generator: str,
    repeats: int,
    precision: Precision,
    iterations: int,
    only: str,
) -> None:
    """Milliseconds of the Schur complement, of PCG and of the landmarks, per configuration."""
    for name in names:
        camera, point = observations(generated(name, generator))
        layout = layout_of(camera, point)
        print(
            f"# {name}: {layout.num_kept} cameras, {layout.num_landmarks} points, {len(camera)} edges,",
            end=" ",
        )
        print(json.dumps(floors(layout, 8 if precision == "double" else 4)))
        filled = None
        for title, base in ON_THE_GPU.items():
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
            system = DampedSystem(Context(device, precision), layout, configuration)
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
            best = {phase: float(np.median([each_time[phase] for each_time in times])) for phase in times[0]}
            wall = best["solve"]
            assert system.outcome is not None
            done = system.outcome.iterations
            print(
                f"{title:24s} schur {1e3 * best['schur']:8.3f} ms  pcg {1e3 * best['linear_solver']:8.3f} ms "
                f"({done} it, {1e6 * best['linear_solver'] / done:7.1f} us/it)"
                f"   landmarks {1e3 * best['landmarks']:7.3f} ms   solve() {1e3 * wall:8.2f} ms"
                f"   prepare {system.prepare_seconds:6.2f} s (first solve after {ready:6.2f} s)"
                f"   {device.memory_statistics()['used'] / 2**20:8.0f} MiB" + peers.steps(name, base.schur),
                flush=True,
            )


def run_queues(device: VulkanDevice, names: list[str], generator: str, precision: Precision) -> None:
    """Table 5.1: set-up of the large product, and the multiplication at risen clocks."""
    for name in names:
        camera, point = observations(generated(name, generator))
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
        Program(context).step(inverse.launches(values, damping, status)).run()
        print(f"# {name}: {len(camera)} observations")
        for kind in ("cpu", "lookup", "gpu"):
            for attempt in ("cold", "warm"):
                start = time.perf_counter()
                blocks, _ = explicit_schur(context, layout, inverse.offset, kind)
                program = Program(context).phase("multiplication")
                program.step(blocks.pair_launches(values, inverse.buffer, damping))
                program.step(blocks.combine_launches(values, damping))
                setup = time.perf_counter() - start
                times = []
                begin = time.perf_counter()
                while time.perf_counter() < begin + WARM_UP_SECONDS or len(times) < 10:
                    seconds: dict[str, float] = {}
                    program.run(seconds)
                    times.append(seconds["multiplication"])
                multiply = float(np.median(times[-5:]))
                print(
                    f"{kind:8s} {attempt:5s} setup {setup:8.3f} s   multiplication {multiply:8.4f} s"
                    f"   ({peers.queues(kind)})",
                    flush=True,
                )
                del blocks, program


def run_configurations(
    device: VulkanDevice, names: list[str], generator: str, iterations: int, only: str
) -> None:
    """Table 5.4: time, mean squared error (chi2 / observations) and device memory."""
    from graphopt import io
    from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
    from graphopt.optimizer.options import LevenbergMarquardtOptions
    from graphopt.optimizer.run import run
    from graphopt.optimizer.signals import StopSignals
    from graphopt.optimizer.summary import Summary
    from graphopt.solver.registry import SolverOptions
    from graphopt.solver.structure import Structure
    from graphopt.solver.vulkan.schedules.host import HostLinearizedSolver

    for name in names:
        print(f"# {name}: {peers.MEASURED_TOTALS.get(name, '')}")
        graph = io.read(generated(name, generator))
        start_values = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
        for title, base in ON_THE_GPU.items():
            if only not in title.lower():
                continue
            for vertex_set, values in zip(graph.vertex_sets, start_values, strict=True):
                vertex_set.estimate[:] = values
            selection = graph.select()
            limited = Configuration(base.linear_solver, base.schur, base.preconditioner, max_iterations=50)
            start = time.perf_counter()
            solver = HostLinearizedSolver(
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
                f"{title:24s} {seconds:8.3f} s   {len(summary.iterations)} iterations   mse {mse:10.5f}   "
                f"chi2 {summary.final_chi2:.6g}   {memory:7.0f} MiB   device ms {phases}"
                + peers.configuration(name, title),
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
    parser.add_argument("--generator", default="", help="script that writes a problem of a published size")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--only", default="", help="only configurations whose name has this in it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    device = VulkanDevice(arguments.device)
    print(f"# {device.name}, {device.info['driver_info']}, memory {device.memory_scheme}, {device.access}")
    names, generator, only = arguments.names, arguments.generator, arguments.only.lower()
    precision, iterations = arguments.precision, arguments.iterations
    if arguments.what == "steps":
        run_steps(device, names, generator, arguments.repeats, precision, iterations, only)
    elif arguments.what == "kernels":
        run_kernels(device, names, generator, precision, arguments.repeats)
    elif arguments.what == "queues":
        run_queues(device, names, generator, precision)
    else:
        unknown = [name for name in names if name in PUBLISHED and not generator]
        if unknown:
            parser.error(f"{', '.join(unknown)}: give --generator, or files with measurements")
        run_configurations(device, names, generator, iterations, only)


if __name__ == "__main__":
    main()
