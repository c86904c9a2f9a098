"""g2o's `sba`: bundle adjustment.

    VertexSE3Expmap   cam_T_world, updated from the left: T <- exp(omega, upsilon) T
    VertexCam         world_T_cam, updated as t <- t + dt, q <- q (v, sqrt(1 - |v|^2)): position in the
                      world's frame, rotation in the camera's; |v| > 1: no rotation (g2o: not a number)

Points are projected with z ahead; residuals of the EXPMAP edges are measured - projected, those of VertexCam
projected - measured.

g2o keeps intrinsics of some edges, and of VertexCam, outside its files (g2o 2.x): here they are part of the
stored numbers, read as g2o's defaults (zeros for the ONLYPOSE edges, so that their error is the measurement),
and written behind the tokens g2o reads where they differ from the defaults (`EdgeFile.lossless`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt.types.sba_jacobians as derivatives
from graphopt.geometry import SE3, components, concatenate, norm, quaternion, scale, stack
from graphopt.types.base import ParameterType, VertexType, unwrapped
from graphopt.types.define import define_edge, scalar
from graphopt.types.files import (
    VertexFile,
    measurement_then_information,
    picked,
    plain,
    with_trailing_constants,
)
from graphopt.types.g2o_maps import se3_log
from graphopt.types.poses import stored_pose
from graphopt.types.registry import register
from graphopt.types.slam3d import ISOMETRY_FILE, VertexPointXYZ, minimal, tidy_quaternions

Array = Any

INTRINSICS = (1.0, 1.0, 0.5, 0.5)
"""g2o's default fx, fy, cx, cy."""


def oplus_expmap(storage: Array, delta: Array) -> Array:
    """Multiply by exp(omega, upsilon) from the left. g2o turns the quaternion to w >= 0."""
    return (SE3.exp(delta) * SE3(storage)).storage


VertexSE3Expmap = register(
    VertexType(
        "VertexSE3Expmap",
        "VERTEX_SE3:EXPMAP",
        7,
        6,
        oplus_expmap,
        SE3,
        SE3.identity_storage,
        ISOMETRY_FILE,
        ("VERTEX_SE3_EXPMAP",),
        doc="Camera pose cam_T_world: x, y, z, qx, qy, qz, qw. In files of C++ g2o: the inverse.",
        role="camera_pose",
        **stored_pose(SE3, inverted=True),
    )
)


def _inverse_pose(storage: Array) -> Array:
    return SE3(tidy_quaternions(storage)).inverse().storage


INVERSE_FILE = VertexFile(7, _inverse_pose, _inverse_pose)
"""Pose written as its inverse: C++ g2o's layout of VERTEX_SE3:EXPMAP (`vertex_se3_expmap.cpp`)."""


class SbaCamera:
    """Camera of VertexCam: storage (..., 12) is world_T_cam (7), fx, fy, cx, cy, baseline."""

    __slots__ = ("storage",)
    quaternions = SE3.quaternions

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    @property
    def pose(self) -> SE3:
        """world_T_cam."""
        return SE3(self.storage[..., :7])

    def project(self, point: Array) -> tuple[Array, Array, Array]:
        """Pixel in the left image and column in the right image of a point of the world."""
        x, y, z = components(self.pose.inverse_act(point))
        fx, fy, cx, cy, baseline = components(self.storage[..., 7:12])
        return fx * x / z + cx, fy * y / z + cy, fx * (x - baseline) / z + cx


def oplus_cam(storage: Array, delta: Array) -> Array:
    """T + dt, q (v, sqrt(1 - |v|^2)); the intrinsics stay."""
    step = quaternion.from_vector_part(delta[..., 3:6])
    q = quaternion.multiply(storage[..., 3:7], step)
    return concatenate(storage[..., :3] + delta[..., :3], q, storage[..., 7:])


_CAM_DEFAULTS = (*SE3.identity_storage, *INTRINSICS, 0.0)


def _cam_layout(num_tokens: int, defaults: tuple[float, ...] = _CAM_DEFAULTS) -> VertexFile:
    layout = picked(range(num_tokens), defaults)
    return VertexFile(num_tokens, lambda tokens: tidy_quaternions(layout.decode(tokens)), layout.encode)


