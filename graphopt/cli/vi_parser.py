"""Arguments of `graphopt generate vi-sequence` and `vi`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from typing import Any

PLACES = ("room", "hall", "corridor", "outdoors")
SENSORS = ("euroc", "tumvi")
FORMATS = (*SENSORS, "kitti-sync", "kitti-extract")
PROBLEMS = ("full-inertial", "local-inertial", "visual")


def exposure(text: str) -> float | str:
    """Parse auto or a factor."""
    if text == "auto":
        return text
    value = float(text)
    if not 0.0 < value < 20.0:
        raise argparse.ArgumentTypeError(f"'{text}' must be auto or a factor between 0 and 20")
    return value


def add_sequence(kinds: Any, types: Any) -> None:
    """Add the kind `vi-sequence`."""
    parser = kinds.add_parser(
        "vi-sequence",
        help="stereo images, IMU and truth in the folders of EuRoC, TUM-VI or KITTI raw",
        description="Render a sequence along a real ground truth (--truth, or one in $GRAPHOPT_DATA) or a "
        "built-in trajectory of the same character, through a textured scene.",
    )
    _add_trajectory(parser, types)
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="new folder to write")
    parser.add_argument("--format", choices=FORMATS, help="folders and sensors (default: those of NAME)")
    parser.add_argument(
        "--start", type=types.non_negative_float, default=0.0, metavar="S", help="begin there [s]"
    )
    parser.add_argument("--seconds", type=types.positive_float, metavar="S", help="length (default: all)")
    parser.add_argument(
        "--camera-rate", type=types.positive_float, metavar="HZ", help="(default: 20; KITTI's 10)"
    )
    parser.add_argument(
        "--image-scale", type=types.positive_float, default=1.0, metavar="X", help="smaller or larger images"
    )
    parser.add_argument(
        "--exposure", type=exposure, default=1.0, metavar="X|auto", help="factor of brightness (default: 1)"
    )
    parser.add_argument(
        "--shutter",
        type=types.non_negative_float,
        default=0.0,
        metavar="S",
        help="exposure time that motion blurs",
    )
    parser.add_argument(
        "--blur-samples",
        type=types.positive_int,
        default=5,
        metavar="N",
        help="views per blurred image (default: 5)",
    )
    parser.add_argument(
        "--image-noise",
        type=types.non_negative_float,
        default=1.5,
        metavar="SIGMA",
        help="of 255 (default: 1.5)",
    )
    parser.add_argument(
        "--supersample",
        type=types.positive_int,
        default=2,
        metavar="N",
        help="N x N rays per pixel (default: 2; 1 is faster, corners are then exact to 0.3 pixels)",
    )
    parser.add_argument("--perfect-imu", action="store_true", help="IMU without noise and biases")


def add_problem(kinds: Any, types: Any) -> None:
    """Add the kind `vi`."""
    parser = kinds.add_parser(
        "vi",
        help="a visual-inertial problem: keyframes, landmarks, tracks, IMU, truth",
        description="Make a problem of the size of ORB-SLAM3's map of a published sequence, or any other.",
    )
    _add_trajectory(parser, types)
    parser.add_argument("-o", "--output", metavar="FILE.vib", required=True, help="file to write")
    for name in ("keyframes", "landmarks", "observations"):
        parser.add_argument(
            f"--{name}", type=types.positive_int, metavar="N", help="(default: those of NAME)"
        )
    parser.add_argument(
        "--seconds",
        type=types.positive_float,
        metavar="S",
        help="of the trajectory, from its begin on (default: all of it)",
    )
    parser.add_argument(
        "--sensor", choices=SENSORS, help="rectified stereo or stereo fisheye (default: that of NAME)"
    )
    parser.add_argument(
        "--pixel-noise",
        type=types.positive_float,
        default=0.7,
        metavar="PX",
        help="in octave 0 (default: 0.7)",
    )
    parser.add_argument(
        "--mismatches",
        type=types.fraction,
        default=0.01,
        metavar="P",
        help="share of wrong ones (default: 0.01)",
    )
    parser.add_argument(
        "--drift",
        type=types.non_negative_float,
        default=0.005,
        metavar="X",
        help="of the start (default: 0.005)",
    )
    parser.add_argument(
        "--rotation-error", type=types.non_negative_float, default=0.3, metavar="DEG", help="(default: 0.3)"
    )
    parser.add_argument(
        "--start",
        choices=("odometry", "window", "truth"),
        default="odometry",
        help="estimates in the file (default: odometry)",
    )


def _add_trajectory(parser: Any, types: Any) -> None:
    parser.add_argument("--like", required=True, metavar="NAME", help="MH01, V1_02, room4, outdoors6, ...")
    parser.add_argument(
        "--truth", metavar="FILE|DIR", help="ground truth to move along: EuRoC, TUM-VI or TUM"
    )
    parser.add_argument("--place", choices=PLACES, help="scene (default: that of NAME)")
    parser.add_argument(
        "--calibration",
        action="append",
        default=[],
        metavar="FILE",
        help="cameras and IMU noise; may be repeated",
    )
    parser.add_argument(
        "--seed", type=types.non_negative_int, default=0, help="seed of the random numbers (default: 0)"
    )
