"""Local bundle adjustment: some keyframes and what they see; others that see it too are held.

As in ORB-SLAM3 (`Optimizer::LocalBundleAdjustment`): free are the given keyframes and all landmarks that they
observe, fixed all other keyframes that observe these landmarks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.map import Map
from slam_bridge.options import Clock, SolveOptions
from slam_bridge.problems.bundle import bundle
from slam_bridge.problems.result import Result
from slam_bridge.selection import select
from slam_bridge.tables import whole_numbers
from slam_bridge.window import Window


def local_ba(
    world: Map,
    keyframes: Any,
    fixed: Any = None,
    options: SolveOptions | None = None,
    window: Window | None = None,
    max_fixed: int | None = None,
    estimate: tuple[str, ...] | str = (),
) -> Result:
    """Optimize keyframes (ids) and their landmarks without IMU.

    fixed: ids of keyframes that are held; None: all others that observe the landmarks, at most max_fixed of
    them (those that share most observations). window: keep one between calls, so that a graph of the same
    structure is used again. estimate: parts of the cameras' calibration that are free, see
    `window.CALIBRATION`; `result.extra["calibration"]` then has mounting, intrinsics and time offset [s]
    per camera.
    """
    options = options or SolveOptions()
    clock = Clock(options)
    held = covisible_fixed(world, keyframes, max_fixed) if fixed is None else whole_numbers(fixed)
    selection = select(world, keyframes, held)
    clock.lap("select")
    return bundle("local_ba", world, selection, options, window, clock, estimate)


def covisible_fixed(world: Map, keyframes: Any, max_fixed: int | None) -> np.ndarray:
    """Keyframes that observe landmarks of the given ones."""
    if max_fixed is not None and max_fixed < 0:
        raise OptionError(f"max_fixed is {max_fixed}, must be at least 0; None: all.")
    return world.covisible(keyframes)[0][:max_fixed]
