"""The pipeline: frames in, a map and a trajectory out.

    sequence = open_sequence("euroc", "MH_01_easy")
    result = run(sequence, PipelineOptions(mode="stereo-inertial"))
    result.stamps, result.world_T_body, result.message

Each frame is tracked (`Tracker`); keyframes go to the mapping thread (`Mapper`). A frame of which tracking
knows nothing is looked up among the places seen before; after `lost_seconds` without success the run ends
with what it has.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slam_bridge.imu import gravity_of
from slam_bridge.map import Map
from slam_bridge.pipeline.keyframes import View
from slam_bridge.pipeline.loops import Loops
from slam_bridge.pipeline.mapping import Mapper
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.tracking import Status, Tracker
from slam_bridge.pipeline.trajectory import FrameLog
from slam_bridge.readers.sequence import Sequence, SequenceError, opencv

_AHEAD = 4
"""Frames that are read while others are tracked."""
_MOST_GAPS = 3
"""Gaps of a trajectory that a message names, the longest ones."""


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
    """Empty, or why the run ended early or was refused, and which frames have no pose."""
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

    @property
    def tracked_fraction(self) -> float:
        """Of the frames."""
        return len(self.stamps) / max(self.num_frames, 1)


class Pipeline:
    """One run over one sequence, frame by frame; `run` does all of it."""

    def __init__(self, sequence: Sequence, options: PipelineOptions | None = None):
        self.options = options = options or PipelineOptions()
        if options.is_inertial and (sequence.imu is None or sequence.noise is None):
            raise SequenceError(
                f"{sequence.name}: mode {options.mode} needs IMU samples and their noise, which this "
                + "; ".join(("sequence does not have", *sequence.notes))
                + f". Choose --mode {'stereo' if options.is_stereo else 'mono'}."
            )
        sequence = sequence.with_cameras(2 if options.is_stereo else 1)
        self.sequence = sequence if options.mode != "mono" else sequence.of_camera()
        self.world = Map(self.sequence.rig, gravity_of(sequence.gravity))
        self.log = FrameLog()
        self.tracker = Tracker(self.sequence, options, self.world, self.log)
        self.loops = Loops(self.sequence, options, self.world)
        self.mapper = Mapper(self.tracker, self.world, self.log, self.loops, options)
        self.message = ""
        self.statuses: list[tuple[int, Status]] = []
        """Stamp [ns] of every frame, and what tracking did after it."""

    def process(self, stamp: int, images: list[np.ndarray]) -> bool:
        """Take a frame; False where the run is over, `message` says why."""
        tracker = self.tracker
        with self.mapper.turns.frame():
            view = tracker.process(stamp, images)
            if tracker.status is Status.LOST:
                view = self._relocalize(stamp, images)
        self.statuses.append((stamp, tracker.status))
        if view is not None:
            self.mapper.submit(view, images[0])
        if tracker.status is Status.LOST and tracker.lost_since is not None:
            if 1e-9 * (stamp - tracker.lost_since) > self.options.lost_seconds:
                self.message = (
                    f"tracking was lost at {1e-9 * tracker.lost_since:.3f} s and no place was recognised for "
                    f"{self.options.lost_seconds:g} s; the trajectory ends there."
                )
                return False
        return True

    def _relocalize(self, stamp: int, images: list[np.ndarray]) -> View | None:
        """Look for the frame among the keyframes; tracking goes on from there."""
        here = self.loops.look(images[0], -1, stamp, np.zeros((0, 2)))
        for old in self.loops.index.query(here.descriptor, stamp):
            found = self.loops.pose_among(here, old, self.options.min_inliers)
            if found is not None:
                pose, rows, landmark = found
                tracks = self.tracker.maker.tracks_of(here.pixel[rows], landmark)
                return self.tracker.relocalized(stamp, images, pose, tracks)
        return None


def run(
    sequence: Sequence,
    options: PipelineOptions | None = None,
    watch: Callable[[int, Pipeline], None] | None = None,
) -> PipelineResult:
    """Run over a whole sequence. watch: called after each frame with its number and the pipeline.

    OpenCV has one or two threads while it runs, and as many as before afterwards.
    """
    cv2 = opencv()
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1 if options is not None and options.single_thread else 2)
    try:
        pipeline = Pipeline(sequence, options)
        try:
            return _run(pipeline, watch)
        except BaseException:
            pipeline.mapper.abandon()
            raise
    finally:
        cv2.setNumThreads(threads)


def _run(pipeline: Pipeline, watch: Callable[[int, Pipeline], None] | None) -> PipelineResult:
    started, spent, count = time.perf_counter(), [], 0
    phases = {"read": 0.0, "track": 0.0, "wait for mapping": 0.0, "end": 0.0}
    frames = _frames(pipeline.sequence, pipeline.options.single_thread)
    while True:
        begin = time.perf_counter()
        item = next(frames, None)
        phases["read"] += time.perf_counter() - begin
        if item is None:
            break
        stamp, images = item
        begin, waited = time.perf_counter(), pipeline.mapper.waited
        goes_on = pipeline.process(stamp, images)
        waited = pipeline.mapper.waited - waited
        spent.append(time.perf_counter() - begin - waited)
        phases["track"] += spent[-1]
        phases["wait for mapping"] += waited
        count += 1
        if watch is not None:
            watch(count - 1, pipeline)
        if not goes_on:
            break
    pipeline.mapper.wait()
    tracking = time.perf_counter() - started
    begin = time.perf_counter()
    refused = pipeline.mapper.finish()
    if len(pipeline.log):
        pipeline.tracker.look_back()
    phases["end"] = time.perf_counter() - begin
    stamps, poses = pipeline.log.poses(pipeline.world)
    if not len(stamps):
        refused = "the map never started: " + Status.STARTING.value + "."
    elif refused and not pipeline.options.is_stereo:  # nothing else measures lengths
        stamps, poses = stamps[:0], poses[:0]
        refused += " There are no poses in metres; --mode mono gives some without."
    unknown = "" if refused else without_pose(pipeline.statuses, stamps)
    message = " ".join(part for part in (pipeline.message, refused, unknown) if part)
    return PipelineResult(
        stamps,
        poses,
        len(pipeline.sequence),
        message,
        pipeline.world,
        np.array(spent),
        pipeline.mapper.calls,
        pipeline.mapper.steps,
        time.perf_counter() - started,
        tracking,
        phases,
    )


def without_pose(statuses: list[tuple[int, Status]], stamps: np.ndarray) -> str:
    """Which frames have no pose, when and why; empty where all have one.

    statuses: stamp [ns] of every frame that was given, and what tracking did then; stamps (n,): with a pose.
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
        f"{len(gap)} from {1e-9 * gap[0][0]:.3f} s to {1e-9 * gap[-1][0]:.3f} s ({gap[0][1].value})"
        for gap in sorted(gaps, key=len, reverse=True)[:_MOST_GAPS]
    ]
    more = f", and {len(gaps) - _MOST_GAPS} shorter gaps" if len(gaps) > _MOST_GAPS else ""
    count = sum(map(len, gaps))
    return f"{count} of {len(statuses)} frames have no pose: {', '.join(parts)}{more}."


def _frames(sequence: Sequence, in_line: bool) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Stamps and images; read ahead in another thread unless `in_line`."""
    stamps = sequence.stamps.tolist()
    if in_line:
        yield from zip(stamps, map(sequence.images, range(len(stamps))), strict=True)
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(sequence.images, row) for row in range(min(_AHEAD, len(stamps)))]
        for row, stamp in enumerate(stamps):
            images = waiting.pop(0).result()
            if row + _AHEAD < len(stamps):
                waiting.append(pool.submit(sequence.images, row + _AHEAD))
            yield stamp, images


def peak_memory() -> int:
    """Largest resident size of this process so far [bytes].

    Not `ru_maxrss` where there is something better: on Linux that begins with the size of the parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size
