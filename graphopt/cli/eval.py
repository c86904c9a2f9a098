"""`graphopt eval`: run the units of a kind, show what is running and how long it takes, report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphopt.cli import arguments, output
from graphopt.cli.declared import add_options, declared
from graphopt.cli.parsers import Parser, positive_float, positive_int
from graphopt.errors import OptionError
from graphopt.option_names import ALIGNMENTS, DELTA_UNITS, SEQUENCE_MODES

PEERS = {"bal": ("pyceres", "gtsam"), "pose-graph": ("g2opy", "gtsam"), "colmap": ("pycolmap",), "vib": ()}
LOSSES = ("TRIVIAL", "SOFT_L1", "CAUCHY", "HUBER")
_PROBLEMS = {
    "bal": ("bundle adjustment in the large: time, iterations, error, memory", "FILE|NAME", "BAL file"),
    "pose-graph": ("pose graphs and other graph files: time and chi2", "FILE|NAME", "graph file"),
    "vib": (
        "visual-inertial problems: time, chi2, memory, errors against the truth",
        "FILE.vib",
        "made by generate vi",
    ),
    "colmap": ("COLMAP models: refined with all their cameras and rigs", "MODEL", "folder of a sparse model"),
}
_SEQUENCES = {
    "euroc": "EuRoC MAV: folders with mav0 in them",
    "tumvi": "TUM VI, exported 512: folders dataset-*_512_16",
    "kitti": "KITTI odometry (sequences/NN) and raw (DATE_drive_NNNN_sync)",
}


def add_arguments(parser: Parser) -> None:
    """What the command takes, for each kind."""
    parser.description = (
        "Run problems or sequences; write results.json, report.html and pictures into a folder."
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, (text, metavar, what) in _PROBLEMS.items():
        problem = kinds.add_parser(kind, help=text)
        named = ", or a name of graphopt datasets" if "NAME" in metavar else ""
        problem.add_argument("inputs", nargs="+", metavar=metavar, help=what + named)
        if kind == "vib":
            about = "what of them is solved (default: full-inertial)"
            problem.add_argument(
                "--problem", choices=arguments.VIB_PROBLEMS, default="full-inertial", help=about
            )
        if kind == "colmap":
            _add_refinement(problem)
        _add_solving(problem, PEERS[kind])
    trajectory = kinds.add_parser("trajectory", help="errors of trajectory files against a truth, as evo's")
    trajectory.add_argument("inputs", nargs="+", metavar="FILE", help="estimates: TUM, KITTI or EuRoC")
    truth = "true trajectory: TUM, KITTI or EuRoC"
    trajectory.add_argument("--truth", required=True, metavar="FILE", help=truth)
    _add_errors(trajectory, "se3")
    _add_output(trajectory)
    for kind, text in _SEQUENCES.items():
        _add_sequences(kinds.add_parser(kind, help=f"a SLAM over image sequences: {text}"))


def _add_sequences(parser: Parser) -> None:
    parser.add_argument("--root", required=True, metavar="DIR", help="folder at or above the sequences")
    parser.add_argument("--sequences", type=arguments.names, metavar="NAMES", help="only these: MH_01,V1_02")
    about = f"{', '.join(SEQUENCE_MODES)} (default: stereo-inertial; of kitti stereo)"
    modes = arguments.chosen_from(SEQUENCE_MODES)
    _add_list(parser, "--modes", "--mode", type=modes, metavar="MODES", help=about)
    _add_configurations(parser)
    arguments.add_solver(parser, parser, ("device",))
    about = "runs of each, the one with the median error counts (default: 5, with --single-thread 1)"
    parser.add_argument("--runs", type=positive_int, metavar="N", help=about)
    about = "mapping in line: the same answer every time"
    parser.add_argument("--single-thread", action="store_true", help=about)
    parser.add_argument("--max-frames", type=positive_int, metavar="N", help="only the first N frames")
    about = "of Kalibr, OpenVINS or ORB-SLAM3, where the folder has none"
    parser.add_argument("--calibration", metavar="FILE", help=about)
    parser.add_argument(
        "--live",
        type=port,
        nargs="?",
        const=8123,
        metavar="PORT",
        help="show the run while it lasts, at http://127.0.0.1:PORT/ of this machine only (default: 8123)",
    )
    _add_errors(parser, None)
    _add_output(parser)


def port(text: str) -> int:
    """Parse a port."""
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"'{text}' is no port (1 to 65535)")
    return int(text)


def _add_refinement(parser: Parser) -> None:
    """What of a model is refined: options of `graphopt.colmap.Options`, by pycolmap's names."""
    for old, new in {
        "--fix-focal-length": "--no-refine-focal-length",
        "--fix-distortion": "--no-refine-extra-params",
        "--fix-points": "--no-refine-points3D",
        "--fix-poses": "--no-refine-rig-from-world",
        "--fix-rigs": "--no-refine-sensor-from-rig",
    }.items():
        parser.renamed[old] = new
    settings: dict[str, dict[str, Any]] = {
        "loss_function_type": {"choices": LOSSES, "old": ("--loss",), "help": "loss function"},
        "loss_function_scale": {"old": ("--loss-scale",), "metavar": "PX", "help": "its width"},
    }
    options = declared(*_REFINEMENT)
    add_options(parser, parser, options, _refined(options), **settings)


