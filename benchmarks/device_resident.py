"""The device-resident block solver on synthetic bundle adjustment of published sizes.

    python benchmarks/device_resident.py final-961 venice-1778 --precision mixed --schedule matrix-free

Problems come from ../shared/tools/synthetic_bal.py. Per problem: set-up seconds, milliseconds on the device
of chi2, of the linearisation, and of a Levenberg-Marquardt trial by phase, and what the host sees of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.graph import Graph
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.solver.vulkan.plan.configuration import Configuration
from graphopt.solver.vulkan.solver import ResidentBlockSolver, create

WARM_UP_SECONDS = 1.0


def synthetic() -> Any:
    """The module shared/tools/synthetic_bal.py."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    specification = importlib.util.spec_from_file_location(
        "synthetic_bal", root / "tools" / "synthetic_bal.py"
    )
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def graph_of(name: str) -> Graph:
    """A synthetic problem of published size as a graph."""
    tool = synthetic()
    return graph_of_arrays(tool.make(*tool.PUBLISHED[name], 1))


def graph_of_arrays(arrays: dict[str, np.ndarray]) -> Graph:
    """What `synthetic().make` returns as a graph: cameras stay, points are eliminated."""
    num_cameras, num_points = len(arrays["cameras"]), len(arrays["points"])
    graph = Graph()
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), arrays["cameras"])
    ids = num_cameras + np.arange(num_points)
    graph.add_vertices("VERTEX_TRACKXYZ", ids, arrays["points"], marginalized=True)
    edges = np.stack([arrays["camera_index"], ids[arrays["point_index"]]], axis=1)
    graph.add_edges("EDGE_OBSERVATION_BAL", edges, arrays["observations"])
    return graph


def measure(solver: ResidentBlockSolver, repeats: int) -> None:
    """Print milliseconds of linearisation and trials, medians after a warm-up."""
    damping = Damping(1e-4, True, 1e-6, 1e32)
    start = time.perf_counter()
    chi2 = solver.linearize()
    first_linearized = time.perf_counter()
    assert solver.trial(damping).solved
    print(
        f"  chi2 {chi2:.6g}; linearize() returned after {first_linearized - start:.2f} s, "
        f"the first trial took {time.perf_counter() - first_linearized:.2f} s more",
        flush=True,
    )
    solver.pop()
    start = time.perf_counter()
    while time.perf_counter() < start + WARM_UP_SECONDS:
        solver.linearize()
        solver.trial(damping)
        solver.pop()
    rows, walls = [], []
    for _ in range(repeats):
        before = dict(solver.system.device_seconds)
        solver.linearize()
        solver.largest_gradient()
        linearized = dict(solver.system.device_seconds)
        begin = time.perf_counter()
        trial = solver.trial(damping)
        walls.append(1e3 * (time.perf_counter() - begin))
        after = dict(solver.system.device_seconds)
        solver.pop()
        row = {"linearisation": linearized["linearize"] - before["linearize"]}
        names = {"linearize": "chi2"}
        row |= {names.get(key, key): after[key] - linearized[key] for key in after}
        rows.append(row)
    outcome = solver.system.outcome
    medians = {key: 1e3 * float(np.median([row[key] for row in rows])) for key in rows[0]}
    text = ", ".join(f"{key} {value:.3f}" for key, value in medians.items())
    count = 0 if outcome is None else outcome.iterations
    print(f"  ms on the device: {text}; trial as the host sees it {np.median(walls):.3f}")
    print(f"  {count} PCG iterations; chi2 after the trial {trial.chi2:.6g}; {memory(solver)}", flush=True)


def memory(solver: ResidentBlockSolver) -> str:
    """Device memory in use."""
    return f"{solver.device.memory_statistics()['used'] / 2**20:.0f} MiB on the device"


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--schedule", default="matrix-free", choices=("blocks", "matrix-free"))
    parser.add_argument("--schur", default="implicit", choices=("implicit", "explicit"))
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    device = VulkanDevice(arguments.device)
    print(f"# {device.name}, {arguments.precision}, {arguments.schedule}, {arguments.schur}")
    for name in arguments.names:
        start = time.perf_counter()
        graph = graph_of(name)
        made = time.perf_counter()
        structure = Structure(graph.select())
        analyzed = time.perf_counter()
        configuration = Configuration(
            "pcg",
            arguments.schur,
            tolerance=1e-30,
            absolute_tolerance=False,
            max_iterations=arguments.iterations,
        )
        options = SolverOptions("vulkan", "pcg", arguments.schur, arguments.precision, arguments.schedule)
        solver = create(graph, structure, options, device=device, configuration=configuration)
        assert isinstance(solver, ResidentBlockSolver)
        created = time.perf_counter()
        print(
            f"{name}: {structure.num_edges} edges; problem {made - start:.1f} s, structure "
            f"{analyzed - made:.2f} s, solver {created - analyzed:.2f} s",
            flush=True,
        )
        measure(solver, arguments.repeats)
        del solver, structure, graph


if __name__ == "__main__":
    sys.exit(main())
