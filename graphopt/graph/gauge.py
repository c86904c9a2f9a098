"""Gauge freedom and the vertex that fixes it, as g2o decides them.

A graph of relative measurements can be moved as a whole without changing chi2. g2o's rules:

* there is gauge freedom unless a vertex of the largest tangent dimension is fixed or has a unary edge whose
  residual has that dimension (`SparseOptimizer::gaugeFreedom`);
* the vertex to fix is the first one of the largest tangent dimension in the iteration order of
  `std::unordered_map<int, Vertex*>` (`SparseOptimizer::findGauge`).

That order is a property of libstdc++'s hash table (`native/src/graph/gauge.h`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphopt._native import iteration_order

if TYPE_CHECKING:
    from graphopt.graph.store import GraphStore


def gauge_vertex(ids: np.ndarray, tangent_dims: np.ndarray) -> int | None:
    """Position in `ids` of the vertex that g2o's `findGauge` returns; None for an empty graph."""
    if not len(ids):
        return None
    order = iteration_order(np.asarray(ids, np.int64))
    largest = tangent_dims[order] == tangent_dims.max()
    return int(order[np.argmax(largest)])


def gauge_freedom(graph: GraphStore) -> bool:
    """True if nothing fixes the graph as a whole, by g2o's rule."""
    occupied = [vertex_set for vertex_set in graph.vertex_sets if len(vertex_set)]
    if not occupied:
        return False
    largest = max(vertices.type.tangent_dim for vertices in occupied)
    if any(vertices.type.tangent_dim == largest and vertices.fixed.any() for vertices in occupied):
        return False
    return not any(
        edge_set.arity == 1
        and len(edge_set)
        and edge_set.type.residual_dim == largest
        and edge_set.type.vertices[0].tangent_dim == largest
        for edge_set in graph.edge_sets
    )
