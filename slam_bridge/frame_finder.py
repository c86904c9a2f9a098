"""The state of a new frame of a back end, from landmarks that it sees and the IMU since the last one.

The last state is held by a prior, as in `pose_inertial_optimization`; where optimizations have moved it,
the prior moves with it and says how well it was known before.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from slam_bridge.cameras import Rig
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.preintegration import Preintegrated
from slam_bridge.problems import (
    FrameObservations,
    FrameState,
    Result,
    pose_inertial_optimization,
    pose_optimization,
    relocalize,
)
from slam_bridge.problems.frame import FrameGraph
from slam_bridge.problems.pose_inertial_optimization import STATE_KINDS, InertialFrameGraph
from slam_bridge.problems.pose_optimization import by_chance

NEEDED = 6
"""Known landmarks from which a frame's pose is found where the client gives none."""
SEEN = 3
"""... where the IMU leads to the frame from one whose velocity is unknown."""
_MOST = 0.5
"""Of a frame's landmarks; where fewer agree with the IMU, the images are asked alone."""
_PLACE, _VELOCITY, _BIAS = (1e-3, 1e-3), (10.0, 0.1), (0.1, 0.5)
"""Sigmas of a first state: turn and place [rad, m]; velocity if not given, if given [m/s]; biases of gyro
and accelerometer [rad/s, m/s^2]."""


class FrameFinder:
    """Finds frame after frame; keeps the graphs and the prior of the last state."""

    def __init__(self, rig: Rig):
        self._rig = rig
        self._frames = FrameGraph(rig)
        self._inertial = InertialFrameGraph(rig, previous_is_free=True)
        self.begin(knows_velocity=False)

    def begin(self, knows_velocity: bool) -> None:
        """The next frame follows one whose pose was given."""
        self.knows_velocity, self._prior = knows_velocity, _first_prior(knows_velocity)

    def with_imu(
        self, last: FrameState, measured: Preintegrated, seen: FrameObservations, gravity: Any
    ) -> FrameState:
        """From the landmarks and the IMU together; from one of them where they contradict each other."""
        offset = np.zeros(len(self._prior.offset))
        prior = replace(self._prior, reference=last.reference, offset=offset)
        predicted = last.predicted(measured, gravity)

        def solve(start: FrameState) -> Result:
            found = pose_inertial_optimization(
                self._rig, start, last, measured, seen, prior, graph=self._inertial, gravity=gravity
            )
            # once more from there: how far pixels may be off is known for the start alone
            return found if start is not predicted or not found.is_usable else solve(found.extra["state"])

        found, by_images = solve(predicted), None
        if found.num_inliers < _MOST * len(seen):
            by_images = self.by_images(predicted.world_T_body, seen)
        if by_images is not None:
            again = solve(replace(predicted, world_T_body=by_images))
            if again.is_usable and again.num_inliers > found.num_inliers:
                found = again
        if found.is_usable:
            self.knows_velocity, self._prior = True, found.extra["prior"]
            return found.extra["state"]
        self.begin(knows_velocity=False)
        return predicted if by_images is None else replace(predicted, world_T_body=by_images)

    def by_images(self, start: np.ndarray, seen: FrameObservations) -> np.ndarray | None:
        """world_T_body (7,) from landmarks alone; None: too few agree."""
        if len(seen) < NEEDED:
            return None
        found = pose_optimization(self._rig, start, seen, graph=self._frames)
        if not _agrees(found) and find_spec("cv2"):  # the start may be far from the frame
            found = relocalize(self._rig, seen, graph=self._frames)
        return found.keyframes.world_T_body[0] if _agrees(found) else None


def _first_prior(knows_velocity: bool) -> MarginalPrior:
    """Of a frame's state that only its sigmas are known of."""
    sigma = np.repeat([*_PLACE, _VELOCITY[knows_velocity], *_BIAS], 3)
    information, offset = np.diag(sigma**-2.0), np.zeros(len(sigma))
    return MarginalPrior(STATE_KINDS, np.zeros(4), np.zeros((4, 7)), information, offset)


def _agrees(found: Result) -> bool:
    """Whether so many landmarks are seen from the pose that they do not by chance."""
    return found.is_usable and found.num_inliers >= NEEDED and not by_chance(found.inliers)
