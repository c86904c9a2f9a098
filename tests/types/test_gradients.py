"""A wrong Jacobian is refused where the type is defined, and `check_gradients` finds it in a graph."""

import numpy as np
import pytest

import graphopt
from graphopt.errors import ShapeError
from graphopt.evaluate.datasets import ba, sphere
from graphopt.geometry import SE2

pytestmark = pytest.mark.usefixtures("own_types")


def distance(point, measured):
    """Residual of one number: |p|^2 - z."""
    return np.stack([point[..., 0] * point[..., 0] + point[..., 1] * point[..., 1] - measured], axis=-1)


def right(point, measured):
    """Its derivative."""
    return (2.0 * np.stack([point[..., 0], point[..., 1]], axis=-1)[..., None, :],)


def wrong(point, measured):
    """The second column has the wrong sign."""
    return (2.0 * np.stack([point[..., 0], -point[..., 1]], axis=-1)[..., None, :],)


def define(jacobian, **options):
    """Define an edge type with this Jacobian."""
    decorator = graphopt.edge_type(
        vertices=("VERTEX_XY",), measurement_dim=1, name="EdgeGradientRange", jacobian=jacobian, **options
    )
    return decorator(distance)


def test_a_right_jacobian_is_taken():
    """And used."""
    kind = define(right)
    assert kind.jacobian is right


def test_a_wrong_column_is_named():
    """Block, vertex type, column, both values, and the ways out."""
    with pytest.raises(ShapeError) as raised:
        define(wrong)
    text = str(raised.value)
    for part in ("EdgeGradientRange", "column 1 of block 0", "VertexPointXY", "check=False", "def wrong"):
        assert part in text, text


def test_wrong_shapes_are_refused():
    """Of a block, and their number."""
    with pytest.raises(ShapeError, match=r"block 0 of shape \(2, 1\), expected .* \(1, 2\)"):
        define(lambda point, z: (np.ones((2, 1)),))
    with pytest.raises(ShapeError, match="returns 2 blocks, expected one per vertex, 1"):
        define(lambda point, z: (np.ones((1, 2)), np.ones((1, 2))))


def test_the_check_can_be_left_out_and_made_for_a_graph():
    """A Jacobian that is meant to be something else; the report says so and names the place."""
    kind = define(wrong, check=False)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0, 1], [[1.0, 2.0], [3.0, 4.0]])
    graph.add_edges(kind, [[0], [1]], [[1.0], [2.0]])
    report = graphopt.check_gradients(graph)
    assert not report.is_right
    (found,) = report.wrong
    assert (found.vertex, found.column, found.num_edges, found.is_own) == (0, 1, 2, True)
    assert found.error == pytest.approx(2.0, rel=1e-6)
    assert "WRONG" in str(report) and "column 1" in str(report)


def test_poses_are_moved_by_their_oplus():
    """A Jacobian towards the pose's own update, not towards its numbers."""

    def ahead(pose, z):
        return pose.translation - z

    def by_update(pose, z):
        if isinstance(pose, SE2):  # VertexSE2 adds to x and y
            zero, one = 0.0 * pose.storage[..., 0], 0.0 * pose.storage[..., 0] + 1.0
            rows = [np.stack([one, zero, zero], axis=-1), np.stack([zero, one, zero], axis=-1)]
            return (np.stack(rows, axis=-2),)
        raise AssertionError

    kind = graphopt.edge_type(
        vertices=("VERTEX_SE2",), measurement_dim=2, name="EdgeGradientPair", jacobian=by_update
    )(ahead)
    assert kind.residual_dim == 2


@pytest.mark.parametrize(
    "graph", [ba(5, 30), ba(5, 30, camera="expmap"), sphere(5, 5)], ids=["bal", "expmap", "sphere"]
)
def test_built_in_types(graph):
    """Own and derived Jacobians of generated graphs are right."""
    report = graphopt.check_gradients(graph, max_edges=20)
    assert report.is_right, str(report)
    assert len(str(report).splitlines()) == len(graph.edge_sets)
