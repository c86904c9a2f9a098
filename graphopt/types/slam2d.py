"""g2o's `slam2d` and `sclam2d`: SLAM in the plane, and its calibration problems.

VertexSE2 is updated in the world's frame: (x, y, theta) <- (x + dx, y + dy, theta + dtheta), the angle
wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt.types.toro as toro
from graphopt.geometry import SE2, components, matrix, normalize_angle, stack
from graphopt.geometry.arrays import where
from graphopt.types.base import EdgeType, ParameterType, VariadicEdgeType, VertexType, unwrapped
from graphopt.types.define import add, define_edge, scalar
from graphopt.types.files import counted, plain
from graphopt.types.poses import stored_pose
from graphopt.types.registry import register

Array = Any


def _oplus_se2(storage: Array, delta: Array) -> Array:
    (x, y, theta), (dx, dy, dtheta) = components(storage), components(delta)
    return stack(x + dx, y + dy, normalize_angle(theta + dtheta))


VertexSE2 = register(
    VertexType(
        "VertexSE2",
        "VERTEX_SE2",
        3,
        3,
        _oplus_se2,
        SE2,
        (0.0, 0.0, 0.0),
        plain(3),
        ("VERTEX2",),
        doc="Pose in the plane: x, y, theta [rad].",
        role="pose",
        **stored_pose(SE2),
    )
)

VertexPointXY = register(
    VertexType(
        "VertexPointXY",
        "VERTEX_XY",
        2,
        2,
        add,
        unwrapped,
        (0.0, 0.0),
        plain(2),
        ("VERTEX_POINTXY", "VERTEX_POINT_XY"),
        doc="Point in the plane.",
        role="point",
    )
)

VertexOdomDifferentialParams = register(
    VertexType(
        "VertexOdomDifferentialParams",
        "VERTEX_ODOM_DIFFERENTIAL",
        3,
        3,
        add,
        unwrapped,
        (1.0, 1.0, 1.0),
        plain(3),
        doc="Differential drive: factors of the left and the right wheel's velocity, wheel distance.",
    )
)

ParameterSE2Offset = register(
    ParameterType(
        "ParameterSE2Offset",
        "PARAMS_SE2OFFSET",
        3,
        SE2,
        (0.0, 0.0, 0.0),
        plain(3),
        doc="Pose of a sensor on the robot.",
    )
)


def edge_se2(first: SE2, second: SE2, measured: SE2) -> Array:
    """measured^-1 (first^-1 second): odometry and loop closures."""
    return measured.between(first.between(second)).storage


def edge_se2_point(pose: SE2, point: Array, measured: Array) -> Array:
    """pose^-1 point - measured: a landmark seen from a pose."""
    return pose.inverse_act(point) - measured


def edge_se2_bearing(pose: SE2, point: Array, bearing: Array) -> Array:
    """Bearing - atan2(pose^-1 point), wrapped."""
    x, y = components(pose.inverse_act(point))
    return stack(normalize_angle(bearing - np.arctan2(y, x)))


def edge_se2_offset(first: SE2, second: SE2, first_offset: SE2, second_offset: SE2, measured: SE2) -> Array:
    """measured^-1 (first first_offset)^-1 (second second_offset)."""
    return measured.between((first * first_offset).between(second * second_offset)).storage


def edge_se2_point_offset(pose: SE2, point: Array, offset: SE2, measured: Array) -> Array:
    """pose^-1 point - measured. g2o leaves the offset out of the error (its Jacobian has it)."""
    return pose.inverse_act(point) - measured


def jacobian_se2_point_offset(pose: SE2, point: Array, offset: SE2, measured: Array) -> tuple[Array, Array]:
    """g2o's Jacobian: the column of the angle is turned by the offset's rotation, the others are not."""
    dx, dy = components(point - pose.translation)
    cos, sin = np.cos(pose.angle), np.sin(pose.angle)
    tx, ty = components(offset.rotation.inverse().act(stack(cos * dy - sin * dx, -cos * dx - sin * dy)))
    return matrix([[-cos, -sin, tx], [sin, -cos, ty]]), matrix([[cos, sin], [-sin, cos]])


def edge_se2_point_calib(pose: SE2, point: Array, offset: SE2, measured: Array) -> Array:
    """(pose offset)^-1 point - measured, with the sensor's offset as a vertex."""
    return (pose * offset).inverse_act(point) - measured


