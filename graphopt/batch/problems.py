"""The numbers of every problem of a batch: which array of the graph differs from problem to problem.

A batch is one graph, whose structure all problems have, and arrays with a leading dimension of problems in
place of some of its own. Arrays are checked as a whole; errors name the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.batch.resident import on_host
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, ShapeError
from graphopt.foreign_arrays import host
from graphopt.geometry import quaternion
from graphopt.graph import EdgeSet, Graph, ParameterSet, VertexSet
from graphopt.types import registry
from graphopt.types.base import VariadicEdgeType

_SYMMETRY = 1e-9
"""Largest difference of an information matrix from its transpose, relative to its largest entry."""
_SETS = {VertexSet: "vertex_sets", EdgeSet: "edge_sets", ParameterSet: "parameter_sets"}


@dataclass(frozen=True)
class ProblemArrays:
    """What differs between the problems of a graph, by number of the set in the graph."""

    graph: Graph
    count: int
    estimates: Mapping[int, np.ndarray]
    """(B, n, storage_dim)."""
    measurements: Mapping[int, Any]
    """(B, m, measurement_dim); these and parameters may be `Resident`."""
    information: Mapping[int, np.ndarray]
    """(B, m, r, r), or (B, m, r): diagonals."""
    kernel_widths: Mapping[int, np.ndarray]
    """(B, m)."""
    parameters: Mapping[int, Any]
    """(B, p, storage_dim)."""
    masks: Mapping[int, np.ndarray]
    """(B, m) bool: the edges that a problem has."""

    def graph_of(self, problem: int) -> Graph:
        """One of the problems as a graph of its own, at its start."""
        made = self.graph.copy()
        for number, values in self.estimates.items():
            made.vertex_sets[number].estimate[...] = values[problem]
        for number, values in self.parameters.items():
            made.parameter_sets[number].values[...] = on_host(values)[problem]
        for name, arrays in (("measurement", self.measurements), ("kernel_width", self.kernel_widths)):
            for number, values in arrays.items():
                getattr(made.edge_sets[number], name)[...] = on_host(values)[problem]
        for number, values in self.information.items():
            one = values[problem]
            made.edge_sets[number].information[...] = (
                one if one.ndim == 3 else one[..., None] * np.eye(one.shape[-1])
            )
        for number, mask in self.masks.items():
            made.remove_edges(made.edge_sets[number], np.flatnonzero(~mask[problem]))
        return made

    def information_kind(self, number: int, rows: np.ndarray) -> str | None:
        """What the information matrices of some edges of a set all are; None: those of the graph count."""
        given = self.information.get(number)
        if given is None:
            return None
        chosen = given if len(rows) == given.shape[1] else np.ascontiguousarray(given[:, rows])
        if chosen.ndim == 3:
            return "identity" if bool((chosen == 1.0).all()) else "diagonal"
        return str(kernels.information_kind(chosen.reshape(-1, *chosen.shape[2:]), None))


def checked_problems(graph: Graph, given: Mapping[str, Any]) -> ProblemArrays:
    """Arrays of `optimize_batch` by argument and set, checked. Raises `ShapeError` and `GraphError`."""
    if not isinstance(graph, Graph):
        raise GraphError(
            f"optimize_batch got a {type(graph).__name__}, expected one Graph, whose structure all problems "
            "have; what differs goes into arrays of all problems (estimates, measurements, ...)."
        )
    reader = _Reader(graph)
    found = {
        argument: reader.read(
            argument, set_class, given.get(argument), shapes, bool if argument == "masks" else float
        )
        for argument, (set_class, shapes) in _ARGUMENTS.items()
    }
    if reader.count is None:
        raise ShapeError(
            "optimize_batch got no array of problems: pass estimates, measurements, information, "
            "kernel_widths, parameters or masks with a leading dimension of problems."
        )
    if reader.count == 0:
        raise ShapeError("optimize_batch got arrays of 0 problems, expected 1 or more.")
    return ProblemArrays(graph, reader.count, **_normalised(graph, found))


def _shapes_of_information(kind: Any) -> list[tuple[int, ...]]:
    dim = kind.residual_dim
    return [(dim, dim), (dim,)]


_ARGUMENTS: Mapping[str, tuple[type, Callable[[Any], list[tuple[int, ...]]]]] = {
    "estimates": (VertexSet, lambda kind: [(kind.storage_dim,)]),
    "measurements": (EdgeSet, lambda kind: [(kind.measurement_dim,)]),
    "information": (EdgeSet, _shapes_of_information),
    "kernel_widths": (EdgeSet, lambda kind: [()]),
    "parameters": (ParameterSet, lambda kind: [(kind.storage_dim,)]),
    "masks": (EdgeSet, lambda kind: [()]),
}
"""Of `optimize_batch`: what its keys name, and the shapes that one row may have."""


class _Reader:
    """Reads arrays; all must have the same number of problems."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self.count: int | None = None
        self._first = ""

    def read(
        self,
        argument: str,
        set_class: type,
        given: Mapping[Any, Any] | None,
        shapes: Any,
        dtype: type = float,
    ) -> dict[int, np.ndarray]:
        """Arrays of one argument by number of the set."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise ShapeError(
                f"{argument} is {type(given).__name__}, expected a dict: type, tag or set -> array of all "
                "problems."
            )
        found: dict[int, np.ndarray] = {}
        for key, values in given.items():
            number, rows = _found_set(self._graph, set_class, key, argument)
            tag = rows.type.tag
            if number in found:
                raise GraphError(f"{argument}: {tag} is given twice.")
            found[number] = self._array(f"{argument}['{tag}']", values, len(rows), shapes(rows.type), dtype)
        return found

    def _array(
        self, what: str, values: Any, num_rows: int, shapes: list[tuple[int, ...]], dtype: type
    ) -> np.ndarray:
        try:
            array = np.asarray(host(values, what))
            if array.dtype.kind not in ("b" if dtype is bool else "fiu"):
                raise TypeError(f"an array of {array.dtype}")
            array = np.ascontiguousarray(array, dtype)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"{what} cannot be read as {np.dtype(dtype)}: {error}.") from None
        for shape in shapes:
            if array.shape[1:] == (num_rows, *shape):
                break
            if num_rows == 1 and array.ndim >= 1 and array.shape[1:] == shape:
                array = array[:, None]
                break
        else:
            expected = " or ".join(
                "(" + ", ".join(["problems", str(num_rows), *map(str, shape)]) + ")" for shape in shapes
            )
            raise ShapeError(f"{what} has shape {array.shape}, expected {expected}.")
        if self.count is None:
            self.count, self._first = len(array), what
        elif len(array) != self.count:
            raise ShapeError(f"{what} has {len(array)} problems, {self._first} has {self.count}.")
        return array


def _found_set(graph: Graph, set_class: type, key: Any, argument: str) -> tuple[int, Any]:
    """Number and set that a key names: the set itself, its type, tag or name."""
    sets = getattr(graph, _SETS[set_class])
    for number, one in enumerate(sets):
        if one is key or one.type is key:
            return number, one
    if isinstance(key, (str, VariadicEdgeType)):
        look = {VertexSet: "vertex_type", EdgeSet: "edge_type", ParameterSet: "parameter_type"}[set_class]
        kind: Any = getattr(registry, look)(key)
        same = [
            (number, one)
            for number, one in enumerate(sets)
            if one.type is kind or (isinstance(kind, VariadicEdgeType) and one.type.tag == kind.tag)
        ]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise GraphError(
                f"{argument}: the graph has edges {kind.tag} of {len(same)} arities; name the set, such as "
                f"graph.edge_sets[{same[0][0]}]."
            )
        key = kind
    known = ", ".join(one.type.tag for one in sets) or "none"
    name = getattr(key, "tag", None) or getattr(getattr(key, "type", None), "tag", None) or repr(key)
    raise GraphError(f"{argument}: the graph has no {name}; it has {known}.")


def _normalised(graph: Graph, found: dict[str, dict[int, np.ndarray]]) -> dict[str, dict[int, np.ndarray]]:
    """Quaternions of unit length, as a graph takes them; what no graph would take is refused."""
    for argument, sets, wrap in (
        ("estimates", graph.vertex_sets, "wrap"),
        ("measurements", graph.edge_sets, "wrap_measurement"),
        ("parameters", graph.parameter_sets, "wrap"),
    ):
        for number, array in found[argument].items():
            kind = sets[number].type
            found[argument][number] = _unit(array, getattr(kind, wrap), f"{argument}['{kind.tag}']")
    for number, array in found["information"].items():
        if array.ndim == 4:
            _check_symmetric(array, f"information['{graph.edge_sets[number].type.tag}']")
    for number, array in found["kernel_widths"].items():
        bad = ~(array > 0.0) | np.isinf(array)
        if bad.any():
            problem, row = np.argwhere(bad)[0].tolist()
            raise GraphError(
                f"kernel_widths['{graph.edge_sets[number].type.tag}'] of problem {problem}, row {row} is "
                f"{array[problem, row]}, expected a positive number."
            )
    return found


def _unit(array: np.ndarray, wrap: object, what: str) -> np.ndarray:
    """NaN and infinity stay: they fail their problem alone."""
    for first in getattr(wrap, "quaternions", ()):
        q = array[..., first : first + 4]
        if quaternion.stay_as_they_are(q):
            continue
        finite = np.asarray(np.isfinite(q).all(axis=-1))
        bad = finite & ~quaternion.has_direction(q)
        if bad.any():
            problem, row = np.argwhere(bad)[0].tolist()
            raise GraphError(
                f"{what} of problem {problem}, row {row} has the quaternion {q[problem, row].tolist()}, "
                "which is no rotation; expected qx, qy, qz, qw of length 1, (0, 0, 0, 1) for none."
            )
        with np.errstate(invalid="ignore"):
            unit = np.where(finite[..., None], quaternion.nearly_unit(q), q)
        if not np.array_equal(unit, q, equal_nan=True):
            array = array.copy()
            array[..., first : first + 4] = unit
    return array


def _check_symmetric(array: np.ndarray, what: str) -> None:
    flat = array.reshape(-1, *array.shape[2:])
    if array.shape[-1] == 1 or kernels.all_symmetric(flat):
        return
    with np.errstate(invalid="ignore"):
        gap = np.abs(array - array.swapaxes(-1, -2)).max(axis=(-1, -2))
        bad = np.asarray(gap > _SYMMETRY * np.abs(array).max(axis=(-1, -2)))
    if bad.any():
        problem, row = np.argwhere(bad)[0].tolist()
        raise GraphError(
            f"{what} of problem {problem}, row {row} is not symmetric (largest difference "
            f"{gap[problem, row]:.3g}). Pass (Omega + Omega.T) / 2 if that is what you mean."
        )
