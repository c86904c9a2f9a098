"""`graphopt generate vi-sequence` and `vi`: visual-inertial sequences and problems, made by `slam_bridge`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from graphopt.cli import output
from graphopt.cli.declared import Option, add_options, declared
from graphopt.cli.parsers import (
    Parser,
    fraction,
    non_negative_float,
    non_negative_int,
    positive_float,
)
from graphopt.errors import OptionError

PLACES = ("room", "hall", "corridor", "outdoors")
SENSORS = ("euroc", "tumvi")
FORMATS = (*SENSORS, "kitti-sync", "kitti-extract")


def exposure(text: str) -> float | str:
    """Parse auto or a factor."""
    if text == "auto":
        return text
    value = float(text)
    if not 0.0 < value < 20.0:
        raise argparse.ArgumentTypeError(f"'{text}' must be auto or a factor between 0 and 20")
    return value


_SETTINGS: dict[str, dict[str, Any]] = {
    "truth": {
        "flags": ("--trajectory",),
        "old": ("--truth",),
        "metavar": "FILE|DIR",
        "help": "ground truth to move along: EuRoC, TUM-VI or TUM (default: one in $GRAPHOPT_DATA, else one "
        "that is built in)",
    },
    "place": {"choices": PLACES, "help": "scene (default: that of NAME)"},
    "calibration": {"metavar": "FILE", "help": "cameras and IMU noise; may be repeated"},
    "seed": {"type": non_negative_int, "help": "seed of the random numbers"},
    "seconds": {"metavar": "S", "help": "length of the trajectory (default: all of it)"},
}
_OF_SEQUENCES: dict[str, dict[str, Any]] = {
    "format": {"choices": FORMATS, "help": "folders and sensors (default: those of NAME)"},
    "start": {
        "flags": ("--begin",),
        "old": ("--start",),
        "type": non_negative_float,
        "metavar": "S",
        "help": "where in the trajectory the sequence begins [s]",
    },
    "camera_rate": {"metavar": "HZ", "help": "images per second (default: 20; KITTI's 10)"},
    "exposure": {"type": exposure, "metavar": "X|auto"},
    "shutter": {"type": non_negative_float, "metavar": "S"},
    "noise": {
        "flags": ("--noise-image",),
        "old": ("--image-noise",),
        "type": non_negative_float,
        "metavar": "SIGMA",
    },
}
_OF_PROBLEMS: dict[str, dict[str, Any]] = {
    **{name: {"help": "(default: those of NAME)"} for name in ("keyframes", "landmarks", "observations")},
    "sensor": {
        "choices": SENSORS,
        "help": "rectified stereo or stereo fisheye (default: that of NAME)",
    },
    "pixel_noise": {
        "flags": ("--noise-pixel",),
        "old": ("--pixel-noise",),
        "type": positive_float,
        "metavar": "SIGMA",
    },
    "mismatches": {
        "flags": ("--outliers",),
        "old": ("--mismatches",),
        "type": fraction,
        "metavar": "P",
        "help": "share of wrong matches",
    },
    "drift": {"type": non_negative_float, "help": "of the start values: metres per metre of path"},
    "rotation_error": {
        "flags": ("--drift-rotation",),
        "old": ("--rotation-error",),
        "type": non_negative_float,
        "metavar": "DEG",
    },
    "start": {
        "choices": ("odometry", "window", "truth"),
        "help": "estimates in the file: odometry, drifted from the first keyframe on; window, from the last "
        "25 on; truth",
    },
}


def add_kinds(kinds: Any) -> None:
    """Add the kinds `vi-sequence` and `vi` to those of `graphopt generate`."""
    sequence = kinds.add_parser(
        "vi-sequence",
        help="stereo images, IMU and truth in the folders of EuRoC, TUM-VI or KITTI raw",
        description="Render a sequence along a real ground truth or a built-in trajectory of the same "
        "character, through a textured scene.",
    )
    sequence.add_argument("-o", "--output", metavar="DIR", required=True, help="new folder to write")
    images = declared("slam_bridge/generator/images.py", "ImageOptions")
    options = {**declared("slam_bridge/generator/sequence.py", "SequenceOptions"), **images}
    _add(sequence, options, _OF_SEQUENCES)
    problem = kinds.add_parser(
        "vi",
        help="a visual-inertial problem: keyframes, landmarks, tracks, IMU, truth",
        description="Make a problem of the size of ORB-SLAM3's map of a published sequence, or any other.",
    )
    problem.add_argument("-o", "--output", metavar="FILE.vib", required=True, help="file to write")
    _add(problem, declared("slam_bridge/generator/problem.py", "ProblemOptions"), _OF_PROBLEMS)


def _add(parser: Parser, options: dict[str, Option], settings: dict[str, dict[str, Any]]) -> None:
    like = "sequence that it is like: MH01, V1_02, room4, outdoors6, ..."
    parser.add_argument("--like", required=True, metavar="NAME", help=like)
    add_options(parser, parser, options, options, **_SETTINGS, **settings)


def run_sequence(args: argparse.Namespace) -> int:
    """Render the sequence; return 0."""
    from slam_bridge.generator import ImageOptions, SequenceOptions, generate_sequence

    given = {**vars(args), "calibration": tuple(args.calibration)}
    images = ImageOptions(**_fields(ImageOptions, given))
    options = SequenceOptions(**{**_fields(SequenceOptions, given), "images": images})
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
    given = {**vars(args), "calibration": tuple(args.calibration)}
    made = generate_problem(args.like, ProblemOptions(**_fields(ProblemOptions, given)))
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


def _fields(options: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the command's values that a dataclass has."""
    return {name: given[name] for name in options.__dataclass_fields__ if name in given}


KINDS = {"vi-sequence": run_sequence, "vi": run_problem}


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
