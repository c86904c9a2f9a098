"""Ends that few runs come to, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from optimizer_graphs import noisy_ring
from value_graphs import own_types_of_module, types, with_values  # noqa: F401

import graphopt
from graphopt.errors import OptionError, SolverError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import METHODS, ending, optimize
from graphopt.optimizer.algorithm import AlgorithmBase, Outcome
from graphopt.optimizer.dogleg import _dogleg_step
from graphopt.optimizer.options import AutoOptions, LevenbergMarquardtOptions, StopRules
from graphopt.optimizer.run import run
from graphopt.optimizer.scaled_damping import ScaledDamping
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Summary
from graphopt.optimizer.trust_region import TrustRegion, _Model
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.around import SolverAround
from graphopt.solver.create import create_block_solver
from graphopt.solver.devices import register_block_solver


class Asked:
    """Is asked to stop from the first question on."""

    def should_stop(self):
        """Yes."""
        return True


class Worse(SolverAround):
    """Wherever a step leads, chi2 is `factor` times as large; it may rise along its own descent, too."""

    factor = 2.0
    precision = "double"
    curvature = 1.0

    def move(self):
        """Push, update, chi2."""
        return replace(self._inner.move(), chi2=self.factor * self._inner.chi2())

    def trial(self, damping):
        """Solve, push, update, chi2."""
        found = self._inner.trial(damping)
        return replace(found, chi2=self.factor * found.chi2)

    def multiply(self, vector):
        """H times a vector."""
        return self.curvature * self._inner.multiply(vector)


def worse(factor, precision="double", curvature=1.0):
    """A ring at its minimum but for one pose, whose steps all seem to lead uphill; chi2 there."""
    graph = noisy_ring(12)
    optimize(graph, "lm", 50)
    graph.vertex_sets[0].estimate[5, 0] += 0.5
    structure = Structure(fix_gauge(graph, graph.select(0), "auto")[0])
    solver = Worse(create_block_solver(graph, structure, SolverOptions(device="cpu")))
    solver.factor, solver.precision, solver.curvature = factor, precision, curvature
    return solver, solver.linearize()


@pytest.mark.parametrize("make", [ScaledDamping, TrustRegion])
def test_a_request_to_stop_ends_a_step_after_a_rejected_trial(make):
    """The estimates are those of before, and so is chi2."""
    solver, chi2 = worse(1e6)
    algorithm = make(AutoOptions())
    algorithm.start(solver, chi2)
    step = algorithm.step(0, Asked())
    assert step.outcome is Outcome.CONTINUE and step.trials == 1 and step.chi2 == chi2
    assert solver.linearize() == chi2


@pytest.mark.parametrize(
    "factor,precision,outcome",
    [
        (np.nan, "double", Outcome.NON_FINITE),
        (1e6, "mixed", Outcome.NO_IMPROVEMENT),
        (1e6, "double", Outcome.CONTINUE),
    ],
)
def test_gauss_newton_takes_back_what_it_must(factor, precision, outcome):
    """chi2 that is no number, and in mixed precision one that rises; else every step is taken."""
    solver, chi2 = worse(factor, precision)
    algorithm = METHODS.row("gn").make(graphopt.GaussNewtonOptions())
    algorithm.start(solver, chi2)
    assert algorithm.step(0, Asked()).outcome is outcome
    solver.factor = 1.0
    assert (solver.linearize() == chi2) == (outcome is not Outcome.CONTINUE)
    assert algorithm.damping().value == 0.0 and algorithm.first_damping(solver.structure, chi2) is None
    assert algorithm.first_looks(solver.structure) == []


def test_dogleg_takes_no_step_whose_model_rises_by_rounding():
    """In mixed precision; chi2 would fall."""
    for precision, outcome in (("mixed", Outcome.NO_IMPROVEMENT), ("double", Outcome.NO_IMPROVEMENT)):
        solver, chi2 = worse(0.1, precision, curvature=1e9)
        algorithm = METHODS.row("dogleg").make(graphopt.DoglegOptions(max_trials=2))
        algorithm.start(solver, chi2)
        assert algorithm.damping().value == 0.0
        assert algorithm.step(0, Asked()).outcome is outcome
        solver.factor = 1.0
        assert solver.linearize() == chi2


class Coarse(SolverAround):
    """Says that it is in mixed precision: chi2 is a multiple of `step`, rounded up."""

    precision = "mixed"
    step = 0.0

    def in_double(self):
        """The same estimates without rounding."""
        return self._inner

    def _rounded(self, chi2):
        return self.step * np.ceil(chi2 / self.step)

    def linearize(self):
        """H, b and chi2."""
        return self._rounded(self._inner.linearize())

    def chi2(self):
        """Of the present estimates."""
        return self._rounded(self._inner.chi2())

    def trial(self, damping):
        """Solve, push, update, chi2."""
        found = self._inner.trial(damping)
        return replace(found, chi2=self._rounded(found.chi2)) if found.solved else found

    def move(self):
        """Push, update, chi2."""
        found = self._inner.move()
        return replace(found, chi2=self._rounded(found.chi2))


ALGORITHMS = {
    "lm": lambda: METHODS.row("lm").make(LevenbergMarquardtOptions()),
    "dogleg": lambda: METHODS.row("dogleg").make(graphopt.DoglegOptions()),
    "scaled damping": lambda: ScaledDamping(AutoOptions()),
    "trust region": lambda: TrustRegion(AutoOptions()),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_rounding_hides_is_found_in_double(name):
    """With every algorithm the run ends at double's minimum; the last iteration that is allowed says so."""

    def coarsely(graph, max_iterations):
        structure = Structure(fix_gauge(graph, graph.select(0), "auto")[0])
        solver = Coarse(create_block_solver(graph, structure, SolverOptions(device="cpu")))
        solver.step = 0.9 * minimum
        summary = Summary(0, 0, name)
        rules = StopRules(max_iterations, function_tolerance=1e-12)
        return run(ALGORITHMS[name](), rules, solver, summary, StopSignals(None, None, 0.0))

    graph = noisy_ring(12, noise=0.2)
    ended = graph.copy()
    minimum = optimize(graph.copy(), "gn", 50).final_chi2
    summary = coarsely(graph, 60)
    assert summary.switched_at is not None and summary.precision == "double"
    assert summary.final_chi2 == pytest.approx(minimum, rel=1e-9) == pytest.approx(graph.chi2(), rel=1e-9)
    summary = coarsely(ended, summary.switched_at)
    assert summary.switched_at is None and ended.chi2() > minimum
    assert "one step in double promises to take off another" in summary.precision_note


