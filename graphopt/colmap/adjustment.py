"""Bundle adjustment of COLMAP models: in place of `pycolmap.bundle_adjustment`, on any GPU or on the CPU.

The residuals are COLMAP's reprojection errors, of which a point behind its camera has none; options, config
and priors have COLMAP's names, and its defaults.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.colmap.bounds import Bounds, add_bounds, bounds_of
from graphopt.colmap.folders import find_part, read_colmap, write_colmap
from graphopt.colmap.hidden import num_hidden
from graphopt.colmap.memory import Scene, refuse_lost_sensors
from graphopt.colmap.model import ColmapModel
from graphopt.colmap.options import Options, auto_options, config_of, prior_options_of, settings_of
from graphopt.colmap.priors import (
    PosePrior,
    add_priors,
    aligned,
    centres_of,
    in_metres,
    priors_of,
    transformed,
)
from graphopt.colmap.problem import Problem, everything, keep_gauge, problem_of, refined_model
from graphopt.colmap.residuals import Rows, add_residuals, has_any
from graphopt.colmap.summary import BundleAdjustmentSummary, summary_of
from graphopt.distributed.devices import threads_of_ranks
from graphopt.errors import FormatError, OptionError, UnknownOptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import Summary, TerminationType
from graphopt.optimizer.signals import Interrupted
from graphopt.suggestions import nearest

if TYPE_CHECKING:
    from graphopt.graph import Graph

_MOST_LOST = 0.1
"""Share of the observations that may come to lie behind their cameras."""


def bundle_adjustment(
    reconstruction: Any,
    options: Any = None,
    *,
    config: Any = None,
    pose_priors: Sequence[Any] | Mapping[int, Any] | None = None,
    prior_options: Any = None,
    device: str = "auto",
    callback: Callable[..., Any] | None = None,
    residuals: Rows | Sequence[Any] = (),
    bounds: Bounds | None = None,
    **optimize: Any,
) -> BundleAdjustmentSummary:
    """Refine a model in place: its poses, points and intrinsics.

    reconstruction: a `pycolmap.Reconstruction` (3.12 or later), a `ColmapModel`, or a folder, which is
        written anew.
    options: `Options`, or a `pycolmap.BundleAdjustmentOptions`; docs/colmap.md has what becomes of those of
        Ceres.
    config: `Config` or `pycolmap.BundleAdjustmentConfig`; None: all images, gauge by two cameras, or none
        where positions or residuals of the user may fix it.
    pose_priors: of `PosePrior`, `IntrinsicsPrior`, `pycolmap.PosePrior` (of 3.12: {image id: prior}). Where
        some have a position, the model is moved onto these before. prior_options: `PriorOptions`, or a
        `pycolmap.PosePriorBundleAdjustmentOptions`.
    device: "auto", "cpu", "vulkan", "vulkan:1", ...; at "auto" the GPU that options may ask for.
    callback: called with each finished iteration; `False` stops.
    residuals: a user's own, or one of them, see `graphopt.colmap.residual`.
    bounds: of intrinsics and depths, see `graphopt.colmap.Bounds`; `summary.kkt` says which are active.
    optimize: precision, configuration, max_iterations, time_limit, ... of `graphopt.optimize`; they come
        before what `options` say.

    A summary that is not usable leaves the reconstruction as it was, and so does Ctrl-C, which raises
    `graphopt.Interrupted` unless on_interrupt="stop". Raises `OptionError` for what cannot be
    refined here or is not an option here, and where a GPU that was asked for is missing.
    """
    chosen, settings = _settings(options, device, callback, optimize)
    poses, intrinsics = priors_of(pose_priors or ())
    asked = prior_options_of(prior_options)
    if prior_options is not None and not pose_priors:
        raise OptionError("prior_options are given, but no pose_priors.")
    began = time.perf_counter()
    model, put = opened(reconstruction)
    poses = in_metres(poses)
    moved, shift = _placed(model, poses, asked)
    has_metres = any(prior.position is not None for prior in poses) or has_any(residuals)
    if config is None and has_metres:
        config = replace(everything(model, chosen), fixed_gauge="UNSPECIFIED")
    limits = bounds_of(bounds)
    holds_scale = has_metres or limits.min_depth is not None  # these have no meaning up to scale
    problem = problem_of(moved, chosen, None if config is None else config_of(config), holds_scale)
    problem.shift = shift
    add_priors(problem, poses, intrinsics, asked)
    add_residuals(problem, residuals)
    add_bounds(problem, limits, chosen.refined)
    refuse_lost_sensors(reconstruction, problem.graph, moved is not model)
    converted = time.perf_counter() - began
    try:
        summary, refined = _solved(problem, settings)
    except Interrupted as interrupted:
        raise _unchanged(interrupted) from None
    began = time.perf_counter()
    if refined is not None:
        put(transformed(refined, 1.0, np.eye(3), shift) if shift.any() else refined)
        if config is None and hasattr(reconstruction, "update_point_3d_errors"):
            reconstruction.update_point_3d_errors()  # as pycolmap.bundle_adjustment does
    summary.seconds["convert"] = converted
    summary.seconds["put_back"] = time.perf_counter() - began
    if chosen.print_summary:
        print(summary.report(), file=sys.stderr)
    return summary


def _unchanged(interrupted: Interrupted) -> Interrupted:
    """The same, which says what became of the model."""
    told = Interrupted(
        "Interrupted by the user; the model is as it was before this adjustment. on_interrupt='stop' keeps "
        "the best estimate so far."
    )
    told.summary = interrupted.summary
    return told


def meant_instead(given: Mapping[str, Any], own: Collection[str]) -> tuple[str, str] | None:
    """Of these keywords one that looks more like one of `own` than of `graphopt.optimize`, and which."""
    import graphopt.distributed

    others = {each.name for each in fields(SolverOptions)}
    others |= {*signature(graphopt.optimize).parameters, *signature(graphopt.distributed.optimize).parameters}
    for name in given:
        meant = None if name in others else nearest(name, {*own, *others})
        if meant in own:
            return name, str(meant)
    return None


def _settings(
    options: Any, device: str, callback: Callable[..., Any] | None, given: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """Options of COLMAP, and those of `graphopt.optimize`; given: of the latter, which come first."""
    found = meant_instead(given, [each.name for each in fields(Options)])
    if found is not None:
        raise UnknownOptionError(
            f"bundle_adjustment has no option {found[0]!r}. Pass "
            f"options=graphopt.colmap.Options({found[1]}=...)."
        )
    chosen, settings = settings_of(options)
    settings = {**settings, **given}
    if device != "auto" or "device" not in settings:
        settings["device"] = device
    if callback is not None:
        settings["callback"] = callback
    return chosen, settings


def _placed(model: ColmapModel, priors: list[PosePrior], options: Any) -> tuple[ColmapModel, np.ndarray]:
    """The model on its priors' positions, less a shift (3,) that keeps coordinates small."""
    if not any(prior.position is not None for prior in priors):
        return model, np.zeros(3)
    moved = aligned(model, priors, options)
    shift = np.asarray(centres_of(moved).mean(axis=0))
    return transformed(moved, 1.0, np.eye(3), -shift), shift


