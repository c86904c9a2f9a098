"""Priors: positions as in COLMAP's pose-prior adjustment, and what COLMAP does not have."""

import copy
from typing import Any

import numpy as np
import pytest
from pycolmaps import ceres_of, ceres_summary, need, need_field, need_sensor_poses

import graphopt.colmap
from graphopt.colmap.priors import enu_of_wgs84
from graphopt.errors import OptionError
from graphopt.geometry import SO3
from tests.colmap.test_adjustment import cost, scene
from tests.colmap.test_config import all_images

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


def pose_priors(made: Any, seed: int, sigma: float = 0.05, with_covariance: bool = True) -> Any:
    """Noisy positions of all images, one of them far off, in another world than the model's."""
    rng = np.random.default_rng(seed)
    turn = np.asarray(SO3.exp(np.array([0.3, -0.2, 0.5])).to_matrix())
    priors = []
    for number, (identifier, image) in enumerate(sorted(made.images.items())):
        prior = pycolmap.PosePrior()
        place = 2.5 * turn @ image.projection_center() + np.array([100.0, -50.0, 20.0])
        prior.position = place + rng.normal(0.0, sigma, 3) + (number == 2) * np.array([3.0, 0.0, 0.0])
        if with_covariance:
            spread = rng.normal(size=(3, 3))
            prior.position_covariance = sigma**2 * (np.eye(3) + 0.1 * spread @ spread.T)
        prior.coordinate_system = pycolmap.PosePriorCoordinateSystem.CARTESIAN
        if hasattr(prior, "corr_data_id"):
            prior.corr_data_id = image.data_id
            prior.pose_prior_id = identifier
        priors.append(prior)
    return (
        priors
        if hasattr(pycolmap.PosePrior, "corr_data_id")
        else dict(zip(sorted(made.images), priors, strict=True))
    )


