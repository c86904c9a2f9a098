"""`graphopt optimize`: read, choose start values and kernels, minimize chi2, write, report.

Everything that could fail late is checked early: outputs are tested for writability before anything is read.
An interrupted run keeps the best estimate so far and writes it where `-o` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import output
from graphopt.cli.interrupt import StopOnInterrupt

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.io import ReadReport


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0 if solved, 1 if the optimizer failed or was interrupted."""
    _check_outputs(args)
    import graphopt

    started = time.perf_counter()
    graph, report = graphopt.io.read_with_report(args.input)
    read_seconds = time.perf_counter() - started
    _check_input(graph, report, args)

    if args.initialize != "none":
        graphopt.initialize(graph, args.initialize)
    if args.robust_kernel is not None:
        name, width = args.robust_kernel
        graph.set_robust_kernel(name, width)

    before = graph.copy() if args.plot else None
    summary, interrupted = _solve(graph, args)
    document = summary.to_dict()
    document["seconds"]["read"] = read_seconds
    document["seconds"]["total"] += read_seconds
    document["input"] = args.input
    document["unknown_tags"] = dict(report.unknown_tags)
    document["output"] = _output_path(args, interrupted)
    document["warnings"] = [*report.warnings, *_write(graph, document["output"])]

    if args.stats:
        Path(args.stats).write_text(output.to_json(document) + "\n", encoding="utf-8")
    if before is not None:
        _plot(args.plot, before, graph, document)
    if args.json:
        output.print_json(document)
    else:
        _print_summary(document, args)
    return _status(summary, document["output"], interrupted)


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work, not after it, what cannot be written or drawn."""
    from graphopt.io import check_writable

    for path in (args.output, args.stats, args.plot):
        if path is not None:
            check_writable(path)
    if args.plot is not None:
        from graphopt.report.figure import require_matplotlib

        require_matplotlib(args.plot)


def _check_input(graph: Graph, report: ReadReport, args: argparse.Namespace) -> None:
    """Say what is odd about the input while there is time to stop."""
    for warning in report.warnings:
        print(f"graphopt: {warning}", file=sys.stderr)
    if report.needs_initialization and args.initialize == "none":
        print(
            f"graphopt: {args.input} holds no estimates; the optimization starts at the origin. "
            "--initialize spanning-tree or chordal computes better start values.",
            file=sys.stderr,
        )


def _solve(graph: Graph, args: argparse.Namespace) -> tuple[Any, bool]:
    """Optimize with progress; return the summary and whether the user stopped it."""
    import graphopt

    progress = output.Progress(verbose=args.verbose, as_json=args.json, num_iterations=args.iterations)
    with StopOnInterrupt() as interrupt, progress:
        summary = graphopt.optimize(
            graph,
            method=args.method,
            max_iterations=args.iterations,
            linear_solver=args.linear_solver,
            schur=args.schur,
            device=args.device,
            precision=args.precision,
            fix=args.fix,
            time_limit=args.time_limit,
            callback=progress.update,
            stop=interrupt.stop,
        )
    return summary, interrupt.stop.is_set()


def _output_path(args: argparse.Namespace, interrupted: bool) -> str | None:
    """Where the result goes; an interrupted run without `-o` asks, if there is someone to ask."""
    if args.output is None and interrupted and not args.json and sys.stdin.isatty() and sys.stderr.isatty():
        return _ask_where(args.input)
    return args.output


def _write(graph: Graph, path: str | None) -> list[str]:
    import graphopt

    return [] if path is None else graphopt.io.write(graph, path)


def _ask_where(input_path: str) -> str | None:
    name = Path(input_path).name.split(".")[0]
    proposal = f"{name}_interrupted.g2o"
    print(f"Save the best estimate so far to {proposal}? [Y/n or another file] ", end="", file=sys.stderr)
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if answer.lower() in ("n", "no"):
        return None
    path = proposal if answer.lower() in ("", "y", "yes") else answer
    return path


def _plot(path: str, before: Graph, after: Graph, document: dict[str, Any]) -> None:
    from graphopt.report import plot_run

    plot_run(path, before, after, document)


def _print_summary(document: dict[str, Any], args: argparse.Namespace) -> None:
    chi2 = f"{output.number(document['initial_chi2'])} -> {output.number(document['final_chi2'])}"
    times = document["seconds"]
    parts = ", ".join(f"{name} {output.seconds(value)}" for name, value in times.items() if name != "total")
    rows = [
        ("graph", f"{document['vertices']} vertices, {document['edges']} edges"),
        ("chi2", chi2),
        ("iterations", f"{len(document['iterations'])} ({document['method']})"),
        ("linear solver", f"{document['linear_solver']}, Schur {document['schur']}"),
        ("device", f"{document['device_name']} ({document['precision']})"),
        ("time", f"{output.seconds(times['total'])}: {parts}"),
        ("termination", document["termination"]),
    ]
    fixed = document.get("fixed_by_gauge") or []
    if fixed:
        ids = ", ".join(str(identifier) for identifier in fixed)
        rows.insert(1, ("gauge", f"nothing was fixed, so vertex {ids} is held still"))
    for tag, count in document["unknown_tags"].items():
        rows.append(("kept as is", f"{count} lines of unknown tag {tag}"))
    rows.extend(("warning", warning) for warning in document["warnings"])
    if document["output"]:
        rows.append(("written", document["output"]))
    if args.plot:
        rows.append(("drawn", args.plot))
    output.print_table(None, (Path(args.input).name, ""), rows)


def _status(summary: Any, written: str | None, interrupted: bool) -> int:
    if interrupted:
        kept = (
            f"the best estimate so far is in {written}" if written else "no -o was given, nothing was written"
        )
        print(f"graphopt: interrupted; {kept}.", file=sys.stderr)
        return 1
    if not summary.termination.is_usable:
        print(f"graphopt: the optimizer failed. {summary.message}", file=sys.stderr)
        return 1
    return 0
