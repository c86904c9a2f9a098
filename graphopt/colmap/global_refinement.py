"""GLOMAP's loop of bundle adjustments and filters (`GlobalMapper::IterativeBundleAdjustment` of COLMAP 4).

    repeat up to ba_num_iterations times:
        adjust with rotations held, then everything
        remove observations with a normalized reprojection error above s max_normalized_reproj_error,
        s = 3, 2, 1; where that removes less than 0.1 % of the points, with the next s at once
    remove those above max_normalized_reproj_error, and points seen under less than min_tri_angle_deg

The normalized error is that in the plane z = 1. Filters and normalization are pycolmap's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from graphopt.colmap.adjustment import bundle_adjustment, meant_instead
from graphopt.colmap.options import Options, Settings, auto_options, check_types, settings_of
from graphopt.colmap.summary import BundleAdjustmentSummary
from graphopt.errors import OptionError, UnknownOptionError

AS_GLOMAP = Options(loss_function_type="HUBER", loss_function_scale=1.0, min_track_length=3)
"""GLOMAP's defaults."""
_STAGE_TOLERANCE = 1e-5
"""GLOMAP's function tolerance, of the stage with rotations held, where options have none."""
_FEW = 1e-3
"""Filtered observations per point that end an iteration's filters."""
_LOOSEST = 3


@dataclass
class RefineSummary:
    """What `refine` did."""

    adjustments: list[tuple[str, BundleAdjustmentSummary]] = field(default_factory=list)
    """Stage ("fixed rotations" or "joint") and its summary, in order."""
    num_filtered_observations: int = 0
    """Removed by both filters."""
    num_iterations: int = 0

    def is_solution_usable(self) -> bool:
        """All adjustments were."""
        return all(summary.is_solution_usable() for _, summary in self.adjustments)


@dataclass(frozen=True)
class LoopOptions:
    """What the loop does, by the names and with the defaults of `pycolmap.GlobalMapperOptions`."""

    ba_num_iterations: int = 3
    ba_skip_fixed_rotation_stage: bool = False
    ba_skip_joint_optimization_stage: bool = False
    max_normalized_reproj_error: float = 1e-2
    min_tri_angle_deg: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("ba_num_iterations", "max_normalized_reproj_error", "min_tri_angle_deg"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"{name} is {getattr(self, name)}, must be >= 0.")


def refine(
    reconstruction: Any,
    options: Any = None,
    *,
    pose_priors: Sequence[Any] | None = None,
    prior_options: Any = None,
    device: str = "auto",
    callback: Callable[..., Any] | None = None,
    **changes: Any,
) -> RefineSummary:
    """Refine and filter a `pycolmap.Reconstruction` (4.x) in place, or a folder, as GLOMAP's mapper does.

    options: `Options`, `pycolmap.BundleAdjustmentOptions`, or `pycolmap.GlobalMapperOptions`, which have the
    fields of `LoopOptions` and their defaults as well; None: `AS_GLOMAP`. With pose_priors the model is not
    normalized. An adjustment without a usable result ends the loop. Others as of `bundle_adjustment`.

    changes: fields of `LoopOptions`, such as ba_num_iterations=5, which come before those of options; all
    others are passed to `optimize`.
    """
    pycolmap = _pycolmap()
    given: dict[str, Any] = {
        "pose_priors": pose_priors,
        "prior_options": prior_options,
        "callback": callback,
    }
    if isinstance(reconstruction, (str, os.PathLike)):
        scene = pycolmap.Reconstruction(os.fspath(reconstruction))
        summary = refine(scene, options, device=device, **given, **changes)
        scene.write(os.fspath(reconstruction))
        return summary
    names = [each.name for each in fields(LoopOptions)]
    own = {name: changes.pop(name) for name in names if name in changes}
    found = meant_instead(changes, names)
    if found is not None:
        raise UnknownOptionError(f"refine has no option {found[0]!r}. Did you mean {found[1]!r}?")
    if hasattr(options, "get_bundle_adjustment"):
        if options.skip_bundle_adjustment:
            raise OptionError("skip_bundle_adjustment is True, but that stage is all that refine does.")
        own = {name: getattr(options, name) for name in names} | own
        settings = settings_of(options.get_bundle_adjustment(), type(options)().get_bundle_adjustment())
    else:
        settings = settings_of(AS_GLOMAP if options is None else options)
    return _loop(pycolmap, reconstruction, settings, {"device": device} | given | changes, LoopOptions(**own))


def _pycolmap() -> Any:
    try:
        import pycolmap
    except ImportError as error:
        raise OptionError(
            "refine filters with pycolmap, which is not installed: pip install pycolmap."
        ) from error
    if not hasattr(pycolmap, "ReprojectionErrorType"):
        raise OptionError(
            f"refine needs pycolmap 4 or later, whose filters know normalized errors; "
            f"{pycolmap.__version__} is installed."
        )
    return pycolmap


def _loop(
    pycolmap: Any,
    scene: Any,
    settings: Settings,
    given: dict[str, Any],
    loop: LoopOptions,
) -> RefineSummary:
    summary = RefineSummary()
    stages = [] if loop.ba_skip_fixed_rotation_stage else [("fixed rotations", _held(settings, given))]
    stages += [] if loop.ba_skip_joint_optimization_stage else [("joint", settings)]
    has_priors = bool(given["pose_priors"])
    number = 0
    while number < loop.ba_num_iterations:
        for stage, chosen in stages:
            summary.adjustments.append((stage, bundle_adjustment(scene, chosen, **given)))
            if not summary.is_solution_usable():
                return summary
        if not has_priors:
            scene.normalize()
        summary.num_iterations += 1
        filtered, is_done = 0, True
        while is_done and number < loop.ba_num_iterations:
            largest = max(_LOOSEST - number, 1) * loop.max_normalized_reproj_error
            filtered += _filter_errors(pycolmap, scene, largest)
            if filtered > _FEW * scene.num_points3D():
                is_done = False
            else:
                number += 1
        summary.num_filtered_observations += filtered
        if is_done:
            break
        number += 1
    summary.num_filtered_observations += _filter_errors(pycolmap, scene, loop.max_normalized_reproj_error)
    manager = pycolmap.ObservationManager(scene)
    summary.num_filtered_observations += manager.filter_points3D_with_small_triangulation_angle(
        loop.min_tri_angle_deg, scene.point3D_ids()
    )
    scene.update_point_3d_errors()
    return summary


def _held(settings: Settings, given: dict[str, Any]) -> Settings:
    """Of the stage with rotations held, which the joint one follows."""
    optimize = settings.optimize
    if "method" not in {*given, *optimize}:
        optimize = {"options": auto_options(function_tolerance=_STAGE_TOLERANCE)} | optimize
    return Settings(replace(settings.options, constant_rig_from_world_rotation=True), optimize)


def _filter_errors(pycolmap: Any, scene: Any, largest: float) -> int:
    manager = pycolmap.ObservationManager(scene)
    kind = pycolmap.ReprojectionErrorType.NORMALIZED
    return int(manager.filter_points3D_with_large_reprojection_error(largest, scene.point3D_ids(), kind))
