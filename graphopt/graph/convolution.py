"""Weighted sums over the neighbours on a grid, without a row of indices per place.

    c_p = sum_k w_k(p) x_{p + o_k}                 (d,) numbers each; p: places of a grid, o_k: offsets
    y_q = sum over (p, k) with p + o_k = q   w_k(p) u_p                        the transpose

The weights are one list for all places, or one list per place. Beyond the border x is zero ("zero"), or the
grid goes on as `stencils` says ("clamp", "wrap", "mirror"). Memory does not depend on the number of terms,
but for weights that vary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError

if TYPE_CHECKING:
    from graphopt.types.base import VertexType

BOUNDARIES = ("zero", "clamp", "wrap", "mirror")
MANY_TERMS = 60
"""Terms from which on sums with the same weights everywhere go by Fourier transforms."""
_PAD = {"zero": "constant", "clamp": "edge", "wrap": "wrap", "mirror": "reflect"}


@dataclass(frozen=True, eq=False)
class Convolution:
    """One set of sums; nothing in it changes."""

    value_type: VertexType
    first_value: int
    """Id of the value at the grid's first place; the others follow."""
    source_type: VertexType
    first_source: int
    """Id of the first vertex that is summed."""
    shape: tuple[int, ...]
    """Of both grids."""
    offsets: np.ndarray
    """(k, axes) int64."""
    weights: np.ndarray
    """(k,) or (k, *shape) float64."""
    boundary: str

    @cached_property
    def _margins(self) -> list[tuple[int, int]]:
        """Per axis how many places beyond the grid are reached, before and after it."""
        low, high = self.offsets.min(axis=0), self.offsets.max(axis=0)
        return [(max(0, -int(a)), max(0, int(b))) for a, b in zip(low, high, strict=True)]

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The sums (places, d) of x (places, d)."""
        return self._sums(x, self.weights)

    def apply_transposed(self, u: np.ndarray) -> np.ndarray:
        """The transposed sums (places, d) of u (places, d)."""
        return self._scattered(u, self.weights)

    def apply_squared_transposed(self, u: np.ndarray) -> np.ndarray:
        """`apply_transposed` with squared weights: what diagonals need."""
        return self._scattered(u, self.weights * self.weights)

    def reaches(self, marked: np.ndarray) -> np.ndarray:
        """(places,) bool: the sum at a place has a marked one among its terms; marked (places,) bool."""
        return self._sums(marked.astype(np.float64)[:, None], np.ones(len(self.offsets)))[:, 0] > 0.5

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """Which place each one of the padded grid stands for, -1: none; and where each place is in it."""
        places = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        mode: Any = _PAD[self.boundary]
        stands_for = np.pad(places + 1, self._margins, mode=mode) - 1  # constants are zeros
        inner = np.arange(stands_for.size).reshape(stands_for.shape)
        cut = tuple(slice(a, a + n) for (a, _), n in zip(self._margins, self.shape, strict=True))
        return stands_for.ravel(), inner[cut].ravel()

    def shifts(self) -> np.ndarray:
        """(k,) int64: from a place to that of each term, in the padded grid."""
        sizes = [n + a + b for n, (a, b) in zip(self.shape, self._margins, strict=True)]
        strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        return self.offsets @ strides

    def _sums(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        grid = x.reshape(*self.shape, -1)
        padded = np.pad(grid, [*self._margins, (0, 0)], mode=_PAD[self.boundary])  # type: ignore[call-overload]
        if weights.ndim == 1 and len(weights) >= MANY_TERMS:
            found = self._by_spectrum(padded, np.conj(self._spectrum(weights)))
            return np.ascontiguousarray(found[tuple(slice(n) for n in self.shape)]).reshape(x.shape)
        total = np.zeros_like(grid)
        for window, weight in self._windows(weights):
            total += weight * padded[window]
        return total.reshape(x.shape)

    def _scattered(self, u: np.ndarray, weights: np.ndarray) -> np.ndarray:
        grid = u.reshape(*self.shape, -1)
        sizes = [n + a + b for n, (a, b) in zip(self.shape, self._margins, strict=True)]
        if weights.ndim == 1 and len(weights) >= MANY_TERMS:
            padded = self._by_spectrum(grid, self._spectrum(weights))[tuple(slice(n) for n in sizes)]
        else:
            padded = np.zeros((*sizes, grid.shape[-1]))
            for window, weight in self._windows(weights):
                padded[window] += weight * grid
        for axis, margin in enumerate(self._margins):
            padded = self._folded(padded, axis, *margin)
        return padded.reshape(u.shape)

    @cached_property
    def _lengths(self) -> list[int]:
        """Per axis the padded length, rounded up to one whose transform is fast."""
        from scipy.fft import next_fast_len

        padded = [n + a + b for n, (a, b) in zip(self.shape, self._margins, strict=True)]
        return [int(next_fast_len(n, True)) for n in padded]  # type: ignore[arg-type]

    @cached_property
    def _own_spectrum(self) -> np.ndarray:
        return self._transformed(self.weights)

    def _spectrum(self, weights: np.ndarray) -> np.ndarray:
        return self._own_spectrum if weights is self.weights else self._transformed(weights)

    def _transformed(self, weights: np.ndarray) -> np.ndarray:
        """Transform (*lengths, 1) of the weights, each at its place in the padded grid."""
        from scipy.fft import rfftn

        kernel = np.zeros(self._lengths)
        places = self.offsets + np.array([before for before, _ in self._margins])
        np.add.at(kernel, tuple(places.T), weights)
        return rfftn(kernel)[..., None]  # type: ignore[index]

    def _by_spectrum(self, grid: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
        """(*lengths, d) circular convolution of a grid, filled up with zeros."""
        from scipy.fft import irfftn, rfftn

        options = {"axes": tuple(range(len(self.shape))), "workers": kernels.num_threads()}
        transformed = rfftn(grid, s=self._lengths, **options)
        return np.asarray(irfftn(transformed * spectrum, s=self._lengths, **options))  # type: ignore[operator]

    def _windows(self, weights: np.ndarray) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """Per term the part of the padded grid that it reads, and its weights (one, or (*shape, 1))."""
        for offset, weight in zip(self.offsets.tolist(), weights, strict=True):
            first = [margin[0] + step for margin, step in zip(self._margins, offset, strict=True)]
            window = tuple(slice(a, a + n) for a, n in zip(first, self.shape, strict=True))
            yield window, weight if np.ndim(weight) == 0 else weight[..., None]

    def _folded(self, padded: np.ndarray, axis: int, before: int, after: int) -> np.ndarray:
        """Bring what is beyond the grid on one axis to the places that it stands for."""
        length = self.shape[axis]
        moved = np.moveaxis(padded, axis, 0)
        inner = moved[before : before + length].copy()
        if self.boundary != "zero":
            reached = np.r_[-before:0, length : length + after].astype(np.int64)
            for place in reached.tolist():
                inner[folded_index(place, length, self.boundary)] += moved[before + place]
        return np.moveaxis(inner, 0, axis)


def folded_index(index: int, length: int, boundary: str) -> int:
    """Place on an axis that an index beyond it stands for."""
    if boundary == "wrap":
        return index % length
    if boundary == "clamp":
        return min(max(index, 0), length - 1)
    period = max(2 * length - 2, 1)
    folded = index % period
    return min(folded, period - folded) if length > 1 else 0


def checked_convolution(
    value_type: VertexType, source: Any, values: Any, weights: Any, offsets: Any, boundary: str
) -> Convolution:
    """A convolution of the vertices of grid `source` for those of grid `values`.

    weights: an array with as many axes as the grid, the filter itself, centred; or with `offsets` (k, axes)
    numbers (k,) or (k, *shape).
    """
    shape, axes = source.shape, len(source.shape)
    numbers = np.asarray(weights, np.float64)
    if boundary not in BOUNDARIES:
        raise OptionError(f"boundary is {boundary!r}, expected one of {', '.join(BOUNDARIES)}.")
    if offsets is None:
        if numbers.ndim != axes:
            raise ShapeError(
                f"weights have shape {numbers.shape}, expected {axes} axes, the filter; pass offsets "
                f"(k, {axes}) for weights (k,) or (k, {', '.join(map(str, shape))}) that vary."
            )
        steps = np.stack(np.unravel_index(np.arange(numbers.size), numbers.shape), axis=1)
        moves, numbers = steps - np.array(numbers.shape) // 2, numbers.ravel()
    else:
        moves = np.asarray(offsets)
        if moves.ndim != 2 or moves.shape[1] != axes or moves.dtype.kind not in "iu" or not len(moves):
            raise ShapeError(f"offsets have shape {moves.shape}, expected (k, {axes}) whole numbers.")
        if numbers.shape not in ((len(moves),), (len(moves), *shape)):
            raise ShapeError(
                f"weights have shape {numbers.shape}, expected ({len(moves)},) or {(len(moves), *shape)}."
            )
    if not np.isfinite(numbers).all():
        raise ShapeError("weights hold a number that is not finite.")
    reach = np.abs(moves).max(axis=0)
    if boundary != "zero" and (reach >= np.array(shape)).any():
        raise ShapeError(f"weights reach {tuple(reach.tolist())} places, further than the grid {shape}.")
    return Convolution(
        value_type,
        values.first_id,
        source.type,
        source.first_id,
        shape,
        moves.astype(np.int64),
        numbers,
        boundary,
    )