def edge_se2_sensor_calib(first: SE2, second: SE2, offset: SE2, measured: SE2) -> Array:
    """measured^-1 (first offset)^-1 second offset: motion of a sensor, its offset a vertex."""
    return measured.between((first * offset).between(second * offset)).storage


def edge_se2_prior(pose: SE2, measured: SE2) -> Array:
    """measured^-1 pose."""
    return measured.between(pose).storage


def edge_se2_xy_prior(pose: SE2, measured: Array) -> Array:
    """Position of the pose - measured."""
    return pose.translation - measured


def edge_xy_prior(point: Array, measured: Array) -> Array:
    """Point - measured."""
    return point - measured


def edge_point_xy(first: Array, second: Array, measured: Array) -> Array:
    """Second - first - measured."""
    return second - first - measured


def edge_se2_two_points(pose: SE2, first: Array, second: Array, measured: Array) -> Array:
    """Two landmarks seen from a pose with a joint information."""
    a, b = components(pose.inverse_act(first)), components(pose.inverse_act(second))
    return stack(*a, *b) - measured


def _motion_of_wheels(velocity_left: Array, velocity_right: Array, wheel_distance: Array, dt: Array) -> SE2:
    """Pose after dt [s] at constant wheel velocities: an arc, below 1e-7 a straight line (`OdomConvert`)."""
    difference = velocity_right - velocity_left
    turning = np.abs(difference) > 1e-7
    safe = where(turning, difference, 1.0)
    radius = 0.5 * wheel_distance * (velocity_left + velocity_right) / safe
    angle = safe / wheel_distance * dt
    x = where(turning, radius * np.sin(angle), 0.5 * (velocity_left + velocity_right) * dt)
    y = where(turning, radius - radius * np.cos(angle), 0.0)
    return SE2(stack(x, y, where(turning, angle, 0.0)))


def edge_se2_odom_differential_calib(first: SE2, second: SE2, calibration: Array, velocities: Array) -> Array:
    """motion^-1 first^-1 second, the motion from calibrated wheel velocities (left, right, dt)."""
    (k_left, k_right, wheel_distance), (left, right, dt) = components(calibration), components(velocities)
    motion = _motion_of_wheels(k_left * left, k_right * right, wheel_distance, dt)
    return motion.between(first.between(second)).storage


def _bearing(pose: SE2, point: Array) -> Array:
    x, y = components(pose.inverse_act(point))
    return stack(np.arctan2(y, x))


def _two_metres_away(pose: SE2, bearing: Array) -> Array:
    """g2o's guess of a point of which only the direction is known."""
    return pose.act(stack(2.0 * np.cos(bearing), 2.0 * np.sin(bearing)))


