"""Before an optimization with bounds: what cannot be is refused, a start outside is moved in."""

from __future__ import annotations

import numpy as np

from graphopt.errors import GraphError, OptionError
from graphopt.graph import Graph, Selection
from graphopt.graph.bounds import cannot_move, outside_bounds, some_ids, wrong_bounds
from graphopt.linear.options import SolverOptions


def start_within_bounds(selection: Selection) -> str:
    """Move estimates into their bounds; returns a sentence about those that were outside.

    Raises `GraphError` for bounds that are NaN or crossed, and for a number outside them that cannot move.
    """
    sentences = []
    for vertex_set, active, fixed in zip(
        selection.vertex_sets, selection.active, selection.fixed, strict=True
    ):
        wrong = wrong_bounds(vertex_set)
        if wrong is not None:
            raise GraphError(wrong)
        outside = outside_bounds(vertex_set) & active[:, None]
        if not outside.any():
            continue
        stuck = np.argwhere(outside & cannot_move(vertex_set, fixed))
        if len(stuck):
            row, place = stuck[0]
            raise GraphError(
                f"{vertex_set.type.tag} {int(vertex_set.ids[row])} is fixed in component {int(place)} at "
                f"{vertex_set.look('estimate')[row, place]:.9g}, outside its bounds "
                f"{vertex_set.look('lower')[row, place]:.9g} to {vertex_set.look('upper')[row, place]:.9g}. "
                "Free it, or give it other bounds."
            )
        rows = np.flatnonzero(outside.any(axis=1))
        vertex_set.estimate[rows] = np.clip(
            vertex_set.look("estimate")[rows], vertex_set.look("lower")[rows], vertex_set.look("upper")[rows]
        )
        sentences.append(
            f"{int(outside.sum())} components of {vertex_set.type.tag} started outside their bounds and were "
            f"moved onto them: vertices {some_ids(vertex_set.ids[rows])}."
        )
    return " ".join(sentences)


def has_bounds(graph: Graph) -> bool:
    """Some vertex has a bound."""
    return any(vertex_set.has_bounds for vertex_set in graph.vertex_sets)


def refuse_materialized(graph: Graph, options: SolverOptions) -> None:
    """`OptionError` where values that follow from bounded vertices were to be kept in arrays."""
    if options.computed == "materialize" and has_bounds(graph):
        raise OptionError("computed='materialize' does not keep to bounds (Graph.set_bounds): use 'inline'.")
