"""What programs and installed packages add: linear solvers, algorithms, types, formats, devices."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import processes
import pytest
from optimizer_graphs import noisy_ring

import graphopt
from graphopt.errors import DeviceError, OptionError, PluginError, TypeRegistryError
from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.evaluate.datasets.registry import tomllib
from graphopt.io import FORMATS, Format, register_format
from graphopt.linear import LINEAR_SOLVERS, BlockPattern
from graphopt.optimizer import METHODS, AlgorithmBase, Outcome, Step, StopRules
from graphopt.solver.devices import DEVICES

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin_package"


class NumpySolver:
    """A x = b by numpy, and how often."""

    calls = 0

    def __init__(self, pattern: BlockPattern):
        self.pattern = pattern

    def factorize(self, values, damping=None):
        """A from its blocks."""
        pattern, matrix = self.pattern, np.zeros((self.pattern.dim,) * 2)
        ends = pattern.offsets
        for col in range(pattern.num_blocks):
            for at in range(pattern.col_ptr[col], pattern.col_ptr[col + 1]):
                row = pattern.row_idx[at]
                block = values[pattern.value_offsets[at] : pattern.value_offsets[at + 1]]
                rows, cols = slice(ends[row], ends[row + 1]), slice(ends[col], ends[col + 1])
                matrix[rows, cols] = block.reshape(pattern.dims[col], -1).T
                matrix[cols, rows] = matrix[rows, cols].T
        matrix[np.diag_indices(pattern.dim)] += 0.0 if damping is None else damping
        self.matrix = matrix
        return bool(np.linalg.eigvalsh(matrix)[0] > 0.0)

    def solve(self, b, out=None):
        """x."""
        NumpySolver.calls += 1
        x = np.linalg.solve(self.matrix, b)
        if out is None:
            return x
        out[:] = x
        return out


@dataclass(frozen=True)
class HalvingOptions(StopRules):
    """Options of `Halving`."""

    most: int = 12


class Halving(AlgorithmBase):
    """Gauss-Newton that halves a step until chi2 falls."""

    def step(self, iteration, signals):
        """Linearize, solve, try."""
        solver = self.solver
        solver.linearize()
        if not solver.solve(0.0):
            return Step(Outcome.LINEAR_SOLVER_FAILURE, self.chi2, None, 1)
        for trials in range(1, self.options.most + 1):
            solver.push()
            solver.update()
            chi2 = solver.chi2()
            if chi2 < self.chi2:
                solver.discard_top()
                self.chi2 = chi2
                return Step(Outcome.CONTINUE, chi2, None, trials, float(np.abs(solver.dx).max()))
            solver.pop()
            solver.dx = 0.5 * solver.dx
        return Step(Outcome.NO_IMPROVEMENT, self.chi2, None, trials)


@pytest.fixture
def registered():
    graphopt.register_linear_solver("numpy", NumpySolver)
    graphopt.register_algorithm("halving", Halving, HalvingOptions)
    yield
    LINEAR_SOLVERS.unregister("numpy")
    METHODS.unregister("halving")


def adjusted(**options):
    """A small bundle adjustment, optimized: landmarks are eliminated."""
    graph = ba(cameras=5, points=40, seed=1)
    return graphopt.optimize(graph, "lm", 6, **options)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_registered_linear_solver_solves(registered, device):
    """Same chi2 as with Cholesky; on a device that linearizes it solves on the host."""
    expected = graphopt.optimize(noisy_ring(12), "gn", 5, device=device, linear_solver="cholesky")
    before = NumpySolver.calls
    summary = graphopt.optimize(noisy_ring(12), "gn", 5, device=device, linear_solver="numpy")
    assert summary.linear_solver == "numpy" and NumpySolver.calls - before >= 5
    chi2s = [[iteration.chi2 for iteration in each.iterations] for each in (summary, expected)]
    np.testing.assert_allclose(*chi2s, rtol=1e-9)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_registered_linear_solver_gets_the_reduced_system(registered, device):
    """With landmarks eliminated S is what it solves."""
    expected = adjusted(device=device, linear_solver="cholesky", schur="explicit")
    before = NumpySolver.calls
    summary = adjusted(device=device, linear_solver="numpy", schur="explicit")
    assert (summary.linear_solver, summary.schur) == ("numpy", "explicit")
    assert NumpySolver.calls > before
    assert summary.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-8)


def test_a_registered_linear_solver_is_refused_where_it_cannot_work(registered):
    """No implicit S, no preconditioner; what it returns is checked."""
    with pytest.raises(OptionError, match="'implicit' needs linear_solver 'pcg', got 'numpy'"):
        adjusted(linear_solver="numpy", schur="implicit")
    with pytest.raises(OptionError, match="linear_solver 'dense' is graphopt's own"):
        graphopt.register_linear_solver("dense", NumpySolver)
    with pytest.raises(OptionError, match="make is None, expected a function"):
        graphopt.register_linear_solver("other", None)
    graphopt.register_linear_solver("wrong", lambda pattern: object())
    with pytest.raises(PluginError, match="has no method factorize and no solve"):
        graphopt.optimize(noisy_ring(12), linear_solver="wrong")
    LINEAR_SOLVERS.unregister("wrong")
    with pytest.raises(
        OptionError, match=r"linear_solver is 'nunpy', expected one of auto.*Did you mean 'numpy'"
    ):
        graphopt.optimize(noisy_ring(12), linear_solver="nunpy")


def test_a_registered_algorithm_optimizes(registered):
    """To the minimum that g2o's find, with its own options, stop rules and callback."""
    expected = graphopt.optimize(noisy_ring(12), "lm", 30)
    seen = []
    rules = HalvingOptions(30, function_tolerance=1e-12, most=5)
    summary = graphopt.optimize(noisy_ring(12), "halving", options=rules, callback=seen.append)
    assert summary.method == "halving" and len(seen) == len(summary.iterations) < 30
    assert summary.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-9)
    with pytest.raises(OptionError, match="takes HalvingOptions, got options of type GaussNewtonOptions"):
        graphopt.optimize(noisy_ring(12), "halving", options=graphopt.GaussNewtonOptions())
    with pytest.raises(OptionError, match="method 'lm' is graphopt's own"):
        graphopt.register_algorithm("lm", Halving)
    with pytest.raises(OptionError, match="expected a dataclass derived from StopRules"):
        graphopt.register_algorithm("other", Halving, dict)


