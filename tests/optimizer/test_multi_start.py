"""`auto` ends no higher than gn, lm and dogleg do from the same start, on real and broken pose graphs."""

import numpy as np
import pytest

import graphopt
from graphopt.evaluate.datasets import ba, manhattan
from graphopt.geometry import SE2
from graphopt.optimizer import TerminationType, optimize
from graphopt.problem.structure import Structure
from graphopt.strategies.multi_start import has_convex_kernels
from graphopt.strategies.relaxation import Relaxation
from graphopt.types.robust_kernels import KERNELS, robust_kernel

REAL = (
    "intel.g2o",
    "MIT.g2o",
    "ring.g2o",
    "CSAIL.g2o",
    "smallGrid3D.g2o",
    "tinyGrid3D.g2o",
    "kitti_07.g2o",
    "w100.graph",
)
CANDIDATES = {
    "gn": graphopt.GaussNewtonOptions(60, function_tolerance=1e-8),
    "lm": graphopt.LevenbergMarquardtOptions(150, function_tolerance=1e-8),
    "dogleg": graphopt.DoglegOptions(150, function_tolerance=1e-8),
}
TOLERANCE = 1e-5
"""Of chi2: candidates that end slowly differ by as much among themselves."""


def add_wrong_closures(graph, count, seed):
    """Edges between random poses with measurements of other edges."""
    rng = np.random.default_rng(seed)
    edges = graph.edge_sets[0]
    pairs = rng.choice(np.unique(edges.vertices), (count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    taken = rng.integers(0, len(edges), len(pairs))
    graph.add_edges(edges.type.tag, pairs, edges.measurement[taken], edges.information[taken])


def set_kernels(graph, name):
    """The same robust kernel of width 1 on all edges."""
    for edges in graph.edge_sets:
        edges.kernel[:] = robust_kernel(name).number
        edges.kernel_width[:] = 1.0


def assert_auto_is_no_worse(graph):
    """Than the best of g2o's methods, from the same start."""
    ends = {
        name: optimize(graph.copy(), name, options=candidate).final_chi2
        for name, candidate in CANDIDATES.items()
    }
    best = min(chi2 for chi2 in ends.values() if np.isfinite(chi2))
    found = optimize(graph)
    assert found.final_chi2 <= best * (1.0 + TOLERANCE), (ends, found.brief_report(), found.message)


@pytest.mark.data
@pytest.mark.parametrize("wrong", [0, 10, 40])
@pytest.mark.parametrize("name", REAL)
def test_real_pose_graphs(shared_data, name, wrong):
    """As they are, and with wrong loop closures."""
    graph, _ = graphopt.io.read_with_report(shared_data / "posegraph" / name)
    if wrong:
        add_wrong_closures(graph, wrong, seed=wrong)
    assert_auto_is_no_worse(graph)


@pytest.mark.data
@pytest.mark.parametrize("kernel", ["Huber", "Cauchy", "Welsch", "Saturated", "DCS"])
@pytest.mark.parametrize("name", ["intel.g2o", "MIT.g2o", "kitti_07.g2o"])
def test_robust_kernels(shared_data, name, kernel):
    """With wrong loop closures and robust kernels, which make minima of their own."""
    graph, _ = graphopt.io.read_with_report(shared_data / "posegraph" / name)
    add_wrong_closures(graph, 40, seed=1)
    set_kernels(graph, kernel)
    assert_auto_is_no_worse(graph)


@pytest.mark.parametrize("seed", range(4))
def test_generated_worlds(seed):
    """Long corridors with few loop closures: the odometry's start is folded."""
    noise = (0.02, 0.05, 0.1, 0.2)[seed]
    graph = manhattan(nodes=800, closures=0.3, noise_rotation=noise, noise_translation=0.1, seed=seed)
    assert_auto_is_no_worse(graph)


def test_which_kernels_are_convex():
    """Those under which far errors still pull."""
    convex = set()
    for kernel in KERNELS:
        graph = manhattan(nodes=20, seed=0)
        set_kernels(graph, kernel.name)
        if has_convex_kernels(Structure(graph.select())):
            convex.add(kernel.name)
    assert convex == {"None", "Huber", "PseudoHuber", "Fair", "ScaleDelta"}


# ------------------------------------------------------------------ the proof


def loop(num_poses=24, turns=1, seed=0):
    """Poses on a circle that is closed by its last edge; `turns`: of the start on the way around."""
    rng = np.random.default_rng(seed)
    graph = graphopt.Graph()
    ids = np.arange(num_poses)
    angle = 2.0 * np.pi / num_poses
    step = np.array([1.0, 0.0, angle])
    start = [np.zeros(3)]
    for _ in ids[1:]:
        start.append((SE2(start[-1]) * SE2(np.array([1.0, 0.0, turns * angle]))).storage)
    graph.add_vertices("VERTEX_SE2", ids, np.array(start))
    pairs = np.stack([ids, np.roll(ids, -1)], 1)
    noise = rng.normal(size=(num_poses, 3)) * [0.02, 0.02, 0.01]
    graph.add_edges("EDGE_SE2", pairs, step + noise, np.diag([100.0, 100.0, 400.0]))
    graph.set_fixed([0])
    return graph


def test_the_proof_tells_the_right_minimum_from_a_wrong_one():
    """A loop that goes around once, and one that has got stuck after two turns."""
    right, wrong = loop(turns=1), loop(turns=2)
    ends = [optimize(graph, "gn", 30).final_chi2 for graph in (right, wrong)]
    assert ends[1] > 10.0 * ends[0]
    assert Relaxation(Structure(right.select())).gap() < 1e-4
    assert Relaxation(Structure(wrong.select())).gap() == np.inf
    assert optimize(loop(turns=2)).final_chi2 == pytest.approx(ends[0], rel=1e-6)


def relaxed_cost(graph, weight):
    """The relaxation's cost in plain numpy, for information diag(w, w, r): (w, r / 2) are the weights."""
    total = 0.0
    pose = dict(zip(graph.vertex_sets[0].ids.tolist(), graph.vertex_sets[0].estimate, strict=True))
    for (i, j), z in zip(graph.edge_sets[0].vertices.tolist(), graph.edge_sets[0].measurement, strict=True):
        first, second, measured = (SE2(pose).to_matrix() for pose in (pose[i], pose[j], z))
        left = second - first @ measured
        total += weight[0] * np.sum(left[:2, 2] ** 2) + weight[1] * np.sum(left[:2, :2] ** 2)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_below_the_bound(seed):
    """Whatever the estimates, no others cost less than cost (1 - gap)."""
    graph = loop(seed=seed)
    optimize(graph, "gn", 30)
    rng = np.random.default_rng(seed)
    graph.vertex_sets[0].estimate[1:] += rng.normal(size=(23, 3)) * 0.02
    gap = Relaxation(Structure(graph.select())).gap()
    bound = relaxed_cost(graph, (100.0, 200.0)) * (1.0 - gap)
    assert np.isfinite(gap)
    lowest = np.inf
    for _ in range(50):
        optimize(graph, "gn", 3)
        lowest = min(lowest, relaxed_cost(graph, (100.0, 200.0)))
        graph.vertex_sets[0].estimate[1:] += rng.normal(size=(23, 3)) * 10.0 ** rng.uniform(-4, -1)
        lowest = min(lowest, relaxed_cost(graph, (100.0, 200.0)))
    assert lowest >= bound


def test_a_contest_that_is_interrupted_keeps_the_best():
    """Stopped anywhere, also while a candidate is far above."""
    graph = loop(40)
    add_wrong_closures(graph, 10, seed=3)
    start = graph.chi2()
    whole = optimize(graph.copy())
    assert "led from the start" in whole.message or whole.termination is TerminationType.CONVERGENCE

    class After:
        def __init__(self, count):
            self.left = count

        def is_set(self):
            """Count down."""
            self.left -= 1
            return self.left < 0

    for count in range(0, 200, 7):
        present = graph.copy()
        summary = optimize(present, stop=After(count))
        assert present.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
        assert present.chi2() <= start * (1.0 + 1e-12)


def test_bundles_with_wrong_observations_end_no_higher_than_other_methods():
    """Small ones: where chi2 is far above noise, or kernels are bounded, the other methods run, too."""
    for seed in (0, 3):
        graph = ba(cameras=8, points=80, outliers=0.05, seed=seed)
        found = {
            method: graphopt.optimize(
                graph.copy(), method, device="cpu", **({} if method == "auto" else {"max_iterations": 60})
            ).final_chi2
            for method in ("auto", "gn", "lm", "dogleg")
        }
        assert found["auto"] <= (1.0 + 1e-4) * min(found.values())


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_bundles_with_kernels_that_grow_end_at_once(outliers):
    """Cauchy's kernel: no iteration hides a search from the start, and lm does not end lower."""
    graph = ba(cameras=20, points=300, outliers=outliers, seed=1)
    set_kernels(graph, "Cauchy")
    lm = graphopt.optimize(graph.copy(), "lm", device="cpu", max_iterations=100)
    found = graphopt.optimize(graph, device="cpu")
    assert max(iteration.trials for iteration in found.iterations) <= 10
    assert found.final_chi2 <= (1.0 + 1e-6) * lm.final_chi2
