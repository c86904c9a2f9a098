"""Edges of fisheye cameras take points at and beyond 90 degrees, on the CPU and in generated kernels."""

import numpy as np
import pytest

import graphopt
from graphopt.geometry import CAMERA_MODELS
from graphopt.io.extra_types import CAMERA_VERTEX, PROJECTION_EDGE
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver

INTRINSICS = np.array([300.0, 301.0, 320.0, 240.0, -0.02, 0.01, -3e-3, 4e-4])


def wide_graph(seed=0, num_points=60):
    """Three cameras in the middle of points on all sides up to 115 degrees, and some on the axis."""
    rng = np.random.default_rng(seed)
    angle = np.deg2rad(np.concatenate([rng.uniform(0.0, 115.0, num_points - 4), [0.0, 1e-4, 90.0, 1e-3]]))
    around = rng.uniform(0.0, 2.0 * np.pi, num_points)
    directions = np.stack(
        [np.sin(angle) * np.cos(around), np.sin(angle) * np.sin(around), np.cos(angle)], axis=1
    )
    points = 5.0 * directions
    places = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, -0.2], [-0.2, 0.3, 0.1]])
    model = "OPENCV_FISHEYE"
    graph = graphopt.Graph()
    poses = np.concatenate([places, np.tile([0.0, 0.0, 0.0, 1.0], (3, 1))], axis=1)
    graph.add_vertices("VERTEX_SE3:EXPMAP", [0, 1, 2], poses)
    graph.add_vertices("VERTEX_XYZ", 10 + np.arange(num_points), points, marginalized=True)
    graph.add_vertices(CAMERA_VERTEX[model], [5], [INTRINSICS])
    cameras, seen = np.divmod(np.arange(3 * num_points), num_points)
    pixels = CAMERA_MODELS[model].project(INTRINSICS, points[seen] + places[cameras])
    pixels += 0.5 * rng.normal(size=pixels.shape)
    edges = np.stack([cameras, 10 + seen, np.full(len(seen), 5)], axis=1)
    graph.add_edges(PROJECTION_EDGE[model], edges, pixels)
    graph.set_fixed([0, 1])
    return graph


def test_jacobians_are_derivatives_everywhere():
    """By differences: on the axis, near it, at and beyond 90 degrees."""
    report = graphopt.check_gradients(wide_graph(), max_edges=1000)
    assert report.is_right, str(report)


def test_it_is_optimized_to_the_noise():
    """Points at all angles come back from displaced starts."""
    graph = wide_graph()
    points = graph.vertex_set("VERTEX_XYZ").estimate
    points += 0.05 * np.random.default_rng(1).normal(size=points.shape)
    summary = graphopt.optimize(graph, device="cpu")
    assert summary.final_chi2 < 0.25 * graph.edge_sets[0].measurement.size


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_generated_kernels_agree_with_the_cpu(precision):
    """chi2 and b, also in mixed precision."""
    graph = wide_graph()
    chi2, sides = [], []
    for device in ("cpu", "vulkan"):
        options = SolverOptions(device=device, precision=precision if device == "vulkan" else "auto")
        solver = create_block_solver(graph, Structure(graph.select()), options)
        chi2.append(solver.linearize())
        sides.append(np.array(solver.b))
    tolerance = 1e-10 if precision == "double" else 1e-4
    assert chi2[1] == pytest.approx(chi2[0], rel=tolerance)
    np.testing.assert_allclose(sides[1], sides[0], rtol=tolerance, atol=tolerance * np.abs(sides[0]).max())
