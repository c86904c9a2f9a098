import ast
from pathlib import Path

import pytest

import graphopt

LAYERS = (
    "geometry",
    "symbolic",
    "types",
    "graph",
    "codegen",
    "device",
    "expressions",
    "solver",
    "optimizer",
    "initialization",
    "datasets",
    "io",
    "distributed",
    "report",
    "colmap",
    "eval",
    "g2o",
    "cli",
)
"""A folder may import from those before it (docs/internals/architecture.md)."""

FOR_ALL = {"errors", "cpu_kernels", "disk_cache", "temporary_files", "html", "suggestions", "_native"}
ROOT = Path(graphopt.__file__).parent


def imported_layers(source: str) -> set[str]:
    """First component below `graphopt` of everything a module imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            names = [node.module]
            if node.module == "graphopt":
                names = [f"graphopt.{alias.name}" for alias in node.names]
        found.update(name.split(".")[1] for name in names if name.startswith("graphopt."))
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer):
    """No module imports from a layer after its own."""
    allowed = {*LAYERS[: LAYERS.index(layer) + 1], *FOR_ALL}
    for path in sorted((ROOT / layer).rglob("*.py")):
        wrong = (imported_layers(path.read_text()) & set(LAYERS)) - allowed
        assert not wrong, f"{path.relative_to(ROOT)} imports from {sorted(wrong)}"


def test_every_folder_is_a_known_layer():
    """A new folder must be given its place in the order."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= set(LAYERS), sorted(folders - set(LAYERS))
