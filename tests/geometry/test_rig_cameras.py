"""Cameras of rigs against their papers' formulas, one point at a time, and against what a camera is."""

import math

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.geometry.rig_cameras import RIG_CAMERA_MODELS, rig_camera_model

PLAIN = (1.1, 0.9, 0.3, -0.2)
CAMERAS = [
    ("pinhole", PLAIN),
    ("radtan", (*PLAIN, -0.2, 0.03, 0.02, -0.03, -0.002)),
    ("radtan", (*PLAIN, 0.1, 0.2, -0.09, 0.08, 0.05)),
    ("radtan", (*PLAIN, 0.0, 0.0, 0.1, 0.09, 0.0)),
    ("kb8", (*PLAIN, 0.03, -0.01, 0.02, -0.004)),
    ("kb8", (*PLAIN, -0.09, 0.0, 0.0, 0.0)),
    ("double_sphere", (*PLAIN, -0.24, 0.56)),
    ("double_sphere", (*PLAIN, 0.4, 0.3)),
    ("double_sphere", (*PLAIN, 0.0, 0.5)),
    ("omni", (*PLAIN, 0.7, -0.1, 0.02, 0.02, -0.03)),
    ("omni", (*PLAIN, 1.0, 0.0, 0.0, -0.12, 0.1)),
    ("omni", (*PLAIN, 1.4, 0.1, 0.1, -0.06, 0.05)),
]
cameras = pytest.mark.parametrize(("name", "numbers"), CAMERAS)


def distorted(x, y, k1, k2, p1, p2, k3=0.0):
    """OpenCV, calib3d: its documentation's formula."""
    r2 = x**2 + y**2
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2),
        y * radial + p1 * (r2 + 2 * y**2) + 2 * p2 * x * y,
    )


def image(name, numbers, point):
    """Pixel of a point."""
    (fx, fy, cx, cy), rest, (x, y, z) = numbers[:4], numbers[4:], point
    length = math.sqrt(x**2 + y**2 + z**2)
    if name == "pinhole":
        u, v = x / z, y / z
    elif name == "radtan":
        u, v = distorted(x / z, y / z, *rest)
    elif name == "kb8":
        radius = math.hypot(x, y)
        theta = math.atan2(radius, z)
        along = theta + sum(k * theta ** (2 * i + 3) for i, k in enumerate(rest))
        u, v = along * x / radius, along * y / radius
    elif name == "double_sphere":
        xi, alpha = rest
        shifted = xi * length + z
        depth = alpha * math.sqrt(x**2 + y**2 + shifted**2) + (1 - alpha) * shifted
        u, v = x / depth, y / depth
    else:
        xi, *rest = rest
        u, v = distorted(x / (z + xi * length), y / (z + xi * length), *rest)
    return fx * u + cx, fy * v + cy


def directions(widest, count=300):
    """Unit vectors up to an angle [deg] from the axis."""
    rng = np.random.default_rng(1)
    theta, phi = np.deg2rad(widest) * np.sqrt(rng.uniform(size=count)), rng.uniform(-np.pi, np.pi, count)
    return np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=1)


@cameras
def test_projections_are_those_of_the_papers(name, numbers):
    """Points at any distance, to rounding; parameters of one camera or one for each point."""
    points = directions(60.0) * np.random.default_rng(2).uniform(0.1, 50.0, (300, 1))
    expected = [image(name, numbers, point) for point in points]
    model = rig_camera_model(name)
    assert len(numbers) == len(model.parameter_names) == len(model.identity)
    for parameters in (np.array(numbers), np.tile(numbers, (300, 1))):
        np.testing.assert_allclose(model.project(parameters, points), expected, rtol=1e-13, atol=1e-14)


@cameras
def test_rays_are_found_to_rounding(name, numbers):
    """Also with strong distortion, where Newton's method needs the true slope; for each camera of a batch."""
    points = directions({"pinhole": 70.0, "radtan": 40.0, "omni": 60.0}.get(name, 85.0))
    for parameters in (np.array(numbers), np.tile(numbers, (300, 1))):
        pixels = RIG_CAMERA_MODELS[name].project(parameters, points)
        rays = RIG_CAMERA_MODELS[name].unproject(parameters, pixels)
        np.testing.assert_allclose(rays, points, atol=3e-14)
    axis = RIG_CAMERA_MODELS[name].unproject(np.array(numbers), np.array(numbers[2:4]))
    np.testing.assert_allclose(axis, [0.0, 0.0, 1.0], atol=1e-15)


