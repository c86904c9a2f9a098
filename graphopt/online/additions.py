"""Vertices and edges for an update, as `Graph.add_vertices` and `Graph.add_edges` take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels as native
from graphopt.errors import GraphError, ShapeError
from graphopt.graph import validate
from graphopt.graph.arguments import (
    checked_flags,
    checked_ids,
    checked_parameter_ids,
    edge_type_and_vertices,
    kernel_numbers,
    kernel_widths,
    neutral_measurement,
    resolved_vertex_type,
)
from graphopt.strategies.quantiles import chi2_quantile
from graphopt.types.base import EdgeType, VertexType

_QUANTILE = 0.99
"""Of chi2, that a right closure stays below."""
_NO_WIDTH = 1.0
"""Width of a kernel that nobody has given."""


@dataclass(frozen=True)
class Vertices:
    """Vertices of one type to add."""

    type: VertexType | str
    """Type, tag or class name."""
    ids: Any
    """(n,) integers."""
    estimates: Any = None
    """(n, storage_dim), one that all share, or None for the type's identity."""
    fixed: Any = False
    """(n,) bool, or one."""

    def checked(self) -> tuple[VertexType, np.ndarray, np.ndarray, np.ndarray]:
        """Type, ids (n,), estimates (n, storage_dim), fixed (n,). Raises `GraphError` or `ShapeError`."""
        kind = resolved_vertex_type(self.type)
        ids = checked_ids(self.ids, kind.tag)
        estimates = kind.identity if self.estimates is None else self.estimates
        estimates = validate.as_rows(estimates, len(ids), (kind.storage_dim,), f"{kind.tag} estimates")
        estimates = _spread(estimates, (len(ids), kind.storage_dim))
        validate.check_finite(estimates, 1, f"{kind.tag} estimate", ids)
        estimates = validate.with_unit_quaternions(estimates, kind.wrap, f"{kind.tag} estimate", ids)
        if self.fixed is False:
            return kind, np.ascontiguousarray(ids), estimates, np.zeros(len(ids), bool)
        fixed = _spread(checked_flags(self.fixed, len(ids), "fixed"), (len(ids),))
        return kind, np.ascontiguousarray(ids), estimates, np.ascontiguousarray(fixed)


@dataclass(frozen=True)
class CheckedEdges:
    """Arrays of edges of one type."""

    type: EdgeType
    vertices: np.ndarray
    """(m, arity) int64 ids."""
    variant: str
    """What information matrices are: "identity", "diagonal" or "full"."""
    rows: np.ndarray
    """(m, k): measurement, then the entries of the information matrix that the variant has."""
    kernels: np.ndarray | None
    """(m,) numbers of robust kernels; None: there are none."""
    widths: np.ndarray | None
    """(m,); None: there are no kernels."""
    parameters: np.ndarray
    """(m, num_parameters) ids."""
    bounds: np.ndarray | None = None
    """(m,) of chi2 of edges that may be wrong, 0 for those that are trusted; None: all are."""


