"""Mesh deformation as rigid as possible (Sorkine and Alexa, SGP 2007), positions and rotations together.

    E = sum over edges (i, j), both ways:  w_ij |p_i - p_j - R_i (q_i - q_j)|^2      q: the mesh at rest
      + w_fit sum over markers:            |p_i - target_i|^2

A mesh vertex is a graph vertex with position and rotation, a mesh edge two graph edges that store q_i - q_j.

Run: python examples/mesh_deformation.py [--data MESH MARKERS] [--device auto|cpu|vulkan] [-o OUT.png|OUT.obj]
MARKERS: .mrk of Opt (a count, then x y z radius vertex), or .dmat of libigl (a group per vertex, -1: free;
group 0 stays, the others turn about the upright axis by --turn degrees).
"""

from __future__ import annotations

from pathlib import Path

import command
import meshes
import numpy as np

import graphopt
from graphopt.geometry import SO3

Frame = graphopt.group_type("MeshFrame", position=3, rotation=SO3)
"""Storage (7,): position of a mesh vertex, rotation of what surrounds it as unit quaternion."""


@graphopt.edge_type(vertices=(Frame, Frame), measurement_dim=3)
def EdgeRigid(first, second, at_rest):
    """The edge as it is - the edge at rest, rotated with its first vertex."""
    return first.position - second.position - first.rotation * at_rest


@graphopt.edge_type(vertices=(Frame,), measurement_dim=3)
def EdgeMarker(frame, target):
    """Position - target."""
    return frame.position - target


def build(mesh: meshes.Mesh, rows: np.ndarray, targets: np.ndarray, fit: float = 100.0):
    """Graph, and its vertices, of a mesh at rest with targets (n, 3) for the vertices `rows` (n,)."""
    graph = graphopt.Graph()
    at_rest = np.zeros((len(mesh.points), 7)) + Frame.identity
    at_rest[:, :3] = mesh.points
    frames = graph.add_array(Frame, at_rest)
    edges = mesh.edges()
    weights = mesh.cotangent_weights(edges)[:, None, None] * np.eye(3)
    for i, j in (edges.T, edges.T[::-1]):
        ends = graphopt.indexed(frames, i), graphopt.indexed(frames, j)
        graph.add_edges(EdgeRigid, ends, mesh.points[i] - mesh.points[j], weights)
    graph.add_edges(EdgeMarker, graphopt.indexed(frames, rows), targets, fit * np.eye(3))
    return graph, frames


def deform(
    mesh: meshes.Mesh, rows: np.ndarray, targets: np.ndarray, **options
) -> tuple[meshes.Mesh, graphopt.Summary]:
    """The mesh with the vertices `rows` drawn to `targets`."""
    graph, frames = build(mesh, rows, targets)
    summary = graphopt.optimize(graph, **options)
    return meshes.Mesh(frames.estimate[:, :3].copy(), mesh.triangles), summary


def read_markers(path: Path, mesh: meshes.Mesh, turn: float) -> tuple[np.ndarray, np.ndarray]:
    """(rows, targets) of a .mrk or .dmat file."""
    words = path.read_text(encoding="ascii").split()
    try:
        if path.suffix == ".dmat":
            groups = np.array(words[2:], float).astype(int)
            if len(groups) != len(mesh.points):
                raise ValueError(f"{len(groups)} groups for {len(mesh.points)} vertices")
            return _turned(mesh, groups, np.radians(turn))
        table = np.array(words[1:], float).reshape(int(words[0]), 5)
    except (ValueError, IndexError) as error:
        raise command.ExampleError(f"{path} cannot be read as markers: {error}.") from error
    rows = table[:, 4].astype(int)
    if rows.min() < 0 or rows.max() >= len(mesh.points):
        raise command.ExampleError(
            f"{path} names vertex {rows.max()}, the mesh has {len(mesh.points)} vertices."
        )
    return rows, table[:, :3]


def _turned(mesh: meshes.Mesh, groups: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Targets of the groups' vertices: group 0 stays, the others turn about the y axis through its centre."""
    rows = np.flatnonzero(groups >= 0)
    if not len(rows):
        raise ValueError("no vertex is in a group")
    centre = mesh.points[groups == 0].mean(axis=0) if (groups == 0).any() else mesh.points.mean(axis=0)
    turned = SO3.exp(np.array([0.0, angle, 0.0])).to_matrix() @ (mesh.points[rows] - centre).T
    return rows, np.where((groups[rows] == 0)[:, None], mesh.points[rows], turned.T + centre)


def generated() -> tuple[meshes.Mesh, np.ndarray, np.ndarray]:
    """A sheet whose left side is held and whose right side is bent up and over."""
    mesh = meshes.grid(9, 21)
    x = mesh.points[:, 0]
    rows = np.flatnonzero((x == x.min()) | (x == x.max()))
    targets = mesh.points[rows].copy()
    targets[x[rows] == x.max()] += [-14.0, 0.0, 8.0]
    return mesh, rows, targets


def main(argv: list[str] | None = None) -> tuple[meshes.Mesh, graphopt.Summary]:
    """Deform; the mesh and the summary."""
    parser = command.parser(
        __doc__, data="mesh and markers; default: a sheet", output="picture .png or mesh .obj"
    )
    parser.add_argument("--turn", type=float, default=60.0, metavar="DEGREES", help="for .dmat; default: 60")
    args = parser.parse_args(argv)
    if args.data:
        path, markers = command.existing(args.data, 2, "a mesh and its markers")
        mesh = meshes.read(path)
        rows, targets = read_markers(markers, mesh, args.turn)
    else:
        mesh, rows, targets = generated()
    deformed, summary = deform(mesh, rows, targets, device=args.device)
    print(f"{len(mesh.points)} vertices, {len(mesh.triangles)} triangles, {len(rows)} markers")
    print(summary.brief_report())
    missed = np.linalg.norm(deformed.points[rows] - targets, axis=1).max()
    print(f"markers missed by {missed:.3g} at most, extent {np.ptp(mesh.points, axis=0).max():.3g}")
    if args.output and args.output.suffix == ".obj":
        meshes.write_obj(args.output, deformed)
    elif args.output:
        view = (0.0, 0.0) if args.data else (30.0, -50.0)
        meshes.draw(args.output, [mesh, deformed], rows, *view)
    return deformed, summary


if __name__ == "__main__":
    command.run(main)
