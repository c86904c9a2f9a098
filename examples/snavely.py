"""Bundle adjustment with types of one's own: Snavely's camera, as in Bundler and BAL.

    point_cam = cam_T_world point,   p = -(x, y) / z,   pixel = f (1 + k1 |p|^2 + k2 |p|^4) p

Nothing built-in is used but the group SE3: the camera is a vertex type with pose and calibration, the
observation an edge type. Derivatives, Schur complement and kernels come from the library.

Run: python examples/snavely.py [--data PROBLEM.txt] [--device auto|cpu|vulkan] [-o SOLVED.txt]
"""

from __future__ import annotations

from pathlib import Path

import command
import numpy as np

import graphopt
from graphopt.evaluate.datasets import ba
from graphopt.geometry import SE3, SO3

Camera = graphopt.group_type(
    "Snavely", cam_T_world=SE3, calibration=3, side="left", identity=(0, 0, 0, 0, 0, 0, 1, 500, 0, 0)
)
"""Storage (10,): cam_T_world (7), focal length [px], k1, k2."""

Landmark = graphopt.group_type("MapPoint", 3)


@graphopt.edge_type(vertices=(Camera, Landmark), measurement_dim=2)
def EdgeSnavely(camera, point_world, pixel):
    """Projected - measured pixel of a point in front of the camera, which looks along -z."""
    x, y, z = camera.cam_T_world * point_world
    f, k1, k2 = camera.calibration
    p = np.stack([-x / z, -y / z])
    r2 = p @ p
    return f * (1.0 + r2 * (k1 + k2 * r2)) * p - pixel


def build(cameras, points, camera_index, point_index, pixels):
    """Graph and cameras (n, 10), points (m, 3) in it, seen in `pixels` (k, 2)."""
    graph = graphopt.Graph()
    cameras = graph.add_array(Camera, cameras)
    points = graph.add_array(Landmark, points, marginalized=True)
    ends = graphopt.indexed(cameras, camera_index), graphopt.indexed(points, point_index)
    graph.add_edges(EdgeSnavely, ends, pixels)
    return graph, cameras, points


def arrays(bal: graphopt.Graph) -> tuple[np.ndarray, ...]:
    """Arguments of `build` from a BAL problem."""
    cameras, points = bal.vertex_set("VERTEX_CAM_BAL"), bal.vertex_set("VERTEX_TRACKXYZ")
    observations = bal.edge_set("EDGE_OBSERVATION_BAL")
    rotation, translation, calibration = np.split(cameras.estimate, [3, 6], axis=1)
    stored = np.hstack([translation, SO3.exp(rotation).storage, calibration])
    index = [
        np.searchsorted(vertices.ids, ids)
        for vertices, ids in zip((cameras, points), observations.vertices.T, strict=True)
    ]
    return stored, points.estimate, *index, observations.measurement


def take_back(bal: graphopt.Graph, cameras: np.ndarray, points: np.ndarray) -> None:
    """Write cameras (n, 10) and points into the BAL problem that they were made from."""
    rotation = SO3(cameras[:, 3:7]).log()
    bal.vertex_set("VERTEX_CAM_BAL").estimate[:] = np.hstack([rotation, cameras[:, :3], cameras[:, 7:]])
    bal.vertex_set("VERTEX_TRACKXYZ").estimate[:] = points


def read(paths: list[Path] | None) -> graphopt.Graph:
    """The problem of a BAL file, by default a generated one."""
    if not paths:
        return ba(cameras=8, points=300)
    bal = graphopt.read(command.existing(paths, 1, "a problem in BAL's format")[0])
    if not any(edge_set.type.tag == "EDGE_OBSERVATION_BAL" for edge_set in bal.edge_sets):
        raise command.ExampleError(f"{paths[0]} has no observations of BAL cameras.")
    return bal


def main(argv: list[str] | None = None) -> graphopt.Summary:
    """Optimize; the summary."""
    args = command.parser(
        __doc__, data="problem in BAL's format; default: generated", output="solved problem, BAL"
    )
    args = args.parse_args(argv)
    bal = read(args.data)
    graph, cameras, points = build(*arrays(bal))
    print(graph)
    summary = graphopt.optimize(graph, device=args.device)
    print(summary.brief_report())
    error = np.sqrt(summary.final_chi2 / graph.edge_set(EdgeSnavely).measurement.size)
    print(f"{error:.3f} px per coordinate")
    if args.output:
        take_back(bal, cameras.estimate, points.estimate)
        graphopt.write(bal, args.output)
    return summary


if __name__ == "__main__":
    command.run(main)
