"""Smoothing of a mesh by its cotangent Laplacian, whose weights are computed anew from the unknown positions.

    E = w_fit sum over vertices i:     |p_i - z_i|^2
      + w_reg sum over edges (i, j):   (cot a + cot b) / 2  |p_i - p_j|^2

a, b: the angles opposite the edge in the two triangles beside it, at vertices k and l. They depend on p: an
edge of the graph has the four vertices i, j, k, l, and its residual is sqrt(weight) (p_i - p_j), with the
weight kept above a small one, where triangles are flat or obtuse.

Run: python examples/cotangent_smoothing.py [--data MESH] [--strength W] [--device ...] [-o OUT.png|OUT.obj]
"""

from __future__ import annotations

import command
import meshes
import numpy as np

import graphopt

Point = graphopt.group_type("SmoothPoint", 3)
LEAST_WEIGHT = 0.05


def _cotangent(a, b):
    """Of the angle between two vectors."""
    across = np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
    return (a @ b) / np.sqrt(across @ across + 1e-20)


@graphopt.edge_type(vertices=(Point,) * 4, measurement_dim=0, residual_dim=3)
def EdgeCotangent(p_i, p_j, p_k, p_l):
    """sqrt((cot a + cot b) / 2) (p_i - p_j)."""
    weight = 0.5 * (_cotangent(p_i - p_k, p_j - p_k) + _cotangent(p_i - p_l, p_j - p_l))
    return np.sqrt(np.maximum(weight, LEAST_WEIGHT)) * (p_i - p_j)


@graphopt.edge_type(vertices=(Point,), measurement_dim=3)
def EdgeSmoothFit(point, seen):
    """Position - the position seen."""
    return point - seen


def hinges(mesh: meshes.Mesh) -> np.ndarray:
    """(m, 4): inner edges i, j with the third vertices k, l of the triangles beside them."""
    turns = np.concatenate(
        [mesh.triangles[:, [0, 1, 2]], mesh.triangles[:, [1, 2, 0]], mesh.triangles[:, [2, 0, 1]]]
    )
    ends = np.sort(turns[:, :2], axis=1)
    order = np.lexsort((turns[:, 2], ends[:, 1], ends[:, 0]))
    ends, third = ends[order], turns[order, 2]
    pairs = np.flatnonzero((ends[1:] == ends[:-1]).all(axis=1))
    return np.column_stack([ends[pairs], third[pairs], third[pairs + 1]])


def smooth(mesh: meshes.Mesh, strength: float = 1.0, **options) -> tuple[meshes.Mesh, graphopt.Summary]:
    """The mesh without its noise."""
    graph = graphopt.Graph()
    points = graph.add_array(Point, mesh.points)
    graph.add_edges(EdgeSmoothFit, (graphopt.sequential(points),), mesh.points)
    corners = hinges(mesh)
    ends = tuple(graphopt.indexed(points, corners[:, k]) for k in range(4))
    graph.add_edges(EdgeCotangent, ends, information=strength * np.eye(3))
    summary = graphopt.optimize(graph, **options)
    return meshes.Mesh(points.estimate.copy(), mesh.triangles), summary


def generated(noise: float = 0.15, seed: int = 0) -> meshes.Mesh:
    """A wavy sheet with noise."""
    mesh = meshes.grid(18, 24)
    points = mesh.points.copy()
    points[:, 2] = 1.5 * np.sin(0.3 * points[:, 0]) * np.cos(0.25 * points[:, 1])
    points += np.random.default_rng(seed).normal(0.0, noise, points.shape)
    return meshes.Mesh(points, mesh.triangles)


def main(argv: list[str] | None = None) -> tuple[meshes.Mesh, graphopt.Summary]:
    """Smooth; the mesh and the summary."""
    parser = command.parser(__doc__, data="mesh; default: a wavy sheet", output="picture .png or mesh .obj")
    parser.add_argument("--strength", type=float, default=1.0, metavar="W", help="default: 1")
    args = parser.parse_args(argv)
    if not args.strength > 0.0:
        raise command.ExampleError(f"--strength is {args.strength}, expected a number above 0.")
    mesh = meshes.read(command.existing(args.data, 1, "a mesh")[0]) if args.data else generated()
    smoothed, summary = smooth(mesh, args.strength, device=args.device)
    print(f"{len(mesh.points)} vertices, {len(hinges(mesh))} inner edges")
    print(summary.brief_report())
    if args.output and args.output.suffix == ".obj":
        meshes.write_obj(args.output, smoothed)
    elif args.output:
        meshes.draw(args.output, [mesh, smoothed], np.empty(0, int), 30.0, -50.0)
    return smoothed, summary


if __name__ == "__main__":
    command.run(main)
