"""Every edge class has g2opy's error, chi2 and Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both import assert_same, both, isometry, optimizer_of, rotation_of, same_as_g2opy

import graphopt.g2o as ours

NAMES = [
    "EdgeSE2",
    "EdgeSE2PointXY",
    "EdgeSE2PointXYBearing",
    "EdgeSE2PointXYCalib",
    "EdgeSE2SensorCalib",
    "EdgeSE2Prior",
    "EdgeSE2XYPrior",
    "EdgeXYPrior",
    "EdgePointXY",
    "EdgeSE2TwoPointsXY",
    "EdgeSE2OdomDifferentialCalib",
    "EdgeSE2Offset",
    "EdgeSE2PointXYOffset",
    "EdgeSE3",
    "EdgeSE3Offset",
    "EdgeSE3Prior",
    "EdgeSE3PointXYZ",
    "EdgeSE3XYZPrior",
    "EdgePointXYZ",
    "EdgeXYZPrior",
    "EdgeSE3Expmap",
    "EdgeProjectXYZ2UV",
    "EdgeProjectXYZ2UVU",
    "EdgeProjectPSI2UV",
    "EdgeSE3ProjectXYZ",
    "EdgeSE3ProjectXYZOnlyPose",
    "EdgeStereoSE3ProjectXYZ",
    "EdgeProjectP2MC",
    "EdgeProjectP2SC",
    "EdgeSBACam",
    "EdgeSBAScale",
    "EdgeVVGicp",
    "EdgeSim3",
    "EdgeSim3ProjectXYZ",
    "EdgeInverseSim3ProjectXYZ",
]


def estimate(g2o: Any, name: str, random: np.random.Generator) -> Any:
    """A random estimate of a vertex class; cameras look at points in front of them."""
    t, r = random.normal(0.0, 0.2, 3), random.normal(0.0, 0.2, 3)
    pose = g2o.SE3Quat(rotation_of(r), t)
    if name == "VertexSE2":
        return g2o.SE2(t[0], t[1], r[2])
    if name == "VertexPointXY":
        return t[:2] + np.array([3.0, 1.0])
    if name == "VertexPointXYZ":
        return t + np.array([0.5, -0.4, 5.0])
    if name == "VertexSE3":
        return isometry(g2o, t, r)
    if name == "VertexSE3Expmap":
        return pose
    if name == "VertexSim3Expmap":
        return g2o.Sim3(rotation_of(r), t, 1.2 + 0.1 * t[0])
    if name == "VertexCam":
        camera = g2o.SBACam(pose.rotation(), t)
        camera.set_cam(500.0, 510.0, 320.0, 240.0, 0.12)
        return camera
    assert name == "VertexOdomDifferentialParams", name
    return np.array([1.1, 0.9, 0.7])


def measurement(g2o: Any, name: str, random: np.random.Generator) -> Any:
    """A random measurement of an edge class."""
    t, r = random.normal(0.0, 0.3, 3), random.normal(0.0, 0.3, 3)
    if name in ("EdgeSE2", "EdgeSE2SensorCalib", "EdgeSE2Prior", "EdgeSE2Offset"):
        return g2o.SE2(t[0], t[1], r[2])
    if name in ("EdgeSE3", "EdgeSE3Prior", "EdgeSE3Offset"):
        return isometry(g2o, t, r)
    if name in ("EdgeSE3Expmap", "EdgeSBACam"):
        return g2o.SE3Quat(rotation_of(r), t)
    if name == "EdgeSim3":
        return g2o.Sim3(rotation_of(r), t, 1.1)
    if name in ("EdgeSE2PointXYBearing", "EdgeSBAScale"):
        return 0.4 + t[0]
    if name == "EdgeSE2OdomDifferentialCalib":
        return g2o.VelocityMeasurement(1.0 + t[0], 1.2 + t[1], 0.5)
    if name == "EdgeVVGicp":
        value = g2o.EdgeGICP()
        value.pos0, value.pos1 = t, t + r
        return value
    dim = getattr(ours, name)().measurement_dimension()
    return np.resize(t, dim) + (300.0 if "Project" in name and "Sim3" not in name else 0.0)


def add_parameters(g2o: Any, optimizer: Any, edge: Any, name: str) -> None:
    """The parameters that the edge needs, ids 0 and 1."""
    for i in range(edge.num_parameters()):
        if "SE2" in name:
            parameter = g2o.ParameterSE2Offset()
            parameter.set_param(g2o.SE2(0.1, 0.2 + i, 0.3))
        elif name.startswith("EdgeSE3"):
            parameter = g2o.ParameterSE3Offset()
            parameter.set_param(isometry(g2o, [0.1, 0.2, 0.3 + i], [0.3, 0.1, 0.2]))
        else:
            parameter = g2o.CameraParameters(500.0, np.array([320.0, 240.0]), 0.12)
        parameter.set_id(i)
        assert optimizer.add_parameter(parameter)
        assert edge.set_parameter_id(i, i)


def build(g2o: Any, name: str) -> tuple[Any, Any]:
    """An optimizer with one edge between random vertices."""
    random = np.random.default_rng(5)
    optimizer = optimizer_of(g2o)
    edge = getattr(g2o, name)()
    kinds = [each_vertex.name for each_vertex in getattr(ours, name)()._type.vertices]
    for i, kind in enumerate(kinds):
        vertex = getattr(g2o, kind)()
        vertex.set_id(i)
        vertex.set_estimate(estimate(g2o, kind, random))
        optimizer.add_vertex(vertex)
        edge.set_vertex(i, vertex)
    edge.set_measurement(measurement(g2o, name, random))
    if name in ("EdgeSE3ProjectXYZ", "EdgeSE3ProjectXYZOnlyPose", "EdgeStereoSE3ProjectXYZ"):
        edge.fx, edge.fy, edge.cx, edge.cy = 500.0, 510.0, 320.0, 240.0
    if name == "EdgeStereoSE3ProjectXYZ":
        edge.bf = 60.1
    if name == "EdgeSE3ProjectXYZOnlyPose":
        edge.Xw = np.array([0.5, -0.4, 5.0])
    dim = edge.dimension()
    root = random.normal(size=(dim, dim))
    edge.set_information(root @ root.T + np.eye(dim))
    add_parameters(g2o, optimizer, edge, name)
    assert optimizer.add_edge(edge)
    return optimizer, edge


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
@same_as_g2opy(rtol=1e-9, atol=1e-9)
def test_error_and_chi2(g2o, name):
    """`compute_error()` gives g2opy's error and chi2."""
    optimizer, edge = build(g2o, name)
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    whole = optimizer.active_chi2()
    edge.compute_error()
    return {
        "error": np.array(edge.error),
        "chi2": edge.chi2(),
        "whole": whole,
        "dimension": edge.dimension(),
    }


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_jacobians(name):
    """`jacobian(i)` is g2opy's.

    Some of g2o's are central differences with a step of 1e-9, hence the tolerance.
    """

    def script(g2o):
        optimizer, edge = build(g2o, name)
        optimizer.initialize_optimization()
        if g2o is ours:
            edge.linearize_oplus()
        else:
            optimizer.optimize(1)  # gives the edge its workspace
        return [np.array(edge.jacobian(i)) for i in range(len(edge.vertices()))]

    actual, expected = both(script)
    scale = max(float(np.abs(value).max()) for value in expected)
    assert_same(actual, expected, rtol=1e-6, atol=2e-6 * max(scale, 1.0))


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["EdgeSE3ProjectXYZ", "EdgeSE3ProjectXYZOnlyPose"])
@same_as_g2opy()
def test_projection(g2o, name):
    """`cam_project` and `is_depth_positive` agree."""
    _, edge = build(g2o, name)
    return [edge.cam_project(np.array([0.3, 0.4, 2.0])), edge.is_depth_positive()]


