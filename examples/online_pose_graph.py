"""A pose graph fed pose by pose from a file, with a loop that is tried and taken back.

    chi2 = sum over motions of e' Omega e,  solved again after each pose

Run: python examples/online_pose_graph.py [--data GRAPH.g2o] [--device cpu]
"""

from __future__ import annotations

from itertools import pairwise

import command
import numpy as np

import graphopt
from graphopt.evaluate.datasets import manhattan
from graphopt.geometry import SE2, SE3

GROUPS = {"EDGE_SE2": SE2, "EDGE_SE3:QUAT": SE3}


def feed(given: graphopt.Graph, device: str = "cpu") -> graphopt.Online:
    """The poses of a graph in the order of their ids, each with its edges to poses before it."""
    if len(given.edge_sets) != 1 or given.edge_sets[0].type.tag not in GROUPS:
        raise command.ExampleError(f"the graph has other edges than {' or '.join(GROUPS)}.")
    edges = given.edge_sets[0]
    group, pose_type = GROUPS[edges.type.tag], edges.type.vertices[0]
    ids = np.sort(given.vertex_sets[0].ids).tolist()
    newest = edges.vertices.max(axis=1)
    online = graphopt.Online(device=device)
    online.update([(pose_type, [ids[0]], given.vertex(ids[0]).estimate[None], True)])
    for before, id_ in pairwise(ids):
        rows = np.flatnonzero(newest == id_)
        motion = [row for row in rows.tolist() if edges.vertices[row].tolist() == [before, id_]]
        if not motion:
            raise command.ExampleError(f"no edge leads from pose {before} to pose {id_}.")
        start = group(online.estimate(before)) * group(edges.measurement[motion[0]])
        online.update(
            [(pose_type, [id_], np.asarray(start.storage)[None])],
            [(edges.type, edges.vertices[rows], edges.measurement[rows], edges.information[rows])],
        )
    return online


def try_loop(online: graphopt.Online, edge: tuple, most: float) -> bool:
    """Add a loop and keep it if chi2 rises by less than `most`."""
    before, chi2 = online.snapshot(), online.chi2
    online.update(edges=[edge])
    if online.chi2 - chi2 < most:
        return True
    online.restore(before)
    return False


def main(argv: list[str] | None = None) -> graphopt.Online:
    """Command line."""
    parser = command.parser(__doc__, data="a pose graph with motions of one type")
    args = parser.parse_args(argv)
    if args.data is None:
        given = manhattan(nodes=300, seed=2)
    else:
        given = graphopt.read(command.existing(args.data, 1, "a pose graph")[0])
    online = feed(given, args.device)
    print(f"{online}, batch {online.batch().chi2:.6g}")
    edges = given.edge_sets[0]
    first, last = int(edges.vertices.min()), int(edges.vertices.max())
    wrong = edges.type, [[first, last]], edges.measurement[:1], edges.information[:1]
    kept = try_loop(online, wrong, most=20.0)
    print(f"a loop from {first} to {last}: {'kept' if kept else 'taken back'}, chi2 {online.chi2:.6g}")
    return online


if __name__ == "__main__":
    command.run(main)
