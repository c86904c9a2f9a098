"""A visual-inertial problem: a map, the raw IMU, the truth where known, and where all this comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.errors import OptionError, ShapeError
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.map import Map


@dataclass(frozen=True, eq=False)
class Truth:
    """True states of keyframes and landmarks; it may know some that a map dropped meanwhile."""

    keyframes: np.ndarray
    """(k,) int64 ids in the map."""
    world_T_body: np.ndarray
    """(k, 7)."""
    velocity: np.ndarray
    """(k, 3) in the world [m/s]."""
    gyro_bias: np.ndarray
    """(k, 3) [rad/s]."""
    acc_bias: np.ndarray
    """(k, 3) [m/s^2]."""
    landmarks: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """(m,) int64 ids in the map."""
    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(m, 3) [m]."""
    mismatches: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """(w,) int64 ids of observations that are not of their landmark."""

    def __post_init__(self) -> None:
        k, m = len(self.keyframes), len(self.landmarks)
        three = {name: (k, 3) for name in ("velocity", "gyro_bias", "acc_bias")}
        for name, shape in {"world_T_body": (k, 7), **three, "points": (m, 3)}.items():
            if np.shape(getattr(self, name)) != shape:
                raise ShapeError(f"Truth.{name} has shape {np.shape(getattr(self, name))}, expected {shape}.")


@dataclass(frozen=True, eq=False)
class VibProblem:
    """What a .vib file holds."""

    map: Map
    truth: Truth | None = None
    imu: ImuSamples | None = None
    """Raw samples of the whole recording; those between keyframes are in the map too."""
    noise: ImuNoise | None = None
    """Of the IMU."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Who made it, from what, with which options; plain values for JSON."""

    @classmethod
    def of(cls, given: VibProblem | Map) -> VibProblem:
        """The problem; of a map alone one without truth and recording."""
        if isinstance(given, VibProblem):
            return given
        if isinstance(given, Map):
            return cls(given)
        raise OptionError(f"got {type(given).__name__}, expected a Map or a VibProblem.")