VertexCam = register(
    VertexType(
        "VertexCam",
        "VERTEX_CAM",
        12,
        6,
        oplus_cam,
        SbaCamera,
        _CAM_DEFAULTS,
        VertexFile(7, _cam_layout(7).decode, _cam_layout(7).encode, (_cam_layout(12),)),
        doc="Camera world_T_cam (7), fx, fy, cx, cy, baseline. Files: 7 tokens (g2opy) or 12 (C++ g2o).",
        role="camera_pose",
        **stored_pose(SE3),
    )
)


_CPP_DEFAULTS = (*SE3.identity_storage, 300.0, 300.0, 320.0, 320.0, 0.1)
CAM_WITH_INTRINSICS_FILE = VertexFile(
    12, _cam_layout(12).decode, _cam_layout(12).encode, (_cam_layout(7, _CPP_DEFAULTS),)
)
"""C++ g2o's layout of VERTEX_CAM, with what it takes where a line ends after the pose (`vertex_cam.cpp`)."""


def oplus_intrinsics(storage: Array, delta: Array) -> Array:
    """Add to the first four numbers; the baseline stays."""
    return concatenate(storage[..., :4] + delta, storage[..., 4:])


VertexIntrinsics = register(
    VertexType(
        "VertexIntrinsics",
        "VERTEX_INTRINSICS",
        5,
        4,
        oplus_intrinsics,
        unwrapped,
        (*INTRINSICS, 0.1),
        plain(5),
        doc="fx, fy, cx, cy, baseline; the baseline is not optimized. No edge type uses it.",
    )
)


class StereoParameters:
    """Storage (..., 4): focal length, cx, cy, baseline."""

    __slots__ = ("storage",)

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    def project(self, point_cam: Array) -> tuple[Array, Array, Array]:
        """Pixel in the left image and column in the right image of a point of the camera's frame."""
        x, y, z = components(point_cam)
        f, cx, cy, baseline = components(self.storage)
        return f * x / z + cx, f * y / z + cy, f * (x - baseline) / z + cx


CameraParameters = register(
    ParameterType(
        "CameraParameters",
        "PARAMS_CAMERAPARAMETERS",
        4,
        StereoParameters,
        (1.0, 0.0, 0.0, 0.5),
        plain(4),
        doc="Focal length, cx, cy, baseline.",
    )
)


def edge_se3_expmap(first: SE3, second: SE3, measured: SE3) -> Array:
    """log(second^-1 measured first), with g2o's logarithm."""
    return se3_log(second.between(measured * first))


def _ahead(point_cam: Array) -> Array:
    return components(point_cam)[2] > 0.0


def _sees(point: Array, cam_T_world: SE3, *rest: Any) -> Array:
    """The point is in front of the camera."""
    return _ahead(cam_T_world * point)


def _camera_sees(point: Array, camera: SbaCamera, measured: Array) -> Array:
    return _ahead(camera.pose.inverse_act(point))


def _sees_known(first: int) -> Any:
    """Of a fixed point, whose place stands from number `first` of the measurement on."""
    return lambda cam_T_world, measured: _ahead(cam_T_world * measured[..., first : first + 3])


def edge_project_xyz2uv(point: Array, cam_T_world: SE3, camera: StereoParameters, measured: Array) -> Array:
    """Measured - pixel."""
    u, v, _ = camera.project(cam_T_world * point)
    return measured - stack(u, v)


def edge_project_xyz2uvu(point: Array, cam_T_world: SE3, camera: StereoParameters, measured: Array) -> Array:
    """Measured - (left pixel, right column)."""
    return measured - stack(*camera.project(cam_T_world * point))


def edge_project_psi2uv(
    psi: Array, cam_T_world: SE3, anchor_T_world: SE3, camera: StereoParameters, measured: Array
) -> Array:
    """Measured - pixel of the point (x/z, y/z, 1/z) = psi given in the frame of an anchor camera."""
    x, y, inverse_depth = components(psi)
    # times the inverse depth, which no pixel depends on: exact for points at any distance
    ray = stack(x, y, 1.0) - scale(inverse_depth, anchor_T_world.translation)
    ray_world = quaternion.rotate(quaternion.conjugate(anchor_T_world.quaternion), ray)
    ray_cam = quaternion.rotate(cam_T_world.quaternion, ray_world)
    u, v, _ = camera.project(ray_cam + scale(inverse_depth, cam_T_world.translation))
    return measured - stack(u, v)


