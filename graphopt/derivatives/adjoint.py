"""Passes that carry a cotangent from the optimum back to what it was computed from.

With the optimum's Hessian K and the gradient g(x, inputs), which vanishes there,

    d x / d input = -inv(K) dg / d input,     v' dx / d input = -d (lambda' g) / d input,    K lambda = v
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.codegen.second_order import (
    ADJOINT_INPUTS,
    compile_adjoint,
    compile_pullback,
    stored_edge_type,
)
from graphopt.cpu_kernels import kernels
from graphopt.derivatives.inputs import Input, Numbers
from graphopt.graph import Graph
from graphopt.problem.structure import EdgeGroup, Structure

_EDGES_AT_ONCE = 1 << 15
"""What a pass needs beside its results stays small."""


def pulled_back(structure: Structure, cotangents: Mapping[Any, np.ndarray], numbers: Numbers) -> np.ndarray:
    """v (dim,): cotangents of estimates (n, storage_dim), by vertex set, in the tangent spaces of oplus."""
    v = np.zeros(structure.dim)
    for vertex_set, offsets in zip(structure.selection.vertex_sets, structure.vertex_offsets, strict=True):
        cotangent = cotangents.get(vertex_set)
        if cotangent is None:
            continue
        rows = np.flatnonzero(offsets >= 0)
        program = compile_pullback(vertex_set.type)
        estimate = numbers(vertex_set, "estimate")
        found = program.run(np.concatenate([estimate[rows], cotangent[rows]], axis=1))
        v[(offsets[rows, None] + np.arange(vertex_set.type.tangent_dim)).ravel()] = found.ravel()
    return v


class AdjointPass:
    """One pass over the edges: derivatives of -lambda' g by the inputs."""

    def __init__(self, graph: Graph, structure: Structure, lambda_: np.ndarray, numbers: Numbers):
        self._graph, self._structure, self._numbers = graph, structure, numbers
        self._tables = [
            _beside(numbers(vertex_set, "estimate"), vertex_set.type.tangent_dim, offsets, lambda_)
            for vertex_set, offsets in zip(
                structure.selection.vertex_sets, structure.vertex_offsets, strict=True
            )
        ]

    def gradients(
        self, inputs: Sequence[Input], cotangents: Mapping[Any, np.ndarray]
    ) -> dict[Input, np.ndarray]:
        """By input an array of its shape; cotangents: of the estimates of vertices that stay."""
        found = {one: np.zeros(one.shape) for one in inputs}
        for number, vertex_set in enumerate(self._structure.selection.vertex_sets):
            for one in inputs:
                if one.rows is vertex_set and vertex_set in cotangents:
                    stays = self._stays(number)
                    found[one][stays] = cotangents[vertex_set][stays]
        for group in self._structure.groups:
            self._add_data(group, {one.column: found[one] for one in inputs if one.rows is group.edge_set})
            self._add_values(group, {one.rows: found[one] for one in inputs if one.column == "values"})
            self._add_fixed(group, {one.rows: found[one] for one in inputs if one.column == "estimate"})
        return found

    def _stays(self, number: int) -> np.ndarray:
        """(n,) bool: vertices of a set that are not optimized."""
        return self._structure.vertex_offsets[number] < 0

    def _add_data(self, group: EdgeGroup, found: Mapping[str, np.ndarray]) -> None:
        """Of the edges' own numbers."""
        requested = tuple(kind for kind in ADJOINT_INPUTS if kind in found)
        if not requested:
            return
        kind = group.edge_set.type
        for part, outputs in self._run(group, requested):
            outputs *= -1.0
            rows = part if group.chosen_rows is None else group.rows[part]
            for column, taken in _columns(kind, requested, outputs).items():
                if column == "information":
                    found[column][rows] = _symmetric(taken, kind.residual_dim)
                else:
                    found[column][rows] = taken.reshape(len(taken), *found[column].shape[1:])

    def _add_values(self, group: EdgeGroup, found: Mapping[Any, np.ndarray]) -> None:
        """Of the parameters, which edges share."""
        sets = self._graph.parameter_sets
        if not any(sets[number] in found for number in group.parameter_sets):
            return
        for part, outputs in self._run(group, ("values",)):
            first = 0
            for slot, number in enumerate(group.parameter_sets):
                last = first + sets[number].type.storage_dim
                if sets[number] in found:
                    rows = group.parameter_rows[part, slot]
                    np.subtract.at(found[sets[number]], rows, outputs[:, first:last])
                first = last

    def _add_fixed(self, group: EdgeGroup, found: Mapping[Any, np.ndarray]) -> None:
        """Of vertices that are not optimized."""
        if not found:
            return
        sets = self._structure.selection.vertex_sets
        fixed = [
            self._stays(number)[group.vertex_rows[:, slot]] & (sets[number] in found)
            for slot, number in enumerate(group.vertex_sets)
        ]
        chosen = np.flatnonzero(np.logical_or.reduce(fixed))
        if not len(chosen):
            return
        for part, outputs in self._run(group, ("estimate",), chosen):
            first = 0
            for slot, number in enumerate(group.vertex_sets):
                last = first + sets[number].type.storage_dim
                taken = fixed[slot][part]
                rows = group.vertex_rows[part, slot][taken]
                if len(rows):
                    np.subtract.at(found[sets[number]], rows, outputs[taken, first:last])
                first = last

    def _run(
        self, group: EdgeGroup, requested: tuple[str, ...], chosen: np.ndarray | None = None
    ) -> Iterator[tuple[Any, np.ndarray]]:
        """(edges of the group, outputs of the adjoint program), some edges at a time.

        chosen: edges of the group, None: all, by slices.
        """
        program = compile_adjoint(stored_edge_type(group.edge_set.type), group.kernel, requested)
        parameters = [
            np.ascontiguousarray(self._numbers(self._graph.parameter_sets[number], "values"))
            for number in group.parameter_sets
        ]
        data, rows = _data_of(group, self._numbers), group.chosen_rows
        for first in range(0, len(group.rows) if chosen is None else len(chosen), _EDGES_AT_ONCE):
            few = slice(first, first + _EDGES_AT_ONCE)
            part = few if chosen is None else chosen[few]
            whole = rows is None and chosen is None
            outputs = kernels.edge_outputs(
                program.native,
                [self._tables[number] for number in group.vertex_sets],
                np.ascontiguousarray(group.vertex_rows[part]),
                parameters,
                np.ascontiguousarray(group.parameter_rows[part]),
                [(array[few] if whole else array, columns) for array, columns in data],
                None if whole else np.ascontiguousarray(group.rows[part], np.int64),
            )
            yield part, outputs


