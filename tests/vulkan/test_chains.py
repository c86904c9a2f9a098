"""Several trials in one submission: bit by bit what one after the other finds, whatever comes between."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.device import VulkanDevice
from graphopt.optimizer import LevenbergMarquardtOptions, optimize
from graphopt.optimizer.signals import StopSignals
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.trial import Damping, Forecast
from graphopt.solver.vulkan import chain
from graphopt.solver.vulkan.foresight import Foresight
from graphopt.solver.vulkan.solver import create

CALLS = 3
SCALED = Damping(1e-4, True, 1e-6, 1e32)
FORECAST = Forecast("scaled", 0.0, 2.0, 0, 40, 1e-12, 0.0, iterations=100)


@dataclass
class Seen:
    """What chains have done."""

    lengths: list[int] = field(default_factory=list)
    """Trials that were submitted together."""
    rejected: int = 0
    """Trials that a later one of their chain followed although they were rejected."""
    failed: int = 0
    """Trials in chains whose factorization has failed."""
    taken: int = 0
    """Trials that the host has asked for."""


@pytest.fixture
def chains(monkeypatch):
    """Chains of four, also of long trials: what they have done."""
    seen = Seen()
    prepare, arrive, take = Foresight.prepare, Foresight.arrive, Foresight.take

    def noted_prepare(self, damping, count):
        seen.lengths.append(count)
        return prepare(self, damping, count)

    def noted_arrive(self, damping, versions):
        arrive(self, damping, versions)
        lines = self._chain.lines
        seen.rejected += sum(not line.accepted for line in lines[:-1])
        seen.failed += sum(not line.trial.solved for line in lines)

    def noted_take(self, damping):
        found = take(self, damping)
        seen.taken += found is not None
        return found

    monkeypatch.setattr(Foresight, "prepare", noted_prepare)
    monkeypatch.setattr(Foresight, "arrive", noted_arrive)
    monkeypatch.setattr(Foresight, "take", noted_take)
    monkeypatch.setattr(chain, "LONGEST_TRIAL", np.inf)
    monkeypatch.setattr(chain, "MOST", 4)
    return seen


def other_start(graph, base, seed, scale):
    """All free vertices somewhere else."""
    rng = np.random.default_rng(seed)
    for vertices, numbers in zip(graph.vertex_sets, base, strict=True):
        free = ~np.asarray(vertices.fixed, bool)[:, None]
        vertices.estimate[...] = numbers + scale * rng.standard_normal(numbers.shape) * free


def story(graph, scale, **options):
    """All that calls from different starts tell, and where each of them ends."""
    base = [vertices.estimate.copy() for vertices in graph.vertex_sets]
    found = []
    for seed in range(CALLS):
        other_start(graph, base, seed, scale)
        summary = optimize(graph, device="vulkan", **options)
        steps = [(one.chi2, one.lambda_, one.trials) for one in summary.iterations]
        ends = [vertices.estimate.tobytes() for vertices in graph.vertex_sets]
        found.append((summary.initial_chi2, summary.final_chi2, summary.termination, steps, ends))
    return found


def with_kernels():
    """A bundle adjustment whose kernels are at work."""
    graph = bundle_adjustment()
    graph.edge_sets[0].measurement[::7] += 30.0
    graph.set_robust_kernel("Huber", 1.0)
    return graph


def indefinite_poses():
    """A pose graph that is no minimization: H is indefinite until much is added."""
    graph = pose_graph(12)
    graph.edge_sets[0].information[4] *= -5.0
    return graph


LM = {"method": "lm", "linear_solver": "cholesky"}
FEW = LevenbergMarquardtOptions(max_iterations=6, max_trials=2)
HARD = LevenbergMarquardtOptions(max_iterations=6, initial_lambda=1e-3)
EASY = LevenbergMarquardtOptions(max_iterations=30, function_tolerance=1e-4, step_tolerance=1e-3)
STORIES = {
    "auto": (bundle_adjustment, 0.1, {"linear_solver": "cholesky"}),
    "auto-mixed": (bundle_adjustment, 0.1, {"linear_solver": "cholesky", "precision": "mixed"}),
    "dense": (bundle_adjustment, 0.05, {"linear_solver": "dense"}),
    "kernels": (with_kernels, 0.05, {"linear_solver": "cholesky"}),
    "lm": (bundle_adjustment, 0.1, LM),
    "lm-mixed": (bundle_adjustment, 0.1, {**LM, "precision": "mixed"}),
    "lm-kernels": (with_kernels, 0.02, LM),
    "rejections": (pose_graph, 0.5, LM),
    "three-iterations": (pose_graph, 0.5, {**LM, "max_iterations": 3}),
    "few-trials": (pose_graph, 0.5, {**LM, "options": FEW}),
    "tolerances": (pose_graph, 0.1, {**LM, "options": EASY}),
    "indefinite": (indefinite_poses, 0.1, {**LM, "options": HARD}),
}


@pytest.mark.parametrize("name", STORIES)
def test_no_number_changes(name, chains, monkeypatch):
    """Iterations, chi2, lambda, trials, why it ended and where."""
    make, scale, options = STORIES[name]
    ours = story(make(), scale, **options)
    assert chains.taken > chains.lengths.count(2) and chains.lengths
    if name == "rejections":
        assert chains.rejected > 0
    if name == "indefinite":
        assert chains.failed > 0
    monkeypatch.setattr(chain, "MOST", 1)
    assert ours == story(make(), scale, **options)


def test_calls_make_fewer_trips(chains):
    """All trials that follow the first call's are in chains, and each is asked for."""
    found = story(bundle_adjustment(), 0.1, **LM)
    trials = [sum(step[2] for step in steps) for *_, steps, _ in found]
    assert chains.taken == sum(trials[1:]) and chains.lengths == [4, 4, 2] * (CALLS - 1)