def test_depth_is_negative_behind_the_camera():
    """A point behind the camera, for the stereo edge that g2opy cannot set up."""
    vertex = ours.VertexSE3Expmap()
    vertex.set_estimate(ours.SE3Quat(rotation_of([0.3, -0.2, 0.1]), np.array([0.0, 0.0, 1.0])))
    edge = ours.EdgeStereoSE3ProjectXYZOnlyPose()
    edge.set_vertex(0, vertex)
    edge.fx, edge.fy, edge.cx, edge.cy, edge.bf = 500.0, 500.0, 320.0, 240.0, 40.0
    for point in ([0.1, 0.2, 5.0], [0.1, 0.2, -5.0]):
        edge.Xw = point
        assert edge.is_depth_positive() == (vertex.estimate().map(point)[2] > 0.0)


def test_wrong_shapes_are_refused():
    """An information matrix or a measurement of the wrong size names both shapes."""
    edge = ours.EdgeSE3()
    with pytest.raises(ValueError, match=r"\(3, 3\), expected \(6, 6\)"):
        edge.set_information(np.eye(3))
    with pytest.raises(ValueError, match="expected 3 numbers"):
        ours.EdgePointXYZ().set_measurement(np.zeros(2))
    with pytest.raises(IndexError, match="it has 2 vertices"):
        edge.set_vertex(2, ours.VertexSE3())


@pytest.mark.oracle
@same_as_g2opy()
def test_new_objects(g2o):
    """Information, measurement and minimal numbers of objects that were just made, where g2o sets them."""
    intrinsics = g2o.VertexIntrinsics()
    found = [intrinsics.get_minimal_estimate_data(), g2o.EdgeVVGicp().minimal_measurement_dimension()]
    for name in ("EdgeSE3PointXYZDepth", "EdgeSE3PointXYZDisparity", "EdgeSE3", "EdgeSE2PointXY"):
        found.append(getattr(g2o, name)().information())
    return [
        *found,
        {key: getattr(g2o.Simulator2DConfig(), key) for key in ("nsegments", "segment_grid_size")},
    ]


def test_information_of_one_number():
    """A matrix, a vector or a number."""
    edge = ours.EdgeSE2PointXYBearing()
    for value in (np.eye(1) * 4.0, np.array([4.0]), 4.0):
        edge.set_information(value)
        assert edge.information().tolist() == [[4.0]]
