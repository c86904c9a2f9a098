"""`graphopt.colmap` refines a `pycolmap.Reconstruction` in place, to COLMAP's cost or lower."""

import copy
import signal
from typing import Any

import numpy as np
import pytest
from pycolmaps import ceres_of, ceres_summary, need, need_field, need_sensor_poses

import graphopt.colmap
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate.results import load
from graphopt.io.extra_types import COLMAP_MODELS
from graphopt.optimizer import TerminationType

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")
pycolmap.logging.minloglevel = 2


def scene(model: str = "SIMPLE_RADIAL", seed: int = 0, cameras_per_rig: int = 1) -> Any:
    """Six frames around 200 points, all disturbed: a `pycolmap.Reconstruction`."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig = 1, cameras_per_rig, 6
    options.num_points3D = 200
    options.camera_model_id = need(pycolmap.CameraModelId, model)
    parameters = {
        "SIMPLE_RADIAL": [1280.0, 512.0, 384.0, 0.05],
        "PINHOLE": [1280.0, 1290.0, 512.0, 384.0],
        "OPENCV": [1280.0, 1290.0, 512.0, 384.0, 0.05, -0.02, 1e-3, -1e-3],
        "OPENCV_FISHEYE": [500.0, 505.0, 512.0, 384.0, 0.02, -0.01, 3e-3, -1e-3],
        "FULL_OPENCV": [1280.0, 1290.0, 512.0, 384.0, 0.05, -0.02, 1e-3, -1e-3, 1e-3, 2e-2, 0.0, 0.0],
        "FOV": [1280.0, 1290.0, 512.0, 384.0, 0.4],
        "SIMPLE_RADIAL_FISHEYE": [500.0, 512.0, 384.0, 0.02],
        "RADIAL_FISHEYE": [500.0, 512.0, 384.0, 0.02, -0.01],
        "THIN_PRISM_FISHEYE": [500.0, 505.0, 512.0, 384.0, 0.02, -0.01, 1e-3, -1e-3, 0.0, 0.0, 1e-3, 2e-3],
        "RAD_TAN_THIN_PRISM_FISHEYE": [500.0, 505.0, 512.0, 384.0, 0.02, -0.01, *[0.0] * 4, *[1e-3] * 6],
        "SIMPLE_DIVISION": [1280.0, 512.0, 384.0, -0.05],
        "DIVISION": [1280.0, 1290.0, 512.0, 384.0, -0.05],
        "SIMPLE_FISHEYE": [500.0, 512.0, 384.0],
        "FISHEYE": [500.0, 505.0, 512.0, 384.0],
        "EUCM": [350.0, 355.0, 512.0, 384.0, 0.6, 1.1],
        "EQUIRECTANGULAR": [1024.0, 768.0],
    }
    options.camera_params = parameters[model]
    if hasattr(options, "inlier_match_ratio"):  # of pycolmap 4
        options.inlier_match_ratio = 1.0
    pycolmap.set_random_seed(seed)
    made = pycolmap.synthesize_dataset(options)
    rng = np.random.default_rng(seed)
    for point in made.points3D.values():
        point.xyz = point.xyz + rng.normal(0.0, 0.02, 3)
    for image in made.images.values():
        for keypoint in image.points2D:
            keypoint.xy = keypoint.xy + rng.normal(0.0, 0.5, 2)
    return made


def cost(made: Any) -> float:
    """Sum of squared reprojection errors [px^2], as COLMAP projects."""
    total = 0.0
    for image in made.images.values():
        for keypoint in image.points2D:
            if keypoint.has_point3D():
                pixel = image.project_point(made.points3D[keypoint.point3D_id].xyz)
                assert pixel is not None
                total += float(((pixel - keypoint.xy) ** 2).sum())
    return total


def colmaps(made: Any, **fields: bool) -> Any:
    """The same refined by COLMAP."""
    refined = copy.deepcopy(made)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    for name, value in fields.items():
        setattr(options, name, value)
    pycolmap.bundle_adjustment(refined, options)
    return refined


@pytest.mark.parametrize("model", sorted({*COLMAP_MODELS} - {"SIMPLE_PINHOLE", "RADIAL"}))
def test_cost_is_colmaps_or_lower(model: str) -> None:
    made = scene(model)
    ours = copy.deepcopy(made)
    summary = graphopt.colmap.bundle_adjustment(ours, device="cpu")
    assert summary.is_usable
    assert cost(ours) == pytest.approx(summary.final_chi2, rel=1e-9)
    assert cost(ours) <= cost(colmaps(made)) * (1.0 + 1e-6)
    assert cost(ours) < 0.5 * cost(made)


@pytest.mark.parametrize(
    ("model", "strategy", "loss", "seed"),
    [
        ("EUCM", "LEVENBERG_MARQUARDT", "TRIVIAL", 1),
        ("EUCM", "LEVENBERG_MARQUARDT", "TRIVIAL", 3),
        ("EUCM", "DOGLEG", "TRIVIAL", 3),
        ("RAD_TAN_THIN_PRISM_FISHEYE", "DOGLEG", "TRIVIAL", 1),
        ("RAD_TAN_THIN_PRISM_FISHEYE", "DOGLEG", "CAUCHY", 1),
    ],
)
def test_runs_along_curved_valleys_end_at_their_end(model: str, strategy: str, loss: str, seed: int) -> None:
    """Intrinsics that are nearly one direction, along which all steps are short: Ceres' cost or lower."""
    made = scene(model, seed)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    ceres = ceres_of(options)
    ceres.loss_function_type = getattr(pycolmap.LossFunctionType, loss)
    kind = ceres.solver_options.trust_region_strategy_type.__class__
    ceres.solver_options.trust_region_strategy_type = getattr(kind, strategy)
    theirs, ours = copy.deepcopy(made), copy.deepcopy(made)
    config = pycolmap.BundleAdjustmentConfig()
    for identifier in made.images:
        config.add_image(identifier)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    reference = ceres_summary(pycolmap.create_default_bundle_adjuster(options, config, theirs))
    summary = graphopt.colmap.bundle_adjustment(ours, options, config=config, device="cpu")
    assert summary.is_usable
    assert summary.final_cost <= reference.final_cost * (1.0 + 1e-6)


