"""Poses in space are stored as quaternions and optimized as g2o's matrices.

The numbers of real files, where the two differ, are in `test_reference_runs.py`.
"""

import numpy as np
import pytest

import graphopt
from graphopt.codegen.program import build_program
from graphopt.codegen.trace import trace_edge
from graphopt.evaluate import datasets
from graphopt.geometry import SE3, SE3Matrix, quaternion
from graphopt.geometry.se3_matrix import QuaternionDerivative
from graphopt.solver.reuse import forget
from graphopt.types import BUILTIN_TYPES, slam3d
from graphopt.types.base import EdgeType, VariadicEdgeType, working_edge_type, working_vertex_type

N = 60
EDGES = [
    builtin_type.instantiate(3) if isinstance(builtin_type, VariadicEdgeType) else builtin_type
    for builtin_type in BUILTIN_TYPES
    if isinstance(builtin_type, (EdgeType, VariadicEdgeType))
]
EDGES_WITH_POSES = [edge for edge in EDGES if slam3d.VertexSE3 in edge.vertices]
edges_with_poses = pytest.mark.parametrize("kind", EDGES_WITH_POSES, ids=lambda kind: kind.tag)


def random_quaternions(rng, count, length=1.0):
    """(count, 4) of any rotation."""
    q = rng.normal(size=(count, 4))
    return length * q / np.linalg.norm(q, axis=-1, keepdims=True)


def random_poses(rng, count):
    """(count, 7) storage."""
    return np.concatenate([rng.normal(size=(count, 3)), random_quaternions(rng, count)], axis=-1)


def eigen_quaternion(m):
    """Eigen's quaternion of one 3x3 matrix, not scaled, with w >= 0; the independent reference."""
    trace = np.trace(m)
    q = np.empty(4)
    if trace > 0.0:
        t = np.sqrt(trace + 1.0)
        q[3] = 0.5 * t
        q[:3] = np.array([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]) * (0.5 / t)
    else:
        i = int(np.argmax(np.diag(m)))
        j, k = (i + 1) % 3, (i + 2) % 3
        t = np.sqrt(m[i, i] - m[j, j] - m[k, k] + 1.0)
        q[i] = 0.5 * t
        q[3] = (m[k, j] - m[j, k]) * (0.5 / t)
        q[j] = (m[j, i] + m[i, j]) * (0.5 / t)
        q[k] = (m[k, i] + m[i, k]) * (0.5 / t)
    return q if q[3] >= 0.0 else -q


def skewed_matrices(rng, count=N):
    """(count, 3, 3): products of matrices made of quaternions that are not of unit length."""
    first = quaternion.to_matrix(random_quaternions(rng, count, 1.0 + 1e-3))
    return first @ quaternion.to_matrix(random_quaternions(rng, count, 1.0 - 2e-3))


# ------------------------------------------------------------------------------------------ SE3Matrix
@pytest.mark.parametrize("operation", ["compose", "between"])
def test_products_are_those_of_quaternions(operation):
    """With unit quaternions SE3Matrix computes what SE3 does, also with an SE3 on either side."""
    rng = np.random.default_rng(0)
    a, b = random_poses(rng, N), random_poses(rng, N)
    expected = getattr(SE3(a), operation)(SE3(b)).to_matrix()
    for first in (SE3, SE3Matrix):
        for second in (SE3, SE3Matrix):
            result = getattr(first(a), operation)(second(b))
            np.testing.assert_allclose(result.to_matrix(), expected, atol=1e-13)


