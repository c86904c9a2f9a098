"""Loading and saving: g2o's text, JSON and binary files; and the way between a `graphopt.Graph` and objects.

JSON and binary files (CBOR) hold the same tree:

    graph: {edges: [{tag, ids, measurement, information}], fixed: [id], params: [{tag, id, value}],
            vertices: [{tag, id, estimate}]}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from enum import Enum
from io import BytesIO
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
from graphopt.io import FORMATS, ReadReport
from graphopt.io.files import read_bytes, write_bytes
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
    data = read_bytes(filename)
    try:
        tree = _decoded_cbor(data) if format is IoFormat.BINARY else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{filename}: {_damage(error)}") from None
    if renamed:
        _rename_tags(tree, renamed)
    return graph_from_tree(tree, str(filename)), report


def _cbor() -> Any:
    """The package that knows CBOR (RFC 8949), g2o's binary format."""
    try:
        import cbor2
    except ImportError as error:
        raise FormatError("g2o's binary files (CBOR) need the package cbor2: pip install cbor2") from error
    return cbor2


def _decoded_cbor(data: bytes) -> Any:
    cbor2, stream = _cbor(), BytesIO(data)
    try:
        tree = cbor2.load(stream)
    except cbor2.CBORError as error:
        raise FormatError(f"not readable as CBOR at byte {stream.tell()} ({error})") from error
    if stream.tell() != len(data):
        raise FormatError(f"{len(data) - stream.tell()} bytes follow the CBOR value")
    return tree


def _damage(error: Exception) -> str:
    """What is wrong with the content of a JSON or binary file."""
    if isinstance(error, FormatError):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: not JSON ({error.msg})"
    return f"not readable as JSON ({error})"


def _read_renamed(filename: Any, renamed: Mapping[str, str], report: ReadReport) -> Graph:
    """Read a text file with other tags."""
    tags = {old.encode(): new.encode() for old, new in renamed.items()}
    lines = read_bytes(filename).split(b"\n")
    for number, line in enumerate(lines):
        head, _, rest = line.lstrip().partition(b" ")
        if head in tags:
            lines[number] = tags[head] + b" " + rest
    return read_content(FORMATS["g2o"], b"\n".join(lines), report)


def _rename_tags(tree: Any, renamed: Mapping[str, str]) -> None:
    content = tree.get("graph") if isinstance(tree, dict) else None
    for part in content.values() if isinstance(content, dict) else ():
        for entry in part if isinstance(part, list) else ():
            if isinstance(entry, dict) and entry.get("tag") in renamed:
                entry["tag"] = renamed[entry["tag"]]


def write(graph: Graph, filename: Any, format: IoFormat, dialect: str = "g2opy") -> list[str]:
    """Write a file whole or not at all; returns sentences about what it does not hold."""
    if format is IoFormat.G2O:
        return io.write(graph, filename, "g2o", dialect)
    tree = tree_of(graph)
    data = _cbor().dumps(tree) if format is IoFormat.BINARY else (json.dumps(tree, indent=2) + "\n").encode()
    write_bytes(filename, data)
    return []


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


# -------------------------------------------------------------------- graph <-> tree


def tree_of(graph: Graph) -> dict[str, Any]:
    """The tree of JSON and binary files."""
    vertices = [
        (order, {"estimate": tokens, "id": id, "tag": vertex_set.type.tag})
        for vertex_set in graph.vertex_sets
        for order, id, tokens in zip(
            vertex_set.sequence.tolist(),
            vertex_set.ids.tolist(),
            vertex_set.type.file.encode(vertex_set.estimate).tolist(),
            strict=True,
        )
    ]
    edges = [pair for edge_set in graph.edge_sets for pair in _edge_entries(edge_set)]
    parameters = [
        {"id": id, "tag": parameter_set.type.tag, "value": tokens}
        for parameter_set in graph.parameter_sets
        for id, tokens in zip(
            parameter_set.ids.tolist(),
            parameter_set.type.file.encode(parameter_set.values).tolist(),
            strict=True,
        )
    ]
    fixed = [id for vertex_set in graph.vertex_sets for id in vertex_set.ids[vertex_set.fixed].tolist()]
    tree: dict[str, Any] = {"edges": [entry for _, entry in sorted(edges, key=lambda pair: pair[0])]}
    if fixed:
        tree["fixed"] = sorted(fixed)
    if parameters:
        tree["params"] = parameters
    tree["vertices"] = [entry for _, entry in sorted(vertices, key=lambda pair: pair[0])]
    return {"graph": tree}


