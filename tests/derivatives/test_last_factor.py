"""A backward pass right after its solve takes the factor of the last step, and no other one's."""

import numpy as np
import pytest
import torch
import vulkan_devices  # noqa: F401  (how llvmpipe runs)

import graphopt
import graphopt.jax
import graphopt.torch
from graphopt.derivatives.equations import ExactEquations
from graphopt.derivatives.problem import OptimumProblem
from graphopt.solver.reuse import forget

DEVICES = ["cpu", "vulkan"]


@pytest.fixture
def graph():
    """Six cameras, two of them fixed, with a robust kernel."""
    made = graphopt.datasets.ba(cameras=6, points=40)
    made.vertex_sets[0].fixed[:2] = True
    edges = made.edge_sets[0]
    edges.kernel[...], edges.kernel_width[...] = 3, 2.0
    return made


@pytest.fixture
def factorizations(monkeypatch):
    """Whether each was of a right-hand side of the backward pass."""
    seen, factorize = [], ExactEquations.factorize

    def noted(self, right, damp):
        seen.append(right is not None)
        return factorize(self, right, damp)

    monkeypatch.setattr(ExactEquations, "factorize", noted)
    return seen


def name(graph):
    return f"{graph.edge_sets[0].type.tag}.measurement"


def solved(graph, device, factor=1.0, **options):
    """Measurements as an input, and a function that returns their gradient."""
    measurement = torch.tensor(factor * graph.edge_sets[0].measurement, requires_grad=True)
    options = {"device": device, "schedule": "auto" if device == "cpu" else "blocks", **options}
    found = graphopt.torch.solve(graph, {name(graph): measurement}, look_behind=False, **options)
    loss = sum((estimate**2).sum() for estimate in found.estimates.values())

    def gradient():
        measurement.grad = None
        loss.backward(retain_graph=True)
        return measurement.grad.numpy()

    return gradient


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"singular": "damp"}], ids=str)
def test_it_is_the_gradient_of_another_factorization(graph, device, options, factorizations):
    """Called twice, too; the graph stays as it was."""
    gradient = solved(graph, device, 1.01, **options)
    before = [rows.estimate.copy() for rows in graph.vertex_sets]
    first, second = gradient(), gradient()
    assert not any(factorizations)
    np.testing.assert_allclose(second, first, atol=1e-9 * np.abs(first).max())
    for rows, estimate in zip(graph.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(rows.estimate, estimate)
    solved(graph, device, 1.02, **options)
    third = gradient()
    assert any(factorizations)
    np.testing.assert_allclose(third, first, atol=1e-8 * np.abs(first).max())


CHANGES = {
    "another optimization": lambda graph, device: graphopt.optimize(graph, device=device, max_iterations=1),
    "another information": lambda graph, device: graph.edge_sets[0].information.__imul__(1.01),
    "another width": lambda graph, device: graph.edge_sets[0].kernel_width.__setitem__(3, 2.1),
    "a forgotten graph": lambda graph, device: forget(graph),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", CHANGES)
def test_not_after_a_change(graph, device, change, factorizations, monkeypatch):
    """What has changed in the graph counts, as if nothing had been kept."""
    gradient = solved(graph, device)
    CHANGES[change](graph, device)
    found = gradient()
    assert any(factorizations)
    monkeypatch.setattr(OptimumProblem, "_last_equations", lambda self, values, estimates: None)
    np.testing.assert_array_equal(found, gradient())


@pytest.mark.parametrize("device", DEVICES)
def test_a_factor_of_another_matrix_is_noticed(graph, device, factorizations, monkeypatch):
    """Refinement that does not converge ends in a factorization."""
    gradient = solved(graph, device)
    again = ExactEquations._refined
    monkeypatch.setattr(ExactEquations, "_refined", lambda self, x, right: again(self, -x, right))
    monkeypatch.setattr("graphopt.derivatives.equations._REFINEMENTS", 0)
    gradient()
    assert any(factorizations)


def test_jax_has_it_too(graph, factorizations):
    """Its arrays come as others, of the same numbers."""
    jax = pytest.importorskip("jax")
    with graphopt.jax._double():
        inputs = jax.numpy.asarray(graph.edge_sets[0].measurement)

        def loss(measurement):
            found = graphopt.jax.solve(graph, {name(graph): measurement}, look_behind=False)
            return sum((estimate**2).sum() for estimate in found.values())

        found = jax.grad(loss)(inputs)
    assert not any(factorizations)
    expected = solved(graph, "cpu")()
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
