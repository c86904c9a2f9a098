"""Graphs in which one vertex is in very many edges."""

from __future__ import annotations

import functools

import numpy as np

import graphopt
from graphopt.geometry import SE3
from graphopt.graph import Graph


@functools.cache
def curve_types():
    """Coefficients of a curve, offsets of its measuring devices, an edge on both, one on the first alone."""
    curve = graphopt.group_type("TestCurve", 3)
    offset = graphopt.group_type("TestOffset", 1)

    def value(curve, x):
        amplitude, decay, frequency = curve
        return amplitude * np.exp(-decay * x) * np.cos(frequency * x)

    @graphopt.edge_type(tag="EDGE_TEST_CURVE", vertices=(curve,), measurement_dim=2)
    def EdgeTestCurve(curve, sample):
        """Curve - measured."""
        return value(curve, sample[0]) - sample[1]

    @graphopt.edge_type(tag="EDGE_TEST_CURVE_OFFSET", vertices=(curve, offset), measurement_dim=2)
    def EdgeTestCurveOffset(curve, offset, sample):
        """Curve and offset - measured."""
        return value(curve, sample[0]) + offset * offset - sample[1]

    return curve, offset, EdgeTestCurve, EdgeTestCurveOffset


TRUE_CURVE = np.array([2.0, 0.4, 3.0])


def curve_fit(num=20000, num_devices=1, seed=0, **marks) -> Graph:
    """A curve in `num` edges, half of them with one of a few offsets; `marks`: of the offsets."""
    curve, offset, alone, with_offset = curve_types()
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, num)
    amplitude, decay, frequency = TRUE_CURVE
    y = amplitude * np.exp(-decay * x) * np.cos(frequency * x) + 0.1 * rng.normal(size=num)
    device = rng.integers(0, num_devices, num)
    y[num // 2 :] += 0.5 + 0.1 * device[num // 2 :]
    samples = np.stack([x, y], axis=1)
    graph = Graph()
    curves = graph.add_array(curve, TRUE_CURVE + np.array([[0.1, 0.05, -0.1]]))
    offsets = graph.add_array(offset, 0.6 + 0.02 * np.arange(num_devices)[:, None], **marks)
    graph.add_edges(alone, graphopt.unique(curves), samples[: num // 2], np.eye(1) * 4.0)
    ends = graphopt.unique(curves), graphopt.indexed(offsets, device[num // 2 :])
    edges = {"kernel": "Huber", "kernel_width": 1.0}
    graph.add_edges(with_offset, ends, samples[num // 2 :], np.eye(1) * 25.0, **edges)
    return graph


@functools.cache
def shared_types():
    """Camera pose, point, calibration, and the observation that names all three."""
    pose = graphopt.group_type("TestPose", cam_T_world=SE3, side="left")
    point = graphopt.group_type("TestPoint", 3)
    calibration = graphopt.group_type("TestCalibration", 3)

    @graphopt.edge_type(tag="EDGE_TEST_SHARED", vertices=(pose, point, calibration), measurement_dim=2)
    def EdgeTestShared(pose, point_world, calibration, pixel):
        """Projected - measured pixel of a point in front of the camera, which looks along -z."""
        x, y, z = pose.cam_T_world * point_world
        f, k1, k2 = calibration
        p = np.stack([-x / z, -y / z])
        r2 = p @ p
        return f * (1.0 + r2 * (k1 + k2 * r2)) * p - pixel

    return pose, point, calibration, EdgeTestShared


TRUE_CALIBRATION = np.array([500.0, -0.05, 0.01])


def shared_calibration(num_cameras=24, num_points=250, seed=0, share=0.9) -> Graph:
    """Bundle adjustment in which all cameras have one calibration, a vertex of its own."""
    pose, point, calibration, kind = shared_types()
    rng = np.random.default_rng(seed)
    points = rng.uniform([-3, -2, -12], [3, 2, -8], (num_points, 3))
    poses = np.zeros((num_cameras, 7))
    poses[:, 0] = np.linspace(-2, 2, num_cameras)
    poses[:, 6] = 1.0
    camera, seen = np.nonzero(rng.random((num_cameras, num_points)) < share)
    local = points[seen] + poses[camera, :3]
    p = -local[:, :2] / local[:, 2:]
    r2 = (p**2).sum(1, keepdims=True)
    f, k1, k2 = TRUE_CALIBRATION
    pixels = f * (1 + r2 * (k1 + k2 * r2)) * p + 0.5 * rng.normal(size=p.shape)
    graph = Graph()
    start = poses.copy()
    start[2:, :3] += 0.02 * rng.normal(size=(num_cameras - 2, 3))
    cameras = graph.add_array(pose, start, fixed=np.arange(num_cameras) < 2)
    moved = points + 0.05 * rng.normal(size=points.shape)
    landmarks = graph.add_array(point, moved, marginalized=True)
    shared = graph.add_array(calibration, [TRUE_CALIBRATION * [1.02, 0.9, 1.1]])
    ends = (
        graphopt.indexed(cameras, camera),
        graphopt.indexed(landmarks, seen),
        graphopt.unique(shared),
    )
    graph.add_edges(kind, ends, pixels)
    return graph
