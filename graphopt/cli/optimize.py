"""`graphopt optimize`: read, choose start values and kernels, minimize chi2, write, report.

Everything that could fail late is checked early: outputs are tested for writability before anything is read.
An interrupted run keeps the best estimate so far and writes it where `-o` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import arguments, distributed, output, vib
from graphopt.cli.declared import add_options, declared
from graphopt.cli.interrupt import StopOnInterrupt
from graphopt.cli.parsers import EPILOG, Parser, number, positive_float, positive_int, whole_number
from graphopt.errors import GraphOptError, OptionError
from graphopt.option_names import INITIALIZATIONS, PARTITIONS, RANKS, ROBUST, ROBUST_KERNELS, TRANSPORTS
from graphopt.suggestions import did_you_mean

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.io import ReadReport
    from graphopt.optimizer.summary import Summary


def add_arguments(parser: Parser) -> None:
    """What the command takes."""
    parser.description = "Read a graph, minimize the sum of e' Omega e over its edges, and save the estimate."
    parser.epilog = EPILOG
    what = "graph file: .g2o, BAL, COLMAP, TORO, iSAM, Bundler; or .vib"
    arguments.add_input(parser, what)
    parser.add_argument("-o", "--output", metavar="OUT", help="where the optimized graph goes")
    arguments.add_method(parser, parser)
    arguments.add_solver(parser, parser, ("device",))
    parser.add_argument("--stats", metavar="FILE.json", help="write the summary as JSON to this file")
    arguments.add_json(parser, "the summary as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw before, after and convergence (.png .pdf .svg)")
    parser.add_argument("-v", "--verbose", action="store_true", help="one line per iteration")
    _add_problem(parser.add_argument_group("the problem"))
    expert = parser.add_argument_group("expert options: the linear solver")
    solver = declared("graphopt/linear/options.py", "SolverOptions")
    arguments.add_solver(expert, parser, [name for name in solver if name != "device"])
    _add_distributed(parser.add_argument_group("expert options: several ranks or devices"), parser)


def _add_problem(parser: Any) -> None:
    """What is minimized, and from where."""
    parser.add_argument(
        "--problem",
        choices=arguments.VIB_PROBLEMS,
        help="what of a .vib file is solved (default: full-inertial)",
    )
    parser.add_argument(
        "--robust-kernel",
        type=robust_kernel,
        metavar="NAME[:WIDTH]",
        help="robust kernel for every edge: " + ", ".join(ROBUST_KERNELS),
    )
    parser.add_argument(
        "--robust",
        choices=ROBUST,
        default="kernels",
        help="graduated: find out by graduated non-convexity which edges are wrong, among those with a "
        "robust kernel or, where none has one, the loop closures",
    )
    parser.add_argument(
        "--initialize",
        choices=("none", *INITIALIZATIONS),
        help="compute start values first (default: spanning-tree for files without estimates, else none)",
    )
    parser.add_argument(
        "--fix",
        type=gauge,
        default="auto",
        metavar="auto|none|ID,ID",
        help="vertices that are fixed; auto fixes one where nothing else fixes the gauge",
    )


_OF_RANKS = ("ranks", "partition", "transport", "checkpoint", "every", "resume")


def _add_distributed(parser: Any, owner: Parser) -> None:
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="over the ranks of mpirun or srun: mpirun -n 4 graphopt optimize FILE --distributed",
    )
    parser.add_argument(
        "--read-in-parts",
        action="store_true",
        help="with --distributed: a graph archive (.npz) stays in its file, from which ranks get their parts",
    )
    add_options(
        parser,
        owner,
        declared("graphopt/distributed/options.py", "RankOptions"),
        _OF_RANKS,
        ranks={"choices": RANKS, "help": "with --distributed: those that are expected to help, or all"},
        partition={"choices": PARTITIONS, "help": "with --distributed: how landmarks are partitioned"},
        transport={
            "choices": TRANSPORTS,
            "help": "over several GPUs: how the rows that they share travel in each iteration",
        },
        checkpoint={"metavar": "FILE.npz", "help": "with --distributed: write the estimates on the way"},
        every={
            "flags": ("--checkpoint-every",),
            "old": ("--every",),
            "type": positive_int,
            "help": "iterations between two checkpoints",
        },
        resume={
            "metavar": "FILE.npz",
            "help": "with --distributed: start from a checkpoint of any run of INPUT",
        },
    )


def robust_kernel(text: str) -> tuple[str, float]:
    """Parse NAME[:WIDTH] into the kernel's name as g2o writes it and its width (1 if none is given)."""
    name, _, width = text.partition(":")
    by_lower = {known.lower(): known for known in ROBUST_KERNELS}
    if name.lower() not in by_lower:
        known = ", ".join(ROBUST_KERNELS)
        raise argparse.ArgumentTypeError(
            f"unknown robust kernel '{name}'.{did_you_mean(name, ROBUST_KERNELS)} Known: {known}."
        )
    try:
        number(width or "1")
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"'{width}' is not a width; write {name}:1.5") from None
    return by_lower[name.lower()], positive_float(width) if ":" in text else 1.0


