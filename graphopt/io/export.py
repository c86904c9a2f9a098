"""Types and graphs for the C library (native/embed): `graphopt export`.

types.txt   the vertex, parameter and edge types and the robust kernels, as programs (`io.export_types`)
graph.txt   vertices, parameters and edges; words that `native/embed/src/graph_text.cpp` reads:

    graphopt graph 2
    vertices TAG n      id flags numbers        flags: 1 fixed, 2 marginalized
    parameters TAG n    id numbers
    edges TAG n         vertex ids, parameter ids, robust kernel, its width, level, measurement,
                        upper triangle of the information
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError
from graphopt.graph import Graph
from graphopt.graph.bounds import constraints_of
from graphopt.io.export_spirv import spirv_files
from graphopt.io.export_types import builtin_kinds, exported_tag, types_text
from graphopt.io.files import write_together
from graphopt.types import ComputedVertexType, EdgeType
from graphopt.types.robust_kernels import KERNELS, RobustKernel, robust_kernel

DEVICES = ("cpu", "vulkan")


def export_graph(graph: Graph, folder: str | Path, device: str = "cpu") -> tuple[Path, Path]:
    """Write `types.txt` and `graph.txt` of a graph; returns their paths.

    folder: made if it is not there. device: "cpu", or "vulkan": the types' kernels as SPIR-V, too. Lines of
    unknown tags are not part of it. Raises GraphError for what the library does not have: computed values,
    held components, images, edges that are evaluated elsewhere, numbers that are not finite; ShaderError for
    SPIR-V without a GLSL compiler.
    """
    _refuse(graph)
    used = {int(number) for edge_set in graph.edge_sets for number in np.unique(edge_set.kernel)}
    kernels = [*KERNELS, *(robust_kernel(number) for number in sorted(used) if number >= len(KERNELS))]
    every = (*graph.vertex_sets, *graph.parameter_sets, *graph.edge_sets)
    kinds = [elements.type for elements in every if len(elements)]
    files = _files(kinds, kernels, device)
    _write(folder, {**files, "graph.txt": graph_text(graph, kernels).encode()})
    return Path(folder) / "types.txt", Path(folder) / "graph.txt"


def export_builtin_types(folder: str | Path, device: str = "vulkan") -> Path:
    """Write `types.txt` of all built-in types that .g2o files hold; its path. Arguments as `export_graph`."""
    _write(folder, _files(builtin_kinds(), KERNELS, device))
    return Path(folder) / "types.txt"


def _files(kinds: Sequence[Any], kernels: Sequence[RobustKernel], device: str) -> dict[str, bytes]:
    """types.txt, after the files that it names."""
    if device not in DEVICES:
        raise OptionError(f"device is {device!r}, expected one of {', '.join(DEVICES)}.")
    edges = {exported_tag(kind): kind for kind in kinds if isinstance(kind, EdgeType)}
    spirv = spirv_files(edges, kernels) if device == "vulkan" else {}
    return {**spirv, "types.txt": types_text(kinds, kernels, bool(spirv)).encode()}


def _write(folder: str | Path, files: dict[str, bytes]) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_together({Path(folder) / name: content for name, content in files.items()})


def _refuse(graph: Graph) -> None:
    if any(
        isinstance(vertex_set.type, ComputedVertexType) for vertex_set in graph.vertex_sets if len(vertex_set)
    ):
        raise GraphError(
            "The graph has computed values, which the C library does not have. Write them into the residuals."
        )
    constraints = constraints_of(graph)
    if constraints is not None:
        raise GraphError(
            f"The graph has {constraints}, which the C library does not keep to. Remove them first."
        )
    for vertex_set in graph.vertex_sets:
        if vertex_set.holds_components:
            raise GraphError(
                f"{vertex_set.type.tag}: the graph holds single components, which the C library does not. "
                "Free them (Graph.hold), or define a vertex type whose oplus leaves them as they are."
            )


def graph_text(graph: Graph, kernels: Sequence[RobustKernel]) -> str:
    """Vertices, parameters and edges as text."""
    names = {kernel.number: kernel.name for kernel in kernels}
    lines = ["graphopt graph 2"]
    for vertex_set in graph.vertex_sets:
        if len(vertex_set):
            lines.append(f"vertices {exported_tag(vertex_set.type)} {len(vertex_set)}")
            flags = (vertex_set.fixed + 2 * vertex_set.marginalized).tolist()
            columns = zip(vertex_set.ids.tolist(), flags, vertex_set.sequence.tolist(), strict=True)
            heads = [f"{vertex} {flag} {sequence}" for vertex, flag, sequence in columns]
            lines += _rows(heads, vertex_set.estimate)
    for parameter_set in graph.parameter_sets:
        if len(parameter_set):
            lines.append(f"parameters {exported_tag(parameter_set.type)} {len(parameter_set)}")
            lines += _rows([str(i) for i in parameter_set.ids.tolist()], parameter_set.values)
    for edge_set in graph.edge_sets:
        if len(edge_set):
            lines.append(f"edges {exported_tag(edge_set.type)} {len(edge_set)}")
            lines += _edge_rows(edge_set, names)
    return "\n".join(lines) + "\n"


def _edge_rows(edges: Any, names: dict[int, str]) -> list[str]:
    ids = np.concatenate([edges.vertices, edges.parameters], axis=1).tolist()
    width = np.where(edges.kernel == 0, 1.0, edges.kernel_width).tolist()
    columns = zip(ids, edges.kernel.tolist(), width, edges.level.tolist(), strict=True)
    heads = [f"{' '.join(map(str, row))} {names[kernel]} {w!r} {level}" for row, kernel, w, level in columns]
    rows, columns = np.triu_indices(edges.type.residual_dim)
    return _rows(heads, np.concatenate([edges.measurement, edges.information[:, rows, columns]], axis=1))


def _rows(heads: list[str], numbers: np.ndarray) -> list[str]:
    if not np.isfinite(numbers).all():
        raise GraphError(
            "A number of the graph is not finite, so it cannot be exported; graph.check() finds it."
        )
    return [" ".join([head, *map(repr, row)]) for head, row in zip(heads, numbers.tolist(), strict=True)]
