"""Poses and rotations compute what g2opy's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both import assert_same, both, isometry, rotation_of, same_as_g2opy

import graphopt.g2o as ours

POSE = np.array([0.3, -1.2, 2.0, 0.1, -0.2, 0.3])
POINT = np.array([0.5, -0.4, 1.5])


def se2(g2o: Any) -> list[Any]:
    a, b = g2o.SE2(1.0, 2.0, 2.5), g2o.SE2(-0.3, 0.4, 1.5)
    c = g2o.SE2(1.0, 2.0, 3.0)
    c *= b
    results = [
        a.vector(),
        (a * b).vector(),
        a.inverse().vector(),
        a * POINT[:2],
        a.rotation().angle(),
        a[2],
        c.vector(),
    ]
    return [
        *results,
        a.to_isometry().matrix(),
        g2o.SE2(a.to_isometry()).to_vector(),
        g2o.SE2(0.0, 0.0, 7.0).vector(),
    ]


def se3_quat(g2o: Any) -> list[Any]:
    a, b = g2o.SE3Quat(POSE), g2o.SE3Quat(rotation_of([2.0, 1.0, -0.5]), np.array([1.0, 2.0, 3.0]))
    c = g2o.SE3Quat.exp(np.array([0.4, -0.3, 0.2, 1.0, 2.0, 3.0]))
    results = [
        a.vector(),
        b.vector(),
        c.vector(),
        (a * b).vector(),
        a.inverse().vector(),
        a * POINT,
        b.map(POINT),
    ]
    results += [
        a.log(),
        b.log(),
        c.log(),
        a.adj(),
        b.matrix(),
        a.to_minimal_vector(),
        [a[i] for i in range(7)],
    ]
    results += [b.to_isometry3d().matrix(), a.rotation().coeffs(), g2o.SE3Quat.exp(np.zeros(6)).vector()]
    return results


def isometry3d(g2o: Any) -> list[Any]:
    a, b = isometry(g2o, POSE[:3], [0.3, 0.2, -2.9]), isometry(g2o, [1.0, 0.0, 2.0], [0.0, 1.0, 0.0])
    results = [
        a.matrix(),
        (a * b).matrix(),
        a.inverse().matrix(),
        a * POINT,
        a * np.ones((3, 4)),
        a.translation(),
        a.R,
    ]
    return [*results, a.rotation().coeffs(), b.orientation().coeffs(), a(0, 3), a.rows(), a.cols()]


def sim3(g2o: Any) -> list[Any]:
    a = g2o.Sim3(rotation_of([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), 1.5)
    b = g2o.Sim3(np.array([0.2, -0.1, 0.4, 1.0, 0.5, -0.5, 0.3]))
    numbers = [[float(value[i]) for i in range(8)] for value in (a, b, a * b, a.inverse())]
    return [*numbers, a.log(), b.log(), a.map(POINT), a.scale(), b.translation(), b.rotation().coeffs()]


def sba_cam(g2o: Any) -> list[Any]:
    pose = g2o.SE3Quat(POSE)  # held: g2opy's rotation() refers to it
    camera = g2o.SBACam(pose.rotation(), np.array([1.0, 2.0, 3.0]))
    camera.set_cam(500.0, 501.0, 320.0, 240.0, 0.1)
    for name in ("set_transform", "set_projection", "set_dr"):
        getattr(camera, name)()
    results = [camera.Kcam, camera.w2n, camera.w2i, camera.baseline, camera.dRdx, camera.dRdy, camera.dRdz]
    results = [np.array(result) for result in results]  # g2opy's are live
    camera.update(0.1 * np.arange(6.0))
    return [*results, camera.vector()]


def small_values(g2o: Any) -> list[Any]:
    motion = g2o.MotionMeasurement(1.0, 0.2, 0.3, 0.5)
    straight = g2o.MotionMeasurement(1.0, 0.2, 0.0, 0.5)
    gicp = g2o.EdgeGICP()
    gicp.normal0 = np.array([0.6, 0.0, 0.8])
    gicp.make_rot0()
    camera = g2o.CameraParameters(500.0, np.array([320.0, 240.0]), 0.1)
    return [
        g2o.OdomConvert.to_velocity(motion).measurement(),
        g2o.OdomConvert.to_velocity(straight).measurement(),
        g2o.OdomConvert.to_motion(g2o.VelocityMeasurement(1.0, 2.0, 0.5), 0.7).measurement(),
        g2o.OdomConvert.to_motion(g2o.VelocityMeasurement(1.0, 1.0, 0.5), 0.7).measurement(),
        gicp.R0,
        gicp.prec0(0.01),
        gicp.cov0(0.01),
        camera.cam_map(POINT),
        camera.stereocam_uvu_map(POINT),
    ]


@pytest.mark.oracle
@pytest.mark.parametrize("script", [se2, se3_quat, isometry3d, sim3, sba_cam, small_values])
def test_same_numbers(script):
    """Constructors, products, inverses, logarithms and indexing agree."""
    assert_same(*both(script))


@pytest.mark.oracle
@same_as_g2opy()
def test_quaternion(g2o):
    """Products, inverse, distance and the rotation between two vectors agree."""
    poses = [g2o.SE3Quat(0.5 * sign * POSE) for sign in (1.0, -0.7)]
    a, b = poses[0].rotation(), poses[1].rotation()
    turn = g2o.Quaternion.from_two_vectors(POINT, POSE[:3])
    results = [
        (a * b).coeffs(),
        a.inverse().coeffs(),
        a.conjugate().coeffs(),
        a * POINT,
        a.R,
        a.vec(),
        a.norm(),
    ]
    return [*results, a.angular_distance(b), a.dot(b), turn.coeffs(), g2o.Quaternion().coeffs()]


def test_quaternion_constructors():
    """g2opy 2.3.0 can only make the identity; ours takes what older bindings take."""
    expected = np.array([0.1, 0.2, 0.3, np.sqrt(1.0 - 0.14)])
    x, y, z, w = expected
    q = ours.Quaternion(w, x, y, z)
    for rotation in (
        q,
        ours.Quaternion([w, x, y, z]),
        ours.Quaternion(q),
        ours.Quaternion(q.R),
        ours.Quaternion(ours.AngleAxis(q)),
    ):
        np.testing.assert_allclose(rotation.coeffs(), expected, atol=1e-14)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.5, 3.0, np.pi])
def test_angle_axis(angle):
    """angle, axis -> matrix -> angle, axis."""
    axis = np.array([0.6, 0.0, 0.8])
    given = ours.AngleAxis(angle, axis)
    back = ours.AngleAxis(given.matrix())
    np.testing.assert_allclose(given.R, rotation_of(angle * axis), atol=1e-14)
    assert back.angle() == pytest.approx(angle, abs=1e-7)
    np.testing.assert_allclose(back.R, given.R, atol=1e-14)
    np.testing.assert_allclose((given * given.inverse()).R, np.eye(3), atol=1e-14)


def test_values_are_copies():
    """Changing a returned array or the argument of a constructor changes nothing."""
    matrix = np.eye(4)
    pose = ours.Isometry3d(matrix)
    matrix[0, 3] = 5.0
    pose.matrix()[0, 3] = 6.0
    pose.translation()[0] = 7.0
    np.testing.assert_array_equal(pose.matrix(), np.eye(4))


def test_isometry_follows_its_setters():
    """The stored quaternion is made anew after a change."""
    vertex, pose = ours.VertexSE3(), ours.Isometry3d()
    vertex.set_estimate(pose)
    pose.set_rotation(rotation_of([0.0, 0.0, 1.0]))
    pose.set_translation([1.0, 2.0, 3.0])
    vertex.set_estimate(pose)
    np.testing.assert_allclose(vertex.estimate().matrix(), pose.matrix(), atol=1e-15)