def gauge(text: str) -> str | list[int]:
    """Parse auto, none, or a list of vertex ids separated by commas."""
    if text in ("auto", "none"):
        return text
    try:
        return [whole_number(word) for word in text.split(",") if word.strip()]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither auto, none nor a list of vertex ids such as 0 or 0,17"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0 if solved, 1 if the optimizer failed or was interrupted."""
    if vib.holds_map(args.input):
        vib.check(args)
        distributed.refuse(args, has_distributed=False)
        return vib.optimize(args)
    if args.problem is not None:
        raise OptionError(f"--problem {args.problem} is for .vib files; {args.input} is none.")
    if args.distributed:
        return _run_on_ranks(args)
    distributed.refuse(args)
    return report(args, read(args))


def _run_on_ranks(args: argparse.Namespace) -> int:
    """`--distributed`: rank 0 reads, reports and writes, all ranks solve; the exit status."""
    from graphopt.distributed.communicator import is_agreed, together
    from graphopt.distributed.mpi import MpiCommunicator, world

    comm = world()
    ranks = MpiCommunicator.of(comm)
    leads = ranks.rank == 0
    try:
        given = together(ranks, lambda: read(args) if leads else None)
        if given is not None:
            return report(args, given, comm)
        return 0 if solve(None, args, comm).is_usable else 1
    except GraphOptError as error:
        if leads or not is_agreed(error):
            raise
        return 2  # rank 0 says it


@dataclass(eq=False)
class Input:
    """What was read."""

    graph: Graph
    report: ReadReport
    seconds: float
    before: Graph | None
    """The graph at its start, where it will be drawn."""


def read(args: argparse.Namespace) -> Input:
    """Read and prepare the graph, after a look at where the results will go."""
    check_outputs(args)
    import graphopt
    from graphopt.io.graph_npz import map_with_report

    started = time.perf_counter()
    read_graph = map_with_report if args.read_in_parts else graphopt.io.read_with_report
    graph, report = read_graph(args.input, dialect=args.dialect)
    seconds = time.perf_counter() - started
    _warn(report.warnings)
    _prepare(graph, report, args)
    return Input(graph, report, seconds, graph.copy() if args.plot else None)


def report(args: argparse.Namespace, given: Input, comm: Any = None) -> int:
    """Optimize, write, and say what was done; the exit status."""
    import graphopt
    from graphopt.io.files import write_bytes

    graph = given.graph
    summary = solve(graph, args, comm)
    interrupted = summary.termination.name in ("USER_STOP", "USER_INTERRUPT")
    written = _output_path(args, interrupted)
    write_warnings = graphopt.io.write(graph, written) if written else []
    _warn(write_warnings)

    document = summary.to_dict()
    document["seconds"]["read"] = given.seconds
    document["seconds"]["total"] += given.seconds
    document["input"], document["output"] = args.input, written
    document["dialect"] = given.report.dialect
    document["unknown_tags"] = dict(given.report.unknown_tags)
    document["warnings"] = [*given.report.warnings, *write_warnings]
    if args.stats:
        write_bytes(args.stats, (output.to_json(document) + "\n").encode())
    if given.before is not None:
        _plot(args.plot, given.before, graph, document)
    tell(args, document, summary)
    return _status(summary, written, interrupted)


