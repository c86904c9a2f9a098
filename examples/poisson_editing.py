"""Poisson image editing (Perez et al., SIGGRAPH 2003): paste a part of a picture without a seam.

    E = sum over neighbours (i, j) with a pixel in the mask:  |(x_i - x_j) - (s_i - s_j)|^2

x: the colours sought, those of the target outside of the mask; s: the source. It is linear: one iteration.

Run: python examples/poisson_editing.py [--data TARGET.png SOURCE.png MASK.png] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import images
import numpy as np

import graphopt


@graphopt.vertex_type(tag="VERTEX_COLOR", tangent_dim=3)
def VertexColor(color, delta):
    """Red, green, blue of a pixel."""
    return color + delta


@graphopt.edge_type(tag="EDGE_GRADIENT", vertices=("VERTEX_COLOR", "VERTEX_COLOR"), measurement_dim=3)
def EdgeGradient(first, second, wanted):
    """Difference of two neighbours - that of the source."""
    return first - second - wanted


def paste(target: np.ndarray, source: np.ndarray, mask: np.ndarray, **options):
    """Target (rows, columns, 3) with the source where `mask` (rows, columns) is true; and the summary."""
    pairs = images.neighbours(mask.shape)
    inside, colors, wanted = mask.ravel(), target.reshape(-1, 3), source.reshape(-1, 3)
    pairs = pairs[inside[pairs].any(axis=1)]
    ids = np.unique(pairs)
    graph = graphopt.Graph()
    graph.add_vertices(VertexColor, ids, colors[ids], fixed=~inside[ids])
    graph.add_edges(EdgeGradient, pairs, wanted[pairs[:, 0]] - wanted[pairs[:, 1]])
    summary = graphopt.optimize(graph, "gn", 1, **options)
    result = colors.copy()
    result[ids] = graph.vertex_set(VertexColor).estimate
    return result.reshape(target.shape), summary
