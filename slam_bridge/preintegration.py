"""Preintegration of IMU samples between two states: Forster et al., TRO 2017 (numbers are its equations).

    dR = prod Exp(omega_k dt)         dv = sum a_k dt         dp = sum dv_k dt + a_k dt^2 / 2         (33)

with the bias-free rate omega_k and a_k in the frame of the first state. Two rules say what a step sees:

    midpoint   omega_k, acc_k: means of the two samples around the step; a_k = dR_k Exp(omega_k dt / 2) acc_k.
               The error falls with dt^2.
    constant   the first of the two samples is held; a_k = dR_k acc_k: the paper's rule, and GTSAM's.

How a disturbance of omega_k and acc_k in step k arrives at the end is known in closed form. It turns what
comes after by theta = dR_{k+1} Jr dt, so with tau the time left after the step and [.] the vector product,

    dR: dR' theta      dv: -[dv - dv_{k+1}] theta      dp: -[dp - dp_{k+1} - dv_{k+1} tau] theta

plus, by the midpoint rule, the half turn within its own step; acc_k adds dR_k dt to dv and
dR_k dt (tau + dt / 2) to dp. These 9 x 6 matrices G_k give everything, without a loop over samples:

    bias Jacobians   J = -sum G_k                                    (44), appendix B; exact for these sums
    covariance       sum G_k diag(sigma_g^2, sigma_a^2) G_k' / dt    (42, 43), appendix A
    bias walks       the walk of step k disturbs all later ones by W_k = -sum_{l > k} G_l, and itself:
                     sum (W_k; I) diag(sigma_bg^2, sigma_ba^2) dt (W_k; I)'    the last 6 of 15 rows

Order: rotation (in the frame of the second state), velocity, position, bias of gyroscope, of accelerometer.
All intervals of a call are integrated by all threads (`native/src/inertial/preintegrate.cpp`).
`Preintegrator` takes samples one by one instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SO3, skew
from graphopt.geometry.so3 import exp_coefficients
from graphopt.types.inertial import FIELDS, InertialMeasurement
from slam_bridge.imu import GRAVITY, ImuDataError, ImuNoise, ImuSamples
from slam_bridge.single_pose import rotation_matrix, unit_quaternion

RULES = ("midpoint", "constant")


@dataclass(frozen=True, eq=False)
class Preintegrated:
    """What the samples between two states say about the motion, integrated with given biases."""

    samples: ImuSamples
    """Kept for integrating again."""
    noise: ImuNoise
    dt: float
    """[s]."""
    gyro_bias: np.ndarray
    """(3,) [rad/s]."""
    acc_bias: np.ndarray
    """(3,) [m/s^2]."""
    delta_rotation: np.ndarray
    """(4,) quaternion x, y, z, w of R_i' R_j."""
    delta_velocity: np.ndarray
    """(3,) R_i' (v_j - v_i - g dt) [m/s]."""
    delta_position: np.ndarray
    """(3,) R_i' (p_j - p_i - v_i dt - g dt^2 / 2) [m]."""
    delta_D_bias: np.ndarray
    """(9, 6): rotation, velocity, position by gyro_bias, acc_bias."""
    covariance: np.ndarray
    """(9, 9) of rotation, velocity, position from the white noise: the biases do not walk."""
    combined_covariance: np.ndarray
    """(15, 15) with the walk of both biases in the last six rows, coupled."""
    rule: str = "midpoint"
    """How it was integrated, see `RULES`."""

    @cached_property
    def information(self) -> np.ndarray:
        """(9, 9) inverse of the covariance."""
        return inverse_of_covariance(self.covariance)

    @cached_property
    def combined_information(self) -> np.ndarray:
        """(15, 15) inverse of the combined covariance."""
        return combined_informations([self])[0]

    def measurement(self, gravity: Any = GRAVITY) -> np.ndarray:
        """(65,) measurement of EdgeInertial, EdgeInertialCombined and EdgeInertialGravityScale."""
        parts = [self.delta_D_bias[rows, columns] for rows, columns in _BIAS_PLACES.values()]
        known = dict(zip(_BIAS_PLACES, parts, strict=True))
        known["gravity"] = np.asarray(gravity, float)
        values = [known[name] if name in known else getattr(self, name) for name in FIELDS]
        return np.concatenate([np.ravel(value) for value in values])

    def corrected(self, gyro_bias: Any, acc_bias: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(delta_rotation, delta_velocity, delta_position) for other biases, to first order (44)."""
        measured = InertialMeasurement(self.measurement())
        return measured.corrected(np.asarray(gyro_bias, float), np.asarray(acc_bias, float))

    def reintegrated(self, gyro_bias: Any, acc_bias: Any) -> Preintegrated:
        """The same samples integrated with other biases."""
        return reintegrate([self], gyro_bias, acc_bias)[0]

    def is_far(
        self, gyro_bias: Any, acc_bias: Any, gyro_tolerance: float = 0.01, acc_tolerance: float = 0.1
    ) -> bool:
        """True if the biases [rad/s, m/s^2] moved so far that the first order should not be trusted."""
        d_g, d_a = self.gyro_bias - gyro_bias, self.acc_bias - acc_bias
        return bool(d_g @ d_g > gyro_tolerance**2 or d_a @ d_a > acc_tolerance**2)

    def near(
        self, gyro_bias: Any, acc_bias: Any, gyro_tolerance: float = 0.01, acc_tolerance: float = 0.1
    ) -> Preintegrated:
        """Itself, or integrated anew where the biases [rad/s, m/s^2] moved farther."""
        is_far = self.is_far(gyro_bias, acc_bias, gyro_tolerance, acc_tolerance)
        return self.reintegrated(gyro_bias, acc_bias) if is_far else self

    def predict(
        self, world_T_body: Any, velocity: Any, gravity: Any = GRAVITY
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pose world_T_body (7,) and velocity (3,) of the second state from those of the first (32)."""
        pose, g, t = np.asarray(world_T_body, float), np.asarray(gravity, float), self.dt
        v = np.asarray(velocity, float)
        rotation = rotation_matrix(pose[3:])
        position = pose[:3] + v * t + 0.5 * t * t * g + rotation @ self.delta_position
        new_velocity = v + t * g + rotation @ self.delta_velocity
        turned = rotation @ rotation_matrix(self.delta_rotation)
        return np.array([*position.tolist(), *unit_quaternion(turned.ravel().tolist())]), new_velocity

    def joined(self, later: Preintegrated) -> Preintegrated:
        """This one and the next, which begins where this one ends, as one: integrated with its biases."""
        return preintegrate(
            self.samples.joined(later.samples), self.noise, self.gyro_bias, self.acc_bias, self.rule
        )


def preintegrate(
    samples: ImuSamples,
    noise: ImuNoise,
    gyro_bias: Any = (0.0, 0.0, 0.0),
    acc_bias: Any = (0.0, 0.0, 0.0),
    rule: str = "midpoint",
) -> Preintegrated:
    """Integrate all samples, from the first one's time to the last one's (`ImuSamples.between` cuts them)."""
    return preintegrate_many([samples], noise, gyro_bias, acc_bias, rule)[0]


def preintegrate_intervals(
    samples: ImuSamples,
    stamps: Any,
    noise: ImuNoise,
    gyro_bias: Any = (0.0, 0.0, 0.0),
    acc_bias: Any = (0.0, 0.0, 0.0),
    rule: str = "midpoint",
    max_gap: float = 0.1,
) -> list[Preintegrated | None]:
    """One measurement between each two of n stamps [ns], in one pass; biases (3,) or (n - 1, 3).

    None where the samples do not cover the interval or pause for longer than max_gap [s]. Raises
    `ImuDataError` for stamps that are no whole numbers or do not ascend.
    """
    ends = np.asarray(stamps)
    if ends.ndim != 1 or (len(ends) and ends.dtype.kind not in "iu"):
        raise ImuDataError(
            f"stamps have shape {ends.shape} and type {ends.dtype}, expected (n,) int64 nanoseconds: float64 "
            "holds neither seconds since 1970 nor nanoseconds to the last digit."
        )
    ends = ends.astype(np.int64)
    late = np.flatnonzero(np.diff(ends) <= 0)
    if len(late):
        raise ImuDataError(
            f"stamps do not ascend: number {late[0] + 1} is {ends[late[0] + 1]} ns after {ends[late[0]]} ns. "
            "Sort the keyframes by time (np.argsort), and their ids with them."
        )
    parts = [samples.between_or_none(a, b, max_gap) for a, b in pairwise(ends)]
    covered = np.flatnonzero([part is not None for part in parts])
    biases = [_of_each(name, bias, len(parts))[covered] for name, bias in _named(gyro_bias, acc_bias)]
    found = preintegrate_many([part for part in parts if part is not None], noise, *biases, rule=rule)
    result: list[Preintegrated | None] = [None] * len(parts)
    for place, interval in zip(covered.tolist(), found, strict=True):
        result[place] = interval
    return result


def preintegrate_many(
    parts: Sequence[ImuSamples],
    noise: ImuNoise,
    gyro_bias: Any = (0.0, 0.0, 0.0),
    acc_bias: Any = (0.0, 0.0, 0.0),
    rule: str = "midpoint",
) -> list[Preintegrated]:
    """Integrate n intervals in one pass; biases (3,) or (n, 3) [rad/s, m/s^2]."""
    if rule not in RULES:
        raise OptionError(f"rule is {rule!r}, expected one of {', '.join(RULES)}.")
    short = [k for k, part in enumerate(parts) if len(part) < 2]
    if short:
        raise ImuDataError(
            f"preintegrate got {len(parts[short[0]])} samples, needs at least 2: a step has two ends."
        )
    if not parts:
        return []
    b_g, b_a = (_of_each(name, bias, len(parts)) for name, bias in _named(gyro_bias, acc_bias))
    first = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    stamps, gyro, acc = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("stamps", "gyro", "acc")
    )
    densities = (
        noise.gyro_density, noise.acc_density, noise.integration_density,
        noise.gyro_bias_density, noise.acc_bias_density,
    )  # fmt: skip
    duration, rotation, *rest = kernels.preintegrate(
        stamps, gyro, acc, first, b_g, b_a, densities, rule == "midpoint"
    )
    columns = zip(parts, duration.tolist(), b_g, b_a, SO3.from_matrix(rotation).storage, *rest, strict=True)
    return [Preintegrated(part, noise, dt, *numbers, rule=rule) for part, dt, *numbers in columns]