def _point_of_psi(psi: Array) -> Array:
    x, y, inverse_depth = components(psi)
    return stack(x / inverse_depth, y / inverse_depth, 1.0 / inverse_depth)


def _sees_psi(
    psi: Array, cam_T_world: SE3, anchor_T_world: SE3, camera: StereoParameters, measured: Array
) -> Array:
    """In front of the anchor and of the camera."""
    point_anchor = _point_of_psi(psi)
    ahead = _ahead(cam_T_world * anchor_T_world.inverse_act(point_anchor))
    return np.logical_and(_ahead(point_anchor), ahead)


def _pinhole(point_cam: Array, intrinsics: Array) -> tuple[Array, Array, Array]:
    x, y, z = components(point_cam)
    fx, fy, cx, cy = components(intrinsics)
    return fx * x / z + cx, fy * y / z + cy, z


def edge_se3_project_xyz(point: Array, cam_T_world: SE3, measured: Array) -> Array:
    """(u, v) - pixel; stored: u, v, fx, fy, cx, cy."""
    u, v, _ = _pinhole(cam_T_world * point, measured[..., 2:6])
    return measured[..., :2] - stack(u, v)


def edge_se3_project_xyz_only_pose(cam_T_world: SE3, measured: Array) -> Array:
    """(u, v) - pixel of a fixed point; stored: u, v, point (3), fx, fy, cx, cy."""
    u, v, _ = _pinhole(cam_T_world * measured[..., 2:5], measured[..., 5:9])
    return measured[..., :2] - stack(u, v)


def edge_stereo_se3_project_xyz(point: Array, cam_T_world: SE3, measured: Array) -> Array:
    """(u, v, u_right) - projection; stored: u, v, u_right, fx, fy, cx, cy, bf (g2o rounds bf to a float)."""
    u, v, z = _pinhole(cam_T_world * point, measured[..., 3:7])
    return measured[..., :3] - stack(u, v, u - components(measured)[7] / z)


def edge_stereo_se3_project_xyz_only_pose(cam_T_world: SE3, measured: Array) -> Array:
    """(u, v, u_right) - projection of a fixed point; stored: u, v, u_right, point (3), fx, fy, cx, cy, bf."""
    u, v, z = _pinhole(cam_T_world * measured[..., 3:6], measured[..., 6:10])
    return measured[..., :3] - stack(u, v, u - components(measured)[10] / z)


def edge_project_p2mc(point: Array, camera: SbaCamera, measured: Array) -> Array:
    """Pixel - measured."""
    u, v, _ = camera.project(point)
    return stack(u, v) - measured


def edge_project_p2sc(point: Array, camera: SbaCamera, measured: Array) -> Array:
    """(left pixel, right column) - measured."""
    return stack(*camera.project(point)) - measured


def edge_sba_cam(first: SbaCamera, second: SbaCamera, measured: SE3) -> Array:
    """measured^-1 (first^-1 second)."""
    return minimal(measured.between(first.pose.between(second.pose)))


def edge_sba_scale(first: SbaCamera, second: SbaCamera, distance: Array) -> Array:
    """Distance - |distance of the cameras|."""
    return stack(distance - norm(second.pose.translation - first.pose.translation))


