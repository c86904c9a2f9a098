"""Interpreter against compiled kernels, for edge types that nobody has seen before.

    python benchmarks/tiers.py                        # Snavely's camera and poses in space, 226,000 edges
    python benchmarks/tiers.py --edges 1700000 --precision mixed --output tiers.json

Per edge type: what has to happen before the interpreter can run (trace, bytecode, packing, upload), before
the compiled kernels can (GLSL, SPIR-V, pipelines), and how long an iteration, linearize and chi2, takes with
each. The interpreter's own kernels do not depend on the type; their first use on a device is shown apart. All
caches are off: graphopt's by an empty folder, the drivers' by their own variables. Times of an iteration are
the device's timestamps, medians of the repeats, after a second of the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GRAPHOPT_CACHE_DIR", tempfile.mkdtemp(prefix="graphopt-tiers-"))
os.environ.setdefault("__GL_SHADER_DISK_CACHE", "0")
os.environ.setdefault("MESA_SHADER_CACHE_DISABLE", "true")

import numpy as np

import graphopt
from graphopt.codegen import compile_edge
from graphopt.codegen.interpreter import pack_program
from graphopt.device import VulkanDevice
from graphopt.device.tiers import build_kernels
from graphopt.geometry import SE3
from graphopt.geometry.cameras import project_snavely
from graphopt.graph import Graph
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.solver.vulkan.plan.storage import Storage
from graphopt.solver.vulkan.program import Context, Program
from graphopt.solver.vulkan.schedules.interpreted import SCRATCH_BYTES, Interpreter
from graphopt.solver.vulkan.schedules.interpreter import InterpretedLinearizer
from graphopt.types.base import working_edge_type
from graphopt.types.g2o_maps import rotate_by_angle_axis

WARM_UP_SECONDS = 1.0
EDGES_PER_CAMERA = 900
EDGES_PER_POINT = 7


def snavely(salt: float) -> Any:
    """A user's edge: camera of nine numbers sees a point. `salt` makes a type that no cache knows."""

    @graphopt.edge_type(
        tag=f"EDGE_SNAVELY_{salt}", vertices=("VERTEX_CAM_BAL", "VERTEX_TRACKXYZ"), measurement_dim=2
    )
    def EdgeSnavely(camera, point, pixel):
        """Projected - measured [px]."""
        state = camera.storage
        point_cam = rotate_by_angle_axis(state[..., :3], point) + state[..., 3:6]
        return project_snavely(state[..., 6:9], point_cam) * (1.0 + salt) - pixel

    return EdgeSnavely


def between(salt: float) -> Any:
    """A user's edge: motion between two poses in space."""

    @graphopt.edge_type(
        tag=f"EDGE_BETWEEN_{salt}",
        vertices=("VERTEX_SE3:QUAT", "VERTEX_SE3:QUAT"),
        measurement_dim=7,
        residual_dim=6,
    )
    def EdgeBetween(first, second, measured):
        """Twist of the difference."""
        return (SE3(measured).inverse() * first.between(second)).log() * (1.0 + salt)

    return EdgeBetween


def snavely_graph(kind: Any, num_edges: int) -> Graph:
    """Random cameras and points; every point is seen by about seven neighbouring cameras."""
    rng = np.random.default_rng(0)
    num_cameras, num_points = max(num_edges // EDGES_PER_CAMERA, 8), max(num_edges // EDGES_PER_POINT, 8)
    cameras = 1e-2 * rng.normal(size=(num_cameras, 9)) + np.array([0, 0, 0, 0, 0, 0, 500.0, 0, 0])
    points = rng.uniform([-3, -2, -12], [3, 2, -8], (num_points, 3))
    point = np.sort(rng.integers(num_points, size=num_edges))
    camera = (point * num_cameras // num_points + rng.integers(-9, 10, num_edges)) % num_cameras
    graph = Graph()
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), cameras)
    graph.add_vertices("VERTEX_TRACKXYZ", num_cameras + np.arange(num_points), points, marginalized=True)
    graph.add_edges(
        kind, np.stack([camera, num_cameras + point], axis=1), rng.normal(scale=100, size=(num_edges, 2))
    )
    return graph


def between_graph(kind: Any, num_edges: int) -> Graph:
    """A walk with loop closures, three edges per pose."""
    rng = np.random.default_rng(0)
    num = max(num_edges // 3, 4)
    poses = np.concatenate([rng.normal(size=(num, 3)), rng.normal(size=(num, 4))], axis=1)
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    first = np.repeat(np.arange(num), 3)[:num_edges]
    second = (first + 1 + np.arange(len(first)) % 3 * rng.integers(1, 40, len(first))) % num
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", np.arange(num), poses)
    graph.add_edges(kind, np.stack([first, second], axis=1), poses[first])
    return graph


CASES = {"snavely": (snavely, snavely_graph), "between": (between, between_graph)}


class Clock:
    """Seconds between calls."""

    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self) -> float:
        """Milliseconds since the last call."""
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return 1e3 * passed


def measure_interpreter_kernels(context: Context) -> dict[str, float]:
    """The interpreter's first use on this device, and a later one."""
    clock = Clock()
    Interpreter(context)
    first = clock()
    Interpreter(context)
    return {"interpreter_kernels_first_ms": first, "interpreter_kernels_again_ms": clock()}


