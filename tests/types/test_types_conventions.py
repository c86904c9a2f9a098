"""The page of conventions names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "conventions.md").read_text()


def references():
    """(file, function or None) of every test that the page names; `::name` continues the file before it."""
    file = None
    for name in re.findall(r"`((?:[\w/]+\.py)?(?:::test_\w+)?)`", PAGE):
        path, _, function = name.partition("::")
        file = path or file
        if file is not None and (path or function):
            yield file, function or None


@pytest.mark.parametrize(("file", "function"), sorted(set(references()), key=str))
def test_named_test_exists(file, function):
    """The file is there and has the function."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert any(name.startswith("test_") for name in functions)
    assert function is None or function in functions


def test_every_line_of_a_convention_names_a_test():
    """Rows of the tables of conventions have a test in their last column."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| test |" not in line]
    tables = [row for row in rows if len(re.split(r"(?<!\\)\|", row)) == 4 and "---" not in row]
    assert len(tables) > 20
    for row in tables:
        assert re.search(r"`[\w/]+\.py", row.split("|")[-2]), row
