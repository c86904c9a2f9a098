"""Planes of pixels, and what sampling them means: the definition that every back end is tested against.

A plane is a (height, width) float32 array with a number that is its handle while the process lives. The value
at column u and row v, pixel centres at whole numbers, u and v first clamped to the plane:

    j = min(floor(u), width - 2),  f = u - j          i and g likewise from v

    bilinear    a + f (b - a) + g (c - a) + f g (a - b - c + d),   the corners a b / c d of the cell (i, j)
    bicubic     sum_k sum_l w_k(g) w_l(f) p[i - 1 + k, j - 1 + l],  indices clamped;  Catmull and Rom 1974

The derivative by u is that of the cell's formula, and zero where u lies outside of [0, width - 1]; at a whole
u it is that of the cell to the right, at the last column of the cell to the left. A handle that names no
plane gives NaN, and so does a place that is NaN (its derivatives: NaN or zero).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from graphopt.errors import GraphError, ShapeError

MAX_PLANES = 65536
"""Handles are smaller than this; native/src/vm/planes.h has the same number."""

Sampled = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Value, derivative by u, derivative by v."""

PLANES: dict[int, np.ndarray] = {0: np.zeros((1, 1), np.float32)}  # plane 0 is blank, natively as well
_free: list[int] = []
_used = 1


def plane(number: int) -> np.ndarray | None:
    """The (height, width) float32 pixels of a handle, None if there is no such plane."""
    return PLANES.get(number)


def has_planes() -> bool:
    """Whether there is any image in this process."""
    return len(PLANES) > 1


def add_plane(pixels: np.ndarray) -> int:
    """Make a handle for pixels (height, width) float32, C-contiguous: referenced, not copied."""
    global _used
    if not _free and _used == MAX_PLANES:
        raise GraphError(f"There are {MAX_PLANES} planes of images already; release images not needed.")
    if _free:
        number = heapq.heappop(_free)
    else:
        number, _used = _used, _used + 1
    set_plane(number, pixels)
    return number


def set_plane(number: int, pixels: np.ndarray) -> None:
    """Let a handle name other pixels."""
    from graphopt.cpu_kernels import kernels

    if pixels.dtype != np.float32 or pixels.ndim != 2 or not pixels.flags.c_contiguous or not pixels.size:
        raise ShapeError(
            f"A plane has shape {pixels.shape} of {pixels.dtype}, expected (height, width) of float32."
        )
    kernels.set_plane(number, pixels)
    PLANES[number] = pixels


def drop_plane(number: int) -> None:
    """Forget a handle; it may be given to another plane."""
    from graphopt.cpu_kernels import kernels

    if PLANES.pop(number, None) is not None:
        kernels.drop_plane(number)
        heapq.heappush(_free, number)


# --- sampling -----------------------------------------------------------------------------------------------
def bilinear(number: np.ndarray, u: np.ndarray, v: np.ndarray) -> Sampled:
    """Value and derivatives at (u, v) of the planes with these numbers, any broadcastable shapes."""
    return _per_plane(_bilinear, number, u, v)


def bicubic(number: np.ndarray, u: np.ndarray, v: np.ndarray) -> Sampled:
    """Likewise with Catmull and Rom's cubic, which is once continuously differentiable."""
    return _per_plane(_bicubic, number, u, v)


def _per_plane(sample: Callable[..., Sampled], number, u, v) -> Sampled:
    number, u, v = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (number, u, v)))
    results = np.full((3, *number.shape), np.nan)
    for plane_number in np.unique(number[np.isfinite(number)]).tolist():
        pixels = plane(int(plane_number)) if plane_number == int(plane_number) else None
        if pixels is not None:
            here = number == plane_number
            results[:, here] = sample(pixels, u[here], v[here])
    return results[0], results[1], results[2]


def _cell(x: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First index of the cell, place in it (0 to 1), and 1.0 where x is not clamped, else 0.0."""
    last = length - 1.0
    clamped = np.where(x < 0.0, 0.0, np.where(x > last, last, x))  # NaN stays
    index = np.where(clamped >= 1.0, np.minimum(np.floor(clamped), max(length - 2, 0)), 0.0)
    return index.astype(np.int64), clamped - index, np.where((x >= 0.0) & (x <= last), 1.0, 0.0)


def _bilinear(pixels: np.ndarray, u: np.ndarray, v: np.ndarray) -> Sampled:
    height, width = pixels.shape
    (j, f, inside_u), (i, g, inside_v) = _cell(u, width), _cell(v, height)
    right, below = np.minimum(j + 1, width - 1), np.minimum(i + 1, height - 1)
    a, b, c, d = (
        pixels[row, column].astype(np.float64)
        for row, column in ((i, j), (i, right), (below, j), (below, right))
    )
    top, bottom = a + f * (b - a), c + f * (d - c)
    along = (b - a) + g * ((d - c) - (b - a))
    return top + g * (bottom - top), inside_u * along, inside_v * (bottom - top)


def _weights(t: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Catmull and Rom's four weights at t and their derivatives."""
    values = [
        t * (-0.5 + t * (1.0 - 0.5 * t)),
        1.0 + t * t * (-2.5 + 1.5 * t),
        t * (0.5 + t * (2.0 - 1.5 * t)),
        t * t * (-0.5 + 0.5 * t),
    ]
    rates = [
        -0.5 + t * (2.0 - 1.5 * t),
        t * (-5.0 + 4.5 * t),
        0.5 + t * (4.0 - 4.5 * t),
        t * (-1.0 + 1.5 * t),
    ]
    return values, rates


def _bicubic(pixels: np.ndarray, u: np.ndarray, v: np.ndarray) -> Sampled:
    height, width = pixels.shape
    (j, f, inside_u), (i, g, inside_v) = _cell(u, width), _cell(v, height)
    across, across_rate = _weights(f)
    down, down_rate = _weights(g)
    value, by_u, by_v = np.zeros(u.shape), np.zeros(u.shape), np.zeros(u.shape)
    for k in range(4):
        row = np.clip(i + (k - 1), 0, height - 1)
        line, line_rate = np.zeros(u.shape), np.zeros(u.shape)
        for m in range(4):
            p = pixels[row, np.clip(j + (m - 1), 0, width - 1)].astype(np.float64)
            line, line_rate = line + across[m] * p, line_rate + across_rate[m] * p
        value, by_u, by_v = value + down[k] * line, by_u + down[k] * line_rate, by_v + down_rate[k] * line
    return value, inside_u * by_u, inside_v * by_v
