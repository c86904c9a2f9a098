"""Edges that a function of arrays evaluates, beside edges in compute kernels."""

import numpy as np
import pytest
import vulkan_devices  # noqa: F401  (how llvmpipe runs)

import graphopt
from graphopt.types import registry
from graphopt.types.outside import outside_edge_type


@pytest.fixture(scope="module")
def kind():
    made = outside_edge_type(
        lambda points, measured: points - measured,
        lambda points, measured: (points - measured, [np.tile(np.eye(2), (len(points), 1, 1))]),
        tag="EDGE_TEST_VULKAN_OUTSIDE",
        vertices=["VERTEX_XY"],
        residual_dim=2,
        measurement_dim=2,
    )
    yield made
    registry.unregister(made)


@pytest.mark.parametrize("method", ["lm", "gn", "auto"])
def test_the_optimum_of_compiled_edges(kind, method):
    """On the device and on the CPU, of outside edges and of their compiled twins."""
    rng = np.random.default_rng(0)
    truth, measured = rng.uniform(0, 9, (30, 2)), rng.standard_normal((29, 2))
    ends = []
    for prior, device in (("EDGE_PRIOR_XY", "cpu"), (kind, "cpu"), (kind, "vulkan")):
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_XY", range(30), truth)
        graph.add_edges("EDGE_POINTXY", [(i, i + 1) for i in range(29)], measured)
        graph.add_edges(prior, [[0], [12], [29]], truth[[0, 12, 29]], 5.0 * np.eye(2), kernel="Cauchy")
        summary = graphopt.optimize(
            graph, method, device=device, precision="double" if device != "cpu" else "auto"
        )
        assert summary.device.startswith(device)
        ends.append((summary.final_chi2, graph.vertex_sets[0].estimate.copy()))
    for chi2, estimate in ends[1:]:
        assert chi2 == pytest.approx(ends[0][0], rel=1e-9)
        np.testing.assert_allclose(estimate, ends[0][1], atol=1e-5)
