"""Linear systems beside their common way: other right-hand sides, no solution, refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from linear_problems import bundle, from_dense, make_pattern, make_problem, to_dense
from optimizer_graphs import map_of_points, noisy_ring

import graphopt
from graphopt.errors import OptionError, PluginError, SolverError
from graphopt.evaluate.datasets import ba
from graphopt.linear import Pcg, memory, systems
from graphopt.linear.null_space import GeneralizedInverse, NullSpace
from graphopt.linear.options import SolverOptions
from graphopt.linear.schur import SchurComplement
from graphopt.linear.systems import (
    Explicit,
    Implicit,
    ReducedSize,
    SolveCounts,
    Whole,
    choose_system,
    elimination_flops,
    solver_for,
    too_large_to_form,
)
from graphopt.linear.table import LinearSolver, register_linear_solver
from graphopt.problem.structure import Structure


def reduced(mode):
    """A system that eliminates landmarks, and its problem."""
    dims, edges = bundle(5, 30, 6, 3, seed=0)
    problem = make_problem(dims, edges, seed=1, num_kept=5, damped=True)
    schur = SchurComplement(problem.pattern, 5, mode=mode)
    options = SolverOptions(linear_solver="pcg" if mode == "implicit" else "cholesky", pcg_tolerance=1e-14)
    if mode == "implicit":
        return Implicit(schur, options), problem
    return Explicit(schur, *solver_for(schur.reduced_pattern, options)), problem


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_another_right_hand_side_has_the_same_matrix(mode):
    """Against the dense solution, timed and not; an indefinite matrix has none."""
    system, problem = reduced(mode)
    near = {"rtol": 0.0, "atol": 1e-12 if mode == "explicit" else 1e-6}
    dx = np.empty(problem.pattern.dim)
    assert system.solve(problem.values, problem.damping, problem.b, dx)
    np.testing.assert_allclose(dx, problem.x, **near)
    other = np.arange(problem.pattern.dim, dtype=float)
    seconds = {"schur": 0.0, "numeric": 0.0, "triangular": 0.0}
    with system.timing(seconds):
        system.solve_again(other, dx)
    np.testing.assert_allclose(dx, np.linalg.solve(problem.dense, other), **near)
    assert 60.0 > seconds["schur"] > 0.0 and 60.0 > seconds["triangular"] > 0.0
    assert not system.solve(problem.values, np.full(len(dx), -1e9), problem.b, dx)


def test_too_large_factors_are_iterated_on(monkeypatch):
    """Where nothing is asked for."""
    pattern = make_pattern([6] * 200, [(k, k + 1) for k in range(199)])
    assert solver_for(pattern, SolverOptions())[0] == "cholesky"
    monkeypatch.setattr(systems, "_MAX_FACTOR_FLOPS", 1.0)
    assert solver_for(pattern, SolverOptions())[0] == "pcg"
    assert solver_for(make_pattern([1] * 90, [(0, 1)]), SolverOptions())[0] == "dense"
    assert solver_for(make_pattern([1] * 91, [(0, 1)]), SolverOptions())[0] == "pcg"


CHOICES = {
    "as it is": ({}, {}, Explicit),
    "many pairs": ({"linear_solver": "pcg"}, {"_MAX_EXPLICIT_PAIRS": 10}, Implicit),
    "few pairs": ({"linear_solver": "pcg"}, {}, Explicit),
    "a factorization by name": ({"linear_solver": "cholesky"}, {"_MAX_EXPLICIT_PAIRS": 10}, Explicit),
    "explicit by name": (
        {"schur": "explicit", "linear_solver": "pcg"},
        {"_MAX_EXPLICIT_PAIRS": 10},
        Explicit,
    ),
    "implicit by name": ({"schur": "implicit", "linear_solver": "pcg"}, {}, Implicit),
    "off": ({"schur": "off"}, {}, Whole),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_chosen(name, monkeypatch):
    """By what is asked for, then by size; conjugate gradients count no scalars of a factor."""
    asked, limits, expected = CHOICES[name]
    for limit, value in limits.items():
        monkeypatch.setattr(systems, limit, value)
    system = choose_system(Structure(ba(5, 60).select()), SolverOptions(**asked))
    assert type(system) is expected
    assert (system.counts.scalars == 0) == (system.linear_solver == "pcg")


def test_elimination_of_the_wrong_side_is_avoided(monkeypatch):
    """Few marginalized vertices with many neighbours: H as a whole, unless a solver is asked for by name."""
    structure = Structure(ba(40, 3).select())
    monkeypatch.setattr(systems, "_WORTH_A_COUNT", 0.0)
    flops = {False: 1e9, True: 1.0}
    monkeypatch.setattr(systems, "elimination_flops", lambda structure, of_kept=False: flops[of_kept])
    assert type(choose_system(structure, SolverOptions())) is Whole
    assert type(choose_system(structure, SolverOptions(linear_solver="cholesky"))) is Explicit
    assert type(choose_system(structure, SolverOptions(schur="explicit"))) is Explicit
    flops[False] = 1.0
    assert type(choose_system(structure, SolverOptions())) is Explicit


@pytest.mark.parametrize("make", [lambda: ba(5, 60), lambda: ba(12, 9), lambda: map_of_points(3)])
def test_operations_of_an_elimination_are_those_of_a_count(make):
    """Pairs of neighbours, block by block, of the pattern as a matrix."""
    structure = Structure(make().select())
    pattern, kept = structure.pattern, structure.num_kept
    touches = to_dense(pattern, np.ones(pattern.values_size))[
        np.ix_(pattern.offsets[:-1], pattern.offsets[:-1])
    ]
    across, dims = touches[:kept, kept:], structure.dims
    for of_kept, degrees, gone, left in (
        (False, across.sum(0), dims[kept:], dims[:kept]),
        (True, across.sum(1), dims[:kept], dims[kept:]),
    ):
        forming = sum(2.0 * d**2 / 2.0 * e for d, e in zip(degrees, gone, strict=True)) * left.mean() ** 2
        is_filled = of_kept or (degrees**2).sum() / 2.0 > 0.4 * len(left) ** 2 / 2.0
        expected = forming + is_filled * left.sum() ** 3 / 3.0
        assert elimination_flops(structure, of_kept) == pytest.approx(expected, rel=1e-12)
    size = ReducedSize.of(structure)
    assert size == ReducedSize((across.sum(0) ** 2).sum() / 2.0, dims[:kept].sum(), kept)


@pytest.mark.parametrize(
    ("pairs", "kept_dim", "expected"),
    [
        (4e8, 6000, False),
        (4e8 + 1, 6000, True),
        (4e8, 12000, False),
        (0.099 * 3000**2 / 2, 18000, False),
        (0.101 * 3000**2 / 2, 18000, True),
    ],
)
def test_too_many_pairs_are_not_formed(pairs, kept_dim, expected):
    """By work, and by memory where S is large: a tenth of a full one."""
    assert too_large_to_form(ReducedSize(pairs, kept_dim, kept_dim // 6)) is expected


def test_a_system_that_does_not_say_has_no_limit(tmp_path, monkeypatch):
    """No such file, or one without the line."""
    for name, text in (("absent", None), ("empty", "MemTotal: 64 kB\n"), ("odd", "MemAvailable: much\n")):
        if text is not None:
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(memory, "_MEMINFO", tmp_path / name)
        monkeypatch.setattr(memory, "_CGROUP", tmp_path / "none")
        assert memory.available_bytes() is None


@pytest.mark.parametrize(
    "kind,sentence", [("hold", r"too ill-conditioned\. \["), ("pseudo-inverse", "Use singular='hold'")]
)
def test_an_indefinite_matrix_has_no_generalized_inverse(kind, sentence):
    """Holding its singular direction leaves it indefinite."""
    pattern = make_pattern([3], [])
    values = from_dense(pattern, np.diag([1.0, -1.0, 0.0]))
    space = NullSpace(pattern, np.array([[0.0], [0.0], [1.0]]), np.ones((3, 1)))
    with pytest.raises(SolverError, match=sentence):
        GeneralizedInverse(space, values, kind)


@pytest.mark.parametrize(
    "call,error,sentence",
    [
        (lambda: SolverOptions(work_queues="gpu", device="cpu"), OptionError, "an explicit Schur complement"),
        (
            lambda: SolverOptions("vulkan", work_queues="gpu", schur="implicit"),
            OptionError,
            "work_queues 'gpu'",
        ),
        (lambda: SolverOptions("cpu", work_queues="gpu", schur="explicit"), OptionError, "device='cpu'"),
        (lambda: SolverOptions(schedule={"EDGE_SE2": "fast"}), OptionError, "of 'EDGE_SE2' is 'fast'"),
        (lambda: Pcg(make_pattern([2], []), max_iterations=-1), OptionError, "max_iterations is -1"),
        (lambda: register_linear_solver("mine", 3), OptionError, "make is 3, expected a function"),
        (lambda: LinearSolver(lambda pattern: pattern).make_direct(3), PluginError, "has no method factor"),
    ],
)
def test_refused_solvers(call, error, sentence):
    """Options that contradict each other, and plug-ins that are none."""
    with pytest.raises(error, match=sentence):
        call()
    assert Pcg(make_pattern([2], []), max_iterations=0).iterations == 0
    assert SolverOptions("vulkan", work_queues="gpu", schur="explicit").work_queues == "gpu"
    assert Whole("mine", SimpleNamespace()).counts == SolveCounts(0, 0.0, 0, 0)  # of a plug-in


def test_covariances_of_what_cannot_be_factorized_are_refused():
    """Indefinite information matrices: damping does not help."""
    graph = noisy_ring(5)
    graph.edge_set("EDGE_SE2").information[:] = -np.eye(3)
    with pytest.raises(SolverError, match="not positive definite even when damped"):
        graphopt.compute_covariances(graph, singular="damp")
    for call in (graphopt.compute_marginals, graphopt.compute_covariances):
        with pytest.raises(OptionError, match="singular is 'some'"):
            call(graph, [0], singular="some")
