import ast
import graphlib
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
    "problem",
    "linear",
    "solver",
    "vulkan",
    "computed",
    "optimizer",
    "strategies",
    "batch",
    "online",
    "derivatives",
    "io",
    "distributed",
    "colmap",
    "evaluate",
    "g2o",
    "reproduce",
    "cli",
)
"""A folder may import from those before it (docs/internals/architecture.md)."""

FOR_ALL = {
    "errors",
    "error_codes",
    "cuda_driver",
    "foreign_arrays",
    "cpu_kernels",
    "disk_cache",
    "host_memory",
    "temporary_files",
    "html",
    "launcher",
    "option_names",
    "plugins",
    "suggestions",
    "switches",
    "thread_switching",
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


@pytest.mark.parametrize("layer", ["codegen", "device", "vulkan", "computed"])
def test_modules_of_a_layer_have_an_order(layer):
    """Imports make no circle: at load time, in functions, for types, and by name."""
    names = {
        ".".join(("graphopt", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in (ROOT / layer).rglob("*.py")
    }
    before = {}
    for name, path in names.items():
        imported = imported_names(path.read_text())
        requested = {module for module, _ in imported} | {
            f"{module}.{own}" for module, all_ in imported for own in all_
        }
        before[name] = (requested & names.keys()) - {name}
    try:
        tuple(graphlib.TopologicalSorter(before).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_imports_by_name_are_seen():
    """A string given to `import_module` counts like a statement."""
    source = "import importlib\nimportlib.import_module('graphopt.distributed.optimize')\n"
    assert imported_layers(source) == {"distributed"}


PRIVATE = """
cpu_kernels.kernels
evaluate.datasets.registry.data_folders
evaluate.published.is_whole
geometry.quaternion
geometry.rig_cameras.RigCameraModel
geometry.rig_cameras.rig_camera_model
geometry.so3.exp_coefficients
graph.columns.Columns
colmap.model.CAMERA
colmap.rigs.add_trivial
colmap.rigs.from_storage
colmap.rigs.places_of
colmap.rigs.to_storage
io.files.packed_bytes
io.files.read_bytes
io.files.write_bytes
io.files.write_together
optimizer.native_loop.native_loop_for
optimizer.options
optimizer.run.ENDINGS
optimizer.signals.StopSignals
option_names.ALIGNMENTS
option_names.SEQUENCE_MODES
problem.structure.Structure
solver.cpu.CpuBlockSolver
strategies.quantiles.chi2_quantile
temporary_files.temporary_folder
types.inertial.FIELDS
types.inertial.InertialMeasurement
types.robust_kernels.robust_kernel
types.sim3.VertexSim3Expmap
types.visual_inertial.EdgeInverseSim3Ray
types.visual_inertial.EdgeSim3Ray
"""
"""What slam_bridge imports that graphopt, or the package or module that it is in, does not export."""


def is_exported(module: str, name: str) -> bool:
    """`graphopt` has the name in `__all__`, or a package or module on the way to it."""
    parts = module.split(".")
    on_the_way = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(name in getattr(importlib.import_module(part), "__all__", ()) for part in on_the_way)


def test_what_slam_bridge_imports_is_exported():
    """All but the names above: the fewer, the more of slam_bridge anybody could write."""
    private = set()
    for path in (ROOT.parent / "slam_bridge").rglob("*.py"):
        for module, names in imported_names(path.read_text()):
            if module.startswith("graphopt.") and module != "graphopt.errors":
                short = module.removeprefix("graphopt.")
                private |= {f"{short}.{name}" for name in names if not is_exported(module, name)}
    assert private == set(PRIVATE.split())
