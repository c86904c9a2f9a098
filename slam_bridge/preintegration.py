"""Preintegration of IMU samples between two states: Forster et al., TRO 2017 (numbers are its equations).

    dR = prod Exp(omega_k dt)         dv = sum a_k dt         dp = sum dv_k dt + a_k dt^2 / 2         (33)

with the bias-free rate omega_k and a_k = dR_k Exp(omega_k dt / 2) acc_k, in the frame of the first state.
*Midpoint rule*: omega_k and acc_k are the means of the two samples around step k, and acc_k is turned by the
rotation in the middle of the step; the error falls with dt^2. The paper holds each sample for one step.

How a disturbance of omega_k and acc_k in step k arrives at the end is known in closed form. It turns what
comes after by theta = dR_{k+1} Jr dt, so with tau the time left after the step and [.] the vector product,

    dR: dR' theta      dv: -[dv - dv_{k+1}] theta      dp: -[dp - dp_{k+1} - dv_{k+1} tau] theta

plus the half turn within its own step; acc_k adds dR_k dt to dv and dR_k dt (tau + dt / 2) to dp. These 9 x 6
matrices G_k give everything, without a loop over samples:

    bias Jacobians   J = -sum G_k                                  (44), appendix B; exact for the sums above
    covariance       sum G_k diag(sigma_g^2, sigma_a^2) G_k' / dt  (42, 43), appendix A

Order of all nine-vectors: rotation (in the frame of the second state), velocity, position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.geometry import SE3, SO3, matvec, skew
from graphopt.geometry.so3 import exp_coefficients
from graphopt.types.inertial import FIELDS, InertialMeasurement
from slam_bridge.imu import GRAVITY, ImuDataError, ImuNoise, ImuSamples


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
    """(9, 9)."""

    @cached_property
    def information(self) -> np.ndarray:
        """(9, 9) inverse of the covariance."""
        size = np.sqrt(np.diag(self.covariance))
        inverse = np.linalg.inv(self.covariance / np.outer(size, size)) / np.outer(size, size)
        return 0.5 * (inverse + inverse.T)

    def measurement(self, gravity: Any = GRAVITY) -> np.ndarray:
        """(65,) measurement of EdgeInertial and EdgeInertialGravityScale."""
        blocks = {
            f"{what}_D_{bias}_bias": self.delta_D_bias[3 * row : 3 * row + 3, 3 * col : 3 * col + 3]
            for row, what in enumerate(("rotation", "velocity", "position"))
            for col, bias in enumerate(("gyro", "acc"))
        }
        values = {**vars(self), **blocks, "gravity": gravity}
        return np.concatenate([np.ravel(values[name]) for name in FIELDS])

    def corrected(self, gyro_bias: Any, acc_bias: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(delta_rotation, delta_velocity, delta_position) for other biases, to first order (44)."""
        measured = InertialMeasurement(self.measurement())
        return measured.corrected(np.asarray(gyro_bias, float), np.asarray(acc_bias, float))

    def reintegrated(self, gyro_bias: Any, acc_bias: Any) -> Preintegrated:
        """The same samples integrated with other biases."""
        return preintegrate(self.samples, self.noise, gyro_bias, acc_bias)

    def is_far(
        self, gyro_bias: Any, acc_bias: Any, gyro_tolerance: float = 0.01, acc_tolerance: float = 0.1
    ) -> bool:
        """True if the biases [rad/s, m/s^2] moved so far that the first order should not be trusted."""
        d_g, d_a = self.gyro_bias - gyro_bias, self.acc_bias - acc_bias
        return bool(np.linalg.norm(d_g) > gyro_tolerance or np.linalg.norm(d_a) > acc_tolerance)

    def predict(
        self, world_T_body: Any, velocity: Any, gravity: Any = GRAVITY
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pose world_T_body (7,) and velocity (3,) of the second state from those of the first (32)."""
        pose, g, t = SE3(np.asarray(world_T_body, float)), np.asarray(gravity), self.dt
        v = np.asarray(velocity, float)
        rotation = pose.rotation * SO3(self.delta_rotation)
        position = pose.translation + v * t + 0.5 * t * t * g + pose.rotation.act(self.delta_position)
        new_velocity = v + t * g + pose.rotation.act(self.delta_velocity)
        return SE3.from_parts(position, rotation.quaternion).storage, new_velocity


def preintegrate(
    samples: ImuSamples, noise: ImuNoise, gyro_bias: Any = (0.0, 0.0, 0.0), acc_bias: Any = (0.0, 0.0, 0.0)
) -> Preintegrated:
    """Integrate all samples, from the first one's time to the last one's (`ImuSamples.between` cuts them)."""
    b_g, b_a = _vector("gyro_bias", gyro_bias), _vector("acc_bias", acc_bias)
    if len(samples) < 2:
        raise ImuDataError(f"preintegrate got {len(samples)} samples, needs at least 2: a step has two ends.")
    dt = samples.steps
    turn = (0.5 * (samples.gyro[1:] + samples.gyro[:-1]) - b_g) * dt[:, None]  # [rad]
    acc = 0.5 * (samples.acc[1:] + samples.acc[:-1]) - b_a
    half, half_jacobian = _exp_and_right_jacobian(0.5 * turn)
    _, full_jacobian = _exp_and_right_jacobian(turn)
    after = _running_product(half @ half)
    middle = np.concatenate([np.eye(3)[None], after[:-1]]) @ half
    dv = matvec(middle, acc) * dt[:, None]  # of each step
    velocity = np.cumsum(dv, axis=0)
    position = np.cumsum((velocity - 0.5 * dv) * dt[:, None], axis=0)
    left = (np.cumsum(dt[::-1])[::-1] - dt)[:, None]  # tau [s]
    lever = left + 0.5 * dt[:, None]

    own = middle @ half_jacobian * (0.5 * dt)[:, None, None]
    theta = after @ full_jacobian * dt[:, None, None]
    push = middle * dt[:, None, None]
    g = np.zeros((len(dt), 9, 6))
    g[:, 0:3, 0:3] = after[-1].T @ theta
    g[:, 3:6, 0:3] = -skew(velocity[-1] - velocity) @ theta - skew(dv) @ own
    g[:, 6:9, 0:3] = -skew(position[-1] - position - velocity * left) @ theta - skew(dv * lever) @ own
    g[:, 3:6, 3:6] = push
    g[:, 6:9, 3:6] = push * lever[..., None]

    return Preintegrated(
        samples,
        noise,
        float(dt.sum()),
        b_g,
        b_a,
        np.asarray(SO3.from_matrix(after[-1]).storage),
        velocity[-1],
        position[-1],
        -g.sum(axis=0),
        _covariance(g, dt, noise),
    )


def _covariance(g: np.ndarray, dt: np.ndarray, noise: ImuNoise) -> np.ndarray:
    """Sum of what the noise of each step contributes, (9, 9)."""
    density = np.repeat([noise.gyro_density, noise.acc_density], 3)
    root = g * (density / np.sqrt(dt)[:, None])[:, None, :]
    flat = root.transpose(1, 0, 2).reshape(9, -1)
    covariance = flat @ flat.T
    covariance[6:, 6:] += noise.integration_density**2 * dt.sum() * np.eye(3)
    return covariance


def _exp_and_right_jacobian(turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exp (3) and Jr (8) of rotation vectors (n, 3): (n, 3, 3) each."""
    a, b, c = (one[:, None, None] for one in exp_coefficients(np.einsum("ni,ni->n", turn, turn)))
    hat = skew(turn)
    squared = hat @ hat
    return np.eye(3) + a * hat + b * squared, np.eye(3) - b * hat + c * squared


def _running_product(factors: np.ndarray) -> np.ndarray:
    """products[k] = factors[0] ... factors[k] for (n, 3, 3), in log2(n) steps (Hillis and Steele 1986)."""
    products, reach = factors, 1
    while reach < len(products):
        products = np.concatenate([products[:reach], products[:-reach] @ products[reach:]])
        reach *= 2
    return products


def _vector(name: str, value: Any) -> np.ndarray:
    array = np.array(value, dtype=float)
    if array.shape != (3,):
        raise ShapeError(f"{name} has shape {array.shape}, expected (3,).")
    return array
