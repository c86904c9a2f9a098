"""Checks of what is added to a graph. Each error names the row, the id, what was got and what was expected.

All checks run before anything is added, so a failing call leaves the graph as it was. They work on whole
arrays, in chunks that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, ShapeError
from graphopt.foreign_arrays import Needs, host, kept
from graphopt.geometry import quaternion
from graphopt.graph.columns import Elsewhere, distinct_rows

_CHUNK = 1 << 14  # rows per chunk
_INDEFINITE = 1e-9  # smallest over largest eigenvalue of an information matrix below minus this
_SYMMETRY_TOLERANCE = 1e-9  # relative to the largest entry of an information matrix


def as_ids(values: object, what: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """`values` as an int64 array; whole numbers only."""
    array = np.asarray(host(values, what))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype == object or array.dtype.kind == "b" or array.dtype.kind not in "iu":
        as_int = _whole_numbers(array)
        if as_int is None:
            raise ShapeError(f"{what} must be integers of 64 bits, got an array of {array.dtype}.")
        array = as_int
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise GraphError(f"{what} hold {int(array.max())}, which does not fit a signed 64-bit integer.")
    array = array.astype(np.int64, copy=False)
    if shape is not None and array.shape != shape:
        raise ShapeError(f"{what} have shape {array.shape}, expected {shape}.")
    return array


def _whole_numbers(array: np.ndarray) -> np.ndarray | None:
    """Floats and Python integers that are whole numbers as int64, else None."""
    if array.dtype.kind not in "fO":
        return None
    try:
        as_int = array.astype(np.int64)
        return as_int if bool(np.all(as_int == array)) else None
    except (OverflowError, TypeError, ValueError):
        return None


def as_rows(values: object, num_rows: int, shape: tuple[int, ...], what: str) -> np.ndarray:
    """`values` as float64 of shape (num_rows, *shape), or `shape` for one value that all rows share."""
    values = host(values, what)
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c" or np.ma.is_masked(values):
            kind = "complex" if array.dtype.kind == "c" else "masked"
            raise ShapeError(f"{what} hold {kind} numbers, expected real ones (float64).")
        array = array.astype(np.float64, copy=False)
    except ShapeError:
        raise
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what} cannot be read as float64: {error}.") from None
    if shape == (1,) and array.ndim < 2 and array.shape != (1,):
        array = array[..., None]
    if shape == (1, 1) and array.ndim < 2:
        array = array[..., None, None]
    if array.shape not in ((num_rows, *shape), shape):
        way_out = " Of standard deviations: np.diag(1 / sigma**2)." if what.endswith("information") else ""
        raise ShapeError(
            f"{what} have shape {array.shape}, expected {(num_rows, *shape)}, "
            f"or {shape} for one value that all share.{way_out}"
        )
    return array


def taken_rows(
    values: object, num_rows: int, shape: tuple[int, ...], what: str, wrap: object = None
) -> np.ndarray | Elsewhere:
    """As `as_rows`; numbers of a CUDA device that need no change (`checked_rows`) may stay there."""
    needs = Needs(tuple(getattr(wrap, "quaternions", ())), is_symmetric=len(shape) == 2)
    there = kept(values, (num_rows, *shape), needs, what)
    return as_rows(values, num_rows, shape, what) if there is None else there


def checked_rows(
    rows: np.ndarray | Elsewhere, num_shared: int, what: str, names: np.ndarray, wrap: object = None
) -> np.ndarray | Elsewhere:
    """Rows that a set takes: finite, quaternions of unit length (`wrap`), matrices symmetric.

    what: of one row, "EDGE_SE2 measurement". num_shared, names: as of `check_finite`.
    """
    if not isinstance(rows, np.ndarray):
        return rows  # its device has looked
    has_names = names.ndim == 2 or rows.ndim > num_shared  # one row for all is no vertex's
    check_finite(rows, num_shared, what, names if has_names else None)
    if num_shared == 2:
        check_symmetric(rows, what, names)
        return rows
    return with_unit_quaternions(rows, wrap, what, names)


def _chunks(array: np.ndarray, num_shared: int) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) pieces; an array of `num_shared` dimensions is one row."""
    rows = array[None] if array.ndim == num_shared else array
    for first in range(0, len(rows), _CHUNK):
        yield first, rows[first : first + _CHUNK]


