"""Edge types that are images of points say what their cameras see; the summary counts points elsewhere."""

import sys

import numpy as np
import pytest

import graphopt
import slam_bridge  # noqa: F401  (its types are registered)
from graphopt.errors import ShapeError
from graphopt.geometry import SE3
from graphopt.graph import Graph
from graphopt.io import extra_types  # noqa: F401
from graphopt.types import registry
from graphopt.types.base import EdgeType

NOISE = np.random.default_rng(5)


def moved(kind):
    """A vertex a little away from its identity."""
    return kind.oplus(np.array(kind.identity), NOISE.uniform(-0.1, 0.1, kind.tangent_dim))


def of_pose_and_point():
    """Edge types with one camera or pose and one point."""
    for kind in registry.edge_types():
        if isinstance(kind, EdgeType):
            roles = [vertex.role == "point" for vertex in kind.vertices]
            posed = [vertex.pose is not None for vertex in kind.vertices]
            if sum(roles) == 1 and any(posed):
                yield kind


@pytest.mark.parametrize("kind", list(of_pose_and_point()), ids=lambda kind: kind.tag)
def test_a_type_that_cannot_tell_a_point_from_its_mirror_image_knows_what_is_seen(kind):
    """Where p and 2 c - p have the same error for the camera's centre c, one of the two is seen."""
    states = [moved(vertex) for vertex in kind.vertices]
    point = next(i for i, vertex in enumerate(kind.vertices) if vertex.role == "point")
    camera = next(i for i, vertex in enumerate(kind.vertices) if vertex.pose is not None)
    pose = kind.vertices[camera].pose(states[camera])
    if kind.vertices[point].storage_dim != 3 or not hasattr(pose, "quaternion"):
        assert kind.sees is None
        return
    constants = [np.array(parameter.identity) for parameter in kind.parameters]
    measurement = NOISE.uniform(0.1, 0.3, kind.measurement_dim)
    centre = np.asarray(pose.translation)

    def at(place):
        values = [*states, *constants, measurement]
        values[point] = place
        return values, kind.error(tuple(values[: len(states)]), tuple(constants), measurement)

    ahead = pose.act(np.array([0.3, -0.2, 2.0]))
    here, error = at(np.asarray(ahead))
    there, mirrored = at(2.0 * centre - np.asarray(ahead))
    is_same = np.allclose(error, mirrored, atol=1e-9)
    assert not is_same or kind.sees is not None
    if kind.sees is not None:
        front = kind.seen(*(np.asarray(value)[None] for value in here))
        back = kind.seen(*(np.asarray(value)[None] for value in there))
        assert front.shape == back.shape == (1,)
        assert not is_same or bool(front[0]) != bool(back[0])


def graph_of(kind, estimates, measurement, parameters=()):
    """One edge of a type, its vertices 0, 1, ... at these estimates."""
    graph = Graph()
    for number, (vertex, estimate) in enumerate(zip(kind.vertices, estimates, strict=True)):
        graph.add_vertices(vertex, [number], [estimate])
    for number, (parameter, value) in enumerate(zip(kind.parameters, parameters, strict=True)):
        graph.add_parameters(parameter, [number], [value])
    graph.add_edges(
        kind, [list(range(len(estimates)))], [measurement],
        **({"parameters": [list(range(len(parameters)))]} if parameters else {}),
    )  # fmt: skip
    return graph


CAMERA = [100.0, 100.0, 320.0, 240.0]
AHEAD, BEHIND = [0.2, 0.1, 3.0], [-0.2, -0.1, -3.0]


@pytest.mark.parametrize(
    ("tag", "measurement"),
    [
        ("EDGE_SE3_PROJECT_XYZONLYPOSE:EXPMAP", lambda p: [326.0, 243.0, *p, *CAMERA]),
        ("EDGE_STEREO_SE3_PROJECT_XYZONLYPOSE:EXPMAP", lambda p: [326.0, 243.0, 320.0, *p, *CAMERA, 10.0]),
    ],
)
@pytest.mark.parametrize(("point", "count"), [(AHEAD, 0), (BEHIND, 1)])
def test_known_points(tag, measurement, point, count):
    """The point stands in the measurement."""
    kind = registry.edge_type(tag)
    graph = graph_of(kind, [SE3.identity_storage], measurement(point))
    assert sum(map(len, graph.points_behind().values())) == count
    assert sum(map(len, graphopt.optimize(graph, "lm", 0, fix="none").points_behind.values())) == count


