"""Which way an optimization goes with computed values, and the one that inlines them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear.table import factorizes, iterates
from graphopt.optimizer.summary import Summary
from graphopt.option_names import COMPUTED
from graphopt.problem.held import brought_up_to_date
from graphopt.problem.inline import inlined
from graphopt.types.base import EdgeType
from graphopt.types.computed import ComputedVertexType

MANY_EDGES = 50_000
"""That name values, from which on these are kept on a device."""
MAX_BLOCK_DIM = 15
"""Of vertices and values that a device keeps."""
FEW_VERTICES = 16
"""Of an inlined edge, up to which "auto" inlines: each pair of them is a block of H."""


def inlining_values(function: Callable[..., Summary]) -> Callable[..., Summary]:
    """Let `optimize` see a graph without computed values, where these are to be inlined."""
    signature = inspect.signature(function)

    @wraps(function)
    def optimize(graph: Graph, *arguments: Any, **named: Any) -> Summary:
        way = named.get("computed", "auto")
        if way not in COMPUTED:
            raise OptionError(f"computed is '{way}', expected one of {', '.join(COMPUTED)}.")
        if not isinstance(graph, Graph) or not graph.has_computed():  # another rank has it
            if way != "auto":
                raise OptionError(f"computed is '{way}', but the graph has no computed values.")
            return function(graph, *arguments, **named)
        given = signature.bind(graph, *arguments, **named).arguments
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        graph.compute()
        selection = graph.select(given.get("level", 0), given.get("vertices"), given.get("edges"))
        if way == "auto":
            few = is_small(graph, selection) and not pays_on_device(graph, selection, given)
            way = "inline" if few else "materialize"
        if way == "materialize":
            return function(**given)
        other, chosen = inlined(graph, selection)
        edges = {edge.edge_set: edge.rows for edge in chosen.edges} if chosen.chosen_by_edges else None
        callback = brought_up_to_date(graph.compute, given.get("callback"))
        changed = {"graph": other, "level": -1, "vertices": None, "edges": edges, "computed": "auto"}
        try:
            return function(**{**given, **changed, "callback": callback})
        finally:
            graph.compute()

    return optimize


def pays_on_device(graph: Graph, selection: Selection, given: Mapping[str, Any]) -> bool:
    """Whether values are kept on a Vulkan device although inlining is possible; given: options of the call.

    Conjugate gradients multiply by the chain rule there: of images with `MANY_EDGES` that takes a quarter of
    the time of inlined edges, of fewer a factorization is as fast. Poses hang
    together in chains, where conjugate gradients are slow: only for who asks for them.
    """
    if str(given.get("device", "auto")).partition(":")[0] != "vulkan" or given.get("configuration"):
        return False
    solver, schur = given.get("linear_solver", "auto"), given.get("schur", "auto")
    if factorizes(solver) or schur not in ("auto", "off"):
        return False
    if any(vertex_set.holds_components for vertex_set in selection.vertex_sets):
        return False
    if any(vertex_set.type.tangent_dim > MAX_BLOCK_DIM for vertex_set in selection.vertex_sets):
        return False
    has_poses = any(vertex_set.type.pose is not None for vertex_set in selection.vertex_sets)
    names = [len(edge.rows) for edge in selection.edges if _names_values(edge.edge_set.type)]
    return (iterates(solver) or not has_poses) and sum(names) >= MANY_EDGES


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
