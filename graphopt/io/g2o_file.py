"""g2o's text format, and with it TORO's: reading.

    TAG id <numbers>                              a vertex
    TAG id <numbers>                              a parameter (PARAMS_...)
    TAG vertex ids, parameter ids, <numbers>      an edge
    TAG n, n vertex ids, <numbers>                an edge of any arity (C++ g2o: TAG vertex ids || <numbers>)
    FIX id id ...                                 vertices to hold constant

The numbers are laid out by `types`. Order does not matter: edges may stand before their vertices. Lines with
other tags stay verbatim in `graph.unparsed` (robot data such as DATA_... or ROBOTLASER1 belongs to the line
before it).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import graphopt.io.extra_types as extra_types
from graphopt.errors import FormatError
from graphopt.geometry import quaternion
from graphopt.graph import Graph
from graphopt.io.build import GraphBuilder
from graphopt.io.dialect_choice import marked, settle, token_evidence
from graphopt.io.dialects import ATTACHMENT, DIALECTS, Dialect, look_up
from graphopt.io.g2o_kernels import take_kernels
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import ALL_IDS, COUNTED_IDS, TaggedRows, TagRule, read_tagged, tag_of
from graphopt.types import EdgeType, ParameterType, VariadicEdgeType, VertexType, registry

FIX = "FIX"
POSE_DIM = 7
ReadableType = VertexType | ParameterType | EdgeType | VariadicEdgeType


def file_tags(kind: ReadableType) -> tuple[str, ...]:
    """Tags under which a type stands in files."""
    return tuple(dict.fromkeys((kind.tag, *kind.aliases, *getattr(kind, "alias_files", ()))))


def tag_table() -> tuple[dict[str, ReadableType], dict[str, TagRule]]:
    """Type and line layout of every tag that is registered now."""
    return _tag_table(tuple(registry.all_types()))


@lru_cache(maxsize=4)
def _tag_table(kinds: tuple[ReadableType, ...]) -> tuple[dict[str, ReadableType], dict[str, TagRule]]:
    types: dict[str, ReadableType] = {}
    rules = {FIX: TagRule(ALL_IDS, (), False, "vertex ids")}
    for kind in kinds:
        for tag in file_tags(kind):
            types[tag] = kind
            rules[tag] = _rule(kind, tag)
    return types, rules


def _rule(kind: ReadableType, tag: str) -> TagRule:
    if isinstance(kind, VariadicEdgeType):
        return TagRule(COUNTED_IDS, (), False, "number of vertices, vertex ids, numbers")
    counts = kind.file_for(tag).token_counts
    if not isinstance(kind, EdgeType):
        what = "vertex" if isinstance(kind, VertexType) else "parameter"
        return TagRule(1, counts, True, f"{tag}, {what} id, {counts[0]} numbers")
    arity, num_parameters = len(kind.vertices), len(kind.parameters)
    ids = f"{arity} vertex ids, " + (f"{num_parameters} parameter ids, " if num_parameters else "")
    return TagRule(arity + num_parameters, counts, True, f"{tag}, {ids}{counts[0]} numbers")


def read_g2o(data: bytes, path: str, report: ReadReport) -> Graph:
    """Make a graph of a .g2o text, in `report.dialect` or the one found (`dialect_choice`).

    Raises FormatError with path and line.
    """
    requested = None if report.dialect is None else look_up(report.dialect, "g2o")
    named = marked(data) if requested is None else None
    if requested or named:
        report.dialect_reason = "as asked for" if requested else "a comment in the file names it"
    dialect = requested or named or DIALECTS["g2opy"]
    types, rules = tag_table()
    text = read_tagged(data, path, rules)
    tags = dict.fromkeys(tag_of(line) for _, line in text.unknown)
    if any([extra_types.define(tag) for tag in tags]):
        types, rules = tag_table()
        text = read_tagged(data, path, rules)
    report.num_lines = text.num_lines
    report.warnings += text.warnings
    builder = GraphBuilder(path, report)
    for group in text.groups:
        if group.tag == FIX:
            add_fix(builder, group)
        else:
            add_group(builder, types[group.tag], group, dialect)
    builder.keep_unparsed(text.unknown)
    refuse_foreign(text.groups, text.unknown, path)
    graph = builder.build()
    settle(graph, dialect, bool(requested or named), token_evidence(text.groups), report)
    take_kernels(data, graph, path)
    if report.dialect is not None:
        graph.attachments[ATTACHMENT] = report.dialect
    return graph


def add_fix(builder: GraphBuilder, group: TaggedRows) -> None:
    """Hand FIX lines to the builder."""
    if group.ids.shape[1] == 0:
        raise FormatError(f"{builder.path}:{group.lines[0]}: FIX: got no vertex id, expected at least one")
    builder.fix(group.ids.ravel(), np.repeat(group.lines, group.ids.shape[1]))


def refuse_foreign(groups: list[TaggedRows], unknown: list[tuple[int, str]], path: str) -> None:
    """Raise FormatError for a text of which no line is known: it is something else."""
    if any(group.tag != FIX for group in groups):
        return
    if groups:
        raise FormatError(f"{path}:{groups[0].lines[0]}: FIX lines, but no vertex or edge of a known type")
    if unknown:
        line, text = unknown[0]
        raise FormatError(f"{path}:{line}: no line has a known tag, the first is {tag_of(text)[:40]!r}")
    raise FormatError(f"{path}:1: the file is empty")


def add_group(
    builder: GraphBuilder, kind: ReadableType, group: TaggedRows, dialect: Dialect | None = None
) -> None:
    """Decode the lines of one tag and hand them to the builder."""
    if isinstance(kind, VariadicEdgeType):
        _add_variadic(builder, kind, group)
        return
    layout, group = _choose_layout(kind, dialect, builder, group)
    _check_quaternions(kind, builder, group)
    if isinstance(kind, VertexType):
        builder.add_vertices(kind, group.ids[:, 0], layout.decode(group.values), group.lines)
    elif isinstance(kind, ParameterType):
        builder.add_parameters(kind, group.ids[:, 0], layout.decode(group.values), group.lines)
    else:
        _add_edges(builder, kind, layout, group)


def _check_quaternions(kind: ReadableType, builder: GraphBuilder, group: TaggedRows) -> None:
    """Refuse a pose x y z qx qy qz qw whose quaternion has no direction: g2o takes it for no rotation."""
    length = getattr(kind, "measurement_dim", getattr(kind, "storage_dim", 0))
    if length != POSE_DIM or group.tag in getattr(kind, "alias_files", ()):
        return
    q = group.values[:, 3:POSE_DIM]
    bad = np.flatnonzero(~quaternion.has_direction(q))
    if len(bad):
        raise FormatError(
            f"{builder.path}:{group.lines[bad[0]]}: {group.tag}: the quaternion {q[bad[0]].tolist()} "
            "has no direction, expected length 1"
        )


def _choose_layout(
    kind: Any, dialect: Dialect | None, builder: GraphBuilder, group: TaggedRows
) -> tuple[Any, TaggedRows]:
    """Layout of lines of this length; what stands behind the longest one is ignored, as g2o does."""
    layout = kind.file_for(group.tag)
    count, longest = group.values.shape[1], max(layout.token_counts)
    if count > longest:
        builder.report.warnings.append(
            f"{group.tag}: {len(group.lines)} lines hold {count - longest} numbers more than the "
            f"{longest} that are used, "
            f"first in line {group.lines[0]}"
        )
        group = group._replace(values=group.values[:, :longest])
    count = group.values.shape[1]
    of_dialect = dialect.layout(kind, group.tag).for_tokens(count) if dialect is not None else None
    if dialect is not None and group.tag not in kind.alias_files:
        group = group._replace(values=dialect.normalized(kind.tag, group.values))
    chosen = of_dialect or layout.for_tokens(count)
    assert chosen is not None, "the tokenizer lets only token_counts pass"
    loses = getattr(chosen, "loses", "")
    if loses:
        builder.report.warnings.append(
            f"{group.tag}: of {len(group.lines)} lines with {count} numbers {loses}; first in line "
            f"{group.lines[0]}"
        )
    return chosen, group


def _add_variadic(builder: GraphBuilder, kind: VariadicEdgeType, group: TaggedRows) -> None:
    num_vertices = group.ids.shape[1]
    where = f"{builder.path}:{group.lines[0]}: {group.tag}"
    if num_vertices < 2:
        raise FormatError(f"{where}: {num_vertices} vertices, expected at least 2")
    edge_type = kind.instantiate(num_vertices)
    layout = edge_type.file.for_tokens(group.values.shape[1])
    if layout is None:
        expected = " or ".join(map(str, edge_type.file.token_counts))
        raise FormatError(
            f"{where}: got {group.values.shape[1]} numbers for {num_vertices} vertices, expected {expected}"
        )
    _add_edges(builder, edge_type, layout, group)


def _add_edges(builder: GraphBuilder, kind: EdgeType, layout: Any, group: TaggedRows) -> None:
    arity = len(kind.vertices)
    measurement, information = layout.decode(group.values)
    if layout.num_tokens < kind.residual_dim * (kind.residual_dim + 1) // 2 + 1:
        builder.report.warnings.append(
            f"{group.tag}: {len(group.lines)} lines hold no information matrix, the identity is taken; "
            f"first in line {group.lines[0]}"
        )
    builder.add_edges(kind, group.ids[:, :arity], measurement, information, group.lines, group.ids[:, arity:])
