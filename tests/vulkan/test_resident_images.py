"""The device-resident solver on edges that sample images, against the CPU: all schedules, other images."""

from __future__ import annotations

import numpy as np
import pytest
from device_solvers import close, on_cpu, resident
from image_edges import brightness_edge, photo_graph, smooth
from test_cost_model import H200

import graphopt
from graphopt.device import VulkanDevice
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict
from graphopt.vulkan.solver import create


def places(picture, other):
    """Places on two images where a brightness is looked for; their neighbours hold them together."""
    rng = np.random.default_rng(5)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", np.arange(30), rng.uniform(4, 15, (30, 2)))
    kind = brightness_edge("bicubic")
    graph.add_parameters(kind.parameters[0], [7, 8], [picture, other])
    graph.add_edges(
        kind, np.arange(30)[:, None], np.full((30, 1), 0.5), parameters=7 + np.arange(30)[:, None] % 2
    )
    graph.add_edges("EDGE_PRIOR_XY", np.arange(30)[:, None], rng.uniform(4, 15, (30, 2)), 0.1 * np.eye(2))
    return graph


@pytest.mark.parametrize(("linear_solver", "schedule"), [("cholesky", "blocks"), ("pcg", "matrix-free")])
def test_other_images_between_optimizations(linear_solver, schedule):
    """Changed pixels, larger and smaller images, and another image of the parameter, in the same solver."""
    picture, other = graphopt.Image(smooth(1)), graphopt.Image(smooth(2))
    graph, reference = (photo_graph(singles=(picture, other)) for _ in range(2))
    device = resident(graph, "address", linear_solver, "off", schedule, tolerance=1e-24)
    host = on_cpu(reference)

    def set_other(image):
        for graph_ in (graph, reference):
            graph_.set_image(4, image)

    def write_in_place():
        picture.pixels[2:9] *= -0.5

    changes = [
        lambda: None,
        lambda: setattr(picture, "pixels", 1.5 * smooth(1)),
        lambda: setattr(picture, "pixels", smooth(3, (40, 50))),
        write_in_place,
        lambda: set_other(graphopt.Image(smooth(6, (12, 60)))),
        lambda: setattr(picture, "pixels", smooth(4)),
    ]
    seen, vector = set(), np.random.default_rng(0).normal(size=host.dim)
    for change in changes:
        change()
        device.refresh()
        host.refresh()
        for _ in range(2):
            assert device.linearize() == pytest.approx(host.linearize(), rel=1e-10)
            close(device.multiply(vector), host.multiply(vector))
            actual, expected = device.trial(Damping(0.1)), host.trial(Damping(0.1))
            assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8)
            device.discard_top()  # so that versions, and what was recorded for them, are used again
            host.discard_top()
        seen.add(round(expected.chi2, 3))
        device.finish()
        host.finish()
    assert len(seen) == len(changes)


def test_an_image_that_is_gone_gives_a_sentence():
    """Its handle names no plane any more: the optimization ends as on the CPU."""
    summaries = []
    for device in ("cpu", "vulkan"):
        graph = places(graphopt.Image(smooth(1)), graphopt.Image(smooth(2)))
        graph.parameter_sets[0].values[1] = 65000.0
        summaries.append(optimize(graph, "lm", max_iterations=3, device=device))
    assert summaries[0].termination == summaries[1].termination
    assert "EDGE_TEST_BICUBIC" in summaries[1].message and summaries[0].message == summaries[1].message


def test_without_float64():
    """Pairs of float32: chi2 keeps more than float32's digits."""
    device = VulkanDevice(validation=True, masked_features=["float64"])
    pictures = graphopt.Image(smooth(1)), graphopt.Image(smooth(2))
    host = on_cpu(places(*pictures))
    expected = host.linearize()
    step = host.trial(Damping(0.1))
    for schedule in ("blocks", "matrix-free"):
        graph = places(*pictures)
        options = SolverOptions("vulkan", "pcg", "off", "mixed", schedule)
        solver = create(graph, Structure(graph.select()), options, device=device)
        assert solver.linearize() == pytest.approx(expected, rel=1e-10)
        assert solver.trial(Damping(0.1)).chi2 == pytest.approx(step.chi2, rel=1e-4)
    assert device.messages == []


def test_the_cost_model_counts_pixels():
    """Reads of pixels in every pass over the edges, and the images' memory."""
    pictures = graphopt.Image(smooth(1, (300, 200))), graphopt.Image(smooth(2))
    structure = Structure(places(*pictures).select())
    size = problem_size(structure, "double")
    assert size.image_bytes == 4 * (300 * 200 + 20 * 20)
    assert [group.pixel_words for group in size.groups] == [4, 0]
    for prediction in predict(size, H200, "double"):
        assert prediction.memory_bytes > size.image_bytes
