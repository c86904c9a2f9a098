"""Gradients of one graph on a device: who factorizes the exact Hessian."""

import numpy as np
import pytest
import torch
import vulkan_devices  # noqa: F401  (how llvmpipe runs)

import graphopt
import graphopt.torch
from graphopt.derivatives.equations import DeviceEquations

TAG = "EDGE_OBSERVATION_BAL"


@pytest.fixture
def bundle():
    """Five cameras, two of them fixed, that see thirty points."""
    rng = np.random.default_rng(4)
    kind = graphopt.types.registry.edge_type(TAG)
    points = rng.uniform(-2.0, 2.0, (30, 3))
    cameras = np.zeros((5, 9))
    cameras[:, :5] = 0.3 * rng.standard_normal((5, 5))
    cameras[:, 5:] = [-8.0, 500.0, -1e-2, 1e-3]
    pairs = np.stack([np.repeat(np.arange(5), 30), np.tile(np.arange(30), 5)], axis=1)
    seen = kind.error((cameras[pairs[:, 0]], points[pairs[:, 1]]), (), np.zeros((150, 2)))
    graph = graphopt.Graph()
    graph.add_vertices(kind.vertices[0], range(5), cameras, fixed=np.arange(5) < 2)
    graph.add_vertices(kind.vertices[1], range(10, 40), points, marginalized=True)
    graph.add_edges(kind, np.add(pairs, [0, 10]), seen + 0.5 * rng.standard_normal(seen.shape))
    return graph


def solved(graph, **options):
    """Measurements as an input, and the sum of squares of the optimum."""
    measurement = torch.tensor(graph.edge_set(TAG).measurement.copy(), requires_grad=True)
    found = graphopt.torch.solve(graph, {f"{TAG}.measurement": measurement}, look_behind=False, **options)
    return measurement, sum((estimate**2).sum() for estimate in found.estimates.values())


def gradient(graph, **options):
    measurement, loss = solved(graph, **options)
    loss.backward()
    return measurement.grad.numpy()


@pytest.fixture
def linear_solvers(monkeypatch):
    """What has solved with the exact Hessian on a device, call by call."""
    seen, solve = [], DeviceEquations._solve

    def noted(self, right):
        seen.append(self.solver.describe()["linear_solver"])
        return solve(self, right)

    monkeypatch.setattr(DeviceEquations, "_solve", noted)
    return seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schedule": "matrix-free"}, "cholesky"),
        ({"schedule": "blocks"}, "cholesky"),
        ({"linear_solver": "pcg"}, "pcg"),
    ],
)
def test_the_reduced_hessian_is_factored(bundle, linear_solvers, options, expected):
    """Unless conjugate gradients were asked for; the gradient is the CPU's."""
    found = gradient(bundle, device="vulkan", **options)
    assert set(linear_solvers) == {expected}
    exact = gradient(bundle, device="cpu")
    np.testing.assert_allclose(found, exact, atol=1e-6 * np.abs(exact).max())
