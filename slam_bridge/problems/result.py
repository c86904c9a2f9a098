"""What every optimization of a map returns: what changed, who was rejected, chi2 by edge set, covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphopt
from slam_bridge.map import Map
from slam_bridge.options import is_usable

Covariances = dict[tuple[str, int], np.ndarray]


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class States:
    """States of k keyframes."""

    ids: np.ndarray = field(default_factory=_none)
    """(k,) int64."""
    world_T_body: np.ndarray = field(default_factory=lambda: np.zeros((0, 7)))
    """(k, 7)."""
    velocity: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(k, 3) in the world [m/s]."""
    gyro_bias: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(k, 3) [rad/s]."""
    acc_bias: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(k, 3) [m/s^2]."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Result:
    """Result of one optimization. Arrays are those of the problem, ids those of the map."""

    problem: str
    """Name of the function."""
    summary: graphopt.Summary
    """Of the last optimization that ran."""
    keyframes: States = field(default_factory=States)
    """States that were free, as found."""
    landmarks: np.ndarray = field(default_factory=_none)
    """(m,) ids of the landmarks that were free."""
    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(m, 3) as found [m]."""
    observations: np.ndarray = field(default_factory=_none)
    """(o,) ids."""
    inliers: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """(o,) bool: of these observations."""
    observation_chi2: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(o,) without robust kernel, at the result; infinite where the camera's model does not hold."""
    chi2: dict[str, float] = field(default_factory=dict)
    """Robustified chi2 of each edge set by tag, outliers left out."""
    rejected: dict[str, np.ndarray] = field(default_factory=dict)
    """Ids of what was left out, by reason: "behind camera", "chi2" (observations), "imu", "loop",
    "landmark without inliers" (their places stay as they were), "keyframe without inliers" (or so few
    that chance may have made them; its pose stays, unless IMU, a measured pose or a prior knows it)."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, and "total"."""
    rounds: int = 1
    """Optimizations that ran."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What only some problems have; their docstrings say what. Of bundle adjustments "placed anew": ids of
    landmarks that went astray and were triangulated again; "unshared": free keyframes none of whose inliers
    is of a landmark that another keyframe sees: IMU measurements alone, if any, say where they are."""
    refused: str = ""
    """Why the problem was not solved, in a sentence; the map is as it was."""
    covariance_of: Callable[[list[tuple[str, int]]], Covariances] | None = None
    writer: Callable[[Map], None] | None = None
    """See `write_to`."""

    def write_to(self, world: Map) -> None:
        """Write what was found into the map, where it still has it, in one step.

        What `SolveOptions.update` does at once, for callers that choose the moment. Raises `OptionError` of
        a result that is not usable, or of a problem that has no map.
        """
        if self.writer is None or not self.is_usable:
            raise graphopt.errors.OptionError(f"{self.problem} has nothing to write. {self.refused}".strip())
        self.writer(world)

    @property
    def is_usable(self) -> bool:
        """The estimate is an optimization's result and finite; one that a time limit or the flag ended is."""
        return is_usable(self.summary) and not self.refused

    @property
    def num_inliers(self) -> int:
        """Inliers among the observations."""
        return int(np.count_nonzero(self.inliers))

    def covariance(
        self, keyframes: Iterable[int] = (), landmarks: Iterable[int] = (), cameras: Iterable[int] = ()
    ) -> Covariances:
        """Marginal covariances at the result, computed now: ("keyframe", id) -> (6, 6) or (15, 15).

        Of a keyframe: position (in the body's frame), rotation (half angles, in the body's frame), and with
        inertial states velocity, biases of gyroscope and accelerometer, if an IMU measurement that was not
        rejected or a prior knows them; ("landmark", id) -> (3, 3); ("camera", number): of what was
        estimated of mounting (position and half angles in the camera's frame), intrinsics and time offset.
        Raises `SolverError` where the problem leaves a direction open.
        """
        if self.covariance_of is None:
            raise graphopt.errors.OptionError(f"{self.problem} has no covariances.")
        wanted = [("keyframe", int(keyframe)) for keyframe in keyframes] + [
            ("landmark", int(landmark)) for landmark in landmarks
        ]
        wanted += [("camera", int(camera)) for camera in cameras]
        return self.covariance_of(wanted)

    def report(self) -> str:
        """One line."""
        rejected = ", ".join(f"{len(ids)} {reason}" for reason, ids in self.rejected.items() if len(ids))
        unshared = len(self.extra.get("unshared", ()))
        return (
            f"{self.problem}: {len(self.keyframes)} keyframes, {len(self.landmarks)} landmarks, "
            f"{self.num_inliers} of {len(self.observations)} observations are inliers"
            + (f", rejected: {rejected}" if rejected else "")
            + (f", no shared landmarks: {unshared} keyframes" if unshared else "")
            + (f". {self.refused}" if self.refused else "")
            + f"; {self.summary.brief_report()}"
        )
