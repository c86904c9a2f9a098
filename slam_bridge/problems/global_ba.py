"""Bundle adjustment of a whole map, without IMU."""

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


def global_ba(
    world: Map,
    fixed: Any = (),
    options: SolveOptions | None = None,
    window: Window | None = None,
    estimate: tuple[str, ...] | str = (),
) -> Result:
    """Optimize all keyframes and landmarks. fixed: ids of keyframes that stay, beside those the map fixes.

    Where none stays and no pose was measured, the first keyframe does; the scale of a monocular map, which no
    measurement knows, stays as well (the median distance of its landmarks). estimate: as in `local_ba`.
    """
    options = options or SolveOptions()
    clock = Clock(options)
    held = whole_numbers(fixed)
    selection = select(world, np.setdiff1d(world.keyframes.ids, held), held)
    clock.lap("select")
    return bundle("global_ba", world, selection, options, window, clock, estimate)
