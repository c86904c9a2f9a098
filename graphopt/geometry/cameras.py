"""Camera models: from a point in the camera's frame to a pixel.

    (x, y) = (X / Z, Y / Z), then a distortion, then  u = fx x' + cx,  v = fy y' + cy

A fisheye sees beyond 90 degrees from its axis and starts from the angle, not from (x, y). All others see only
what is in front of them; they map points behind them as well, to where nothing was seen (COLMAP's adjustment
counts nothing of such points: `io.extra_types.projection_types(hides=True)`).

Parameters stand in the last axis, in the order of COLMAP's `cameras.txt` where the model is one of COLMAP's.
The camera looks along +Z, except in Snavely's Bundler / BAL model, where it looks along -Z.

References: COLMAP 4.2, `src/colmap/sensor/models.h`; OpenCV 4, calib3d and fisheye; Kannala and Brandt, PAMI
2006; Agarwal et al., Bundle Adjustment in the Large, ECCV 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry.arrays import Array, components, stack, where
from graphopt.geometry.so3 import polynomial

_FOV_SMALL = 1e-4
"""Squares of angle and radius below which COLMAP takes the series of the field-of-view model."""


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


def project_simple_radial_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy, k."""
    f, cx, cy, k = components(parameters)
    return _affine(kannala_brandt(point, k, 0.0, 0.0, 0.0), f, f, cx, cy)


def project_radial_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy, k1, k2."""
    f, cx, cy, k1, k2 = components(parameters)
    return _affine(kannala_brandt(point, k1, k2, 0.0, 0.0), f, f, cx, cy)


def project_simple_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy: the distance from the centre is f times the angle."""
    f, cx, cy = components(parameters)
    return _affine(kannala_brandt(point, 0.0, 0.0, 0.0, 0.0), f, f, cx, cy)


def project_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy: as `project_simple_fisheye`."""
    return _affine(kannala_brandt(point, 0.0, 0.0, 0.0, 0.0), *components(parameters))


def project_full_opencv(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, k5, k6: a rational radial distortion."""
    fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, k5, k6 = components(parameters)
    x, y = components(perspective(point))
    r2 = x * x + y * y
    radial = polynomial(r2, 1.0, k1, k2, k3) / polynomial(r2, 1.0, k4, k5, k6)
    distorted = stack(
        x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
        y * radial + 2.0 * p2 * x * y + p1 * (r2 + 2.0 * y * y),
    )
    return _affine(distorted, fx, fy, cx, cy)


def project_fov(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, omega: the field-of-view model of Devernay and Faugeras, MVA 2001.

    r' = atan(2 r tan(omega / 2)) / omega;  series where omega or r is small
    """
    fx, fy, cx, cy, omega = components(parameters)
    x, y = components(perspective(point))
    r2, omega2 = x * x + y * y, omega * omega
    is_narrow, is_near = omega2 < _FOV_SMALL, r2 < _FOV_SMALL
    wide = where(is_narrow, 1.0, omega)
    slope = np.tan(0.5 * wide)
    r = np.sqrt(where(is_near, 1.0, r2))
    narrow = omega2 * r2 / 3.0 - omega2 / 12.0 + 1.0
    near = -2.0 * slope * (4.0 * r2 * slope * slope - 3.0) / (3.0 * wide)
    far = np.arctan(2.0 * r * slope) / (r * wide)
    factor = where(is_narrow, narrow, where(is_near, near, far))
    return _affine(stack(factor * x, factor * y), fx, fy, cx, cy)


def project_thin_prism_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, sx1, sy1: Weng, Cohen and Herniou, PAMI 1992.

    Distortions start from the fisheye image of an ideal lens.
    """
    fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, sx1, sy1 = components(parameters)
    x, y = components(kannala_brandt(point, 0.0, 0.0, 0.0, 0.0))
    r2 = x * x + y * y
    radial = polynomial(r2, 1.0, k1, k2, k3, k4)
    distorted = stack(
        x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x) + sx1 * r2,
        y * radial + 2.0 * p2 * x * y + p1 * (r2 + 2.0 * y * y) + sy1 * r2,
    )
    return _affine(distorted, fx, fy, cx, cy)