@pytest.mark.parametrize(
    ("psi", "count"), [((0.1, 0.05, 0.3), 0), ((0.1, 0.05, -0.3), 1), ((0.1, 0.0, 0.9), 1)]
)
def test_inverse_depth(psi, count):
    """Behind the anchor, or before it and behind the camera, which stands 2 m ahead."""
    kind = registry.edge_type("EDGE_PSI2UV")
    ahead = [0.0, 0.0, -2.0, 0.0, 0.0, 0.0, 1.0]
    graph = graph_of(kind, [psi, ahead, SE3.identity_storage], [0.0, 0.0], [[100.0, 320.0, 240.0, 0.5]])
    assert sum(map(len, graph.points_behind().values())) == count


def test_camera_on_a_rig():
    """A camera that looks backwards sees what is behind its rig."""
    kind = registry.edge_type("EDGE_PROJECT_PINHOLE_RIG")
    backwards = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    for point, count in ((AHEAD, 1), (BEHIND, 0)):
        graph = graph_of(kind, [SE3.identity_storage, point, CAMERA], [320.0, 240.0], [backwards])
        assert sum(map(len, graph.points_behind().values())) == count
        found = [finding for finding in graph.check() if finding.kind == "points-behind"]
        assert len(found) == count


def test_a_fisheye_sees_behind_90_degrees():
    """No point is counted that a Kannala-Brandt camera sees."""
    kind = registry.edge_type("EDGE_VI_PIXEL_KB8")
    camera = [100.0, 100.0, 320.0, 240.0, 0.0, 0.0, 0.0, 0.0]
    graph = graph_of(
        kind, [SE3.identity_storage, [1.0, 0.0, -0.1]], [480.0, 240.0], [SE3.identity_storage, camera]
    )
    assert graph.points_behind() == {}


def test_a_users_type(own_types):
    """`sees` of a type of one's own, and of one that is evaluated row by row; a wrong one is refused."""
    for batched in (True, False):

        def residual(point):
            x, y, z = (point[..., i] for i in range(3)) if batched else point  # noqa: B023
            return np.stack([x / z, y / z], axis=-1)

        kind = graphopt.edge_type(
            tag=f"EDGE_FROM_ORIGIN_{batched}", name="EdgeFromOrigin", vertices=("VERTEX_TRACKXYZ",),
            sees=lambda point: point[..., 2] > 0.0,
        )(residual)  # fmt: skip
        assert kind.is_batched == batched
        graph = Graph()
        graph.add_vertices("VERTEX_TRACKXYZ", [0, 1, 2], [AHEAD, BEHIND, AHEAD])
        graph.add_edges(kind, [[0], [1], [2]])
        graph.vertex_sets[0].estimate[2, 2] = np.nan
        assert graph.points_behind() == {kind.tag: [1, 2]}
    with pytest.raises(ShapeError, match="one truth each"):
        graphopt.edge_type(
            tag="EDGE_BAD_SIGHT", vertices=("VERTEX_TRACKXYZ",), name="EdgeBadSight", sees=lambda p: p > 0.0
        )(lambda point: point)


def test_many_images_are_not_passed_over_in_silence(monkeypatch):
    """Where there are too many to look at, the summary says so."""
    from graphopt.evaluate.datasets import ba

    graph = ba(cameras=4, points=30)
    monkeypatch.setattr(sys.modules["graphopt.optimizer.ending"], "MOST_VIEWS", 10)
    summary = graphopt.optimize(graph, "lm", 1)
    assert "not looked for" in summary.message


def test_the_command_line_says_so(tmp_path, capsys):
    """`graphopt g2o` names the edges by their vertices; `graphopt info` has it among its findings."""
    from graphopt.cli.main import main

    kind = registry.edge_type("EDGE_PROJECT_P2MC")
    graph = Graph()
    graph.add_vertices("VERTEX_CAM", [7], [[*SE3.identity_storage, *CAMERA, 0.0]], fixed=True)
    graph.add_vertices("VERTEX_TRACKXYZ", [11, 12], [AHEAD, BEHIND])
    graph.add_edges(kind, [[11, 7], [12, 7]], [[326.0, 243.0]] * 2)
    path = tmp_path / "a.g2o"
    graphopt.write(graph, path, dialect="g2o")
    assert main(["g2o", "-i", "0", str(path)]) == 0
    assert (
        "# 1 points behind their cameras: EDGE_PROJECT_P2MC, edges of vertices 12 7"
        in capsys.readouterr().err
    )
    assert main(["info", str(path)]) == 0
    assert "1 EDGE_PROJECT_P2MC are images of points that their cameras do not see" in capsys.readouterr().out