@cameras
def test_what_a_camera_sees(name, numbers):
    """Ahead of a pinhole; else where the image moves outwards with the angle. `cone` says the same."""
    parameters, model = np.array(numbers), RIG_CAMERA_MODELS[name]
    plain = parameters.copy()
    plain[:4] = model.identity[:4]
    if name in ("radtan", "omni"):
        plain[[-3, -2] if name == "radtan" else [-2, -1]] = 0.0  # the radial part decides
    if name == "omni":
        plain[5:7] = 0.0  # and of these not even that
    angles = np.linspace(1e-4, np.pi - 1e-4, 4001)
    sweep = np.stack([np.sin(angles), 0.0 * angles, np.cos(angles)], axis=1)
    with np.errstate(all="ignore"):
        radius = model.project(plain, sweep)[:, 0]
    grows = np.diff(radius) > 0.0
    if name in ("pinhole", "radtan"):
        grows &= sweep[1:, 2] > 0.0
    if name == "double_sphere":  # the paper keeps a few degrees away
        xi, w = numbers[4], numbers[5] / (1 - numbers[5])
        w = min(w, 1 / w)
        ahead = sweep[1:, 2] * math.sqrt(2 * w * xi + xi**2 + 1) > -(w + xi)
        assert grows[ahead].all()
        grows &= ahead
    last = np.argmin(grows) if not grows.all() else len(grows)
    found = model.sees(parameters, 3.0 * sweep)
    assert found[: last - 1].all() and not found[last + 2 :].any()
    assert np.array_equal(found, sweep[:, 2] > model.cone(parameters))
    assert np.array_equal(model.sees(np.tile(parameters, (4001, 1)), 3.0 * sweep), found)


@cameras
def test_arrays_of_any_shape(name, numbers):
    """One point, and points in two axes, have what they have in a list."""
    points, parameters, model = directions(30.0, 6), np.array(numbers), RIG_CAMERA_MODELS[name]
    pixels = model.project(parameters, points)
    for shape in ((2, 3), ()):
        count = int(np.prod(shape))
        some, seen = points[:count].reshape(*shape, 3), pixels[:count].reshape(*shape, 2)
        np.testing.assert_array_equal(model.project(parameters, some), seen)
        np.testing.assert_allclose(model.unproject(parameters, seen), some, atol=3e-14)
        assert model.sees(parameters, some).shape == shape and model.sees(parameters, some).all()
    assert model.sees(np.zeros((0, len(numbers))), np.zeros((0, 3))).shape == (0,)


def test_pixels_without_a_ray():
    """NaN beyond the largest radius of the image, or where spheres end."""
    for name, numbers, pixel in [
        ("radtan", (1, 1, 0, 0, -0.3, 0.0, 0.0, 0.0, 0.0), [0.71, 0.0]),  # r - 0.3 r^3 is 0.7027 at most
        ("kb8", (1, 1, 0, 0, -0.09, 0.0, 0.0, 0.0), [1.29, 0.0]),  # theta - 0.09 theta^3: 1.2830
        ("kb8", (1, 1, 0, 0, 0.0, 0.0, 0.0, 0.0), [3.15, 0.0]),  # beyond half a turn
        ("double_sphere", (1, 1, 0, 0, -0.2, 0.7), [1.6, 0.0]),  # 1 - 0.4 r^2 < 0
        ("omni", (1, 1, 0, 0, 1.5, 0.0, 0.0, 0.0, 0.0), [0.9, 0.0]),  # 1 - 1.25 r^2 < 0
    ]:
        model = RIG_CAMERA_MODELS[name]
        assert np.isnan(model.unproject(np.array(numbers, float), np.array(pixel))).all(), name
        inside = model.unproject(np.array(numbers, float), 0.95 * np.array(pixel))
        assert np.isfinite(inside).all(), name


def test_the_identity_of_each_model_is_a_pinhole_at_the_axis():
    """Focal length 1: an angle is as long in the image, where it is small."""
    for model in RIG_CAMERA_MODELS.values():
        parameters = np.array(model.identity)
        scale = 2.0 if model.name == "omni" else 1.0  # xi = 1 halves it
        pixel = scale * model.project(parameters, np.array([2e-6, -1e-6, 2.0]))
        np.testing.assert_allclose(pixel, [1e-6, -0.5e-6], rtol=1e-11)


def test_unknown_models_are_named():
    """With those that are known."""
    with pytest.raises(OptionError, match=r"'fov' is unknown\. Known models: pinhole, radtan, kb8"):
        rig_camera_model("fov")
