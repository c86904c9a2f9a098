"""A point behind a camera that sees nothing there is named in the summary; chi2 stays g2o's."""

import numpy as np
import pytest

import graphopt
from graphopt.evaluate.datasets import ba


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


def test_points_behind_are_found_far_from_the_origin():
    """Cameras and points a million units away, of which some points are moved behind."""
    graph = ba(cameras=6, points=60, camera="expmap", start="truth")
    poses, points, edges = graph.vertex_sets[0], graph.vertex_sets[1], graph.edge_sets[0]
    world_T_cam = poses.type.pose(poses.estimate)
    far = np.array([1e6, -2e6, 5e5])
    turns = np.asarray(world_T_cam.quaternion)
    poses.estimate[:] = type(world_T_cam).from_parts(world_T_cam.translation + far, turns).inverse().storage
    points.estimate[:, :3] += far
    centre = np.asarray(poses.type.pose(poses.estimate).translation)
    points.estimate[::7, :3] = 2.0 * centre[0] - points.estimate[::7, :3]
    (slot,) = [k for k, vertex in enumerate(edges.type.vertices) if vertex.role == "point"]
    of_camera = np.searchsorted(poses.ids, edges.vertices[:, 1 - slot])
    of_point = np.searchsorted(points.ids, edges.vertices[:, slot])
    seen = poses.type.pose(poses.estimate[of_camera]).inverse_act(points.estimate[of_point, :3])
    behind = np.flatnonzero(~(np.asarray(seen)[:, 2] > 0.0)).tolist()
    assert behind
    assert graphopt.optimize(graph, "lm", 0).points_behind == {edges.type.tag: behind}


def test_nobody_looks_where_it_is_not_wanted():
    """look_behind=False leaves the summary empty; the answer is the same."""
    found = []
    for look in (True, False):
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_SE3:EXPMAP", [0], fixed=True)
        graph.add_vertices("VERTEX_TRACKXYZ", [1], [[0.1, 0.2, -3.0]])
        graph.add_edges("EDGE_SE3_PROJECT_XYZ:EXPMAP", [[1, 0]], [[0.4, 0.3, 1.0, 1.0, 0.5, 0.5]])
        summary = graphopt.optimize(graph, "gn", 1, device="cpu", fix="none", look_behind=look)
        found.append((summary.points_behind, summary.initial_chi2))
    assert found[0][0] and not found[1][0] and found[0][1] == found[1][1]