@pytest.mark.parametrize(("seed", "loss"), [(7, "TRIVIAL"), (8, "TRIVIAL"), (27, "TRIVIAL"), (30, "SOFT_L1")])
def test_what_ends_as_converged_has_nothing_left_for_ceres(seed: int, loss: str) -> None:
    """A plateau of hardly determined intrinsics is no end: from ours, Ceres gains about 1e-6 at most."""
    made = scene("FULL_OPENCV", seed)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    ceres_of(options).loss_function_type = getattr(pycolmap.LossFunctionType, loss)
    ceres_of(options).solver_options.max_num_iterations = 200
    config = pycolmap.BundleAdjustmentConfig()
    for identifier in made.images:
        config.add_image(identifier)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    summary = graphopt.colmap.bundle_adjustment(made, options, config=config, device="cpu")
    after = ceres_summary(pycolmap.create_default_bundle_adjuster(options, config, made))
    assert summary.is_usable
    assert after.initial_cost == pytest.approx(summary.final_cost, rel=1e-7)
    if summary.termination is TerminationType.CONVERGENCE:
        assert after.final_cost >= summary.final_cost * (1.0 - 2e-6)
    else:
        assert len(summary.iterations) == 200 or "would have lowered the cost" in summary.message


def test_points_behind_cameras_count_nothing() -> None:
    """As in COLMAP's adjustment, where they have no residual; one that comes back counts again."""
    made = scene(seed=5)
    centre = np.mean([image.projection_center() for image in made.images.values()], axis=0)
    for identifier in sorted(made.points3D)[:3]:
        point = made.points3D[identifier]
        point.xyz = centre + 40.0 * (centre - point.xyz)
    hidden = sum(
        image.project_point(made.points3D[keypoint.point3D_id].xyz) is None
        for image in made.images.values()
        for keypoint in image.points2D
        if keypoint.has_point3D()
    )
    assert hidden > 5
    ours, theirs = copy.deepcopy(made), copy.deepcopy(made)
    summary = graphopt.colmap.bundle_adjustment(ours, device="cpu")
    options, config = pycolmap.BundleAdjustmentOptions(), pycolmap.BundleAdjustmentConfig()
    options.print_summary = False
    for identifier in theirs.images:
        config.add_image(identifier)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    reference = ceres_summary(pycolmap.create_default_bundle_adjuster(options, config, theirs))
    assert summary.initial_chi2 == pytest.approx(2.0 * reference.initial_cost, rel=1e-9)
    assert summary.final_chi2 <= 2.0 * reference.final_cost * (1.0 + 1e-6)
    assert visible_cost(ours) == pytest.approx(summary.final_chi2, rel=1e-9)


