"""Errors of all edges of a set, by the native interpreter."""

from __future__ import annotations

import numpy as np

from graphopt.codegen.edge import compile_errors
from graphopt.codegen.program import Program, sampled_runs
from graphopt.cpu_kernels import kernels
from graphopt.graph import Graph
from graphopt.graph.residuals import errors
from graphopt.graph.sets import EdgeSet
from graphopt.types.base import EdgeType, working_edge_type
from graphopt.types.cache import per_type_cache


def edge_errors(graph: Graph, edge_set: EdgeSet) -> np.ndarray:
    """Errors (n, residual_dim) of all edges of a set at the graph's estimates, by all threads."""
    program = _error_program(edge_set.type)
    if sampled_runs(program):  # images are no inputs of a program
        return errors(graph, edge_set, np.arange(len(edge_set)))
    vertex_sets, vertex_rows, parameter_sets, parameter_rows = graph.edge_places(edge_set, None)
    tables = []
    for number, vertex in zip(vertex_sets, edge_set.type.vertices, strict=True):
        estimate = graph.vertex_sets[number].estimate
        if vertex.working is not None:
            estimate = np.asarray(vertex.working.encode(estimate))
        tables.append(np.ascontiguousarray(estimate))
    measured = np.ascontiguousarray(edge_set.look("measurement"))
    return kernels.edge_outputs(
        program.native,
        tables,
        np.ascontiguousarray(vertex_rows),
        [np.ascontiguousarray(graph.parameter_sets[number].values) for number in parameter_sets],
        np.ascontiguousarray(parameter_rows),
        [(measured, list(range(measured.shape[1])))] if measured.shape[1] else [],
        None,
    )


@per_type_cache
def _error_program(kind: EdgeType) -> Program:
    return compile_errors(working_edge_type(kind))