EdgeSE2 = define_edge(
    "EdgeSE2",
    "EDGE_SE2",
    (VertexSE2, VertexSE2),
    3,
    edge_se2,
    SE2,
    aliases=("EDGE_SE2_SE2",),
    alias_files={"EDGE2": toro.EDGE2},
    relative_pose=lambda z: z,
    measure=lambda first, second: first.between(second),
)
EdgeSE2PointXY = define_edge(
    "EdgeSE2PointXY",
    "EDGE_SE2_XY",
    (VertexSE2, VertexPointXY),
    2,
    edge_se2_point,
    aliases=("EDGE_SE2_POINTXY", "EDGE_SE2_POINT_XY"),
    predict={1: lambda pose, z: pose.act(z)},
    measure=lambda pose, point: pose.inverse_act(point),
)
EdgeSE2PointXYBearing = define_edge(
    "EdgeSE2PointXYBearing",
    "EDGE_BEARING_SE2_XY",
    (VertexSE2, VertexPointXY),
    1,
    edge_se2_bearing,
    scalar,
    aliases=("EDGE_SE2_XY_BEARING",),
    predict={1: _two_metres_away},
    measure=_bearing,
)
EdgeSE2Offset = define_edge(
    "EdgeSE2Offset",
    "EDGE_SE2_OFFSET",
    (VertexSE2, VertexSE2),
    3,
    edge_se2_offset,
    SE2,
    parameters=(ParameterSE2Offset, ParameterSE2Offset),
    relative_pose=lambda a, b, z: a * z * b.inverse(),
    measure=lambda first, second, a, b: (first * a).between(second * b),
)
EdgeSE2PointXYOffset = define_edge(
    "EdgeSE2PointXYOffset",
    "EDGE_SE2_POINTXY_OFFSET",
    (VertexSE2, VertexPointXY),
    2,
    edge_se2_point_offset,
    parameters=(ParameterSE2Offset,),
    jacobian=jacobian_se2_point_offset,
    predict={1: lambda pose, offset, z: (pose * offset).act(z)},  # as g2o's initialEstimate, with the offset
    measure=lambda pose, point, offset: (pose * offset).inverse_act(point),
)
EdgeSE2PointXYCalib = define_edge(
    "EdgeSE2PointXYCalib",
    "EDGE_SE2_XY_CALIB",
    (VertexSE2, VertexPointXY, VertexSE2),
    2,
    edge_se2_point_calib,
)
EdgeSE2SensorCalib = define_edge(
    "EdgeSE2SensorCalib",
    "EDGE_SE2_CALIB",
    (VertexSE2, VertexSE2, VertexSE2),
    3,
    edge_se2_sensor_calib,
    SE2,
)
EdgeSE2Prior = define_edge(
    "EdgeSE2Prior",
    "EDGE_PRIOR_SE2",
    (VertexSE2,),
    3,
    edge_se2_prior,
    SE2,
    predict={0: lambda z: z},
    measure=lambda pose: pose,
)
EdgeSE2XYPrior = define_edge("EdgeSE2XYPrior", "EDGE_PRIOR_SE2_XY", (VertexSE2,), 2, edge_se2_xy_prior)
EdgeXYPrior = define_edge(
    "EdgeXYPrior",
    "EDGE_PRIOR_XY",
    (VertexPointXY,),
    2,
    edge_xy_prior,
    predict={0: lambda z: z},
    measure=lambda point: point,
)
EdgePointXY = define_edge(
    "EdgePointXY",
    "EDGE_POINTXY",
    (VertexPointXY, VertexPointXY),
    2,
    edge_point_xy,
    predict={1: lambda point, z: point + z, 0: lambda point, z: point - z},
    measure=lambda first, second: second - first,
)
EdgeSE2TwoPointsXY = define_edge(
    "EdgeSE2TwoPointsXY",
    "EDGE_SE2_TWOPOINTSXY",
    (VertexSE2, VertexPointXY, VertexPointXY),
    4,
    edge_se2_two_points,
)
EdgeSE2OdomDifferentialCalib = define_edge(
    "EdgeSE2OdomDifferentialCalib",
    "EDGE_SE2_ODOM_DIFFERENTIAL_CALIB",
    (VertexSE2, VertexSE2, VertexOdomDifferentialParams),
    3,
    edge_se2_odom_differential_calib,
)


def edge_se2_lots_of_points(pose: SE2, *points_and_measured: Array) -> Array:
    """pose^-1 point_i - measured_i for all points, with a joint information."""
    *points, measured = points_and_measured
    seen = (pose.inverse_act(point) for point in points)
    return stack(*(part for point in seen for part in components(point))) - measured


def make_lots_of_points(variadic: VariadicEdgeType, num_vertices: int, residual: Any) -> EdgeType:
    """Edge type from one pose to num_vertices - 1 points."""
    dim = variadic.residual_dim_per_vertex * (num_vertices - 1)
    return EdgeType(
        variadic.name,
        variadic.tag,
        (variadic.first,) + (variadic.rest,) * (num_vertices - 1),
        (),
        dim,
        dim,
        residual,
        None,
        unwrapped,
        counted(dim, dim, count_old=num_vertices - 1),
        variadic.aliases,
        doc=variadic.doc,
    )


EdgeSE2LotsOfXY = register(
    VariadicEdgeType(
        "EdgeSE2LotsOfXY",
        "EDGE_SE2_LOTSOFXY",
        VertexSE2,
        VertexPointXY,
        2,
        lambda variadic, n: make_lots_of_points(variadic, n, edge_se2_lots_of_points),
        ("EDGE_SE2_LOTSOF_XY",),
        doc="Any number of landmarks seen from one pose, with a joint information.",
    )
)
