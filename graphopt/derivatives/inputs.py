"""Which arrays of a graph are the inputs of a solve.

A name is the tag of a type and a column, as in "EDGE_SE2.measurement" or "EDGE_SE2_LOTSOFXY/3.measurement":

    TAG.measurement   (m, measurement_dim)     TAG.information   (m, d, d)     TAG.kernel_width   (m,)
    TAG.estimate      (n, storage_dim): of fixed vertices their value, of others where the solve starts
    TAG.values        (p, storage_dim): parameters
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, OptionError, ShapeError, UnknownIdError
from graphopt.graph import Graph, validate

COLUMNS = {
    "estimate": "vertex",
    "values": "parameter",
    "measurement": "edge",
    "information": "edge",
    "kernel_width": "edge",
}
"""Column -> what kind of set has it."""


@dataclass(frozen=True, eq=False)
class Input:
    """One array of a graph."""

    name: str
    column: str
    rows: Any
    """The set: `VertexSet`, `EdgeSet` or `ParameterSet`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return self.rows.look(self.column).shape

    def checked(self, values: Any) -> np.ndarray:
        """`values` as a float64 array of this input's shape, all finite; information symmetric."""
        array = self._numbers(values, self.shape)
        self._check(array)
        return array

    def checked_batch(self, values: Any, count: int) -> np.ndarray:
        """As `checked`, of `count` problems after one another: (count, ...) with a dimension for them."""
        rows, *row = self.shape
        array = self._numbers(values, (count * rows, *row)).reshape(count, rows, *row)
        is_symmetric = self.column != "information" or kernels.all_symmetric(array.reshape(-1, *row[-2:]))
        if not (is_symmetric and kernels.all_finite(array.reshape(count * rows, -1))):
            for problem in array:
                self._check(problem)
        return array

    def _numbers(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = np.asarray(values)
        if array.dtype.kind not in "fiu":
            raise ShapeError(f"{self.name} has dtype {array.dtype}, expected floating point numbers.")
        array = np.ascontiguousarray(array, np.float64)
        if array.shape != shape:
            raise ShapeError(f"{self.name} has shape {array.shape}, expected {shape}.")
        return array

    def _check(self, array: np.ndarray) -> None:
        names = self.rows.look("vertices" if self.column in ("measurement", "information") else "sequence")
        validate.check_finite(array.reshape(len(array), -1), 1, self.name, names)
        if self.column == "information":
            validate.check_symmetric(array, self.name, names)


def resolve(graph: Graph, names: Sequence[str]) -> list[Input]:
    """The arrays that are meant. Raises `OptionError` or `GraphError` for names that name none."""
    return [_resolved(graph, name) for name in names]


def _resolved(graph: Graph, name: str) -> Input:
    tag, dot, column = str(name).rpartition(".")
    if not dot or column not in COLUMNS:
        raise OptionError(
            f"input {name!r}: expected TAG.COLUMN, with a column of {', '.join(COLUMNS)}, such as "
            "'EDGE_SE2.measurement'."
        )
    tag, _, arity = tag.partition("/")
    try:
        if COLUMNS[column] == "vertex":
            rows: Any = graph.vertex_set(tag)
        elif COLUMNS[column] == "parameter":
            rows = graph.parameter_set(tag)
        else:
            rows = graph.edge_set(tag, int(arity) if arity else None)
    except (KeyError, GraphError) as error:
        raise UnknownIdError(f"input {name!r}: {error.args[0] if error.args else error}") from error
    if column == "values" and rows.type.image is not None:
        raise OptionError(f"input {name!r}: these parameters are images, which are no inputs of a gradient.")
    return Input(str(name), column, rows)


Numbers = Callable[[Any, str], np.ndarray]
"""(set, column) -> the array of all rows."""


def numbers_with(given: Mapping[Input, np.ndarray], estimates: Mapping[Any, np.ndarray]) -> Numbers:
    """These inputs, these estimates (by vertex set), and of all else the graph's."""
    known: dict[tuple[Any, str], np.ndarray] = {(one.rows, one.column): array for one, array in given.items()}
    known |= {(rows, "estimate"): array for rows, array in estimates.items()}

    def numbers(rows: Any, column: str) -> np.ndarray:
        found = known.get((rows, column))
        return rows.look(column) if found is None else found

    return numbers


@contextmanager
def holding(given: Mapping[Input, np.ndarray], estimates: Mapping[Any, np.ndarray]) -> Iterator[None]:
    """Within it the graph has these inputs and estimates (by vertex set); afterwards what it had."""
    requested = {**{(one.rows, one.column): array for one, array in given.items()}}
    requested |= {(rows, "estimate"): array for rows, array in estimates.items()}
    before = []
    for (rows, column), array in requested.items():
        if not np.array_equal(rows.look(column), array):
            before.append((rows, column, rows.look(column).copy()))
            setattr(rows, column, array)
    try:
        yield
    finally:
        for rows, column, array in before:
            setattr(rows, column, array)
