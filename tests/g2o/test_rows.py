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
        np.array([1.0, 2.0]).view(g2o.elements.edges.CallableArray),
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
    g2o.engine.evaluate.evaluator(type(edges[0])._type).many(edges)
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
    gone = [weakref.ref(object_) for object_ in (optimizer, vertex, edge)]
    del optimizer, vertex, edge
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]


def test_threads_get_rows_of_their_own():
    made: list[list] = [[] for _ in range(4)]

    def build(into: list) -> None:
        into.extend(g2o.EdgeSE3() for _ in range(3000))

    threads = [threading.Thread(target=build, args=(edges,)) for edges in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [edge for edges in made for edge in edges]
    for number, edge in enumerate(every):
        edge.set_level(number)
    assert [edge.level() for edge in every] == list(range(12_000))


def test_lists_of_rows():
    """Columns move in the order of the list, whatever rows its objects have."""
    edges = [g2o.EdgeSE3ProjectXYZOnlyPose() for _ in range(3000)]  # rows of several chunks
    for number, edge in enumerate(edges):
        edge.set_level(number)
        edge.set_measurement(np.array([number, -number], float))
    chosen = [edges[i] for i in (*range(2999, 0, -7), *range(100), 0)]
    rows = kernels.RowList(chosen)
    expected = np.array([edge.level() for edge in chosen])
    assert rows.size == len(chosen)
    np.testing.assert_array_equal(rows.column("level"), expected)
    measurements = rows.column("measurement")
    np.testing.assert_array_equal(measurements[:, :2], np.stack([expected, -expected], axis=1))
    measurements[:, 0] += 0.5
    rows.scatter("measurement", measurements)
    assert [edge.measurement()[0] for edge in chosen] == (expected + 0.5).tolist()


def test_lists_of_rows_tell_what_changed():
    edges = [g2o.EdgeSE3() for _ in range(5)]
    rows, levels = kernels.RowList(edges), np.zeros(5, np.int32)
    assert not rows.take("level", levels)
    edges[3].set_level(2)
    assert rows.take("level", levels) and levels.tolist() == [0, 0, 0, 2, 0]
    assert not rows.take("level", levels)


def test_lists_of_rows_refuse_what_does_not_fit():
    edges = [g2o.EdgeSE3() for _ in range(5)]
    rows = kernels.RowList(edges)
    wrong = [
        np.zeros(4, np.int32),
        np.zeros(5, np.int64),
        np.zeros((5, 2), np.int32),
        np.zeros(10, np.int32)[::2],
    ]
    for array in wrong:
        with pytest.raises(ValueError, match="level"):
            rows.gather("level", array)
    constant = np.zeros(5, np.int32)
    constant.flags.writeable = False
    with pytest.raises(ValueError, match="written"):
        rows.gather("level", constant)
    with pytest.raises(ValueError, match="no column"):
        rows.column("estimate" * 2)
    with pytest.raises(TypeError):
        kernels.RowList([1])
    with pytest.raises(TypeError):
        kernels.vertex_places([edges[0]], (0, 0, 0))


def test_vertices_of_edges_are_collected():
    """Vertices are held by their edge, for the garbage collector too."""

    class Knot(g2o.VertexSE3):
        """May hold an edge."""

    vertex, edge = Knot(), g2o.EdgeSE3()
    edge.set_vertex(0, vertex)
    assert edge.vertices() == [vertex, None]
    vertex.own_edge = edge
    gone = weakref.ref(vertex)
    del vertex, edge
    assert gone() is not None
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 40])
def test_any_number_of_vertices(count):
    edge = g2o.EdgeSE3()
    vertices = [g2o.VertexSE3(i) for i in range(count)]
    for size in (count, 2, count):
        edge.resize(size)
    for place, vertex in enumerate(vertices):
        edge.set_vertex(place, vertex)
    assert edge.vertices() == vertices
    with pytest.raises(IndexError, match="resize"):
        edge.set_vertex(count, None)
    gone = [weakref.ref(each_vertex) for each_vertex in vertices]
    del vertices, edge
    if count:
        del vertex
    assert all(reference() is None for reference in gone)


def test_kernels_do_not_set_the_garbage_collector_to_work():
    kernel = g2o.RobustKernelHuber(2.5)
    assert not gc.is_tracked(kernel) and isinstance(kernel, g2o.BaseRobustKernel)
    assert repr(kernel) == "RobustKernelHuber(2.5)" and g2o.RobustKernelHuber.__module__.startswith(
        "graphopt"
    )
    assert "Huber" in (g2o.RobustKernelHuber.__doc__ or "")

    class Own(g2o.RobustKernelHuber):
        """A program's own class."""

    own = Own(3)
    own.note = "may have attributes"
    assert own.delta() == 3.0 and isinstance(own, g2o.RobustKernelHuber)
    with pytest.raises(TypeError, match="KernelWidth"):
        kernels.leaf_class(int)
