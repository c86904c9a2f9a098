"""A whole source through a `Slam`: `run`.

result = run(open_sequence("euroc", "MH_01_easy"), PipelineOptions(mode="stereo-inertial"))
result = run(open_source("run.bag", "camchain.yaml"), PipelineOptions(mode="stereo"))
result.stamps, result.world_T_body, result.message
"""

from __future__ import annotations

import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slam_bridge.map import Map
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.result import PipelineResult
from slam_bridge.pipeline.slam import Slam
from slam_bridge.pipeline.sources import ImuEvent, Source
from slam_bridge.readers.folders import FolderSource
from slam_bridge.readers.sequence import Sequence, SequenceError, opencv

_AHEAD = 8
"""Events that are read while frames are tracked."""


def run(
    source: Sequence | Source,
    options: PipelineOptions | None = None,
    watch: Callable[[int, Slam], None] | None = None,
    map: Map | None = None,
    max_frames: int | None = None,
) -> PipelineResult:
    """Run over all frames of a source, or the first of them.

    watch: called after each frame with its number and the `Slam`. map: of an earlier run, see `Slam`. Ctrl-C
    ends a live source and keeps what was found. OpenCV has one or two threads meanwhile, and as many as
    before afterwards. Raises `SequenceError` where no frame can be read; later ones that cannot are in the
    message.
    """
    options = options or PipelineOptions()
    if isinstance(source, Sequence):
        options = replace(options, widest=source.widest)
        source = FolderSource.of(source)
    cv2 = opencv()
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1 if options.single_thread else 2)
    try:
        return _run(source, options, watch, map, max_frames)
    finally:
        cv2.setNumThreads(threads)


def _run(
    source: Source,
    options: PipelineOptions,
    watch: Callable[[int, Slam], None] | None,
    map: Map | None,
    max_frames: int | None,
) -> PipelineResult:
    events = source.events(options)
    slam = Slam(source.calibration, options, map, watch=watch)
    slam.num_expected = len(source) if isinstance(source, FolderSource) else None
    count, read, fault = 0, 0.0, ""
    if not (options.single_thread or source.is_live):
        events = _ahead(events)
    try:
        while max_frames is None or count < max_frames:
            begin = time.perf_counter()
            try:
                event = next(events, None)
            except SequenceError as error:
                if not count:
                    raise
                fault = f"The source ended early: {error}"
                break
            read += time.perf_counter() - begin
            if event is None:
                break
            if isinstance(event, ImuEvent):
                if options.is_inertial:
                    slam.add_imu(event.stamps, event.gyro, event.acc)
                continue
            count += 1
            for left_out in event.faults:
                slam.complaints.add(left_out, event.stamp)
            slam.add_images(event.stamp, *event.images, depth=event.depth, stamps=event.stamps)
    except KeyboardInterrupt:
        if not source.is_live:
            slam.abandon()
            raise
    except BaseException:
        slam.abandon()
        raise
    finally:
        events.close()  # type: ignore[attr-defined]
    if not count:
        slam.abandon()
        raise SequenceError(f"{source.name}: no images came.")
    found = slam.stop()
    message = " ".join(part for part in (found.message, fault) if part)
    return replace(found, message=message, num_frames=count, phases={"read": read, **found.phases})


def _ahead(events: Iterator[Any]) -> Iterator[Any]:
    """The same events, read ahead in another thread."""
    waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_AHEAD)
    is_over = threading.Event()

    def put(item: tuple[Any, BaseException | None]) -> None:
        while not is_over.is_set():
            try:
                return waiting.put(item, timeout=0.1)
            except queue.Full:
                continue

    def read() -> None:
        try:
            for event in events:
                put((event, None))
                if is_over.is_set():
                    return
            put((None, None))
        except BaseException as error:
            put((None, error))

    reader = threading.Thread(target=read, name="reading", daemon=True)
    reader.start()
    try:
        while True:
            event, error = waiting.get()
            if error is not None:
                raise error
            if event is None:
                return
            yield event
    finally:
        is_over.set()
        reader.join()


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