CASES = {
    "plain": ({}, 1, {}),
    "robust": ({"prior_position_loss_function_type": "CAUCHY"}, 1, {}),
    "huber, scale": (
        {
            "prior_position_loss_function_type": "HUBER",
            "prior_position_loss_scale": 0.7,
        },
        1,
        {},
    ),
    "fallback": ({"prior_position_fallback_stddev": 0.25, "max_error": 0.5}, 1, {}),
    "most priors are outliers": ({"max_error": 0.02}, 1, {}),
    "rigs": ({}, 2, {}),
    "rigs with constant places": ({}, 2, {"refine_sensor_from_rig": False}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_cost_is_that_of_colmaps_pose_priors(name: str) -> None:
    """The same cost at the end to 1e-6, and the same poses."""
    ceres_fields, cameras, fields = CASES[name]
    if cameras == 2:
        need_sensor_poses()  # which scale with the model
    made = scene(seed=21, cameras_per_rig=cameras)
    priors = pose_priors(made, seed=3, with_covariance=name != "fallback")
    options, prior_options = pycolmap.BundleAdjustmentOptions(), pycolmap.PosePriorBundleAdjustmentOptions()
    options.print_summary = False
    ceres_of(options).solver_options.max_num_iterations = 500
    for field, value in fields.items():
        need_field(options, field, value)
    for field, value in ceres_fields.items():
        if value == "CAUCHY" and hasattr(prior_options, "use_robust_loss_on_prior_position"):
            prior_options.use_robust_loss_on_prior_position = True
            continue
        if field == "max_error":
            need(prior_options, "alignment_ransac").max_error = value
            continue
        if field == "prior_position_fallback_stddev":
            need_field(prior_options, field, value)
            continue
        known = need(pycolmap.LossFunctionType, value) if isinstance(value, str) else value
        need_field(ceres_of(prior_options), field, known)
    ours, theirs = copy.deepcopy(made), copy.deepcopy(made)
    config = all_images(made, "UNSPECIFIED")
    adjuster = pycolmap.create_pose_prior_bundle_adjuster(options, prior_options, config, priors, theirs)
    ceres = ceres_summary(adjuster)
    summary = graphopt.colmap.bundle_adjustment(
        ours, options, config=config, pose_priors=priors, prior_options=prior_options, device="cpu"
    )
    assert summary.final_cost == pytest.approx(ceres.final_cost, rel=1e-6)
    assert summary.num_residuals_reduced == ceres.num_residuals_reduced
    for identifier in made.images:
        both = [model.images[identifier].projection_center() for model in (ours, theirs)]
        np.testing.assert_allclose(both[0], both[1], atol=1e-3)


def test_positions_without_covariance_have_the_fallback() -> None:
    made = scene(seed=22)
    priors = pose_priors(made, seed=4, with_covariance=False)
    ends = []
    for options in (None, graphopt.colmap.PriorOptions(prior_position_fallback_stddev=0.1)):
        summary = graphopt.colmap.bundle_adjustment(
            copy.deepcopy(made), pose_priors=priors, prior_options=options, device="cpu"
        )
        ends.append(summary.final_cost)
    assert ends[1] > 1.01 * ends[0]


def test_wgs84_is_east_north_up() -> None:
    """As pycolmap converts to its frame of the first position."""
    places = np.array([[47.3769, 8.5417, 408.0], [47.3771, 8.5415, 410.0], [47.3765, 8.5422, 400.0]])
    ellipsoids = getattr(pycolmap, "GPSTransformEllipsoid", None) or pycolmap.GPSTransfromEllipsoid
    transform = pycolmap.GPSTransform(ellipsoids.WGS84)
    reference = places[0] if pycolmap.__version__ >= "4" else places[0, :2]
    expected = np.asarray(transform.ellipsoid_to_enu(places, *reference))
    np.testing.assert_allclose(enu_of_wgs84(places), expected - expected[0], atol=1e-6)


def test_wgs84_priors_place_the_model() -> None:
    made = scene(seed=23)
    enu = {id_: 3.0 * image.projection_center() for id_, image in made.images.items()}
    first = enu[min(enu)]
    metres = np.array([111_176.0, 76_056.0])  # of a degree of latitude and longitude there, about
    priors = [
        graphopt.colmap.PosePrior(
            id_,
            position=(47.0 + (place - first)[1] / metres[0], 8.0 + (place - first)[0] / metres[1], place[2]),
            position_covariance=np.eye(3) * 1e-4,
            coordinate_system="WGS84",
        )
        for id_, place in sorted(enu.items())
    ]
    ours = copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(ours, pose_priors=priors, device="cpu")
    for id_, place in enu.items():
        moved = ours.images[id_].projection_center()
        np.testing.assert_allclose(moved[:2], (place - first)[:2], atol=0.1)


@pytest.mark.parametrize("kind", ["rotation", "gravity"])
def test_rotations_follow_strong_priors(kind: str) -> None:
    """Of one image, whose rotation is 2 degrees off: a prior of 1e-5 rad brings it there."""
    made = scene(seed=24)
    chosen = sorted(made.images)[3]
    rotation = made.images[chosen].cam_from_world().rotation
    off = SO3.exp(np.array([0.02, -0.02, 0.02])) * SO3(np.asarray(rotation.quat))
    down = np.asarray(off.to_matrix()) @ np.array([0.0, 1.0, 0.0])
    prior = {
        "rotation": graphopt.colmap.PosePrior(
            chosen, rotation=np.asarray(off.storage), rotation_covariance=1e-10 * np.eye(3)
        ),
        "gravity": graphopt.colmap.PosePrior(chosen, gravity=down, gravity_stddev=1e-5),
    }[kind]
    ours = copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(ours, pose_priors=[prior], device="cpu")
    found = np.asarray(ours.images[chosen].cam_from_world().rotation.matrix())
    if kind == "rotation":
        np.testing.assert_allclose(found, np.asarray(off.to_matrix()), atol=1e-3)
    else:
        np.testing.assert_allclose(found @ np.array([0.0, 1.0, 0.0]), down, atol=1e-3)


def test_intrinsics_follow_a_strong_prior() -> None:
    made = scene(seed=25)
    (camera,) = made.cameras.values()
    params = np.array(camera.params)
    params[0] *= 1.01
    prior = graphopt.colmap.IntrinsicsPrior(camera.camera_id, params, [1e-8, np.inf, np.inf, np.inf])
    ours = copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(ours, pose_priors=[prior], device="cpu")
    assert ours.cameras[camera.camera_id].params[0] == pytest.approx(params[0], rel=1e-4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: graphopt.colmap.PosePrior(1, rotation=[0, 0, 0, 1]), "rotation_covariance"),
        (lambda: graphopt.colmap.PosePrior(1, [0, 0, 0], coordinate_system="UTM"), "WGS84"),
        (lambda: graphopt.colmap.PriorOptions(prior_position_loss_scale=0.0), "must be > 0"),
    ],
)
def test_wrong_priors_are_named(make: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make()


def test_positions_that_fix_nothing_are_refused() -> None:
    made = scene(seed=26)
    priors = pose_priors(made, seed=5)
    first_two = dict(list(priors.items())[:2]) if isinstance(priors, dict) else priors[:2]
    with pytest.raises(OptionError, match="3 are needed"):
        graphopt.colmap.bundle_adjustment(made, pose_priors=first_two)
    with pytest.raises(OptionError, match="no pose_priors"):
        graphopt.colmap.bundle_adjustment(made, prior_options=graphopt.colmap.PriorOptions())
    with pytest.raises(OptionError, match="positive definite"):
        bad = [graphopt.colmap.PosePrior(id_, [id_, 0, 0], -np.eye(3)) for id_ in made.images]
        graphopt.colmap.bundle_adjustment(made, pose_priors=bad)


def test_positions_with_a_gauge_by_two_cameras_are_colmaps() -> None:
    """The gauge's coordinate is held, not brought back by a scaling that positions would not allow."""
    need(pycolmap.PosePrior, "corr_data_id")
    made = scene(seed=27)
    priors = pose_priors(made, seed=6, with_covariance=False)
    ours, theirs, config = copy.deepcopy(made), copy.deepcopy(made), all_images(made)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    prior_options = pycolmap.PosePriorBundleAdjustmentOptions()
    ceres_summary(pycolmap.create_pose_prior_bundle_adjuster(options, prior_options, config, priors, theirs))
    graphopt.colmap.bundle_adjustment(ours, options, config=config, pose_priors=priors, device="cpu")
    ends = []
    for model in (ours, theirs):
        centres = {prior.corr_data_id.id: prior.position for prior in priors}
        misses = [model.images[image].projection_center() - place for image, place in centres.items()]
        ends.append(cost(model) + float(np.square(misses).sum()))
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
