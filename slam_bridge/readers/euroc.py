"""Readers of visual-inertial data sets: the ASL folder layout of EuRoC, and TUM-VI, which has the same files.

    imu0/data.csv                          stamp [ns], gyro x y z [rad/s], acc x y z [m/s^2]
    state_groundtruth_estimate0/data.csv   stamp [ns], p x y z [m], q w x y z, v x y z [m/s], b_g (3), b_a (3)
    mocap0/data.csv (TUM-VI)               stamp [ns], p x y z [m], q w x y z

Stamps are nanoseconds since 1970 and need all 64 bits. Lines that start with # are comments. Files may be
packed (.gz, .bz2, .xz).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from graphopt.io.trajectory import read_euroc, read_stamped
from slam_bridge.imu import ImuDataError, ImuSamples

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class StateTable:
    """States over time, of a ground truth or of an estimate."""

    stamps: np.ndarray
    """(n,) int64 [ns]."""
    world_T_body: np.ndarray
    """(n, 7) x, y, z, qx, qy, qz, qw."""
    velocity: np.ndarray | None
    """(n, 3) in the world's frame [m/s]; None if the file has poses only."""
    gyro_bias: np.ndarray | None
    """(n, 3) [rad/s]."""
    acc_bias: np.ndarray | None
    """(n, 3) [m/s^2]."""

    def __len__(self) -> int:
        return len(self.stamps)

    def nearest(self, stamps: np.ndarray, tolerance: int = 2_500_000) -> np.ndarray:
        """Rows nearest to stamps [ns]; `ImuDataError` where none is within the tolerance [ns]."""
        instants = np.asarray(stamps, np.int64)
        if len(self) == 0:
            raise ImuDataError("the table of states is empty.")
        after = np.clip(np.searchsorted(self.stamps, instants), 1, max(len(self) - 1, 1))
        pair = np.stack([after - 1, np.minimum(after, len(self) - 1)])
        distance = np.abs(self.stamps[pair] - instants)
        rows = np.take_along_axis(pair, distance.argmin(axis=0)[None], axis=0)[0]
        far = np.flatnonzero(distance.min(axis=0) > tolerance)
        if len(far):
            raise ImuDataError(
                f"no state within {tolerance} ns of {instants[far[0]]} ns: the nearest is at "
                f"{self.stamps[rows[far[0]]]} ns ({len(far)} of {len(instants)} stamps are too far)."
            )
        return rows


def read_imu(path: PathLike) -> ImuSamples:
    """IMU samples of EuRoC's and TUM-VI's imu0/data.csv."""
    stamps, values = read_stamped(path, (6,))
    return ImuSamples(stamps, values[:, :3], values[:, 3:])


def read_samples(path: PathLike) -> tuple[ImuSamples, tuple[str, ...]]:
    """Samples as `read_imu`; those out of order, repeated or not finite are mended or left out, and said."""
    stamps, values = read_stamped(path, (6,))
    is_finite = np.isfinite(values).all(axis=1)
    order = np.argsort(stamps[is_finite], kind="stable")
    kept = stamps[is_finite][order]
    is_new = np.concatenate([[True], np.diff(kept) > 0])[: len(kept)]
    rows = np.flatnonzero(is_finite)[order[is_new]]
    counts = {
        "NaN or infinity were left out": int((~is_finite).sum()),
        "a stamp that was there already were left out": int((~is_new).sum()),
        "a stamp before the last one were sorted": int((np.diff(stamps[is_finite]) < 0).sum()),
    }
    notes = tuple(f"{count} samples of {path} with {what}" for what, count in counts.items() if count)
    return ImuSamples(stamps[rows], values[rows, :3], values[rows, 3:]), notes


def read_states(path: PathLike) -> StateTable:
    """Ground truth of EuRoC (17 columns) or TUM-VI (8 columns); see `graphopt.io.trajectory.read_euroc`."""
    stamps, poses, rest = read_euroc(path, (7, 16))
    if not rest.shape[1]:
        return StateTable(stamps, poses, None, None, None)
    return StateTable(stamps, poses, rest[:, :3], rest[:, 3:6], rest[:, 6:])
