"""Points that are not where their cameras see, found natively.

What an edge type says about that (`EdgeType.sees`) is compiled like a residual, which is 0 where the camera
sees the point and 1 elsewhere, and evaluated by all threads. Where it cannot be compiled, numpy evaluates it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.cpu_kernels import kernels
from graphopt.errors import SymbolicError
from graphopt.graph import Graph
from graphopt.graph.behind import edges_behind
from graphopt.graph.selection import EdgeSelection
from graphopt.types.cache import per_type_cache

FEW = 1000
"""Edges of a type that numpy evaluates in less time than a program takes to be made."""


def points_unseen(graph: Graph, parts: Iterable[EdgeSelection]) -> dict[str, list[int]]:
    """As `graph.behind.points_behind`: tag of the edge set -> rows of the edges whose point is not seen."""
    found: dict[str, list[int]] = {}
    for part in parts:
        rows = edges_unseen(graph, part).tolist()
        if rows:
            found.setdefault(part.edge_set.type.tag, []).extend(rows)
    return found


def edges_unseen(graph: Graph, part: EdgeSelection) -> np.ndarray:
    """As `graph.behind.edges_behind`: rows (k,) of the edges that no camera sees."""
    kind, count = part.edge_set.type, len(part.rows)
    program = None if kind.sees is None or count < FEW else blindness(kind)
    if program is None:
        return edges_behind(graph, part)
    measured = np.ascontiguousarray(part.edge_set.look("measurement"))
    is_unseen = kernels.sum_chi2(
        program.native,
        None,
        [np.ascontiguousarray(graph.vertex_sets[number].estimate) for number in part.vertex_sets],
        part.vertex_rows,
        [np.ascontiguousarray(graph.parameter_sets[number].values) for number in part.parameter_sets],
        part.parameter_rows,
        [image for image in [(measured, list(range(measured.shape[1])))] if image[1]],
        None if part.takes_all else part.rows,
        np.arange(count, dtype=np.uint32),
        np.arange(count + 1, dtype=np.uint32),
    )
    return part.rows[is_unseen != 0.0]


@per_type_cache
def blindness(kind: Any) -> codegen.Program | None:
    """The program of 0 where an edge's camera sees its point, else 1; None: numpy has to say so."""
    assert kind.sees is not None

    def residual(*arguments: Any) -> Any:
        return np.stack([np.where(kind.sees(*arguments), 0.0, 1.0)], axis=-1)

    blind = replace(
        kind,
        name=f"{kind.name}.sees",
        residual=residual,
        residual_dim=1,
        jacobian=None,
        working_jacobian=None,
    )
    try:
        return codegen.compile_errors(blind)
    except SymbolicError:
        return None
