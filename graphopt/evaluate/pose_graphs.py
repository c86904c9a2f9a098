"""`graphopt eval pose-graph`: graphs by configuration, beside g2opy and GTSAM where they are installed.

chi2 is g2o's (no 1/2), recomputed by graphopt from every solver's estimates. GTSAM minimises another
function of 3-D poses (its own charts), so its chi2 in g2o's convention is near, not at, g2o's minimum.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from graphopt.errors import OptionError
from graphopt.evaluate import optional
from graphopt.evaluate.report.sparsity import patterns
from graphopt.evaluate.solve import chi2_before_and_after, measure, timed_peer, units_of

PEERS = ("g2opy", "gtsam")
_PEER_ITERATIONS = 50
_ENTRIES = "graphopt.evaluate.pose_graphs:evaluate", "graphopt.evaluate.pose_graphs:evaluate_peer"
units = partial(units_of, _ENTRIES)


def evaluate(name: str, path: str, configuration: str, options: dict[str, Any], runs: int) -> dict[str, Any]:
    """The entry of one graph under one configuration."""
    graph = start_values(path)
    entry, _ = measure(graph, configuration, options, runs)
    return {"problem": name, "solver": configuration, **_sizes(graph), **entry, "sparsity": patterns(graph)}


def evaluate_peer(name: str, path: str, peer: str, runs: int) -> dict[str, Any]:
    """The entry of one graph under one peer, from the same start values."""
    import tempfile

    import graphopt

    graph = start_values(path)
    with tempfile.TemporaryDirectory() as folder:
        start, end = f"{folder}/start.g2o", f"{folder}/end.g2o"
        graphopt.write(graph, start)
        solve = {"g2opy": _g2opy, "gtsam": _gtsam}[peer]
        entry, (iterations,) = timed_peer(lambda: solve(start, end), runs)
        entry |= {"iterations": iterations, **chi2_before_and_after(graph, graphopt.read(end))}
    return {"problem": name, "solver": peer, **_sizes(graph), **entry}


def start_values(path: str) -> Any:
    """The graph of a file; of one without estimates, with those of its spanning tree."""
    import graphopt

    graph, report = graphopt.io.read_with_report(path)
    if report.needs_initialization:
        graphopt.initialize(graph, "spanning-tree")
    return graph


def _sizes(graph: Any) -> dict[str, int]:
    return {"vertices": graph.num_vertices, "edges": graph.num_edges}


def g2opy_optimizer(start: str) -> Any:
    """g2opy's Gauss-Newton with Eigen's Cholesky on a file; a vertex is fixed if the file fixes none."""
    g2o = optional.load("g2opy")
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(g2o.OptimizationAlgorithmGaussNewton(g2o.BlockSolverX(g2o.LinearSolverEigenX())))
    if not optimizer.load(start):
        raise OptionError("g2opy cannot read this graph.")
    if (gauge := optimizer.find_gauge()) is not None:
        gauge.set_fixed(True)
    return optimizer


def gtsam_factors(start: str) -> tuple[Any, Any]:
    """GTSAM's factors and initial values of a file; a tight prior holds the first pose."""
    gtsam = optional.load("gtsam")
    is_3d = "VERTEX_SE3" in Path(start).read_text(encoding="utf-8")
    factors, initial = gtsam.readG2o(start, is_3d)
    first = min(initial.keys())
    dim = 6 if is_3d else 3
    prior = gtsam.PriorFactorPose3 if is_3d else gtsam.PriorFactorPose2
    anchor = initial.atPose3(first) if is_3d else initial.atPose2(first)
    factors.add(prior(first, anchor, gtsam.noiseModel.Isotropic.Sigma(dim, 1e-6)))
    return factors, initial


def _g2opy(start: str, end: str) -> tuple[float, int]:
    """Gauss-Newton of g2opy, until chi2 stands still."""
    optimizer = g2opy_optimizer(start)
    optimizer.add_post_iteration_action(optional.load("g2opy").SparseOptimizerTerminateAction())
    began = time.perf_counter()
    optimizer.initialize_optimization()
    iterations = optimizer.optimize(_PEER_ITERATIONS)
    seconds = time.perf_counter() - began
    optimizer.save(end)
    return seconds, iterations


def _gtsam(start: str, end: str) -> tuple[float, int]:
    """Levenberg-Marquardt of GTSAM with the METIS ordering and its own stop rules."""
    gtsam = optional.load("gtsam")
    factors, initial = gtsam_factors(start)
    began = time.perf_counter()
    parameters = gtsam.LevenbergMarquardtParams()
    parameters.setOrderingType("METIS")
    parameters.setMaxIterations(_PEER_ITERATIONS)
    optimizer = gtsam.LevenbergMarquardtOptimizer(factors, initial, parameters)
    result = optimizer.optimize()
    seconds = time.perf_counter() - began
    factors.remove(factors.size() - 1)
    gtsam.writeG2o(factors, result, end)
    return seconds, optimizer.iterations()
