"""Sequences through the pipeline: `run` feeds a `Slam` with a folder's samples and images.

    sequence = open_sequence("euroc", "MH_01_easy")
    result = run(sequence, PipelineOptions(mode="stereo-inertial"))
    result.stamps, result.world_T_body, result.message
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from slam_bridge.map import Map
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.result import PipelineResult
from slam_bridge.pipeline.slam import Slam
from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.sequence import Sequence, SequenceError, opencv

_AHEAD = 4
"""Frames that are read while others are tracked."""


class Pipeline(Slam):
    """A `Slam` for one sequence, fed frame by frame; `run` does all of it."""

    def __init__(
        self,
        sequence: Sequence,
        options: PipelineOptions | None = None,
        map: Map | None = None,
        watch: Callable[[int, Slam], None] | None = None,
    ):
        options = replace(options or PipelineOptions(), widest=sequence.widest)
        if options.is_inertial and (sequence.imu is None or sequence.noise is None):
            raise SequenceError(
                f"{sequence.name}: mode {options.mode} needs IMU samples and their noise, which this "
                + "; ".join(("sequence does not have", *sequence.notes))
                + f". Choose --mode {options.mode.removesuffix('-inertial')}."
            )
        sequence = sequence.with_cameras(2 if options.is_stereo else 1)
        self.sequence = sequence if options.mode != "mono" else sequence.of_camera()
        self._next_sample = 0
        calibration = Calibration(rig=self.sequence.rig, noise=sequence.noise, gravity=sequence.gravity)
        super().__init__(calibration, options, map, watch=watch)

    def process(self, stamp: int, images: list[np.ndarray]) -> bool:
        """Feed a frame [ns, in the IMU's time] after the samples up to it; False where it was left out."""
        imu = self.sequence.imu
        if self.options.is_inertial and imu is not None:
            last = min(int(np.searchsorted(imu.stamps, stamp)) + 1, len(imu))
            rows = slice(self._next_sample, last)
            self._next_sample = max(last, self._next_sample)
            self.add_imu(imu.stamps[rows], imu.gyro[rows], imu.acc[rows])
        return self.add_images(stamp - round(1e9 * self.sensors.rig[0].time_offset), *images)


def run(
    sequence: Sequence,
    options: PipelineOptions | None = None,
    watch: Callable[[int, Slam], None] | None = None,
    map: Map | None = None,
) -> PipelineResult:
    """Run over a whole sequence. watch: called after each frame with its number and the `Slam`.

    map: of an earlier run, see `Slam`. OpenCV has one or two threads while it runs, and as many as before
    afterwards.
    """
    cv2 = opencv()
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1 if options is not None and options.single_thread else 2)
    try:
        pipeline = Pipeline(sequence, options, map, watch)
        try:
            read = 0.0
            frames = _frames(pipeline.sequence, pipeline.options.single_thread)
            while True:
                begin = time.perf_counter()
                item = next(frames, None)
                read += time.perf_counter() - begin
                if item is None:
                    break
                pipeline.process(*item)
            found = pipeline.stop()
            return replace(found, num_frames=len(sequence), phases={"read": read, **found.phases})
        except BaseException:
            pipeline.abandon()
            raise
    finally:
        cv2.setNumThreads(threads)


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