def without_information():
    """A ring whose edges weigh less than nothing: no damping makes H positive definite."""
    graph = noisy_ring(6)
    graph.edge_set("EDGE_SE2").information[:] = -np.eye(3)
    return graph


def test_certificates_of_what_has_no_minimum():
    """Indefinite H, and one that overflows."""
    graph = without_information()
    found = optimize(graph, "gn", 0).certificate
    assert np.isnan(found.predicted_decrease) and found.condition == np.inf
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", range(3), [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    graph.add_edges("EDGE_SE2", [[0, 1], [1, 2]], [[1.0, 0.0, 0.0]] * 2, 1.5e308 * np.eye(3))
    assert np.isnan(optimize(graph, "gn", 0).certificate.gradient)


@pytest.mark.parametrize("computed", ["inline", "materialize"])
def test_certificates_with_computed_values(types, computed):  # noqa: F811
    """A minimum is one whichever way the values are kept."""
    graph = with_values(types)
    summary = optimize(graph, "lm", 100, device="cpu", computed=computed)
    assert summary.is_minimum(1e-6)


@pytest.mark.parametrize(
    "call,sentence",
    [
        (lambda graph: LevenbergMarquardtOptions(initial_lambda=-1.0), "initial_lambda is -1.0, must be >="),
        (lambda graph: AutoOptions(step_tolerance=-1.0), "step_tolerance is -1.0, must be >= 0"),
        (lambda graph: optimize(graph, device="cpu,cpu"), "device 'cpu,cpu' names several"),
        (lambda graph: graphopt.register_algorithm("mine", 3), "make is 3, expected a function or class"),
        (lambda graph: register_block_solver("mine", 3), "factory is 3, expected a function"),
    ],
)
def test_refused_calls(call, sentence):
    """What it is, and what is expected."""
    with pytest.raises(OptionError, match=sentence):
        call(noisy_ring(6))


def test_many_images_are_not_looked_through(monkeypatch):
    """For points behind cameras; the summary says which function does."""
    monkeypatch.setattr(ending, "MOST_VIEWS", -1)
    summary = optimize(noisy_ring(6), "lm", 2)
    assert "Points behind their cameras were not looked for among 0 images" in summary.message


def test_bounds_and_inequalities_are_reported():
    """Their conditions stand in the report and in JSON; a certificate of chi2 alone is refused."""
    graph = noisy_ring(8, noise=0.3)
    optimize(graph, "lm", 50, fix=[0])
    graph.set_bounds(3, upper=[graph.vertex(3).estimate[0] - 0.2, np.inf, np.inf])
    summary = optimize(graph, "lm", 100, fix=[0])
    assert summary.kkt is not None and len(summary.kkt.bounds) == 1
    assert "active: 1 bounds, 0 inequalities" in summary.full_report()
    assert summary.to_dict()["kkt"]["violation"] == 0.0
    assert summary.is_minimum(1e-3)
    with pytest.raises(SolverError, match="chi2 alone has no minimum"):
        _ = summary.certificate


