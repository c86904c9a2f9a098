"""Gauge freedom and the vertex that fixes it, as g2o decides them.

A graph of relative measurements can be moved as a whole without changing chi2. g2o's rules:

* there is gauge freedom unless a vertex of the largest tangent dimension is fixed or has a unary edge whose
  residual has that dimension (`SparseOptimizer::gaugeFreedom`);
* the vertex to fix is the first one of the largest tangent dimension in the iteration order of
  `std::unordered_map<int, Vertex*>` (`SparseOptimizer::findGauge`).

That order is a property of libstdc++'s hash table, so `iteration_order` replays it. The table is one linked
list. Inserting an id whose bucket is empty puts it at the list's front; else it goes before the first element
of its bucket. Growing to more buckets inserts the whole list again, in its order. So one stage maps the
sequence (list so far, then the new ids) to: buckets by last first-appearance first, and within a bucket the
last id first.
Bucket counts start at 13 and grow to the first entry of a table of primes that is at least twice as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from graphopt.graph.graph import Graph

# Bucket counts of std::unordered_map that grows one element at a time (libstdc++, load factor 1).
_BUCKET_COUNTS = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153,
    2938679, 5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418451333,
)  # fmt: skip


def iteration_order(ids: np.ndarray) -> np.ndarray:
    """Positions in `ids` (distinct, in order of insertion) in the order in which libstdc++ iterates them."""
    hashes = np.asarray(ids, np.int64).view(np.uint64)  # std::hash<int> is the identity, converted to size_t
    num_ids = len(hashes)
    order = np.empty(0, np.int64)
    inserted = 0
    for bucket_count in _BUCKET_COUNTS:
        last = min(bucket_count, num_ids)
        sequence = np.concatenate([order, np.arange(inserted, last)])
        buckets = (hashes[sequence] % np.uint64(bucket_count)).astype(np.int64)
        order = sequence[_insert_into_empty_table(buckets)]
        inserted = last
        if inserted == num_ids:
            break
    return order


def _insert_into_empty_table(buckets: np.ndarray) -> np.ndarray:
    """List order after inserting elements with these buckets one by one: indices into `buckets`."""
    position = np.arange(len(buckets))
    num_buckets = int(buckets.max()) + 1 if len(buckets) else 0
    first = np.empty(num_buckets, np.int64)
    first[buckets[::-1]] = position[::-1]  # the last assignment wins: the first appearance of each bucket
    return np.lexsort((-position, -first[buckets]))


def gauge_vertex(ids: np.ndarray, tangent_dims: np.ndarray) -> int | None:
    """Position in `ids` of the vertex that g2o's `findGauge` returns; None for an empty graph."""
    if not len(ids):
        return None
    order = iteration_order(ids)
    largest = tangent_dims[order] == tangent_dims.max()
    return int(order[np.argmax(largest)])


def gauge_freedom(graph: Graph) -> bool:
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
