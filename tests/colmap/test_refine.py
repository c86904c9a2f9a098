"""`graphopt.colmap.refine` is the loop of GLOMAP's mapper, with the adjustments of this library."""

import copy
from typing import Any

import numpy as np
import pytest
from pycolmaps import need, need_field

import graphopt.colmap
from graphopt.errors import OptionError
from tests.colmap.test_adjustment import cost, scene
from tests.colmap.test_config import all_images

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


def with_outliers(seed: int) -> Any:
    """A scene of which 3 % of the keypoints are wrong."""
    made = scene(seed=seed)
    rng = np.random.default_rng(seed)
    for image in made.images.values():
        for keypoint in image.points2D:
            if rng.random() < 0.03:
                keypoint.xy = keypoint.xy + rng.normal(0.0, 50.0, 2)
    return made


def glomap(made: Any, iterations: int = 3, largest: float = 1e-2, angle: float = 1.0) -> int:
    """COLMAP's loop, statement by statement, with Ceres; returns the filtered observations."""
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    need_field(options, "min_track_length", 3)
    need(options, "ceres").loss_function_type = pycolmap.LossFunctionType.HUBER
    options.ceres.solver_options.max_num_iterations = 300
    total, number = 0, 0
    while number < iterations:
        for held in (True, False):
            options.constant_rig_from_world_rotation = held
            pycolmap.create_default_bundle_adjuster(options, all_images(made), made).solve()
        made.normalize()
        manager = pycolmap.ObservationManager(made)
        status, filtered = True, 0
        while status and number < iterations:
            filtered += manager.filter_points3D_with_large_reprojection_error(
                max(3 - number, 1) * largest, made.point3D_ids(), pycolmap.ReprojectionErrorType.NORMALIZED
            )
            if filtered > 1e-3 * made.num_points3D():
                status = False
            else:
                number += 1
        total += filtered
        if status:
            break
        number += 1
    manager = pycolmap.ObservationManager(made)
    total += manager.filter_points3D_with_large_reprojection_error(
        largest, made.point3D_ids(), pycolmap.ReprojectionErrorType.NORMALIZED
    )
    return total + manager.filter_points3D_with_small_triangulation_angle(angle, made.point3D_ids())


def test_filters_and_cost_are_glomaps() -> None:
    made = with_outliers(41)
    ours, theirs = copy.deepcopy(made), copy.deepcopy(made)
    filtered = glomap(theirs)
    summary = graphopt.colmap.refine(ours, device="cpu")
    assert summary.is_solution_usable()
    assert summary.num_filtered_observations == filtered > 0
    assert [stage for stage, _ in summary.adjustments[:2]] == ["fixed rotations", "joint"]
    assert sorted(ours.points3D) == sorted(theirs.points3D)
    assert cost(ours) == pytest.approx(cost(theirs), rel=1e-4)


def test_options_of_the_mapper(tmp_path: Any) -> None:
    """Names of `pycolmap.GlobalMapperOptions`; a folder is refined in place."""
    made = with_outliers(42)
    made.write(tmp_path)
    options = need(pycolmap, "GlobalMapperOptions")()
    options.ba_num_iterations, options.ba_skip_fixed_rotation_stage = 1, True
    summary = graphopt.colmap.refine(tmp_path, options, device="cpu")
    assert [stage for stage, _ in summary.adjustments] == ["joint"]
    again = pycolmap.Reconstruction(tmp_path)
    assert len(again.points3D) <= len(made.points3D) and cost(again) < 0.5 * cost(made)
    with pytest.raises(OptionError, match="expected Options"):
        graphopt.colmap.refine(made, {"ba": 1})


def test_fields_of_the_loop_come_before_those_of_the_mapper() -> None:
    """A keyword beside `GlobalMapperOptions` is taken, and looked at."""
    options = need(pycolmap, "GlobalMapperOptions")()
    held = graphopt.colmap.refine(with_outliers(44), options, device="cpu", ba_num_iterations=0)
    assert held.adjustments == []
    with pytest.raises(OptionError, match="min_tri_angle_deg is -1"):
        graphopt.colmap.refine(with_outliers(44), options, min_tri_angle_deg=-1.0)


def test_stop_rules_of_the_options_hold_in_both_stages() -> None:
    """Tolerances and methods of Ceres become options of the optimizer, beside those of the call."""
    made = with_outliers(43)
    options = need(pycolmap, "GlobalMapperOptions")()
    solver = options.bundle_adjustment.ceres.solver_options
    solver.function_tolerance, solver.max_num_iterations = 0.5, 7
    loose = graphopt.colmap.refine(copy.deepcopy(made), options, device="cpu", ba_num_iterations=1)
    assert max(len(summary.iterations) for _, summary in loose.adjustments) < 7
    solver.trust_region_strategy_type = type(solver.trust_region_strategy_type).DOGLEG
    solver.function_tolerance = 1e-9
    dogleg = graphopt.colmap.refine(made, options, device="cpu", time_limit=100.0)
    assert {summary.method for _, summary in dogleg.adjustments} == {"dogleg"}
    assert dogleg.is_solution_usable()
    options.skip_bundle_adjustment = True
    with pytest.raises(OptionError, match="skip_bundle_adjustment is True"):
        graphopt.colmap.refine(made, options, device="cpu")


def test_options_of_the_loop_are_checked() -> None:
    """A loop that could only do nothing is refused, by the name of the option."""
    need(pycolmap, "ReprojectionErrorType")
    with pytest.raises(OptionError, match="ba_num_iterations is -1"):
        graphopt.colmap.refine(pycolmap.Reconstruction(), ba_num_iterations=-1)
    with pytest.raises(OptionError, match="max_normalized_reproj_error is nan"):
        graphopt.colmap.refine(pycolmap.Reconstruction(), max_normalized_reproj_error=float("nan"))
    with pytest.raises(OptionError, match="Did you mean 'ba_num_iterations'"):
        graphopt.colmap.refine(pycolmap.Reconstruction(), ba_num_iteration=1)
