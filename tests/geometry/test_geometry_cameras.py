"""Camera models against independent scalar formulas."""

import math

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.geometry import CAMERA_MODELS, camera_model

EXAMPLES = {
    "SIMPLE_PINHOLE": (500.0, 320.0, 240.0),
    "PINHOLE": (500.0, 510.0, 320.0, 240.0),
    "SIMPLE_RADIAL": (500.0, 320.0, 240.0, -0.1),
    "RADIAL": (500.0, 320.0, 240.0, -0.1, 0.05),
    "OPENCV": (500.0, 510.0, 320.0, 240.0, -0.2, 0.06, 1e-3, -2e-3),
    "OPENCV_FISHEYE": (500.0, 510.0, 320.0, 240.0, -0.02, 0.01, -3e-3, 4e-4),
    "SNAVELY": (500.0, -0.1, 0.03),
    "FULL_OPENCV": (500.0, 510.0, 320.0, 240.0, -0.2, 0.06, 1e-3, -2e-3, 0.01, 0.02, -0.01, 3e-3),
    "FOV": (500.0, 510.0, 320.0, 240.0, 0.9),
    "SIMPLE_RADIAL_FISHEYE": (500.0, 320.0, 240.0, -0.1),
    "RADIAL_FISHEYE": (500.0, 320.0, 240.0, -0.1, 0.05),
    "THIN_PRISM_FISHEYE": (500.0, 510.0, 320.0, 240.0, -0.02, 0.01, 1e-3, -2e-3, 3e-3, 4e-4, 2e-3, -1e-3),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        *(500.0, 510.0, 320.0, 240.0, -0.02, 0.01, -3e-3, 4e-4, 1e-4, -2e-5),
        *(1e-3, -2e-3, 2e-3, -1e-3, 3e-3, 1e-4),
    ),
    "SIMPLE_DIVISION": (500.0, 320.0, 240.0, -0.1),
    "DIVISION": (500.0, 510.0, 320.0, 240.0, 0.05),
    "SIMPLE_FISHEYE": (500.0, 320.0, 240.0),
    "FISHEYE": (500.0, 510.0, 320.0, 240.0),
    "EUCM": (500.0, 510.0, 320.0, 240.0, 0.6, 1.2),
    "EQUIRECTANGULAR": (640.0, 480.0),
}


def opencv(p, point):
    """OpenCV's formulas (calib3d), written out."""
    fx, fy, cx, cy, k1, k2, p1, p2 = p
    x, y = point[0] / point[2], point[1] / point[2]
    r2 = x**2 + y**2
    radial = 1 + k1 * r2 + k2 * r2**2
    return (
        fx * (x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2)) + cx,
        fy * (y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y**2)) + cy,
    )


def fisheye(p, point):
    """OpenCV's fisheye formulas, written out."""
    fx, fy, cx, cy, k1, k2, k3, k4 = p
    r = math.hypot(point[0], point[1])
    theta = math.atan2(r, point[2])
    theta_d = theta * (1 + k1 * theta**2 + k2 * theta**4 + k3 * theta**6 + k4 * theta**8)
    factor = theta_d / r if r > 0 else 1.0 / point[2]
    return fx * factor * point[0] + cx, fy * factor * point[1] + cy


def expected_pixel(name, p, point):
    """Pixel of one point, by OpenCV's formulas."""
    if name == "OPENCV_FISHEYE":
        return fisheye(p, point)
    if name == "SNAVELY":
        f, k1, k2 = p
        u, v = opencv((f, f, 0, 0, k1, k2, 0, 0), (point[0], point[1], -point[2]))
        return u, v
    if (camera_model(name).colmap_id or 0) > 5:
        pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of camera models, is missing")
        if not hasattr(pycolmap.CameraModelId, name):
            pytest.skip(f"this pycolmap has no {name}")
        return pycolmap.Camera(model=name, width=640, height=480, params=list(p)).img_from_cam(point)
    full = {
        "SIMPLE_PINHOLE": lambda f, cx, cy: (f, f, cx, cy, 0, 0, 0, 0),
        "PINHOLE": lambda fx, fy, cx, cy: (fx, fy, cx, cy, 0, 0, 0, 0),
        "SIMPLE_RADIAL": lambda f, cx, cy, k: (f, f, cx, cy, k, 0, 0, 0),
        "RADIAL": lambda f, cx, cy, k1, k2: (f, f, cx, cy, k1, k2, 0, 0),
        "OPENCV": lambda *every: every,
    }[name]
    return opencv(full(*p), point)


@pytest.mark.parametrize("name", CAMERA_MODELS)
def test_projection_matches_the_written_out_formula(name):
    """Every model projects random points, and points on and near the axis, as its definition says."""
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 3)) + np.array([0.0, 0.0, 2.5])
    points = np.concatenate(
        [points, [[0.0, 0.0, 1.0], [1e-6, -1e-6, 1.0], [1e-4, 1e-4, 1.0], [2e-4, 0.0, 1.0]]]
    )
    if name == "SNAVELY":
        points[:, 2] *= -1.0
    parameters = EXAMPLES[name]
    assert len(parameters) == len(camera_model(name).parameter_names)
    got = camera_model(name).project(np.array(parameters), points)
    expected = [expected_pixel(name, parameters, point) for point in points]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_colmaps_models():
    """All of COLMAP's, with its numbers and names of parameters."""
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of camera models, is missing")
    for name, member in pycolmap.CameraModelId.__members__.items():
        if name != "INVALID":
            camera = pycolmap.Camera.create_from_model_id(1, member, 500.0, 640, 480)
            assert camera_model(name).colmap_id == int(member)
            assert camera_model(name).parameter_names == tuple(camera.params_info.replace(" ", "").split(","))


def test_unknown_model_is_refused():
    """The error lists the known models."""
    with pytest.raises(OptionError, match=r"THIN_PRISM.*SIMPLE_PINHOLE"):
        camera_model("THIN_PRISM")


def test_a_fisheye_sees_beyond_90_degrees():
    """The distance from the centre grows steadily through 90 degrees and on, as the formula says."""
    parameters = np.array(EXAMPLES["OPENCV_FISHEYE"])
    angles = np.deg2rad([0.0, 1e-4, 0.01, 45.0, 89.999, 90.0, 90.001, 110.0, 150.0])
    points = np.stack([np.sin(angles), 0.0 * angles, np.cos(angles)], axis=1) * 3.0
    pixels = camera_model("OPENCV_FISHEYE").project(parameters, points)
    expected = [fisheye(parameters, point) for point in points]
    np.testing.assert_allclose(pixels, expected, rtol=1e-13)
    assert np.all(np.diff(pixels[:, 0]) > 0.0)


def test_a_fisheye_is_smooth_at_the_axis():
    """Values and slopes agree on both sides of where the series takes over (r / Z = 1e-4)."""
    parameters = np.array(EXAMPLES["OPENCV_FISHEYE"])
    project = camera_model("OPENCV_FISHEYE").project
    for z in (0.5, 1.0, 20.0):
        x = z * np.concatenate([[0.0], np.geomspace(1e-12, 1e-2, 41), 1e-4 * (1.0 + np.array([-1e-9, 1e-9]))])
        points = np.stack([x, 0.3 * x, np.full(len(x), z)], axis=1)
        expected = [fisheye(parameters, point) for point in points]
        np.testing.assert_allclose(project(parameters, points), expected, rtol=1e-14, atol=1e-12)
