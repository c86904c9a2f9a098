"""Local visual-inertial bundle adjustment: a temporal window with IMU, and covisible keyframes that stay.

As in ORB-SLAM3 (`Optimizer::LocalInertialBA`): free are the keyframes of the window with velocities and
biases, and all landmarks they observe; the keyframe before the window is held with its states, since an IMU
measurement leads from it into the window; other keyframes that observe the landmarks are held without
states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slam_bridge.map import Map
from slam_bridge.options import Clock, SolveOptions
from slam_bridge.problems.bundle import bundle
from slam_bridge.problems.local_ba import covisible_fixed
from slam_bridge.problems.result import Result
from slam_bridge.selection import among, select
from slam_bridge.tables import whole_numbers
from slam_bridge.window import Window


def local_inertial_ba(
    world: Map,
    keyframes: Any,
    fixed: Any = None,
    options: SolveOptions | None = None,
    window: Window | None = None,
    max_fixed: int | None = None,
    estimate: tuple[str, ...] | str = (),
) -> Result:
    """Optimize a window of keyframes (ids) with their IMU measurements, landmarks and priors.

    fixed: ids of keyframes that are held without states; None: all others that observe the landmarks, at most
    max_fixed of them. Keyframes from which an IMU measurement leads into the window are held with their
    states. unless a prior of the map holds one of the window. window, estimate: as in `local_ba`.
    """
    options = options or SolveOptions()
    clock = Clock(options)
    with world.lock:
        free = np.unique(whole_numbers(keyframes))
        others = covisible_fixed(world, free, max_fixed) if fixed is None else whole_numbers(fixed)
        before = previous_keyframes(world, free)
        held = np.union1d(others, before)
        selection = select(world, free, held, inertial=np.union1d(free, before))
    clock.lap("select")
    return bundle("local_inertial_ba", world, selection, options, window, clock, estimate)


def previous_keyframes(world: Map, keyframes: np.ndarray) -> np.ndarray:
    """Keyframes outside, from which an IMU measurement leads to one of these (n,), which ascend."""
    first, second = world.imu["first"], world.imu["second"]
    into = among(second, keyframes) & ~among(first, keyframes)
    return np.unique(first[into])
