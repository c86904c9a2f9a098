"""Graphs with a unique optimum, of every edge type, and central differences of a whole solve."""

from __future__ import annotations

from functools import cache

import numpy as np
from builtin_edges import graph_of

import graphopt
from graphopt.derivatives import OptimumProblem
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType, unwrapped
from graphopt.types.files import measurement_then_information, plain
from graphopt.types.robust_kernels import KERNELS

_CHI2 = 0.01


@cache
def prior(vertex: VertexType) -> EdgeType:
    """The difference of the stored numbers: holds any vertex."""
    dim = vertex.storage_dim
    return EdgeType(
        f"Prior{vertex.name}",
        f"TEST_PRIOR_{vertex.tag}",
        (vertex,),
        (),
        dim,
        dim,
        lambda value, measured: getattr(value, "storage", value) - measured,
        None,
        unwrapped,
        measurement_then_information(plain(dim), dim),
    )


def held_graph(kind: EdgeType, kernel: int, seed: int = 3) -> graphopt.Graph:
    """Three edges with chi2 about 0.01 among stronger priors: a unique optimum; one vertex is fixed.

    Their robust kernels' widths are where the kernels bend.
    """
    graph = graph_of(kind, np.random.default_rng(seed))
    edges = graph.edge_sets[0]
    for vertex_set in list(graph.vertex_sets):
        dim = vertex_set.type.storage_dim
        graph.add_edges(
            prior(vertex_set.type), vertex_set.ids[:, None], vertex_set.estimate.copy(), 30 * np.eye(dim)
        )
    graph.set_fixed([int(graph.vertex_sets[0].ids[0])])
    edges.information = _CHI2 * edges.information / edges.chi2(robust=False)[:, None, None]
    edges.kernel = kernel
    is_squared = KERNELS[kernel].name not in ("GemanMcClure", "DCS")
    edges.kernel_width = np.array([1.3, 0.8, 1.7]) * (np.sqrt(_CHI2) if is_squared else _CHI2)
    return graph


def inputs_of(graph: graphopt.Graph, kind: EdgeType | VariadicEdgeType) -> list[str]:
    """Names of everything that the optimum is a function of."""
    edges = graph.edge_sets[0]
    tag = f"{edges.type.tag}/{edges.arity}"
    return [
        *(f"{tag}.{column}" for column in ("measurement", "information", "kernel_width")),
        *(f"{vertex_set.type.tag}.estimate" for vertex_set in graph.vertex_sets),
        *(f"{parameter_set.type.tag}.values" for parameter_set in graph.parameter_sets),
    ]


def directions(problem: OptimumProblem, rng: np.random.Generator) -> list[np.ndarray]:
    """A direction of every input: symmetric of information, of fixed vertices only."""
    found = []
    for one in problem.inputs:
        step = rng.standard_normal(one.shape)
        if one.column == "information":
            step = 0.1 * one.rows.look("information") * (step + step.transpose(0, 2, 1))
        if one.column == "estimate":
            step[~one.rows.look("fixed")] = 0.0
        found.append(step)
    return found


def difference(
    problem: OptimumProblem,
    values: list[np.ndarray],
    steps: list[np.ndarray],
    cotangents: list[np.ndarray],
    h: float = 2e-4,
) -> float:
    """Derivative of sum(cotangent * estimate) along `steps`, from four whole solves."""

    def loss(scale: float) -> float:
        moved = [value + scale * step for value, step in zip(values, steps, strict=True)]
        estimates = problem.solve(moved).estimates
        return sum(float((c * e).sum()) for c, e in zip(cotangents, estimates, strict=True))

    return (8.0 * (loss(h) - loss(-h)) - (loss(2.0 * h) - loss(-2.0 * h))) / (12.0 * h)