EdgeSE3Expmap = define_edge(
    "EdgeSE3Expmap",
    "EDGE_SE3:EXPMAP",
    (VertexSE3Expmap, VertexSE3Expmap),
    6,
    edge_se3_expmap,
    SE3,
    measurement=ISOMETRY_FILE,
    aliases=("EDGE_SE3_EXPMAP",),
    relative_pose=lambda z: z.inverse(),
    measure=lambda first, second: second * first.inverse(),
)
EdgeProjectXYZ2UV = define_edge(
    "EdgeProjectXYZ2UV",
    "EDGE_PROJECT_XYZ2UV:EXPMAP",
    (VertexPointXYZ, VertexSE3Expmap),
    2,
    edge_project_xyz2uv,
    sees=_sees,
    jacobian=derivatives.jacobian_project_xyz2uv,
    parameters=(CameraParameters,),
    aliases=("EDGE_PROJECT_XYZ2UV",),
)
EdgeProjectXYZ2UVU = define_edge(
    "EdgeProjectXYZ2UVU",
    "EDGE_PROJECT_XYZ2UVU:EXPMAP",
    (VertexPointXYZ, VertexSE3Expmap),
    3,
    edge_project_xyz2uvu,
    sees=_sees,
    jacobian=derivatives.jacobian_project_xyz2uvu,
    parameters=(CameraParameters,),
    aliases=("EDGE_PROJECT_XYZ2UVU",),
)
EdgeProjectPSI2UV = define_edge(
    "EdgeProjectPSI2UV",
    "EDGE_PSI2UV",
    (VertexPointXYZ, VertexSE3Expmap, VertexSE3Expmap),
    2,
    edge_project_psi2uv,
    sees=_sees_psi,
    parameters=(CameraParameters,),
    aliases=("EDGE_PROJECT_PSI2UV:EXPMAP", "EDGE_PSI2UV:EXPMAP"),
)
EdgeSE3ProjectXYZ = define_edge(
    "EdgeSE3ProjectXYZ",
    "EDGE_SE3_PROJECT_XYZ:EXPMAP",
    (VertexPointXYZ, VertexSE3Expmap),
    2,
    edge_se3_project_xyz,
    sees=_sees,
    jacobian=derivatives.jacobian_se3_project_xyz,
    measurement_dim=6,
    file=with_trailing_constants(2, INTRINSICS, 2),
)
EdgeSE3ProjectXYZOnlyPose = define_edge(
    "EdgeSE3ProjectXYZOnlyPose",
    "EDGE_SE3_PROJECT_XYZONLYPOSE:EXPMAP",
    (VertexSE3Expmap,),
    2,
    edge_se3_project_xyz_only_pose,
    sees=_sees_known(2),
    jacobian=derivatives.jacobian_se3_project_xyz_only_pose,
    measurement_dim=9,
    file=with_trailing_constants(2, (0.0,) * 7, 2),
)
EdgeStereoSE3ProjectXYZ = define_edge(
    "EdgeStereoSE3ProjectXYZ",
    "EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP",
    (VertexPointXYZ, VertexSE3Expmap),
    3,
    edge_stereo_se3_project_xyz,
    sees=_sees,
    jacobian=derivatives.jacobian_stereo_se3_project_xyz,
    measurement_dim=8,
    file=with_trailing_constants(3, (*INTRINSICS, 0.0), 3),
)
EdgeStereoSE3ProjectXYZOnlyPose = define_edge(
    "EdgeStereoSE3ProjectXYZOnlyPose",
    "EDGE_STEREO_SE3_PROJECT_XYZONLYPOSE:EXPMAP",
    (VertexSE3Expmap,),
    3,
    edge_stereo_se3_project_xyz_only_pose,
    sees=_sees_known(3),
    jacobian=derivatives.jacobian_stereo_se3_project_xyz_only_pose,
    measurement_dim=11,
    file=with_trailing_constants(3, (0.0,) * 8, 3),
)
EdgeProjectP2MC = define_edge(
    "EdgeProjectP2MC",
    "EDGE_PROJECT_P2MC",
    (VertexPointXYZ, VertexCam),
    2,
    edge_project_p2mc,
    sees=_camera_sees,
)
EdgeProjectP2SC = define_edge(
    "EdgeProjectP2SC",
    "EDGE_PROJECT_P2SC",
    (VertexPointXYZ, VertexCam),
    3,
    edge_project_p2sc,
    sees=_camera_sees,
)
EdgeSBACam = define_edge(
    "EdgeSBACam", "EDGE_CAM", (VertexCam, VertexCam), 6, edge_sba_cam, SE3, measurement=ISOMETRY_FILE
)
EdgeSBAScale = define_edge("EdgeSBAScale", "EDGE_SCALE", (VertexCam, VertexCam), 1, edge_sba_scale, scalar)

INVERSE_EDGE_FILE = measurement_then_information(INVERSE_FILE, 6)
"""C++ g2o's layout of EDGE_SE3:EXPMAP (`edge_se3_expmap.cpp`); lines look like g2opy's, see `io.dialects`."""
