"""Arrays of a window: keyframe states, landmarks with their observations, measured poses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError
from slam_bridge.cameras import Camera


class WindowError(GraphOptError, ValueError):
    """The arrays of a window do not fit together."""


@dataclass(frozen=True, eq=False)
class Keyframes:
    """States of n keyframes in order of time."""

    world_T_body: np.ndarray
    """(n, 7) x, y, z, qx, qy, qz, qw; body is the IMU's frame."""
    velocity: np.ndarray
    """(n, 3) in the world's frame [m/s]."""
    gyro_bias: np.ndarray
    """(n, 3) [rad/s]."""
    acc_bias: np.ndarray
    """(n, 3) [m/s^2]."""
    fixed: np.ndarray
    """(n,) bool: all of the keyframe's state is held."""

    @classmethod
    def start(
        cls,
        world_T_body: Any,
        velocity: Any = None,
        gyro_bias: Any = (0.0, 0.0, 0.0),
        acc_bias: Any = (0.0, 0.0, 0.0),
        fixed: Any = False,
    ) -> Keyframes:
        """Keyframes of poses (n, 7); the rest is broadcast, velocities are zero if not given."""
        poses = np.array(world_T_body, dtype=float)
        n = len(poses)
        vectors = [np.zeros(3) if one is None else one for one in (velocity, gyro_bias, acc_bias)]
        v, b_g, b_a = (np.broadcast_to(np.asarray(one, float), (n, 3)).copy() for one in vectors)
        return cls(poses, v, b_g, b_a, np.broadcast_to(np.asarray(fixed, bool), (n,)).copy())

    def __post_init__(self) -> None:
        n = len(self.world_T_body)
        for name, shape in (
            ("world_T_body", (n, 7)),
            ("velocity", (n, 3)),
            ("gyro_bias", (n, 3)),
            ("acc_bias", (n, 3)),
            ("fixed", (n,)),
        ):
            _expect_shape(f"Keyframes.{name}", getattr(self, name), shape)

    def __len__(self) -> int:
        return len(self.world_T_body)


@dataclass(frozen=True, eq=False)
class PosePriors:
    """Measured poses of some keyframes."""

    keyframe: np.ndarray
    """(k,) int."""
    world_T_body: np.ndarray
    """(k, 7)."""
    information: np.ndarray
    """(k, 6, 6) of (translation, quaternion's vector part) in the body's frame, as EdgeSE3Prior has it."""

    @classmethod
    def isotropic(
        cls, keyframe: Any, world_T_body: Any, position_sigma: float, rotation_sigma: float
    ) -> PosePriors:
        """Priors with standard deviations [m] and [rad]; the residual has half the rotation vector."""
        numbers = np.asarray(keyframe)
        diagonal = np.repeat([position_sigma**-2, 4.0 * rotation_sigma**-2], 3)
        return cls(numbers, np.asarray(world_T_body, float), np.tile(np.diag(diagonal), (len(numbers), 1, 1)))

    def __post_init__(self) -> None:
        k = len(self.keyframe)
        _expect_shape("PosePriors.world_T_body", self.world_T_body, (k, 7))
        _expect_shape("PosePriors.information", self.information, (k, 6, 6))

    @property
    def max_keyframe(self) -> int:
        """Largest keyframe number, -1 if there is none."""
        return int(np.max(self.keyframe, initial=-1))


@dataclass(frozen=True, eq=False)
class Visual:
    """m landmarks and o observations of them."""

    camera: Camera
    points: np.ndarray
    """(m, 3) in the world's frame [m]."""
    keyframe: np.ndarray
    """(o,) int: who observes."""
    point: np.ndarray
    """(o,) int: what."""
    pixel: np.ndarray
    """(o, 2) undistorted and, for stereo, rectified [px]."""
    right: np.ndarray | None = None
    """(o,) column in the right image [px], NaN where it was not seen there; None: mono."""
    sigma: np.ndarray | float = 1.0
    """(o,) or one: standard deviation of u, v and the right column [px]."""

    def __post_init__(self) -> None:
        o, m = len(self.keyframe), len(self.points)
        _expect_shape("Visual.points", self.points, (m, 3))
        _expect_shape("Visual.point", self.point, (o,))
        _expect_shape("Visual.pixel", self.pixel, (o, 2))
        if self.right is not None:
            _expect_shape("Visual.right", self.right, (o,))
        if o and not (0 <= np.min(self.point) and np.max(self.point) < m and np.min(self.keyframe) >= 0):
            raise WindowError(
                f"Visual: points {np.min(self.point)} to {np.max(self.point)} and keyframes from "
                f"{np.min(self.keyframe)} are observed; there are {m} points, and numbers start at 0."
            )
        if self.is_stereo.any() and not (self.camera.baseline or 0.0) > 0.0:
            raise WindowError(
                f"Visual: {int(self.is_stereo.sum())} observations have a right column, but the camera's "
                f"baseline is {self.camera.baseline}, expected a positive length in metres."
            )

    @property
    def is_stereo(self) -> np.ndarray:
        """(o,) bool: seen in the right image."""
        return np.zeros(len(self.keyframe), bool) if self.right is None else np.isfinite(self.right)

    @property
    def max_keyframe(self) -> int:
        """Largest keyframe number, -1 if there is none."""
        return int(np.max(self.keyframe, initial=-1))

    def disparity_measurements(self) -> tuple[np.ndarray, np.ndarray]:
        """(u, v, 1/z) (o, 3) and information (o, 3, 3) of EdgeSE3PointXYZDisparity.

        With bf = fx baseline, (u, v, u_right) = B (u, v, 1/z), B = [1 0 0; 0 1 0; 1 0 -bf]; the information
        is B' B / sigma^2.
        """
        o, stereo = len(self.keyframe), self.is_stereo
        bf = self.camera.intrinsics[0] * (self.camera.baseline or 0.0)
        measured = np.concatenate([np.asarray(self.pixel, float), np.zeros((o, 1))], axis=1)
        rows = np.zeros((o, 3, 3))
        rows[:, 0, 0] = rows[:, 1, 1] = 1.0
        if self.right is not None:
            measured[stereo, 2] = (measured[stereo, 0] - self.right[stereo]) / bf
            rows[stereo, 2] = [1.0, 0.0, -bf]
        rows /= np.broadcast_to(np.asarray(self.sigma, float), (o,))[:, None, None]
        return measured, rows.transpose(0, 2, 1) @ rows


def _expect_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if np.shape(array) != shape:
        raise WindowError(f"{name} has shape {np.shape(array)}, expected {shape}.")
