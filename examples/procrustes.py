"""Generalised Procrustes analysis: the common shape of sets of points, and how each was moved.

    E = sum over sets k, points i:  |S_k z_ki - x_i|^2        S_k = (s_k, R_k, t_k), x: the mean shape

All S_k are similarities. The first one is held, which fixes the frame and the size of the mean shape.

Run: python examples/procrustes.py [--data MESH ...] [--device auto|cpu|vulkan] [-o TABLE.csv]
The meshes have the same number of vertices, in the same order.
"""

from __future__ import annotations

import command
import images
import meshes
import numpy as np

import graphopt
from graphopt.geometry import SO3, Sim3

Similarity = graphopt.group_type("ShapeSimilarity", Sim3)
Point = graphopt.group_type("ShapePoint", 3)


@graphopt.edge_type(vertices=(Similarity, Point), measurement_dim=3)
def EdgeSamePoint(mean_S_set, point, seen):
    """The point as the set has it, moved to the mean shape - the mean shape's point."""
    return mean_S_set.act(seen) - point


def align(sets: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray, graphopt.Summary]:
    """Mean shape (n, 3), similarities (k, 8) mean_S_set and the summary of sets (k, n, 3)."""
    count, num_points, _ = sets.shape
    graph = graphopt.Graph()
    start = np.tile(np.asarray(Similarity.identity, float), (count, 1))
    start[:, :3] = sets[0].mean(axis=0) - sets.mean(axis=1)
    similarities = graph.add_array(Similarity, start, fixed=np.arange(count) == 0)
    points = graph.add_array(Point, sets[0], marginalized=True)
    k, i = np.divmod(np.arange(count * num_points), num_points)
    ends = graphopt.indexed(similarities, k), graphopt.indexed(points, i)
    graph.add_edges(EdgeSamePoint, ends, sets.reshape(-1, 3))
    summary = graphopt.optimize(graph, **options)
    return points.estimate.copy(), similarities.estimate.copy(), summary


def generated(count: int = 6, num_points: int = 120, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    """Sets (count, num_points, 3) of one shape: turned by up to 60 degrees, scaled, moved, with noise."""
    rng = np.random.default_rng(seed)
    shape = rng.normal(0.0, [1.0, 0.5, 0.2], (num_points, 3))
    sets = [shape]
    for _ in range(count - 1):
        rotation = np.asarray(SO3.exp(rng.uniform(-0.6, 0.6, 3)).to_matrix())
        sets.append(rng.uniform(0.6, 1.6) * shape @ rotation.T + rng.normal(0.0, 2.0, 3))
    return np.stack(sets) + rng.normal(0.0, noise, (count, num_points, 3))


def main(argv: list[str] | None = None) -> tuple[np.ndarray, np.ndarray, graphopt.Summary]:
    """Align; mean shape, similarities and the summary."""
    parser = command.parser(
        __doc__,
        data="meshes with the same vertices; default: generated",
        output="picture .png, before and after, or table .csv",
    )
    args = parser.parse_args(argv)
    if args.data:
        sets = [meshes.read(path).points for path in command.existing(args.data)]
        if len({points.shape for points in sets}) > 1:
            raise command.ExampleError("the meshes have different numbers of vertices.")
        shapes = np.stack(sets)
    else:
        shapes = generated()
    mean, similarities, summary = align(shapes, device=args.device)
    print(f"{len(shapes)} sets of {shapes.shape[1]} points")
    print(summary.brief_report())
    print("scales:", similarities[:, 7].round(4))
    if args.output and args.output.suffix == ".png":
        moved = [
            np.asarray(Sim3(similarity).act(points))
            for similarity, points in zip(similarities, shapes, strict=True)
        ]
        images.write(args.output, images.dots([list(shapes), moved]))
    elif args.output:
        columns = ("x", "y", "z", "qx", "qy", "qz", "qw", "scale")
        command.write_table(args.output, columns, similarities.tolist())
    return mean, similarities, summary


if __name__ == "__main__":
    command.run(main)