def test_actions_inverse_and_parts_are_those_of_quaternions():
    """act, inverse_act, inverse, quaternion, rotation, log, adjoint and storage equal those of SE3."""
    rng = np.random.default_rng(1)
    storage, point = random_poses(rng, N), rng.normal(size=(N, 3))
    pose, other = SE3Matrix(storage), SE3(storage)
    canonical = other.normalize().storage
    for result, expected in (
        (pose * point, other * point),
        (pose.inverse_act(point), other.inverse_act(point)),
        (pose.inverse().to_matrix(), other.inverse().to_matrix()),
        (pose.storage, canonical),
        (pose.rotation.storage, canonical[:, 3:]),
        (pose.normalize().storage, canonical),
        (pose.log(), other.log()),
        (pose.adjoint(), other.adjoint()),
        (SE3Matrix.exp(other.log()).storage, canonical),
        (SE3Matrix.from_numbers(pose.numbers).storage, canonical),
    ):
        np.testing.assert_allclose(result, expected, atol=1e-12)
    assert "SE3Matrix" in repr(pose)


def test_the_inverse_takes_the_transpose():
    """As Isometry3: also of a matrix that is not orthogonal."""
    m = skewed_matrices(np.random.default_rng(2), 1)[0]
    pose = SE3Matrix.of(np.array([1.0, 2.0, 3.0]), m)
    assert np.abs(m @ m.T - np.eye(3)).max() > 1e-4
    np.testing.assert_array_equal(pose.inverse().rotation_matrix, m.T)
    np.testing.assert_allclose(pose.inverse().translation, -m.T @ pose.translation, atol=1e-15)


def test_quaternion_of_a_matrix_is_eigens():
    """For matrices that are not orthogonal too, in all four branches."""
    matrices = skewed_matrices(np.random.default_rng(3), 400)
    trace = np.trace(matrices, axis1=1, axis2=2)
    branch = np.where(trace > 0.0, 3, np.argmax(np.diagonal(matrices, axis1=1, axis2=2), axis=1))
    assert np.bincount(branch, minlength=4).min() > 20
    expected = np.array([eigen_quaternion(matrix) for matrix in matrices])
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    pose = SE3Matrix.of(np.zeros((400, 3)), matrices)
    np.testing.assert_allclose(pose.quaternion, expected, atol=1e-14)


def test_derivative_of_the_quaternion_is_eigens():
    """`turning` differentiates Eigen's quaternion before it is scaled, in all four branches."""
    rng = np.random.default_rng(4)
    left, right = skewed_matrices(rng, 200), skewed_matrices(rng, 200)
    result = QuaternionDerivative(left @ right).turning(left, right)
    step = 1e-6
    for k, axis in enumerate(np.eye(3)):
        x, y, z = step * axis
        turn = 2.0 * np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        ends = [
            np.array([eigen_quaternion(matrix)[:3] for matrix in left @ (np.eye(3) + sign * turn) @ right])
            for sign in (1.0, -1.0)
        ]
        difference = (ends[0] - ends[1]) / (2.0 * step)
        smooth = np.abs(difference).max(axis=-1) < 10.0  # not where the sign or the branch changes between
        assert np.count_nonzero(smooth) > 195
        np.testing.assert_allclose(result[smooth, :, k], difference[smooth], atol=1e-8)


# ------------------------------------------------------------------------------------------ edge types
def random_case(kind, rng):
    """Storage of vertices, parameters and the measurement."""
    estimates = [
        random_poses(rng, N) if vertex is slam3d.VertexSE3 else rng.normal(size=(N, vertex.storage_dim))
        for vertex in kind.vertices
    ]
    parameters = [rng.uniform(0.5, 1.5, (N, parameter.storage_dim)) for parameter in kind.parameters]
    for parameter, values in zip(kind.parameters, parameters, strict=True):
        if tuple(parameter.identity[:7]) == SE3.identity_storage:
            values[:, :7] = random_poses(rng, N)
    measurement = rng.normal(size=(N, kind.measurement_dim))
    if kind.wrap_measurement is SE3:
        measurement = random_poses(rng, N)
    return estimates, parameters, measurement