def _data_of(group: EdgeGroup, numbers: Numbers) -> list[tuple[np.ndarray, list[int]]]:
    """Arrays of the edge set (n, k), and which columns of them the adjoint program takes."""
    own, dim = group.edge_set, group.edge_set.type.residual_dim
    columns = {
        "measurement": list(range(own.type.measurement_dim)),
        "kernel_width": [0],
        "information": codegen.information_columns(dim, "full"),
    }
    return [(numbers(own, name).reshape(len(own), -1), taken) for name, taken in columns.items() if taken]


def _beside(estimate: np.ndarray, dim: int, offsets: np.ndarray, lambda_: np.ndarray) -> np.ndarray:
    """(n, storage_dim + tangent_dim): estimates, and lambda, 0 where a vertex is not optimized."""
    own = np.zeros((len(offsets), dim))
    rows = np.flatnonzero(offsets >= 0)
    own[rows] = lambda_[offsets[rows, None] + np.arange(dim)]
    return np.concatenate([estimate, own], axis=1)


def _columns(kind: Any, requested: tuple[str, ...], outputs: np.ndarray) -> dict[str, np.ndarray]:
    dim = kind.residual_dim
    sizes = {"measurement": kind.measurement_dim, "kernel_width": 1, "information": dim * (dim + 1) // 2}
    ends = np.cumsum([sizes[column] for column in requested])
    return dict(zip(requested, np.split(outputs, ends[:-1], axis=1), strict=True))


def _symmetric(packed: np.ndarray, dim: int) -> np.ndarray:
    """(m, dim, dim) of upper triangles in which an entry counts for both of its places."""
    rows, columns = np.triu_indices(dim)
    full = np.zeros((len(packed), dim, dim))
    full[:, rows, columns] = 0.5 * packed
    return full + full.transpose(0, 2, 1)
