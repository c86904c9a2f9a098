"""Cameras of visual-inertial rigs: projection, its inverse, and where the model holds.

    pinhole         fx fy cx cy                          (x, y) = (X, Y) / Z
    radtan          fx fy cx cy k1 k2 p1 p2 k3           OpenCV's distortion of that
    kb8             fx fy cx cy k1 k2 k3 k4              theta (1 + k1 theta^2 + ... + k4 theta^8) along X, Y
    double_sphere   fx fy cx cy xi alpha                 (X, Y) / (alpha d2 + (1 - alpha) (xi d1 + Z))
    omni            fx fy cx cy xi k1 k2 p1 p2           (X, Y) / (Z + xi d1), then OpenCV's distortion

d1 = |(X, Y, Z)|, d2 = |(X, Y, xi d1 + Z)|, theta = atan2(|(X, Y)|, Z): up to and beyond 90 degrees. The
camera looks along +Z. Projections work on floats and symbols alike, unprojections
and tests of validity on floats.

References: Kannala and Brandt, PAMI 2006; Usenko, Demmel, Cremers, The Double Sphere Camera Model, 3DV 2018
(equations 40 to 52); Mei and Rives, ICRA 2007; Kalibr's wiki, `Supported models`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry.arrays import Array, components, stack
from graphopt.geometry.cameras import kannala_brandt, perspective, project_pinhole, radial_tangential
from graphopt.geometry.so3 import polynomial

_NEWTON_STEPS = 20
_EXACT = 1e-15
"""Newton's method ends where no error is larger: of rounding at the image's border."""


def project_radtan(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, p1, p2, k3."""
    k1, k2, p1, p2, k3 = components(parameters[..., 4:9])
    return _affine(parameters, radial_tangential(perspective(point), k1, k2, p1, p2, k3))


