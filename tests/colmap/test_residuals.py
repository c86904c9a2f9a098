"""A user's residuals count with the model's own: the cost at the end is the sum of both, computed by hand."""

import copy
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycolmaps import need_sensor_poses

import graphopt.colmap
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from tests.colmap.test_adjustment import cost, scene

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "colmap"
ARM = np.array([0.1, -0.3, 0.05])


@graphopt.colmap.residual("pose", measurement_dim=3)
def antenna(cam_T_world, measured):
    return cam_T_world.inverse_act(ARM) - measured


@graphopt.colmap.residual("point", "point", measurement_dim=1)
def distance(first, second, measured):
    return np.linalg.norm(first - second, axis=-1, keepdims=True) - measured


@graphopt.colmap.residual("image", "point", measurement_dim=3)
def off_the_line(view, point, line):
    return (view.project(point) * line[..., :2]).sum(axis=-1, keepdims=True) + line[..., 2:]


def pose_of(made: Any, image: int) -> SE3:
    rigid = made.images[image].cam_from_world()
    return SE3(np.concatenate([rigid.translation, rigid.rotation.quat]))


@pytest.mark.parametrize(
    ("cameras", "fields"), [(1, {}), (2, {}), (2, {"refine_sensor_from_rig": False})], ids=str
)
def test_cost_is_the_sum_of_both(cameras: int, fields: dict[str, Any]) -> None:
    if cameras == 2 and not fields:
        need_sensor_poses()
    made = scene(seed=51, cameras_per_rig=cameras)
    rng = np.random.default_rng(51)
    images, points = sorted(made.images), sorted(made.points3D)[:4]
    places = {image: pose_of(made, image).inverse_act(ARM) + rng.normal(0.0, 0.02, 3) for image in images}
    covariance = np.diag([1e-4, 4e-4, 1e-4])
    line = np.array([0.6, 0.8, -700.0])
    rows = [
        antenna([(image,) for image in images], list(places.values()), covariance=covariance),
        distance([points[:2], points[2:]], [[1.0], [2.0]], sigma=0.1),
        off_the_line([(images[-1], points[0])], [line], sigma=10.0),
    ]
    ours = copy.deepcopy(made)
    options = graphopt.colmap.Options(**fields)
    config = graphopt.colmap.Config(images=frozenset(images))
    summary = graphopt.colmap.bundle_adjustment(ours, options, config=config, residuals=rows, device="cpu")
    total = cost(ours)
    for image, place in places.items():
        error = pose_of(ours, image).inverse_act(ARM) - place
        total += float(error @ np.linalg.inv(covariance) @ error)
    xyz = {point: ours.points3D[point].xyz for point in points}
    for first, second, measured in ((*points[:2], 1.0), (*points[2:], 2.0)):
        total += float(((np.linalg.norm(xyz[first] - xyz[second]) - measured) / 0.1) ** 2)
    pixel = ours.images[images[-1]].project_point(xyz[points[0]])
    total += float(((pixel @ line[:2] + line[2]) / 10.0) ** 2)
    assert summary.final_chi2 == pytest.approx(total, rel=1e-8)
    assert summary.final_chi2 < summary.initial_chi2


def test_one_needs_no_list() -> None:
    """Rows of one function are taken with and without a list around them."""
    made = scene(seed=52)
    rows = distance([sorted(made.points3D)[:2]], [[1.0]], sigma=0.1)
    found = [
        graphopt.colmap.bundle_adjustment(copy.deepcopy(made), residuals=given, device="cpu")
        for given in (rows, [rows], ())
    ]
    assert found[0].final_chi2 == found[1].final_chi2
    assert found[0].num_residuals_reduced == found[2].num_residuals_reduced + 1


