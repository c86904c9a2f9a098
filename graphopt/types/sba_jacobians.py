"""Derivatives of the projections of a camera pose cam_T_world that is updated from the left.

With c = T p, the projection's derivative D (m, 3) at c, and the residual measured - projected(c):

    d c / d(omega, upsilon) = [ -[c]  I ]      pose block   [ D [c]  -D ]
    d c / d p = R                              point block  -D R

These are the derivatives of the residuals, as in g2o, with fewer operations than differentiating the rotation
by its quaternion takes.
"""

from __future__ import annotations

from typing import Any

from graphopt.geometry import SE3, components, matrix, skew

Array = Any


def pinhole_derivative(point_cam: Array, fx: Array, fy: Array, bf: Array | None = None) -> Array:
    """D of (u, v), with bf of (u, v, u - bf / z), at points of the camera's frame: (..., 2 or 3, 3)."""
    x, y, z = components(point_cam)
    inverse_z = 1.0 / z
    u, v = fx * inverse_z, fy * inverse_z
    zero = 0.0 * inverse_z
    rows = [[u, zero, -u * x * inverse_z], [zero, v, -v * y * inverse_z]]
    if bf is not None:
        rows.append([u, zero, (bf * inverse_z - u * x) * inverse_z])
    return matrix(rows)


def pose_block(d: Array, point_cam: Array) -> Array:
    """[ D [c]  -D ], shape (..., m, 6)."""
    turn = d @ skew(point_cam)
    return matrix([(*components(turn[..., i, :]), *components(-d[..., i, :])) for i in range(d.shape[-2])])


def point_block(d: Array, cam_T_world: SE3) -> Array:
    """-D R, shape (..., m, 3)."""
    return -(d @ cam_T_world.rotation.to_matrix())


def jacobian_project_xyz2uv(
    point: Array, cam_T_world: SE3, camera: Any, measured: Array
) -> tuple[Array, Array]:
    """Differentiate `edge_project_xyz2uv`."""
    focal_length, _, _, _ = components(camera.storage)
    point_cam = cam_T_world * point
    d = pinhole_derivative(point_cam, focal_length, focal_length)
    return point_block(d, cam_T_world), pose_block(d, point_cam)


def jacobian_project_xyz2uvu(
    point: Array, cam_T_world: SE3, camera: Any, measured: Array
) -> tuple[Array, Array]:
    """Differentiate `edge_project_xyz2uvu`."""
    focal_length, _, _, baseline = components(camera.storage)
    point_cam = cam_T_world * point
    d = pinhole_derivative(point_cam, focal_length, focal_length, focal_length * baseline)
    return point_block(d, cam_T_world), pose_block(d, point_cam)


def jacobian_se3_project_xyz(point: Array, cam_T_world: SE3, measured: Array) -> tuple[Array, Array]:
    """Differentiate `edge_se3_project_xyz`."""
    _, _, fx, fy, _, _ = components(measured)
    point_cam = cam_T_world * point
    d = pinhole_derivative(point_cam, fx, fy)
    return point_block(d, cam_T_world), pose_block(d, point_cam)


def jacobian_se3_project_xyz_only_pose(cam_T_world: SE3, measured: Array) -> tuple[Array]:
    """Differentiate `edge_se3_project_xyz_only_pose`."""
    fx, fy, _, _ = components(measured[..., 5:9])
    point_cam = cam_T_world * measured[..., 2:5]
    return (pose_block(pinhole_derivative(point_cam, fx, fy), point_cam),)


def jacobian_stereo_se3_project_xyz(point: Array, cam_T_world: SE3, measured: Array) -> tuple[Array, Array]:
    """Differentiate `edge_stereo_se3_project_xyz`."""
    fx, fy, _, _, bf = components(measured[..., 3:8])
    point_cam = cam_T_world * point
    d = pinhole_derivative(point_cam, fx, fy, bf)
    return point_block(d, cam_T_world), pose_block(d, point_cam)


def jacobian_stereo_se3_project_xyz_only_pose(cam_T_world: SE3, measured: Array) -> tuple[Array]:
    """Differentiate `edge_stereo_se3_project_xyz_only_pose`."""
    fx, fy, _, _, bf = components(measured[..., 6:11])
    point_cam = cam_T_world * measured[..., 3:6]
    return (pose_block(pinhole_derivative(point_cam, fx, fy, bf), point_cam),)
