"""Solving a problem that has a truth: what `graphopt optimize FILE.vib` and `graphopt eval vib` do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.exchange.errors import normalised_errors, truth_errors
from slam_bridge.options import SolveOptions
from slam_bridge.problems import Result, full_inertial_ba, global_ba, local_inertial_ba
from slam_bridge.vib_problem import Truth, VibProblem

KINDS = ("full-inertial", "local-inertial", "visual")
WINDOW = 25
"""Keyframes that are free in `local-inertial`, as in ORB-SLAM3 with many landmarks."""
_NORMALISED_BELOW = 400  # keyframes; covariances of larger problems take longer than the problem


@dataclass(frozen=True, eq=False)
class Solved:
    """A problem's result and how far it is from the truth."""

    result: Result
    truth_before: dict[str, Any]
    """Of `truth_errors`; empty without a truth."""
    truth: dict[str, Any]
    """After the optimization, with normalised errors where these are affordable."""


def solve_problem(
    problem: VibProblem,
    kind: str = "full-inertial",
    options: SolveOptions | None = None,
    window: int = WINDOW,
) -> Solved:
    """Optimize the map of a problem in place and compare with its truth.

    kind: one of `KINDS`; "local-inertial" frees the last `window` keyframes. Raises `OptionError` for another
    kind, and where an inertial one has no IMU.
    """
    if kind not in KINDS:
        raise OptionError(f"problem is {kind!r}, expected one of {', '.join(KINDS)}.")
    world, inertial = problem.map, kind != "visual"
    if inertial and not len(world.imu):
        raise OptionError(
            f"{kind} needs IMU measurements between keyframes; this problem has none. Use visual."
        )
    free = world.keyframes.ids[-window:] if kind == "local-inertial" else world.keyframes.ids
    truth = None if problem.truth is None else _part(problem, free, kind == "local-inertial")
    before = {} if truth is None else truth_errors(world, truth, inertial)
    if kind == "full-inertial":
        result = full_inertial_ba(world, options=options)
    elif kind == "visual":
        result = global_ba(world, options=options)
    else:
        result = local_inertial_ba(world, free, options=options)
    after: dict[str, Any] = {}
    if truth is not None:
        after = truth_errors(world, truth, inertial)
        if len(free) <= _NORMALISED_BELOW and kind != "local-inertial":
            held = bool(world.keyframes["fixed"].any() or len(world.pose_priors))
            after |= normalised_errors(result, truth, inertial, world.gravity, held)
        if len(truth.mismatches):
            after |= _mismatches(result, truth)
    return Solved(result, before, after)


def _part(problem: VibProblem, keyframes: np.ndarray, local: bool) -> Truth:
    """The truth of these keyframes, and of the landmarks that they observe."""
    truth = problem.truth
    assert truth is not None
    if not local:
        return truth
    rows = np.flatnonzero(np.isin(truth.keyframes, keyframes))
    seen = np.flatnonzero(np.isin(truth.landmarks, problem.map.observed_landmarks(keyframes)))
    return Truth(
        truth.keyframes[rows],
        truth.world_T_body[rows],
        truth.velocity[rows],
        truth.gyro_bias[rows],
        truth.acc_bias[rows],
        truth.landmarks[seen],
        truth.points[seen],
        truth.mismatches,
    )


def _mismatches(result: Result, truth: Truth) -> dict[str, float]:
    """Shares of the wrong observations that were found, and of the right ones that were lost."""
    wrong = np.isin(result.observations, truth.mismatches)
    statistics: dict[str, float] = {}
    if wrong.any():
        statistics["mismatches_rejected"] = float(np.mean(~result.inliers[wrong]))
    if not wrong.all():
        statistics["matches_rejected"] = float(np.mean(~result.inliers[~wrong]))
    return statistics