def project_rad_tan_thin_prism_fisheye(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k0 ... k5, p0, p1, s0 ... s3: Project Aria's Fisheye624."""
    fx, fy, cx, cy, k0, k1, k2, k3, k4, k5, p0, p1, s0, s1, s2, s3 = components(parameters)
    u, v = components(kannala_brandt(point, 0.0, 0.0, 0.0, 0.0))
    radial = polynomial(u * u + v * v, 1.0, k0, k1, k2, k3, k4, k5)
    x, y = u * radial, v * radial
    r2 = x * x + y * y
    both = 2.0 * (x * p0 + y * p1)
    distorted = stack(
        x + both * x + r2 * p0 + polynomial(r2, 0.0, s0, s1),
        y + both * y + r2 * p1 + polynomial(r2, 0.0, s2, s3),
    )
    return _affine(distorted, fx, fy, cx, cy)


def _divided(point: Array, k: Array) -> Array:
    """Image (..., 2) with x = x' / (1 + k |x'|^2), solved for x': Fitzgibbon, CVPR 2001."""
    x, y, z = components(point)
    r2 = x * x + y * y
    factor = 2.0 / (z + np.sqrt(z * z - 4.0 * k * r2))
    return stack(factor * x, factor * y)


def _is_divided(parameters: Array, point: Array) -> Array:
    """Whether x = x' / (1 + k |x'|^2) has a solution; k is the last parameter."""
    x, y, z = components(point)
    return z * z > 4.0 * components(parameters)[-1] * (x * x + y * y)


def project_simple_division(parameters: Array, point: Array) -> Array:
    """Parameters f, cx, cy, k."""
    f, cx, cy, k = components(parameters)
    return _affine(_divided(point, k), f, f, cx, cy)


def project_division(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k."""
    fx, fy, cx, cy, k = components(parameters)
    return _affine(_divided(point, k), fx, fy, cx, cy)


def project_eucm(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, alpha, beta: the enhanced unified model of Khomutenko et al., RA-L 2016."""
    fx, fy, cx, cy, alpha, beta = components(parameters)
    x, y, z = components(point)
    depth = alpha * np.sqrt(beta * (x * x + y * y) + z * z) + (1.0 - alpha) * z
    return _affine(stack(x / depth, y / depth), fx, fy, cx, cy)


def project_equirectangular(parameters: Array, point: Array) -> Array:
    """Parameters w, h, the image's size: longitude and latitude. It sees in all directions."""
    w, h = components(parameters)
    x, y, z = components(point)
    longitude, latitude = np.arctan2(x, z), np.arctan2(y, np.sqrt(x * x + z * z))
    return stack(w * (0.5 + longitude / (2.0 * np.pi)), h * (0.5 + latitude / np.pi))


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
    sees_ahead: bool = True
    """Only points with z > 0 have an image; COLMAP's fisheye models are such, too."""
    has_image: Callable[[Array, Array], Array] | None = None
    """(parameters, point) -> whether there is an image, where that is another question than z > 0."""

    @property
    def num_params(self) -> int:
        """Length of the parameters."""
        return len(self.parameter_names)


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
        CameraModel(
            "FULL_OPENCV",
            ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
            project_full_opencv,
            6,
        ),
        CameraModel("FOV", ("fx", "fy", "cx", "cy", "omega"), project_fov, 7),
        CameraModel("SIMPLE_RADIAL_FISHEYE", ("f", "cx", "cy", "k"), project_simple_radial_fisheye, 8),
        CameraModel("RADIAL_FISHEYE", ("f", "cx", "cy", "k1", "k2"), project_radial_fisheye, 9),
        CameraModel(
            "THIN_PRISM_FISHEYE",
            ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "sx1", "sy1"),
            project_thin_prism_fisheye,
            10,
        ),
        CameraModel(
            "RAD_TAN_THIN_PRISM_FISHEYE",
            (
                *("fx", "fy", "cx", "cy", "k0", "k1", "k2", "k3", "k4", "k5"),
                *("p0", "p1", "s0", "s1", "s2", "s3"),
            ),
            project_rad_tan_thin_prism_fisheye,
            11,
        ),
        CameraModel(
            "SIMPLE_DIVISION", ("f", "cx", "cy", "k"), project_simple_division, 12, False, _is_divided
        ),
        CameraModel("DIVISION", ("fx", "fy", "cx", "cy", "k"), project_division, 13, False, _is_divided),
        CameraModel("SIMPLE_FISHEYE", ("f", "cx", "cy"), project_simple_fisheye, 14),
        CameraModel("FISHEYE", ("fx", "fy", "cx", "cy"), project_fisheye, 15),
        CameraModel("EUCM", ("fx", "fy", "cx", "cy", "alpha", "beta"), project_eucm, 16),
        CameraModel("EQUIRECTANGULAR", ("w", "h"), project_equirectangular, 17, False),
        CameraModel("SNAVELY", ("f", "k1", "k2"), project_snavely),
    )
}


def camera_model(name: str) -> CameraModel:
    """Look a camera model up by its name."""
    if name not in CAMERA_MODELS:
        raise OptionError(f"camera model {name!r} is unknown. Known models: {', '.join(CAMERA_MODELS)}.")
    return CAMERA_MODELS[name]