def compiled(kind, arguments):
    """Residual and Jacobian, (N, numbers), by the compiler."""
    traced = trace_edge(kind)
    jacobian = [entry for block in traced.jacobians() for entry in block.ravel()]
    program = build_program(kind.name, traced.inputs, [*traced.residual, *jacobian])
    return program.interpret(np.concatenate(arguments, axis=-1))


@edges_with_poses
def test_edges_are_the_same_in_both_forms(kind):
    """With unit quaternions every edge type has the same error and Jacobian between matrices."""
    estimates, parameters, measurement = random_case(kind, np.random.default_rng(5))
    working = working_edge_type(kind)
    encoded = [
        vertex.working.encode(x) if vertex.working else x
        for vertex, x in zip(kind.vertices, estimates, strict=True)
    ]
    expected = compiled(kind, [*estimates, *parameters, measurement])
    result = compiled(working, [*encoded, *parameters, measurement])
    size = 1.0 + np.abs(expected).max(axis=-1, keepdims=True)
    np.testing.assert_allclose(result / size, expected / size, atol=1e-11)
    error = working.error(tuple(encoded), tuple(parameters), measurement)
    np.testing.assert_allclose(result[:, : kind.residual_dim] / size, error / size, atol=1e-13)


def test_oplus_is_the_same_in_both_forms():
    """Also beyond the unit ball, where there is no rotation."""
    rng = np.random.default_rng(6)
    storage, delta = random_poses(rng, N), 0.5 * rng.normal(size=(N, 6))
    form = slam3d.MATRIX_FORM
    result = SE3(form.decode(form.oplus(form.encode(storage), delta))).to_matrix()
    np.testing.assert_allclose(result, SE3(slam3d.oplus_se3(storage, delta)).to_matrix(), atol=1e-13)


def test_types_without_a_pose_in_space_have_no_other_form():
    """They are optimized in their storage, and types with one keep all but their numbers."""
    for kind in EDGES:
        if kind not in EDGES_WITH_POSES:
            assert working_edge_type(kind) is kind
    vertex = working_vertex_type(slam3d.VertexSE3)
    assert (vertex.storage_dim, vertex.tangent_dim, vertex.tag) == (12, 6, "VERTEX_SE3:QUAT")
    assert working_vertex_type(slam3d.VertexSE3) is vertex
    assert working_vertex_type(slam3d.VertexPointXYZ) is slam3d.VertexPointXYZ


# ------------------------------------------------------------------------------------------ optimize
def sphere(noise=0.05):
    """Small sphere with unit quaternions; vertex 0 is fixed."""
    graph = datasets.sphere(12, 5, 5.0, noise_translation=noise, noise_rotation=noise, seed=3)
    graph.set_fixed([0])
    return graph


def poses(graph):
    """The estimates, copied."""
    return np.array(graph.vertex_set("VERTEX_SE3:QUAT").estimate)


def test_estimates_that_do_not_move_keep_their_digits():
    """Fixed vertices and vertices without active edges are the same to the bit, whatever their length."""
    graph = sphere()
    estimate = graph.vertex_set("VERTEX_SE3:QUAT").estimate
    estimate[:, 3:7] *= 1.0 + 3e-7
    graph.add_vertices("VERTEX_SE3:QUAT", [1000], [[1.0, 2.0, 3.0, 0.0, 0.0, -0.6, -0.8000001]])
    before = poses(graph)
    assert graphopt.optimize(graph, "gn", 3, fix="none").is_usable
    after = poses(graph)
    np.testing.assert_array_equal(after[[0, -1]], before[[0, -1]])
    assert (after[1:-1] != before[1:-1]).any(axis=1).all()
    np.testing.assert_allclose(np.linalg.norm(after[1:-1, 3:7], axis=1), 1.0, atol=1e-14)