def visible_cost(made: Any) -> float:
    """`cost` of the observations that COLMAP has a residual for."""
    total = 0.0
    for image in made.images.values():
        for keypoint in image.points2D:
            if keypoint.has_point3D():
                pixel = image.project_point(made.points3D[keypoint.point3D_id].xyz)
                if pixel is not None:
                    total += float(((pixel - keypoint.xy) ** 2).sum())
    return total


def test_rotations_are_held() -> None:
    """GLOMAP's first stage: frames move and do not turn; COLMAP's cost or lower."""
    made = scene(seed=6)
    ours = copy.deepcopy(made)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    need_field(options, "constant_rig_from_world_rotation", True)
    graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    for identifier, image in made.images.items():
        before, after = image.cam_from_world(), ours.images[identifier].cam_from_world()
        np.testing.assert_allclose(after.rotation.matrix(), before.rotation.matrix(), atol=1e-12)
    assert cost(ours) <= cost(colmaps(made, constant_rig_from_world_rotation=True)) * (1.0 + 1e-6)


def test_options_of_ceres_are_taken_or_refused() -> None:
    """None is ignored, nor the number of iterations where it is pycolmap's default."""
    made = scene(seed=7)
    options = pycolmap.BundleAdjustmentOptions()
    ceres = ceres_of(options)
    settings = graphopt.colmap.settings_of(options)[1]
    assert settings["max_iterations"] == ceres.solver_options.max_num_iterations == 100
    assert "max_iterations" not in graphopt.colmap.settings_of(None)[1]
    ceres.solver_options.max_num_iterations = 2
    summary = graphopt.colmap.bundle_adjustment(copy.deepcopy(made), options, device="cpu")
    assert len(summary.iterations) == 2
    ceres.solver_options.function_tolerance = 1e-1
    ceres.solver_options.max_num_iterations = 50
    loose = graphopt.colmap.bundle_adjustment(copy.deepcopy(made), options, device="cpu")
    exact = graphopt.colmap.bundle_adjustment(copy.deepcopy(made), device="cpu")
    assert len(loose.iterations) < len(exact.iterations)
    ceres.use_gpu, ceres.gpu_index = True, "0"
    assert graphopt.colmap.settings_of(options)[1]["device"] == "vulkan:0"
    ceres.solver_options.parameter_tolerance = 1e-3
    names = "parameter_tolerance"
    if hasattr(options, "caspar"):
        options.caspar.pcg_iter_max, names = 3, rf"caspar\.pcg_iter_max, {names}"
    with pytest.raises(OptionError, match=rf"^{names}: .* no meaning here"):
        graphopt.colmap.bundle_adjustment(made, options)


