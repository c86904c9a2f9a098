"""Configs of pycolmap mean here what they mean there: the same problem, the same cost, the same constants."""

import copy
from typing import Any

import numpy as np
import pytest
from pycolmaps import ceres_of, ceres_summary, need_field

import graphopt.colmap
from graphopt.errors import OptionError
from tests.colmap.test_adjustment import scene

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")
GAUGES = pycolmap.BundleAdjustmentGauge


def all_images(made: Any, gauge: str = "TWO_CAMS_FROM_WORLD") -> Any:
    config = pycolmap.BundleAdjustmentConfig()
    for image in made.images:
        config.add_image(image)
    if gauge != "UNSPECIFIED":
        config.fix_gauge(getattr(GAUGES, gauge))
    return config


def points_seen_by(made: Any, image: int) -> list[int]:
    return [keypoint.point3D_id for keypoint in made.images[image].points2D if keypoint.has_point3D()]


def some_images(made: Any) -> Any:
    """Four of the images; points that others see as well are constant, but for some."""
    config = pycolmap.BundleAdjustmentConfig()
    images = sorted(made.images)
    for image in images[:4]:
        config.add_image(image)
    config.fix_gauge(GAUGES.TWO_CAMS_FROM_WORLD)
    seen = points_seen_by(made, images[0])
    for point in seen[:60]:
        config.add_variable_point(point)
    for point in seen[60:80]:
        config.add_constant_point(point)
    return config


def constant_points(made: Any) -> Any:
    config = all_images(made, "THREE_POINTS")
    for point in sorted(made.points3D)[:5]:
        config.add_constant_point(point)
    return config


def constant_parts(made: Any) -> Any:
    config = all_images(made)
    frames, cameras = sorted(made.frames), sorted(made.cameras)
    config.set_constant_rig_from_world_pose(frames[1])
    config.set_constant_rig_from_world_pose(frames[3])
    config.set_constant_cam_intrinsics(cameras[0])
    for rig in made.rigs.values():
        for sensor in rig.non_ref_sensors:
            config.set_constant_sensor_from_rig_pose(sensor)
    return config


def only_second_cameras(made: Any) -> Any:
    """Of rigs whose reference takes no part, so that places on them stay."""
    config = pycolmap.BundleAdjustmentConfig()
    second = max(made.cameras)
    for identifier, image in made.images.items():
        if image.camera_id == second:
            config.add_image(identifier)
    config.fix_gauge(GAUGES.TWO_CAMS_FROM_WORLD)
    for point in sorted(made.points3D):
        config.add_variable_point(point)
    return config


CASES = {
    "all": (all_images, {}, 1),
    "no gauge": (lambda made: all_images(made, "UNSPECIFIED"), {}, 1),
    "constant points": (constant_points, {}, 1),
    "some images": (some_images, {}, 1),
    "constant parts": (constant_parts, {}, 2),
    "constant places, all frames": (all_images, {"refine_sensor_from_rig": False}, 2),
    "reference left out": (only_second_cameras, {}, 2),
    "rotations held": (all_images, {"constant_rig_from_world_rotation": True}, 1),
    "rotations held, rigs": (all_images, {"constant_rig_from_world_rotation": True}, 2),
    "poses held": (all_images, {"refine_rig_from_world": False}, 1),
    "points held": (all_images, {"refine_points3D": False}, 1),
    "long tracks": (all_images, {"min_track_length": 5}, 1),
}


def both(name: str) -> tuple[Any, Any, Any, Any, Any]:
    """The scene, and both adjustments of it: (made, ours, theirs, our summary, Ceres' summary)."""
    config_of, fields, cameras = CASES[name]
    made = scene(seed=11, cameras_per_rig=cameras)
    rng = np.random.default_rng(11)
    for frame in made.frames.values():  # so that constants cost something
        pose = frame.rig_from_world
        moved = pose.translation + rng.normal(0.0, 0.005, 3)
        frame.rig_from_world = pycolmap.Rigid3d(pose.rotation, moved)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    ceres_of(options).solver_options.max_num_iterations = 300
    for field, value in fields.items():
        need_field(options, field, value)
    ours, theirs = copy.deepcopy(made), copy.deepcopy(made)
    adjuster = pycolmap.create_default_bundle_adjuster(options, config_of(theirs), theirs)
    ceres = ceres_summary(adjuster)
    summary = graphopt.colmap.bundle_adjustment(ours, options, config=config_of(ours), device="cpu")
    return made, ours, theirs, summary, ceres


@pytest.mark.parametrize("name", sorted(CASES))
def test_cost_and_constants_are_colmaps(name: str) -> None:
    """Initial cost to rounding, final cost to 1e-6, counts of residuals and parameters exactly."""
    made, ours, theirs, summary, ceres = both(name)
    assert summary.initial_cost == pytest.approx(ceres.initial_cost, rel=1e-9)
    assert summary.final_cost == pytest.approx(ceres.final_cost, rel=1e-6)
    assert summary.ceres_summary.num_residuals_reduced == ceres.num_residuals_reduced
    assert summary.num_effective_parameters_reduced == ceres.num_effective_parameters_reduced
    for kind in ("cameras", "frames", "points3D"):
        for identifier, before in getattr(made, kind).items():
            values = [numbers(kind, getattr(model, kind)[identifier]) for model in (ours, theirs)]
            stays = [np.array_equal(value, numbers(kind, before)) for value in values]
            assert stays[1] <= stays[0] or name == "no gauge", (kind, identifier)


