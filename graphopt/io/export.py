"""Types and graphs for the C library (native/embed): `graphopt export`.

    types.txt   the vertex, parameter and edge types and the robust kernels that a graph uses, as programs
    graph.txt   its vertices, parameters and edges

Both are text of words that `native/embed/src/types.cpp` and `files.cpp` read. A program is its number of
registers, the lengths of its arrays, constants (bits of a double in hexadecimal), input registers, output
registers, words of code. Edges have programs with a robust kernel; the kernel None leaves chi2 as it is. A
layout says where each stored number stands in a line of a .g2o file: found by decoding random lines, so a
type whose numbers are computed otherwise has none, and cannot be read from .g2o by the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from graphopt import codegen
from graphopt.disk_cache import write_atomically
from graphopt.errors import GraphError
from graphopt.graph import Graph
from graphopt.types import ComputedVertexType, EdgeType, ParameterType, VertexType
from graphopt.types.robust_kernels import KERNELS, RobustKernel, robust_kernel

BUILTIN_TAGS = (
    "EDGE_SE2",
    "EDGE_PRIOR_SE2",
    "EDGE_SE2_XY",
    "EDGE_BEARING_SE2_XY",
    "EDGE_SE3:QUAT",
    "EDGE_SE3_PRIOR",
    "EDGE_SE3_TRACKXYZ",
    "EDGE_PROJECT_XYZ2UV:EXPMAP",
    "EDGE_SE3:EXPMAP",
)
"""Edge types that the library carries (native/embed/builtin_types.txt), with vertices and parameters."""

_PROBES = 3


def export_graph(graph: Graph, folder: str | Path) -> tuple[Path, Path]:
    """Write `types.txt` and `graph.txt` of a graph; returns their paths.

    folder: made if it is not there. Levels, `marginalized` and lines of unknown tags are not part of it.
    Raises GraphError for computed values, edges that are evaluated elsewhere, numbers that are not finite.
    """
    if any(isinstance(one.type, ComputedVertexType) for one in graph.vertex_sets if len(one)):
        raise GraphError(
            "The graph has computed values, which the C library does not have. Write them into the residuals."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    edges = [cast(EdgeType, edge_set.type) for edge_set in graph.edge_sets if len(edge_set)]
    used = {int(number) for edge_set in graph.edge_sets for number in np.unique(edge_set.kernel)}
    kernels = [*KERNELS, *(robust_kernel(number) for number in sorted(used) if number >= len(KERNELS))]
    vertices = [vertex_set.type for vertex_set in graph.vertex_sets if len(vertex_set)]
    parameters = [one.type for one in graph.parameter_sets if len(one)]
    types, data = folder / "types.txt", folder / "graph.txt"
    write_atomically(types, types_text(edges, vertices, parameters, kernels).encode())
    write_atomically(data, graph_text(graph, kernels).encode())
    return types, data


def builtin_types_text() -> str:
    """Content of native/embed/builtin_types.txt."""
    from graphopt.types import registry

    return types_text([cast(EdgeType, registry.edge_type(tag)) for tag in BUILTIN_TAGS], [], [], KERNELS)


# -------------------------------------------------------------------- types.txt


def types_text(
    edges: Sequence[EdgeType],
    vertices: Iterable[VertexType],
    parameters: Iterable[ParameterType],
    kernels: Sequence[RobustKernel],
) -> str:
    """Types of these edges, and of these vertices and parameters, as text."""
    all_vertices = dict.fromkeys([*vertices, *(v for edge in edges for v in edge.vertices)])
    all_parameters = dict.fromkeys([*parameters, *(p for edge in edges for p in edge.parameters)])
    lines = ["graphopt types 1"]
    for kernel in kernels:
        lines += [f"kernel {kernel.name}", _program("weight", codegen.compile_robust_kernel(kernel.function))]
    for vertex in all_vertices:
        lines += _vertex_lines(vertex)
    for parameter in all_parameters:
        lines.append(f"parameter {_word(parameter.tag)} {parameter.storage_dim}")
        lines += _layouts(parameter.file, lambda layout: layout.decode)
    for edge in dict.fromkeys(edges):
        lines += _edge_lines(edge, kernels[0])
    return "\n".join(lines) + "\n"


def _vertex_lines(vertex: VertexType) -> list[str]:
    identity = " ".join(_bits(x) for x in vertex.identity)
    head = f"vertex {_word(vertex.tag)} {vertex.storage_dim} {vertex.tangent_dim} {identity}"
    layouts = _layouts(vertex.file, lambda layout: layout.decode)
    return [head, *layouts, _program("oplus", codegen.compile_vertex(vertex))]


def _edge_lines(edge: EdgeType, none: RobustKernel) -> list[str]:
    if getattr(edge, "is_external", False):
        raise GraphError(f"{edge.tag} is evaluated by somebody else, so it has no program to export.")
    compiled = codegen.compile_edge(edge, "full", none.function)
    ends = [str(len(edge.vertices)), *(_word(v.tag) for v in edge.vertices)]
    ends += [str(len(edge.parameters)), *(_word(p.tag) for p in edge.parameters)]

    def decode(layout: Any) -> Callable[[np.ndarray], np.ndarray]:
        def flat(tokens: np.ndarray) -> np.ndarray:
            measurement, information = layout.decode(tokens)
            rows, columns = np.triu_indices(edge.residual_dim)
            return np.concatenate([measurement, information[:, rows, columns]], axis=1)

        return flat

    return [
        f"edge {_word(edge.tag)} {edge.measurement_dim} {edge.residual_dim} {' '.join(ends)}",
        *_layouts(edge.file, decode),
        _program("chi2", compiled.chi2),
        _program("linearize", compiled.linearize),
    ]


def _word(tag: str) -> str:
    if not tag or any(c.isspace() for c in tag):
        raise GraphError(f"The tag {tag!r} is no word; types of the library have tags without blanks.")
    return tag


def _bits(x: float) -> str:
    return f"{int(np.float64(x).view(np.uint64)):016x}"


def _program(name: str, program: codegen.Program) -> str:
    arrays = program.constants, program.input_registers, program.output_registers, program.code
    counts = " ".join(str(len(array)) for array in arrays)
    words = [
        *(_bits(x) for x in program.constants),
        *(str(x) for array in arrays[1:] for x in array.tolist()),
    ]
    return f"{name} {program.num_registers} {counts}\n{' '.join(words)}"


def _layouts(file: Any, decode: Callable[[Any], Callable[[np.ndarray], np.ndarray]]) -> list[str]:
    found = []
    for layout in (file, *file.alternatives):
        entries = _entries(decode(layout), layout.num_tokens)
        if entries is not None:
            found.append(f"{layout.num_tokens} {entries}")
    return [f"layouts {len(found)}", *found]


def _entries(decode: Callable[[np.ndarray], np.ndarray], num_tokens: int) -> str | None:
    """Where each stored number comes from, None where it is computed."""
    tokens = np.random.default_rng(0).uniform(0.5, 2.0, (_PROBES, num_tokens))
    try:
        numbers = np.asarray(decode(tokens.copy()), dtype=float)
    except Exception:  # a layout that refuses these numbers
        return None
    entries = [_entry(column, tokens) for column in numbers.T]
    return None if None in entries else " ".join(map(str, entries))


def _entry(column: np.ndarray, tokens: np.ndarray) -> str | None:
    same = np.flatnonzero((tokens == column[:, None]).all(axis=0))
    if len(same):
        return f"copy {same[0]}"
    if (column == column[0]).all():
        return f"constant {_bits(column[0])}"
    for first in range(tokens.shape[1] - 3):
        norm = np.linalg.norm(tokens[:, first : first + 4], axis=1)
        for token in range(first, first + 4):
            if np.allclose(tokens[:, token] / norm, column, rtol=1e-14, atol=0):
                return f"normalized {token} {first}"
    return None


# -------------------------------------------------------------------- graph.txt


def graph_text(graph: Graph, kernels: Sequence[RobustKernel]) -> str:
    """Vertices, parameters and edges as text."""
    names = {kernel.number: kernel.name for kernel in kernels}
    lines = ["graphopt graph 1"]
    for one in graph.vertex_sets:
        if len(one):
            lines.append(f"vertices {_word(one.type.tag)} {len(one)}")
            heads = [f"{i} {int(f)}" for i, f in zip(one.ids.tolist(), one.fixed.tolist(), strict=True)]
            lines += _rows(heads, one.estimate)
    for one in graph.parameter_sets:
        if len(one):
            lines.append(f"parameters {_word(one.type.tag)} {len(one)}")
            lines += _rows([str(i) for i in one.ids.tolist()], one.values)
    for one in graph.edge_sets:
        if len(one):
            lines.append(f"edges {_word(one.type.tag)} {len(one)}")
            lines += _edge_rows(one, names)
    return "\n".join(lines) + "\n"


def _edge_rows(edges: Any, names: dict[int, str]) -> list[str]:
    ids = np.concatenate([edges.vertices, edges.parameters], axis=1).tolist()
    heads = [
        f"{' '.join(map(str, row))} {names[kernel]}"
        for row, kernel in zip(ids, edges.kernel.tolist(), strict=True)
    ]
    rows, columns = np.triu_indices(edges.type.residual_dim)
    width = np.where(edges.kernel == 0, 1.0, edges.kernel_width)[:, None]
    return _rows(
        heads, np.concatenate([width, edges.measurement, edges.information[:, rows, columns]], axis=1)
    )


def _rows(heads: list[str], numbers: np.ndarray) -> list[str]:
    if not np.isfinite(numbers).all():
        raise GraphError(
            "A number of the graph is not finite, so it cannot be exported; graph.check() finds it."
        )
    return [" ".join([head, *map(repr, row)]) for head, row in zip(heads, numbers.tolist(), strict=True)]
