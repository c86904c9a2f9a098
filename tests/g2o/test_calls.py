"""How programs call: arguments by name, classes that derive from each other, hidden methods, modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from both import assert_same, both, isometry, optimizer_of, ring, rotation_of

import graphopt.g2o as ours


def _by_name(g2o):
    turn, t = rotation_of([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0])
    pose = g2o.SE3Quat(R=turn, t=t)
    vertex = g2o.VertexSE3Expmap()
    vertex.set_estimate(et=pose)
    found = [vertex.estimate().to_vector(), g2o.SE3Quat(q=pose.rotation(), t=t).to_vector()]
    found += [
        g2o.SE3Quat(v=pose.to_vector()).to_vector(),
        g2o.SE3Quat(v=pose.to_minimal_vector()).to_vector(),
    ]
    found.append(g2o.SBACam(r=pose.rotation(), t=t).to_vector())
    found.append(g2o.SBACam(p=pose).to_vector())
    other = g2o.SE3Quat()
    other.set_translation(t=t)
    other.set_rotation(q=pose.rotation())
    found.append(other.to_vector())
    other.from_vector(v=pose.to_vector())
    other.from_minimal_vector(v=pose.to_minimal_vector())
    found.append(other.to_vector())
    found.append(g2o.MotionMeasurement(x=1.0, y=2.0, theta=0.5, dt=0.1).measurement())
    found.append(g2o.MotionMeasurement(m=np.array([1.0, 2.0, 0.5]), dt=0.1).measurement())
    numbers = pose.to_vector()
    assert vertex.set_estimate_data(estimate=numbers)
    assert vertex.set_minimal_estimate_data(estimate=numbers[:6].copy())
    vertex.set_hessian_index(ti=4)
    vertex.set_col_in_hessian(c=7)
    return [*found, vertex.get_estimate_data(), vertex.hessian_index(), vertex.col_in_hessian()]


@pytest.mark.oracle
def test_arguments_by_name():
    """g2o's names of arguments are those of the binding."""
    assert_same(*both(_by_name))


def _selected_by_name(g2o):
    optimizer = ring(g2o)
    chosen = {optimizer.vertex(i) for i in range(4)}
    found = [optimizer.initialize_optimization(vset=chosen, level=0), len(optimizer.active_edges())]
    found += [optimizer.initialize_optimization(eset=set(optimizer.edges())), len(optimizer.active_edges())]
    return found


@pytest.mark.oracle
def test_selections_by_name():
    """`vset` and `eset`."""
    assert_same(*both(_selected_by_name))


def test_paths_from_a_set():
    """`vset` of the shortest paths."""
    dijkstra = ours.HyperDijkstra(optimizer := ring(ours))
    dijkstra.shortest_paths(vset={optimizer.vertex(0), optimizer.vertex(4)}, cost=ours.UniformCostFunction())
    assert max(entry.distance() for entry in dijkstra.adjacency_map().values()) == 2.0


def test_arguments_that_nobody_knows():
    """A wrong name is an error that says it."""
    with pytest.raises(TypeError, match="rotation"):
        ours.SE3Quat(rotation=np.eye(3), t=np.zeros(3))


@pytest.mark.oracle
def test_classes_derive_as_in_g2opy():
    """`isinstance` and `issubclass` answer the same."""
    theirs = pytest.importorskip("g2opy")
    names = [name for name in dir(theirs) if isinstance(getattr(theirs, name), type) and hasattr(ours, name)]
    for name in names:
        for base in names:
            if issubclass(getattr(theirs, name), getattr(theirs, base)):
                assert issubclass(getattr(ours, name), getattr(ours, base)), (name, base)


def test_classes_derive_as_in_older_bindings():
    """Those of g2o-python 0.0.12 that g2opy has no more."""
    assert issubclass(ours.EdgeSE3Offset, ours.EdgeSE3)
    assert issubclass(ours.ParameterCamera, ours.ParameterSE3Offset)
    assert issubclass(ours.VertexSCam, ours.VertexSE3)