def project_kb8(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, k1, k2, k3, k4: COLMAP's OPENCV_FISHEYE, see `cameras.kannala_brandt`."""
    k1, k2, k3, k4 = components(parameters[..., 4:8])
    return _affine(parameters, kannala_brandt(point, k1, k2, k3, k4))


def project_double_sphere(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, xi, alpha."""
    x, y, z = components(point)
    xi, alpha = components(parameters[..., 4:6])
    r2 = x * x + y * y
    shifted = xi * np.sqrt(r2 + z * z) + z
    depth = alpha * np.sqrt(r2 + shifted * shifted) + (1.0 - alpha) * shifted
    return _affine(parameters, stack(x / depth, y / depth))


def project_omni(parameters: Array, point: Array) -> Array:
    """Parameters fx, fy, cx, cy, xi, k1, k2, p1, p2."""
    x, y, z = components(point)
    xi, k1, k2, p1, p2 = components(parameters[..., 4:9])
    depth = z + xi * np.sqrt(x * x + y * y + z * z)
    return _affine(parameters, radial_tangential(stack(x / depth, y / depth), k1, k2, p1, p2))


def _affine(parameters: Array, xy: Array) -> Array:
    x, y = components(xy)
    fx, fy, cx, cy = components(parameters[..., :4])
    return stack(fx * x + cx, fy * y + cy)


# ------------------------------------------------------------------------ rays of pixels, plain numpy


def _normalized(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    return (pixel - parameters[..., 2:4]) / parameters[..., 0:2]


def _unit(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    ray = np.stack(np.broadcast_arrays(x, y, z), axis=-1)
    return ray / np.linalg.norm(ray, axis=-1, keepdims=True)


def _undistort(xy: np.ndarray, k1, k2, p1, p2, k3) -> np.ndarray:
    """Invert `radial_tangential` by Newton's method; NaN where it does not converge."""
    found = xy.copy()
    for _ in range(_NEWTON_STEPS):
        x, y = found[..., 0], found[..., 1]
        r2 = x * x + y * y
        radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
        slope = 2.0 * (k1 + r2 * (2.0 * k2 + r2 * 3.0 * k3))
        error = radial_tangential(found, k1, k2, p1, p2, k3) - xy
        if not (np.abs(error) > _EXACT).any():
            break
        a = radial + slope * x * x + 2.0 * p1 * y + 6.0 * p2 * x
        b = slope * x * y + 2.0 * p1 * x + 2.0 * p2 * y
        d = radial + slope * y * y + 6.0 * p1 * y + 2.0 * p2 * x
        scale = 1.0 / (a * d - b * b)
        step = np.stack(
            [d * error[..., 0] - b * error[..., 1], a * error[..., 1] - b * error[..., 0]], axis=-1
        )
        found = found - scale[..., None] * step
    left = np.abs(radial_tangential(found, k1, k2, p1, p2, k3) - xy).max(axis=-1, keepdims=True)
    return np.where(left < 1e-9, found, np.nan)


def _split(parameters: np.ndarray, first: int, count: int) -> list[np.ndarray]:
    return [parameters[..., first + i] for i in range(count)]


def unproject_pinhole(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """Unit rays (..., 3)."""
    x, y = components(_normalized(parameters, pixel))
    return _unit(x, y, np.ones_like(x))


def unproject_radtan(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """Unit rays (..., 3), NaN outside the image of the distortion."""
    with np.errstate(all="ignore"):
        x, y = components(_undistort(_normalized(parameters, pixel), *_split(parameters, 4, 5)))
        return _unit(x, y, np.ones_like(x))


def unproject_kb8(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """Unit rays (..., 3); theta by Newton's method, NaN beyond the largest image radius."""
    x, y = components(_normalized(parameters, pixel))
    k1, k2, k3, k4 = components(parameters[..., 4:8])
    radius = np.hypot(x, y)
    theta: Array = np.minimum(radius, 0.5 * np.pi)
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            t2 = theta * theta
            value = theta * polynomial(t2, 1.0, k1, k2, k3, k4) - radius
            if not (np.abs(value) > _EXACT).any():
                break
            theta = theta - value / polynomial(t2, 1.0, 3.0 * k1, 5.0 * k2, 7.0 * k3, 9.0 * k4)
        error = theta * polynomial(theta * theta, 1.0, k1, k2, k3, k4) - radius
        theta = np.where((np.abs(error) < 1e-9) & (theta >= 0.0) & (theta <= np.pi), theta, np.nan)
    safe = np.where(radius > 0.0, radius, 1.0)
    return np.stack([np.sin(theta) * x / safe, np.sin(theta) * y / safe, np.cos(theta)], axis=-1)


def unproject_double_sphere(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """Unit rays (..., 3), equations 46 to 49; NaN where no ray has this pixel."""
    x, y = components(_normalized(parameters, pixel))
    xi, alpha = _split(parameters, 4, 2)
    r2 = x * x + y * y
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (1.0 - alpha * alpha * r2) / (alpha * np.sqrt(1.0 - (2.0 * alpha - 1.0) * r2) + 1.0 - alpha)
        factor = (z * xi + np.sqrt(z * z + (1.0 - xi * xi) * r2)) / (z * z + r2)
        return _unit(factor * x, factor * y, factor * z - xi)


def unproject_omni(parameters: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """Unit rays (..., 3); NaN where no ray has this pixel."""
    xi, k1, k2, p1, p2 = _split(parameters, 4, 5)
    with np.errstate(all="ignore"):
        x, y = components(_undistort(_normalized(parameters, pixel), k1, k2, p1, p2, np.zeros_like(k1)))
        r2 = x * x + y * y
        factor = (xi + np.sqrt(1.0 + (1.0 - xi * xi) * r2)) / (r2 + 1.0)
        return _unit(factor * x, factor * y, factor - xi)


# ------------------------------------------------------------------------ where a model holds


def sees_pinhole(parameters: np.ndarray, point: np.ndarray) -> np.ndarray:
    """(...,) bool: ahead of the camera."""
    return point[..., 2] > 0.0


def sees_radtan(parameters: np.ndarray, point: np.ndarray) -> np.ndarray:
    """(...,) bool: ahead, and inside the radius up to which the radial distortion grows."""
    k1, k2, k3 = parameters[..., 4], parameters[..., 5], parameters[..., 8]
    ahead = point[..., 2] > 0.0
    z = np.where(ahead, point[..., 2], 1.0)
    r2 = (point[..., 0] ** 2 + point[..., 1] ** 2) / (z * z)
    return ahead & (r2 < _growing_until(3.0 * k1, 5.0 * k2, 7.0 * k3))


def sees_kb8(parameters: np.ndarray, point: np.ndarray) -> np.ndarray:
    """(...,) bool: within the angle up to which the image radius grows."""
    k1, k2, k3, k4 = _split(parameters, 4, 4)
    theta = np.arctan2(np.hypot(point[..., 0], point[..., 1]), point[..., 2])
    return theta * theta < _growing_until(3.0 * k1, 5.0 * k2, 7.0 * k3, 9.0 * k4)


def sees_double_sphere(parameters: np.ndarray, point: np.ndarray) -> np.ndarray:
    """(...,) bool: z > -w2 d1 (equations 43 to 45)."""
    xi, alpha = _split(parameters, 4, 2)
    w1 = np.where(alpha <= 0.5, alpha / (1.0 - alpha), (1.0 - alpha) / alpha)
    w2 = (w1 + xi) / np.sqrt(2.0 * w1 * xi + xi * xi + 1.0)
    return point[..., 2] > -w2 * np.linalg.norm(point, axis=-1)


def sees_omni(parameters: np.ndarray, point: np.ndarray) -> np.ndarray:
    """(...,) bool: z > -xi d1, or -d1 / xi for xi > 1."""
    xi = parameters[..., 4]
    limit = np.where(xi <= 1.0, xi, 1.0 / np.where(xi > 1.0, xi, 1.0))
    return point[..., 2] > -limit * np.linalg.norm(point, axis=-1)


def cone_pinhole(parameters: np.ndarray) -> float:
    """Half a turn wide: what is ahead."""
    return 0.0


def cone_radtan(parameters: np.ndarray) -> float:
    """Up to the radius up to which the radial distortion grows."""
    k1, k2, k3 = parameters[4], parameters[5], parameters[8]
    return float(1.0 / np.sqrt(1.0 + _growing_until(3.0 * k1, 5.0 * k2, 7.0 * k3)))


def cone_kb8(parameters: np.ndarray) -> float:
    """Up to the angle up to which the image radius grows."""
    k1, k2, k3, k4 = parameters[4:8]
    widest = float(np.sqrt(_growing_until(3.0 * k1, 5.0 * k2, 7.0 * k3, 9.0 * k4)))
    return float(np.cos(widest)) if widest < np.pi else -np.inf


def cone_double_sphere(parameters: np.ndarray) -> float:
    """z > -w2 d1 (equations 43 to 45)."""
    xi, alpha = parameters[4:6]
    w1 = alpha / (1.0 - alpha) if alpha <= 0.5 else (1.0 - alpha) / alpha
    return float(-(w1 + xi) / np.sqrt(2.0 * w1 * xi + xi * xi + 1.0))


def cone_omni(parameters: np.ndarray) -> float:
    """z > -xi d1, or -d1 / xi for xi > 1."""
    xi = parameters[4]
    return float(-xi if xi <= 1.0 else -1.0 / xi)


def _growing_until(*coefficients: np.ndarray) -> np.ndarray:
    """Smallest root x > 0 of 1 + c1 x + c2 x^2 + ..., infinity where there is none; of each camera."""
    if all(np.ndim(coefficient) == 0 for coefficient in coefficients):
        return np.array(_first_root(tuple(float(coefficient) for coefficient in coefficients)))
    columns = np.broadcast_arrays(*coefficients)
    rows = np.stack([np.ravel(column) for column in columns], axis=-1)
    known, place = np.unique(rows, axis=0, return_inverse=True)
    ends = np.array([_first_root(tuple(row)) for row in known.tolist()]) if len(known) else np.zeros(0)
    return ends[np.ravel(place)].reshape(columns[0].shape)


@lru_cache(maxsize=1024)
def _first_root(coefficients: tuple[float, ...]) -> float:
    roots = np.roots([*coefficients[::-1], 1.0])
    real = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0.0)]
    return float(real.min()) if len(real) else np.inf


@dataclass(frozen=True)
class RigCameraModel:
    """One model of `RIG_CAMERA_MODELS`."""

    name: str
    parameter_names: tuple[str, ...]
    project: Callable[[Array, Array], Array]
    """(parameters (..., n), point of the camera's frame (..., 3) [m]) -> pixel (..., 2) [px]."""
    unproject: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(parameters (..., n), pixel (..., 2)) -> unit ray (..., 3); NaN where no ray has the pixel."""
    sees: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(parameters (..., n), point (..., 3)) -> (...,) bool: the projection is that of a camera there."""
    cone: Callable[[np.ndarray], float]
    """(parameters (n,)) -> c: the same as Z > c |(X, Y, Z)|, but at the centre, where nothing is seen."""
    identity: tuple[float, ...]
    """A camera of focal length 1."""


_PLAIN = ("fx", "fy", "cx", "cy")
_ONE = (1.0, 1.0, 0.0, 0.0)

RIG_CAMERA_MODELS: dict[str, RigCameraModel] = {
    model.name: model
    for model in (
        RigCameraModel(
            "pinhole", _PLAIN, project_pinhole, unproject_pinhole, sees_pinhole, cone_pinhole, _ONE
        ),
        RigCameraModel(
            "radtan",
            (*_PLAIN, "k1", "k2", "p1", "p2", "k3"),
            project_radtan,
            unproject_radtan,
            sees_radtan,
            cone_radtan,
            (*_ONE, 0.0, 0.0, 0.0, 0.0, 0.0),
        ),
        RigCameraModel(
            "kb8",
            (*_PLAIN, "k1", "k2", "k3", "k4"),
            project_kb8,
            unproject_kb8,
            sees_kb8,
            cone_kb8,
            (*_ONE, 0.0, 0.0, 0.0, 0.0),
        ),
        RigCameraModel(
            "double_sphere",
            (*_PLAIN, "xi", "alpha"),
            project_double_sphere,
            unproject_double_sphere,
            sees_double_sphere,
            cone_double_sphere,
            (*_ONE, 0.0, 0.5),
        ),
        RigCameraModel(
            "omni",
            (*_PLAIN, "xi", "k1", "k2", "p1", "p2"),
            project_omni,
            unproject_omni,
            sees_omni,
            cone_omni,
            (*_ONE, 1.0, 0.0, 0.0, 0.0, 0.0),
        ),
    )
}


def rig_camera_model(name: str) -> RigCameraModel:
    """Look a model up; `OptionError` names the known ones."""
    if name not in RIG_CAMERA_MODELS:
        raise OptionError(f"camera model {name!r} is unknown. Known models: {', '.join(RIG_CAMERA_MODELS)}.")
    return RIG_CAMERA_MODELS[name]
