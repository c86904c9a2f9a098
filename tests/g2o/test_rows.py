"""Vertices and edges keep their numbers in rows; fast methods do what the Python methods do."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref

import numpy as np
import pytest

import graphopt.g2o as g2o
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphOptError


def pose_edge() -> g2o.EdgeSE3ProjectXYZOnlyPose:
    edge = g2o.EdgeSE3ProjectXYZOnlyPose()
    edge.set_vertex(0, g2o.VertexSE3Expmap(3))
    edge.fx, edge.fy, edge.cx, edge.cy = 500.0, 510.0, 320.0, 240.0
    edge.Xw = np.array([0.5, -0.4, 5.0])
    edge.set_measurement(np.array([360.0, 200.0]))
    return edge


@pytest.mark.parametrize(
    "given",
    [
        np.array([1.0, 2.0]),
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2], np.float32),
        np.array([[1.0], [2.0]]),
        np.array([1.0, 0.0, 2.0])[::2],
        np.array([1.0, 2.0]).view(g2o.edges.CallableArray),
    ],
    ids=["array", "list", "tuple", "single", "column", "strided", "subclass"],
)
def test_measurements_of_any_kind(given):
    edge = pose_edge()
    edge.set_measurement(given)
    np.testing.assert_array_equal(edge.measurement(), [1.0, 2.0])
    np.testing.assert_array_equal(edge.Xw, [0.5, -0.4, 5.0])
    assert edge.fx == 500.0


def test_wrong_shapes_are_refused_and_change_nothing():
    edge = pose_edge()
    for wrong in (np.zeros(3), np.zeros((3, 1)), np.zeros((2, 2))):
        with pytest.raises((GraphOptError, ValueError)):
            edge.set_measurement(wrong)
    with pytest.raises(GraphOptError, match="information"):
        edge.set_information(np.eye(3))
    np.testing.assert_array_equal(edge.measurement(), [360.0, 200.0])
    np.testing.assert_array_equal(edge.information(), np.eye(2))


def test_information_counts_in_chi2_at_once():
    edge = pose_edge()
    edge.compute_error()
    before = edge.chi2()
    assert before > 0.0
    for matrix in (4.0 * np.eye(2), [[4.0, 0.0], [0.0, 4.0]], np.asfortranarray([[4.0, 0.0], [0.0, 4.0]])):
        edge.set_information(np.eye(2))
        edge.set_information(matrix)
        assert edge.chi2() == pytest.approx(4.0 * before, rel=1e-14)
    edge.error = np.array([1.0, 2.0])
    assert edge.chi2() == 20.0


def test_levels_and_flags():
    edge, vertex = pose_edge(), g2o.VertexSE3()
    edge.set_level(np.int64(3))
    assert edge.level() == 3
    edge.set_level(l=4)
    assert type(edge.level()) is int and edge.level() == 4
    with pytest.raises((OverflowError, ValueError)):
        edge.set_level(2**40)
    assert edge.level() == 4
    vertex.set_fixed(np.bool_(True))
    vertex.set_marginalized(1)
    assert vertex.fixed() is True and vertex.marginalized() is True
    vertex.set_fixed(False)
    assert vertex.fixed() is False


def test_camera_numbers():
    edge = g2o.EdgeStereoSE3ProjectXYZ()
    edge.fx, edge.bf = 500, 40.1
    assert edge.fx == 500.0 and edge.bf == float(np.float32(40.1))
    edge.fy = np.float32(2.5)
    assert type(edge.fy) is float and edge.fy == 2.5
    with pytest.raises((TypeError, ValueError)):
        edge.cx = "wide"
    with pytest.raises(AttributeError):
        del edge.cx


def test_one_edge_has_the_digits_of_many():
    """`compute_error` of one edge equals that of a list longer than a chunk of lanes."""
    edges = []
    random = np.random.default_rng(0)
    vertex = g2o.VertexSE3Expmap(0)
    vertex.set_estimate(g2o.SE3Quat(np.eye(3), np.array([0.1, 0.2, 0.3])))
    for _ in range(150):
        edge = pose_edge()
        edge.set_vertex(0, vertex)
        edge.set_measurement(random.uniform(0.0, 400.0, 2))
        edges.append(edge)
    g2o.evaluate.evaluator(type(edges[0])._type).many(edges)
    batch = [(edge.error.copy(), edge.chi2()) for edge in edges]
    for edge, (error, chi2) in zip(edges, batch, strict=True):
        edge.compute_error()
        np.testing.assert_array_equal(edge.error, error)
        assert chi2 == pytest.approx(float(error @ error), rel=1e-14)


def test_missing_vertices_are_named():
    edge = g2o.EdgeSE3ProjectXYZOnlyPose()
    with pytest.raises(GraphOptError, match="set all vertices"):
        edge.compute_error()


def test_subclasses_may_override_and_call_super():
    class Doubled(g2o.EdgeSE3ProjectXYZOnlyPose):
        def chi2(self):
            return 2.0 * super().chi2()

        def set_level(self, level):
            super().set_level(level + 1)

    edge = Doubled()
    edge.error = np.array([1.0, 0.0])
    edge.set_level(1)
    assert edge.chi2() == 2.0
    assert edge.level() == 2


def test_a_class_without_super_init_is_an_error():
    class Forgot(g2o.VertexSE3):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"super\(\).__init__"):
        Forgot().estimate()
    with pytest.raises(AttributeError, match=r"super\(\).__init__"):
        Forgot().fixed()


def test_rows_outside_a_chunk_are_not_touched():
    """Nothing is read or written beside the arrays, whatever a row says."""
    edge = pose_edge()
    edge._row = 10**9
    for call in (edge.chi2, edge.level, edge.compute_error, lambda: edge.set_level(1), lambda: edge.fx):
        with pytest.raises((IndexError, ValueError)):
            call()
    with pytest.raises(TypeError):
        edge._chunk = None


def test_documentation_stays():
    signature = inspect.signature(g2o.EdgeSE3.set_level)
    assert list(signature.parameters) == ["self", "l"]
    assert "level" in (inspect.getdoc(g2o.EdgeSE3.set_level) or "")
    assert "camera" in (inspect.getdoc(g2o.EdgeStereoSE3ProjectXYZ.fx) or "")


def test_ids_in_constructors():
    assert g2o.VertexSE3(np.int32(7)).id() == 7
    assert g2o.VertexSE3(id=8).id() == 8
    assert g2o.VertexSE3().id() == -2
    with pytest.raises(TypeError):
        g2o.VertexSE3("a")
    with pytest.raises(TypeError):
        g2o.VertexSE3(1, 2)


def test_cycles_are_collected():
    """A graph that refers to its edges, and they to it, goes away."""
    optimizer = g2o.SparseOptimizer()
    vertex = g2o.VertexSE3Expmap(0)
    optimizer.add_vertex(vertex)
    edge = pose_edge()
    edge.set_vertex(0, vertex)
    edge.set_robust_kernel(g2o.RobustKernelHuber(1.0))
    assert optimizer.add_edge(edge)
    gone = [weakref.ref(one) for one in (optimizer, vertex, edge)]
    del optimizer, vertex, edge
    gc.collect()
    assert [one() for one in gone] == [None, None, None]


def test_threads_get_rows_of_their_own():
    made: list[list] = [[] for _ in range(4)]

    def build(into: list) -> None:
        into.extend(g2o.EdgeSE3() for _ in range(3000))

    threads = [threading.Thread(target=build, args=(one,)) for one in made]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    rows = {(edge._chunk.number, edge._row) for one in made for edge in one}
    assert len(rows) == 12_000


def test_lists_of_rows():
    """Places are grouped by chunk; consecutive numbers become slices."""
    edges = [g2o.EdgeSE3() for _ in range(5)]
    parts = kernels.places_of([edges[4], edges[2], edges[0]])
    found = {(part[0].number, row) for part in parts for row in np.arange(10**5)[part[2]].tolist()}
    assert found == {(edges[i]._chunk.number, edges[i]._row) for i in (0, 2, 4)}
    with pytest.raises(TypeError):
        kernels.places_of([1])
    with pytest.raises(TypeError):
        kernels.vertex_places([edges[0]], 2)
