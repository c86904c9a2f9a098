"""Vector-Jacobian products of a whole solve, of every edge type, against central differences."""

import subprocess
import sys

import numpy as np
import pytest
from builtin_edges import EDGES
from derivative_problems import difference, directions, held_graph, inputs_of

from graphopt.derivatives import OptimumProblem
from graphopt.io.extra_types import COLMAP_MODELS, COMMON_MODELS, projection_types
from graphopt.types.robust_kernels import KERNELS

SMOOTH = [kernel.number for kernel in KERNELS if kernel.name not in ("None", "ScaleDelta")]
CAUCHY = next(kernel.number for kernel in KERNELS if kernel.name == "Cauchy")
CASES = [(kind, SMOOTH[number % len(SMOOTH)]) for number, kind in enumerate(EDGES)]


LATE = [name for name in COLMAP_MODELS if name not in COMMON_MODELS]
"""Camera models whose edge types are made on first use."""
EVERYTHING = """
import pkgutil, sys
from importlib import import_module
import graphopt, slam_bridge
for package in (graphopt, slam_bridge):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.rpartition(".")[2].startswith("_"):
            import_module(module.name)
from graphopt.types import registry
print(*sorted({kind.tag for kind in registry.EDGES.values()}))
"""


def test_the_list_is_the_registry():
    """With all modules loaded, no edge type is registered that is not tried here."""
    run = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {kind.tag for kind in EDGES}


@pytest.mark.parametrize(("kind", "kernel"), CASES, ids=[f"{k.tag}-{KERNELS[n].name}" for k, n in CASES])
def test_product_of_every_edge_type(kind, kernel):
    """By measurement, information, kernel width, parameters and a fixed vertex at once: to 1e-6."""
    check_product(kind, held_graph(kind, kernel))


@pytest.mark.parametrize("on_a_rig", [False, True])
@pytest.mark.parametrize("model", LATE)
def test_product_of_every_camera_model(model, on_a_rig):
    """Of those that are made on first use."""
    made = projection_types(model)
    kind = made.rig_edge if on_a_rig else made.edge
    check_product(kind, held_graph(kind, CAUCHY, seed=5))  # of seed 3 some points are where no image is


def check_product(kind, graph):
    """All inputs at once, along one direction."""
    problem = OptimumProblem(graph, inputs_of(graph, kind))
    values = [one.rows.look(one.column).copy() for one in problem.inputs]
    solved = problem.solve(values)
    rng = np.random.default_rng(5)
    cotangents = [rng.standard_normal(estimate.shape) for estimate in solved.estimates]
    steps = directions(problem, rng)
    gradients = problem.vjp(values, solved.estimates, solved.doubts, cotangents)
    parts = [float((gradient * step).sum()) for gradient, step in zip(gradients, steps, strict=True)]
    expected = difference(problem, values, steps, cotangents)
    assert abs(sum(parts) - expected) <= 1e-6 * max(np.abs(parts).sum(), 1e-3)


@pytest.mark.parametrize("kernel", SMOOTH, ids=[KERNELS[number].name for number in SMOOTH])
@pytest.mark.parametrize("column", ["measurement", "information", "kernel_width"])
def test_every_kernel_and_input_alone(kernel, column):
    """One input at a time under every robust kernel."""
    kind = next(edge for edge in EDGES if edge.tag == "EDGE_SE2")
    graph = held_graph(kind, kernel)
    problem = OptimumProblem(graph, [f"EDGE_SE2.{column}"])
    values = [problem.inputs[0].rows.look(column).copy()]
    solved = problem.solve(values)
    rng = np.random.default_rng(7)
    cotangents = [rng.standard_normal(estimate.shape) for estimate in solved.estimates]
    steps = directions(problem, rng)
    (gradient,) = problem.vjp(values, solved.estimates, solved.doubts, cotangents)
    expected = difference(problem, values, steps, cotangents)
    assert abs(float((gradient * steps[0]).sum()) - expected) <= 1e-6 * max(np.abs(gradient).sum(), 1e-3)
