"""Files read by all ranks, each a part: no rank holds the whole graph.

BAL text and .npz (`reading_bal`), COLMAP models (`reading_colmap`) and .g2o. Every rank reads an equal piece
and turns it into tables, which are dealt (`tables`). Other formats are read by rank 0, whose graph is then
dealt (`scattering`).
"""

from __future__ import annotations

import os
import re

import numpy as np

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.distributed.lines import read_lines
from graphopt.distributed.reading_bal import read_bal
from graphopt.distributed.reading_colmap import read_colmap
from graphopt.distributed.tables import EdgeRows, PartedGraph, Tables, VertexRows, deal
from graphopt.errors import FormatError, OptionError
from graphopt.io.build import GraphBuilder
from graphopt.io.colmap import is_model
from graphopt.io.dialect_choice import (
    CPP,
    compare,
    depends_on_dialect,
    marked,
    readings_are_equal,
    reread,
    token_evidence,
)
from graphopt.io.dialects import DIALECTS, Dialect
from graphopt.io.g2o_file import FIX, add_group, tag_table
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import TaggedText, read_tagged

PACKED = (".gz", ".bz2", ".xz")


def read(path: str | os.PathLike[str], comm: Communicator) -> PartedGraph:
    """Read a BAL problem, a COLMAP model or a .g2o file in parts. Collective.

    Vertices have the numbers that `graphopt.read` gives them. `FormatError`, `OptionError` or `OSError` on
    all ranks where a file is damaged or of another kind.
    """
    name = os.fspath(path)
    if name.endswith(PACKED):
        raise agreed(OptionError(f"{name}: parts of a packed file cannot be read alone: unpack it first."))
    if name.endswith(".g2o"):
        return _read_g2o(name, comm)
    if together(comm, lambda: is_model(name)):
        return read_colmap(name, comm)
    return read_bal(name, comm)


# -------------------------------------------------------------------- .g2o


def _read_g2o(path: str, comm: Communicator) -> PartedGraph:
    """Equal pieces of the bytes, cut between lines.

    Points are eliminated where there are more of them than of other vertices, as `graphopt optimize` does.
    """
    lines = read_lines(path, comm)
    data, before = lines.data, lines.first_line - 1
    head = comm.share(marked(data))[0]
    if any(comm.share(re.search(rb"^#[ \t]*kernel:", data, re.MULTILINE) is not None)):
        raise agreed(
            OptionError(f"{path}: its comments name robust kernels by line: let rank 0 read the file.")
        )
    current: Dialect = head or DIALECTS["g2opy"]
    types, rules = tag_table()
    text = together(comm, lambda: read_tagged(data, path, rules, before))
    tables = together(comm, lambda: _tables_of(path, text, types, current, before))
    _fix(comm, path, tables, text)
    _eliminate(comm, tables)
    if not sum(comm.share(sum(len(edge.order) for edge in tables.edges))):
        raise agreed(FormatError(f"{path}: no line is an edge of a known type."))
    parted = deal(comm, path, tables, by_line=True)
    parted.dialect = None if head is None else head.name
    if head is None:
        _settle(comm, parted, current, [group.dialect.name for group in token_evidence(text.groups)])
    return parted


def _tables_of(path: str, text: TaggedText, types: dict, dialect: Dialect, before: int) -> Tables:
    builder = GraphBuilder(path, ReadReport(path, "g2o"))
    for group in text.groups:
        if group.tag != FIX:
            add_group(builder, types[group.tag], group._replace(lines=group.lines + before), dialect)
    tables = Tables()
    for vertex_row in builder.vertex_rows:
        none = np.zeros(len(vertex_row.ids), bool)
        tables.vertices.append(
            VertexRows(vertex_row.type, vertex_row.ids, vertex_row.values, none, none, vertex_row.lines)
        )
    tables.parameters = [
        (parameter_row.type, parameter_row.ids, parameter_row.values, parameter_row.lines)
        for parameter_row in builder.parameter_rows
    ]
    for edge_row in builder.edge_rows:
        columns = (
            edge_row.vertices,
            edge_row.measurement,
            edge_row.information,
            edge_row.parameters,
            edge_row.lines,
        )
        tables.edges.append(EdgeRows(edge_row.type, *columns))
    return tables


def _fix(comm: Communicator, path: str, tables: Tables, text: TaggedText) -> None:
    own = [group.ids.ravel() for group in text.with_tag(FIX)]
    fixed = np.concatenate([np.empty(0, np.int64), *(ids for part in comm.share(own) for ids in part)])
    for vertex in tables.vertices:
        vertex.fixed = np.isin(vertex.ids, fixed)


def _eliminate(comm: Communicator, tables: Tables) -> None:
    """Mark points, unless there are few or some share an edge."""
    of_points = [vertex for vertex in tables.vertices if vertex.type.role == "point"]
    numbers = (
        sum(len(of_point.ids) for of_point in of_points),
        sum(len(vertex.ids) for vertex in tables.vertices),
    )
    points, every = np.sum(comm.share(numbers), axis=0)
    apart = all(sum(kind.role == "point" for kind in edge.type.vertices) <= 1 for edge in tables.edges)
    if points > every - points and all(comm.share(apart)):
        for of_point in of_points:
            of_point.gone = ~of_point.fixed


def _settle(comm: Communicator, parted: PartedGraph, current: Dialect, named: list[str]) -> None:
    """Read all parts in the dialect that lines or most parts speak for, see `io.dialect_choice`."""
    graph = parted.share.graph
    matters = graph.num_edges > 0 and depends_on_dialect(graph) and not readings_are_equal(graph)
    verdict = compare(graph, current) if matters else None
    told = None if verdict is None else (verdict.is_certain, verdict.dialect.name)
    by_lines = {name for part in comm.share(named) for name in part}
    votes = [vote for vote in comm.share(told) if vote is not None]
    if not any(comm.share(matters)) and not by_lines:
        return
    certain = [name for is_certain, name in votes if is_certain] or [name for _, name in votes]
    if len(by_lines) == 1:
        chosen = DIALECTS[by_lines.pop()]
    else:
        chosen = DIALECTS[max(set(certain), key=certain.count)] if certain else CPP
    parted.dialect = chosen.name
    if chosen is not current:
        reread(graph, current, chosen)