def test_solver_options_that_exclude_each_other_are_refused() -> None:
    """As by Ceres; and a dogleg ends when nothing is left to gain."""
    made = scene("OPENCV", seed=7)
    options = pycolmap.BundleAdjustmentOptions()
    ceres = ceres_of(options)
    if hasattr(ceres, "auto_select_solver_type"):
        ceres.auto_select_solver_type = False
    solver = ceres.solver_options
    solver.linear_solver_type = type(solver.linear_solver_type).ITERATIVE_SCHUR
    solver.preconditioner_type = type(solver.preconditioner_type).JACOBI
    solver.use_explicit_schur_complement = True
    with pytest.raises(OptionError, match=r"use_explicit_schur_complement is for .* SCHUR_JACOBI"):
        graphopt.colmap.bundle_adjustment(made, options, device="cpu")
    options = pycolmap.BundleAdjustmentOptions()
    solver = ceres_of(options).solver_options
    solver.trust_region_strategy_type = type(solver.trust_region_strategy_type).DOGLEG
    ours = copy.deepcopy(made)
    summary = graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    assert summary.termination is TerminationType.CONVERGENCE and len(summary.iterations) < 20
    assert cost(ours) <= cost(colmaps(made)) * (1.0 + 1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"refine_focal_length": False},
        {"refine_principal_point": True},
        {"refine_extra_params": False},
        {"refine_focal_length": False, "refine_extra_params": False},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_what_is_not_refined_stays(fields: dict[str, bool]) -> None:
    made = scene("OPENCV", seed=1)
    ours = copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(ours, graphopt.colmap.Options(**fields), device="cpu")
    chosen = graphopt.colmap.Options(**fields)
    moved = np.array([ours.cameras[k].params for k in made.cameras]) != [
        made.cameras[k].params for k in made.cameras
    ]
    assert moved[:, :2].any() == chosen.refine_focal_length
    assert moved[:, 2:4].any() == chosen.refine_principal_point
    assert moved[:, 4:].any() == chosen.refine_extra_params
    assert cost(ours) <= cost(colmaps(made, **fields)) * (1.0 + 1e-6)


def test_constant_images_and_cameras_stay() -> None:
    made = scene(seed=2)
    ours = copy.deepcopy(made)
    still = sorted(made.images)[:2]
    cameras = sorted(made.cameras)
    options = graphopt.colmap.Options(constant_images=still, constant_cameras=cameras)
    graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    for identifier in still:
        before, after = (model.image(identifier).cam_from_world() for model in (made, ours))
        np.testing.assert_allclose(after.matrix(), before.matrix(), atol=1e-12)
    for identifier in cameras:
        np.testing.assert_array_equal(ours.cameras[identifier].params, made.cameras[identifier].params)
    assert cost(ours) < cost(made)
    with pytest.raises(OptionError, match="no such image"):
        graphopt.colmap.bundle_adjustment(made, graphopt.colmap.Options(constant_images=[10**6]))


def test_the_gauge_of_two_cameras_is_colmaps() -> None:
    """The first frame stays, and that coordinate of the second one in which they are farthest apart."""
    made = scene(seed=3)
    ours = copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(ours, device="cpu")
    theirs = colmaps(made)
    for frame in made.frames:
        ours_pose, colmaps_pose = (model.frame(frame).rig_from_world for model in (ours, theirs))
        np.testing.assert_allclose(ours_pose.matrix(), colmaps_pose.matrix(), atol=1e-6)
    first = sorted(made.frames)[0]
    np.testing.assert_array_equal(
        ours.frame(first).rig_from_world.matrix(), made.frame(first).rig_from_world.matrix()
    )


