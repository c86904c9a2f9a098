"""Samples and noise of an inertial measurement unit.

    gyro = omega + b_g + n_g                 omega: turn rate of the body, in its frame        [rad/s]
    acc  = R' (a - g) + b_a + n_a            a: acceleration in the world, g = (0, 0, -9.81)   [m/s^2]

n_g, n_a are white with the densities of `ImuNoise`; the biases are random walks (Forster et al., TRO 2017,
equations 27, 28 and 46 to 48).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError, OptionError, ShapeError

GRAVITY = np.array([0.0, 0.0, -9.81])
"""Gravity [m/s^2] in a world with z up."""
GRAVITY.setflags(write=False)


class ImuDataError(GraphOptError, ValueError):
    """The samples do not cover what was asked of them."""


@dataclass(frozen=True)
class ImuNoise:
    """Continuous-time noise of an IMU. Defaults: the ADIS16448 of EuRoC's `imu0/sensor.yaml`."""

    gyro_density: float = 1.6968e-4
    """[rad/s/sqrt(Hz)]."""
    acc_density: float = 2.0e-3
    """[m/s^2/sqrt(Hz)]."""
    gyro_bias_density: float = 1.9393e-5
    """Random walk of the gyroscope's bias [rad/s^2/sqrt(Hz)]."""
    acc_bias_density: float = 3.0e-3
    """Random walk of the accelerometer's bias [m/s^3/sqrt(Hz)]."""
    integration_density: float = 1.0e-6
    """Error of integrating positions in steps [m/s/sqrt(Hz)]; keeps the covariance of one step regular."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value > 0.0):
                raise OptionError(f"ImuNoise.{name} is {value}, must be positive and finite.")

    def scaled(self, factor: float) -> ImuNoise:
        """All densities times a factor. Pipelines trust real sensors less than their data sheets."""
        return ImuNoise(**{name: factor * value for name, value in vars(self).items()})


@dataclass(frozen=True, eq=False)
class ImuSamples:
    """Samples in order of time."""

    stamps: np.ndarray
    """(n,) int64 [ns], strictly ascending."""
    gyro: np.ndarray
    """(n, 3) turn rate in the body's frame [rad/s]."""
    acc: np.ndarray
    """(n, 3) specific force in the body's frame [m/s^2]."""

    def __post_init__(self) -> None:
        stamps = np.asarray(self.stamps)
        if stamps.ndim != 1 or stamps.dtype.kind != "i":
            raise ShapeError(
                f"ImuSamples.stamps has shape {stamps.shape} and type {stamps.dtype}, expected (n,) int64 "
                "nanoseconds. ImuSamples.from_seconds takes float seconds."
            )
        object.__setattr__(self, "stamps", stamps.astype(np.int64))
        for name in ("gyro", "acc"):
            values = np.asarray(getattr(self, name), dtype=float)
            if values.shape != (len(stamps), 3):
                raise ShapeError(f"ImuSamples.{name} has shape {values.shape}, expected ({len(stamps)}, 3).")
            if not np.isfinite(values).all():
                raise ImuDataError(f"ImuSamples.{name} holds NaN or infinity; leave such samples out.")
            object.__setattr__(self, name, values)
        late = np.flatnonzero(np.diff(self.stamps) <= 0)
        if len(late):
            raise ImuDataError(
                f"ImuSamples.stamps do not ascend: sample {late[0] + 1} at {self.stamps[late[0] + 1]} ns "
                f"follows {self.stamps[late[0]]} ns. Sort the samples and drop repeated ones."
            )

    @classmethod
    def from_seconds(cls, times: Any, gyro: Any, acc: Any) -> ImuSamples:
        """Samples with times (n,) in seconds, rounded to nanoseconds."""
        return cls(np.rint(np.asarray(times, dtype=float) * 1e9).astype(np.int64), gyro, acc)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def steps(self) -> np.ndarray:
        """(n - 1,) times between samples [s]."""
        return np.diff(self.stamps) * 1e-9

    def between(self, start: int, end: int, max_gap: float = 0.1) -> ImuSamples:
        """Samples from start to end [ns]; those at both ends are interpolated linearly.

        max_gap [s]: a longer pause between two samples is an `ImuDataError`, as are ends outside the samples.
        """
        start, end = int(start), int(end)
        if not start < end:
            raise ImuDataError(f"interval {start} to {end} ns is empty: the end must be after the start.")
        if len(self) == 0 or start < self.stamps[0] or end > self.stamps[-1]:
            covered = f"{self.stamps[0]} to {self.stamps[-1]} ns" if len(self) else "nothing"
            raise ImuDataError(f"interval {start} to {end} ns is not covered: the samples hold {covered}.")
        first = int(np.searchsorted(self.stamps, start, side="right"))
        last = int(np.searchsorted(self.stamps, end, side="left"))
        stamps = np.concatenate([[start], self.stamps[first:last], [end]])
        held = slice(first - 1, last + 1)
        longest = float(np.diff(self.stamps[held]).max()) * 1e-9
        if longest > max_gap:
            raise ImuDataError(
                f"interval {start} to {end} ns: {longest:.3f} s without a sample, allowed are {max_gap} s "
                "(max_gap). Do not link the states on both sides by an IMU factor."
            )
        # differences of stamps are exact; nanoseconds since 1970 in float64 are not
        known, wanted = (self.stamps[held] - start).astype(float), (stamps - start).astype(float)
        gyro, acc = (
            np.stack([np.interp(wanted, known, column) for column in values[held].T], axis=-1)
            for values in (self.gyro, self.acc)
        )
        return ImuSamples(stamps, gyro, acc)