_REFINEMENT = ("graphopt/colmap/options.py", "Options")


def _refined(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(("refine_", "loss_function_"))]


def _add_list(parser: Parser, flag: str, old: str, **settings: Any) -> None:
    """A flag that takes several names, which was in the singular before."""
    parser.renamed[old] = flag
    parser.add_argument(flag, **settings)


def _add_configurations(parser: Parser) -> None:
    about = "of the solver: auto, llt-cpu, pcg-gpu, pcg-implicit-gpu, ... (default: auto)"
    settings: dict[str, Any] = {"type": arguments.names, "default": ["auto"], "metavar": "NAMES"}
    _add_list(parser, "--configurations", "--config", **settings, help=about)


def _add_solving(parser: Parser, peers: tuple[str, ...]) -> None:
    _add_configurations(parser)
    arguments.add_method(parser, parser)
    arguments.add_solver(parser, parser, ("device", "precision"))
    if peers:
        kind = arguments.chosen_from(peers)
        about = f"beside it: {', '.join(peers)}"
        _add_list(parser, "--peers", "--peer", type=kind, default=[], metavar="NAMES", help=about)
    about = "runs, the median counts (default: 3)"
    parser.add_argument("--runs", type=positive_int, default=3, metavar="N", help=about)
    _add_output(parser)


def _add_errors(parser: Parser, default: str | None) -> None:
    about = f"alignment with the truth (default: {default or 'se3, with one camera sim3'})"
    parser.add_argument("--align", choices=ALIGNMENTS, default=default, help=about)
    about = "distance of the two ends of a relative error (default: 1)"
    parser.add_argument("--delta", type=positive_float, default=1.0, metavar="X", help=about)
    about = "unit of --delta (default: frames)"
    parser.add_argument("--delta-unit", choices=DELTA_UNITS, default="frames", help=about)
    about = "between an estimate and its truth (default: 0.01)"
    parser.add_argument("--max-time-difference", type=positive_float, default=0.01, metavar="S", help=about)


