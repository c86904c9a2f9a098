"""g2o's `slam3d`: SLAM in space.

VertexSE3 is updated in its own frame: T <- T (t, q), with delta = (t, vector part of q); so the rotation part
of an update is about half a rotation vector. |vector part| > 1 gives no rotation.

Residuals of poses are (translation, vector part of the quaternion with w >= 0).

A pose is stored as a quaternion and optimized as g2o's Isometry3 (`geometry.se3_matrix`): the digits of a
file leave its matrix not quite orthogonal, and chi2 along the path depends on that by up to 1e-2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt.types.toro as toro
from graphopt.geometry import SE3, SE3Matrix, components, concatenate, matrix, quaternion, skew, stack
from graphopt.geometry.se3 import block_matrix
from graphopt.geometry.se3_matrix import QuaternionDerivative
from graphopt.types.base import ParameterType, VariadicEdgeType, VertexType, WorkingForm, unwrapped
from graphopt.types.define import add, define_edge
from graphopt.types.files import VertexFile, plain
from graphopt.types.poses import stored_pose
from graphopt.types.registry import register
from graphopt.types.slam2d import make_lots_of_points

Array = Any


def tidy_quaternions(storage: Array) -> Array:
    """Storage (n, 7 or more) with `quaternion.nearly_unit` quaternions in columns 3:7."""
    storage = np.array(storage, subok=True)
    storage[:, 3:7] = quaternion.nearly_unit(storage[:, 3:7])
    return storage


ISOMETRY_FILE = VertexFile(7, tidy_quaternions, np.array)
"""x y z qx qy qz qw."""


def oplus_se3(storage: Array, delta: Array) -> Array:
    """Multiply by the motion (translation, quaternion's vector part) from the right.

    The product of unit quaternions is one to rounding; it is not normalised (nor is its sign chosen), so that
    oplus(x, 0) is x itself and the derivative at zero is short.
    """
    step = SE3.from_parts(delta[..., :3], quaternion.from_vector_part(delta[..., 3:6]))
    return (SE3(storage) * step).storage


def oplus_matrix(numbers: Array, delta: Array) -> Array:
    """`oplus_se3` on the working form, as g2o's VertexSE3.

    g2o makes the matrix orthogonal again after 1000 updates; here it stays as it is: 1000 products cost
    1e-13.
    """
    step = SE3Matrix.from_parts(delta[..., :3], quaternion.from_vector_part(delta[..., 3:6]))
    return (SE3Matrix.from_numbers(numbers) * step).numbers


def _matrix_numbers(storage: Array) -> Array:
    """`SE3Matrix(storage).numbers`; natively, but for symbols, of which files for other programs are made."""
    if storage.dtype == object:
        return SE3Matrix(storage).numbers
    from graphopt.cpu_kernels import kernels  # the build compiles types before there is such a module

    return kernels.pose_matrices(storage)


def _storages(numbers: Array) -> Array:
    """`SE3Matrix.from_numbers(numbers).storage`, likewise."""
    if numbers.dtype == object:
        return SE3Matrix.from_numbers(numbers).storage
    from graphopt.cpu_kernels import kernels

    return kernels.poses_of_matrices(numbers)


def _with_unit_quaternions(storage: Array) -> Array:
    return np.concatenate([storage[:, :3], quaternion.normalize(storage[:, 3:7])], axis=1)


MATRIX_FORM = WorkingForm(
    12,
    oplus_matrix,
    SE3Matrix.from_numbers,
    encode=_matrix_numbers,
    decode=_storages,
    tidy=_with_unit_quaternions,
    wraps={SE3: SE3Matrix},
)
"""x y z and the rotation matrix row by row."""

NOTHING = SE3Matrix.of(np.zeros(3), np.eye(3))


def minimal(pose: SE3) -> Array:
    """Join translation and vector part of the quaternion with w >= 0, g2o's `toVectorMQT`."""
    if isinstance(pose, SE3Matrix):
        return concatenate(pose.translation, pose.quaternion[..., :3])
    return concatenate(pose.translation, quaternion.vector_part(pose.quaternion))


VertexSE3 = register(
    VertexType(
        "VertexSE3",
        "VERTEX_SE3:QUAT",
        7,
        6,
        oplus_se3,
        SE3,
        SE3.identity_storage,
        ISOMETRY_FILE,
        ("VERTEX_SE3", "VERTEX_SE3_QUAT"),
        {"VERTEX3": toro.VERTEX3},
        doc="Pose in space: x, y, z, qx, qy, qz, qw.",
        working=MATRIX_FORM,
        role="pose",
        **stored_pose(SE3),
    )
)

VertexPointXYZ = register(
    VertexType(
        "VertexPointXYZ",
        "VERTEX_TRACKXYZ",
        3,
        3,
        add,
        unwrapped,
        (0.0, 0.0, 0.0),
        plain(3),
        ("VERTEX_XYZ", "VERTEX_POINTXYZ", "VERTEX_POINT_XYZ", "VertexSBAPointXYZ"),
        doc="Point in space.",
        role="point",
    )
)

ParameterSE3Offset = register(
    ParameterType(
        "ParameterSE3Offset",
        "PARAMS_SE3OFFSET",
        7,
        SE3,
        SE3.identity_storage,
        ISOMETRY_FILE,
        doc="Pose of a sensor on the robot.",
    )
)


class OffsetCamera:
    """Pinhole camera mounted at an offset: storage (..., 11) is offset (7), fx, fy, cx, cy."""

    __slots__ = ("storage",)
    quaternions = SE3.quaternions

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    @property
    def offset(self) -> SE3:
        """Pose of the camera on the robot."""
        return SE3(self.storage[..., :7])

    def homogeneous_pixel(self, pose: SE3, point: Array) -> tuple[Array, Array, Array]:
        """Image (u z, v z, z) of a point of the world, seen from a robot's pose."""
        x, y, z = components((pose * self.offset).inverse_act(point))
        fx, fy, cx, cy = components(self.storage[..., 7:11])
        return fx * x + cx * z, fy * y + cy * z, z


ParameterCamera = register(
    ParameterType(
        "ParameterCamera",
        "PARAMS_CAMERACALIB",
        11,
        OffsetCamera,
        (*SE3.identity_storage, 1.0, 1.0, 0.5, 0.5),
        VertexFile(11, tidy_quaternions, np.array),
        doc="Pinhole camera on the robot: pose (7), fx, fy, cx, cy.",
    )
)


def edge_se3(first: SE3, second: SE3, measured: SE3) -> Array:
    """measured^-1 (first^-1 second): odometry and loop closures."""
    return minimal(measured.between(first.between(second)))


def jacobian_se3(first: SE3, second: SE3, measured: SE3) -> tuple[Array, Array]:
    """Differentiate `edge_se3`.

    With d = first^-1 second, e = measured^-1 d = (t, (u, w)), M = R(measured)^T:

        first   [ -M   2 M [t_d] ; 0  -(w I - [u]) M ]         second   [ R(e)  0 ; 0  w I + [u] ]

    It equals what differentiating the residual gives, with fewer operations: R'R = I is used.
    """
    difference = first.between(second)
    error = measured.between(difference)
    x, y, z, w = components(quaternion.canonical(error.quaternion))
    m = measured.inverse().rotation.to_matrix()
    r = error.rotation.to_matrix()
    turn = 2.0 * (m @ skew(difference.translation))
    plus = matrix([[w, -z, y], [z, w, -x], [-y, x, w]])
    minus = matrix([[-w, -z, y], [z, -w, -x], [-y, x, -w]]) @ m
    zero = 0.0 * m
    return block_matrix(-m, turn, zero, minus), block_matrix(r, zero, zero, plus)


def gradient(left: SE3Matrix, right: SE3Matrix, at: QuaternionDerivative, sign: float = 1.0) -> Array:
    """Jacobian (..., 6, 6) of `minimal(left T right)` by T's update, g2o's `isometry3d_gradients.h`.

    With sign -1 of `minimal(left T^-1 right)`, where `right` is T^-1 and what follows it.
    """
    first, second = sign * left.rotation_matrix, right.rotation_matrix
    by_turn = first @ skew(-2.0 * right.translation)
    return block_matrix(first, by_turn, 0.0 * first, at.turning(first, second))


def gradients_se3(first: SE3Matrix, second: SE3Matrix, measured: SE3Matrix) -> tuple[Array, Array]:
    """g2o's Jacobian of `edge_se3`; takes R'R = I by the translation of `first` only."""
    left, difference = measured.inverse(), first.between(second)
    error = left * difference
    at = QuaternionDerivative(error.rotation_matrix)
    return gradient(left, difference, at, -1.0), gradient(error, NOTHING, at)


def gradients_se3_offset(
    first: SE3Matrix,
    second: SE3Matrix,
    first_offset: SE3Matrix,
    second_offset: SE3Matrix,
    measured: SE3Matrix,
) -> tuple[Array, Array]:
    """g2o's Jacobian of `edge_se3_offset`."""
    left = (first_offset * measured).inverse()
    difference = first.between(second)
    before = left * difference
    at = QuaternionDerivative((before * second_offset).rotation_matrix)
    return gradient(left, difference * second_offset, at, -1.0), gradient(before, second_offset, at)


def gradients_se3_prior(pose: SE3Matrix, offset: SE3Matrix, measured: SE3Matrix) -> tuple[Array]:
    """g2o's Jacobian of `edge_se3_prior`."""
    before = measured.between(pose)
    return (gradient(before, offset, QuaternionDerivative((before * offset).rotation_matrix)),)


def edge_se3_offset(first: SE3, second: SE3, first_offset: SE3, second_offset: SE3, measured: SE3) -> Array:
    """measured^-1 (first first_offset)^-1 (second second_offset)."""
    return minimal(measured.between((first * first_offset).between(second * second_offset)))


def edge_se3_point(pose: SE3, point: Array, offset: SE3, measured: Array) -> Array:
    """(pose offset)^-1 point - measured: a landmark seen by a sensor."""
    return (pose * offset).inverse_act(point) - measured


def edge_se3_point_without_offset(pose: SE3, point: Array, measured: Array) -> Array:
    """pose^-1 point - measured: a landmark seen from a pose."""
    return pose.inverse_act(point) - measured


def edge_se3_prior(pose: SE3, offset: SE3, measured: SE3) -> Array:
    """measured^-1 (pose offset)."""
    return minimal(measured.between(pose * offset))


def edge_se3_xyz_prior(pose: SE3, offset: SE3, measured: Array) -> Array:
    """Position of the pose - measured. g2o does not use the offset here."""
    return pose.translation - measured


def edge_project_depth(pose: SE3, point: Array, camera: OffsetCamera, measured: Array) -> Array:
    """(pixel, depth) - measured."""
    u, v, z = camera.homogeneous_pixel(pose, point)
    return stack(u / z, v / z, z) - measured


def _in_front(pose: SE3, point: Array, camera: OffsetCamera, measured: Array) -> Array:
    return camera.homogeneous_pixel(pose, point)[2] > 0.0


def point_of_depth(pose: SE3, camera: OffsetCamera, measured: Array) -> Array:
    """Point of the world that a robot at `pose` sees at (pixel, depth)."""
    fx, fy, cx, cy = components(camera.storage[..., 7:11])
    u, v, depth = components(measured)
    return (pose * camera.offset).act(stack((u - cx) / fx * depth, (v - cy) / fy * depth, depth))


def edge_project_disparity(pose: SE3, point: Array, camera: OffsetCamera, measured: Array) -> Array:
    """(pixel, 1 / depth) - measured."""
    u, v, z = camera.homogeneous_pixel(pose, point)
    return stack(u / z, v / z, 1.0 / z) - measured


def edge_point_xyz(first: Array, second: Array, measured: Array) -> Array:
    """Second - first - measured."""
    return second - first - measured


def edge_xyz_prior(point: Array, measured: Array) -> Array:
    """Point - measured."""
    return point - measured


EdgeSE3 = define_edge(
    "EdgeSE3",
    "EDGE_SE3:QUAT",
    (VertexSE3, VertexSE3),
    6,
    edge_se3,
    SE3,
    jacobian=jacobian_se3,
    working_jacobian=gradients_se3,
    measurement=ISOMETRY_FILE,
    aliases=("EDGE_SE3", "EDGE_SE3_QUAT"),
    alias_files={"EDGE3": toro.EDGE3},
    relative_pose=lambda z: z,
    measure=lambda first, second: first.between(second),
)
EdgeSE3Offset = define_edge(
    "EdgeSE3Offset",
    "EDGE_SE3_OFFSET",
    (VertexSE3, VertexSE3),
    6,
    edge_se3_offset,
    SE3,
    parameters=(ParameterSE3Offset, ParameterSE3Offset),
    measurement=ISOMETRY_FILE,
    working_jacobian=gradients_se3_offset,
    relative_pose=lambda a, b, z: a * z * b.inverse(),
    measure=lambda first, second, a, b: (first * a).between(second * b),
)
EdgeSE3PointXYZ = define_edge(
    "EdgeSE3PointXYZ",
    "EDGE_SE3_TRACKXYZ",
    (VertexSE3, VertexPointXYZ),
    3,
    edge_se3_point,
    parameters=(ParameterSE3Offset,),
    aliases=("EDGE_SE3_POINTXYZ", "EDGE_SE3_POINT_XYZ"),
    predict={1: lambda pose, offset, z: (pose * offset).act(z)},
    measure=lambda pose, point, offset: (pose * offset).inverse_act(point),
)
EdgeSE3XYZ = define_edge(
    "EdgeSE3XYZ",
    "EDGE_SE3_XYZ",
    (VertexSE3, VertexPointXYZ),
    3,
    edge_se3_point_without_offset,
)
"""Not g2o's: files in the wild hold landmarks seen from a pose without a parameter."""
EdgeSE3PointXYZDepth = define_edge(
    "EdgeSE3PointXYZDepth",
    "EDGE_PROJECT_DEPTH",
    (VertexSE3, VertexPointXYZ),
    3,
    edge_project_depth,
    sees=_in_front,
    parameters=(ParameterCamera,),
    predict={1: point_of_depth},
    measure=lambda pose, point, camera: edge_project_depth(pose, point, camera, 0.0),
)
EdgeSE3PointXYZDisparity = define_edge(
    "EdgeSE3PointXYZDisparity",
    "EDGE_PROJECT_DISPARITY",
    (VertexSE3, VertexPointXYZ),
    3,
    edge_project_disparity,
    sees=_in_front,
    parameters=(ParameterCamera,),
    measure=lambda pose, point, camera: edge_project_disparity(pose, point, camera, 0.0),
)
EdgeSE3Prior = define_edge(
    "EdgeSE3Prior",
    "EDGE_SE3_PRIOR",
    (VertexSE3,),
    6,
    edge_se3_prior,
    SE3,
    parameters=(ParameterSE3Offset,),
    measurement=ISOMETRY_FILE,
    working_jacobian=gradients_se3_prior,
    predict={0: lambda offset, z: z * offset.inverse()},
    measure=lambda pose, offset: pose * offset,
)
EdgeSE3XYZPrior = define_edge(
    "EdgeSE3XYZPrior",
    "EDGE_SE3_XYZ_PRIOR",
    (VertexSE3,),
    3,
    edge_se3_xyz_prior,
    parameters=(ParameterSE3Offset,),
)
EdgePointXYZ = define_edge(
    "EdgePointXYZ",
    "EDGE_POINTXYZ",
    (VertexPointXYZ, VertexPointXYZ),
    3,
    edge_point_xyz,
    predict={1: lambda point, z: point + z, 0: lambda point, z: point - z},
    measure=lambda first, second: second - first,
)
EdgeXYZPrior = define_edge(
    "EdgeXYZPrior",
    "EDGE_POINTXYZ_PRIOR",
    (VertexPointXYZ,),
    3,
    edge_xyz_prior,
    predict={0: lambda z: z},
    measure=lambda point: point,
)


def edge_se3_lots_of_points(pose: SE3, *points_and_measured: Array) -> Array:
    """pose^-1 point_i - measured_i for all points, with a joint information."""
    *points, measured = points_and_measured
    seen = (pose.inverse_act(point) for point in points)
    return stack(*(part for point in seen for part in components(point))) - measured


EdgeSE3LotsOfXYZ = register(
    VariadicEdgeType(
        "EdgeSE3LotsOfXYZ",
        "EDGE_SE3_LOTSOF_XYZ",
        VertexSE3,
        VertexPointXYZ,
        3,
        lambda variadic, n: make_lots_of_points(variadic, n, edge_se3_lots_of_points),
        ("EDGE_SE3_LOTSOFXYZ",),
        doc="Any number of landmarks seen from one pose, with a joint information.",
    )
)
