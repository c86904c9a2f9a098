"""Visual-inertial bundle adjustment of a whole map.

*Gauge*: four directions are unobservable, position and the turn about gravity. Where no keyframe is fixed
and no pose was measured, a prior on these four of the first keyframe holds them; it is zero at the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slam_bridge.map import Map
from slam_bridge.options import Clock, SolveOptions
from slam_bridge.problems.bundle import bundle
from slam_bridge.problems.result import Result
from slam_bridge.selection import select
from slam_bridge.tables import whole_numbers
from slam_bridge.window import Window


def full_inertial_ba(
    world: Map,
    fixed: Any = (),
    options: SolveOptions | None = None,
    window: Window | None = None,
    estimate: tuple[str, ...] | str = (),
) -> Result:
    """Optimize all keyframes with their inertial states, and all landmarks.

    fixed: ids of keyframes that stay with their states. Keyframes without inertial states (`has_states`) take
    part with their poses. estimate: as in `local_ba`.
    """
    options = options or SolveOptions()
    clock = Clock(options)
    with world.lock:
        held = whole_numbers(fixed)
        inertial = world.keyframes.ids[world.keyframes["has_states"]]
        selection = select(world, np.setdiff1d(world.keyframes.ids, held), held, inertial=inertial)
    clock.lap("select")
    return bundle("full_inertial_ba", world, selection, options, window, clock, estimate)
