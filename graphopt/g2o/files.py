"""Loading and saving g2o's text, JSON and binary files; a `graphopt.Graph` and objects made of each other."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from graphopt import io
from graphopt.errors import FormatError, GraphOptError
from graphopt.g2o.elements.base import native
from graphopt.g2o.elements.edge_types import edge_class, pool_of
from graphopt.g2o.elements.parameters import parameter_class
from graphopt.g2o.elements.robust_kernels import KERNEL_CLASSES
from graphopt.g2o.elements.vertex_types import vertex_class
from graphopt.g2o.engine.storage import Chunk
from graphopt.graph import Graph
from graphopt.io import FORMATS, ReadReport, g2o_tree
from graphopt.io.files import read_bytes
from graphopt.io.formats import read_content
from graphopt.types import registry


class IoFormat(Enum):
    """File formats."""

    G2O = 0
    BINARY = 1
    JSON = 2


class IoFileFilter:
    """A format with the pattern of a file dialog."""

    def __init__(self, filter: str, format: IoFormat) -> None:
        self.filter = filter
        self.format = format


class IoWrapper:
    """Names of the formats."""

    _EXTENSIONS: ClassVar[dict[str, IoFormat]] = {
        "g2o": IoFormat.G2O,
        "json": IoFormat.JSON,
        "bin": IoFormat.BINARY,
    }

    @staticmethod
    def to_string(format: IoFormat) -> str:
        """Name."""
        return format.name

    @staticmethod
    def format_for_file_extension(extension: str) -> IoFormat | None:
        """The format of an extension without dot, None if it is unknown."""
        return IoWrapper._EXTENSIONS.get(extension)

    @staticmethod
    def file_filter(open: bool) -> list[IoFileFilter]:
        """Patterns for a dialog that opens (or saves) a file."""
        return [
            IoFileFilter(f"{extension.name} (*.{name})", extension)
            for name, extension in IoWrapper._EXTENSIONS.items()
        ]


def load(owner: Any, filename: Any, format: IoFormat | None = None) -> bool:
    """See `OptimizableGraph.load`."""
    try:
        graph = read(filename, IoFormat.G2O if format is None else format)
    except (OSError, GraphOptError) as error:
        sys.stderr.write(f"load: {error}\n")
        return False
    native(owner).clear(owner)
    fill(owner, graph)
    return True


def save(owner: Any, filename: Any, format: IoFormat | None = None, level: int = 0) -> bool:
    """See `OptimizableGraph.save`."""
    try:
        write(graph_of(owner, level), filename, IoFormat.G2O if format is None else format)
    except (OSError, GraphOptError) as error:
        sys.stderr.write(f"save: {error}\n")
        return False
    return True


def renamed_types(text: str) -> dict[str, str]:
    """`TAG_IN_FILE=TAG,...` as a dictionary; FormatError for anything else or an unknown tag."""
    renamed: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        old, _, new = (part.strip() for part in entry.partition("="))
        if not (old and new):
            raise FormatError(f"'{entry}' does not rename a type, expected TAG_IN_FILE=TAG.")
        if registry.find(new) is None:
            raise FormatError(f"'{entry}': there is no type {new}.")
        renamed[old] = new
    return renamed


def read(filename: Any, format: IoFormat, renamed: Mapping[str, str] | None = None) -> Graph:
    """Read a file as g2opy does; `renamed` says which tags are read as which others."""
    return read_with_report(filename, format, renamed, "g2opy")[0]


def read_with_report(
    filename: Any, format: IoFormat, renamed: Mapping[str, str] | None, dialect: str | None
) -> tuple[Graph, ReadReport]:
    """Read a file in a dialect of g2o's text (None: found; JSON and binary files are g2opy's alone)."""
    report = ReadReport(str(filename), "g2o", dialect)
    if format is IoFormat.G2O:
        if os.path.isfile(filename) and os.path.getsize(filename) == 0:
            return Graph(), report  # what saving an empty graph writes
        if renamed:
            return _read_renamed(filename, renamed, report), report
        return io.read_with_report(filename, "g2o", dialect)
    reader = g2o_tree.read_cbor if format is IoFormat.BINARY else g2o_tree.read_json
    return reader(read_bytes(filename), str(filename), report, renamed), report


def _read_renamed(filename: Any, renamed: Mapping[str, str], report: ReadReport) -> Graph:
    """Read a text file with other tags."""
    tags = {old.encode(): new.encode() for old, new in renamed.items()}
    lines = read_bytes(filename).split(b"\n")
    for number, line in enumerate(lines):
        head, _, rest = line.lstrip().partition(b" ")
        if head in tags:
            lines[number] = tags[head] + b" " + rest
    return read_content(FORMATS["g2o"], b"\n".join(lines), report)


def write(graph: Graph, filename: Any, format: IoFormat, dialect: str = "g2opy") -> list[str]:
    """Write a file whole or not at all; returns sentences about what it does not hold."""
    if format is IoFormat.G2O:
        return io.write(graph, filename, "g2o", dialect)
    return io.write(graph, filename, "g2o_cbor" if format is IoFormat.BINARY else "g2o_json")


# -------------------------------------------------------------------- objects <-> graph


def graph_of(owner: Any, level: int) -> Graph:
    """The content of an optimizer as a `Graph`, with the edges of one level (all if negative)."""
    from graphopt.g2o.engine.problem import Problem

    problem = Problem(owner)
    problem.take_values()
    graph = problem.graph
    for vertices in problem.vertex_lists:
        vertices.take_flags()
    for edges in problem.edge_lists:
        if edges.is_python:
            raise FormatError(
                f"{type(edges.objects[0]).__name__} is defined in Python: no file format has a tag for it."
            )
        levels = edges.take_levels()
        edges.edge_set.level = levels
        if level >= 0 and (levels != level).any():
            graph.remove_edges(edges.edge_set, levels != level)
    return graph


def fill(owner: Any, graph: Graph) -> None:
    """Make objects of everything in a graph."""
    target = native(owner)
    for parameter_set in graph.parameter_sets:
        cls = parameter_class(parameter_set.type)
        for id, values in zip(parameter_set.ids.tolist(), parameter_set.values, strict=True):
            parameter = cls()
            parameter.set_id(id)
            parameter._values()[:] = values
            target.add_parameter(owner, parameter)
    made: list[tuple[int, Any]] = []
    for vertex_set in graph.vertex_sets:
        made += zip(vertex_set.sequence.tolist(), _make_vertices(vertex_set), strict=True)
    for _, vertex in sorted(made, key=lambda pair: pair[0]):
        target.add_vertex(owner, vertex)
    made = []
    for edge_set in graph.edge_sets:
        made += zip(edge_set.sequence.tolist(), _make_edges(owner, edge_set), strict=True)
    for _, edge in sorted(made, key=lambda pair: pair[0]):
        target.add_edge(owner, edge)


def _make_vertices(vertex_set: Any) -> list[Any]:
    cls = vertex_class(vertex_set.type)
    chunk = cls._pool.take_many(len(vertex_set))
    chunk.estimate[:] = vertex_set.estimate
    chunk.fixed[:] = vertex_set.fixed
    chunk.marginalized[:] = vertex_set.marginalized
    return [_placed(cls(id), chunk, row) for row, id in enumerate(vertex_set.ids.tolist())]


def _make_edges(owner: Any, edge_set: Any) -> list[Any]:
    variadic = registry.edge_type(edge_set.type.tag)
    cls = edge_class(variadic if hasattr(variadic, "instantiate") else edge_set.type)
    chunk = pool_of(edge_set.type).take_many(len(edge_set))
    for name in ("measurement", "information", "level"):
        getattr(chunk, name)[:] = getattr(edge_set, name)
    vertices = owner._vertices
    result = []
    for row, ids in enumerate(edge_set.vertices.tolist()):
        edge = cls()
        if len(edge._vertices) != len(ids):
            edge.resize(len(ids))
        edge._vertices = [vertices[id] for id in ids]
        result.append(_placed(edge, chunk, row))
    _give_kernels(edge_set, result)
    for edge, ids in zip(result, edge_set.parameters.tolist(), strict=True):
        if ids:
            edge._parameters = ids
    return result


def _give_kernels(edge_set: Any, edges: list[Any]) -> None:
    for row in np.flatnonzero(edge_set.kernel).tolist():
        edges[row].set_robust_kernel(
            KERNEL_CLASSES[int(edge_set.kernel[row])](float(edge_set.kernel_width[row]))
        )


def _placed(element: Any, chunk: Chunk, row: int) -> Any:
    """Give an object another row."""
    element._chunk, element._row = chunk, row
    return element
