"""`graphopt eval`: run the units of a kind, show what is running and how long it takes, report."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from graphopt.cli import output
from graphopt.errors import OptionError


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
    _check_configurations(args.config)
    options = _solver_options(args)
    units = {"bal": bal.units, "pose-graph": pose_graphs.units}[args.kind]
    return units(paths, args.config, args.peer, options, args.runs), {**options, "runs": args.runs}


def _vib(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import runner

    paths = _paths(args.inputs)
    _check_configurations(args.config)
    options = _solver_options(args)
    if "max_iterations" in options:
        options["iterations"] = options.pop("max_iterations")
    own = {"problem": args.problem, "options": options, "runs": args.runs}
    found = [
        runner.Unit(
            f"{name} {configuration}",
            "slam_bridge.exchange.evaluate:evaluate",
            {"name": name, "path": str(path), "configuration": configuration, **own},
        )
        for name, path in paths.items()
        for configuration in args.config
    ]
    return found, own


def _colmap(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import colmap

    _check_configurations(args.config)
    options = _solver_options(args)
    refine = {
        "refine_focal_length": not args.fix_focal_length,
        "refine_principal_point": args.refine_principal_point,
        "refine_extra_params": not args.fix_distortion,
        "refine_points3D": not args.fix_points,
        "refine_rig_from_world": not args.fix_poses,
        "refine_sensor_from_rig": not args.fix_rigs,
        "loss_function_type": args.loss,
        "loss_function_scale": args.loss_scale,
    }
    folder = Path(args.output or f"eval-{args.kind}")
    paths = {_model_name(path): path for path in map(Path, args.inputs)}
    found = colmap.units(paths, args.config, args.peer, refine, options, args.runs, folder)
    return found, {**options, **refine, "runs": args.runs}


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
    found = trajectories.units(_paths(args.inputs), Path(args.truth), options)
    return found, {**options, "truth": args.truth}


def _sequences(args: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    from graphopt.evaluate import optional, sequences

    _check_configurations(args.config)
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
    modes = args.mode or [sequences.default_mode(args.kind)]
    found = sequences.find(args.kind, args.root, args.sequences)
    folder = Path(args.output or f"eval-{args.kind}")
    if args.live is not None:
        if args.jobs > 1:
            raise OptionError(
                f"--live shows one run at a time, --jobs is {args.jobs}. Leave one of them out."
            )
        if isinstance(args.live, int):
            print(f"live view: http://127.0.0.1:{args.live}/ (this machine only)", file=sys.stderr)
        else:
            optional.load("rerun", "rerun-sdk")
    units = sequences.units(args.kind, found, modes, args.config, options, folder, args.live)
    num_runs = len(units) * options["runs"]
    if isinstance(args.live, str) and args.live.endswith(".rrd") and num_runs > 1:
        raise OptionError(f"--live {args.live} records one run, these are {num_runs}. Add --runs 1.")
    return units, {**options, "modes": modes, "configurations": args.config}


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
        "max_iterations": args.iterations,
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
    found: dict[str, Path] = {}
    for word in inputs:
        path = Path(word)
        name = path.name
        if not path.exists():
            path, name = _registered(word)
        while Path(name).suffix in (".xz", ".gz", ".bz2", ".txt", ".g2o", ".graph", ".csv", ".npz", ".vib"):
            name = Path(name).stem
        if name in found:
            name = str(path)
        found[name] = path
    return found


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
        for said in (entry.get("message"), entry.get("notes")):
            if said:
                print(f"{key}: {said}")
    output.print_facts([("written", str(path)) for path in written])


class Watcher:
    """Shows on stderr what runs, what is done, and how long the rest will take."""

    def __init__(self, num_units: int) -> None:
        self._num_units = num_units
        self.num_done = 0
        self._start = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Watcher:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._num_units)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, key: str) -> None:
        """A unit starts."""
        if self._bar is not None:
            self._bar.update(self._task, description=key)

    def end(self, key: str, entry: dict[str, Any]) -> None:
        """A unit has ended."""
        self.num_done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self.num_done)
            return
        spent = time.perf_counter() - self._start
        left = spent / self.num_done * (self._num_units - self.num_done)
        state = "failed" if "error" in entry else output.seconds(entry["wall_seconds"])
        print(
            f"[{self.num_done}/{self._num_units}] {key}: {state}, about {output.seconds(left)} to go",
            file=sys.stderr,
        )
