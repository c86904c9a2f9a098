"""The type stubs of the native modules name what the modules have, with their parameters, and ship."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import graphopt
from graphopt.cpu_kernels import isa

MODULES = {
    "_native": "_native",
    "_vulkan": "_vulkan",
    "_glslang": "_glslang",
    "_cpu_baseline": f"_cpu_{isa}",
}


def stubbed(name: str) -> dict[str, ast.stmt]:
    """Definitions of a stub, methods and attributes as Class.name; inherited ones of private bases, too."""
    path = Path(graphopt.__file__).parent / f"{name}.pyi"
    found: dict[str, ast.stmt] = {}
    bases: dict[str, list[str]] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                found[node.name] = node
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[prefix + node.target.id] = node

    visit(ast.parse(path.read_text()).body, "")
    for name, parents in bases.items():
        for parent in parents:
            for key, node in list(found.items()):
                if key.startswith(f"{parent}."):
                    found[f"{name}.{key.partition('.')[2]}"] = node
    return {key: node for key, node in found.items() if not re.search(r"(^|\.)_", key)}


def native(module) -> dict[str, object]:
    """Public names of a native module; methods and attributes as Class.name."""
    found: dict[str, object] = {}
    for name, var in vars(module).items():
        if name.startswith("_"):
            continue
        found[name] = var
        if isinstance(var, type):
            for member, value in vars(var).items():
                if not member.startswith("_"):
                    found[f"{name}.{member}"] = value
    return found


@pytest.mark.parametrize("stub", MODULES)
def test_stub_and_module_have_the_same_names(stub):
    """Nothing is missing from a stub, and nothing in it is gone from the module."""
    module = importlib.import_module(f"graphopt.{MODULES[stub]}")
    in_stub, in_module = stubbed(stub), native(module)
    assert set(in_stub) - set(in_module) == set()
    assert set(in_module) - set(in_stub) == set()


@pytest.mark.parametrize("stub", MODULES)
def test_parameters_of_a_stub_are_those_of_the_module(stub):
    """Names and order, as far as the module's signatures tell them."""
    module = importlib.import_module(f"graphopt.{MODULES[stub]}")
    in_module = native(module)
    compared = 0
    for name, node in stubbed(stub).items():
        if not isinstance(node, ast.FunctionDef) or not callable(in_module[name]):
            continue
        text = (getattr(in_module[name], "__doc__", None) or "").split("->")[0].split("\n")[0]
        known = re.findall(r"(?:\(|, )(\w+): ", text)
        if not known or any(re.fullmatch(r"arg\d+", name) for name in known):
            continue
        arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        assert arguments == known, name
        compared += 1
    assert compared > 0 or stub == "_glslang"
