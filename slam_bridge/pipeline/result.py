"""What a SLAM found: poses, map, times, and in a message what went wrong on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slam_bridge.map import Map
from slam_bridge.pipeline.latency import Latency
from slam_bridge.pipeline.tracking import Status

_MOST_GAPS = 3
"""Gaps of a trajectory that a message names, the longest ones."""


@dataclass(frozen=True)
class SlamState:
    """How a SLAM stands, after the last frame that was tracked."""

    stamp: int | None
    """[ns], in the IMU's time, of the frame that has this pose; None: no frame yet."""
    status: Status
    world_T_body: np.ndarray | None
    """(7,); None where the frame has no pose."""
    is_metric: bool
    """Lengths are metres: with stereo or depth, or once the IMU is initialized."""
    num_frames: int
    """Frames that were handed in."""
    num_dropped: int
    """Of these left out because tracking was busy."""
    num_waiting: int
    """Of these not tracked yet."""
    keyframes: int
    landmarks: int
    maps: int
    """1, and one more for each that no place has joined with the present one."""
    latency: Latency
    notes: tuple[str, ...]
    """What was wrong with the input so far, and what followed from it."""


@dataclass(frozen=True, eq=False)
class OtherMap:
    """A map that no place joined with the largest one, and the frames that were tracked in it."""

    stamps: np.ndarray
    """(n,) int64 [ns]."""
    world_T_body: np.ndarray
    """(n, 7) in that map's own world."""
    world: Map


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """What a run found."""

    stamps: np.ndarray
    """(n,) int64 [ns] of the frames with a pose."""
    world_T_body: np.ndarray
    """(n, 7)."""
    num_frames: int
    """Frames that were given."""
    message: str
    """Empty, or what was refused, wrong with the input, or lost, and which frames have no pose."""
    world: Map
    frame_seconds: np.ndarray
    """(num_frames,) of tracking, without reading images and without waiting for mapping."""
    calls: list[dict[str, Any]]
    """See `Mapper.calls`."""
    steps: list[dict[str, Any]]
    """See `Mapper.steps`."""
    wall_seconds: float
    """From the first frame to the end, everything included."""
    tracking_wall_seconds: float
    """From the first frame to the last: without the optimization at the end."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds in reading, tracking, waiting for mapping, the end; local BA runs beside them."""
    latency: Latency = field(default_factory=Latency)
    """From a frame's arrival to its pose."""
    num_dropped: int = 0
    """Frames left out because tracking was busy."""
    maps: int = 1
    """1, and one more for each that no place joined; the poses are those of the one with most frames."""
    others: tuple[OtherMap, ...] = ()
    """The others, the oldest first."""

    @property
    def tracked_fraction(self) -> float:
        """Of the frames."""
        return len(self.stamps) / max(self.num_frames, 1)


def without_pose(statuses: Sequence[tuple[int, Status]], stamps: np.ndarray) -> str:
    """Which frames have no pose, when and why; empty where all have one.

    statuses: stamp [ns] of every frame that was given, and what tracking did then, TRACKING where it has a
    pose in some map; stamps (n,): with a pose.
    """
    known = set(stamps.tolist())
    gaps: list[list[tuple[int, Status]]] = [[]]
    for stamp, status in statuses:
        if stamp in known:
            gaps.append([])
        elif gaps[-1] and gaps[-1][-1][1] is not status:
            gaps.append([(stamp, status)])
        else:
            gaps[-1].append((stamp, status))
    gaps = [gap for gap in gaps if gap]
    if not gaps:
        return ""
    parts = [
        f"{len(gap)} from {1e-9 * gap[0][0]:.3f} s to {1e-9 * gap[-1][0]:.3f} s "
        f"({'in another map' if gap[0][1] is Status.TRACKING else gap[0][1].value})"
        for gap in sorted(gaps, key=len, reverse=True)[:_MOST_GAPS]
    ]
    more = f", and {len(gaps) - _MOST_GAPS} shorter gaps" if len(gaps) > _MOST_GAPS else ""
    count = sum(map(len, gaps))
    return f"{count} of {len(statuses)} frames have no pose: {', '.join(parts)}{more}."
