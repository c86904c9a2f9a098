"""Embedded deformation (Sumner, Schmid and Pauly, SIGGRAPH 2007): few affine frames carry a mesh.

    E = w_rot sum over nodes i:          (c1'c2)^2 + (c1'c3)^2 + (c2'c3)^2 + sum (ck'ck - 1)^2, ck in A
      + w_reg sum over neighbours (i,j): |A_i (g_j - g_i) + g_i + t_i - (g_j + t_j)|^2
      + w_con sum over markers:          |sum_n w_n (A_n (v - g_n) + g_n + t_n) - target|^2

A node is a place g on the mesh with 12 unknowns, A (3 x 3) and t. A vertex moves with its four nearest nodes.

Run: python examples/embedded_deformation.py [--data MESH MARKERS] [--nodes N] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import mesh_deformation
import meshes
import numpy as np
from scipy.spatial import cKDTree

import graphopt

NEAREST = 4
Node = graphopt.group_type("DeformationNode", affine=9, shift=3)


def _matrix(node):
    """(3, 3) A, row by row."""
    return np.stack([node.affine[..., 0:3], node.affine[..., 3:6], node.affine[..., 6:9]], axis=-2)


@graphopt.edge_type(vertices=(Node,), measurement_dim=0, residual_dim=6)
def EdgeNodeRotation(node):
    """How far A is from a rotation."""
    a, b, c = (node.affine[k::3] for k in range(3))
    return np.stack([a @ b, a @ c, b @ c, a @ a - 1.0, b @ b - 1.0, c @ c - 1.0])


@graphopt.edge_type(vertices=(Node, Node), measurement_dim=3)
def EdgeNodeSmooth(first, second, between):
    """Where the first node sends its neighbour - where that goes itself; between: g_j - g_i."""
    return _matrix(first) @ between - between + first.shift - second.shift


@graphopt.edge_type(vertices=(Node,) * NEAREST, measurement_dim=4 * NEAREST + 3)
def EdgeNodeMarker(first, second, third, fourth, data):
    """Deformed vertex - target; data: per node weight and v - g (4 numbers), then target - v."""
    moved = -data[4 * NEAREST :]
    for k, node in enumerate((first, second, third, fourth)):
        weight, from_node = data[4 * k], data[4 * k + 1 : 4 * k + 4]
        moved = moved + weight * (_matrix(node) @ from_node - from_node + node.shift)
    return moved


def deform(mesh: meshes.Mesh, rows: np.ndarray, targets: np.ndarray, num_nodes: int = 60, **options):
    """The mesh with vertices `rows` drawn to `targets`, the summary; places and estimates of the nodes."""
    places = mesh.points[_spread(mesh.points, min(num_nodes, len(mesh.points)))]
    near, weights = influence(mesh.points, places)
    graph = graphopt.Graph()
    identity = np.r_[np.eye(3).ravel(), np.zeros(3)]
    nodes = graph.add_array(Node, np.tile(identity, (len(places), 1)))
    graph.add_edges(EdgeNodeRotation, (graphopt.sequential(nodes),), information=np.eye(6))
    i, j = neighbours(near).T
    ends = graphopt.indexed(nodes, i), graphopt.indexed(nodes, j)
    graph.add_edges(EdgeNodeSmooth, ends, places[j] - places[i], 10.0 * np.eye(3))
    from_node = mesh.points[rows, None] - places[near[rows]]
    data = np.concatenate([weights[rows, :, None], from_node], axis=2).reshape(len(rows), -1)
    data = np.concatenate([data, targets - mesh.points[rows]], axis=1)
    ends = tuple(graphopt.indexed(nodes, near[rows, k]) for k in range(NEAREST))
    graph.add_edges(EdgeNodeMarker, ends, data, 100.0 * np.eye(3))
    summary = graphopt.optimize(graph, **options)
    moved = deformed_points(mesh.points, places, nodes.estimate)
    return meshes.Mesh(moved, mesh.triangles), summary, places, nodes.estimate.copy()


def deformed_points(points: np.ndarray, places: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Points (n, 3), moved with their nearest nodes (k, 12)."""
    near, weights = influence(points, places)
    affine, shift = nodes[near, :9].reshape(*near.shape, 3, 3), nodes[near, 9:]
    moved = np.einsum("nkij,nkj->nki", affine, points[:, None] - places[near]) + places[near] + shift
    return np.einsum("nk,nki->ni", weights, moved)


def _spread(points: np.ndarray, count: int) -> np.ndarray:
    """Rows of points that are far from each other: each next one is the farthest from those before."""
    chosen, distance = [0], np.linalg.norm(points - points[0], axis=1)
    while len(chosen) < count:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return np.array(chosen)


def influence(points: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest nodes (n, 4) and weights (1 - d / d_max)^2 that sum to 1; d_max: distance of the fifth."""
    distance, near = cKDTree(places).query(points, NEAREST + 1)
    weights = (1.0 - distance[:, :NEAREST] / np.maximum(distance[:, -1:], 1e-12)) ** 2 + 1e-9
    return near[:, :NEAREST], weights / weights.sum(axis=1, keepdims=True)


def neighbours(near: np.ndarray) -> np.ndarray:
    """(m, 2) ordered pairs of nodes that move a vertex together."""
    pairs = np.concatenate([near[:, [a, b]] for a in range(NEAREST) for b in range(NEAREST) if a != b])
    return np.unique(pairs, axis=0)


def main(argv: list[str] | None = None):
    """Deform; the mesh and the summary."""
    parser = command.parser(
        __doc__, data="mesh and markers; default: a sheet", output="picture .png or mesh .obj"
    )
    parser.add_argument("--nodes", type=int, default=60, metavar="N", help="default: 60")
    parser.add_argument("--turn", type=float, default=60.0, metavar="DEGREES", help="for .dmat; default: 60")
    args = parser.parse_args(argv)
    if args.nodes <= NEAREST:
        raise command.ExampleError(f"--nodes is {args.nodes}, expected more than {NEAREST}.")
    mesh, rows, targets = mesh_deformation.generated()
    if args.data:
        path, markers = command.existing(args.data, 2, "a mesh and its markers")
        mesh = meshes.read(path)
        rows, targets = mesh_deformation.read_markers(markers, mesh, args.turn)
    deformed, summary, places, _ = deform(mesh, rows, targets, args.nodes, device=args.device)
    print(f"{len(mesh.points)} vertices, {len(places)} nodes, {len(rows)} markers")
    print(summary.brief_report())
    if args.output and args.output.suffix == ".obj":
        meshes.write_obj(args.output, deformed)
    elif args.output:
        meshes.draw(args.output, [mesh, deformed], rows, *((0.0, 0.0) if args.data else (30.0, -50.0)))
    return deformed, summary


if __name__ == "__main__":
    command.run(main)
