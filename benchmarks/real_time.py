"""Live SLAM: a recorded sequence fed by the clock, as cameras would; how late the poses come.

    python benchmarks/real_time.py ~/EuRoC/MH_01_easy                 20 Hz, stereo and IMU
    python benchmarks/real_time.py run.bag --calibration camchain.yaml --mode mono-inertial --rate 30

The images are read before. Latency is from `add_images` to the frame's pose; real time means that 99 % of the
frames have theirs before the next frame comes. Processor time is that of all threads.
"""

from __future__ import annotations

import argparse
import time
from itertools import takewhile

import cv2

from slam_bridge.pipeline import MODES, PipelineOptions, PipelineResult, Slam, open_source
from slam_bridge.pipeline.sources import ImuEvent, Source


def feed(source: Source, options: PipelineOptions, rate: float, most: int) -> tuple[PipelineResult, float]:
    """The result of a run at so many frames per second [Hz], and its processor time [s] before the end."""
    count = 0

    def is_wanted(event: object) -> bool:
        nonlocal count
        count += not isinstance(event, ImuEvent)
        return count <= most

    events = list(takewhile(is_wanted, source.events(options)))
    slam = Slam(source.calibration, options)
    due, before = time.perf_counter(), time.process_time()
    for event in events:
        if isinstance(event, ImuEvent):
            if options.is_inertial:
                slam.add_imu(event.stamps, event.gyro, event.acc)
            continue
        time.sleep(max(0.0, due - time.perf_counter()))
        slam.add_images(event.stamp, *event.images, depth=event.depth, stamps=event.stamps)
        due += 1.0 / rate
    spent = time.process_time() - before
    return slam.stop(), spent


def main() -> None:
    """Run once and print what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", help="folder, bag or video")
    parser.add_argument("--calibration", help="where the source has none")
    parser.add_argument("--mode", choices=MODES, default="stereo-inertial")
    parser.add_argument("--rate", type=float, default=20.0, help="frames per second (20)")
    parser.add_argument("--max-frames", type=int, default=1000, help="that are held in memory (1000)")
    parser.add_argument("--drop", action="store_true", help="drop frames instead of letting them wait")
    args = parser.parse_args()
    options = PipelineOptions(mode=args.mode, when_busy="drop" if args.drop else "wait")
    source = open_source(args.source, args.calibration)
    cv2.setNumThreads(2)  # as `pipeline.run` has it
    found, spent = feed(source, options, args.rate, args.max_frames)
    seconds = found.num_frames / args.rate
    print(f"{source.name}: {found.num_frames} frames at {args.rate:g} Hz, {found.num_dropped} dropped")
    print(f"latency         {found.latency}; the next frame comes after {1e3 / args.rate:.1f} ms")
    print(f"processor time  {spent:.1f} s in {seconds:.1f} s")
    loops = [step["seconds"] for step in found.steps if step["step"] == "loop"]
    slowest = f", {1e3 * max(loops):.0f} ms at most" if loops else ""
    print(f"keyframes       {len(found.world.keyframes)}; {len(loops)} loops{slowest}")
    print(found.message)


if __name__ == "__main__":
    main()