def _edge_entries(edge_set: Any) -> list[tuple[int, dict[str, Any]]]:
    dim = edge_set.type.residual_dim
    tokens = edge_set.type.file.encode(edge_set.measurement, edge_set.information)
    count = tokens.shape[1] - dim * (dim + 1) // 2
    result = []
    for row, order in enumerate(edge_set.sequence.tolist()):
        entry: dict[str, Any] = {
            "ids": edge_set.vertices[row].tolist(),
            "information": tokens[row, count:].tolist(),
            "measurement": tokens[row, :count].tolist(),
        }
        if edge_set.type.parameters:
            entry["param_ids"] = edge_set.parameters[row].tolist()
        entry["tag"] = edge_set.type.tag
        result.append((order, entry))
    return result


def graph_from_tree(tree: Any, where: str) -> Graph:
    """The graph of a JSON or binary file's tree."""
    try:
        content = tree["graph"]
        graph = Graph()
        for entry in content.get("params", ()):
            kind = registry.parameter_type(entry["tag"])
            graph.add_parameters(kind, [entry["id"]], kind.file.decode(np.array([entry["value"]], float)))
        _add_vertices(graph, content.get("vertices", ()))
        _add_edges(graph, content.get("edges", ()))
        graph.set_fixed(content.get("fixed", ()))
        return graph
    except GraphOptError as error:
        raise FormatError(f"{where}: {error}") from None
    except KeyError as error:
        raise FormatError(f"{where}: an entry has no {error}; see docs/formats.md.") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise FormatError(f"{where}: not the tree of a g2o file ({type(error).__name__}: {error}).") from None


def _grouped(entries: Any, key: Any) -> dict[Any, list[tuple[int, Any]]]:
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for order, entry in enumerate(entries):
        groups.setdefault(key(entry), []).append((order, entry))
    return groups


def _add_vertices(graph: Graph, entries: Any) -> None:
    first = graph.next_order()
    for (tag, count), group in _grouped(
        entries, lambda entry: (entry["tag"], len(entry["estimate"]))
    ).items():
        kind = registry.vertex_type(tag)
        _expect_numbers("vertex", kind, group, count, kind.file.num_tokens)
        tokens = np.array([entry["estimate"] for _, entry in group], float).reshape(len(group), count)
        ids = [entry["id"] for _, entry in group]
        graph.add_vertices(kind, ids, kind.file.decode(tokens), order=[first + order for order, _ in group])


def _edge_key(entry: Any) -> tuple[str, int, int]:
    return entry["tag"], len(entry["ids"]), len(entry["measurement"]) + len(entry["information"])


def _expect_numbers(what: str, kind: Any, group: list[tuple[int, Any]], count: int, expected: int) -> None:
    """Raise FormatError for entries with another number of numbers than their type has."""
    if count != expected:
        order, entry = group[0]
        raise FormatError(
            f"{what} number {order} ({kind.tag} {entry.get('id', entry.get('ids'))}) has {count} numbers, "
            f"expected {expected}"
        )


def _add_edges(graph: Graph, entries: Any) -> None:
    first = graph.next_order()
    for (tag, arity, count), group in _grouped(entries, _edge_key).items():
        kind: Any = registry.edge_type(tag)
        kind = kind.instantiate(arity) if hasattr(kind, "instantiate") else kind
        _expect_numbers("edge", kind, group, count, kind.file.num_tokens)
        tokens = np.array([[*entry["measurement"], *entry["information"]] for _, entry in group], float)
        measurement, information = kind.file.decode(tokens)
        graph.add_edges(
            kind,
            [entry["ids"] for _, entry in group],
            measurement,
            information,
            parameters=[entry["param_ids"] for _, entry in group] if kind.parameters else None,
            order=[first + order for order, _ in group],
        )