def _add_output(parser: Parser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", help="folder of the report (default: eval-KIND)")
    about = "processes (default: 1)"
    parser.add_argument("--jobs", type=positive_int, default=1, metavar="N", help=about)
    parser.add_argument("--fresh", action="store_true", help="measure again what the folder has already")
    arguments.add_json(parser, "results.json")


def run(args: argparse.Namespace) -> int:
    """Run the evaluation; return 0, or 1 where a unit failed."""
    from graphopt.evaluate import html_report, runner
    from graphopt.evaluate.results import Results

    units, options = _KINDS[args.kind](args)
    folder = Path(args.output or f"eval-{args.kind}")
    _check_folder(folder)
    watcher = Watcher(len(units))
    try:
        with watcher:
            results = runner.run(
                Results(args.kind, options), units, folder, jobs=args.jobs, fresh=args.fresh, watcher=watcher
            )
    except KeyboardInterrupt:
        done = f"{watcher.num_done} of {len(units)} ended here and are in {folder / 'results.json'}"
        raise KeyboardInterrupt(f"{done}; the same command goes on from there.") from None
    written = html_report.write(folder)
    if args.json:
        output.print_json(vars(results))
    else:
        _print(results, written)
    failed = [key for key in results.failed if any(key == unit.key for unit in units)]
    for key in failed:
        print(f"graphopt: {key}: {results.entries[key]['error']}", file=sys.stderr)
    return 1 if failed else 0


def _graphs(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    """Bundle adjustment problems or pose graphs."""
    from graphopt.evaluate import bal, pose_graphs

    paths = _paths(args.inputs)
    _check_configurations(args.configurations)
    options = _solver_options(args)
    units = {"bal": bal.units, "pose-graph": pose_graphs.units}[args.kind]
    return units(paths, args.configurations, args.peers, options, args.runs), {**options, "runs": args.runs}


def _vib(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate.solve import units_of

    paths = _paths(args.inputs)
    _check_configurations(args.configurations)
    options = _solver_options(args)
    if "max_iterations" in options:
        options["iterations"] = options.pop("max_iterations")
    common = {"problem": args.problem, "options": options, "runs": args.runs}
    entries = "slam_bridge.exchange.evaluate:evaluate", ""
    return units_of(entries, paths, args.configurations, (), **common), common


def _colmap(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import colmap

    _check_configurations(args.configurations)
    options = _solver_options(args)
    refine = {name: getattr(args, name) for name in _refined(vars(args))}
    folder = Path(args.output or f"eval-{args.kind}")
    paths = {_model_name(path): path for path in map(Path, args.inputs)}
    units = colmap.units(paths, args.configurations, args.peers, refine, options, args.runs, folder)
    return units, {**options, **refine, "runs": args.runs}


def _model_name(path: Path) -> str:
    """The folder's name; of sparse/0 the folder above, which has the scene's name."""
    parts = [part for part in path.resolve().parts if part not in ("sparse", "0", "model")]
    return parts[-1] if parts else str(path)


def _trajectory(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import trajectories

    options = {
        "align": args.align,
        "delta": args.delta,
        "delta_unit": args.delta_unit,
        "tolerance": args.max_time_difference,
    }
    units = trajectories.units(_paths(args.inputs), Path(args.truth), options)
    return units, {**options, "truth": args.truth}


def _sequences(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import sequences

    _check_configurations(args.configurations)
    options = {
        "runs": args.runs or (1 if args.single_thread else 5),
        "single_thread": args.single_thread,
        "max_frames": args.max_frames,
        "calibration": args.calibration,
        "align": args.align,
        "delta": args.delta,
        "delta_unit": args.delta_unit,
        "tolerance": args.max_time_difference,
        "device": args.device,
    }
    modes = args.modes or [sequences.default_mode(args.kind)]
    folders = sequences.find(args.kind, args.root, args.sequences)
    folder = Path(args.output or f"eval-{args.kind}")
    if args.live is not None:
        if args.jobs > 1:
            raise OptionError(
                f"--live shows one run at a time, --jobs is {args.jobs}. Leave one of them out."
            )
        print(f"live view: http://127.0.0.1:{args.live}/ (this machine only)", file=sys.stderr)
    units = sequences.units(args.kind, folders, modes, args.configurations, options, folder, args.live)
    return units, {**options, "modes": modes, "configurations": args.configurations}


_KINDS = {
    "bal": _graphs,
    "vib": _vib,
    "colmap": _colmap,
    "pose-graph": _graphs,
    "trajectory": _trajectory,
    "euroc": _sequences,
    "tumvi": _sequences,
    "kitti": _sequences,
}


def _solver_options(args: argparse.Namespace) -> dict[str, Any]:
    named = {
        "method": args.method,
        "max_iterations": args.max_iterations,
        "device": args.device,
        "precision": args.precision,
        "time_limit": args.time_limit,
    }
    return {name: value for name, value in named.items() if value not in (None, "auto")}


def _check_configurations(names: list[str]) -> None:
    """Refuse a mistyped configuration before anything runs."""
    from graphopt.linear.options import SolverOptions
    from graphopt.solver.configurations import configured

    for name in names:
        if name != "auto":
            configured(SolverOptions(configuration=name))


def _paths(inputs: list[str]) -> dict[str, Path]:
    """Files by the names that the report gives them: paths as they are, others from the registry."""
    by_name: dict[str, Path] = {}
    for word in inputs:
        path = Path(word)
        name = path.name
        if not path.exists():
            path, name = _registered(word)
        while Path(name).suffix in (".xz", ".gz", ".bz2", ".txt", ".g2o", ".graph", ".csv", ".npz", ".vib"):
            name = Path(name).stem
        if name in by_name:
            name = str(path)
        by_name[name] = path
    return by_name


def _registered(word: str) -> tuple[Path, str]:
    from graphopt.evaluate.datasets.registry import find, missing_message

    if "/" in word or "\\" in word:
        raise OptionError(f"{word}: no such file.")
    try:
        dataset = find(word)
    except OptionError as error:
        raise OptionError(f"{word}: no such file, and {str(error)[:1].lower()}{str(error)[1:]}") from None
    path = dataset.path()
    if path is None:
        raise OptionError(missing_message(dataset))
    return path, dataset.name


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file, expected a folder for the report.")
    folder.mkdir(parents=True, exist_ok=True)


def _print(results: Any, written: list[Path]) -> None:
    from graphopt.evaluate.tables import columns, rows

    shown = columns(results, with_details=False)
    if shown:
        numbers = [column.title for column in shown if column.is_number]
        output.print_table([column.title for column in shown], rows(results, with_details=False), numbers)
    for key, entry in results.entries.items():
        for sentence in (entry.get("message"), entry.get("notes")):
            if sentence:
                print(f"{key}: {sentence}")
    output.print_facts([("written", str(path)) for path in written])


class Watcher:
    """Shows on stderr what runs, what is done, and how long the rest will take."""

    def __init__(self, num_units: int) -> None:
        self._num_units = num_units
        self.num_done = 0
        self._start = time.perf_counter()
        columns = ("{task.description}", "BarColumn", "MofNCompleteColumn", "TimeRemainingColumn")
        self._bar = output.Bar(*columns, total=num_units, description="starting")

    def __enter__(self) -> Watcher:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def begin(self, key: str) -> None:
        """A unit starts."""
        self._bar.update(description=key)

    def end(self, key: str, entry: dict[str, Any]) -> None:
        """A unit has ended."""
        self.num_done += 1
        self._bar.update(completed=self.num_done)
        if self._bar.is_shown:
            return
        spent = time.perf_counter() - self._start
        left = spent / self.num_done * (self._num_units - self.num_done)
        state = "failed" if "error" in entry else output.seconds(entry["wall_seconds"])
        print(
            f"[{self.num_done}/{self._num_units}] {key}: {state}, about {output.seconds(left)} to go",
            file=sys.stderr,
        )