@pytest.mark.parametrize("gauge", [None, "TWO_CAMS_FROM_WORLD", "UNSPECIFIED"])
def test_what_the_summary_says_holds_for_the_model(gauge: str | None) -> None:
    """No scaling behind the residuals' back: a distance holds where no gauge holds the scale against it."""
    made = scene(seed=54)
    first, second = sorted(made.points3D)[:2]
    before = np.linalg.norm(made.points3D[first].xyz - made.points3D[second].xyz)
    config = gauge and graphopt.colmap.Config(images=frozenset(made.images), fixed_gauge=gauge)
    rows = distance([(first, second)], [[2.0 * before]], sigma=1e-3 * before)
    summary = graphopt.colmap.bundle_adjustment(made, config=config, residuals=[rows], device="cpu")
    found = np.linalg.norm(made.points3D[first].xyz - made.points3D[second].xyz) / before
    own = ((found - 2.0) / 1e-3) ** 2
    assert summary.final_chi2 == pytest.approx(cost(made) + own, rel=1e-6)
    assert (found == pytest.approx(2.0, rel=1e-4)) == (gauge != "TWO_CAMS_FROM_WORLD")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: graphopt.colmap.residual("pixel", measurement_dim=1), "pose, camera, image, point"),
        (lambda: distance([(1, 2, 3)], [[1.0]]), r"expected \(n, 2\)"),
        (lambda: distance([(1, 2)], [[1.0]], sigma=-1.0), "sigma > 0"),
        (lambda: distance([(1, 2)], [[1.0]], loss="TUKEY"), "TUKEY"),
        (lambda: graphopt.colmap.bundle_adjustment(scene(), residuals=[distance]), "expected what"),
        (
            lambda: graphopt.colmap.bundle_adjustment(scene(), residuals=[distance([(1, 10**9)], [[1.0]])]),
            "point 1000000000",
        ),
    ],
)
def test_wrong_residuals_are_named(make: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make()


def example(name: str, *arguments: str) -> None:
    runpy.run_path(str(EXAMPLES / name))["main"](*arguments)


def test_known_distances_give_the_scale(tmp_path: Path) -> None:
    made = scene(seed=52)
    made.write(tmp_path)
    first, second = sorted(made.points3D)[:2]
    before = np.linalg.norm(made.points3D[first].xyz - made.points3D[second].xyz)
    example("known_distances.py", str(tmp_path), str(first), str(second), str(3.0 * before), "cpu")
    after = pycolmap.Reconstruction(tmp_path)
    found = np.linalg.norm(after.points3D[first].xyz - after.points3D[second].xyz)
    assert found == pytest.approx(3.0 * before, rel=1e-4)


def test_gps_places_the_antenna(tmp_path: Path) -> None:
    made = scene(seed=53)
    made.write(tmp_path)
    offset = np.array([0.02, -0.03, 0.01])
    rows = [
        [image, *(np.asarray(pose_of(made, image).inverse_act(np.array([0.0, -0.3, 0.05]))) + offset)]
        for image in sorted(made.images)
    ]
    np.savetxt(tmp_path / "gps.csv", rows, delimiter=",")
    example("gps.py", str(tmp_path), str(tmp_path / "gps.csv"), "cpu")
    after = pycolmap.Reconstruction(tmp_path)
    moved = np.mean(
        [after.images[i].projection_center() - made.images[i].projection_center() for i in made.images],
        axis=0,
    )
    np.testing.assert_allclose(moved, offset, atol=5e-3)


def test_lines_and_silhouettes(tmp_path: Path) -> None:
    """Measurements made from the true model leave it where it is."""
    made = scene("PINHOLE", seed=54)
    graphopt.colmap.bundle_adjustment(made, device="cpu")
    made.write(tmp_path)
    point = next(p for p in sorted(made.points3D) if made.points3D[p].track.length() == len(made.images))
    lines, outline, radius = [], [], 0.2
    for identifier, image in sorted(made.images.items()):
        u, v = image.project_point(made.points3D[point].xyz)
        lines.append([identifier, point, 0.6, 0.8, -0.6 * u - 0.8 * v])
        centre = np.asarray(pose_of(made, identifier).act(made.points3D[point].xyz))
        ray = tangent(centre, radius)
        fx, fy, cx, cy = image.camera.params
        outline.append([identifier, image.camera_id, fx * ray[0] / ray[2] + cx, fy * ray[1] / ray[2] + cy])
    np.savetxt(tmp_path / "lines.csv", lines, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "outline.csv", outline, delimiter=",", fmt="%.17g")
    example("lines.py", str(tmp_path), str(tmp_path / "lines.csv"), "cpu")
    example("silhouettes.py", str(tmp_path), str(tmp_path / "outline.csv"), str(point), str(radius), "cpu")
    after = pycolmap.Reconstruction(tmp_path)
    assert cost(after) == pytest.approx(cost(made), rel=1e-6)


def tangent(centre: np.ndarray, radius: float) -> np.ndarray:
    """Direction of a ray from the origin that touches a ball."""
    length = np.linalg.norm(centre)
    across = np.cross(centre, [0.0, 1.0, 0.0])
    sine = radius / length
    return np.sqrt(1.0 - sine**2) * centre / length + sine * across / np.linalg.norm(across)