def reintegrate(measured: Sequence[Preintegrated], gyro_bias: Any, acc_bias: Any) -> list[Preintegrated]:
    """The samples of n measurements integrated with other biases, (3,) or (n, 3), each with its own rule."""
    biases = [_of_each(name, bias, len(measured)) for name, bias in _named(gyro_bias, acc_bias)]
    alike: dict[tuple[ImuNoise, str], list[int]] = {}
    for k, interval in enumerate(measured):
        alike.setdefault((interval.noise, interval.rule), []).append(k)
    result = list(measured)
    for (noise, rule), places in alike.items():
        parts = [measured[k].samples for k in places]
        again = preintegrate_many(parts, noise, *(bias[places] for bias in biases), rule=rule)
        for k, interval in zip(places, again, strict=True):
            result[k] = interval
    return result


_BIAS_PLACES = {
    f"{what}_D_{bias}_bias": (slice(3 * row, 3 * row + 3), slice(3 * col, 3 * col + 3))
    for row, what in enumerate(("rotation", "velocity", "position"))
    for col, bias in enumerate(("gyro", "acc"))
}
"""Where derivatives by the biases are in `Preintegrated.delta_D_bias`."""


def measurements(measured: Sequence[Preintegrated], gravity: Any = GRAVITY) -> np.ndarray:
    """(n, 65) measurements of EdgeInertial, EdgeInertialCombined and EdgeInertialGravityScale."""
    count = len(measured)
    by_bias = np.array([interval.delta_D_bias for interval in measured]).reshape(count, 9, 6)
    blocks = {name: by_bias[:, rows, columns] for name, (rows, columns) in _BIAS_PLACES.items()}
    blocks["gravity"] = np.broadcast_to(np.asarray(gravity, float), (count, 3))
    values = [
        blocks[name] if name in blocks else np.array([getattr(interval, name) for interval in measured])
        for name in FIELDS
    ]
    widths = FIELDS.values()
    return np.concatenate(
        [value.reshape(count, width) for value, width in zip(values, widths, strict=True)], axis=1
    )