def test_module_inside_the_package():
    """`import g2opy.g2opy` and `from g2o import g2opy` find the drop-in after `install_as`."""
    code = (
        "import graphopt.g2o as d; d.install_as('g2o'); d.install_as('g2opy')\n"
        "import g2opy.g2opy as a\nfrom g2o import g2opy as b\nimport g2o\n"
        "assert a.SE2 is b.SE2 is g2o.SE2 is d.SE2"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(ours.__file__).parents[2])


def _shadowed(g2o):
    class Mapper(g2o.SparseOptimizer):
        """Hides methods of the base by attributes and by methods with other arguments."""

        def __init__(self):
            super().__init__()
            solver = g2o.BlockSolverX(g2o.LinearSolverEigenX())
            self.solver = g2o.OptimizationAlgorithmLevenberg(solver)
            super().set_algorithm(self.solver)
            self.edges, self.vertices = [], {}
            self.terminate = g2o.SparseOptimizerTerminateAction()
            self.terminate.set_gain_threshold(1e-3)
            super().add_post_iteration_action(self.terminate)
            self.verbose = self.update = self.chi2 = self.algorithm = self.parameters = None

        def add_vertex(self, id, position, fixed=False):
            vertex = g2o.VertexSE3()
            vertex.set_id(id)
            vertex.set_estimate(isometry(g2o, position))
            vertex.set_fixed(fixed)
            self.vertices[id] = super().add_vertex(vertex)

        def add_edge(self, i, j, position):
            edge = g2o.EdgeSE3()
            edge.set_vertex(0, self.vertex(i))
            edge.set_vertex(1, self.vertex(j))
            edge.set_measurement(isometry(g2o, position))
            edge.set_information(np.eye(6))
            self.edges.append(super().add_edge(edge))

        def initialize_optimization(self):
            raise AssertionError("g2o's own code does not call a method of a program")

        active_edges = active_vertices = index_mapping = clear = dimensions = initialize_optimization

        def optimize(self, count):
            super().initialize_optimization()
            return super().optimize(count)

    mapper = Mapper()
    for i in range(4):
        mapper.add_vertex(i, [1.1 * i, 0.2 * i, 0.0], fixed=i == 0)
    for i in range(3):
        mapper.add_edge(i, i + 1, [1.0, 0.0, 0.1])
    mapper.add_edge(0, 3, [3.2, 0.0, 0.0])
    count = mapper.optimize(20)
    mapper.gauge_freedom()
    mapper.push()
    mapper.pop()
    poses = [mapper.vertex(i).get_estimate_data() for i in range(4)]
    return [poses, [mapper.vertex(i).hessian_index() for i in range(4)], mapper.edges, count]


@pytest.mark.oracle
def test_programs_may_hide_methods():
    """An optimizer works whatever names a program's subclass gives to its own things."""
    assert_same(*both(_shadowed), atol=1e-7)


def test_load_into_a_subclass_with_its_own_add(tmp_path):
    """Reading a file does not go through overridden methods."""

    class Mapper(ours.SparseOptimizer):
        def add_vertex(self, id, pose):
            raise AssertionError

        add_edge = clear = add_vertex

    path = str(tmp_path / "ring.g2o")
    assert ring(ours).save(path)
    mapper = Mapper()
    assert mapper.load(path) and len(mapper.vertices()) == 8 and len(mapper.edges()) == 8


@pytest.mark.oracle
def test_graph_summary():
    """The text is g2o's, of an empty graph, before and after an optimization."""

    def summaries(g2o):
        empty = g2o.SparseOptimizer()
        optimizer = ring(g2o)
        texts = [empty.print_graph_summary(), optimizer.print_graph_summary(), empty.is_connected()]
        optimizer.initialize_optimization()
        optimizer.compute_active_errors()
        return [*texts, optimizer.print_graph_summary()]

    assert_same(*both(summaries))


def test_block_matrix_with_sizes():
    """Blocks by `block_ptr`, indices as an attribute and by a call, an empty array for a missing block."""
    matrix = ours.SparseBlockMatrixX([3, 5, 9], [3, 5, 9], 2, 2)
    matrix.block_ptr(0, 0, True)[:] = np.eye(3)
    matrix.block_ptr(1, 0, True)[:] = 2.0
    assert (matrix.rows(), matrix.cols()) == (5, 5)
    assert len(matrix.row_block_indices) == 2 and matrix.col_block_indices() == [3, 5]
    assert matrix.block(0, 1).size == 0 and not matrix.has_block(0, 1)
    assert matrix.block(1, 0).shape == (2, 3)
    assert matrix.to_array().sum() == 3.0 + 2.0 * 6.0