@pytest.mark.parametrize("is_free", [True, False], ids=["free", "held"])
def test_rigs_of_two_cameras(is_free: bool) -> None:
    """COLMAP's cost or lower with the cameras' places on the rig refined, as COLMAP does, and held."""
    need_sensor_poses()
    made = scene(seed=4, cameras_per_rig=2)
    for rig in made.rigs.values():
        for sensor, pose in rig.non_ref_sensors.items():
            moved = pycolmap.Rigid3d(pose.rotation, pose.translation + np.array([0.03, -0.02, 0.01]))
            rig.set_sensor_from_rig(sensor, moved)
    ours = copy.deepcopy(made)
    options = graphopt.colmap.Options(refine_sensor_from_rig=is_free)
    summary = graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    assert cost(ours) == pytest.approx(summary.final_chi2, rel=1e-9)
    assert cost(ours) <= cost(colmaps(made, refine_sensor_from_rig=is_free)) * (1.0 + 1e-6)
    shifts = [
        np.linalg.norm(pose.translation - made.rig(number).sensor_from_rig(sensor).translation)
        for number, rig in ours.rigs.items()
        for sensor, pose in rig.non_ref_sensors.items()
    ]
    assert len(shifts) == 1 and (shifts[0] > 1e-3) == is_free


def test_a_loss_holds_against_wrong_matches() -> None:
    made = scene(seed=5)
    ours = copy.deepcopy(made)
    rng = np.random.default_rng(5)
    for model in (ours, made):
        rng = np.random.default_rng(5)
        for image in model.images.values():
            for keypoint in image.points2D:
                if rng.random() < 0.05:
                    keypoint.xy = keypoint.xy + rng.normal(0.0, 60.0, 2)
    options = pycolmap.BundleAdjustmentOptions()
    ceres_of(options).loss_function_type = pycolmap.LossFunctionType.CAUCHY
    summary = graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    assert summary.final_chi2 < 0.2 * cost(ours)
    with pytest.raises(OptionError, match="expected one of"):
        graphopt.colmap.Options(loss_function_type="TUKEY")
    with pytest.raises(OptionError, match="expected Options"):
        graphopt.colmap.bundle_adjustment(ours, {"refine": True})


def test_the_evaluation_writes_what_colmap_opens(tmp_path) -> None:
    made = scene(seed=6)
    (tmp_path / "house" / "sparse" / "0").mkdir(parents=True)
    made.write_binary(tmp_path / "house" / "sparse" / "0")
    source, folder = tmp_path / "house" / "sparse" / "0", tmp_path / "out"
    arguments = ["eval", "colmap", str(source), "--peers", "pycolmap", "--runs", "1", "-o", str(folder)]
    assert main([*arguments, "--device", "cpu"]) == 0
    entries = load(folder).entries
    assert list(entries) == ["house auto", "house pycolmap"]
    assert entries["house auto"]["mse"] <= entries["house pycolmap"]["mse"] * (1.0 + 1e-6)
    opened = pycolmap.Reconstruction(folder / "house-refined")
    assert cost(opened) == pytest.approx(entries["house auto"]["chi2"], rel=1e-9)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("refine_focal_length", "no", "True or False"),
        ("loss_function_scale", "1", "a number"),
        ("min_track_length", True, "a whole number"),
        ("loss_function_type", 3, "a name"),
    ],
)
def test_options_of_another_type_are_refused(name: str, value: Any, expected: str) -> None:
    """A word is not taken for True."""
    with pytest.raises(OptionError, match=f"^{name} is {value!r}, expected {expected}"):
        graphopt.colmap.Options(**{name: value})


def test_an_interrupted_adjustment_leaves_the_model_and_says_so() -> None:
    """Unless it is to stop: then the best estimate is kept."""
    made = scene(seed=9)
    ours = copy.deepcopy(made)

    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(graphopt.Interrupted, match="as it was before this adjustment") as raised:
        graphopt.colmap.bundle_adjustment(ours, device="cpu", callback=interrupt)
    assert raised.value.summary is not None and raised.value.summary.iterations
    assert cost(ours) == cost(made)
    summary = graphopt.colmap.bundle_adjustment(ours, device="cpu", callback=interrupt, on_interrupt="stop")
    assert summary.is_solution_usable() and summary.termination_type.name == "USER_SUCCESS"
    assert cost(ours) == pytest.approx(summary.final_chi2, rel=1e-9) and cost(ours) < cost(made)
