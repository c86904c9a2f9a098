"""Volumetric deformation: a lattice around a shape bends as rigidly as possible, the shape bends with it.

    E = sum over neighbours (i, j) of a 3-D grid, both ways:  |p_i - p_j - R_i (q_i - q_j)|^2
      + w_fit sum over held nodes:                             |p_i - target_i|^2

Points inside are interpolated between the eight corners of their cell.

Run: python examples/volumetric_deformation.py [--data MESH] [--cells N] [--device ...] [-o OUT.png|OUT.obj]
"""

from __future__ import annotations

import command
import meshes
import numpy as np

import graphopt
from graphopt.geometry import SO3

Node = graphopt.group_type("LatticeNode", position=3, rotation=SO3)
STEPS = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


@graphopt.edge_type(vertices=(Node, Node), measurement_dim=3)
def EdgeLatticeRigid(first, second, at_rest):
    """The step as it is - the step at rest, rotated with its first node."""
    return first.position - second.position - first.rotation * at_rest


@graphopt.edge_type(vertices=(Node,), measurement_dim=3)
def EdgeLatticeHeld(node, target):
    """Position - target."""
    return node.position - target


def bend(corner: np.ndarray, cell: float, shape: tuple[int, ...], targets: np.ndarray, **options):
    """Positions (*shape, 3) of the lattice whose nodes are drawn to targets (*shape, 3); NaN: free."""
    rest = corner + cell * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    graph = graphopt.Graph()
    start = np.concatenate([rest, np.broadcast_to([0.0, 0.0, 0.0, 1.0], (*shape, 4))], axis=-1)
    nodes = graph.add_grid(Node, shape, estimates=start)
    for step in STEPS:
        for here, there in (((0, 0, 0), step), (step, (0, 0, 0))):
            at_rest = cell * (np.array(here) - there)
            graph.add_stencil(EdgeLatticeRigid, nodes, [here, there], np.broadcast_to(at_rest, (*shape, 3)))
    held = np.isfinite(targets).all(axis=-1).ravel()
    rows = np.flatnonzero(held)
    graph.add_edges(
        EdgeLatticeHeld, (graphopt.indexed(nodes, rows),), targets.reshape(-1, 3)[rows], 100.0 * np.eye(3)
    )
    summary = graphopt.optimize(graph, **options)
    return nodes.estimate[..., :3].reshape(*shape, 3).copy(), rest, summary


def interpolate(points: np.ndarray, corner: np.ndarray, cell: float, lattice: np.ndarray) -> np.ndarray:
    """Points (n, 3) at rest, moved with the lattice (a, b, c, 3) by trilinear interpolation."""
    place = (points - corner) / cell
    low = np.clip(np.floor(place).astype(int), 0, np.array(lattice.shape[:3]) - 2)
    part = place - low
    moved = np.zeros_like(points)
    for offset in np.ndindex(2, 2, 2):
        weight = np.prod(np.where(offset, part, 1.0 - part), axis=1)
        moved += weight[:, None] * lattice[tuple((low + offset).T)]
    return moved


def lattice_around(points: np.ndarray, cells: int) -> tuple[np.ndarray, float, tuple[int, ...]]:
    """Corner, size of a cell, nodes per axis: `cells` along the longest side, a margin of half a cell."""
    low, high = points.min(axis=0), points.max(axis=0)
    cell = float((high - low).max() / cells)
    shape = np.maximum(np.ceil((high - low) / cell).astype(int) + 2, 2)
    return 0.5 * (low + high - cell * (shape - 1)), cell, tuple(shape.tolist())


def turned_end(corner: np.ndarray, cell: float, shape: tuple[int, ...], degrees: float) -> np.ndarray:
    """Targets: the first layer along the longest axis stays, the last one turns about another axis."""
    axis = int(np.argmax(shape))
    rest = corner + cell * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    targets = np.full_like(rest, np.nan)
    first, last = [slice(None)] * 3, [slice(None)] * 3
    first[axis], last[axis] = slice(0, 1), slice(shape[axis] - 1, shape[axis])
    targets[tuple(first)] = rest[tuple(first)]
    turn = np.zeros(3)
    turn[(axis + 1) % 3] = np.radians(degrees)
    middle = rest.reshape(-1, 3).mean(axis=0)
    rotation = np.asarray(SO3.exp(turn).to_matrix())
    targets[tuple(last)] = (rest[tuple(last)] - middle) @ rotation.T + middle
    return targets


def main(argv: list[str] | None = None):
    """Bend; the mesh and the summary."""
    parser = command.parser(__doc__, data="mesh; default: a sheet", output="picture .png or mesh .obj")
    parser.add_argument(
        "--cells", type=int, default=8, metavar="N", help="along the longest side; default: 8"
    )
    parser.add_argument("--turn", type=float, default=70.0, metavar="DEGREES", help="default: 70")
    args = parser.parse_args(argv)
    if args.cells < 2:
        raise command.ExampleError(f"--cells is {args.cells}, expected at least 2.")
    mesh = meshes.grid(9, 25)
    if args.data:
        mesh = meshes.read(command.existing(args.data, 1, "a mesh")[0])
    corner, cell, shape = lattice_around(mesh.points, args.cells)
    targets = turned_end(corner, cell, shape, args.turn)
    lattice, _, summary = bend(corner, cell, shape, targets, device=args.device)
    bent = meshes.Mesh(interpolate(mesh.points, corner, cell, lattice), mesh.triangles)
    print(f"{len(mesh.points)} vertices in a lattice of {' x '.join(map(str, shape))} nodes")
    print(summary.brief_report())
    if args.output and args.output.suffix == ".obj":
        meshes.write_obj(args.output, bent)
    elif args.output:
        meshes.draw(args.output, [mesh, bent], np.empty(0, int), 30.0, -50.0)
    return bent, summary


if __name__ == "__main__":
    command.run(main)