def measure_preparation(context: Context, kind: Any, information: str) -> dict[str, float]:
    """From the residual function to a program on the device."""
    clock = Clock()
    compiled = compile_edge(working_edge_type(kind), information)
    result = {"trace_and_bytecode_ms": clock()}
    packed = [pack_program(program) for program in (compiled.chi2, compiled.linearize)]
    result["pack_ms"] = clock()
    interpreter = Interpreter(context)
    for program in packed:
        interpreter.program(program, 1)
    result["upload_ms"] = clock()
    result["interpreter_ready_ms"] = sum(result.values())
    result |= {"instructions": len(packed[1].words), "registers": packed[1].num_rows}
    return result


def measure_compilation(context: Context, linearizer: DeviceLinearizer) -> dict[str, float]:
    """From the residual function, traced before, to pipelines."""
    clock = Clock()
    kernels = list(linearizer.kernels())
    kernels += list(linearizer.oplus_kernels())
    result = {"glsl_ms": clock()}
    build_kernels(context.device, kernels)
    result["spirv_and_pipelines_ms"] = clock()
    result["kernels"] = len(kernels)
    return result


def iteration_seconds(
    context: Context, steps: list[list[Any]], clears: list[Any], repeats: int
) -> tuple[float, int]:
    """Median time on the device, and dispatches."""
    program = Program(context).phase("iteration")
    for buffer in clears:
        program.fill(buffer)
    program.barrier()
    for step in steps:
        program.step(step)
    times, start = [], time.perf_counter()
    while len(times) < repeats or time.perf_counter() - start < WARM_UP_SECONDS:
        seconds: dict[str, float] = {}
        program.run(seconds)
        times.append(seconds["iteration"])
    return statistics.median(times[-repeats:]), sum(map(len, steps))


def measure(context: Context, name: str, num_edges: int, repeats: int, scratch_bytes: int) -> dict[str, Any]:
    """Everything about one edge type."""
    make, make_graph = CASES[name]
    kind = make(float(np.random.default_rng().uniform(1e-9, 1e-6)))
    result: dict[str, Any] = measure_preparation(context, kind, "identity")
    graph = make_graph(kind, num_edges)
    structure = Structure(graph.select())
    storage = Storage.of(structure, structure.num_kept, ["blocks"] * len(structure.groups))
    clock = Clock()
    compiled = DeviceLinearizer(context, structure, storage)
    result["primary_view_ms"] = clock()
    interpreted = InterpretedLinearizer(context, structure, compiled, scratch_bytes)
    result["interpreter_launches_ms"] = clock()
    interpreted.prepare()
    result["gather_lists_ms"] = clock()
    compiled.prepare()
    result["views_ms"] = clock()
    result |= measure_compilation(context, compiled)
    result["compiled_ready_ms"] = (
        result["trace_and_bytecode_ms"] + result["glsl_ms"] + result["spirv_and_pipelines_ms"]
    )
    firsts = np.cumsum([0, *(edge.num_chi2_partials for edge in compiled.edges)]).tolist()
    answers, version = {}, compiled.estimates.current
    for tier, kernel in (("interpreter", interpreted), ("compiled", compiled)):
        values, b = context.reals(storage.layout.values_size), context.reals(storage.layout.dim)
        partial = context.device.allocate(8 * firsts[-1])
        linearize = list(kernel.linearize_steps(version, values, b))
        clears = [values, b] if tier == "interpreter" or compiled.clears else []
        seconds, dispatches = iteration_seconds(context, linearize, clears, repeats)
        chi2_seconds, _ = iteration_seconds(
            context, list(kernel.chi2_steps(version, partial, firsts)), [], repeats
        )
        answers[tier] = [
            context.download(b, storage.layout.dim),
            context.device.download(partial, float, firsts[-1]),
        ]
        result[tier] = {
            "linearize_ms": 1e3 * seconds,
            "chi2_ms": 1e3 * chi2_seconds,
            "dispatches": dispatches,
            "edges_per_second": num_edges / (seconds + chi2_seconds),
        }
    result["largest_difference"] = max(
        float(np.abs(x - y).max() / np.abs(y).max())
        for x, y in zip(answers["interpreter"], answers["compiled"], strict=True)
    )
    return result


def show(name: str, result: dict[str, Any]) -> None:
    """A few lines."""
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"{name:12} {key:28} " + ", ".join(f"{k} {v:.4g}" for k, v in value.items()))
        else:
            print(f"{name:12} {key:28} {value:.4g}")


def main() -> None:
    """Run and print; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default=None, help="index or part of the name")
    parser.add_argument("--precision", choices=("double", "mixed"), default="double")
    parser.add_argument("--edges", type=int, default=226_000)
    parser.add_argument("--types", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--scratch-mib", type=float, nargs="*", default=[SCRATCH_BYTES / 2**20])
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    device = VulkanDevice(args.device)
    print(f"{device.name}, {args.precision}, {args.edges} edges")
    context = Context(device, args.precision)
    record: dict[str, Any] = {"device": device.name, "precision": args.precision, "edges": args.edges}
    record["kernels"] = measure_interpreter_kernels(context)
    show("", record["kernels"])
    for scratch in args.scratch_mib:
        for name in args.types:
            result = measure(context, name, args.edges, args.repeats, int(scratch * 2**20))
            record[f"{name}, {scratch:g} MiB"] = result
            print(f"--- {name}, scratch {scratch:g} MiB")
            show(name, result)
    if args.output is not None:
        args.output.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