def test_bounds_and_materialized_values_are_refused(types):  # noqa: F811
    """The sentence names the other way."""
    graph = with_values(types)
    graph.set_bounds(int(graph.vertex_ids()[0]), lower=[-9.0])
    with pytest.raises(OptionError, match=r"does not keep to bounds .*: use 'inline'"):
        optimize(graph, computed="materialize")
    assert SolverOptions().schedule_words == "auto"


Vector = graphopt.vertex_type(tag="VERTEX_RARE_2", tangent_dim=2, name="RareVector")(
    lambda x, delta: x + delta
)


@graphopt.edge_type(tag="EDGE_RARE_LOG", vertices=(Vector,), measurement_dim=2)
def EdgeLog(a, z):
    """Defined for positive numbers alone."""
    return np.log(a) - z


@pytest.mark.parametrize("callback", [None, lambda iteration: None])
def test_a_step_to_where_chi2_is_no_number_is_taken_back(callback):
    """x - x log(x) is below zero for x = 5; the loop in Python ends as the native one does."""
    graph = graphopt.Graph()
    graph.add_vertices(Vector, [0], [[5.0, 1.0]])
    graph.add_edges(EdgeLog, [[0]], [[0.0, 0.0]])
    summary = optimize(graph, "gn", callback=callback)
    assert summary.termination is graphopt.TerminationType.NON_FINITE
    assert graph.vertex(0).estimate.tolist() == [5.0, 1.0]
    assert summary.final_chi2 == pytest.approx(np.log(5.0) ** 2)


class Breaks(AlgorithmBase):
    """An algorithm of one's own with a mistake."""

    def step(self, iteration, signals):
        """Fail between a step and its end."""
        self.solver.linearize()
        assert self.solver.solve(1.0)
        self.solver.push()
        self.solver.update()
        raise ZeroDivisionError("mine")


def test_an_error_within_a_step_leaves_the_estimates():
    """Those of before; and the next call works."""
    graphopt.register_algorithm("breaks", Breaks)
    try:
        graph = noisy_ring(12)
        expected, before = optimize(graph.copy(), "lm").final_chi2, graph.vertex_sets[0].estimate.copy()
        with pytest.raises(ZeroDivisionError, match="mine"):
            optimize(graph, "breaks")
        np.testing.assert_array_equal(graph.vertex_sets[0].estimate, before)
        assert optimize(graph, "lm").final_chi2 == expected
    finally:
        METHODS.unregister("breaks")


@pytest.mark.parametrize("seed", range(40))
def test_dogleg_steps_end_at_the_radius(seed):
    """On the way to the steepest descent's minimum and then Gauss-Newton's; gains are the model's."""
    rng = np.random.default_rng(seed)
    root, b = rng.normal(size=(3, 3)) * 3.0 ** rng.uniform(-2.0, 2.0, 3), rng.normal(size=3)
    damping = 0.1 * (seed % 2)
    damped = root.T @ root + damping * np.eye(3)
    newton, bHb = np.linalg.solve(damped, b), b @ root.T @ root @ b
    steepest = b * (b @ b) / bHb
    model = _Model(b, newton, damping, b @ b, b @ newton, newton @ newton, bHb)
    for radius in np.linalg.norm(newton) * np.array([0.05, 0.3, 0.6, 0.9, 0.99, 1.01]):
        step = _dogleg_step(steepest, newton, radius)
        p, q = model.coefficients(radius)
        np.testing.assert_allclose(p * b + q * newton, step, rtol=1e-9)
        assert np.linalg.norm(step) == pytest.approx(min(radius, np.linalg.norm(newton)), rel=1e-9)
        # between the ends of its leg, or along b
        far = np.linalg.norm(steepest) <= radius or p == 0.0
        leg, begin = (newton - steepest, steepest) if far else (b, 0.0 * b)
        share = (step - begin) @ leg / (leg @ leg)
        np.testing.assert_allclose(begin + share * leg, step, rtol=1e-9)
        assert 0.0 <= share <= (1.0 + 1e-9 if far else np.inf)
        assert model.gain(p, q) == pytest.approx(2.0 * step @ b - step @ root.T @ root @ step, rel=1e-9)


@pytest.mark.parametrize(("factor", "share"), [(1e3, 0.25), (np.nan, 0.1)])
def test_a_rejected_step_shrinks_the_region(factor, share):
    """To a quarter of it, to a tenth where there is no chi2 at all."""
    solver, chi2 = worse(factor)
    region = TrustRegion(AutoOptions(max_trials=3))
    region.start(solver, chi2)
    assert region.step(0, SimpleNamespace(should_stop=lambda: False)).outcome is Outcome.NO_IMPROVEMENT
    assert solver.solve(0.0)
    assert region._radius == pytest.approx(share**3 * np.linalg.norm(solver.dx), rel=1e-9)
