"""What must work in an installed package: run by tools/check_wheel.sh in an empty environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import graphopt
from graphopt.cpu_kernels import isa

POSES = 30


def ring() -> graphopt.Graph:
    """Poses around a circle, each measured from the one before, and a first guess that is off."""
    graph = graphopt.Graph()
    angles = np.arange(POSES) * 2 * np.pi / POSES
    truth = np.stack([np.cos(angles), np.sin(angles), angles + np.pi / 2], axis=1)
    rng = np.random.default_rng(0)
    graph.add_vertices("VERTEX_SE2", np.arange(POSES), truth + 0.05 * rng.normal(size=truth.shape))
    ends = np.stack([np.arange(POSES), (np.arange(POSES) + 1) % POSES], axis=1)
    step = 2 * np.pi / POSES
    graph.add_edges("EDGE_SE2", ends, [np.sin(step), 1 - np.cos(step), step])
    return graph


def check_solution(**options: object) -> graphopt.Summary:
    """The ring closes: no error is left."""
    summary = graphopt.optimize(ring(), **options)  # type: ignore[arg-type]
    assert summary.is_usable and summary.final_chi2 < 1e-12, summary.full_report()
    return summary


@graphopt.edge_type(vertices=("VERTEX_SE2",), measurement_dim=1)
def EdgeDistance(pose, distance):
    """A type that no build knew."""
    return np.sqrt(pose.translation @ pose.translation) - distance


def own_type(device: str) -> None:
    """One pose is pulled to a distance from the origin."""
    graph = graphopt.Graph()
    graph.add_vertex("VERTEX_SE2", 0, [3.0, 4.0, 0.0])
    graph.add_edge(EdgeDistance, [0], 2.0)
    graphopt.optimize(graph, "lm", device=device, fix="none")
    assert abs(np.hypot(*graph.vertex(0).estimate[:2]) - 2.0) < 1e-6


def main() -> None:
    """Everything in order; the first thing that fails ends it."""
    package = Path(graphopt.__file__).parent
    assert "site-packages" in package.parts, package
    assert not any(map(shutil.which, ("cc", "gcc", "g++", "c++", "clang", "glslangValidator"))), "a compiler"
    assert (package / "py.typed").is_file() and (package.parent / "slam_bridge" / "py.typed").is_file()
    assert "class EdgeSE3(" in (package / "g2o" / "__init__.pyi").read_text()
    if len(sys.argv) > 1:  # one instruction set, in a process of its own
        assert isa == sys.argv[1]
        check_solution(linear_solver="cholesky", device="cpu")
        return
    check_solution()
    own_type("cpu")
    for name in ("baseline", "v3", "v4")[: 1 + ("baseline", "v3", "v4").index(isa)]:
        subprocess.run(
            [sys.executable, "-I", __file__, name], env={**os.environ, "GRAPHOPT_ISA": name}, check=True
        )
    on_device = check_solution(device="vulkan")
    own_type("vulkan")
    print(f"graphopt {graphopt.__version__} on {sys.version.split()[0]}: {isa}, {on_device.device_name}")


if __name__ == "__main__":
    main()
