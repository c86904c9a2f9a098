"""Whether computed values are put into the edges that name them, or kept in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear.options import SolverOptions
from graphopt.linear.table import factorizes, iterates
from graphopt.types.base import EdgeType
from graphopt.types.computed import ComputedVertexType

MANY_EDGES = 50_000
"""That name values, from which on these are kept on a device."""
MAX_BLOCK_DIM = 15
"""Of vertices and values that a device keeps."""
FEW_VERTICES = 16
"""Of an inlined edge, up to which "auto" inlines: each pair of them is a block of H."""


def check_computed(graph: Any, options: SolverOptions) -> None:
    """`OptionError` where a way is asked for and there are no computed values."""
    if options.computed != "auto" and isinstance(graph, Graph) and not graph.has_computed():
        raise OptionError(f"computed is '{options.computed}', but the graph has no computed values.")


def materializes(graph: Graph, selection: Selection, options: SolverOptions) -> bool:
    """Values and derivatives are kept in arrays; otherwise the functions stand inside those of edges."""
    if options.computed != "auto":
        return options.computed == "materialize"
    return not is_small(graph, selection) or pays_on_device(selection, options)


def pays_on_device(selection: Selection, options: SolverOptions) -> bool:
    """Whether values are kept on a Vulkan device although inlining is possible.

    Conjugate gradients multiply by the chain rule there: of images with `MANY_EDGES` that takes a quarter of
    the time of inlined edges, of fewer a factorization is as fast. Poses hang
    together in chains, where conjugate gradients are slow: only for who asks for them.
    """
    if options.device.partition(":")[0] != "vulkan" or options.configuration is not None:
        return False
    if factorizes(options.linear_solver) or options.schur not in ("auto", "off"):
        return False
    if any(vertex_set.holds_components for vertex_set in selection.vertex_sets):
        return False
    if any(vertex_set.type.tangent_dim > MAX_BLOCK_DIM for vertex_set in selection.vertex_sets):
        return False
    has_poses = any(vertex_set.type.pose is not None for vertex_set in selection.vertex_sets)
    names = [len(edge.rows) for edge in selection.edges if _names_values(edge.edge_set.type)]
    return (iterates(options.linear_solver) or not has_poses) and sum(names) >= MANY_EDGES


def _names_values(kind: EdgeType) -> bool:
    return any(isinstance(vertex, ComputedVertexType) for vertex in kind.vertices)


def is_small(graph: Graph, selection: Selection) -> bool:
    """Whether edges have few vertices when their values are inlined."""
    if graph.convolutions:
        return False
    slots: dict[Any, int] = {}
    for edge_set in graph.definitions():
        kind = edge_set.type.vertices[0]
        most = int(np.unique(edge_set.look("vertices")[:, 0], return_counts=True)[1].max())
        inputs = sum(slots.get(vertex, 1) for vertex in edge_set.type.vertices[1:])
        slots[kind] = slots.get(kind, 0) + most * inputs
    most_of_edges = (
        sum(slots.get(vertex, 1) for vertex in edges.edge_set.type.vertices) for edges in selection.edges
    )
    return max(most_of_edges, default=0) <= FEW_VERTICES
