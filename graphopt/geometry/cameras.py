"""Camera models: from a point in the camera's frame to a pixel.

    (x, y) = (X / Z, Y / Z), then a distortion, then  u = fx x' + cx,  v = fy y' + cy

A fisheye sees beyond 90 degrees from its axis and starts from the angle, not from (x, y). All others see only
what is in front of them; they map points behind them as well, to where nothing was seen.

Parameters stand in the last axis, in the order of COLMAP's `cameras.txt` where the model is one of COLMAP's.
The camera looks along +Z, except in Snavely's Bundler / BAL model, where it looks along -Z.

References: COLMAP 3.9, `src/colmap/sensor/models.h`; OpenCV 4, calib3d and fisheye; Kannala and Brandt, PAMI
2006; Agarwal et al., Bundle Adjustment in the Large, ECCV 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry.arrays import Array, components, stack, where
from graphopt.geometry.so3 import polynomial


def perspective(point: Array) -> Array:
    """(X / Z, Y / Z) of points (..., 3)."""
    x, y, z = components(point)
    return stack(x / z, y / z)


def radial_tangential(xy: Array, k1: Array, k2: Array, p1: Array, p2: Array, k3: Array = 0.0) -> Array:
    """OpenCV's distortion of a point (..., 2) in the image plane z = 1."""
    x, y = components(xy)
    r2 = x * x + y * y
    radial = polynomial(r2, 1.0, k1, k2, k3)
    return stack(
        x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
        y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y,
    )


def kannala_brandt(point: Array, k1: Array, k2: Array, k3: Array, k4: Array) -> Array:
    """OpenCV's fisheye image of a point (..., 3), up to and beyond 90 degrees from the axis.

        theta (1 + k1 theta^2 + ... + k4 theta^8) (X, Y) / r,   r = |(X, Y)|,   theta = atan2(r, Z)

    Close to the axis in front, theta / r and theta^2 are series in t = (r / Z)^2. On the axis behind the
    camera there is no image: the result is not finite.
    """
    x, y, z = components(point)
    r2 = x * x + y * y
    near = np.logical_and(z > 0.0, r2 <= 1e-8 * z * z)
    depth = where(near, z, 1.0)
    t = where(near, r2, 0.0) / (depth * depth)
    r = np.sqrt(where(near, 1.0, r2))
    theta = where(near, 0.0, np.arctan2(r, z))
    ratio = where(near, polynomial(t, 1.0, -1.0 / 3.0, 1.0 / 5.0) / depth, theta / r)
    theta2 = where(near, t * polynomial(t, 1.0, -2.0 / 3.0), theta * theta)
    factor = ratio * polynomial(theta2, 1.0, k1, k2, k3, k4)
    return stack(factor * x, factor * y)


def _affine(xy: Array, fx: Array, fy: Array, cx: Array, cy: Array) -> Array:
    x, y = components(xy)
    return stack(fx * x + cx, fy * y + cy)


def project_simple_pinhole(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy."""
    f, cx, cy = components(parameters)
    return _affine(perspective(point), f, f, cx, cy)


def project_pinhole(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy."""
    return _affine(perspective(point), *components(parameters))


def project_simple_radial(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy, k."""
    f, cx, cy, k = components(parameters)
    return _affine(radial_tangential(perspective(point), k, 0.0, 0.0, 0.0), f, f, cx, cy)


def project_radial(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy, k1, k2."""
    f, cx, cy, k1, k2 = components(parameters)
    return _affine(radial_tangential(perspective(point), k1, k2, 0.0, 0.0), f, f, cx, cy)


def project_opencv(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, p1, p2."""
    fx, fy, cx, cy, k1, k2, p1, p2 = components(parameters)
    return _affine(radial_tangential(perspective(point), k1, k2, p1, p2), fx, fy, cx, cy)


def project_opencv_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, k3, k4."""
    fx, fy, cx, cy, k1, k2, k3, k4 = components(parameters)
    return _affine(kannala_brandt(point, k1, k2, k3, k4), fx, fy, cx, cy)


def project_snavely(parameters: Array, point: Array) -> Array:
    """Bundler and BAL: parameters f, k1, k2; it looks along -Z, the origin is the image centre."""
    f, k1, k2 = components(parameters)
    x, y, z = components(point)
    u, v = -x / z, -y / z
    r2 = u * u + v * v
    factor = f * polynomial(r2, 1.0, k1, k2)
    return stack(factor * u, factor * v)


@dataclass(frozen=True)
class CameraModel:
    """One camera model."""

    name: str
    parameter_names: tuple[str, ...]
    project: Callable[[Array, Array], Array]
    """(parameters (..., n), point in the camera's frame (..., 3)) -> pixel (..., 2)"""
    colmap_id: int | None = None
    """Number in COLMAP's binary files."""


CAMERA_MODELS: dict[str, CameraModel] = {
    model.name: model
    for model in (
        CameraModel("SIMPLE_PINHOLE", ("f", "cx", "cy"), project_simple_pinhole, 0),
        CameraModel("PINHOLE", ("fx", "fy", "cx", "cy"), project_pinhole, 1),
        CameraModel("SIMPLE_RADIAL", ("f", "cx", "cy", "k"), project_simple_radial, 2),
        CameraModel("RADIAL", ("f", "cx", "cy", "k1", "k2"), project_radial, 3),
        CameraModel("OPENCV", ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"), project_opencv, 4),
        CameraModel(
            "OPENCV_FISHEYE", ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4"), project_opencv_fisheye, 5
        ),
        CameraModel("SNAVELY", ("f", "k1", "k2"), project_snavely),
    )
}


def camera_model(name: str) -> CameraModel:
    """Look a camera model up by its name."""
    if name not in CAMERA_MODELS:
        raise OptionError(f"camera model {name!r} is unknown. Known models: {', '.join(CAMERA_MODELS)}.")
    return CAMERA_MODELS[name]
