"""`graphopt info | optimize` of maps (.vib, and .npz of older versions), solved by `slam_bridge`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from graphopt.cli import output, parsers
from graphopt.cli.interrupt import StopOnInterrupt
from graphopt.errors import OptionError

if TYPE_CHECKING:
    from slam_bridge.exchange import VibProblem

DEFAULT_PROBLEM = "full-inertial"
_TAKEN = {
    *("command", "input", "output", "problem", "stats", "json", "method", "max_iterations", "time_limit"),
    *("configuration", "device", "linear_solver", "schur", "precision", "schedule"),
}
"""Options of `optimize` that a map has a place for."""


def holds_map(path: str) -> bool:
    """A file of a visual-inertial problem by its name, or an archive with a map by its content."""
    return path.lower().endswith(".vib") or is_map_archive(path)


def is_map_archive(path: str) -> bool:
    """An archive (.npz) of a map."""
    if not (path.lower().endswith(".npz") and os.path.isfile(path)):
        return False
    from graphopt.io import detect

    with open(path, "rb") as file:
        return detect.is_map_archive(file.read(100))


def info(args: argparse.Namespace) -> int:
    """Print what the file holds; return 0."""
    from slam_bridge.exchange.convert import read_map_file

    started = time.perf_counter()
    document = describe(read_map_file(args.input), args.input)
    document["seconds"] = time.perf_counter() - started
    if args.json:
        output.print_json(document)
        return 0
    print(f"{args.input} (visual-inertial problem)\n")
    rows = [(name, str(count)) for name, count in document["counts"].items()]
    output.print_table(("what", "count"), rows, numeric=("count",))
    print()
    facts = [("camera", camera) for camera in document["cameras"]]
    facts += [(name, str(document[name])) for name in ("duration_s", "raw_imu_samples", "truth")]
    facts += [(name, str(value)) for name, value in document["provenance"].items()]
    output.print_facts([*facts, ("read in", output.seconds(document["seconds"]))])
    return 0


def describe(problem: VibProblem, path: str) -> dict[str, Any]:
    """Facts about a problem, ready for JSON."""
    world = problem.map
    stamps = world.keyframes["stamp"]
    seen = world.observations
    return {
        "path": path,
        "format": "vib" if path.lower().endswith(".vib") else "map",
        "counts": {name: len(table) for name, table in world.tables.items()},
        "stereo_observations": int((seen["right"] == seen["right"]).sum()),
        "cameras": [
            f"{name}: {camera.model}, {camera.resolution}"
            for name, camera in zip(world.rig.names, world.rig, strict=True)
        ]
        if world.rig is not None
        else [],
        "duration_s": float((stamps[-1] - stamps[0]) * 1e-9) if len(stamps) else 0.0,
        "raw_imu_samples": 0 if problem.imu is None else len(problem.imu),
        "truth": problem.truth is not None,
        "provenance": problem.provenance,
    }


def optimize(args: argparse.Namespace) -> int:
    """Solve the problem, write, report; return 0 if solved, 1 if the optimizer failed or was interrupted."""
    from slam_bridge.exchange import solve_problem
    from slam_bridge.exchange.convert import read_map_file, write_map_file

    started = time.perf_counter()
    problem = read_map_file(args.input)
    read_seconds = time.perf_counter() - started
    kind = args.problem or DEFAULT_PROBLEM
    with StopOnInterrupt() as interrupt:
        solved = solve_problem(problem, kind, _options(args, interrupt.stop))
    if args.output is not None:
        for warning in write_map_file(problem, args.output):
            print(f"graphopt: {warning}", file=sys.stderr)
    result = solved.result
    document = result.summary.to_dict()
    document["seconds"] = {"read": read_seconds, **result.seconds}
    document["seconds"]["total"] += read_seconds
    document |= {"input": args.input, "output": args.output, "problem": kind, "rounds": result.rounds}
    document["keyframes"], document["landmarks"] = len(result.keyframes), len(result.landmarks)
    document["observations"], document["inliers"] = len(result.observations), result.num_inliers
    document["rejected"] = {name: len(ids) for name, ids in result.rejected.items()}
    document["chi2_by_edge_set"] = dict(result.chi2)
    document["truth"], document["truth_before"] = solved.truth, solved.truth_before
    if args.stats:
        from graphopt.io.files import write_bytes

        write_bytes(args.stats, (output.to_json(document) + "\n").encode())
    if args.json:
        output.print_json(document)
    else:
        _print(document)
    if result.is_usable and document["termination"] not in ("user_stop", "user_interrupt"):
        return 0
    where = f"The best estimate so far is in {args.output}." if args.output else "Nothing was written."
    print(f"graphopt: {document['termination_message']} {document['message']} {where}", file=sys.stderr)
    return 1


def check(args: argparse.Namespace) -> None:
    """`OptionError` for options of `optimize` that such a problem has no use for."""
    from graphopt.io import check_writable

    defaults = vars(parsers.parse(["optimize", args.input], ""))
    flags = {"every": "checkpoint-every"}
    for name, value in vars(args).items():
        if name not in _TAKEN and value != defaults[name]:
            raise OptionError(
                f"--{flags.get(name, name).replace('_', '-')} is for graphs; {args.input} is a "
                "visual-inertial problem, which slam_bridge solves. Its options: --problem, --method, -i, "
                "--device, --configuration, --linear-solver, --schur, --schedule, --precision, --time-limit."
            )
    if args.output is not None and not args.output.lower().endswith(".vib"):
        raise OptionError(f"{args.output}: the result is a map, which is written as .vib.")
    for path in (args.output, args.stats):
        if path is not None:
            check_writable(path)


def _options(args: argparse.Namespace, stop: Any) -> Any:
    from slam_bridge.options import SolveOptions

    named = {
        "device": args.device,
        "configuration": args.configuration,
        "linear_solver": args.linear_solver,
        "schur": args.schur,
        "precision": args.precision,
        "schedule": args.schedule,
        "time_limit": args.time_limit,
        "stop": stop,
    }
    if args.method != "auto":
        named["method"] = args.method
    if args.max_iterations is not None:
        named["iterations"] = args.max_iterations
    return SolveOptions(**named)


def _print(document: dict[str, Any]) -> None:
    rows = [
        (
            "problem",
            f"{document['input']}: {document['problem']}, {document['keyframes']} keyframes, "
            f"{document['landmarks']} landmarks, {document['inliers']} inliers of {document['observations']}",
        ),
        (
            "chi2",
            " -> ".join(output.number(document[name]) for name in ("initial_chi2", "final_chi2"))
            + ", last round",
        ),
        *output.outcome(document, f", round {document['rounds']}"),
    ]
    before = document["truth_before"]
    for name, value in document["truth"].items():
        was = f"{before[name]:.6g} -> " if name in before and isinstance(value, float) else ""
        rows.append((f"truth {name}", f"{was}{value:.6g}" if isinstance(value, (int, float)) else str(value)))
    if document["output"]:
        rows.append(("written", document["output"]))
    output.print_facts(rows)
