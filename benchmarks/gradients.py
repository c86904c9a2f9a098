"""Gradients through a solve: a bundle adjustment of 43,000 observations, 4,096 pose graphs of 20 poses.

    python benchmarks/gradients.py [--device vulkan]      with tensors of CUDA where there are some

PyPose (`pip install pypose`) solves the same pose graph, one of them: its optimizers have no gradient of the
optimum and no batch of problems that differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from harness import DEVICE_PARTS, Report, median_seconds, milliseconds, print_table, seconds_at_device
from scipy.spatial.transform import Rotation

import graphopt
import graphopt.torch
from graphopt.batch.adjoint import DeviceAdjoint
from graphopt.batch.on_device import DeviceWorkers, _Call
from graphopt.derivatives import problem
from graphopt.derivatives.adjoint import AdjointPass
from graphopt.derivatives.equations import DeviceEquations, ExactEquations, HostEquations
from graphopt.geometry import SE3
from graphopt.vulkan.program import Running

REPEATS = 5
ITERATIONS = 4
BAL, POSE = "EDGE_OBSERVATION_BAL", "VERTEX_SE3:QUAT"
PAIRS = [(i, i + 1) for i in range(19)] + [(0, 10), (5, 15), (9, 19)]


def run(report: Report, device: str = "cpu") -> None:
    """Measure, add the metrics, print a table."""
    rows = []
    for name, function in (("bundle", bundle_adjustment), ("pose_graphs", pose_graphs)):
        forward, backward = function(device=device)
        report.add(f"gradients.{name}.forward", forward, "s")
        report.add(f"gradients.{name}.backward", backward, "s")
        rows.append([name, milliseconds(forward), milliseconds(backward)])
    if importlib.util.find_spec("pypose") is not None:
        seconds = pypose_graph()
        report.add("gradients.one_pose_graph.pypose.forward", seconds, "s")
        rows.append(["one pose graph, PyPose", milliseconds(seconds), "-"])
    print_table("gradients through a solve", ["problem", "forward", "backward"], rows)


def timed(
    graph: graphopt.Graph, name: str, value: torch.Tensor, tag: str, **options: Any
) -> tuple[float, float]:
    """Seconds of the solve and of the gradient of the estimates' squares by one input."""
    found: list[torch.Tensor] = []
    if options["device"] != "cpu" and torch.cuda.is_available():
        value = value.detach().cuda().requires_grad_()

    def forward() -> None:
        found[:] = [graphopt.torch.solve(graph, {name: value}, look_behind=False, **options)[tag]]

    def backward() -> None:
        (found[0] ** 2).sum().backward(retain_graph=True)

    forward()
    backward()
    if options["device"] != "cpu":
        print_table(
            f"{name} on {options['device']}, of one call [ms]",
            ["", "total", *DEVICE_PARTS, "host"],
            [["forward", *phases(forward)], ["backward", *phases(backward)]],
        )
        names = [name for name, *_ in PARTS]
        print_table(
            f"{name} on {options['device']}, parts of one call with what they wait for [ms]",
            ["", *names],
            [["forward", *parts(forward)], ["backward", *parts(backward)]],
        )
        spent = {"forward": device_phases(forward), "backward": device_phases(backward)}
        for call, seconds in spent.items():
            rows = [[phase, f"{1e3 * value:.2f}", str(count)] for phase, (value, count) in seconds.items()]
            print_table(f"{name}, on the device, {call} [ms]", ["phase", "time", "times"], rows)
    return median_seconds(forward, REPEATS), median_seconds(backward, REPEATS)


def phases(function: Callable[[], None]) -> list[str]:
    """Milliseconds of a call and of its parts on a device; the rest is the host's."""
    with seconds_at_device() as spent:
        start = time.perf_counter()
        function()
        total = time.perf_counter() - start
    return [f"{1e3 * x:.2f}" for x in (total, *spent.values(), total - sum(spent.values()))]


PARTS: list[tuple[str, Any, str]] = [
    ("to host", graphopt.torch, "_numpy"),
    ("to GPU", graphopt.torch, "_tensor"),
    ("checks, plan", graphopt.torch, "call_of"),
    ("iterations", _Call, "run"),
    ("Newton", DeviceWorkers, "_refine"),
    ("results", _Call, "collect"),
    ("adjoint", DeviceAdjoint, "run"),
    ("optimize", problem, "optimize"),
    ("K", DeviceEquations, "linearize"),
    ("K on the CPU", HostEquations, "linearize"),
    ("solve", ExactEquations, "factorize"),
    ("last factor", ExactEquations, "solve_nearby"),
    ("growth", ExactEquations, "growth"),
    ("edges", AdjointPass, "gradients"),
]
"""Name, owner and function: of a batch on a device up to "adjoint", of one graph behind it."""


def parts(function: Callable[[], None]) -> list[str]:
    """Milliseconds in functions of a call, of what they call and wait for too."""
    spent = dict.fromkeys((name for name, *_ in PARTS), 0.0)

    def timed_part(name: str, whole: Callable) -> Callable:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return whole(*arguments, **named)
            finally:
                spent[name] += time.perf_counter() - start

        return run

    with ExitStack() as patches:
        for name, owner, attribute in PARTS:
            patches.enter_context(patch.object(owner, attribute, timed_part(name, getattr(owner, attribute))))
        function()
    return [f"{1e3 * x:.2f}" for x in spent.values()]


