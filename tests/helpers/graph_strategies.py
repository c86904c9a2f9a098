"""Graphs of built-in types for hypothesis: any ids, flags, levels, kernels, information matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from builtin_edges import EDGES, tidy
from hypothesis import strategies as st

import graphopt
from graphopt.option_names import ROBUST_KERNELS
from graphopt.types import EdgeType, VertexType

IDS = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def graphs(draw: Any, kinds: list[EdgeType] = EDGES, most_edges: int = 6) -> graphopt.Graph:
    """Vertices near their identity, edges of up to three types between them; some vertices have no edge."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique_by=lambda kind: kind.tag))
    most = _most_of_each(chosen)
    ids = draw(st.lists(IDS, min_size=3 * sum(most.values()), max_size=3 * sum(most.values()), unique=True))
    graph, of_type = graphopt.Graph(), dict[VertexType, list[int]]()
    for kind, count in most.items():
        own = of_type[kind] = ids[: draw(st.integers(count, 3 * count))]
        ids = ids[len(own) :]
        flags = {name: rng.random(len(own)) < 0.3 for name in ("fixed", "marginalized")}
        graph.add_vertices(kind, own, [near(kind.identity, rng) for _ in own], **flags)
    needed = dict.fromkeys(parameter for edge in chosen for parameter in edge.parameters)
    for number, kind in enumerate(needed):
        graph.add_parameters(kind, [2 * number, 2 * number + 1], [near(kind.identity, rng) for _ in range(2)])
    for kind in chosen:
        _add_edges(graph, kind, of_type, draw(st.integers(0, most_edges)), draw, rng)
    return graph


def near(identity: Any, rng: np.random.Generator) -> np.ndarray:
    """Numbers that no reader changes."""
    return tidy(np.array(identity) + 0.1 * rng.standard_normal(len(identity)))


def _most_of_each(kinds: list[EdgeType]) -> dict[VertexType, int]:
    """How many vertices of each type one edge has at most."""
    most = dict[VertexType, int]()
    for kind in kinds:
        for vertex in kind.vertices:
            most[vertex] = max(most.get(vertex, 0), kind.vertices.count(vertex))
    return most


def _add_edges(
    graph: graphopt.Graph,
    kind: EdgeType,
    of_type: dict[VertexType, list[int]],
    count: int,
    draw: Any,
    rng: np.random.Generator,
) -> None:
    ends = np.zeros((count, len(kind.vertices)), np.int64)
    for vertex, known in of_type.items():
        slots = [slot for slot, other in enumerate(kind.vertices) if other == vertex]
        for row in range(count if slots else 0):
            ends[row, slots] = rng.choice(np.array(known), len(slots), replace=False)
    dim = kind.residual_dim
    half = rng.standard_normal((count, dim, dim))
    information = {
        "identity": np.eye(dim),
        "diagonal": rng.uniform(0.5, 2.0, (count, 1, dim)) * np.eye(dim),
        "full": half @ half.transpose(0, 2, 1) + np.eye(dim),
    }[draw(st.sampled_from(["identity", "diagonal", "full"]))]
    kernel = draw(st.sampled_from([None, *ROBUST_KERNELS]))
    sets = [graph.parameter_set(parameter).ids for parameter in kind.parameters]
    graph.add_edges(
        kind,
        ends,
        [tidy(rng.uniform(0.5, 1.5, kind.measurement_dim)) for _ in range(count)] if count else None,
        information,
        kernel=kernel,
        kernel_width=1.0 if kernel is None else rng.uniform(0.5, 3.0, count),
        level=rng.integers(0, 2, count),
        parameters=np.stack([rng.choice(known, count) for known in sets], axis=1) if sets else None,
    )