def tell(args: argparse.Namespace, document: dict[str, Any], summary: Summary) -> None:
    """Print the report, or the JSON that was asked for."""
    if args.json:
        output.print_json(document)
        return
    _print_summary(document, args)
    for line in summary.rank_lines():
        print(line)


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work, not after it, what cannot be written or drawn."""
    from graphopt.io import check_writable

    for path in (args.output, args.stats, args.plot):
        if path is not None:
            check_writable(path)
    if args.plot is not None:
        from graphopt.evaluate.report.figure import require_matplotlib

        require_matplotlib(args.plot)


def _prepare(graph: Graph, report: ReadReport, args: argparse.Namespace) -> None:
    """Compute start values and set the robust kernel, as asked for."""
    import graphopt
    from graphopt.problem.structure import marginalize_points

    if args.output is not None:
        graphopt.io.check_representable(graph, args.output)  # raises now what would be raised after the work
    method = args.initialize or ("spanning-tree" if report.needs_initialization else "none")
    if args.initialize is None and method != "none":
        _warn([f"{args.input} holds no estimates; start values come from its edges (--initialize {method})."])
    if method != "none":
        graphopt.initialize(graph, method)
    if args.robust_kernel is not None:
        name, width = args.robust_kernel
        graph.set_robust_kernel(name, width)
    marginalize_points(graph, args.schur)


def _warn(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"graphopt: {sentence}", file=sys.stderr)


def solve(graph: Any, args: argparse.Namespace, comm: Any = None) -> Summary:
    """Optimize with progress; graph: None on the ranks of `comm` but the first, which are quiet."""
    import graphopt

    speaks = graph is not None
    quiet = args.json or not speaks
    progress = output.Progress(
        verbose=args.verbose and speaks, as_json=quiet, num_iterations=args.max_iterations
    )
    if comm is not None or "," in args.device or args.transport != "auto":
        if args.robust != "kernels":
            raise OptionError(
                f"--robust {args.robust} runs on one rank. Leave out --distributed and --transport, and name "
                "one device."
            )
        over = {name: getattr(args, name) for name in _OF_RANKS}
        optimizing: Any = partial(graphopt.distributed.optimize, graph, comm, **over)
    else:
        assert graph is not None
        optimizing = partial(graphopt.optimize, graph, robust=args.robust)
    with StopOnInterrupt() as interrupt, progress:
        return optimizing(
            method=args.method,
            max_iterations=args.max_iterations,
            fix=args.fix,
            time_limit=args.time_limit,
            callback=progress.update,
            stop=interrupt.stop,
            **arguments.solver_options(args),
        )


def _output_path(args: argparse.Namespace, interrupted: bool) -> str | None:
    """Where the result goes; an interrupted run without `-o` asks, if there is someone to ask."""
    if args.output is None and interrupted and not args.json and sys.stdin.isatty() and sys.stderr.isatty():
        return _ask_where(args.input)
    return args.output


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
    from graphopt.evaluate.report import plot_run

    plot_run(path, before, after, document)


def _print_summary(document: dict[str, Any], args: argparse.Namespace) -> None:
    chi2 = f"{output.number(document['initial_chi2'])} -> {output.number(document['final_chi2'])}"
    rows = [
        ("graph", f"{args.input}: {document['vertices']} vertices, {document['edges']} edges"),
        ("chi2", chi2),
        *output.outcome(document),
    ]
    if document["precision_note"]:
        rows.insert(-1, ("precision", document["precision_note"]))
    if document["schedule_note"]:
        rows.insert(-1, ("schedule", document["schedule_note"]))
    fixed = document.get("fixed_by_gauge") or []
    if fixed:
        ids = ", ".join(str(identifier) for identifier in fixed)
        held = f"vertex {ids} is" if len(fixed) == 1 else f"vertices {ids} are"
        rows.insert(1, ("gauge", f"nothing was fixed, so {held} held still"))
    for tag, count in document["unknown_tags"].items():
        rows.append(("kept as is", f"{count} lines of unknown tag {tag}"))
    if document["output"]:
        rows.append(("written", document["output"]))
    if document["dialect"] is not None:
        rows.insert(1, ("dialect", document["dialect"]))
    if args.plot:
        rows.append(("drawn", args.plot))
    output.print_facts(rows)


def _status(summary: Summary, written: str | None, interrupted: bool) -> int:
    """Say on stderr what went wrong, if anything did, and return the exit status."""
    if summary.is_usable:
        return 0
    what = "interrupted" if interrupted else f"the optimizer failed. {summary.termination.value}"
    kept = (
        f"The best estimate so far is in {written}." if written else "No -o was given, nothing was written."
    )
    _warn([f"{what.rstrip('.')}. {summary.message} {kept}".replace("  ", " ")])
    return 1
