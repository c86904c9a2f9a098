"""Arguments of `graphopt eval`, `datasets`, `view` and `compare`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from graphopt.cli import vi_parser
from graphopt.option_names import ALIGNMENTS, DELTA_UNITS, PRECISIONS, SEQUENCE_MODES

BAL_PEERS = ("pyceres", "gtsam")
GRAPH_PEERS = ("g2opy", "gtsam")
COLMAP_PEERS = ("pycolmap",)
LOSSES = ("TRIVIAL", "SOFT_L1", "CAUCHY", "HUBER")
SEQUENCE_KINDS = {
    "euroc": "EuRoC MAV: folders with mav0 in them",
    "tumvi": "TUM VI, exported 512: folders dataset-*_512_16",
    "kitti": "KITTI odometry (sequences/NN) and raw (DATE_drive_NNNN_sync)",
}


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError("expected names separated by commas")
    return found


def live_target(text: str) -> int | str:
    """Parse a port, "rerun" or the name of a recording."""
    if text == "rerun" or text.endswith(".rrd"):
        return text
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"'{text}' is no port (1 to 65535), rerun, or FILE.rrd")
    return int(text)


def chosen_from(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A parser of names separated by commas, all of them known."""

    def parse(text: str) -> list[str]:
        for name in (found := names(text)):
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown '{name}'. Known: {', '.join(known)}")
        return found

    return parse


