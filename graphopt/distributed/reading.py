"""A graph archive (.npz, `io.graph_npz`) read by all ranks, each its rows: no rank holds the whole graph.

Every rank reads an equal piece of the rows of each set of vertices and edges and deals them (`tables`). Other
formats become an archive with `graphopt convert`, or are read by rank 0, whose graph is then dealt
(`scattering`).
"""

from __future__ import annotations

import os

import numpy as np

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.distributed.tables import EdgeRows, PartedGraph, Tables, VertexRows, deal
from graphopt.errors import FormatError, OptionError
from graphopt.graph.arguments import edge_type_and_vertices
from graphopt.io.graph_npz import ArchiveRows, kernel_numbers_of
from graphopt.types import registry


def read(path: str | os.PathLike[str], comm: Communicator) -> PartedGraph:
    """Read a graph archive in parts. Collective.

    Edges of level 0 take part. Points are eliminated where the archive marks them as marginalized; where it
    marks nothing, they are if there are more of them than of other vertices, as `graphopt optimize` does.
    `FormatError`, `OptionError` or `OSError` on all ranks where a file is damaged or of another kind.
    """
    name = os.fspath(path)
    if not name.endswith(".npz"):
        raise agreed(
            OptionError(
                f"{name}: ranks read parts of a graph archive (.npz) only. Make one with `graphopt convert "
                f"{name} graph.npz`, or let rank 0 read the file and deal it."
            )
        )
    tables = together(comm, lambda: _tables(ArchiveRows(name), comm.rank, comm.size))
    _choose_eliminated(comm, tables)
    if not sum(comm.share(sum(len(edge.order) for edge in tables.edges))):
        raise agreed(FormatError(f"{name}: the graph has no edges of level 0."))
    return deal(comm, name, tables)


def _tables(archive: ArchiveRows, rank: int, size: int) -> Tables:
    """A rank's rows of all sets."""

    def rows(name: str, count: int) -> np.ndarray:
        return archive.rows(name, rank * count // size, (rank + 1) * count // size, count)

    tables = Tables()
    for k in range(archive.num_sets("v")):
        count = archive.length(f"v{k}_ids")
        ids, estimate, fixed, marginalized, order = (
            rows(f"v{k}_{name}", count) for name in ("ids", "estimate", "fixed", "marginalized", "order")
        )
        kind = registry.vertex_type(archive.tag(f"v{k}"))
        gone = marginalized & ~fixed
        tables.vertices.append(VertexRows(kind, ids, estimate, fixed, gone, order))
    for k in range(archive.num_sets("p")):
        count = archive.length(f"p{k}_ids")
        ids, values = rows(f"p{k}_ids", count), rows(f"p{k}_values", count)
        first = rank * count // size
        kind = registry.parameter_type(archive.tag(f"p{k}"))
        tables.parameters.append((kind, ids, values, np.arange(first, first + len(ids))))
    for k in range(archive.num_sets("e")):
        count = archive.length(f"e{k}_vertices")
        names = ("vertices", "measurement", "information", "parameters", "kernel", "kernel_width", "order")
        takes_part = rows(f"e{k}_level", count) == 0
        vertices, measurement, information, parameters, kernel, width, order = (
            rows(f"e{k}_{name}", count)[takes_part] for name in names
        )
        kind, vertices = edge_type_and_vertices(archive.tag(f"e{k}"), vertices)
        kernel = kernel_numbers_of(kernel)
        tables.edges.append(
            EdgeRows(kind, vertices, measurement, information, parameters, kernel, width, order)
        )
    return tables


def _choose_eliminated(comm: Communicator, tables: Tables) -> None:
    """Leave or set `gone`; nothing is eliminated where two such vertices may share an edge."""
    if not any(comm.share(any(vertex.gone.any() for vertex in tables.vertices))):
        of_points = [vertex for vertex in tables.vertices if vertex.type.role == "point"]
        counts = sum(len(vertex.ids) for vertex in of_points), sum(len(rows.ids) for rows in tables.vertices)
        points, every = np.sum(comm.share(counts), axis=0)
        if points > every - points:
            for vertex in of_points:
                vertex.gone = ~vertex.fixed
    tags = {tag for of_rank in comm.share(_eliminated_tags(tables)) for tag in of_rank}
    if any(sum(kind.tag in tags for kind in edge.type.vertices) > 1 for edge in tables.edges):
        for vertex in tables.vertices:
            vertex.gone = np.zeros(len(vertex.ids), bool)


def _eliminated_tags(tables: Tables) -> list[str]:
    return [vertex.type.tag for vertex in tables.vertices if vertex.gone.any()]
