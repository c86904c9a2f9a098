"""Layouts: the numbers of a line of a .g2o file, for all lines of one type at once.

    vertex, parameter   TAG id <tokens>
    edge                TAG vertex ids, parameter ids, <tokens>
    edge of any arity   TAG n, n vertex ids, <tokens>     g2opy; the tokens hold counts of their own
                        TAG vertex ids || <tokens>        C++ g2o

A layout turns the tokens (n, num_tokens) into stored numbers and back. Ids are not part of it. `alternatives`
are other layouts of the same tag that files hold; no two of them have the same number of tokens, so the
number of tokens on a line chooses. g2o 2.x itself ignores tokens after those it expects, so a longer
alternative that starts with the standard tokens loads there too.

The standard edge layout is the measurement, then the upper triangle of the information matrix row by row. A
line that ends after the measurement has no information part: then the matrix is the identity, as in g2o 1.x
(g2o 2.x refuses the line).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

Array = Any

_ROUNDING = 1e-9
"""Difference of computed tokens that is no loss."""


_Layout = TypeVar("_Layout", bound="_File")


class _File:
    """A layout and its alternatives."""

    num_tokens: int
    alternatives: tuple[Any, ...]

    @property
    def token_counts(self) -> tuple[int, ...]:
        """Numbers of tokens that a line may have."""
        return (self.num_tokens, *(other.num_tokens for other in self.alternatives))

    def for_tokens(self: _Layout, count: int) -> _Layout | None:
        """Layout of a line with this many tokens, None if there is none."""
        layouts = (self, *self.alternatives)
        return next((layout for layout in layouts if layout.num_tokens == count), None)


@dataclass(frozen=True, eq=False)
class VertexFile(_File):
    """Layout of a vertex or a parameter."""

    num_tokens: int
    decode: Callable[[Array], Array]
    """(n, num_tokens) -> (n, storage_dim)."""
    encode: Callable[[Array], Array]
    """(n, storage_dim) -> (n, num_tokens)."""
    alternatives: tuple[VertexFile, ...] = ()
    rounds: bool = False
    """The tokens are computed (a logarithm), not picked."""
    loses: str = ""
    """What of the line the stored numbers have no room for; such a layout is read, not written."""

    def lossless(self, storage: Array) -> VertexFile:
        """First layout that loses nothing of these numbers; g2o's own if all do.

        Compared are the tokens of the longest layout: a pose has two quaternions, and logarithms round.
        """
        written = [layout for layout in (self, *self.alternatives) if not layout.loses]
        longest = max(written, key=lambda layout: layout.num_tokens)
        tokens = longest.encode(storage)
        for layout in written:
            again = longest.encode(layout.decode(layout.encode(storage)))
            if np.allclose(again, tokens, rtol=1e-12, atol=_ROUNDING * layout.rounds):
                return layout
        return self


@dataclass(frozen=True, eq=False)
class EdgeFile(_File):
    """Layout of an edge."""

    num_tokens: int
    decode: Callable[[Array], tuple[Array, Array]]
    """(n, num_tokens) -> (measurement (n, measurement_dim), information (n, d, d))."""
    encode: Callable[[Array, Array], Array]
    """(measurement (n, measurement_dim), information (n, d, d)) -> (n, num_tokens)."""
    alternatives: tuple[EdgeFile, ...] = ()

    def lossless(self, measurement: Array, information: Array) -> EdgeFile:
        """First layout that loses nothing of these numbers; g2o's own if all do."""
        for layout in (self, *self.alternatives):
            again, matrix = layout.decode(layout.encode(measurement, information))
            same = np.allclose(again, measurement, rtol=1e-12, atol=0.0)
            if same and np.allclose(matrix, information, rtol=1e-12, atol=0.0):
                return layout
        return self


def triangle_size(d: int) -> int:
    """Entries of the upper triangle of a (d, d) matrix."""
    return d * (d + 1) // 2


def triangle_to_matrix(triangle: Array, d: int) -> Array:
    """(n, d (d + 1) / 2) upper triangles row by row -> (n, d, d) symmetric matrices."""
    rows, cols = np.triu_indices(d)
    place = np.empty((d, d), np.int64)
    place[rows, cols] = place[cols, rows] = np.arange(len(rows))
    return triangle[..., place]