def combined_informations(measured: Sequence[Preintegrated]) -> np.ndarray:
    """(n, 15, 15) inverses of the combined covariances."""
    return inverse_of_covariance(
        np.array([interval.combined_covariance for interval in measured]).reshape(len(measured), 15, 15)
    )


def inverse_of_covariance(covariance: np.ndarray) -> np.ndarray:
    """Inverse (..., d, d) by way of the correlations, symmetric."""
    size = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    scale = size[..., :, None] * size[..., None, :]
    inverse = np.linalg.inv(covariance / scale) / scale
    return 0.5 * (inverse + np.swapaxes(inverse, -1, -2))


def _exp_and_right_jacobian(turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exp (3) and Jr (8) of rotation vectors (..., 3): (..., 3, 3) each."""
    a, b, c = (
        exp_coefficient[..., None, None]
        for exp_coefficient in exp_coefficients(np.einsum("...i,...i->...", turn, turn))
    )
    hat = skew(turn)
    squared = hat @ hat
    return np.eye(3) + a * hat + b * squared, np.eye(3) - b * hat + c * squared


def _named(gyro_bias: Any, acc_bias: Any) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return ("gyro_bias", gyro_bias), ("acc_bias", acc_bias)


def _of_each(name: str, value: Any, count: int) -> np.ndarray:
    """(count, 3) of one (3,) or one each."""
    array = np.array(value, dtype=float)
    if array.shape not in ((3,), (count, 3)):
        raise ShapeError(f"{name} has shape {array.shape}, expected (3,) or ({count}, 3).")
    if not np.isfinite(array).all():
        raise OptionError(f"{name} is {array}, expected finite numbers.")
    return np.broadcast_to(array, (count, 3)).copy()


class Preintegrator:
    """Preintegration of one interval as its samples arrive: equations 33, 42 and appendix A step by step.

    The numbers are those of `preintegrate` on the same samples, to rounding.
    """

    def __init__(
        self,
        noise: ImuNoise,
        gyro_bias: Any = (0.0, 0.0, 0.0),
        acc_bias: Any = (0.0, 0.0, 0.0),
        rule: str = "midpoint",
    ):
        if rule not in RULES:
            raise OptionError(f"rule is {rule!r}, expected one of {', '.join(RULES)}.")
        self.noise, self.rule = noise, rule
        self.gyro_bias, self.acc_bias = (
            _of_each(name, bias, 1)[0] for name, bias in _named(gyro_bias, acc_bias)
        )
        self._stamps: list[int] = []
        self._gyro: list[np.ndarray] = []
        self._acc: list[np.ndarray] = []
        self._rotation = np.eye(3)
        self._velocity, self._position = np.zeros(3), np.zeros(3)
        self._by_bias = np.zeros((9, 6))
        self._white, self._combined = np.zeros((9, 9)), np.zeros((15, 15))

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp: int, gyro: Any, acc: Any) -> None:
        """Add a sample: stamp [ns] after the last one's, gyro (3,) [rad/s], acc (3,) [m/s^2]."""
        sample = ImuSamples(np.array([stamp]), np.asarray(gyro, float)[None], np.asarray(acc, float)[None])
        if self._stamps and stamp <= self._stamps[-1]:
            raise ImuDataError(f"sample at {stamp} ns follows {self._stamps[-1]} ns: stamps have to ascend.")
        if self._stamps:
            self._step(1e-9 * (stamp - self._stamps[-1]), sample)
        self._stamps.append(int(stamp))
        self._gyro.append(sample.gyro[0])
        self._acc.append(sample.acc[0])

    def _step(self, dt: float, new: ImuSamples) -> None:
        gyro, acc = self._gyro[-1], self._acc[-1]
        if self.rule == "midpoint":
            gyro, acc = 0.5 * (gyro + new.gyro[0]), 0.5 * (acc + new.acc[0])
        turn, acc = (gyro - self.gyro_bias) * dt, acc - self.acc_bias
        half, half_jacobian = _exp_and_right_jacobian(0.5 * turn)
        step, jacobian = half @ half, _exp_and_right_jacobian(turn)[1]
        at, own = self._rotation, np.zeros((3, 3))
        if self.rule == "midpoint":
            at, own = self._rotation @ half, half_jacobian * (0.5 * dt)
        push = at @ acc
        # the error (rotation in the present frame, velocity, position) before -> after the step: A; noise: B
        a, b = np.eye(9), np.zeros((9, 6))
        a[:3, :3] = step.T
        turned = -at @ skew(acc)
        a[3:6, :3] = (turned @ half.T if self.rule == "midpoint" else turned) * dt
        a[6:, :3] = 0.5 * dt * a[3:6, :3]
        a[6:, 3:6] = dt * np.eye(3)
        b[:3, :3] = jacobian * dt
        b[3:6, :3], b[3:6, 3:] = turned @ own * dt, at * dt
        b[6:, :3], b[6:, 3:] = 0.5 * dt * b[3:6, :3], 0.5 * dt * b[3:6, 3:]
        self._propagate(a, b, dt)
        self._position = self._position + self._velocity * dt + 0.5 * push * dt * dt
        self._velocity = self._velocity + push * dt
        self._rotation = self._rotation @ step

    def _propagate(self, a: np.ndarray, b: np.ndarray, dt: float) -> None:
        noise = self.noise
        white = b * (np.repeat([noise.gyro_density, noise.acc_density], 3) / np.sqrt(dt))
        added = white @ white.T
        added[6:, 6:] += noise.integration_density**2 * dt * np.eye(3)
        self._white = a @ self._white @ a.T + added
        whole = np.eye(15)
        whole[:9, :9], whole[:9, 9:] = a, -b
        self._combined = whole @ self._combined @ whole.T
        self._combined[:9, :9] += added
        walk = np.repeat([noise.gyro_bias_density, noise.acc_bias_density], 3)
        self._combined[9:, 9:] += np.diag(walk**2 * dt)
        self._by_bias = a @ self._by_bias - b

    def result(self) -> Preintegrated:
        """The measurement so far; `ImuDataError` with fewer than two samples."""
        if len(self) < 2:
            raise ImuDataError(
                f"Preintegrator has {len(self)} samples, needs at least 2: a step has two ends."
            )
        samples = ImuSamples(np.array(self._stamps), np.stack(self._gyro), np.stack(self._acc))
        return Preintegrated(
            samples,
            self.noise,
            1e-9 * (self._stamps[-1] - self._stamps[0]),
            self.gyro_bias,
            self.acc_bias,
            np.asarray(SO3.from_matrix(self._rotation).storage),
            self._velocity,
            self._position,
            self._by_bias,
            self._white,
            self._combined,
            self.rule,
        )