def test_older_names():
    """Members that only older bindings have."""
    camera = ours.ParameterStereoCamera()
    camera.setKcam(2.0, 4.0, 1.0, 3.0)
    camera.setOffset(isometry(ours, [1.0, 0.0, 0.0], [0.0, 0.0, 0.3]))
    camera.set_baseline(0.2)
    np.testing.assert_allclose(camera.invKcam() @ camera.Kcam(), np.eye(3), atol=1e-15)
    np.testing.assert_allclose(camera.Kcam_inverseOffsetR(), camera.kcam() @ rotation_of([0.0, 0.0, -0.3]))
    assert camera.baseline() == 0.2 and camera.inverse_offset().translation()[0] < 0.0
    intrinsics = ours.CameraParameters(500.0, (320.0, 240.0), 0.1)
    intrinsics.principal_point = (1.0, 2.0)
    intrinsics.focal_length, intrinsics.baseline = 2.0, 0.5
    np.testing.assert_allclose(intrinsics.stereocam_uvu_map((1.0, 1.0, 1.0)), [3.0, 4.0, 2.0])
    optimizer = ring(ours)
    vertex, edge = optimizer.vertex(2), next(iter(optimizer.edges()))
    assert vertex.graph() is optimizer and edge.graph() is optimizer and ours.VertexSE2().graph() is None
    optimizer.set_to_origin()
    np.testing.assert_array_equal(vertex.get_estimate_data(), [0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(np.array(ours.VertexIntrinsics().estimate()), [1.0, 1.0, 0.5, 0.5, 0.1])
    m = np.zeros((3, 4))
    pose = ours.SBACam(ours.Quaternion(rotation_of([0.3, 0.1, 0.2])), (1.0, 2.0, 3.0))
    ours.SBACam.transform_w2f(m, pose.translation(), pose.rotation())
    np.testing.assert_allclose(m, pose.w2n, atol=1e-15)
    turn = ours.AngleAxis(0.3, (0.0, 0.0, 1.0))
    np.testing.assert_allclose((ours.Quaternion() * turn).coeffs(), ours.Quaternion(turn).coeffs())
    assert optimizer_of(ours).force_stop_flag() is False


def _wrong(kind, method, value):
    with pytest.raises((TypeError, ValueError)):
        getattr(kind, method)(value)


def test_arrays_of_any_kind():
    """Lists, integers, objects, columns and slices are read; None and wrong sizes are not."""
    vectors = [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], np.uint8),
        np.array([1.0, 2.0, 3.0], np.float32),
        np.array([1.0, 2.0, 3.0], object),
        np.array([[1.0], [2.0], [3.0]]),
        np.array([1.0, 0.0, 2.0, 0.0, 3.0])[::2],
    ]
    matrices = [
        np.eye(3, dtype=int),
        np.eye(3, dtype=np.float32),
        np.eye(3).astype(object),
        np.eye(6)[::2, ::2],
    ]
    point, stereo, pose = (
        ours.VertexPointXYZ(),
        ours.EdgeStereoSE3ProjectXYZ(),
        ours.EdgeStereoSE3ProjectXYZOnlyPose(),
    )
    for vector in vectors:
        point.set_estimate(vector)
        stereo.set_measurement(vector)
        pose.Xw = vector
        for found in (point.estimate(), stereo.measurement(), pose.Xw, ours.SE3Quat(np.eye(3), vector).t):
            np.testing.assert_array_equal(found, [1.0, 2.0, 3.0])
    for matrix in matrices:
        stereo.set_information(2 * matrix)
        np.testing.assert_array_equal(stereo.information(), 2.0 * np.eye(3))
    for value in (None, 5.0, [1.0, 2.0], np.zeros(4), "abc", np.zeros((3, 3))):
        _wrong(point, "set_estimate", value)
        _wrong(stereo, "set_measurement", value)
    for value in (None, 1.0, np.eye(2), np.zeros(9)):
        _wrong(stereo, "set_information", value)
    _wrong(ours, "Quaternion", np.eye(2))
