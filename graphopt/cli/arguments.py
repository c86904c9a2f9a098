"""Flags that several commands have, each set once. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from graphopt.cli.declared import add_options, declared
from graphopt.cli.parsers import Parser, TableNames, non_negative_int, positive_float
from graphopt.cli.schedules import ScheduleAction
from graphopt.cli.streams import input_file
from graphopt.option_names import (
    COMPUTED,
    DEVICES,
    LINEAR_SOLVERS,
    METHODS,
    OLD_NAMES,
    PRECISIONS,
    PRECONDITIONERS,
    SCHUR_CHOICES,
    WORK_QUEUES,
)
from graphopt.plugins import entry_points_of
from graphopt.suggestions import did_you_mean

DEVICE_PATTERN = re.compile(rf"auto|({'|'.join(DEVICES)})(:[^,]+)?(,(cpu|vulkan:[^,]+))*")
VIB_PROBLEMS = ("full-inertial", "local-inertial", "visual")
"""What of a .vib file is solved."""


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


def preconditioner(text: str) -> str:
    """Parse the name of a preconditioner; an old one is replaced, which is said on stderr."""
    name = OLD_NAMES.get(text, text)
    if name != text:
        print(f"graphopt: --preconditioner {text} is now {name}.", file=sys.stderr)
    return name


SOLVER_SETTINGS: dict[str, dict[str, Any]] = {
    "device": {
        "type": device,
        "metavar": "DEVICE",
        "help": "auto, cpu, vulkan, vulkan:1, vulkan:NAME, kompute; several: vulkan:0,vulkan:1",
    },
    "linear_solver": {"choices": TableNames("graphopt.linear_solvers", ("auto", *LINEAR_SOLVERS))},
    "schur": {"choices": SCHUR_CHOICES},
    "precision": {"choices": PRECISIONS},
    "schedule": {"action": ScheduleAction, "metavar": "NAME|TAG=NAME,..."},
    "preconditioner": {"choices": PRECONDITIONERS, "type": preconditioner},
    "work_queues": {"choices": WORK_QUEUES},
    "computed": {"choices": COMPUTED},
    "configuration": {
        "metavar": "NAME",
        "help": "device and solver by name: LLT (CPU), pcg-implicit-gpu, pcg-implicit-hpp-gpu, ...",
    },
}
METHOD_SETTINGS: dict[str, dict[str, Any]] = {
    "method": {
        "choices": TableNames("graphopt.algorithms", METHODS),
        "help": "optimization algorithm: auto stops by convergence tests; g2o's lm, gn, dogleg by default "
        "run 10 iterations",
    },
    "max_iterations": {
        "flags": ("-i", "--iterations"),
        "type": non_negative_int,
        "help": "iterations at most, 0 to evaluate only (default: those of the method)",
    },
    "time_limit": {"type": positive_float, "metavar": "S", "help": "seconds at most"},
}


def add_solver(parser: Any, owner: Parser, names: Iterable[str] | None = None) -> None:
    """Flags of `SolverOptions`: all of them, or some."""
    options = declared("graphopt/linear/options.py", "SolverOptions")
    add_options(parser, owner, options, options if names is None else names, **SOLVER_SETTINGS)


def add_method(parser: Any, owner: Parser) -> None:
    """Flags of the parameters of `optimize`."""
    options = declared("graphopt/optimizer/optimize.py", "optimize")
    add_options(parser, owner, options, METHOD_SETTINGS, **METHOD_SETTINGS)


def solver_options(args: argparse.Namespace) -> dict[str, Any]:
    """Those of `SolverOptions` that the command has, by name."""
    names = declared("graphopt/linear/options.py", "SolverOptions")
    return {name: value for name, value in vars(args).items() if name in names}


def add_input(parser: argparse.ArgumentParser, what: str = "graph file") -> None:
    """The graph to read, and which program's layout it has."""
    parser.add_argument("input", metavar="INPUT", type=input_file, help=f"{what}; - for standard input")
    add_dialect(parser)


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """Which program's layout the input has."""
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help="which program's layout the input is in: g2o, g2opy, toro, isam, isam-covariance "
        "(default: found by looking at the file)",
    )


def add_json(parser: argparse.ArgumentParser, what: str = "JSON") -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=f"print {what}, and nothing else")


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise argparse.ArgumentTypeError("expected names separated by commas")
    return words


def chosen_from(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A parser of names separated by commas, all of them known."""

    def parse(text: str) -> list[str]:
        words = names(text)
        for name in words:
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown '{name}'. Known: {', '.join(known)}")
        return words

    return parse