def matrix_to_triangle(matrix: Array) -> Array:
    """(n, d, d) -> (n, d (d + 1) / 2): upper triangles row by row."""
    rows, cols = np.triu_indices(matrix.shape[-1])
    return matrix[..., rows, cols]


def identity_matrices(n: int, d: int) -> Array:
    """(n, d, d) identity matrices."""
    return np.broadcast_to(np.eye(d), (n, d, d)).copy()


def plain(num_tokens: int) -> VertexFile:
    """Tokens are the stored numbers."""
    return VertexFile(num_tokens, np.array, np.array)


def picked(order: Sequence[int], defaults: Sequence[float]) -> VertexFile:
    """Token i is stored number order[i]; the others get their default on reading and are lost on writing."""
    order, values = list(order), np.asarray(defaults, dtype=float)
    place = np.arange(len(values)) + len(order)  # in the tokens, which the defaults follow
    place[order] = np.arange(len(order))

    def decode(tokens: Array) -> Array:
        return np.concatenate([tokens, np.tile(values, (len(tokens), 1))], axis=-1)[:, place]

    return VertexFile(len(order), decode, lambda storage: np.asarray(storage)[:, order])


def measurement_then_information(measurement: VertexFile, d: int) -> EdgeFile:
    """Layout g2o has for every edge: the measurement's tokens, then the information's upper triangle.

    The alternative is the measurement alone; then the information is the identity.
    """
    m = measurement.num_tokens

    def decode(tokens: Array) -> tuple[Array, Array]:
        return measurement.decode(tokens[:, :m]), triangle_to_matrix(tokens[:, m : m + triangle_size(d)], d)

    def encode(values: Array, information: Array) -> Array:
        return np.concatenate([measurement.encode(values), matrix_to_triangle(information)], axis=-1)

    return EdgeFile(m + triangle_size(d), decode, encode, (_measurement_only(measurement, d),))


def _measurement_only(measurement: VertexFile, d: int) -> EdgeFile:
    return EdgeFile(
        measurement.num_tokens,
        lambda tokens: (measurement.decode(tokens), identity_matrices(len(tokens), d)),
        lambda values, information: measurement.encode(values),
    )


def with_trailing_constants(num_measured: int, defaults: Sequence[float], d: int) -> EdgeFile:
    """Layout of an edge whose constants (intrinsics, ...) g2o holds in the edge and leaves out of its files.

    Stored: num_measured numbers, then the constants. g2o's layout has the measured numbers and the
    information; reading it sets the constants to their defaults. The longer alternative appends the constants
    at the end of the line, where g2o ignores them.
    """
    constants = len(defaults)
    identity = (0.0,) * num_measured
    short = measurement_then_information(picked(range(num_measured), (*identity, *defaults)), d)

    def decode(tokens: Array) -> tuple[Array, Array]:
        values, information = short.decode(tokens[:, :-constants])
        values[:, num_measured:] = tokens[:, -constants:]
        return values, information

    def encode(values: Array, information: Array) -> Array:
        return np.concatenate(
            [short.encode(values, information), np.asarray(values)[:, num_measured:]], axis=-1
        )

    long = EdgeFile(short.num_tokens + constants, decode, encode)
    return replace(short, alternatives=(long, *short.alternatives))


def counted(num_measured: int, d: int, *, count_old: int) -> EdgeFile:
    """Layout of an edge of any arity, for one arity.

    g2opy: measurement size, measurement, information size, information. C++ g2o (after `||`): the number of
    observed vertices `count_old`, measurement, information.
    """
    short = measurement_then_information(plain(num_measured), d)
    size = triangle_size(d)

    def decode(tokens: Array) -> tuple[Array, Array]:
        keep = np.concatenate([tokens[:, 1 : 1 + num_measured], tokens[:, 2 + num_measured :]], axis=-1)
        return short.decode(keep)

    def encode(values: Array, information: Array) -> Array:
        tokens, ones = short.encode(values, information), np.ones((len(values), 1))
        head, tail = tokens[:, :num_measured], tokens[:, num_measured:]
        return np.concatenate([num_measured * ones, head, size * ones, tail], axis=-1)

    def encode_old(values: Array, information: Array) -> Array:
        ones = np.ones((len(values), 1))
        return np.concatenate([count_old * ones, short.encode(values, information)], axis=-1)

    old = EdgeFile(1 + num_measured + size, lambda tokens: short.decode(tokens[:, 1:]), encode_old)
    return EdgeFile(2 + num_measured + size, decode, encode, (old,))
