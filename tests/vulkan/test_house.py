"""Imports inside the Vulkan solver go one way, and its core knows no schedule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from graphopt.errors import GraphOptError
from graphopt.option_names import EVALUATIONS, PRODUCTS
from graphopt.vulkan import program
from graphopt.vulkan.schedules import schedule

CHECKOUT = Path(__file__).resolve().parents[2]
SHADERS = CHECKOUT / "shaders"

ROOT = Path(program.__file__).parent
NAME = "graphopt.vulkan"
ORDER = [
    "program",
    "programs",
    "ahead",
    "cholesky",
    "data",
    "plan",
    "set_up",
    "kernels",
    "schedules",
    "external",
    "solver",
]


def part(module: str) -> str:
    """Folder or module of the solver that a module belongs to; empty: the package itself."""
    return module.removeprefix(NAME).strip(".").partition(".")[0]


def imports(path: Path) -> set[str]:
    """Modules of the solver that a file imports, also inside of functions."""
    found = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    return {module for module in found if module.startswith(f"{NAME}.")}


def files() -> list[Path]:
    """All modules of the solver."""
    return sorted(ROOT.rglob("*.py"))


def test_imports_go_one_way():
    """Whoever wants a schedule asks for it by its name: `schedules` itself is a function."""
    for path in files():
        here = part(".".join([NAME, *path.relative_to(ROOT).with_suffix("").parts]))
        if here == "__init__":
            continue
        for module in imports(path) - {f"{NAME}.schedules"}:
            assert ORDER.index(part(module)) <= ORDER.index(here), f"{path.name} imports {module}"


def test_the_order_names_every_folder_and_module():
    """None is left out of the test above."""
    assert {path.stem for path in ROOT.iterdir() if not path.name.startswith("__")} == set(ORDER)


def test_the_core_knows_no_schedule():
    """Only `solver` names one: that of the host, which is another block solver, and who linearises first."""
    for path in files():
        if "schedules" in path.parts or path.name == "solver.py":
            continue
        assert not {import_ for import_ in imports(path) if import_.startswith(f"{NAME}.schedules.")}, (
            path.name
        )


@pytest.mark.parametrize("name", [*PRODUCTS, *EVALUATIONS])
def test_schedules_are_found_by_their_names(name):
    """Those that win nowhere say so."""
    found = schedule(name)
    assert found.name == name
    text = (ROOT / "schedules" / f"{found.__module__.rpartition('.')[2]}.py").read_text()
    assert ("`auto` never" in " ".join(text.split())) is not found.wins


def test_there_is_one_class_of_arrays_and_one_way_to_record():
    """Nobody but `Program` makes a recorder, but for the factorization, which is a module by itself."""
    for path in files():
        if "cholesky" not in path.parts and path.name != "program.py":
            assert not re.search(r"\.record\(\)|\.submit\(program", path.read_text()), path.name


def test_shaders_exist_that_launches_name():
    """A launch by name reaches a file."""
    for path in files():
        for name in re.findall(r'\.launch\(\s*"(\w+)"', path.read_text()):
            stem = SHADERS / f"{name}.comp"
            assert stem.is_file(), (path.name, name)


def test_unknown_schedules_are_errors():
    with pytest.raises((ImportError, KeyError, GraphOptError)):
        schedule("nothing")
