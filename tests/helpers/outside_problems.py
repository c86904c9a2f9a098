"""Poses that see landmarks, by residuals that torch and jax compute."""

import jax.numpy as jnp
import numpy as np
import torch

import graphopt

CALLS = []


def torch_bearing(poses, points, measured):
    """Position of a point in the frame of a pose, minus the measured one."""
    CALLS.append(len(poses))
    step = points - poses[:, :2]
    c, s = torch.cos(poses[:, 2]), torch.sin(poses[:, 2])
    seen = torch.stack([c * step[:, 0] + s * step[:, 1], c * step[:, 1] - s * step[:, 0]], dim=1)
    return seen - measured


def jax_bearing(poses, points, measured):
    """Compute the same in jax."""
    step = points - poses[:, :2]
    c, s = jnp.cos(poses[:, 2]), jnp.sin(poses[:, 2])
    seen = jnp.stack([c * step[:, 0] + s * step[:, 1], c * step[:, 1] - s * step[:, 0]], axis=1)
    return seen - measured


def landmark_graph(kind):
    """Poses and points; the observations are `kind`, g2o's EDGE_SE2_XY or its twin; two are outliers."""
    rng = np.random.default_rng(2)
    graph = graphopt.Graph()
    poses = np.arange(8)[:, None] * [1.0, 0.2, 0.1]
    points = rng.uniform(-2, 9, (5, 2))
    graph.add_vertices(
        "VERTEX_SE2", range(8), poses + 0.05 * rng.standard_normal((8, 3)), fixed=np.arange(8) == 0
    )
    graph.add_vertices(
        "VERTEX_XY", range(10, 15), points + 0.2 * rng.standard_normal((5, 2)), marginalized=True
    )
    graph.add_edges("EDGE_SE2", [(i, i + 1) for i in range(7)], [1.0, 0.1, 0.1], np.diag([9.0, 9.0, 40.0]))
    pairs = [(i, 10 + k) for i in range(8) for k in range(5)]
    measured = []
    for i, k in pairs:
        x, y, angle = poses[i]
        d = points[k - 10] - [x, y]
        c, s = np.cos(angle), np.sin(angle)
        measured.append([c * d[0] + s * d[1], c * d[1] - s * d[0]] + 0.05 * rng.standard_normal(2))
    measured[3] += 4.0
    graph.add_edges(
        kind, pairs, measured, np.array([[20.0, 3.0], [3.0, 10.0]]), kernel="Huber", kernel_width=1.0
    )
    return graph
