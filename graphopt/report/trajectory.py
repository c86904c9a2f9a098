"""Errors of a trajectory against a reference: absolute (ATE) and relative (RPE), after an alignment.

With poses T_i of the estimate and S_i of the reference, and the motion A that aligns the positions best,

    A   = argmin sum |s_i - A t_i|^2       Umeyama, PAMI 1991; with a scale for "sim3"
    ATE = rms_i |s_i - A t_i|              [m]
    RPE = rms_i of the motion inverse(S_i^-1 S_(i+d)) (T_i^-1 T_(i+d))     translation [m], angle [rad]

Definitions as in Sturm et al., A Benchmark for the Evaluation of RGB-D SLAM Systems, IROS 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SE3, SO3
from graphopt.graph.poses import poses_of_graph

__all__ = ["TrajectoryErrors", "alignment", "match_by_time", "poses_of_graph", "trajectory_errors"]

Array = NDArray[np.float64]
Alignment = Literal["none", "se3", "sim3"]


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


def trajectory_errors(
    estimate: Array, reference: Array, *, align: Alignment = "se3", delta: int = 1
) -> TrajectoryErrors:
    """Compare poses (n, 7) x y z qx qy qz qw, world from body, row by row.

    The alignment is a motion ("se3"), a motion with scale ("sim3") or nothing ("none"); `delta` is the number
    of poses between the two ends of a relative error.
    """
    estimate, reference = np.asarray(estimate, float), np.asarray(reference, float)
    if estimate.shape != reference.shape or estimate.ndim != 2 or estimate.shape[1] != 7:
        raise ShapeError(
            f"Trajectories have shapes {estimate.shape} and {reference.shape}, expected (n, 7) for both. "
            "Match them by time or id first: match_by_time, or poses_of_graph with common ids."
        )
    if not 1 <= delta < len(estimate):
        raise OptionError(
            f"delta is {delta}, must lie between 1 and {len(estimate) - 1} for {len(estimate)} poses."
        )
    scale, rotation, shift = alignment(estimate[:, :3], reference[:, :3], align)
    absolute = np.linalg.norm(reference[:, :3] - (scale * estimate[:, :3] @ rotation.T + shift), axis=-1)
    scaled = np.concatenate([scale * estimate[:, :3], estimate[:, 3:]], axis=-1)
    translation, angle = _relative(scaled, reference, delta)
    return TrajectoryErrors(
        len(estimate), _rms(absolute), float(absolute.max()), _rms(translation), _rms(angle), scale
    )


def alignment(source: Array, target: Array, kind: Alignment) -> tuple[float, Array, Array]:
    """Return (scale, rotation (3, 3), shift (3,)) that moves positions `source` (n, 3) onto `target`."""
    if kind == "none":
        return 1.0, np.eye(3), np.zeros(3)
    if kind not in ("se3", "sim3"):
        raise OptionError(f"align is '{kind}', expected none, se3 or sim3.")
    mean_source, mean_target = source.mean(axis=0), target.mean(axis=0)
    centred = source - mean_source
    left, strength, right = np.linalg.svd((target - mean_target).T @ centred / len(source))
    # A reflection would fit mirrored positions better than any rotation; the sign keeps it out.
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    rotation = left * sign @ right
    variance = (centred**2).sum() / len(source)
    scale = float(strength @ sign / variance) if kind == "sim3" and variance > 0.0 else 1.0
    return scale, rotation, mean_target - scale * rotation @ mean_source


def match_by_time(
    estimate_times: Array, reference_times: Array, tolerance: float = 0.01
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of both trajectories whose times [s] are nearest to each other and within `tolerance`.

    Both arrays ascend. Every row occurs at most once.
    """
    right = np.searchsorted(reference_times, estimate_times).clip(1, max(len(reference_times) - 1, 1))
    before = np.abs(estimate_times - reference_times[right - 1])
    after = np.abs(estimate_times - reference_times[np.minimum(right, len(reference_times) - 1)])
    nearest = np.where(before <= after, right - 1, right)
    gap = np.minimum(before, after)
    # Of several estimates at one reference the nearest wins.
    order = np.lexsort((gap, nearest))
    first = np.concatenate([[True], np.diff(nearest[order]) != 0])
    chosen = np.sort(order[first])
    chosen = chosen[gap[chosen] <= tolerance]
    return chosen, nearest[chosen]


def _relative(estimate: Array, reference: Array, delta: int) -> tuple[Array, Array]:
    steps = [SE3(poses[:-delta]).inverse() * SE3(poses[delta:]) for poses in (estimate, reference)]
    error = steps[1].inverse() * steps[0]
    return np.linalg.norm(error.translation, axis=-1), np.linalg.norm(SO3(error.quaternion).log(), axis=-1)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