def device_phases(function: Callable[[], None]) -> dict[str, tuple[float, int]]:
    """Seconds on the device and runs by phase of the solver's programs; kernels of batches have none."""
    spent: dict[str, tuple[float, int]] = {}
    wait = Running.wait

    def collected(running: Running, seconds: dict[str, float] | None = None) -> None:
        own: dict[str, float] = {}
        wait(running, own)
        for phase, value in own.items():
            total, count = spent.get(phase, (0.0, 0))
            spent[phase] = total + value, count + 1
            if seconds is not None:
                seconds[phase] = seconds.get(phase, 0.0) + value

    with patch.object(Running, "wait", collected):
        function()
    return spent


def bundle_adjustment(device: str = "cpu") -> tuple[float, float]:
    """100 cameras on a ring, 3,500 points, 43,000 observations; two cameras are fixed."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-5.0, 5.0, (3500, 3)) * [1.0, 1.0, 0.3]
    angle = np.linspace(0.0, 2.0 * np.pi, 100, endpoint=False)
    centre = np.stack([12.0 * np.cos(angle), 12.0 * np.sin(angle), 3.0 + np.sin(3.0 * angle)], axis=1)
    z = centre / np.linalg.norm(centre, axis=1, keepdims=True)
    x = np.cross([0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    rotation = np.stack([x, np.cross(z, x), z], axis=1)
    cameras = np.zeros((100, 9))
    cameras[:, :3] = Rotation.from_matrix(rotation).as_rotvec()
    cameras[:, 3:6] = -np.einsum("nij,nj->ni", rotation, centre)
    cameras[:, 6:] = [500.0, -1e-2, 1e-3]
    chosen = np.sort(rng.permutation(350_000)[:43_000])
    pairs = np.stack([chosen // 3500, chosen % 3500], axis=1)
    kind = graphopt.types.registry.edge_type(BAL)
    nothing = np.zeros((len(pairs), 2))
    pixels = kind.error((cameras[pairs[:, 0]], points[pairs[:, 1]]), (), nothing)
    noise = np.repeat([0.003, 0.03], 3)
    start = cameras.copy()
    start[2:, :6] += noise * rng.standard_normal((98, 6))
    graph = graphopt.Graph()
    graph.add_vertices(kind.vertices[0], range(100), start, fixed=np.arange(100) < 2)
    moved = points + 0.03 * rng.standard_normal(points.shape)
    graph.add_vertices(kind.vertices[1], range(1000, 4500), moved, marginalized=True)
    graph.add_edges(
        kind, np.add(pairs, [0, 1000]), pixels + 0.5 * rng.standard_normal(pixels.shape), 4.0 * np.eye(2)
    )
    measured = torch.tensor(graph.edge_set(BAL).measurement.copy(), requires_grad=True)
    return timed(graph, f"{BAL}.measurement", measured, kind.vertices[1].tag, device=device)


def path() -> tuple[np.ndarray, np.ndarray]:
    """Poses (20, 7) and motions between pairs of them (22, 7)."""
    poses = np.zeros((20, 7))
    poses[:, 0], poses[:, 1], poses[:, 6] = np.arange(20), np.sin(np.arange(20)), 1.0
    first, second = np.array(PAIRS).T
    return poses, (SE3(poses[first]).inverse() * SE3(poses[second])).storage


def pose_graphs(count: int = 4096, device: str = "cpu") -> tuple[float, float]:
    """Many pose graphs with motions of their own, Gauss-Newton."""
    rng = np.random.default_rng(0)
    poses, motions = path()
    graph = graphopt.Graph()
    graph.add_vertices(POSE, range(20), poses, fixed=np.arange(20) == 0)
    graph.add_edges("EDGE_SE3:QUAT", PAIRS, motions, 100.0 * np.eye(6))
    noisy = motions + np.repeat([0.05, 0.02], [3, 4]) * rng.standard_normal((count, *motions.shape))
    noisy[..., 3:] /= np.linalg.norm(noisy[..., 3:], axis=-1, keepdims=True)
    measured = torch.tensor(noisy, requires_grad=True)
    name = "EDGE_SE3:QUAT.measurement"
    return timed(graph, name, measured, POSE, method="gn", max_iterations=ITERATIONS, device=device)


def pypose_graph() -> float:
    """PyPose's Gauss-Newton on one of the pose graphs, as many iterations [s]."""
    import pypose

    torch.manual_seed(0)
    poses, motions = path()
    start = pypose.SE3(torch.tensor(poses))
    noise = pypose.se3(0.05 * torch.randn(len(PAIRS), 6, dtype=torch.float64)).Exp()
    measured = pypose.SE3(torch.tensor(motions)) @ noise
    first, second = torch.tensor(PAIRS).T

    class Graph(torch.nn.Module):
        """Errors of all motions; the first pose is fixed."""

        def __init__(self) -> None:
            super().__init__()
            self.poses = pypose.Parameter(start[1:].clone())

        def forward(self, motion: Any) -> torch.Tensor:
            """(22, 6)."""
            poses = pypose.SE3(torch.cat([start[:1].tensor(), self.poses.tensor()]))
            return (motion.Inv() @ poses[first].Inv() @ poses[second]).Log().tensor()

    def solve() -> None:
        optimizer = pypose.optim.GN(Graph())
        for _ in range(ITERATIONS):
            optimizer.step(measured)

    return median_seconds(solve, REPEATS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="as of graphopt.optimize (default: cpu)")
    run(Report(), parser.parse_args().device)
