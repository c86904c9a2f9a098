"""Errors of a trajectory against a reference, as evo has them: absolute (ATE) and relative (RPE).

With poses T_i of the estimate and S_i of the reference, and the motion A that aligns the positions best,

    A   = argmin sum |s_i - A t_i|^2       Umeyama, PAMI 1991; with a scale for "sim3"
    ATE = |s_i - A t_i|                    [m]
    RPE = (S_i^-1 S_j)^-1 (T_i^-1 T_j)     translation [m], angle [rad]; (i, j) are consecutive pairs that are
                                           `delta` frames, metres along the path or seconds apart

Definitions as in Sturm et al., A Benchmark for the Evaluation of RGB-D SLAM Systems, IROS 2012, and in evo
(github.com/MichaelGrupp/evo, modules core.sync, core.metrics, core.filters).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SE3, SO3
from graphopt.geometry.alignment import LARGEST, alignment
from graphopt.graph.poses import poses_of_graph
from graphopt.option_names import DELTA_UNITS, Alignment

__all__ = [
    "PoseErrors",
    "TrajectoryErrors",
    "alignment",
    "compare_poses",
    "match_by_time",
    "poses_of_graph",
    "trajectory_errors",
]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TrajectoryErrors:
    """Errors of a trajectory of n poses."""

    num_poses: int
    ate_rmse: float
    """[m]"""
    ate_max: float
    """[m]"""
    rpe_translation_rmse: float
    """[m] over `delta` poses."""
    rpe_rotation_rmse: float
    """[rad] over `delta` poses."""
    scale: float
    """Of the alignment: 1 unless it was "sim3"."""


@dataclass(frozen=True, eq=False)
class PoseErrors:
    """Errors pose by pose."""

    absolute: Array
    """(n,) [m] position errors after the alignment."""
    aligned: Array
    """(n, 7) the estimate in the reference's frame."""
    relative_translation: Array
    """(p,) [m]"""
    relative_rotation: Array
    """(p,) [rad]"""
    alignment: tuple[float, Array, Array]
    """Scale, rotation (3, 3), translation (3,) that took the estimate to `aligned`."""


def trajectory_errors(
    estimate: Array, reference: Array, *, align: Alignment = "se3", delta: int = 1
) -> TrajectoryErrors:
    """Compare poses (n, 7) x y z qx qy qz qw, world from body, row by row.

    align: a motion ("se3"), a motion with scale ("sim3"), a rotation about z with a translation ("yaw") or
    nothing ("none"). delta: frames between the two ends of a relative error.

    Raises `ShapeError` for arrays that do not match, `OptionError` for options that make no sense here, and
    both name what was expected; numbers that are not finite are refused with their row.
    """
    errors = compare_poses(estimate, reference, align=align, delta=delta)
    return TrajectoryErrors(
        len(errors.absolute),
        _rms(errors.absolute),
        float(errors.absolute.max()),
        _rms(errors.relative_translation),
        _rms(errors.relative_rotation),
        errors.alignment[0],
    )


def compare_poses(
    estimate: Array,
    reference: Array,
    *,
    align: Alignment = "se3",
    delta: float = 1,
    delta_unit: str = "frames",
    times: Array | None = None,
) -> PoseErrors:
    """Errors of poses (n, 7), see the module's header.

    delta, delta_unit: how far the ends of a relative error are apart: "frames", "m" along the aligned
    estimate, "s" of `times` (n,).
    """
    estimate, reference = np.asarray(estimate, float), np.asarray(reference, float)
    if estimate.shape != reference.shape or estimate.ndim != 2 or estimate.shape[1] != 7:
        raise ShapeError(
            f"Trajectories have shapes {estimate.shape} and {reference.shape}, expected (n, 7) for both. "
            "Match them by time or id first: match_by_time, or poses_of_graph with common ids."
        )
    for name, poses in (("estimate", estimate), ("reference", reference)):
        _check_poses(name, poses)
    scale, rotation, shift = alignment(estimate[:, :3], reference[:, :3], align)
    aligned = np.empty_like(estimate)
    aligned[:, :3] = scale * estimate[:, :3] @ rotation.T + shift
    aligned[:, 3:] = np.asarray((SO3.from_matrix(rotation) * SO3(estimate[:, 3:])).storage)
    first, second = _pairs(aligned[:, :3], delta, delta_unit, times)
    error = _steps(reference, first, second).inverse() * _steps(aligned, first, second)
    return PoseErrors(
        absolute=np.linalg.norm(aligned[:, :3] - reference[:, :3], axis=1),
        aligned=aligned,
        relative_translation=np.linalg.norm(np.asarray(error.translation), axis=-1),
        relative_rotation=np.linalg.norm(np.asarray(SO3(error.quaternion).log()), axis=-1),
        alignment=(scale, rotation, shift),
    )