def numbers(kind: str, value: Any) -> np.ndarray:
    if kind == "cameras":
        return np.asarray(value.params)
    return value.rig_from_world.matrix() if kind == "frames" else np.asarray(value.xyz)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda config: config.add_image(999), "image 999"),
        (lambda config: config.add_constant_point(10**9), "point 1000000000"),
        (lambda config: config.set_constant_cam_intrinsics(77), "camera 77"),
        (lambda config: config.set_constant_rig_from_world_pose(55), "frame 55"),
    ],
)
def test_what_the_model_lacks_is_named(change: Any, says: str) -> None:
    made = scene()
    config = all_images(made)
    change(config)
    with pytest.raises(OptionError, match=f"the config names {says}"):
        graphopt.colmap.bundle_adjustment(made, config=config)


def test_ignored_points_take_no_part() -> None:
    made = scene()
    ignored = frozenset(sorted(made.points3D)[:50])
    whole = graphopt.colmap.Config(images=frozenset(made.images))
    config = graphopt.colmap.Config(images=frozenset(made.images), ignored_points=ignored)
    ours = copy.deepcopy(made)
    summary = graphopt.colmap.bundle_adjustment(ours, config=config, device="cpu")
    less = sum(made.points3D[point].track.length() for point in ignored)
    everything = graphopt.colmap.bundle_adjustment(copy.deepcopy(made), config=whole, device="cpu")
    assert summary.num_residuals_reduced == everything.num_residuals_reduced - 2 * less
    for point in ignored:
        np.testing.assert_array_equal(ours.points3D[point].xyz, made.points3D[point].xyz)
    with pytest.raises(OptionError, match="ignored and constant"):
        graphopt.colmap.Config(images=frozenset(), ignored_points=ignored, constant_points=ignored)


def shuffled(made: Any, seed: int) -> Any:
    """Some of the images in any order, some points that they do not see, gauge by three points."""
    rng = np.random.default_rng(seed)
    config = pycolmap.BundleAdjustmentConfig()
    for image in rng.permutation(sorted(made.images))[: 6 - seed % 3].tolist():
        config.add_image(image)
    named = rng.permutation(sorted(made.points3D)).tolist()
    for point in named[: 3 * (seed % 3)]:
        config.add_variable_point(point)
    for point in named[10 : 10 + seed % 2]:
        config.add_constant_point(point)
    config.fix_gauge(GAUGES.THREE_POINTS)
    return config


def held(made: Any, refined: Any) -> set[int]:
    """Points that did not move."""
    return {id_ for id_, point in refined.points3D.items() if (point.xyz == made.points3D[id_].xyz).all()}


def held_by_both(made: Any, config: Any) -> tuple[set[int], set[int]]:
    """Points that our and COLMAP's adjustment leave where they are."""
    ours, theirs = copy.deepcopy(made), copy.deepcopy(made)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    ceres_of(options).solver_options.max_num_iterations = 10
    ceres_summary(pycolmap.create_default_bundle_adjuster(options, config, theirs))
    graphopt.colmap.bundle_adjustment(ours, options, config=config, device="cpu")
    return held(made, ours), held(made, theirs)


@pytest.mark.parametrize("seed", range(8))
def test_three_points_are_those_that_colmap_holds(seed: int, tmp_path: Any) -> None:
    """In any order of images, with any ids of points; of a reconstruction and of its files."""
    made = scene(seed=100 + seed)
    for point in np.random.default_rng(seed).permutation(sorted(made.points3D))[:60].tolist():
        made.delete_point3D(point)
    if seed == 7:  # no third independent point
        for point in made.points3D.values():
            point.xyz = [*point.xyz[:2], 0.0]
    config = shuffled(made, seed)
    made.write_binary(tmp_path)
    ours, theirs = held_by_both(made, config)
    graphopt.colmap.bundle_adjustment(tmp_path, config=config, device="cpu", max_iterations=10)
    assert ours == theirs == held(made, pycolmap.Reconstruction(tmp_path))
    assert len(theirs) >= 2


def test_three_points_of_two_frames_at_one_place() -> None:
    """Two cameras fix no scale then: COLMAP holds three points."""
    made = scene(seed=5)
    first, second = (made.images[image].frame for image in sorted(made.images)[:2])
    second.rig_from_world = first.rig_from_world
    config = pycolmap.BundleAdjustmentConfig()
    for image in sorted(made.images)[:2]:
        config.add_image(image)
    for point in made.points3D:
        config.add_variable_point(point)
    config.fix_gauge(GAUGES.TWO_CAMS_FROM_WORLD)
    ours, theirs = held_by_both(made, config)
    assert ours == theirs and len(theirs) == 3
