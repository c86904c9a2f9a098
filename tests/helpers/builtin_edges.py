"""Small graphs of every edge type that is built in."""

from __future__ import annotations

import numpy as np

import graphopt
from graphopt.io import extra_types
from graphopt.types import BUILTIN_TYPES, EdgeType, VariadicEdgeType

EDGES = [
    kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind
    for kind in (*BUILTIN_TYPES, *extra_types.ALL)
    if isinstance(kind, EdgeType | VariadicEdgeType)
]


def graph_of(kind: EdgeType, rng: np.random.Generator) -> graphopt.Graph:
    """Three edges of a type between vertices near their identity."""
    graph = graphopt.Graph()
    next_id = 0
    rows = []
    for _ in range(3):
        row = []
        for vertex in kind.vertices:
            estimate = np.array(vertex.identity) + 0.1 * rng.standard_normal(vertex.storage_dim)
            graph.add_vertices(vertex, [next_id], [tidy(estimate)])
            row.append(next_id)
            next_id += 1
        rows.append(row)
    parameters = []
    for k, parameter in enumerate(kind.parameters):
        values = np.array(parameter.identity) + 0.1 * rng.standard_normal(parameter.storage_dim)
        graph.add_parameters(parameter, [k], [tidy(values)])
        parameters.append(k)
    measurement = np.array([tidy(rng.uniform(0.5, 1.5, kind.measurement_dim)) for _ in range(3)])
    half = rng.standard_normal((3, kind.residual_dim, kind.residual_dim))
    information = half @ half.transpose(0, 2, 1) + np.eye(kind.residual_dim)
    graph.add_edges(kind, rows, measurement, information, parameters=[parameters] * 3 if parameters else None)
    return graph


def tidy(numbers: np.ndarray) -> np.ndarray:
    """Of unit length, where they are a pose, so that no reader changes them."""
    if len(numbers) >= 7:  # a pose, if it is one
        numbers = numbers.copy()
        numbers[3:7] /= np.linalg.norm(numbers[3:7])
    return numbers
