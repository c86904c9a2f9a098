"""Weighted sums over a grid: what scipy computes, and their transposes."""

import numpy as np
import pytest
import scipy.ndimage
from examples_modules import own_types

import graphopt
from graphopt.computed.materialized import MaterializedSolver
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.graph.convolution import MANY_TERMS
from graphopt.linear.options import SolverOptions

__all__ = ["own_types"]  # a fixture of this module
pytestmark = pytest.mark.usefixtures("own_types")
SHAPE = (9, 11)
MODES = {"zero": "constant", "clamp": "nearest", "wrap": "wrap", "mirror": "mirror"}


def made(boundary, varying=False, dim=1):
    """A graph with sums, their source and the weights."""
    Pixel, Sum = graphopt.group_type("CoPixel", dim), graphopt.sum_type("CoSum", dim)
    rng = np.random.default_rng(0)
    graph = graphopt.Graph()
    pixels = graph.add_grid(Pixel, SHAPE, estimates=rng.normal(size=(*SHAPE, dim)))
    weights = rng.normal(size=(3, 5))
    offsets = np.stack(np.meshgrid(np.arange(-1, 2), np.arange(-2, 3), indexing="ij"), axis=-1).reshape(-1, 2)
    if not varying:
        return graph, pixels, graph.add_convolution(Sum, pixels, weights, boundary=boundary), weights
    each = rng.normal(size=(15, *SHAPE))
    return graph, pixels, graph.add_convolution(Sum, pixels, each, offsets=offsets, boundary=boundary), each


@pytest.mark.parametrize("boundary", MODES)
@pytest.mark.parametrize("varying", [False, True])
def test_sums_are_scipys_and_have_their_transpose(boundary, varying):
    """<K x, u> = <x, K' u>, also with weights that vary."""
    graph, pixels, sums, weights = made(boundary, varying, dim=2)
    x, convolution = pixels.estimate, graph.convolutions[0]
    if not varying:
        expected = [scipy.ndimage.correlate(x[..., k], weights, mode=MODES[boundary]) for k in range(2)]
        np.testing.assert_allclose(sums.estimate, np.stack(expected, axis=-1), atol=1e-13)
    u = np.random.default_rng(1).normal(size=(99, 2))
    flat = x.reshape(99, 2)
    assert (convolution.apply(flat) * u).sum() == pytest.approx(
        (flat * convolution.apply_transposed(u)).sum(), rel=1e-12
    )


@pytest.mark.parametrize("boundary", MODES)
def test_many_terms_go_by_spectra(boundary):
    """Seventy-seven weights, not symmetric: scipy's sums, and their transpose."""
    Pixel, Sum = graphopt.group_type("CoMany", 2), graphopt.sum_type("CoManySum", 2)
    rng = np.random.default_rng(2)
    graph = graphopt.Graph()
    pixels = graph.add_grid(Pixel, (12, 13), estimates=rng.normal(size=(12, 13, 2)))
    weights = rng.normal(size=(7, 11))
    sums = graph.add_convolution(Sum, pixels, weights, boundary=boundary)
    convolution = graph.convolutions[0]
    assert len(convolution.offsets) >= MANY_TERMS
    expected = [
        scipy.ndimage.correlate(pixels.estimate[..., k], weights, mode=MODES[boundary]) for k in range(2)
    ]
    np.testing.assert_allclose(sums.estimate, np.stack(expected, axis=-1), atol=1e-12)
    x, u = rng.normal(size=(2, 156, 2))
    assert (convolution.apply(x) * u).sum() == pytest.approx(
        (x * convolution.apply_transposed(u)).sum(), rel=1e-11
    )
    fixed = np.arange(156) % 13 == 0
    near = scipy.ndimage.maximum_filter(fixed.reshape(12, 13), size=(7, 11), mode=MODES[boundary])
    np.testing.assert_array_equal(convolution.reaches(fixed), near.ravel())


@pytest.mark.parametrize("boundary", ["zero", "mirror"])
def test_equations_of_sums_are_those_of_a_dense_matrix(boundary):
    """H = K' W K + prior, b and a step; some pixels are fixed."""
    graph, pixels, sums, _ = made(boundary)
    pixels.fixed[2, 3:6] = True

    @graphopt.edge_type(vertices=(sums.type,), measurement_dim=1)
    def CoSquare(total, z):
        """Not linear in the sum."""
        return total**2 - z

    @graphopt.edge_type(vertices=(pixels.type,), measurement_dim=1)
    def CoPrior(x, z):
        """Of a pixel."""
        return x - z

    graph.add_stencil(CoSquare, sums, [(0, 0)], 0.7, information=3.0)
    graph.add_stencil(CoPrior, pixels, [(0, 0)], 0.1)
    convolution, x = graph.convolutions[0], pixels.estimate.reshape(-1, 1).copy()
    matrix = np.stack([convolution.apply(e[:, None])[:, 0] for e in np.eye(99)], axis=1)
    free = ~pixels.fixed.ravel()
    jacobian = (2.0 * (matrix @ x) * matrix)[:, free]
    H = 3.0 * jacobian.T @ jacobian + np.eye(free.sum())
    b = -3.0 * jacobian.T @ ((matrix @ x)[:, 0] ** 2 - 0.7) - (x[free, 0] - 0.1)
    options = SolverOptions(device="cpu", pcg_tolerance=1e-24, pcg_iterations=3000)
    solver = MaterializedSolver(graph, graph.select(), options)
    solver.linearize()
    np.testing.assert_allclose(solver.b, b, rtol=1e-10, atol=1e-10)
    if boundary == "zero":  # at a mirror a pixel is in a sum twice, which the preconditioner leaves out
        np.testing.assert_allclose(solver.diagonal, H.diagonal(), rtol=1e-10)
    assert solver.solve(0.5)
    np.testing.assert_allclose(solver.dx, np.linalg.solve(H + 0.5 * np.eye(len(H)), b), rtol=1e-7, atol=1e-9)


def test_what_cannot_be_is_refused():
    """Wrong types, shapes, boundaries, and ways that sums cannot go."""
    graph, pixels, sums, weights = made("zero")
    Sum = sums.type
    with pytest.raises(GraphError, match=r"graphopt.sum_type"):
        graph.add_convolution(pixels.type, pixels, weights)
    with pytest.raises(GraphError, match=r"x \+ d"):
        graph.add_convolution(graphopt.sum_type("CoThree", 3), pixels, weights)
    with pytest.raises(ShapeError, match=r"expected 2 axes"):
        graph.add_convolution(Sum, pixels, [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"offsets"):
        graph.add_convolution(Sum, pixels, [1.0], offsets=[[0.5, 0.0]])
    with pytest.raises(OptionError, match=r"boundary"):
        graph.add_convolution(Sum, pixels, weights, boundary="skip")
    with pytest.raises(ShapeError, match=r"further than the grid"):
        graph.add_convolution(Sum, pixels, np.ones((21, 1)), boundary="wrap")

    @graphopt.edge_type(vertices=(Sum,), measurement_dim=1)
    def CoEdge(total, z):
        return total - z

    graph.add_stencil(CoEdge, sums, [(0, 0)], 0.0)
    with pytest.raises(GraphError, match=r"materialize"):
        graphopt.optimize(graph, device="cpu", computed="inline")
    with pytest.raises(OptionError, match=r"pcg"):
        graphopt.optimize(graph, device="cpu", linear_solver="cholesky")
