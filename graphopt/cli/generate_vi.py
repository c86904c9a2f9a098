"""`graphopt generate vi-sequence` and `vi`: visual-inertial sequences and problems, made by `slam_bridge`."""

from __future__ import annotations

import argparse
import sys
import time

from graphopt.cli import output
from graphopt.errors import OptionError


def run_sequence(args: argparse.Namespace) -> int:
    """Render the sequence; return 0."""
    from slam_bridge.generator import ImageOptions, SequenceOptions, generate_sequence

    images = ImageOptions(args.exposure, args.shutter, args.blur_samples, args.image_noise, args.supersample)
    options = SequenceOptions(
        format=args.format,
        truth=args.truth,
        start=args.start,
        seconds=args.seconds,
        seed=args.seed,
        place=args.place,
        calibration=tuple(args.calibration),
        camera_rate=args.camera_rate,
        image_scale=args.image_scale,
        perfect_imu=args.perfect_imu,
        images=images,
    )
    made = generate_sequence(args.like, args.output, options, Progress())
    stamps = made.image_stamps
    output.print_facts(
        [
            ("written", args.output),
            ("trajectory", made.trajectory.source),
            ("path", f"{made.trajectory.length:.1f} m in {made.trajectory.duration:.1f} s, whole"),
            ("images", f"{len(stamps)} of each of {len(made.sensors.rig)} cameras"),
            ("IMU", f"{len(made.imu_stamps)} samples"),
            ("scene", f"{made.scene.place} with {len(made.scene.boxes)} boxes"),
        ]
    )
    return 0


def run_problem(args: argparse.Namespace) -> int:
    """Make the problem; return 0."""
    from graphopt.io import check_writable
    from slam_bridge.exchange import write_vib
    from slam_bridge.generator.problem import ProblemOptions, generate_problem

    if not args.output.lower().endswith(".vib"):
        raise OptionError(f"{args.output}: problems are written as .vib.")
    check_writable(args.output)
    names = ProblemOptions.__dataclass_fields__
    options = {name: value for name, value in vars(args).items() if name in names}
    made = generate_problem(args.like, ProblemOptions(**{**options, "calibration": tuple(args.calibration)}))
    write_vib(made, args.output)
    world = made.map
    output.print_facts(
        [
            ("written", args.output),
            ("trajectory", made.provenance["trajectory"]),
            ("keyframes", str(len(world.keyframes))),
            ("landmarks", str(len(world.landmarks))),
            ("observations", str(len(world.observations))),
        ]
    )
    return 0


class Progress:
    """What is done and how long the rest takes, on stderr, every few seconds."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        """After each image."""
        now = time.perf_counter()
        if now - self._last > 5.0 and done < total:
            self._last = now
            left = (now - self._start) / done * (total - done)
            print(f"[{done}/{total}] about {output.seconds(left)} to go", file=sys.stderr)