def _solved(problem: Problem, settings: dict[str, Any]) -> tuple[BundleAdjustmentSummary, ColmapModel | None]:
    """Solve, and the refined model, None if no result is usable.

    Where a step lowered the cost by taking more than `_MOST_LOST` of all observations behind their cameras,
    the same is solved again up to the step before.
    """
    start = [vertices.look("estimate").copy() for vertices in problem.graph.vertex_sets]
    summary, seen = solve(problem, **settings), problem.seen
    before = step = None
    while summary.is_solution_usable():
        refined = refined_model(problem)
        hidden = num_hidden(refined, seen)
        if hidden and before is None:
            before = num_hidden(problem.model, seen)
        lost = hidden - (before or 0)
        if lost <= _MOST_LOST * len(seen.pixel):
            return summary, refined
        falls = [summary.initial_chi2, *(iteration.chi2 for iteration in summary.iterations)]
        step = (
            int(np.argmin([after / max(each, 1e-300) for each, after in pairwise(falls)])) if step != 0 else 0
        )
        note = (
            f"Step {step + 1} would have lowered the cost by taking {lost} of {len(seen.pixel)} observations "
            "behind their cameras, where COLMAP's residuals are zero: the observations hardly determine "
            "something. Refine fewer intrinsics, or give bounds or priors."
        )
        for vertices, estimate in zip(problem.graph.vertex_sets, start, strict=True):
            vertices.estimate[:] = estimate
        if step == 0:
            summary.termination, summary.message = TerminationType.REFUSED, note
            return summary, None
        summary = solve(problem, **_up_to(settings, step))
        summary.message = f"{summary.message} {note} The result is that of the step before.".strip()
    return summary, None


