"""A solve on a device has the gradients of the same solve on the CPU."""

import numpy as np
import pytest
import torch
import vulkan_devices  # noqa: F401  (how llvmpipe runs)

import graphopt
import graphopt.torch


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_gradients(precision):
    """Refined in double wherever it was solved."""
    graph = graphopt.datasets.ba(cameras=6, points=40)
    cameras = graph.vertex_sets[0]
    cameras.fixed[:2] = True
    name = f"{graph.edge_sets[0].type.tag}.measurement"
    found = []
    for options in ({"device": "cpu"}, {"device": "vulkan", "precision": precision}):
        measurement = torch.tensor(graph.edge_sets[0].measurement.copy(), requires_grad=True)
        solution = graphopt.torch.solve(graph, {name: measurement}, **options)
        assert solution.summary.device.startswith(options["device"])
        sum((estimate**2).sum() for estimate in solution.estimates.values()).backward()
        found.append(measurement.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-6 * np.abs(found[0]).max())