def check_finite(array: np.ndarray, num_shared: int, what: str, names: np.ndarray | None = None) -> None:
    """Refuse NaN and infinity. `num_shared` is the dimension of one row; `names[row]` names it."""
    array = distinct_rows(array)
    if kernels.all_finite(array):
        return
    for first, rows in _chunks(array, num_shared):
        if np.isfinite(rows).all():
            continue
        bad = first + int(np.argmax(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)))
        value = rows[bad - first].ravel()
        shown = value[~np.isfinite(value)][0]
        name = "" if names is None else f" ({_name(names, bad)})"
        raise GraphError(f"{what} of row {bad}{name} holds {shown}; every number must be finite.")


def with_unit_quaternions(
    array: np.ndarray, wrap: object, what: str, names: np.ndarray | None = None
) -> np.ndarray:
    """Stored numbers (n, dim) or (dim,) as files are read: quaternions far from unit length are scaled.

    Those within 1e-3 of it keep their digits (`quaternion.nearly_unit`). `wrap` is what a residual sees of
    the numbers; its `quaternions` says where they are. Raises `GraphError` for one that has no direction.
    """
    for first in getattr(wrap, "quaternions", ()):
        if array.flags.c_contiguous and kernels.all_nearly_unit(array, first):
            continue
        q = array[..., first : first + 4]
        bad = np.flatnonzero(~quaternion.has_direction(q))
        if len(bad):
            name = "" if names is None or array.ndim == 1 else f" ({_name(names, int(bad[0]))})"
            raise GraphError(
                f"{what} of row {bad[0]}{name} has the quaternion {q.reshape(-1, 4)[bad[0]].tolist()}, which "
                "is no rotation; expected qx, qy, qz, qw of length 1, (0, 0, 0, 1) for none."
            )
        unit = quaternion.nearly_unit(q)
        if not np.array_equal(unit, q):
            array = array.copy()
            array[..., first : first + 4] = unit
    return array


def check_symmetric(information: np.ndarray, what: str, names: np.ndarray | None = None) -> None:
    """Refuse information matrices that are not symmetric."""
    information = distinct_rows(information)
    if information.shape[-1] == 1 or kernels.all_symmetric(information):
        return
    for first, rows in _chunks(information, 2):
        transposed = rows.transpose(0, 2, 1)
        if np.array_equal(rows, transposed):
            continue
        size = np.abs(rows).max(axis=(1, 2))
        asymmetric = np.abs(rows - transposed).max(axis=(1, 2)) > _SYMMETRY_TOLERANCE * size
        if asymmetric.any():
            bad = int(np.argmax(asymmetric))
            name = "" if names is None else f" ({_name(names, first + bad)})"
            gap = np.abs(rows[bad] - rows[bad].T).max()
            raise GraphError(
                f"{what} of row {first + bad}{name} is not symmetric (largest difference {gap:.3g}). "
                "Pass (Omega + Omega.T) / 2 if that is what you mean."
            )


def indefinite_rows(information: np.ndarray) -> np.ndarray:
    """Rows of information matrices (m, d, d) with which chi2 can be negative beyond rounding."""
    eigenvalues = np.linalg.eigvalsh(information)
    return np.flatnonzero(eigenvalues[:, 0] < -_INDEFINITE * np.abs(eigenvalues).max(axis=1))


def _name(names: np.ndarray, row: int) -> str:
    value = names[row]
    if np.ndim(value) == 0:
        return f"id {int(value)}"
    return "vertices " + ", ".join(str(int(id_)) for id_ in value)


def check_distinct(ids: np.ndarray, what: str) -> None:
    """Refuse an id that occurs twice in one call."""
    if len(ids) < 2 or bool(np.all(ids[1:] > ids[:-1])):
        return
    order = np.argsort(ids, kind="stable")
    repeated = ids[order[1:]] == ids[order[:-1]]
    if repeated.any():
        place = int(np.argmax(repeated))
        first, second = int(order[place]), int(order[place + 1])
        raise GraphError(f"{what} {int(ids[first])} is given twice, in rows {first} and {second}.")


def check_no_loops(vertices: np.ndarray, tag: str) -> None:
    """Refuse an edge that names a vertex twice, as g2o's `addEdge` does: its Hessian blocks would overlap."""
    for i in range(vertices.shape[1]):
        for j in range(i + 1, vertices.shape[1]):
            same = vertices[:, i] == vertices[:, j]
            if same.any():
                row = int(np.argmax(same))
                raise GraphError(
                    f"{tag} of row {row} names vertex {int(vertices[row, i])} twice (slots {i} and {j}). "
                    "An edge must join different vertices."
                )
