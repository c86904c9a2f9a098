"""Robust kernels: weights are derivatives, names, numbers."""

import numpy as np
import pytest

from graphopt import Graph, optimize
from graphopt.errors import OptionError
from graphopt.types.robust_kernels import KERNELS, robust_kernel

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


@kernels
@pytest.mark.parametrize("width", [0.3, 1.0, 4.0])
def test_weight_is_the_derivative_of_rho(kernel, width):
    """Central differences of rho are the weight, away from the kinks at width and width^2."""
    chi2 = np.concatenate([np.linspace(0.1, 0.9, 30), np.linspace(1.1, 9.0, 60)])
    for unit in {width, width * width}:
        x, h = chi2 * unit, 1e-6 * unit
        near = np.minimum(np.abs(x - width), np.abs(x - width * width)) < 1e-3 * unit
        difference = (kernel.function(x + h, width)[0] - kernel.function(x - h, width)[0]) / (2 * h)
        np.testing.assert_allclose(difference[~near], kernel.function(x, width)[1][~near], atol=1e-8)


@kernels
def test_small_errors_are_not_robustified(kernel):
    """rho(0) = 0, weight(0) = 1, and rho is continuous across its switches."""
    rho, weight = kernel.function(np.zeros(3), 1.7)
    np.testing.assert_array_equal(rho, 0.0)
    np.testing.assert_array_equal(weight, 1.0)
    for switch in (1.7, 1.7**2):
        sides = kernel.function(np.array([switch * (1 - 1e-12), switch * (1 + 1e-12)]), 1.7)[0]
        np.testing.assert_allclose(sides[0], sides[1], rtol=1e-10)


def test_numbers_and_names():
    """Numbers are positions; names work in any case, with g2o's class prefix, and with underscores."""
    assert [kernel.number for kernel in KERNELS] == list(range(len(KERNELS)))
    for name in ("Huber", "huber", "RobustKernelHuber", "HUBER", 1):
        assert robust_kernel(name) is KERNELS[1]
    assert robust_kernel("geman_mcclure").name == "GemanMcClure"
    assert robust_kernel(None) is robust_kernel("none") is robust_kernel(0) is KERNELS[0]
    assert robust_kernel(KERNELS[3]) is KERNELS[3]


@pytest.mark.parametrize("name", ["Hubre", 99, -1])
def test_unknown_kernel_is_refused(name):
    """The error lists the known kernels."""
    with pytest.raises(OptionError, match=r"Huber \(1\)"):
        robust_kernel(name)


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda kernel: kernel.name)
def test_below_zero_a_kernel_leaves_chi2_as_it_is(kernel):
    """Of indefinite information: no logarithm, root or pole; no warning, at any size."""
    chi2, width = -np.array([1e-12, 0.3, 1.0, 2.25, 7.0, 1e5, 1e200]), np.float64(1.5)
    rho, weight = kernel.function(chi2, width)
    np.testing.assert_array_equal(rho, chi2)
    np.testing.assert_array_equal(weight, np.ones(len(chi2)))


def two_edges(kernel, *signs):
    """A chain of three poses; the information of each edge times its sign."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1, 2], [[0, 0, 0], [1, 0, 0], [2, 3, 0]])
    measured = [[1.2, 0, 0.1], [1, 0, 0.1]]
    information = [sign * np.diag([1.0, 4.0, 1.0]) for sign in signs]
    graph.add_edges("EDGE_SE2", [[0, 1], [1, 2]], measured, information, kernel=kernel, kernel_width=1.0)
    return graph


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda kernel: kernel.name)
def test_graphs_with_indefinite_information_have_a_chi2(kernel):
    """In numpy and in the compiled program: the sum of a robustified square and a negative one."""
    small, large = two_edges(None, 1, 0).chi2(), two_edges(None, 0, 1).chi2()
    expected = float(kernel.function(np.float64(small), np.float64(1.0))[0]) - large
    graph = two_edges(kernel.name, 1, -1)
    np.testing.assert_allclose(graph.chi2(), expected, rtol=1e-12)
    np.testing.assert_allclose(optimize(graph, "lm", 1).initial_chi2, expected, rtol=1e-12)
