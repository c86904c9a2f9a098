"""`graphopt.jax.solve`: eager, compiled, mapped, against central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphopt.jax
from graphopt.errors import GradientError, ShapeError

EDGE = "EDGE_SE2"


@pytest.fixture(autouse=True)
def double():
    """float64 for these tests only."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def loss_of(graph):
    def loss(measurement, logarithms):
        inputs = {
            f"{EDGE}.measurement": measurement,
            f"{EDGE}.information": jnp.diag(jnp.exp(logarithms)),
        }
        return (graphopt.jax.solve(graph, inputs)["VERTEX_SE2"] ** 2).sum()

    return loss


def test_gradient(pose_graph):
    """Eager and compiled are equal, and right."""
    loss = loss_of(pose_graph)
    at = jnp.asarray(pose_graph.edge_set(EDGE).measurement), jnp.zeros(3)
    eager, compiled = jax.grad(loss, (0, 1))(*at), jax.jit(jax.grad(loss, (0, 1)))(*at)
    rng = np.random.default_rng(1)
    steps = [rng.standard_normal(x.shape) for x in at]
    h = 1e-5
    plus, minus = (loss(*(x + s * h * d for x, d in zip(at, steps, strict=True))) for s in (1, -1))
    for found in (eager, compiled):
        total = sum(float((g * d).sum()) for g, d in zip(found, steps, strict=True))
        assert total == pytest.approx(float(plus - minus) / (2 * h), rel=1e-6)


def test_vmap(pose_graph):
    """One after the other."""
    loss = loss_of(pose_graph)
    measurement = jnp.asarray(pose_graph.edge_set(EDGE).measurement)
    scales = jnp.array([1.0, 1.1])
    mapped = jax.vmap(lambda scale: loss(measurement * scale, jnp.zeros(3)))(scales)
    single = [loss(measurement * scale, jnp.zeros(3)) for scale in scales]
    np.testing.assert_allclose(mapped, single, rtol=1e-12)


def test_complex_numbers_are_refused(pose_graph):
    """Their imaginary part would be lost."""
    measurement = jnp.asarray(pose_graph.edge_set(EDGE).measurement) + 0j
    with pytest.raises(ShapeError, match="complex128"):
        graphopt.jax.solve(pose_graph, {f"{EDGE}.measurement": measurement})


def test_a_singular_hessian_is_refused(pose_graph):
    """With the names of vertices, as in torch."""

    def loss(measurement):
        inputs = {f"{EDGE}.measurement": measurement}
        return graphopt.jax.solve(pose_graph, inputs, fix="none")["VERTEX_SE2"].sum()

    with pytest.raises(GradientError, match="3 directions move vertex"):
        jax.grad(loss)(jnp.asarray(pose_graph.edge_set(EDGE).measurement))