def _check_poses(name: str, poses: Array) -> None:
    wrong = np.flatnonzero(~(np.abs(poses) <= LARGEST).all(axis=1))
    if len(wrong):
        raise OptionError(
            f"Pose {wrong[0]} of the {name} is {poses[wrong[0]].tolist()}; finite numbers up to {LARGEST:g} "
            "are expected. Remove it, or correct it."
        )
    lengths = np.linalg.norm(poses[:, 3:], axis=1)
    wrong = np.flatnonzero(lengths < 1e-6)
    if len(wrong):
        raise OptionError(
            f"Pose {wrong[0]} of the {name} has a quaternion of length {lengths[wrong[0]]:g}, which is no "
            "orientation. Correct it, or remove the pose."
        )


def match_by_time(
    estimate_times: Array, reference_times: Array, tolerance: float = 0.01
) -> tuple[Rows, Rows]:
    """Rows of both trajectories that belong together, as evo's sync finds them.

    Each pose of the shorter trajectory gets the pose of the longer one that is nearest in time [s], if
    that is within `tolerance`. Both arrays ascend.
    """
    is_estimate_shorter = len(estimate_times) <= len(reference_times)
    short, long = (
        (estimate_times, reference_times) if is_estimate_shorter else (reference_times, estimate_times)
    )
    if not len(short):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    right = np.clip(np.searchsorted(long, short), 1, max(len(long) - 1, 1))
    left, right = right - 1, np.minimum(right, len(long) - 1)
    gaps = np.abs(long[left] - short), np.abs(long[right] - short)
    nearest = np.where(gaps[0] <= gaps[1], left, right)
    matched = np.flatnonzero(np.minimum(*gaps) <= tolerance)
    rows = matched, nearest[matched]
    return rows if is_estimate_shorter else (rows[1], rows[0])


def _pairs(positions: Array, delta: float, unit: str, times: Array | None) -> tuple[Rows, Rows]:
    """Rows of the two ends of each relative error."""
    if unit not in DELTA_UNITS:
        raise OptionError(f"The unit of delta is '{unit}', expected one of {', '.join(DELTA_UNITS)}.")
    if not delta > 0.0 or not np.isfinite(delta):
        raise OptionError(f"delta is {delta}, must be > 0.")
    if unit == "frames":
        if delta != int(delta):
            raise OptionError(f"delta is {delta} frames, must be a whole number; use the unit m or s.")
        indices = np.arange(0, len(positions), int(delta))
    elif unit == "m":
        indices = _milestones(positions, delta)
    elif times is None:
        raise OptionError("A delta in seconds needs the times of the poses.")
    else:
        indices = _instants(times, delta)
    if len(indices) < 2:
        raise OptionError(
            f"No two of {len(positions)} poses are {delta:g} {unit} apart; choose a smaller delta."
        )
    return indices[:-1], indices[1:]


def _milestones(positions: Array, delta: float) -> Rows:
    """First rows at which `delta` metres more have been passed."""
    indices, passed = [0], 0.0
    for row, step in enumerate(np.linalg.norm(np.diff(positions, axis=0), axis=1), start=1):
        passed += step
        if passed >= delta:
            indices.append(row)
            passed = 0.0
    return np.array(indices)


def _instants(times: Array, delta: float) -> Rows:
    """First rows at which `delta` seconds more have passed."""
    indices = [0]
    while (after := int(np.searchsorted(times, times[indices[-1]] + delta))) < len(times):
        indices.append(after)
    return np.array(indices)


def _steps(poses: Array, first: Rows, second: Rows) -> SE3:
    return SE3(poses[first]).inverse() * SE3(poses[second])


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
