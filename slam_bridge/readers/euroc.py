"""Readers of visual-inertial data sets: the ASL folder layout of EuRoC, and TUM-VI, which has the same files.

    imu0/data.csv                          stamp [ns], gyro x y z [rad/s], acc x y z [m/s^2]
    state_groundtruth_estimate0/data.csv   stamp [ns], p x y z [m], q w x y z, v x y z [m/s], b_g (3), b_a (3)
    mocap0/data.csv (TUM-VI)               stamp [ns], p x y z [m], q w x y z

Stamps are nanoseconds since 1970 and need all 64 bits. Lines that start with # are comments. Files may be
packed (.gz, .bz2, .xz).
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

import numpy as np

from graphopt.errors import FormatError
from graphopt.io.files import read_bytes
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
    stamps, values = _read_table(path, (6,))
    return ImuSamples(stamps, values[:, :3], values[:, 3:])


def read_states(path: PathLike) -> StateTable:
    """Ground truth of EuRoC (17 columns) or TUM-VI (8 columns); quaternions w x y z become x y z w."""
    stamps, values = _read_table(path, (7, 16))
    length = np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
    if not (np.abs(length - 1.0) < 1e-2).all():
        row = int(np.argmax(np.abs(length[:, 0] - 1.0)))
        raise FormatError(
            f"{os.fspath(path)}: the quaternion at {stamps[row]} ns has length {length[row, 0]:.4f}, "
            "expected 1. Columns are p (3), q as w x y z (4)."
        )
    q = values[:, 3:7] / length
    poses = np.concatenate([values[:, :3], q[:, 1:], q[:, :1]], axis=1)
    if values.shape[1] == 7:
        return StateTable(stamps, poses, None, None, None)
    return StateTable(stamps, poses, values[:, 7:10], values[:, 10:13], values[:, 13:16])


def _read_table(path: PathLike, widths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Stamps (n,) int64 and the other columns (n, width)."""
    data, name = read_bytes(path), os.fspath(path)
    first = next((line for line in data.splitlines() if line.strip() and not line.startswith(b"#")), None)
    if first is None:
        raise FormatError(f"{name}: holds no samples, only comments and blank lines.")
    width = first.count(b",")
    if width not in widths:
        raise FormatError(
            f"{name}: the first line of numbers has {width + 1} columns separated by commas, "
            f"expected {' or '.join(str(each_width + 1) for each_width in widths)}."
        )
    columns = [("stamp", np.int64), ("values", np.float64, (width,))]
    try:
        table = np.loadtxt(io.BytesIO(data), dtype=columns, delimiter=",", comments="#", ndmin=1)
    except ValueError as error:
        lines = enumerate(data.splitlines(), 1)
        bad = [k for k, line in lines if line.strip() and line[:1] != b"#" and line.count(b",") != width]
        what = f"line {bad[0]} has not {width + 1} columns as the first" if bad else str(error)
        raise FormatError(f"{name}: {what}. Is the file complete?") from error
    return table["stamp"], table["values"]
