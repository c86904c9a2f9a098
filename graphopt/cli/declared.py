"""Flags from options as the library declares them, with their types, defaults and help.

The declaration is read from its source. Importing it would load numpy and more, and `--help` answers at once.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphopt.cli.parsers import Parser, positive_float, positive_int

ROOT = Path(__file__).resolve().parents[2]
_TYPES = {"int": positive_int, "float": positive_float, "str": str}
_METAVARS = {"int": "N", "float": "X", "str": "NAME"}


@dataclass(frozen=True)
class Option:
    """One field of a dataclass, or one parameter of a function."""

    name: str
    kind: str
    """Its annotation without `| None`."""
    default: Any
    text: str
    """What its docstring says first."""


@functools.cache
def declared(path: str, name: str) -> dict[str, Option]:
    """Options of a class or function by name; those without a literal default are left out.

    path: of the module, below the folder that holds `graphopt` and `slam_bridge`.
    """
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _fields(node)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _parameters(node)
    raise LookupError(f"{path} declares no {name}")


def _fields(node: ast.ClassDef) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = str(following.value.value) if is_documented else ""  # type: ignore[union-attr]
            _declare(options, statement.target.id, statement.annotation, statement.value, text)
    return options


def _parameters(node: ast.FunctionDef) -> dict[str, Option]:
    texts = _documented(ast.get_docstring(node) or "")
    arguments = node.args
    positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [*zip(positional, arguments.defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)  # type: ignore[arg-type]
    options: dict[str, Option] = {}
    for argument, default in pairs:
        _declare(options, argument.arg, argument.annotation, default, texts.get(argument.arg, ""))
    return options


def _declare(
    options: dict[str, Option], name: str, annotation: ast.expr | None, default: ast.expr | None, text: str
) -> None:
    try:
        value = ast.literal_eval(default) if default is not None else None
    except ValueError:
        return
    kind = ast.unparse(annotation).replace(" | None", "") if annotation is not None else ""
    options[name] = Option(name, kind, value, _first_sentence(text))


def _documented(docstring: str) -> dict[str, str]:
    """The lines `name: text` and `name, name: text` of a docstring, each with what is indented below it."""
    texts, names = {}, ()
    for line in inspect.cleandoc(docstring).splitlines():
        start = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if start is not None:
            names = start[1].split(", ")
            texts |= dict.fromkeys(names, start[2])
        elif line.startswith(" "):
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
        else:
            names = ()
    return texts


def _first_sentence(text: str) -> str:
    """One line of plain text, as `--help` shows it."""
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()))[0]
    sentence = re.sub(r"\bNone: ", "default: ", sentence).replace('"', "").replace("`", "")
    if sentence[1:2].islower() or sentence[1:2] == " ":
        sentence = sentence[0].lower() + sentence[1:]
    return sentence.replace("%", "%%")


def add_options(
    parser: Any, owner: Parser, options: dict[str, Option], names: Iterable[str], **settings: dict[str, Any]
) -> None:
    """Add a flag for each of some options.

    parser: `owner`, or a group of its flags. settings: by option's name, what argparse gets in place of what
    follows from the declaration; besides, `flags`: names of the flag, and `old`: spellings of before, which
    are taken with a warning.
    """
    for name in names:
        option, chosen = options[name], dict(settings.get(name, {}))
        flags = chosen.pop("flags", ("--" + name.replace("_", "-"),))
        for old in chosen.pop("old", ()):
            owner.renamed[old] = flags[-1]
        parser.add_argument(*flags, dest=name, **(_settings(option, chosen) | chosen))


def _settings(option: Option, chosen: dict[str, Any]) -> dict[str, Any]:
    if option.kind == "bool":
        action: Any = argparse.BooleanOptionalAction if option.default else "store_true"
        return {"action": action, "default": option.default, "help": option.text}
    settings: dict[str, Any] = {"default": option.default, "help": option.text}
    if option.kind.startswith("tuple"):
        return {**settings, "action": "append", "default": [], "metavar": "NAME"}
    kind = option.kind.split(" | ")[0]
    if "action" not in chosen:
        settings["type"] = _TYPES.get(kind, str)
    if "choices" not in chosen:
        settings["metavar"] = _METAVARS.get(kind, "NAME")
    text = chosen.pop("help", option.text)
    is_said = option.default is None or "default" in text or (option.default == "auto" and "auto" in text)
    return {**settings, "help": text if is_said else f"{text} (default: {option.default})".strip()}