@pytest.mark.parametrize("fresh", [False, True])
def test_ten_calls_of_one_iteration_are_one_call_of_ten(fresh):
    """With unit quaternions storing between iterations loses nothing, block solver kept or not."""
    graph, other = sphere(0.15), sphere(0.15)
    once = [iteration.chi2 for iteration in graphopt.optimize(graph, "gn", 10, fix="none").iterations]
    often = []
    for _ in range(10):
        if fresh:
            forget(other)
        often.append(graphopt.optimize(other, "gn", 1, fix="none").final_chi2)
    np.testing.assert_allclose(often, once, rtol=1e-9)
    np.testing.assert_allclose(SE3(poses(other)).to_matrix(), SE3(poses(graph)).to_matrix(), atol=1e-9)


def test_a_callback_sees_the_estimates():
    """After each iteration the graph's own chi2 is the iteration's."""
    graph, seen = sphere(), []
    graphopt.optimize(
        graph, "lm", 4, fix="none", callback=lambda iteration: seen.append((graph.chi2(), iteration.chi2))
    )
    assert len(seen) == 4
    np.testing.assert_allclose(*np.array(seen).T, rtol=1e-11)


def test_an_exception_in_a_callback_leaves_the_best_estimate():
    """What was reached until then is in the graph."""
    graph, chi2 = sphere(), []

    def fail(iteration):
        chi2.append(iteration.chi2)
        if len(chi2) == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        graphopt.optimize(graph, "gn", 5, fix="none", callback=fail)
    assert graph.chi2() == pytest.approx(chi2[-1], rel=1e-11)


def test_a_users_edge_sees_a_pose_like_se3():
    """A residual that uses quaternion, log, storage and `SE3(...)` of a pose is compiled and optimized."""

    @graphopt.edge_type(tag="EDGE_TEST_POSE", vertices=("VERTEX_SE3:QUAT",), measurement_dim=7)
    def edge_test_pose(pose, measured):
        target = SE3(measured)
        difference = target.inverse() * pose
        again = SE3(pose.storage).between(target)
        return np.concatenate([difference.log()[..., 3:], again.quaternion[..., :3]], axis=-1)

    try:
        rng = np.random.default_rng(7)
        graph, target = graphopt.Graph(), random_poses(rng, 5)
        graph.add_vertices(
            "VERTEX_SE3:QUAT", range(5), slam3d.oplus_se3(target, 0.2 * rng.normal(size=(5, 6)))
        )
        graph.add_edges("EDGE_TEST_POSE", np.arange(5)[:, None], target)
        before = graph.chi2()
        summary = graphopt.optimize(graph, "gn", 8, fix="none")
        assert summary.initial_chi2 == pytest.approx(before, rel=1e-12)
        assert summary.final_chi2 < 1e-18 * before
        np.testing.assert_allclose(SE3(poses(graph)).to_matrix(), SE3(target).to_matrix(), atol=1e-9)
    finally:
        graphopt.types.registry.unregister(edge_test_pose)


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
@pytest.mark.parametrize("digits", [3, 6])
def test_the_summary_says_what_the_graph_says(method, digits):
    """Quaternions of few digits: chi2 is that of what was written, and `auto` starts from unit ones."""
    graph = datasets.sphere(12, 5, 5.0, noise_translation=0.05, noise_rotation=0.02, seed=3)
    unit = graphopt.optimize(graph.copy(), fix=[0])
    estimate = graph.vertex_set("VERTEX_SE3:QUAT").estimate
    held = estimate[0].copy()
    estimate[1:, 3:] = np.round(estimate[1:, 3:], digits)
    summary = graphopt.optimize(graph, method, 30, fix=[0])
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-12)
    np.testing.assert_array_equal(estimate[0], held)
    if method == "auto":
        assert summary.iterations[-1].chi2 == pytest.approx(summary.final_chi2, rel=1e-12)
        assert summary.final_chi2 == pytest.approx(unit.final_chi2, rel=1e-9)
    else:
        assert summary.iterations[-1].chi2 != pytest.approx(summary.final_chi2, rel=1e-9)
