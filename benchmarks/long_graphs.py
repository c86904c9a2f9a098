"""Problems in which one vertex is in very many edges."""

from __future__ import annotations

import functools

import numpy as np

import graphopt
from graphopt.geometry import SE3
from graphopt.graph import Graph

TRUE_CALIBRATION = np.array([500.0, -0.05, 0.01])
TRUE_CURVE = np.array([2.0, 0.4, 3.0])


@functools.cache
def shared_types():
    """Camera pose, point, calibration, and the observation that names all three, in two ways."""
    pose = graphopt.group_type("SharedPose", cam_T_world=SE3, side="left")
    point = graphopt.group_type("SharedPoint", 3)
    calibration = graphopt.group_type("SharedCalibration", 3)

    @graphopt.edge_type(tag="EDGE_SHARED_CALIBRATION", vertices=(pose, point, calibration), measurement_dim=2)
    def EdgeSharedCalibration(pose, point_world, calibration, pixel):
        """Projected - measured pixel of a point in front of the camera, which looks along -z."""
        x, y, z = pose.cam_T_world * point_world
        f, k1, k2 = calibration
        p = np.stack([-x / z, -y / z])
        r2 = p @ p
        return f * (1.0 + r2 * (k1 + k2 * r2)) * p - pixel

    @graphopt.edge_type(tag="EDGE_SHARED_UNDISTORTED", vertices=(pose, point, calibration), measurement_dim=2)
    def EdgeSharedUndistorted(pose, point_world, calibration, pixel):
        """The same in the undistorted picture: the measured pixel loses its distortion in ten rounds."""
        x, y, z = pose.cam_T_world * point_world
        f, k1, k2 = calibration
        p = pixel / f
        for _ in range(10):
            r2 = p @ p
            p = pixel / (f * (1.0 + r2 * (k1 + k2 * r2)))
        return f * (np.stack([-x / z, -y / z]) - p)

    return pose, point, calibration, EdgeSharedCalibration, EdgeSharedUndistorted


def shared_calibration(num_edges: int = 1_000_000, seed: int = 0, undistorts: bool = False) -> Graph:
    """Bundle adjustment in which all cameras have one calibration; 5 observations per point.

    undistorts: by a residual that is expensive to evaluate.
    """
    rng = np.random.default_rng(seed)
    num_cameras, num_points = max(num_edges // 2000, 4), num_edges // 5
    points = rng.uniform([-3, -2, -12], [3, 2, -8], (num_points, 3))
    poses = np.zeros((num_cameras, 7))
    poses[:, 0] = np.linspace(-2, 2, num_cameras)
    poses[:, 6] = 1.0
    seen = np.repeat(np.arange(num_points), 5)
    step = rng.integers(1, max(num_cameras // 5, 2), num_points)
    first = rng.integers(0, num_cameras, num_points)
    camera = (first[:, None] + step[:, None] * np.arange(5)).ravel() % num_cameras
    local = points[seen] + poses[camera, :3]
    p = -local[:, :2] / local[:, 2:]
    r2 = (p**2).sum(axis=1, keepdims=True)
    f, k1, k2 = TRUE_CALIBRATION
    pixels = f * (1 + r2 * (k1 + k2 * r2)) * p + 0.5 * rng.normal(size=p.shape)
    pose, point, calibration, *kinds = shared_types()
    graph = Graph()
    start = poses.copy()
    start[2:, :3] += 0.01 * rng.normal(size=(num_cameras - 2, 3))
    cameras = graph.add_array(pose, start, fixed=np.arange(num_cameras) < 2)
    landmarks = graph.add_array(point, points + 0.05 * rng.normal(size=points.shape), marginalized=True)
    shared = graph.add_array(calibration, [TRUE_CALIBRATION * [1.02, 0.9, 1.1]])
    ends = graphopt.indexed(cameras, camera), graphopt.indexed(landmarks, seen), graphopt.unique(shared)
    graph.add_edges(kinds[undistorts], ends, pixels)
    return graph


@functools.cache
def curve_types():
    """Coefficients of a damped oscillation, and its measurement."""
    curve = graphopt.group_type("LongCurve", 3)

    @graphopt.edge_type(tag="EDGE_LONG_CURVE", vertices=(curve,), measurement_dim=2)
    def EdgeLongCurve(curve, sample):
        """Curve - measured."""
        amplitude, decay, frequency = curve
        x, y = sample
        return amplitude * np.exp(-decay * x) * np.cos(frequency * x) - y

    return curve, EdgeLongCurve


def curve_fit(num_edges: int = 1_000_000, seed: int = 0) -> Graph:
    """Three coefficients in all edges."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, num_edges)
    amplitude, decay, frequency = TRUE_CURVE
    y = amplitude * np.exp(-decay * x) * np.cos(frequency * x) + 0.1 * rng.normal(size=num_edges)
    curve, kind = curve_types()
    graph = Graph()
    coefficients = graph.add_array(curve, TRUE_CURVE + np.array([[0.1, 0.05, -0.1]]))
    graph.add_edges(kind, graphopt.unique(coefficients), np.stack([x, y], axis=1))
    return graph
