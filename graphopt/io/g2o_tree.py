"""g2o's JSON and binary (CBOR) files, which hold the same tree.

    graph: {edges: [{tag, ids, measurement, information}], fixed: [id], params: [{tag, id, value}],
            vertices: [{tag, id, estimate}]}

Edges with parameters have `param_ids`, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np

from graphopt.errors import FormatError, GraphOptError
from graphopt.graph import Graph
from graphopt.io.read_report import ReadReport
from graphopt.types import registry

_JSON = re.compile(rb'\s*\{\s*"graph"\s*:')
_CBOR = re.compile(rb"[\xa1\xbf]\x65graph")


def tree_format(data: bytes) -> str | None:
    """The format of a content that begins as such a tree does, "g2o_json" or "g2o_cbor"; else None."""
    if _JSON.match(data):
        return "g2o_json"
    return "g2o_cbor" if _CBOR.match(data) else None


def read_json(data: bytes, path: str, report: ReadReport, renamed: Mapping[str, str] | None = None) -> Graph:
    """Graph of a JSON text; `renamed` says which tags are read as which others."""
    return _read(json.loads, data, path, renamed)


def read_cbor(data: bytes, path: str, report: ReadReport, renamed: Mapping[str, str] | None = None) -> Graph:
    """Graph of a binary file; needs the package cbor2."""
    return _read(_decoded_cbor, data, path, renamed)


def write_json(graph: Graph) -> tuple[bytes, list[str]]:
    """The text, and what it has no place for."""
    return (json.dumps(tree_of(graph), indent=2) + "\n").encode(), _lost(graph)


def write_cbor(graph: Graph) -> tuple[bytes, list[str]]:
    """The bytes, and what they have no place for; needs the package cbor2."""
    return _cbor().dumps(tree_of(graph)), _lost(graph)


def _lost(graph: Graph) -> list[str]:
    kernels = any((edge_set.look("kernel") != 0).any() for edge_set in graph.edge_sets)
    levels = any((edge_set.look("level") != 0).any() for edge_set in graph.edge_sets)
    return [*["robust kernels"] * kernels, *["levels of edges"] * levels]


def _read(decode: Any, data: bytes, path: str, renamed: Mapping[str, str] | None) -> Graph:
    try:
        tree = decode(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {_damage(error)}") from None
    if renamed:
        _rename_tags(tree, renamed)
    return graph_from_tree(tree, path)


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


def _rename_tags(tree: Any, renamed: Mapping[str, str]) -> None:
    content = tree.get("graph") if isinstance(tree, dict) else None
    for part in content.values() if isinstance(content, dict) else ():
        for entry in part if isinstance(part, list) else ():
            if isinstance(entry, dict) and entry.get("tag") in renamed:
                entry["tag"] = renamed[entry["tag"]]


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
