"""A pose graph with types of one's own, in the plane or in space, from file to solution.

    error = measured^-1 (world_T_first^-1 world_T_second)
    residual = x, y, theta      or      x, y, z and the quaternion's vector, as in g2o's files

Run: python examples/pose_graph.py [--data GRAPH.g2o] [--device auto|cpu|vulkan] [-o TRAJECTORY.csv]
"""

from __future__ import annotations

import command
import numpy as np

import graphopt
from graphopt.evaluate.datasets import manhattan, sphere
from graphopt.geometry import SE2, SE3
from graphopt.strategies.initialization import METHODS

PlanePose = graphopt.group_type("PlanePose", SE2)
SpacePose = graphopt.group_type("SpacePose", SE3)


@graphopt.edge_type(vertices=(PlanePose, PlanePose), measurement_dim=3, wrap_measurement=SE2)
def EdgePlaneMotion(world_T_first, world_T_second, measured):
    """Difference between the estimated and the measured motion in the plane."""
    return (measured.inverse() * (world_T_first.inverse() * world_T_second)).storage


@graphopt.edge_type(vertices=(SpacePose, SpacePose), measurement_dim=7, wrap_measurement=SE3)
def EdgeSpaceMotion(world_T_first, world_T_second, measured):
    """Difference between the estimated and the measured motion in space."""
    error = measured.inverse() * (world_T_first.inverse() * world_T_second)
    return error.normalize().storage[..., :6]


OWN = {"EDGE_SE2": EdgePlaneMotion, "EDGE_SE3:QUAT": EdgeSpaceMotion}
"""Edge type of the file -> edge type of this program."""


def build(given: graphopt.Graph) -> graphopt.Graph:
    """The motions of a graph, and the poses between them, in the types above; the first pose is held."""
    graph = graphopt.Graph()
    for motions in given.edge_sets:
        if motions.type.tag not in OWN:
            continue
        edge, pose = OWN[motions.type.tag], given.vertex_set(motions.type.vertices[0])
        graph.add_vertices(edge.vertices[0], pose.ids, pose.estimate)
        graph.add_edges(edge, motions.vertices, motions.measurement, motions.information)
        graph.vertex(int(pose.ids[0])).fixed = True
    if not graph.edge_sets:
        raise command.ExampleError(f"the graph has no edges of type {' or '.join(OWN)}.")
    return graph


def has_estimates(graph: graphopt.Graph) -> bool:
    """Not all poses are at the same place, as where a file has edges only."""
    return any(np.ptp(vertex_set.estimate, axis=0).any() for vertex_set in graph.vertex_sets)


def main(argv: list[str] | None = None) -> graphopt.Summary:
    """Optimize; the summary."""
    parser = command.parser(
        __doc__, data="graph of SE2 or SE3 poses; default: generated", output="poses, .csv"
    )
    parser.add_argument("--plane", action="store_true", help="generate a graph in the plane, not in space")
    parser.add_argument(
        "--initialize", choices=METHODS, help="start values from the motions; default: where there are none"
    )
    args = parser.parse_args(argv)
    if args.data:
        given, _ = graphopt.io.read_with_report(command.existing(args.data, 1, "one graph")[0])
    else:
        given = manhattan(nodes=300, seed=1) if args.plane else sphere(nodes_per_level=20, laps=15, seed=1)
    if args.initialize or not has_estimates(given):
        print(graphopt.initialize(given, args.initialize or "chordal"))
    graph = build(given)
    print(graph)
    summary = graphopt.optimize(graph, device=args.device)
    print(summary.brief_report())
    if args.output:
        poses = graph.vertex_sets[0]
        names = ("x", "y", "theta") if poses.type is PlanePose else ("x", "y", "z", "qx", "qy", "qz", "qw")
        command.write_table(
            args.output, ("id", *names), np.column_stack([poses.ids, poses.estimate]).tolist()
        )
    return summary


if __name__ == "__main__":
    command.run(main)
