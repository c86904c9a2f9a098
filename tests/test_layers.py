import ast
import importlib
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
"""A folder may import from those before it (docs/architecture.md)."""

FOR_ALL = {
    "errors",
    "cpu_kernels",
    "disk_cache",
    "temporary_files",
    "html",
    "option_names",
    "plugins",
    "suggestions",
    "_native",
}
ROOT = Path(graphopt.__file__).parent


def imported_names(source: str) -> list[tuple[str, list[str]]]:
    """(module, names of it) of everything that a module imports, by `import_module("...")` too."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            imported.append((node.module, [alias.name for alias in node.names]))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            imported.append((ast.unparse(node.args[0]).lstrip("f").strip("'\""), []))
    return imported


def imported_layers(source: str) -> set[str]:
    """First component below `graphopt` of everything a module imports."""
    layers = set()
    for module, names in imported_names(source):
        whole = [f"graphopt.{name}" for name in names] if module == "graphopt" else [module]
        layers |= {name.split(".")[1] for name in whole if name.startswith("graphopt.")}
    return layers


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


def test_imports_by_name_are_seen():
    """A string given to `import_module` counts like a statement."""
    source = "import importlib\nimportlib.import_module('graphopt.distributed.optimize')\n"
    assert imported_layers(source) == {"distributed"}


PRIVATE = {
    "cpu_kernels.kernels",
    "graph.columns.Columns",
    "optimizer.native_loop.native_loop_for",
    "optimizer.run.ENDINGS",
    "optimizer.signals.StopSignals",
    "solver.cpu.CpuBlockSolver",
    "solver.reuse.edge_errors",
    "temporary_files.temporary_folder",
}
"""What slam_bridge takes of graphopt's modules and no package of graphopt has in `__all__`."""


def test_what_slam_bridge_uses_is_public():
    """Its modules import what a package of graphopt exports, whole modules of types and formats, and `PRIVATE`."""
    import slam_bridge

    exported = {}
    used = set()
    for path in sorted(Path(slam_bridge.__file__).parent.rglob("*.py")):
        for module, names in imported_names(path.read_text()):
            if module.startswith("graphopt."):
                used |= {f"{module.removeprefix('graphopt.')}.{name}" for name in names}
    for name in sorted(used):
        package = name.split(".")[0]
        if package not in exported:
            exported[package] = set(getattr(importlib.import_module(f"graphopt.{package}"), "__all__", ()))
    private = {name for name in used if name.rpartition(".")[2] not in exported[name.split(".")[0]]}
    assert private == PRIVATE, (sorted(private - PRIVATE), sorted(PRIVATE - private))