def test_a_registered_device_optimizes():
    """It is found by its name, which unknown ones are answered with."""
    from graphopt.solver.cpu import CpuBlockSolver

    made = []
    graphopt.register_block_solver("mine", lambda *parts: made.append(parts) or CpuBlockSolver(*parts))
    summary = graphopt.optimize(noisy_ring(12), "gn", 5, device="mine:3")
    assert made[0][2].device == "mine:3" and summary.final_chi2 < summary.initial_chi2
    with pytest.raises(DeviceError, match=r"no device 'yours' here.* cpu, vulkan, kompute, mine"):
        graphopt.optimize(noisy_ring(12), device="yours")
    DEVICES.unregister("mine")


def test_a_registered_format_is_read_and_written(tmp_path):
    """By its suffix."""
    kept = []

    def write(graph):
        kept.append(graph)
        return b"?\n", []

    register_format(Format("kept", "kept in memory", lambda content, path, report: kept[-1], write))
    graph = noisy_ring(12)
    graphopt.write(graph, tmp_path / "a.kept")
    assert graphopt.read(tmp_path / "a.kept") is graph
    FORMATS.unregister("kept")
    with pytest.raises(graphopt.errors.FormatError, match="the suffix names no format"):
        graphopt.write(graph, tmp_path / "b.kept")


# ---------------------------------------------------------------- installed packages


def install(folder, name, entry_points, sources):
    """Lay a package out in a folder as pip does."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in entry_points
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for source, text in sources.items():
        (folder / source).write_text(text)


@pytest.fixture
def installed(tmp_path):
    """A folder with the example package in it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    sources = {path.name: path.read_text() for path in EXAMPLE.glob("*.py")}
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder, project["name"], project["entry-points"].items(), sources)
    return folder


def python(folder, *words, status=0):
    """Run Python with a folder of installed packages; what it prints."""
    done = processes.python(*words, path=[folder], cwd=folder, status=status)
    return done.stdout if status == 0 else done.stderr


