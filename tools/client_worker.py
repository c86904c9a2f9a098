"""Run one client of the g2o bindings in this process and note what happened.

    python tools/client_worker.py MODULE LAYOUT PATH REPORT

MODULE is "graphopt.g2o", or "g2opy" or "g2o" for bindings that are installed: what the client finds by
`import g2o` and by `import g2opy`. `run_clients` calls it. The report (JSON): "status" ran, failed or needs;
"detail"; "chi2" before and after each optimization; "tests" by name for clients that are tests.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import random
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

OURS = "graphopt.g2o"
NAMES = ("g2o", "g2opy")
PYSLAM = "optimizer_g2o.py"
_DEPTH = 3
"""Folders in a checkout that pyslam's optimizer may be below; it was in none, one and two."""
_PACKAGE = "client"
"""Name of the package that a checkout is imported as."""


class NeedsError(Exception):
    """The client asks for something that is not here, such as arguments or a package."""


def provide(module: str) -> Any:
    """Let `import g2o` and `import g2opy` find the module."""
    provided: Any = importlib.import_module(module)
    if module == OURS:
        for name in NAMES:
            provided.install_as(name)
        return provided
    parts = {name: each_module for name, each_module in sys.modules.items() if name.startswith(f"{module}.")}
    for name in NAMES:
        sys.modules[name] = provided
        sys.modules.update({name + key[len(module) :]: part for key, part in parts.items()})
    return provided


def note_optimizations(g2o: Any, noted: list[list[float]]) -> None:
    """Let every `optimize` note active chi2 before and after it, at the estimates."""
    cls = g2o.SparseOptimizer
    optimize, compute, chi2 = cls.optimize, cls.compute_active_errors, cls.active_chi2

    def noting(self: Any, *arguments: Any, **keywords: Any) -> Any:
        compute(self)
        before = chi2(self)
        result = optimize(self, *arguments, **keywords)
        compute(self)
        noted.append([before, chi2(self)])
        return result

    cls.optimize = noting


def repeatable() -> None:
    """The same random numbers in both runs, whatever generator the client uses."""
    random.seed(0)
    np.random.seed(0)
    make = np.random.default_rng
    np.random.default_rng = lambda seed=None: make(0 if seed is None else seed)


# -------------------------------------------------------------------- kinds of clients


def run_tests(g2o: Any, path: Path) -> dict[str, str]:
    """Outcome of each test of a folder."""
    import pytest

    outcomes: dict[str, str] = {}

    class Noting:
        @pytest.hookimpl
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                outcomes[report.nodeid] = report.outcome

        @pytest.hookimpl
        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                outcomes[report.nodeid] = "failed"

    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-o", "filterwarnings="]
    pytest.main([*options, "--rootdir", str(path), str(path)], plugins=[Noting()])
    return outcomes


def run_script(g2o: Any, path: Path) -> None:
    """A script without arguments."""
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if end.code == 2:
            raise NeedsError("arguments") from None
        if end.code:
            raise


def run_ptam(g2o: Any, path: Path) -> None:
    """stereo_ptam or rgbd_ptam."""
    import client_scenes

    client_scenes.run_ptam(g2o)


def run_twitchslam(g2o: Any, path: Path) -> None:
    """twitchslam, or a program with its `optimize_g2o.py`."""
    import client_scenes

    client_scenes.run_twitchslam(g2o)


def run_pyslam(g2o: Any, path: Path) -> None:
    """pyslam, or a program with its `optimizer_g2o.py`."""
    import client_scenes

    source = pyslam_optimizer(path)
    assert source is not None
    folders = [path, *(path / parent for parent in reversed(source.relative_to(path).parents[:-1]))]
    package = ""
    for folder in folders:
        package = f"{package}.{folder.name}" if package else _PACKAGE
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(folder)]
    client_scenes.stand_in(modules_of_the_program(source, package))
    client_scenes.run_pyslam(g2o, importlib.import_module(f"{package}.{source.stem}"))


def pyslam_optimizer(folder: Path) -> Path | None:
    """pyslam's optimizer in a checkout, the one that is least deep; None if there is none."""
    paths = (sorted(folder.glob("*/" * depth + PYSLAM)) for depth in range(_DEPTH + 1))
    return next((path for level in paths for path in level), None)


def modules_of_the_program(source: Path, package: str) -> list[str]:
    """What a file of a package imports besides the standard library, numpy and the bindings."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            modules += [base] if node.module else [f"{base}.{name.name}" for name in node.names]
    known = {*sys.stdlib_module_names, "numpy", *NAMES}
    names = [fromkey for fromkey in dict.fromkeys(modules) if fromkey.split(".")[0] not in known]
    parents = [".".join(name.split(".")[:i]) for name in names for i in range(1, name.count(".") + 1)]
    return [name for name in dict.fromkeys([*parents, *names]) if name not in sys.modules]


RUNNERS = {
    "tests": run_tests,
    "script": run_script,
    "ptam": run_ptam,
    "twitchslam": run_twitchslam,
    "pyslam": run_pyslam,
}


def run(module: str, layout: str, path: Path) -> dict[str, Any]:
    """The report."""
    noted: list[list[float]] = []
    report: dict[str, Any] = {"status": "ran", "detail": "", "chi2": noted, "tests": {}}
    sys.path.insert(0, str(path if path.is_dir() else path.parent))
    try:
        g2o = provide(module)
        note_optimizations(g2o, noted)
        repeatable()
        report["tests"] = RUNNERS[layout](g2o, path) or {}
    except NeedsError as error:
        report.update(status="needs", detail=str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        status = "failed" if missing in (*NAMES, "graphopt") else "needs"
        detail = f"no module {error.name}" if status == "failed" else f"the module {error.name}"
        report.update(status=status, detail=detail)
    except BaseException as error:
        traceback.print_exc()
        text = str(error).strip().splitlines()
        report.update(status="failed", detail=f"{type(error).__name__}: {text[0] if text else ''}"[:120])
    return report


def main() -> None:
    """Run and write the report."""
    module, layout, path, target = sys.argv[1:]
    report = run(module, layout, Path(path))
    Path(target).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
