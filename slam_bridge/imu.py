"""Samples and noise of an inertial measurement unit.

    gyro = omega + b_g + n_g                 omega: turn rate of the body, in its frame        [rad/s]
    acc  = R' (a - g) + b_a + n_a            a: acceleration in the world, g = (0, 0, -9.81)   [m/s^2]

n_g, n_a are white with the densities of `ImuNoise`; the biases are random walks (Forster et al., TRO 2017,
equations 27, 28 and 46 to 48).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError, OptionError, ShapeError

GRAVITY = np.array([0.0, 0.0, -9.81])
"""Gravity [m/s^2] in a world with z up."""
GRAVITY.setflags(write=False)


def gravity_of(magnitude: float) -> np.ndarray:
    """Gravity (3,) [m/s^2] of a place where it has this magnitude, in a world with z up."""
    if not 9.0 < magnitude < 10.0:
        raise OptionError(
            f"gravity magnitude is {magnitude}, expected 9.0 to 10.0 m/s^2 (9.78 to 9.83 on Earth)."
        )
    return np.array([0.0, 0.0, -magnitude])


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
class ImuCalibration:
    """Scale, misalignment and sensitivity of an IMU, Kalibr's `scale-misalignment` model.

    gyro_raw = gyro_matrix omega + gyro_D_acc a + b_g,     acc_raw = acc_matrix a + b_a
    """

    gyro_matrix: np.ndarray = field(default_factory=lambda: np.eye(3))
    """(3, 3); Kalibr: gyroscopes M C_gyro_i."""
    acc_matrix: np.ndarray = field(default_factory=lambda: np.eye(3))
    """(3, 3); Kalibr: accelerometers M."""
    gyro_D_acc: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    """(3, 3) [rad s/m]; Kalibr: gyroscopes A C_gyro_i."""

    def __post_init__(self) -> None:
        for name in ("gyro_matrix", "acc_matrix", "gyro_D_acc"):
            matrix = np.array(getattr(self, name), float)
            if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
                raise ShapeError(f"ImuCalibration.{name} has shape {matrix.shape}, expected finite (3, 3).")
            if name != "gyro_D_acc" and abs(np.linalg.det(matrix)) < 0.1:
                raise OptionError(
                    f"ImuCalibration.{name} has determinant {np.linalg.det(matrix):.3g}: no sensor scales by "
                    "that. Near 1 is expected; what Kalibr calls M, not its inverse or its errors."
                )
            object.__setattr__(self, name, matrix)

    def corrected(self, samples: ImuSamples) -> ImuSamples:
        """Samples of a sensor without these errors; biases then are those of the corrected sensor."""
        acc = samples.acc @ np.linalg.inv(self.acc_matrix).T
        gyro = (samples.gyro - acc @ self.gyro_D_acc.T) @ np.linalg.inv(self.gyro_matrix).T
        return ImuSamples(samples.stamps, gyro, acc)


@dataclass(frozen=True)
class ImuTidied:
    """What `ImuSamples.tidy` left out or moved."""

    unsorted: int
    """Samples that came before their predecessor."""
    duplicates: int
    """Left out: their stamp was there already."""
    non_finite: int
    """Left out: NaN or infinity."""


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
        if stamps.ndim != 1 or stamps.dtype.kind not in "iu":
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
        seconds = np.asarray(times, dtype=float)
        bad = ~(np.abs(seconds) < 9e9)
        if bad.any():
            raise ImuDataError(
                f"ImuSamples.from_seconds: time {int(np.argmax(bad))} is {seconds[bad][0]}, expected finite "
                "seconds below 9e9. ImuSamples takes nanoseconds."
            )
        return cls(np.rint(seconds * 1e9).astype(np.int64), gyro, acc)

    @classmethod
    def tidy(cls, stamps: Any, gyro: Any, acc: Any) -> tuple[ImuSamples, ImuTidied]:
        """Samples of a recording that is not in order: sorted, repeated and non-finite ones left out.

        stamps (n,) int64 [ns], gyro (n, 3), acc (n, 3). Of samples with one stamp the first is kept.
        """
        stamps = np.asarray(stamps)
        values = [np.asarray(values, float) for values in (gyro, acc)]
        if stamps.dtype.kind not in "iu" or any(value.shape != (len(stamps), 3) for value in values):
            raise ShapeError(
                f"ImuSamples.tidy got stamps of type {stamps.dtype} and shapes "
                f"{[value.shape for value in values]}, expected int64 nanoseconds and "
                f"({len(stamps)}, 3) twice."
            )
        stamps = stamps.astype(np.int64)
        finite = np.isfinite(values[0]).all(axis=1) & np.isfinite(values[1]).all(axis=1)
        late = int(np.count_nonzero(np.diff(stamps) < 0))
        kept = np.flatnonzero(finite)
        kept = kept[np.argsort(stamps[kept], kind="stable")]
        fresh = np.concatenate([[True], np.diff(stamps[kept]) > 0])[: len(kept)]
        report = ImuTidied(late, int(np.count_nonzero(~fresh)), int(np.count_nonzero(~finite)))
        kept = kept[fresh]
        return cls(stamps[kept], values[0][kept], values[1][kept]), report

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def steps(self) -> np.ndarray:
        """(n - 1,) times between samples [s]."""
        return np.diff(self.stamps) * 1e-9

    def joined(self, later: ImuSamples) -> ImuSamples:
        """These samples and later ones; the one that both have, at the joint, once."""
        first = int(len(self) > 0 and len(later) > 0 and self.stamps[-1] == later.stamps[0])
        return ImuSamples(
            np.concatenate([self.stamps, later.stamps[first:]]),
            np.concatenate([self.gyro, later.gyro[first:]]),
            np.concatenate([self.acc, later.acc[first:]]),
        )

    def saturated(self, gyro_range: float = np.inf, acc_range: float = np.inf) -> np.ndarray:
        """(n,) bool: a component reaches the sensor's range [rad/s, m/s^2]."""
        reached = (np.abs(self.gyro) >= gyro_range) | (np.abs(self.acc) >= acc_range)
        return np.asarray(reached.any(axis=1))

    def refuse_saturated(self, gyro_range: float = np.inf, acc_range: float = np.inf) -> ImuSamples:
        """These samples; `ImuDataError` where one reaches the sensor's range [rad/s, m/s^2]."""
        bad = np.flatnonzero(self.saturated(gyro_range, acc_range))
        if len(bad):
            k = bad[0]
            raise ImuDataError(
                f"{len(bad)} of {len(self)} samples are saturated, the first at {self.stamps[k]} ns: gyro "
                f"{self.gyro[k]} rad/s, acc {self.acc[k]} m/s^2; the ranges are {gyro_range} and "
                f"{acc_range}. The true motion is unknown there: do not link the states "
                "on both sides by an IMU factor."
            )
        return self

    def between_or_none(self, start: int, end: int, max_gap: float = 0.1) -> ImuSamples | None:
        """As `between`; None where it would refuse because samples are missing."""
        try:
            return self.between(start, end, max_gap)
        except ImuDataError:
            return None

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
        if not longest <= max_gap:
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