POINTS = "0 0.0 0.0\n1 1.1 0.1\n2 0.4 1.2\nd 0 1 1.0\nd 1 2 1.0\nd 0 2 1.0\n"


def test_an_installed_package_is_found_by_its_names(installed):
    """Solver, algorithm, format, type and device of a package that nobody imports."""
    (installed / "a.xyd").write_text(POINTS)
    (installed / "b.g2o").write_text(
        "VERTEX_XY 0 0 0\nVERTEX_XY 1 2 0\nEDGE_XY_DISTANCE 0 1 1.0 1.0\nFIX 0\n"
    )
    (installed / "d.g2o").write_text("VERTEX_XY 0 0 0\n")
    answer = python(
        installed,
        "-c",
        "import sys, graphopt\n"
        "graphopt.read('d.g2o')\n"
        "assert 'graphopt_plugin_example' not in sys.modules\n"
        "graph = graphopt.read('b.g2o')\n"
        "print(graph.edge_sets[0].type.tag, graphopt.optimize(graph).final_chi2 < 1e-12)\n"
        "graph = graphopt.read('a.xyd')\n"
        "summary = graphopt.optimize(\n"
        "    graph, 'damped-gn', 20, linear_solver='superlu', device='counting-cpu')\n"
        "from graphopt_plugin_example import CountingSolver\n"
        "print(summary.linear_solver, summary.final_chi2 < 1e-12, CountingSolver.count)\n"
        "graphopt.write(graph, 'c.xyd')\n",
    )
    first, second = answer.splitlines()[:2]
    assert first == "EDGE_XY_DISTANCE True"
    solver, is_solved, count = second.split()
    assert (solver, is_solved) == ("superlu", "True") and int(count) > 2
    assert (installed / "c.xyd").read_text().count("d ") == 3


def test_the_command_line_takes_names_of_installed_packages(installed):
    """As choices of its options, and in the list of an unknown one's error."""
    (installed / "a.xyd").write_text(POINTS)
    words = ["-m", "graphopt", "optimize", "a.xyd", "-o", "b.xyd", "--json", "--linear-solver", "superlu"]
    summary = json.loads(python(installed, *words, "--method", "damped-gn", "--device", "counting-cpu"))
    assert summary["linear_solver"] == "superlu" and summary["final_chi2"] < 1e-12
    answer = python(installed, *words[:-3], "--linear-solver", "superlo", status=2)
    assert "Did you mean 'superlu'?" in answer


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("broken_package:ROW", r"cannot be imported: ZeroDivisionError: division by zero"),
        ("no_such_module:ROW", r"cannot be imported: ModuleNotFoundError"),
        ("other_package:ROW", r"is a int, expected graphopt.linear.table.LinearSolver"),
    ],
)
def test_errors_of_a_broken_package_name_it(tmp_path, entry, sentence):
    """With what it offers, and the cause."""
    groups = {"graphopt.linear_solvers": {"bad": entry}, "graphopt.types": {"EDGE_BAD": "other_package:ROW"}}
    install(
        tmp_path,
        "bad-package",
        groups.items(),
        {"broken_package.py": "1 / 0\n", "other_package.py": "ROW = 1\n"},
    )
    program = (
        "import graphopt\n"
        "try:\n"
        "    graphopt.optimize(graphopt.Graph(), linear_solver='bad')\n"
        "except graphopt.errors.PluginError as error:\n"
        "    print(error)\n"
        "try:\n"
        "    graphopt.types.registry.edge_type('EDGE_BAD')\n"
        "except graphopt.errors.PluginError as error:\n"
        "    print(error)\n"
    )
    solver, kind = python(tmp_path, "-c", program).splitlines()
    assert f"'bad' of graphopt.linear_solvers, which package 'bad-package' offers as {entry}" in solver
    assert sentence in solver
    assert "offers 'EDGE_BAD'" in kind and "registers no type" in kind


def test_unknown_names_are_refused_as_before():
    """Where no package has them."""
    with pytest.raises(OptionError, match="expected one of auto, lm, gn, dogleg"):
        graphopt.optimize(noisy_ring(12), "newton")
    with pytest.raises(TypeRegistryError, match="no edge type is called 'EDGE_SE9'"):
        graphopt.types.registry.edge_type("EDGE_SE9")
