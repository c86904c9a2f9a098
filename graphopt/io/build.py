"""From arrays with line numbers to a Graph: the checks that need the whole file, each error naming its lines.

Order of work: vertices, parameters, then edges, so that a file may name vertices after the edges that use
them. A file without any vertex gets them from its edges, with identity estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphopt import _native
from graphopt.errors import FormatError
from graphopt.graph import Graph, UnparsedLine
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import tag_of
from graphopt.types import EdgeType, ParameterType, VertexType


class _Rows(NamedTuple):
    """Vertices or parameters of one tag."""

    type: Any  # VertexType or ParameterType
    ids: np.ndarray  # (n,) int64
    values: np.ndarray  # (n, storage_dim)
    lines: np.ndarray  # (n,) int64


@dataclass
class _EdgeRows:
    """Edges of one tag and arity."""

    type: EdgeType
    vertices: np.ndarray  # (m, arity) int64
    measurement: np.ndarray  # (m, measurement_dim)
    information: np.ndarray  # (m, d, d)
    lines: np.ndarray  # (m,) int64
    parameters: np.ndarray  # (m, num_parameters) int64


class GraphBuilder:
    """Collects what a reader finds and makes the graph in one go."""

    def __init__(self, path: str, report: ReadReport):
        self.path = path
        self.report = report
        self._vertices: list[_Rows] = []
        self._parameters: list[_Rows] = []
        self._edges: list[_EdgeRows] = []
        self._fixed: list[tuple[np.ndarray, np.ndarray]] = []
        self._unparsed: list[tuple[int, str]] = []
        self._num_created = 0  # vertices that come before the first line of the file

    def add_vertices(
        self, vertex_type: VertexType, ids: np.ndarray, estimate: np.ndarray, lines: np.ndarray
    ) -> None:
        """Vertices of one type; ids (n,), estimate (n, storage_dim), lines (n,) ascending."""
        self._require_finite(estimate, lines, vertex_type.tag)
        self._vertices.append(_Rows(vertex_type, ids, estimate, lines))
        self.report.vertices[vertex_type.tag] += len(ids)

    def add_parameters(
        self, parameter_type: ParameterType, ids: np.ndarray, values: np.ndarray, lines: np.ndarray
    ) -> None:
        """Parameters of one type; ids (n,), values (n, storage_dim), lines (n,) ascending."""
        self._require_finite(values, lines, parameter_type.tag)
        self._parameters.append(_Rows(parameter_type, ids, values, lines))
        self.report.parameters[parameter_type.tag] += len(ids)

    def add_edges(
        self,
        edge_type: EdgeType,
        vertices: np.ndarray,
        measurement: np.ndarray,
        information: np.ndarray,
        lines: np.ndarray,
        parameters: np.ndarray | None = None,
    ) -> None:
        """Edges of one type and arity; shapes as in `EdgeSet`, lines (m,) ascending."""
        self._require_finite(measurement, lines, edge_type.tag)
        self._require_finite(information.reshape(len(information), -1), lines, edge_type.tag)
        if parameters is None:
            parameters = np.empty((len(vertices), 0), np.int64)
        self._edges.append(_EdgeRows(edge_type, vertices, measurement, information, lines, parameters))
        self.report.edges[edge_type.tag] += len(vertices)

    def _require_finite(self, values: np.ndarray, lines: np.ndarray, tag: str) -> None:
        """Refuse what decoding made of a division by zero or an overflow, such as a quaternion 0 0 0 0."""
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            raise FormatError(
                f"{self.path}:{lines[bad[0]]}: {tag}: the numbers stand for nothing finite (a zero "
                "quaternion, an overflow)"
            )

    def fix(self, ids: np.ndarray, lines: np.ndarray) -> None:
        """Vertices to hold constant, with the line that says so for each."""
        self._fixed.append((ids, lines))

    def keep_unparsed(self, lines: Sequence[tuple[int, str]]) -> None:
        """Lines (number, text) that no reader understands; they stay in the graph."""
        self._unparsed += lines
        self.report.unknown_tags.update(tag_of(text) for _, text in lines)

    @property
    def vertex_rows(self) -> list[_Rows]:
        """What was added, for those who make a graph of it themselves: no check has been made."""
        return self._vertices

    @property
    def parameter_rows(self) -> list[_Rows]:
        """Likewise."""
        return self._parameters

    def build(self) -> Graph:
        """Make the graph.

        Raises FormatError for ids used twice, missing vertices or parameters, wrong types.
        """
        graph = Graph()
        if self._vertices:
            for rows in self._distinct(self._vertices, "vertex"):
                graph.add_vertices(rows.type, rows.ids, rows.values, order=rows.lines + self._num_created)
        elif self._edges:
            self._create_vertices(graph)
        for rows in self._distinct(self._parameters, "parameter"):
            graph.add_parameters(rows.type, rows.ids, rows.values, order=rows.lines + self._num_created)
        for edges in self._merged_edges():
            self._add_edges(graph, edges)
        for ids, lines in self._fixed:
            self._fix(graph, ids, lines)
        graph.unparsed.extend(
            UnparsedLine(text=text, order=number + self._num_created, line_number=number)
            for number, text in sorted(self._unparsed, key=lambda pair: pair[0])
        )
        return graph

    def _fix(self, graph: Graph, ids: np.ndarray, lines: np.ndarray) -> None:
        """Fix vertices; those that do not exist are reported, those of an unknown type keep their line."""
        missing = graph.find_vertices(ids)[0] < 0
        graph.set_fixed(ids[~missing], True)
        if not missing.any():
            return
        unknown = {words[1] for _, text in self._unparsed if len(words := text.split(None, 2)) > 1}
        for id, line in zip(ids[missing].tolist(), lines[missing].tolist(), strict=True):
            if str(id) in unknown:
                why = "has an unknown type; the line is kept"
                self._unparsed.append((line, f"FIX {id}"))
            else:
                why = "does not exist; left out"
            self.report.warnings.append(f"line {line}: FIX: vertex {id} {why}")

    # -- vertices and parameters

    def _distinct(self, parts: list[_Rows], what: str) -> list[_Rows]:
        """One entry per type, lines ascending, no id twice."""
        merged = [
            _merge([part for part in parts if part.type is kind]) for kind in _unique(p.type for p in parts)
        ]
        ids = np.concatenate([rows.ids for rows in merged]) if merged else np.empty(0, np.int64)
        order = np.argsort(ids, kind="stable")
        repeated = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if len(repeated) == 0:
            return merged
        return self._without_copies(merged, ids, order, repeated, what)

    def _without_copies(
        self, merged: list[_Rows], ids: np.ndarray, order: np.ndarray, repeated: np.ndarray, what: str
    ) -> list[_Rows]:
        """Drop lines that repeat an earlier one exactly; refuse those that contradict it."""
        part_of = np.repeat(np.arange(len(merged)), [len(rows.ids) for rows in merged])
        first_row = np.cumsum([0] + [len(rows.ids) for rows in merged])
        keep = np.ones(len(ids), bool)
        for k in repeated:
            first, second = sorted(
                (order[k], order[k + 1]), key=lambda i: self._line(merged, part_of, first_row, i)
            )
            a, b = merged[part_of[first]], merged[part_of[second]]
            values_a, values_b = (
                a.values[first - first_row[part_of[first]]],
                b.values[second - first_row[part_of[second]]],
            )
            lines = [self._line(merged, part_of, first_row, i) for i in (first, second)]
            if a.type is not b.type or not np.array_equal(values_a, values_b):
                raise FormatError(
                    f"{self.path}:{lines[1]}: {b.type.tag}: {what} id {ids[first]} is used twice, first "
                    f"in line {lines[0]} "
                    f"({a.type.tag}), with different contents. Give one of them another id or delete it."
                )
            keep[second] = False
            self.report.warnings.append(
                f"line {lines[1]} repeats {what} {ids[first]} of line {lines[0]} exactly, left out"
            )
        split = np.split(keep, first_row[1:-1])
        for rows, kept in zip(merged, split, strict=True):
            counts = self.report.vertices if what == "vertex" else self.report.parameters
            counts[rows.type.tag] -= int((~kept).sum())
        return [
            _Rows(rows.type, rows.ids[kept], rows.values[kept], rows.lines[kept])
            for rows, kept in zip(merged, split, strict=True)
        ]

    @staticmethod
    def _line(merged: list[_Rows], part_of: np.ndarray, first_row: np.ndarray, i: Any) -> int:
        return int(merged[part_of[i]].lines[i - first_row[part_of[i]]])

    def _create_vertices(self, graph: Graph) -> None:
        """Vertices of a file that has only edges: each id gets the type its edges ask for."""
        ids = np.concatenate([edges.vertices.T.ravel() for edges in self._edges])
        lines = np.concatenate([np.tile(edges.lines, edges.vertices.shape[1]) for edges in self._edges])
        types = _unique(vertex for edges in self._edges for vertex in edges.type.vertices)
        kinds = np.concatenate(
            [
                np.repeat([types.index(vertex) for vertex in edges.type.vertices], len(edges.vertices))
                for edges in self._edges
            ]
        )
        order = np.argsort(ids, kind="stable")
        clash = np.flatnonzero((ids[order][1:] == ids[order][:-1]) & (kinds[order][1:] != kinds[order][:-1]))
        if len(clash):
            first, second = order[clash[0]], order[clash[0] + 1]
            raise FormatError(
                f"{self.path}:{lines[second]}: vertex {ids[second]} is a {types[kinds[second]].tag} here "
                f"but a {types[kinds[first]].tag} in line {lines[first]}"
            )
        created, where = np.unique(ids, return_index=True)
        self._num_created = len(created)
        order = np.arange(len(created))
        for kind, vertex_type in enumerate(types):
            mine = kinds[where] == kind
            graph.add_vertices(vertex_type, created[mine], order=order[mine])
            self.report.vertices[vertex_type.tag] += int(mine.sum())
        self.report.needs_initialization = True
        self.report.warnings.append(
            f"the file has no vertices: {len(created)} were created from the edges with identity estimates"
        )

    # -- edges

    def _merged_edges(self) -> list[_EdgeRows]:
        """Edges of one type and arity together, lines ascending (a type may come under several tags)."""
        merged = []
        for edge_type in _unique(edges.type for edges in self._edges):
            parts = [edges for edges in self._edges if edges.type is edge_type]
            if len(parts) == 1:
                merged += parts
                continue
            order = np.argsort(np.concatenate([part.lines for part in parts]), kind="stable")
            columns = ("vertices", "measurement", "information", "lines", "parameters")
            arrays = {
                name: np.concatenate([getattr(part, name) for part in parts])[order] for name in columns
            }
            merged.append(_EdgeRows(edge_type, **arrays))
        return merged

    def _add_edges(self, graph: Graph, edges: _EdgeRows) -> None:
        self._check_vertices(graph, edges)
        self._check_parameters(graph, edges)
        self._check_information(edges)
        graph.add_edges(
            edges.type,
            edges.vertices,
            edges.measurement,
            edges.information,
            parameters=edges.parameters if edges.parameters.shape[1] else None,
            order=edges.lines + self._num_created,
        )

    def _require(self, graph: Graph, ids: np.ndarray, lines: np.ndarray, tag: str) -> np.ndarray:
        """Set numbers of the vertices; raises FormatError at the first line that names a missing one."""
        set_numbers, _ = graph.find_vertices(ids)
        missing = np.flatnonzero(set_numbers < 0)
        if len(missing):
            k = missing[np.argmin(lines[missing])]
            raise FormatError(
                f"{self.path}:{lines[k]}: {tag}: vertex {ids[k]} does not exist"
                + (f" (and {len(missing) - 1} more such references)" if len(missing) > 1 else "")
            )
        return set_numbers

    def _check_vertices(self, graph: Graph, edges: _EdgeRows) -> None:
        vertices = edges.vertices
        columns = []
        for position, vertex_type in enumerate(edges.type.vertices):
            numbers = self._require(graph, vertices[:, position], edges.lines, edges.type.tag)
            wrong = np.flatnonzero(np.array([s.type is not vertex_type for s in graph.vertex_sets])[numbers])
            if len(wrong):
                k = wrong[0]
                raise FormatError(
                    f"{self.path}:{edges.lines[k]}: {edges.type.tag}: vertex {vertices[k, position]} is a "
                    f"{graph.vertex_sets[numbers[k]].type.tag}, expected a {vertex_type.tag}"
                )
            columns.append(vertices[:, position])
        for i in range(len(columns)):
            for j in range(i):
                same = np.flatnonzero(columns[i] == columns[j])
                if len(same):
                    raise FormatError(
                        f"{self.path}:{edges.lines[same[0]]}: {edges.type.tag}: the edge joins vertex "
                        f"{columns[i][same[0]]} to itself"
                    )

    def _check_parameters(self, graph: Graph, edges: _EdgeRows) -> None:
        for position, parameter_type in enumerate(edges.type.parameters):
            known = [s.ids for s in graph.parameter_sets if s.type is parameter_type]
            ids = edges.parameters[:, position]
            missing = np.flatnonzero(~np.isin(ids, np.concatenate(known) if known else []))
            if len(missing):
                k = missing[0]
                raise FormatError(
                    f"{self.path}:{edges.lines[k]}: {edges.type.tag}: parameter {ids[k]} does not exist, "
                    f"expected a line {parameter_type.tag} {ids[k]} ..."
                )

    def _check_information(self, edges: _EdgeRows) -> None:
        suspicious = np.flatnonzero(~_native.positive_definite(np.ascontiguousarray(edges.information)))
        if len(suspicious) == 0:
            return
        matrices = edges.information[suspicious]
        scale = np.abs(matrices).max(axis=(1, 2), keepdims=True)
        indefinite = np.linalg.eigvalsh(matrices / np.where(scale > 0.0, scale, 1.0))[:, 0] < -1e-9
        for mask, what in ((indefinite, "indefinite"), (~indefinite, "singular")):
            if mask.any():
                first = edges.lines[suspicious[mask][0]]
                self.report.warnings.append(
                    f"{edges.type.tag}: the information matrix is {what} in {int(mask.sum())} of "
                    f"{len(edges.lines)} edges, "
                    f"first in line {first}"
                )


def _unique(items) -> list:
    """Distinct objects in order of first appearance."""
    return list(dict.fromkeys(items))


def _merge(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.lines for part in parts]), kind="stable")
    ids, values, lines = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("ids", "values", "lines")
    )
    return _Rows(parts[0].type, ids, values, lines)