@dataclass(frozen=True)
class Edges:
    """Edges of one type to add."""

    type: Any
    """Type, tag or class name."""
    vertices: Any
    """(m, arity) ids."""
    measurements: Any = None
    """(m, measurement_dim), one that all share, or None for zeros (of a group: its neutral element)."""
    information: Any = None
    """(m, d, d), one (d, d) that all share, or None for the identity."""
    kernel: Any = None
    """Name or number of a robust kernel for all, or (m,) numbers."""
    kernel_width: Any = _NO_WIDTH
    """One number or (m,)."""
    parameters: Any = None
    """(m, num_parameters) ids, or one per slot that all share."""
    closure: Any = False
    """(m,) bool, or one: the edge may be wrong. It then counts at most c^2, c the width of its kernel
    (which it has no more), or without one c^2 the 99 % quantile of chi2."""

    def checked(self, kernels_are_bounds: bool = False) -> CheckedEdges:
        """The arrays. Raises `GraphError` or `ShapeError` naming the row.

        kernels_are_bounds: edges with a robust kernel may be wrong, as closures.
        """
        kind, vertices = edge_type_and_vertices(self.type, self.vertices)
        tag, count = kind.tag, len(vertices)
        if kind.is_external:
            raise GraphError(
                f"{tag} is evaluated by a program outside of graphopt; Online needs a residual that it can "
                "compile."
            )
        information, variant, rows = self._packed(kind, vertices)
        kernels = widths = None
        if self.kernel is not None or self.kernel_width is not _NO_WIDTH:
            kernels = _spread(kernel_numbers(self.kernel, count), (count,))
            widths = _spread(kernel_widths(self.kernel_width, count), (count,))
        parameters = checked_parameter_ids(self.parameters, count, kind)
        checked = CheckedEdges(kind, vertices, variant, rows, kernels, widths, parameters)
        if self.closure is False and (kernels is None or not kernels_are_bounds):
            return checked
        return self._bounded(checked, information, kernels_are_bounds)

    def _packed(self, kind: EdgeType, vertices: np.ndarray) -> tuple[np.ndarray | None, str, np.ndarray]:
        """Information, its variant, and rows; what is wrong is refused with its row."""
        tag, count, dim = kind.tag, len(vertices), kind.residual_dim
        measurements = neutral_measurement(kind) if self.measurements is None else self.measurements
        measurements = validate.as_rows(measurements, count, (kind.measurement_dim,), f"{tag} measurements")
        measurements = np.ascontiguousarray(measurements)
        information = self.information
        if information is not None:
            information = validate.as_rows(information, count, (dim, dim), f"{tag} information")
            information = np.ascontiguousarray(information)
        quaternions = getattr(kind.wrap_measurement, "quaternions", ())
        is_plain, variant, rows = native.pack_edges(measurements, information, count, quaternions)
        if is_plain:
            return information, variant, rows
        validate.check_finite(measurements, 1, f"{tag} measurement", vertices)
        measurements = validate.with_unit_quaternions(
            measurements, kind.wrap_measurement, f"{tag} measurement", vertices
        )
        if information is not None:
            validate.check_finite(information, 2, f"{tag} information", vertices)
            matrices = information if information.ndim == 3 else information[None]
            validate.check_symmetric(matrices, f"{tag} information", vertices)
        return information, *native.pack_edges(measurements, information, count, quaternions)[1:]

    def _bounded(
        self, checked: CheckedEdges, information: np.ndarray | None, kernels_are_bounds: bool
    ) -> CheckedEdges:
        """With bounds instead of kernels for those that may be wrong."""
        kind, count, kernels = checked.type, len(checked.vertices), checked.kernels
        may_be_wrong = _spread(checked_flags(self.closure, count, "closure"), (count,))
        if kernels is not None and kernels_are_bounds:
            may_be_wrong = may_be_wrong | (kernels != 0)
        if not may_be_wrong.any():
            return checked
        if information is not None:
            information = _spread(information, (count, *information.shape[-2:]))
            _refuse_indefinite(kind.tag, information[may_be_wrong], checked.vertices[may_be_wrong])
        bounds = np.where(may_be_wrong, chi2_quantile(_QUANTILE, kind.residual_dim), 0.0)
        if kernels is not None and checked.widths is not None:
            bounds = np.where(may_be_wrong & (kernels != 0), checked.widths**2, bounds)
            kernels = np.where(may_be_wrong, 0, kernels)
        return replace(checked, kernels=kernels, bounds=bounds)


def _refuse_indefinite(tag: str, information: np.ndarray, vertices: np.ndarray) -> None:
    """`GraphError` where chi2 of an edge that may be wrong can be negative: it would pass for right."""
    found = validate.indefinite_rows(information)
    if len(found):
        ids = ", ".join(map(str, vertices[found[0]].tolist()))
        raise GraphError(
            f"{tag} between vertices {ids} may be wrong, but its information matrix is indefinite: its chi2 "
            "can be negative, which does not tell right from wrong. Make the matrix positive semi-definite, "
            "or add the edge without closure=True."
        )


def _spread(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return values if values.shape == shape else np.broadcast_to(values, shape)


def as_vertices(given: Any) -> list[Vertices]:
    """What `Online.update` takes as `vertices`: one `Vertices` or tuple of its fields, or several."""
    return _listed(given, Vertices, "vertices")


def as_edges(given: Any) -> list[Edges]:
    """What `Online.update` takes as `edges`."""
    return _listed(given, Edges, "edges")


def _listed(given: Any, kind: Any, what: str) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, kind):
        return [given]
    if isinstance(given, tuple) and given and isinstance(given[0], (str, VertexType, EdgeType)):
        return [kind(*given)]
    found = []
    for one in given:
        if isinstance(one, kind):
            found.append(one)
        elif isinstance(one, tuple):
            found.append(kind(*one))
        else:
            raise ShapeError(
                f"{what} hold {type(one).__name__}, expected {kind.__name__} or a tuple of its fields."
            )
    return found
