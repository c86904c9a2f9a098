"""A solve on a device has the gradients of the same solve on the CPU."""

import numpy as np
import pytest
import torch
import vulkan_devices  # noqa: F401  (how llvmpipe runs)
from vulkan_graphs import pose_graph

import graphopt
import graphopt.torch
from graphopt.derivatives.equations import HostEquations
from graphopt.device.shared import shared_device
from graphopt.errors import GradientError
from graphopt.linear.options import SolverOptions
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.types.robust_kernels import KERNELS
from graphopt.vulkan.solver import create


def gradients(graph, names, **options):
    """Estimates, and gradients of their squares by the inputs."""
    leaves = {}
    for name in names:
        tag, column = name.rsplit(".", 1)
        leaves[name] = torch.tensor(graph.edge_set(tag).look(column).copy(), requires_grad=True)
    solution = graphopt.torch.solve(graph, leaves, **options)
    assert solution.summary.device.startswith(options["device"])
    sum((estimate**2).sum() for estimate in solution.estimates.values()).backward()
    estimates = [estimate.detach().numpy() for estimate in solution.estimates.values()]
    return [*estimates, *(leaf.grad.numpy() for leaf in leaves.values())]


@pytest.fixture
def graph():
    """Six cameras, two of them fixed."""
    made = graphopt.datasets.ba(cameras=6, points=40)
    made.vertex_sets[0].fixed[:2] = True
    return made


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "double"},
        {"precision": "mixed"},
        {"schedule": "blocks"},
        {"schedule": "blocks", "linear_solver": "pcg"},
        {"schedule": "blocks", "precision": "mixed"},
        {"schedule": "matrix-free"},
    ],
    ids=str,
)
def test_gradients(graph, options, monkeypatch):
    """Refined in double wherever it was solved: where kernels linearise, on the device."""
    tag = graph.edge_sets[0].type.tag
    names = [f"{tag}.measurement", f"{tag}.information"]
    expected = gradients(graph, names, device="cpu")
    if "schedule" in options:
        monkeypatch.setattr(HostEquations, "linearize", lambda self: pytest.fail("on the host"))
    found = gradients(graph, names, device="vulkan", **options)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("space", ["plane", pytest.param("space", marks=pytest.mark.nightly)])
def test_curvature_of_a_robust_kernel(space, monkeypatch):
    """Poses, some components held, Cauchy's weights; in space their working form is not the stored one."""
    graph = pose_graph(12) if space == "plane" else graphopt.datasets.sphere(nodes_per_level=4, laps=3)
    poses, edges = graph.vertex_sets[0], graph.edge_sets[0]
    poses.fixed[0] = True
    cauchy = next(kernel.number for kernel in KERNELS if kernel.name == "Cauchy")
    edges.kernel[...], edges.kernel_width[...] = cauchy, 0.7
    graph.hold(poses.ids[3], [0, 2])
    names = [f"{edges.type.tag}.{column}" for column in ("measurement", "kernel_width")]
    expected = gradients(graph, names, device="cpu")
    monkeypatch.setattr(HostEquations, "linearize", lambda self: pytest.fail("on the host"))
    found = gradients(graph, names, device="vulkan", schedule={edges.type.tag: "blocks+gather"})
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())


def test_an_optimization_after_a_gradient(graph):
    """H is J' w Omega J again."""
    options = {"device": "vulkan", "schedule": "blocks", "method": "lm", "max_iterations": 3}
    start = [rows.estimate.copy() for rows in graph.vertex_sets]
    expected = graphopt.optimize(graph, **options)
    for rows, estimate in zip(graph.vertex_sets, start, strict=True):
        rows.estimate = estimate
    solve = {**options, "max_iterations": 20}
    gradients(graph, [f"{graph.edge_sets[0].type.tag}.measurement"], **solve)
    found = graphopt.optimize(graph, **options)
    assert [one.chi2 for one in found.iterations] == [one.chi2 for one in expected.iterations]


def test_a_singular_hessian_is_refused_by_name(graph):
    """Found on the device, explained by the CPU."""
    graph.vertex_sets[0].fixed[:] = False
    name = f"{graph.edge_sets[0].type.tag}.measurement"
    with pytest.raises(GradientError, match="The Hessian is singular"):
        gradients(graph, [name], device="vulkan", schedule="blocks", fix="none")


@pytest.mark.parametrize("linear_solver", ["cholesky", "auto"])
@pytest.mark.parametrize("name", ["many poses", "few poses", "cameras", "many cameras"])
def test_another_right_hand_side(name, linear_solver):
    """With the factor of the last solve, of H or of S, with a border or without, on the device or the CPU."""
    graph = {
        "many poses": lambda: graphopt.datasets.sphere(nodes_per_level=8, laps=12),
        "few poses": lambda: graphopt.datasets.sphere(nodes_per_level=8, laps=4),
        "cameras": lambda: graphopt.datasets.ba(cameras=6, points=40),
        "many cameras": lambda: graphopt.datasets.ba(cameras=80, points=300),
    }[name]()
    selection, _ = fix_gauge(graph, graph.select(0), "auto")
    options = SolverOptions(device="vulkan", linear_solver=linear_solver, schedule="blocks")
    solver = create(graph, Structure(selection), options, device=shared_device(None))
    solver.linearize()
    assert solver.solve(0.5)
    first = solver.dx.copy()
    rng = np.random.default_rng(0)
    for right in (rng.standard_normal(solver.dim), solver.b.copy(), 1e6 * rng.standard_normal(solver.dim)):
        found = solver.solve_again(right)
        rest = right - solver.multiply(found) - 0.5 * found
        assert np.abs(rest).max() < 1e-12 * np.abs(solver.diagonal * found).max()
    np.testing.assert_allclose(
        solver.solve_again(solver.b), first, rtol=1e-9, atol=1e-12 * np.abs(first).max()
    )
