"""Continuous-time trajectories: quintic B-splines for position and rotation, with analytic derivatives.

    p(t) = sum_k c_k B_k(t)              velocity p', acceleration p''
    s(t) = sum_k d_k B_k(t) in R^4,      q(t) = s / |s|
    omega = 2 vec(conj(s) s') / |s|^2    turn rate in the body's frame: the part of s' along s drops out
    omega' = 2 vec(conj(s) s'') / |s|^2 - 2 omega (s . s') / |s|^2

Both splines are four times continuously differentiable, so that simulated rates and specific forces are
smooth. `Trajectory.fit` passes them through given poses by least squares; uniform knots, which are the
bandwidth: motion faster than about 1 / (2 knot_spacing) Hz is left out, noise of a motion capture with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import BSpline, make_lsq_spline

from graphopt.errors import GraphOptError
from graphopt.geometry import SO3, quaternion

DEGREE = 5
KNOT_SPACING = 0.1
"""Default [s]; not below 2.5 samples of the poses that are fitted."""
MAX_GAP = 1.0
"""Longest pause between two poses that is bridged [s]."""


class TrajectoryError(GraphOptError, ValueError):
    """Poses that no trajectory passes through, or a time outside of one."""


@dataclass(frozen=True, eq=False)
class Motion:
    """States of a trajectory at n times."""

    stamps: np.ndarray
    """(n,) int64 [ns]."""
    world_T_body: np.ndarray
    """(n, 7) x, y, z, qx, qy, qz, qw."""
    velocity: np.ndarray
    """(n, 3) in the world [m/s]."""
    acceleration: np.ndarray
    """(n, 3) in the world [m/s^2], without gravity."""
    rate: np.ndarray
    """(n, 3) turn rate in the body [rad/s]."""
    angular_acceleration: np.ndarray
    """(n, 3) derivative of `rate` [rad/s^2]."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A smooth motion of a body."""

    start: int
    """Stamp of its begin [ns]."""
    duration: float
    """[s]."""
    position: BSpline
    """Of the seconds since the begin, (3,) in the world [m]."""
    rotation: BSpline
    """Of the seconds since the begin, (4,) world_R_body, a quaternion x, y, z, w of any length."""
    source: str = ""
    """Where it comes from, in words."""
    deviation: tuple[float, float] = (0.0, 0.0)
    """Root mean square distance from the poses that were fitted [m, rad]."""

    @property
    def end(self) -> int:
        """Stamp of its end [ns]."""
        return self.start + int(np.floor(self.duration * 1e9))

    @classmethod
    def fit(cls, stamps: Any, world_T_body: Any, source: str = "") -> Trajectory:
        """The trajectory nearest to poses (n, 7) at stamps (n,) int64 [ns], ascending.

        Raises `TrajectoryError` for fewer than 12 poses, stamps that do not ascend, and pauses of more than
        `MAX_GAP`; shorter ones are bridged by straight motion.
        """
        times, poses = _checked(stamps, world_T_body)
        step = float(np.median(np.diff(times)))
        spacing = max(KNOT_SPACING, 2.5 * step)
        dense_times, dense = _bridged(times, poses, spacing)
        count = max(int(np.floor(times[-1] / spacing)), 1)
        knots = np.concatenate(
            [np.zeros(DEGREE), np.linspace(0.0, times[-1], count + 1), np.full(DEGREE, times[-1])]
        )
        if len(dense) < len(knots):
            raise TrajectoryError(f"{len(poses)} poses over {times[-1]:.2f} s are too few for a trajectory.")
        position = make_lsq_spline(dense_times, dense[:, :3], knots, DEGREE)
        rotation = make_lsq_spline(dense_times, dense[:, 3:], knots, DEGREE)
        fitted = cls(int(np.asarray(stamps)[0]), float(times[-1]), position, rotation, source)
        return cls(fitted.start, fitted.duration, position, rotation, source, fitted._deviation(times, poses))

    def _deviation(self, times: np.ndarray, poses: np.ndarray) -> tuple[float, float]:
        away = np.linalg.norm(self.position(times) - poses[:, :3], axis=1)
        rotations = SO3(quaternion.normalize(self.rotation(times)))
        turned = np.linalg.norm((rotations.inverse() * SO3(poses[:, 3:])).log(), axis=1)
        return float(np.sqrt(np.mean(away**2))), float(np.sqrt(np.mean(turned**2)))

    def at(self, stamps: Any) -> Motion:
        """States at stamps (n,) int64 [ns]; `TrajectoryError` outside of the trajectory."""
        instants = np.atleast_1d(np.asarray(stamps, np.int64))
        times = (instants - self.start) * 1e-9
        if len(times) and not (times.min() >= -1e-9 and times.max() <= self.duration + 1e-9):
            raise TrajectoryError(
                f"stamps from {instants.min()} to {instants.max()} ns; the trajectory lasts from "
                f"{self.start} to {self.end} ns."
            )
        times = np.clip(times, 0.0, self.duration)
        s, s1, s2 = (self.rotation(times, order) for order in range(3))
        squared = np.sum(s * s, axis=1, keepdims=True)
        inverse = quaternion.conjugate(s)
        rate = 2.0 * quaternion.multiply(inverse, s1)[:, :3] / squared
        along = np.sum(s * s1, axis=1, keepdims=True) / squared
        turning = 2.0 * quaternion.multiply(inverse, s2)[:, :3] / squared - 2.0 * along * rate
        poses = np.concatenate([self.position(times), s / np.sqrt(squared)], axis=1)
        return Motion(instants, poses, self.position(times, 1), self.position(times, 2), rate, turning)

    def stamps(self, rate: float, start: float = 0.0, seconds: float | None = None) -> np.ndarray:
        """Stamps (n,) int64 [ns] at a rate [Hz], from `start` [s] after the begin, for some seconds.

        Times are whole multiples of the period after the begin, so that those of several rates coincide.
        """
        period = round(1e9 / rate)
        first = int(np.ceil(round(start * 1e9) / period))
        last = self.end - self.start if seconds is None else round((start + seconds) * 1e9)
        if last > self.end - self.start or first * period > last:
            raise TrajectoryError(
                f"{start} s and then {seconds} s were asked for; the trajectory ({self.source}) lasts "
                f"{self.duration:.3f} s."
            )
        return self.start + period * np.arange(first, last // period + 1, dtype=np.int64)

    @property
    def length(self) -> float:
        """Length of the path [m]."""
        times = np.linspace(0.0, self.duration, max(int(50 * self.duration), 2))
        return float(np.linalg.norm(np.diff(self.position(times), axis=0), axis=1).sum())


def _checked(stamps: Any, world_T_body: Any) -> tuple[np.ndarray, np.ndarray]:
    """Seconds since the first pose, and poses whose quaternions are unit and change sign nowhere."""
    given, poses = np.asarray(stamps), np.array(world_T_body, float)
    if given.dtype.kind not in "iu" or poses.shape != (len(given), 7) or len(given) < 12:
        raise TrajectoryError(
            f"fit got stamps of shape {given.shape} and type {given.dtype} and poses of shape {poses.shape}; "
            "expected n >= 12 int64 nanoseconds and (n, 7)."
        )
    if not np.isfinite(poses).all():
        raise TrajectoryError(f"pose {int(np.argmax(~np.isfinite(poses).all(axis=1)))} is not finite.")
    late = np.flatnonzero(np.diff(given.astype(np.int64)) <= 0)
    if len(late):
        raise TrajectoryError(f"stamps do not ascend: {given[late[0] + 1]} ns follows {given[late[0]]} ns.")
    times = (given.astype(np.int64) - int(given[0])) * 1e-9
    pause = int(np.argmax(np.diff(times)))
    if np.diff(times)[pause] > MAX_GAP:
        raise TrajectoryError(
            f"the poses pause for {np.diff(times)[pause]:.2f} s after {given[pause]} ns; at most {MAX_GAP} s "
            "can be bridged. Cut the file there, or give one that is complete."
        )
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    flips = np.sum(poses[1:, 3:] * poses[:-1, 3:], axis=1) < 0.0
    poses[1:, 3:] *= np.where(np.cumsum(flips) % 2 == 1, -1.0, 1.0)[:, None]
    return times, poses


def _bridged(times: np.ndarray, poses: np.ndarray, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """The poses, and in each pause longer than a third of a knot's spacing some on the straight way."""
    parts = [times]
    for k in np.flatnonzero(np.diff(times) > spacing / 3.0):
        parts.append(
            np.linspace(times[k], times[k + 1], int(3.0 * (times[k + 1] - times[k]) / spacing) + 2)[1:-1]
        )
    dense = np.sort(np.concatenate(parts))
    rows = np.stack([np.interp(dense, times, column) for column in poses.T], axis=1)
    rows[:, 3:] /= np.linalg.norm(rows[:, 3:], axis=1, keepdims=True)
    return dense, rows
