"""A point behind a camera that sees nothing there is named in the summary; chi2 stays g2o's."""

import numpy as np
import pytest

import graphopt
from graphopt.datasets import ba


@pytest.mark.parametrize("camera", ["bal", "expmap"])
def test_points_behind_are_counted_and_named(camera):
    """None in a good graph; of a camera that is turned around, all that it is said to see."""
    graph = ba(cameras=6, points=60, camera=camera, start="truth")
    summary = graphopt.optimize(graph, "lm", 0)
    assert summary.points_behind == {}
    cameras = graph.vertex_sets[0] if graph.vertex_sets[0].type.role != "point" else graph.vertex_sets[1]
    edges = graph.edge_sets[0]
    place = cameras.type.pose(cameras.estimate[2:3])
    turned = place * type(place)(np.array([[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]))
    if camera == "bal":
        cameras.estimate[2:3] = cameras.type.place(turned, cameras.estimate[2:3])
    else:
        cameras.estimate[2:3] = turned.inverse().storage
    expected = np.flatnonzero((edges.vertices == cameras.ids[2]).any(axis=1)).tolist()
    summary = graphopt.optimize(graph, "lm", 0)
    assert summary.points_behind == {edges.type.tag: expected}
    assert f"{len(expected)} points behind their cameras" in summary.full_report()
    assert summary.to_dict()["points_behind"] == {edges.type.tag: len(expected)}
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-9)
