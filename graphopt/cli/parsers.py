"""The parser of the `graphopt` command. Nothing heavy is imported here, so that `--help` answers at once.

Each command is a module of this package with `add_arguments(parser)` and `run(args)`. Only the module of the
command that is called is imported. Mistyped commands, options and choices are answered with the nearest one.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from graphopt.plugins import entry_points_of
from graphopt.suggestions import did_you_mean

COMMANDS = {
    "optimize": "optimize a graph and save it",
    "info": "say what a graph file holds",
    "explain": "say how a graph would be solved, and why",
    "convert": "read one format, write another",
    "export": "types and graph of a problem for the C library",
    "generate": "make a synthetic graph",
    "devices": "list what can optimize here",
    "g2o": "the g2o program: its flags, messages and files",
    "slam": "a SLAM over a folder, a bag, a video or a webcam",
    "eval": "measure on data sets, beside other solvers, and write a report",
    "reproduce": "measure published numbers again, and say which of them hold",
    "datasets": "public data sets: list, describe, download",
    "view": "an interactive 3-D page of a graph or a result",
    "compare": "mark the differences of two results",
}
EPILOG = """\
exit status: 0 solved, 1 the optimizer failed or was interrupted, 2 bad usage or input
environment: GRAPHOPT_DEBUG=1 shows tracebacks, GRAPHOPT_ISA=baseline|v3|v4 picks the CPU code"""


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


class UsageError(Exception):
    """The command line cannot be understood. `usage` says where help is."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError`, knows what was probably meant, and takes old spellings."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **kwargs)
        self.renamed: dict[str, str] = {}
        """Old spelling of a flag -> its name."""

    @property
    def actions(self) -> list[argparse.Action]:
        """Its options, arguments and kinds, in the order of `--help`."""
        return list(self._actions)

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` instead of leaving the process."""
        raise UsageError(message[:1].upper() + message[1:], f"Try: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse options that this parser lacks, with the nearest one that it has."""
        words = self._with_new_names(list(sys.argv[1:] if args is None else args))
        self._refuse_unknown_options(words)
        parsed, extra = super().parse_known_args(words, namespace)
        if extra:
            what = "option" if extra[0].startswith("-") else "argument"
            self.error(f"unknown {what} '{extra[0]}'.{did_you_mean(extra[0], self._option_string_actions)}")
        return parsed, extra

    def _with_new_names(self, words: list[str]) -> list[str]:
        """The words with each old spelling replaced, which is said on stderr."""
        for place, word in enumerate(words):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in self.renamed:
                print(f"graphopt: {name} is now {self.renamed[name]}.", file=sys.stderr)
                words[place] = f"{self.renamed[name]}{equals}{value}"
        return words

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


def _without_underscores(text: str) -> str:
    """The text; `ValueError` where Python alone would take it for a number."""
    if "_" in text:
        raise ValueError
    return text


def whole_number(text: str) -> int:
    """Parse an integer, as files have them: Python would take 1_0 for 10."""
    try:
        return int(_without_underscores(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number") from None


def number(text: str) -> float:
    """Parse a number, as files have them."""
    try:
        return float(_without_underscores(text))
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


def build_parser(version: str, called: str | None = None) -> Parser:
    """The parser of the whole command; only the command that is `called` has its arguments."""
    parser = Parser(
        prog="graphopt",
        description="Optimize graphs of poses, landmarks and cameras: g2o's files and answers, faster.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"graphopt {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name == called:
            importlib.import_module(f"graphopt.cli.{name}").add_arguments(command)
    return parser


def parse(arguments: Sequence[str] | None, version: str) -> argparse.Namespace:
    """Parse the command line; raises `UsageError` where it cannot be understood."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = next((word for word in words if not word.startswith("-")), None)
    return build_parser(version, called).parse_args(words)