def test_who_looks_between(chains, monkeypatch):
    """A callback sees the graph after each iteration: its calls have one trial in each submission."""

    def told():
        graph, seen = pose_graph(), []
        see = lambda one: seen.append((one.chi2, graph.vertex_sets[0].estimate.tobytes()))  # noqa: E731
        return story(graph, 0.5, callback=see, **LM), seen

    ours = told()
    assert not chains.lengths and len(ours[1]) > CALLS * 5
    monkeypatch.setattr(chain, "MOST", 1)
    assert ours == told()


def test_stopped_between_trials_of_a_submission(chains, monkeypatch):
    """Ctrl-C or a time limit after some trial: its estimates, though the device has gone on."""

    def stopped(after):
        graph, asked = pose_graph(), []
        base = [vertices.estimate.copy() for vertices in graph.vertex_sets]
        other_start(graph, base, 0, 0.5)
        optimize(graph, device="vulkan", **LM)
        other_start(graph, base, 1, 0.5)
        with monkeypatch.context() as patched:
            patched.setattr(StopSignals, "should_stop", lambda self: asked.append(1) or len(asked) > after)
            summary = optimize(graph, device="vulkan", **LM)
        return summary.final_chi2, graph.vertex_sets[0].estimate.tobytes()

    for after in (3, 6, 9):
        monkeypatch.setattr(chain, "MOST", 4)
        ours = stopped(after)
        monkeypatch.setattr(chain, "MOST", 1)
        assert ours == stopped(after)
    assert sum(chains.lengths) > chains.taken, "nothing was left over"


def solver_on(device, graph, precision="double"):
    """A solver, linearised."""
    options = SolverOptions("vulkan", "cholesky", "auto", precision)
    solver = create(graph, Structure(graph.select()), options, device=device)
    solver.linearize()
    return solver


def chained(solver, damping=SCALED):
    """A chain of four from the estimates; its first trial has been asked for."""
    solver.system.wait_prepared()
    solver._foresight._num_before, solver._foresight._num_trials = 100, 0
    solver.expect(Forecast(**{**FORECAST.__dict__, "chi2": solver.chi2()}))
    return solver.trial(damping)


ASKED = {
    "b": lambda solver: solver.b,
    "values": lambda solver: solver.values,
    "dx": lambda solver: solver.dx,
    "diagonal": lambda solver: solver.diagonal,
    "largest": lambda solver: np.array([solver.largest_diagonal(), solver.largest_gradient()]),
    "multiply": lambda solver: solver.multiply(np.ones(solver.dim)),
    "solve": lambda solver: solver.dx if solver.solve(0.1) else None,
    "move": lambda solver: np.array([solver.move().chi2]),
    "other damping": lambda solver: np.array([solver.trial(Damping(0.3)).chi2]),
    "linearize": lambda solver: np.array([solver.linearize(), solver.trial(Damping(0.3)).chi2]),
}


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("name", ASKED)
def test_asked_for_something_else(name, accepted, chains):
    """After one trial of four, kept or taken back: H, b and dx are those of a solver that took one only."""
    device = shared_device("address")
    ours, theirs = (solver_on(device, bundle_adjustment()) for _ in range(2))
    first, other = chained(ours), theirs.trial(SCALED)
    assert (first.chi2, first.gain, first.step_size) == (other.chi2, other.gain, other.step_size)
    assert chains.lengths == [4] and chains.taken == 1
    for solver in (ours, theirs):
        solver.discard_top() if accepted else solver.pop()
    assert np.array_equal(ASKED[name](ours), ASKED[name](theirs))


def test_devices_without_conditional_commands(chains):
    """One trial in each submission."""
    solver = solver_on(VulkanDevice(masked_features=["conditional"]), bundle_adjustment())
    assert chained(solver).solved and not chains.lengths
