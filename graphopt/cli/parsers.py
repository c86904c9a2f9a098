"""Arguments of the `graphopt` command. Nothing heavy is imported here, so that `--help` answers at once.

Each command is one `add_*` function; what it does is `run(args)` in the module of the same name, imported
when the command runs. Mistyped commands, options and choices are answered with the nearest known one.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from graphopt.cli import eval_parser, g2o_command, vi_parser
from graphopt.cli.schedules import ScheduleAction
from graphopt.cli.streams import input_file, output_file
from graphopt.option_names import (
    DEVICES,
    INITIALIZATIONS,
    LINEAR_SOLVERS,
    METHODS,
    PARTITIONS,
    PRECISIONS,
    PRECONDITIONERS,
    ROBUST,
    ROBUST_KERNELS,
    SCHEDULES,
    SCHUR_CHOICES,
    TRANSPORTS,
)
from graphopt.plugins import entry_points_of
from graphopt.suggestions import did_you_mean


class TableNames(tuple):
    """Names of a table of this package to choose from; `in` also knows those of installed packages."""

    group: str

    def __new__(cls, group: str, names: Iterable[str]) -> TableNames:
        """group: of the entry points of other packages, see `plugins`."""
        made = super().__new__(cls, names)
        made.group = group
        return made

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in entry_points_of(self.group)


ALGORITHMS = TableNames("graphopt.algorithms", METHODS)
SOLVERS = TableNames("graphopt.linear_solvers", ("auto", *LINEAR_SOLVERS))
DEVICE_PATTERN = re.compile(rf"auto|({'|'.join(DEVICES)})(:[^,]+)?(,(cpu|vulkan:[^,]+))*")

EPILOG = """\
exit status: 0 solved, 1 the optimizer failed or was interrupted, 2 bad usage or input
environment: GRAPHOPT_DEBUG=1 shows tracebacks, GRAPHOPT_ISA=baseline|v3|v4 picks the CPU code"""


class UsageError(Exception):
    """The command line cannot be understood. `usage` says where help is."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` and knows what was probably meant."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` instead of leaving the process."""
        raise UsageError(message[:1].upper() + message[1:], f"Try: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse options that this parser lacks, with the nearest one that it has."""
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown_options(words)
        parsed, extra = super().parse_known_args(words, namespace)
        if extra:
            what = "option" if extra[0].startswith("-") else "argument"
            self.error(f"unknown {what} '{extra[0]}'.{did_you_mean(extra[0], self._option_string_actions)}")
        return parsed, extra

    def _refuse_unknown_options(self, words: list[str]) -> None:
        """Look for mistyped long options first: a missing value or input is often their consequence."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            name = word.split("=", 1)[0]
            if name.startswith("--") and name not in self._option_string_actions:
                self.error(f"unknown option '{name}'.{did_you_mean(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action.choices, TableNames):
            known += entry_points_of(action.choices.group)
        what = action.option_strings[-1] if action.option_strings else action.dest
        hint = did_you_mean(str(value), known)
        if action.dest == "command" and os.path.exists(str(value)):
            hint = f" To optimize that file: graphopt optimize {value}."
        listed = ", ".join(known)
        self.error(f"unknown {what} '{value}'.{hint} Known: {listed}.")


def whole_number(text: str) -> int:
    """Parse an integer."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number") from None


def number(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from None


def positive_int(text: str) -> int:
    """Parse an integer above zero."""
    value = whole_number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be at least 1")
    return value


def non_negative_int(text: str) -> int:
    """Parse an integer that is zero or above."""
    value = whole_number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be 0 or above")
    return value


def positive_float(text: str) -> float:
    """Parse a finite number above zero."""
    value = number(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number above 0")
    return value


def non_negative_float(text: str) -> float:
    """Parse a finite number that is zero or above."""
    value = number(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number, 0 or above")
    return value


def fraction(text: str) -> float:
    """Parse a number between zero and one."""
    value = number(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' must lie between 0 and 1")
    return value


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
        float(width or 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{width}' is not a width; write {name}:1.5") from None
    return by_lower[name.lower()], positive_float(width) if ":" in text else 1.0


def device(text: str) -> str:
    """Check the spelling of a device: auto, cpu, vulkan, vulkan:1, vulkan:NAME, kompute."""
    kind, offered = text.partition(":")[0], entry_points_of("graphopt.devices")
    if DEVICE_PATTERN.fullmatch(text) or kind in offered:
        return text
    raise argparse.ArgumentTypeError(
        f"unknown device '{text}'.{did_you_mean(kind, ('auto', *DEVICES, *offered))} "
        f"Known: {', '.join(('auto', *DEVICES, *offered))}, with a number or name as in vulkan:1, "
        "vulkan:NAME; see graphopt devices."
    )


def gauge(text: str) -> str | list[int]:
    """Parse auto, none, or a list of vertex ids separated by commas."""
    if text in ("auto", "none"):
        return text
    try:
        return [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither auto, none nor a list of vertex ids such as 0 or 0,17"
        ) from None


def add_optimize(commands: Any) -> None:
    """Add `graphopt optimize`."""
    parser = commands.add_parser(
        "optimize",
        help="optimize a graph and save it",
        description="Read a graph, minimize the sum of e' Omega e over its edges, and save the estimate.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "input",
        metavar="INPUT",
        type=input_file,
        help="graph file: .g2o, BAL, COLMAP, TORO, iSAM, Bundler; or .vib; - for standard input",
    )
    _add_dialect(parser)
    parser.add_argument(
        "--problem",
        choices=vi_parser.PROBLEMS,
        help="what of a .vib file is solved (default: full-inertial)",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where the optimized graph goes")
    parser.add_argument(
        "-i",
        "--iterations",
        metavar="N",
        type=non_negative_int,
        help="iterations at most, 0 to evaluate only "
        "(default: auto stops by its convergence tests, others after 10 as g2o does)",
    )
    parser.add_argument(
        "--method",
        choices=ALGORITHMS,
        default="auto",
        help="optimization algorithm",
    )
    parser.add_argument(
        "--linear-solver",
        choices=SOLVERS,
        default="auto",
        help="linear solver",
    )
    parser.add_argument(
        "--schur", choices=SCHUR_CHOICES, default="auto", help="Schur elimination of landmarks"
    )
    parser.add_argument(
        "--device",
        type=device,
        default="auto",
        metavar="DEVICE",
        help="auto, cpu, vulkan, vulkan:1, vulkan:NAME, kompute; several: vulkan:0,vulkan:1",
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="auto", help="arithmetic on the device")
    _add_schedule(parser, "what of H a GPU stores, see graphopt explain")
    parser.add_argument(
        "--preconditioner",
        choices=PRECONDITIONERS,
        default="hschur",
        help="of pcg: block-Jacobi of S or H_pp",
    )
    parser.add_argument(
        "--pcg-tolerance",
        type=positive_float,
        metavar="X",
        help="pcg stops when r' inv(M) r fell by this factor",
    )
    parser.add_argument(
        "--pcg-iterations", type=positive_int, metavar="N", help="pcg iterations per step at most"
    )
    parser.add_argument(
        "--configuration",
        metavar="NAME",
        help="device and solver by name: LLT (CPU), PCG (GPU), pcg-implicit-gpu, pcg-implicit-hpp-gpu, ...",
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
        help="vertices held still; auto fixes one where nothing else fixes the gauge",
    )
    parser.add_argument("--time-limit", type=positive_float, metavar="S", help="seconds at most")
    _add_distributed(parser)
    parser.add_argument("--stats", metavar="FILE.json", help="write the summary as JSON to this file")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    parser.add_argument("--plot", metavar="FILE", help="draw before, after and convergence (.png .pdf .svg)")
    parser.add_argument("-v", "--verbose", action="store_true", help="one line per iteration")


def _add_distributed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="over the ranks of mpirun or srun: mpirun -n 4 graphopt optimize FILE --distributed",
    )
    parser.add_argument(
        "--partition", choices=PARTITIONS, default="auto", help="with --distributed: who gets which landmarks"
    )
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        default="auto",
        help="over several GPUs: how the rows that they share travel in each iteration",
    )
    parser.add_argument(
        "--read-in-parts",
        action="store_true",
        help="with --distributed: every rank reads its rows of a graph archive (.npz); no rank has all of it",
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE.npz", help="with --distributed: write the estimates on the way"
    )
    parser.add_argument(
        "--every",
        type=positive_int,
        default=10,
        metavar="N",
        help="iterations between two checkpoints (default: 10)",
    )
    parser.add_argument(
        "--resume", metavar="FILE.npz", help="with --distributed: start from a checkpoint of any run of INPUT"
    )


def _add_dialect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help="which program's layout the input is in: g2o, g2opy, toro, isam, isam-covariance "
        "(default: found by looking at the file)",
    )


def _add_schedule(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--schedule",
        action=ScheduleAction,
        default="auto",
        metavar="NAME|TAG=NAME,...",
        help=f"{what}: {', '.join(SCHEDULES)}, or by type, "
        "EDGE_SE2=jacobians,VERTEX_SE2=merged; may be repeated",
    )


def add_info(commands: Any) -> None:
    """Add `graphopt info`."""
    parser = commands.add_parser(
        "info",
        help="say what a graph file holds",
        description="Count vertices, edges and parameters by type, and report what may be wrong.",
    )
    parser.add_argument("input", metavar="INPUT", type=input_file, help="graph file; - for standard input")
    _add_dialect(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")


def add_explain(commands: Any) -> None:
    """Add `graphopt explain`."""
    parser = commands.add_parser(
        "explain",
        help="say how a graph would be solved, and why",
        description="Show the compiled edge types, the schedules that the device allows with predicted times "
        "(and with --measure the real ones), and which one is taken.",
    )
    parser.add_argument("input", metavar="INPUT", type=input_file, help="graph file; - for standard input")
    _add_dialect(parser)
    parser.add_argument(
        "--linear-solver",
        choices=SOLVERS,
        default="auto",
        help="linear solver",
    )
    parser.add_argument(
        "--schur", choices=SCHUR_CHOICES, default="auto", help="Schur elimination of landmarks"
    )
    parser.add_argument("--device", type=device, default="auto", metavar="DEVICE", help="as for optimize")
    parser.add_argument("--precision", choices=PRECISIONS, default="auto", help="arithmetic on the device")
    _add_schedule(parser, "only schedules like this")
    parser.add_argument("--measure", action="store_true", help="also run every schedule and show its time")
    parser.add_argument(
        "--source",
        metavar="EDGE",
        nargs="?",
        const="",
        help="print the generated kernels (GLSL) instead, of all edge types or of this one",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")


def add_convert(commands: Any) -> None:
    """Add `graphopt convert`."""
    parser = commands.add_parser(
        "convert",
        help="read one format, write another",
        description="Read a graph and write it in the format that the output's name stands for. Maps of "
        "keyframes and landmarks (.vib, pySLAM's .json, Osmap's .yaml) likewise, to each other, .g2o and "
        "COLMAP folders.",
    )
    parser.add_argument(
        "input", metavar="IN", type=input_file, help="graph file, or a map's; - for standard input"
    )
    parser.add_argument(
        "output",
        metavar="OUT",
        type=output_file,
        help="file to write, - for standard output; .gz .bz2 .xz compress it",
    )
    parser.add_argument("--from", dest="input_format", metavar="FORMAT", help="format of IN, if unclear")
    parser.add_argument("--to", dest="output_format", metavar="FORMAT", help="format of OUT, if unclear")
    _add_dialect(parser)
    parser.add_argument(
        "--to-dialect",
        metavar="NAME",
        help="dialect of OUT (default: that of IN, if OUT's format has it)",
    )


def add_export(commands: Any) -> None:
    """Add `graphopt export`."""
    parser = commands.add_parser(
        "export",
        help="types and graph of a problem for the C library",
        description="Write the programs of a problem's types (types.txt) and its graph (graph.txt), which "
        "the C library (native/embed/README.md) loads.",
    )
    parser.add_argument(
        "problem",
        metavar="PROBLEM",
        help="graph file, Python program with a variable 'graph', or 'builtin': every built-in type",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument(
        "--device",
        choices=("cpu", "vulkan"),
        default="cpu",
        help="vulkan: kernels as SPIR-V, too (%(default)s)",
    )


def _add_generate_common(parser: Any) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="graph file to write")
    parser.add_argument(
        "--seed", type=non_negative_int, default=0, help="seed of the random numbers (default: 0)"
    )
    parser.add_argument(
        "--start",
        choices=("odometry", "truth"),
        default="odometry",
        help="estimates in the file: integrated noisy measurements, or the ground truth",
    )


def _add_pose_noise(parser: Any, translation: float, rotation: float) -> None:
    parser.add_argument(
        "--noise-translation",
        type=non_negative_float,
        default=translation,
        metavar="SIGMA",
        help=f"standard deviation of translations [m] (default: {translation})",
    )
    parser.add_argument(
        "--noise-rotation",
        type=non_negative_float,
        default=rotation,
        metavar="SIGMA",
        help=f"standard deviation of rotations [rad] (default: {rotation})",
    )


def _add_counts(parser: Any, counts: dict[str, tuple[int, str]]) -> None:
    for flag, (default, text) in counts.items():
        parser.add_argument(
            flag, type=positive_int, default=default, metavar="N", help=f"{text} (default: {default})"
        )


def add_generate(commands: Any) -> None:
    """Add `graphopt generate` with one parser per kind of graph."""
    parser = commands.add_parser(
        "generate",
        help="make a synthetic graph",
        description="Make a synthetic graph with known ground truth, measurement noise and loop closures.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)

    sphere = kinds.add_parser("sphere", help="3D poses on a spiral over a sphere")
    _add_counts(sphere, {"--nodes-per-level": (50, "poses per lap"), "--laps": (50, "laps")})
    sphere.add_argument(
        "--radius", type=positive_float, default=100.0, metavar="R", help="[m] (default: 100)"
    )
    _add_pose_noise(sphere, 0.01, 0.005)

    torus = kinds.add_parser("torus", help="3D poses on a spiral over a torus")
    _add_counts(torus, {"--nodes-per-ring": (50, "poses per small circle"), "--rings": (50, "small circles")})
    torus.add_argument("--radius", type=positive_float, default=100.0, metavar="R", help="[m] (default: 100)")
    torus.add_argument("--tube", type=positive_float, default=40.0, metavar="R", help="[m] (default: 40)")
    _add_pose_noise(torus, 0.01, 0.005)

    manhattan = kinds.add_parser("manhattan", help="2D random walk along the streets of a city")
    _add_counts(manhattan, {"--nodes": (3500, "poses"), "--block": (5, "steps between crossings")})
    manhattan.add_argument(
        "--closures",
        type=fraction,
        default=0.5,
        metavar="P",
        help="share of revisits measured (default: 0.5)",
    )
    _add_pose_noise(manhattan, 0.05, 0.02)

    grid = kinds.add_parser("grid", help="3D poses on a cubic grid")
    _add_counts(grid, {"--size": (10, "poses along each side")})
    grid.add_argument("--step", type=positive_float, default=1.0, metavar="M", help="[m] (default: 1)")
    grid.add_argument(
        "--closures",
        type=fraction,
        default=0.5,
        metavar="P",
        help="share of neighbours measured (default: 0.5)",
    )
    _add_pose_noise(grid, 0.02, 0.01)

    ba = kinds.add_parser("ba", help="bundle adjustment: cameras around a scene of points")
    _add_counts(ba, {"--cameras": (40, "cameras"), "--points": (2000, "points")})
    ba.add_argument(
        "--camera", choices=("bal", "expmap"), default="bal", help="BAL (9 parameters) or SE3Expmap with K"
    )
    ba.add_argument(
        "--noise-pixel", type=non_negative_float, default=0.5, metavar="SIGMA", help="[px] (default: 0.5)"
    )
    ba.add_argument(
        "--outliers", type=fraction, default=0.0, metavar="P", help="share of wrong matches (default: 0)"
    )
    for kind in (sphere, torus, manhattan, grid, ba):
        _add_generate_common(kind)
    vi_parser.add_sequence(kinds, sys.modules[__name__])
    vi_parser.add_problem(kinds, sys.modules[__name__])


def add_devices(commands: Any) -> None:
    """Add `graphopt devices`."""
    parser = commands.add_parser(
        "devices",
        help="list what can optimize here",
        description="List the processors and GPUs that `--device` can name on this machine.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")


def build_parser(version: str) -> Parser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="graphopt",
        description="Optimize graphs of poses, landmarks and cameras: g2o's files and answers, faster.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"graphopt {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (
        add_optimize,
        add_info,
        add_explain,
        add_convert,
        add_export,
        add_generate,
        add_devices,
        g2o_command.add_parser,
    ):
        add(commands)
    types = sys.modules[__name__]
    eval_parser.add_eval(commands, types)
    eval_parser.add_datasets(commands)
    eval_parser.add_view(commands)
    eval_parser.add_compare(commands, types)
    return parser


def parse(arguments: Sequence[str] | None, version: str) -> argparse.Namespace:
    """Parse the command line; raises `UsageError` where it cannot be understood."""
    return build_parser(version).parse_args(arguments)
