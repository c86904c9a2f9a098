"""Robust non-rigid alignment: a template is drawn onto a scan, part of which is something else.

    E = w_fit sum over pairs (vertex i, point k):  rho(n_k' (p_i - z_k))^2      n_k: normal; rho: Tukey
      + w_reg sum over edges (i, j), both ways:    |p_i - p_j - R_i (q_i - q_j)|^2

Pairs are nearest points; they are looked for again between the rounds, and the kernel's width shrinks.

Run: python examples/nonrigid_alignment.py [--data TEMPLATE SCAN] [--rounds N] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import meshes
import numpy as np
from mesh_deformation import EdgeRigid, Frame
from scipy.spatial import cKDTree

import graphopt

W_FIT = 10.0


@graphopt.edge_type(vertices=(Frame,), measurement_dim=6, residual_dim=1)
def EdgeToPlane(frame, scanned):
    """Distance of a vertex from the plane of a scanned point; scanned: point, normal."""
    return scanned[3:] @ (frame.position - scanned[:3])


def normals(mesh: meshes.Mesh) -> np.ndarray:
    """(n, 3) unit normals of the vertices, means of the triangles' weighted by their areas."""
    corners = mesh.points[mesh.triangles]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    total = np.zeros_like(mesh.points)
    for k in range(3):
        np.add.at(total, mesh.triangles[:, k], across)
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)


def align(template: meshes.Mesh, points: np.ndarray, directions: np.ndarray, rounds: int = 6, **options):
    """The template on the scanned points (m, 3) with normals (m, 3), and the last summary."""
    scan = cKDTree(points)
    edges = template.edges()
    weights = template.cotangent_weights(edges)[:, None, None] * np.eye(3)
    estimate = np.zeros((len(template.points), 7)) + Frame.identity
    estimate[:, :3] = template.points
    width = 0.1 * float(np.ptp(points, axis=0).max())
    summary = None
    for _ in range(rounds):
        graph = graphopt.Graph()
        frames = graph.add_array(Frame, estimate)
        for i, j in (edges.T, edges.T[::-1]):
            ends = graphopt.indexed(frames, i), graphopt.indexed(frames, j)
            graph.add_edges(EdgeRigid, ends, template.points[i] - template.points[j], weights)
        distance, nearest = scan.query(estimate[:, :3])
        rows = np.flatnonzero(distance < 3.0 * width)
        pairs = np.concatenate([points[nearest[rows]], directions[nearest[rows]]], axis=1)
        kernel = {"kernel": "Tukey", "kernel_width": np.sqrt(W_FIT) * width}
        graph.add_edges(EdgeToPlane, (graphopt.indexed(frames, rows),), pairs, W_FIT * np.eye(1), **kernel)
        summary = graphopt.optimize(graph, **options)
        estimate = frames.estimate.copy()
        width *= 0.6
    return meshes.Mesh(estimate[:, :3], template.triangles), summary


def generated(seed: int = 0) -> tuple[meshes.Mesh, np.ndarray, np.ndarray, meshes.Mesh]:
    """Template (a flat sheet), scan with normals (the sheet bent, 10 % of it a ball above), and the truth."""
    rng = np.random.default_rng(seed)
    template = meshes.grid(16, 22)
    x, y = template.points[:, 0], template.points[:, 1]
    height = 1.5 * np.sin(0.25 * x) * np.cos(0.2 * y)
    truth = meshes.Mesh(template.points + np.stack([0 * x, 0 * x, height], axis=1), template.triangles)
    ball = rng.normal(0.0, 1.0, (len(x) // 10, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    middle = template.points.mean(axis=0) + np.array([0.0, 0.0, 3.0])
    seen = truth.points + rng.normal(0.0, 0.01, truth.points.shape)
    return template, np.concatenate([seen, middle + ball]), np.concatenate([normals(truth), ball]), truth


def main(argv: list[str] | None = None):
    """Align; the mesh and the last summary."""
    parser = command.parser(
        __doc__, data="template and scan, meshes; default: a sheet", output="picture .png or mesh .obj"
    )
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="default: 6")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        raise command.ExampleError(f"--rounds is {args.rounds}, expected at least 1.")
    if args.data:
        template, scan = (
            meshes.read(path) for path in command.existing(args.data, 2, "a template and a scan")
        )
        points, directions = scan.points, normals(scan)
    else:
        template, points, directions, _ = generated()
    aligned, summary = align(template, points, directions, args.rounds, device=args.device)
    print(f"{len(template.points)} vertices, {len(points)} scanned points, {args.rounds} rounds")
    print(summary.brief_report())
    distance = cKDTree(points).query(aligned.points)[0]
    print(f"half of the vertices are within {np.median(distance):.3g} of a scanned point")
    if args.output and args.output.suffix == ".obj":
        meshes.write_obj(args.output, aligned)
    elif args.output:
        meshes.draw(args.output, [template, aligned], np.empty(0, int), 30.0, -50.0)
    return aligned, summary


if __name__ == "__main__":
    command.run(main)
