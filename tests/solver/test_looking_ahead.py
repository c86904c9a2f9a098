"""A block solver that looks ahead passes over the edges once per accepted step, and finds what any finds."""

import numpy as np
import pytest
from optimizer_graphs import map_of_points

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.options import LevenbergMarquardtOptions
from graphopt.problem.structure import Structure
from graphopt.solver import cpu
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.types import slam2d, slam3d


def solver_of(graph: graphopt.Graph) -> CpuBlockSolver:
    return CpuBlockSolver(graph, Structure(graph.select(0, None, None)), SolverOptions("cpu"))


def test_chi2_brings_h_and_b_of_the_next_linearize() -> None:
    plain, ahead = solver_of(map_of_points()), solver_of(map_of_points())
    ahead.linearizes_trials = True
    for solver in (plain, ahead):
        solver.linearize()
        assert solver.solve(1.0)
    before = ahead.values.copy(), ahead.b.copy()
    chi2 = ahead.move().chi2
    assert np.array_equal(ahead.values, before[0])
    assert np.array_equal(ahead.b, before[1])  # a trial may still be taken back
    assert chi2 == pytest.approx(plain.move().chi2, rel=1e-14)
    assert ahead.linearize() == plain.linearize()
    assert np.array_equal(ahead.values, plain.values)
    assert np.array_equal(ahead.b, plain.b)


def test_what_was_found_ahead_is_forgotten_when_estimates_or_data_change() -> None:
    graph = map_of_points()
    solver = solver_of(graph)
    solver.linearizes_trials = True
    solver.linearize()
    assert solver.solve(1.0)
    step = solver.dx.copy()

    def changed(change: object) -> None:
        start = solver.snapshot()
        solver.chi2()
        change()  # type: ignore[operator]
        found = solver.linearize()
        assert found == solver.linearize()
        solver.restore(start)

    def taken_back() -> None:
        solver.push()
        solver.update()
        solver.chi2()
        solver.pop()

    def data() -> None:
        graph.edge_set(slam3d.EdgeSE3PointXYZ).measurement[:, 0] += 0.1
        solver.take_edge_data()

    def estimates() -> None:
        graph.vertex_set(slam3d.VertexPointXYZ).estimate[3] += 0.1
        graph.vertex_set(slam3d.VertexSE3).estimate[3, :3] += 0.1
        solver.take_all_estimates()

    def rows() -> None:
        graph.vertex_set(slam3d.VertexSE3).estimate[5, :3] += 0.1
        solver.take_estimates(0, np.array([5]))

    def chosen() -> None:
        solver.choose_edges([np.arange(960) % 7 != 0])
        solver.take_edge_data()

    solver.dx = step
    for change in (solver.update, taken_back, data, estimates, rows, chosen):
        solver.push()
        solver.discard_top()  # steps are taken: H is found ahead
        changed(change)


def run_counted(
    monkeypatch: pytest.MonkeyPatch, graph: graphopt.Graph, most: int
) -> tuple[graphopt.Summary, list[str]]:
    """The summary of ten iterations, and which passes over the edges it took; most: numbers of H ahead."""
    passes: list[str] = []

    class Counted:
        def __init__(self, inner: object):
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            if name in ("linearize", "chi2"):
                passes.append(name)
            return getattr(self.inner, name)

    made = cpu.make_linearizer

    def counted(*arguments: object) -> object:
        linearizer, groups = made(*arguments)  # type: ignore[arg-type]
        return Counted(linearizer), groups

    class CountedTrials:
        def __init__(self, linearizer: Counted, *direct: object):
            self.made = trials(linearizer.inner, *direct)

        def run(self, *arguments: object) -> tuple[object, ...]:
            found = self.made.run(*arguments)
            if found[0]:
                passes.append("chi2" if arguments[-1] is None else "linearize")
            return found

    trials = kernels.Trials
    monkeypatch.setattr(kernels, "Trials", CountedTrials)
    monkeypatch.setattr(cpu, "make_linearizer", counted)
    monkeypatch.setattr(cpu, "_MOST_SPECULATIVE", most)
    options = LevenbergMarquardtOptions(max_iterations=4, function_tolerance=0.0)
    summary = graphopt.optimize(graph, "lm", options=options, device="cpu", fix="none")
    return summary, passes


def test_iterations_take_one_pass_each_and_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = map_of_points(), map_of_points()
    two, two_passes = run_counted(monkeypatch, first, 0)
    monkeypatch.undo()
    one, one_passes = run_counted(monkeypatch, second, 1 << 23)
    trials = [step.trials for step in two.iterations]
    assert [step.trials for step in one.iterations] == trials
    for mine, theirs in zip(one.iterations, two.iterations, strict=True):
        assert mine.chi2 == pytest.approx(theirs.chi2, rel=1e-12)
    assert two_passes.count("linearize") == len(trials)
    assert two_passes.count("chi2") == sum(trials)
    assert trials.count(1) > 2
    assert len(one_passes) <= len(two_passes) - trials.count(1) + 1
    assert one_passes[-1] == "chi2"  # nothing follows the last step


def test_an_optimization_begins_with_h_and_b() -> None:
    """Whose arrays are those that the solver has had, so that native loops may hold them."""
    solver, plain = solver_of(map_of_points()), solver_of(map_of_points())
    values, b = solver.values, solver.b
    chi2 = solver.begin()
    assert solver.linearize() == chi2 == plain.linearize()
    assert solver.values is values
    assert solver.b is b
    assert np.array_equal(values, plain.values)
    assert solver.begin() == chi2
    values[:] = 0.0
    assert solver.chi2() == pytest.approx(chi2, rel=1e-14)  # what begin has found is forgotten
    assert solver.linearize() == chi2
    assert np.array_equal(values, plain.values)


def test_any_number_of_threads_finds_the_same_places() -> None:
    """Also where passes over the edges of a structure are shared out: 80,000 edges."""
    n, rng = 40_000, np.random.default_rng(0)
    graph = graphopt.Graph()
    graph.add_vertices(slam2d.VertexSE2, np.arange(n), rng.normal(size=(n, 3)), fixed=np.arange(n) == 0)
    closures = rng.integers(0, n - 5, n + 1)  # to poses nearby: a factor that is small
    ends = np.concatenate(
        [
            np.stack([np.arange(n - 1), np.arange(1, n)], axis=1),
            np.stack([closures, closures + rng.integers(2, 6, n + 1)], axis=1)[:, ::-1],
        ]
    )
    graph.add_edges(slam2d.EdgeSE2, ends, rng.normal(size=(len(ends), 3)))
    found = []
    for threads in (1, 2):
        kernels.set_num_threads(threads)
        solver = solver_of(graph)
        group = solver.structure.groups[0]
        found.append((group.block_offset, group.block_transposed, solver.linearize(), solver.values))
    one, two = found
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    assert one[2] == pytest.approx(two[2], rel=1e-13)
    np.testing.assert_allclose(one[3], two[3], rtol=1e-12, atol=1e-12 * np.abs(one[3]).max())
