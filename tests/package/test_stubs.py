"""The type stubs of native modules that are imported by name have what the modules have, and ship."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import graphopt

MODULES = ("_native", "_glslang")


def stubbed(name: str) -> dict[str, ast.stmt]:
    """Functions and constants of a stub; these modules have nothing else."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse((Path(graphopt.__file__).parent / f"{name}.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_the_names_of_its_module_with_their_parameters(name):
    """Nothing is missing, nothing is gone; names and order, as far as the module's signatures tell them."""
    module = importlib.import_module(f"graphopt.{name}")
    stub = stubbed(name)
    assert set(stub) == {name for name in vars(module) if name[0] != "_"}
    compared = 0
    for each, node in stub.items():
        if not isinstance(node, ast.FunctionDef):
            continue
        text = (getattr(module, each).__doc__ or "").split("->")[0].split("\n")[0]
        known = re.findall(r"(?:\(|, )(\w+): ", text)
        if known and not any(re.fullmatch(r"arg\d+", parameter) for parameter in known):
            assert [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)] == known, each
            compared += 1
    assert compared > 0 or name == "_glslang"