def _up_to(settings: dict[str, Any], num_iterations: int) -> dict[str, Any]:
    """Settings of the same run that ends earlier."""
    changed = {name: value for name, value in settings.items() if name != "callback"}
    if changed.get("options") is None:
        return changed | {"max_iterations": num_iterations}
    return changed | {"options": replace(changed["options"], max_iterations=num_iterations)}


def solve(problem: Problem, num_threads: int | None = None, **optimize: Any) -> BundleAdjustmentSummary:
    """Optimize the graph of a problem, on one device or several; the gauge stays."""
    import graphopt

    if all(vertices.fixed.all() for vertices in problem.graph.vertex_sets):
        nothing = Summary(0, 0, "auto", TerminationType.CONVERGENCE, 0.0, 0.0)
        nothing.message = "Everything that is seen is constant."
        return summary_of(nothing, problem.graph)
    if optimize.get("method", "auto") == "auto" and "options" not in optimize:
        optimize["options"] = auto_options()
    several = "," in str(optimize.get("device", "auto"))
    with threads_of_ranks(num_threads):
        summary = (graphopt.distributed.optimize if several else graphopt.optimize)(problem.graph, **optimize)
    keep_gauge(problem)
    return summary_of(summary, problem.graph, problem.scale is not None)


def opened(reconstruction: Any) -> tuple[ColmapModel, Callable[[ColmapModel], None]]:
    """The model of what a user gave, and what puts a refined one back."""
    if isinstance(reconstruction, ColmapModel):
        return reconstruction, lambda refined: _put(reconstruction, refined)
    if isinstance(reconstruction, (str, os.PathLike)):
        folder = os.fspath(reconstruction)
        model = read_colmap(folder)
        _say(model, folder)
        as_text = not os.path.exists(os.path.join(folder, "images.bin"))
        return model, lambda refined: _rewrite(model, refined, folder, as_text)
    if not all(hasattr(reconstruction, name) for name in ("frames", "rigs", "images", "points3D")):
        kind = type(reconstruction).__name__
        raise OptionError(
            f"the reconstruction is a {kind}, expected a pycolmap.Reconstruction of pycolmap 3.12 or later, "
            "a graphopt.colmap.ColmapModel, or a folder."
        )
    scene = Scene(reconstruction)
    return scene.model, scene.put


def _rewrite(model: ColmapModel, refined: ColmapModel, folder: str, as_text: bool) -> None:
    """Write a folder anew; where nothing has changed it stays as it is, whoever wrote it."""
    if not refined.has_same_numbers(model):
        write_colmap(refined, folder, as_text)


def _say(model: ColmapModel, folder: str) -> None:
    """Warn of what was read otherwise than written; refuse rigs without frames: they would be replaced."""
    rigs, frames = (find_part(folder, part) for part in ("rigs", "frames"))
    if (rigs is None) != (frames is None):
        found, missing = (rigs, "frames") if frames is None else (frames, "rigs")
        raise FormatError(
            f"{found}: stands here without {missing}, expected both or none. Add the other file, or move "
            "this one away; COLMAP then takes one rig per camera."
        )
    for text in model.warnings:
        warnings.warn(f"{folder}: {text}.", RuntimeWarning, stacklevel=4)


def _put(target: ColmapModel, refined: ColmapModel) -> None:
    target.cameras, target.images, target.points = refined.cameras, refined.images, refined.points
    target.rigs, target.frames = refined.rigs, refined.frames


def graph_of_model(model: ColmapModel, options: Options) -> Graph:
    """The graph of all of a model under these options; what is constant is fixed."""
    return problem_of(model, options).graph