def add_eval(commands: Any, types: Any) -> None:
    """Add `graphopt eval` with one parser per kind; `types` is the module of argument types."""
    parser = commands.add_parser(
        "eval",
        help="measure on data sets, beside other solvers, and write a report",
        description="Run problems or sequences; write results.json, report.html and pictures into a folder.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    bal = kinds.add_parser("bal", help="bundle adjustment in the large: time, iterations, error, memory")
    bal.add_argument(
        "inputs", nargs="+", metavar="FILE|NAME", help="BAL file, or a name of graphopt datasets"
    )
    _add_solving(bal, types, BAL_PEERS)
    graphs = kinds.add_parser("pose-graph", help="pose graphs and other graph files: time and chi2")
    graphs.add_argument(
        "inputs", nargs="+", metavar="FILE|NAME", help="graph file, or a name of graphopt datasets"
    )
    _add_solving(graphs, types, GRAPH_PEERS)
    vib = kinds.add_parser(
        "vib", help="visual-inertial problems: time, chi2, memory, errors against the truth"
    )
    vib.add_argument("inputs", nargs="+", metavar="FILE.vib", help="made by graphopt generate vi")
    vib.add_argument(
        "--problem", choices=vi_parser.PROBLEMS, default="full-inertial", help="(default: full-inertial)"
    )
    _add_solving(vib, types, ())
    colmap = kinds.add_parser("colmap", help="COLMAP models: refined with all their cameras and rigs")
    colmap.add_argument("inputs", nargs="+", metavar="MODEL", help="folder of a sparse model")
    _add_refinement(colmap, types)
    _add_solving(colmap, types, COLMAP_PEERS)
    trajectory = kinds.add_parser("trajectory", help="errors of trajectory files against a truth, as evo's")
    trajectory.add_argument("inputs", nargs="+", metavar="FILE", help="estimates: TUM, KITTI or EuRoC")
    trajectory.add_argument(
        "--truth", required=True, metavar="FILE", help="true trajectory: TUM, KITTI or EuRoC"
    )
    _add_alignment(trajectory, types, "se3")
    _add_output(trajectory, types)
    for kind, text in SEQUENCE_KINDS.items():
        _add_sequences(kinds.add_parser(kind, help=f"a SLAM over image sequences: {text}"), types)


def _add_sequences(parser: Any, types: Any) -> None:
    parser.add_argument("--root", required=True, metavar="DIR", help="folder at or above the sequences")
    parser.add_argument("--sequences", type=names, metavar="NAMES", help="only these: MH_01,V1_02")
    parser.add_argument(
        "--mode",
        type=chosen_from(SEQUENCE_MODES),
        metavar="MODES",
        help=f"{', '.join(SEQUENCE_MODES)} (default: stereo-inertial; of kitti stereo)",
    )
    parser.add_argument(
        "--config",
        type=names,
        default=["auto"],
        metavar="NAMES",
        help="configurations of the bundle adjustments: auto, llt-cpu, pcg-gpu, ... (default: auto)",
    )
    parser.add_argument(
        "--device", type=types.device, default="auto", metavar="DEVICE", help="as for optimize"
    )
    parser.add_argument(
        "--runs",
        type=types.positive_int,
        metavar="N",
        help="runs of each, the one with the median error counts (default: 5, with --single-thread 1)",
    )
    parser.add_argument(
        "--single-thread", action="store_true", help="mapping in line: the same answer every time"
    )
    parser.add_argument("--max-frames", type=types.positive_int, metavar="N", help="only the first N frames")
    parser.add_argument(
        "--calibration", metavar="FILE", help="of Kalibr, OpenVINS or ORB-SLAM3, where the folder has none"
    )
    parser.add_argument(
        "--live",
        type=live_target,
        nargs="?",
        const=8123,
        metavar="PORT|rerun|FILE.rrd",
        help="show the run while it lasts, at http://127.0.0.1:PORT/ of this machine only (default: 8123), "
        "or in the rerun viewer where it is installed; or record it for that",
    )
    _add_alignment(parser, types, None)
    _add_output(parser, types)


def _add_refinement(parser: Any, types: Any) -> None:
    parser.add_argument("--fix-focal-length", action="store_true", help="keep focal lengths")
    parser.add_argument("--refine-principal-point", action="store_true", help="move principal points")
    parser.add_argument("--fix-distortion", action="store_true", help="keep distortion parameters")
    parser.add_argument("--fix-points", action="store_true", help="keep points")
    parser.add_argument("--fix-poses", action="store_true", help="keep poses")
    parser.add_argument("--fix-rigs", action="store_true", help="cameras keep their places on their rigs")
    parser.add_argument("--loss", choices=LOSSES, default="TRIVIAL", help="loss function (default: TRIVIAL)")
    parser.add_argument(
        "--loss-scale", type=types.positive_float, default=1.0, metavar="PX", help="(default: 1)"
    )


def _add_solving(parser: Any, types: Any, peers: tuple[str, ...]) -> None:
    parser.add_argument(
        "--config",
        type=names,
        default=["auto"],
        metavar="NAMES",
        help="configurations: auto, llt-cpu, pcg-gpu, pcg-implicit-gpu, ... (default: auto)",
    )
    parser.add_argument(
        "--method",
        choices=types.ALGORITHMS,
        default="auto",
        help="optimization algorithm",
    )
    parser.add_argument("-i", "--iterations", type=types.positive_int, metavar="N", help="iterations at most")
    parser.add_argument(
        "--device", type=types.device, default="auto", metavar="DEVICE", help="as for optimize"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="auto", help="on a device")
    parser.add_argument(
        "--time-limit", type=types.positive_float, metavar="S", help="seconds per run at most"
    )
    if peers:
        parser.add_argument(
            "--peer",
            type=chosen_from(peers),
            default=[],
            metavar="NAMES",
            help=f"beside it: {', '.join(peers)}",
        )
    parser.add_argument(
        "--runs", type=types.positive_int, default=3, metavar="N", help="runs, the median counts (default: 3)"
    )
    _add_output(parser, types)


def _add_alignment(parser: Any, types: Any, default: str | None) -> None:
    usual = default or "se3, with one camera sim3"
    parser.add_argument(
        "--align", choices=ALIGNMENTS, default=default, help=f"alignment with the truth (default: {usual})"
    )
    parser.add_argument(
        "--delta", type=types.positive_float, default=1.0, metavar="X", help="of relative errors (default: 1)"
    )
    parser.add_argument("--delta-unit", choices=DELTA_UNITS, default="frames", help="(default: frames)")
    parser.add_argument(
        "--max-time-difference",
        type=types.positive_float,
        default=0.01,
        metavar="S",
        help="between an estimate and its truth (default: 0.01)",
    )


def _add_output(parser: Any, types: Any) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", help="folder of the report (default: eval-KIND)")
    parser.add_argument(
        "--jobs", type=types.positive_int, default=1, metavar="N", help="processes (default: 1)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what the folder has already")
    parser.add_argument("--json", action="store_true", help="print results.json, and nothing else")


def add_datasets(commands: Any) -> None:
    """Add `graphopt datasets`."""
    parser = commands.add_parser(
        "datasets",
        help="public data sets: list, describe, download",
        description="Public data sets by name. $GRAPHOPT_DATA names folders that have copies already.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all data sets, and where they are on this machine")
    listing.add_argument("collection", nargs="?", help="only of this collection: bal, euroc, tumvi, ...")
    info = actions.add_parser("info", help="licence, citation, address of a data set or collection")
    info.add_argument("name")
    fetch = actions.add_parser("fetch", help="download; an interrupted download goes on where it stopped")
    fetch.add_argument("names", nargs="+", metavar="NAME")
    path = actions.add_parser("path", help="print where a data set is on this machine")
    path.add_argument("name")
    for action in (listing, info):
        action.add_argument("--json", action="store_true", help="print JSON, and nothing else")


def add_view(commands: Any) -> None:
    """Add `graphopt view`."""
    parser = commands.add_parser(
        "view",
        help="an interactive 3-D page of a graph or a result",
        description="Write one self-contained page: poses, edges, points, errors as colour; no network.",
    )
    parser.add_argument(
        "input", metavar="FILE|RESULT", help="graph file, trajectory, or folder of graphopt eval"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", help="page to write (default: beside the input's name)"
    )
    parser.add_argument("--before", metavar="FILE", help="graph with the estimates before the optimization")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def add_compare(commands: Any, types: Any) -> None:
    """Add `graphopt compare`."""
    parser = commands.add_parser(
        "compare",
        help="mark the differences of two results",
        description="Compare two results of graphopt eval by entry. Exit status 1: something got worse.",
    )
    parser.add_argument("before", metavar="A", help="folder or results.json")
    parser.add_argument("after", metavar="B", help="folder or results.json")
    parser.add_argument(
        "--tolerance",
        type=types.non_negative_float,
        default=0.1,
        metavar="X",
        help="relative change of times and memory that counts (default: 0.1); of errors a hundredth",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
