"""`graphopt slam`: a SLAM over a folder, a bag, a video or a webcam; trajectory and map as files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from graphopt.cli import arguments, output
from graphopt.cli.eval import port
from graphopt.cli.parsers import Parser, positive_int
from graphopt.errors import OptionError
from graphopt.option_names import ALIGNMENTS, SEQUENCE_MODES


def add_arguments(parser: Parser) -> None:
    """What the command takes."""
    parser.description = (
        "Run a SLAM over a folder (EuRoC, TUM-VI, KITTI, TUM RGB-D), a ROS 1 or 2 bag, a video, or a webcam "
        "by its number; write the trajectory, and the map for a later run."
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="folder, .bag, .db3, .mcap, video, or number of a webcam"
    )
    parser.add_argument(
        "--mode", choices=SEQUENCE_MODES, default="stereo-inertial", help="(default: stereo-inertial)"
    )
    about = "of Kalibr, OpenVINS or ORB-SLAM3, where the source has none"
    parser.add_argument("--calibration", metavar="FILE", help=about)
    parser.add_argument("-o", "--output", metavar="FILE", help="trajectory to write (TUM)")
    parser.add_argument("--map", metavar="FILE", help="map of an earlier run to go on in (.vib)")
    about = "only find poses in the map, which stays as it is"
    parser.add_argument("--localization", action="store_true", help=about)
    parser.add_argument("--save-map", metavar="FILE", help="map to write (.vib)")
    about = "topics of a bag's cameras, in the order of the calibration: /cam0/image_raw,/cam1/image_raw"
    parser.add_argument("--images", type=arguments.names, metavar="TOPICS", help=about)
    about = "topic of a bag's IMU, or the table of a video's (EuRoC's data.csv)"
    parser.add_argument("--imu", metavar="TOPIC|FILE", help=about)
    parser.add_argument("--depth", metavar="TOPIC", help="topic of a bag's depth images")
    about = "stamp [ns] of a video's first frame in the IMU's time"
    parser.add_argument("--start", type=int, default=0, metavar="NS", help=about)
    about = "what happens to frames while tracking is busy (default: drop of webcams, else wait)"
    parser.add_argument("--when-busy", choices=("wait", "drop"), help=about)
    about = "mapping in line: the same answer every time"
    parser.add_argument("--single-thread", action="store_true", help=about)
    parser.add_argument("--max-frames", type=positive_int, metavar="N", help="only the first N frames")
    about = "true trajectory to compare with: TUM, KITTI or EuRoC (default: the folder's own)"
    parser.add_argument("--truth", metavar="FILE", help=about)
    parser.add_argument("--align", choices=ALIGNMENTS, help="before errors are taken (default: by mode)")
    about = "show the run while it lasts, at http://127.0.0.1:PORT/ of this machine only (default: 8123)"
    parser.add_argument("--live", type=port, nargs="?", const=8123, metavar="PORT", help=about)
    arguments.add_solver(parser, parser, ("device",))
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run it; 0, or 1 where no frame has a pose."""
    try:
        from slam_bridge.evaluation import command
    except ImportError as error:
        raise OptionError(f"graphopt slam needs the package slam_bridge: {error}.") from error
    _check_outputs(args)
    given = {name: value for name, value in vars(args).items() if name not in ("command", "json")}
    facts = command.slam(command.SlamRequest(**given))
    if args.json:
        output.print_json(facts)
    else:
        _print(facts)
    for fault in facts["failed"]:
        print(f"graphopt: {fault}", file=sys.stderr)
    return 0 if facts["frames_with_pose"] and not facts["failed"] else 1


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse what cannot be written before anything runs."""
    from graphopt import io

    for path in (args.output, args.save_map):
        if path is not None:
            io.check_writable(path)
    if args.save_map is not None and Path(args.save_map).suffix != ".vib":
        raise OptionError(f"--save-map {args.save_map}: maps are written as .vib.")
    if args.localization and args.map is None:
        raise OptionError("--localization needs a map: --map FILE.")


def _print(facts: dict[str, Any]) -> None:
    shown = [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in facts.items()
        if name not in ("failed",) and value not in ("", None, [])
    ]
    output.print_facts(shown)
