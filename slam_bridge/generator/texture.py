"""Textures with detail at every scale, and sampling them without aliasing.

A texture is painted like fallen leaves: rectangles, discs and diamonds of random grey, the large ones first,
so that there are corners whatever the distance. It is kept with its pyramid: level l is the mean over
2^l x 2^l texels. A sample takes the two levels around the footprint of its pixel, bilinear in each, linear
between (Williams, SIGGRAPH 1983). Texel (i, j) is centred at (i + 1/2, j + 1/2) times the texel's size.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from graphopt.errors import ShapeError

LEVELS = 7
_SHAPES = ("rectangle", "rectangle", "rectangle", "disc", "diamond")


class Texture:
    """Grey values over a plane, repeated beyond their extent."""

    def __init__(self, grey: np.ndarray, texel: float):
        if grey.ndim != 2 or grey.dtype != np.uint8 or not grey.size:
            raise ShapeError(
                f"Texture got shape {grey.shape}, type {grey.dtype}; expected (rows, columns) uint8."
            )
        self.grey = grey
        """(rows, columns) uint8."""
        self.texel = float(texel)
        """Side of a texel [m]."""

    @cached_property
    def _pyramid(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All levels one after the other; where each begins, its rows and columns."""
        levels = [self.grey]
        while len(levels) < LEVELS and min(levels[-1].shape) > 1:
            levels.append(_halved(levels[-1]))
        sizes = np.array([level.shape for level in levels], np.int32)
        begins = np.concatenate([[0], np.cumsum(sizes.prod(axis=1))[:-1]]).astype(np.int32)
        return np.concatenate([level.ravel() for level in levels]), begins, sizes[:, 0], sizes[:, 1]

    def sample(self, across: np.ndarray, down: np.ndarray, footprint: np.ndarray) -> np.ndarray:
        """Grey (n,) float32 at places (n,) [m], averaged over about footprint (n,) [m]."""
        begins = self._pyramid[1]
        rows, columns = self.grey.shape
        x, y = across / np.float32(self.texel), down / np.float32(self.texel)
        x -= np.floor(x / columns) * columns
        y -= np.floor(y / rows) * rows
        level = np.log2(np.maximum(footprint / np.float32(self.texel), np.float32(1.0)))
        level = np.minimum(level, np.float32(len(begins) - 1))
        low = level.astype(np.int32)
        weight = level - low
        fine = self._bilinear(x, y, low)
        if not weight.any():
            return fine
        coarse = self._bilinear(x, y, np.minimum(low + 1, len(begins) - 1))
        return fine + weight * (coarse - fine)

    def _bilinear(self, x: np.ndarray, y: np.ndarray, level: np.ndarray) -> np.ndarray:
        grey, begins, rows, columns = self._pyramid
        scale = np.exp2(-level.astype(np.float32))
        u, v = x * scale - np.float32(0.5), y * scale - np.float32(0.5)
        width, height = columns[level], rows[level]
        u0, v0 = np.floor(u), np.floor(v)
        du, dv = u - u0, v - v0
        left, top = u0.astype(np.int32), v0.astype(np.int32)
        right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
        np.clip(left, 0, width - 1, out=left)
        np.clip(top, 0, height - 1, out=top)
        np.maximum(right, 0, out=right)
        np.maximum(bottom, 0, out=bottom)
        first = begins[level]
        upper, lower = first + top * width, first + bottom * width
        a, b, c, d = (
            grey[corner].astype(np.float32)
            for corner in (upper + left, upper + right, lower + left, lower + right)
        )
        above = a + du * (b - a)
        return above + dv * (c + du * (d - c) - above)


def _halved(grey: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 texels; an odd last row or column is doubled."""
    rows, columns = grey.shape
    even = np.pad(grey, ((0, rows % 2), (0, columns % 2)), mode="edge").astype(np.uint16)
    total = even[0::2, 0::2] + even[1::2, 0::2] + even[0::2, 1::2] + even[1::2, 1::2]
    return ((total + 2) // 4).astype(np.uint8)


def fallen_leaves(
    rows: int, columns: int, texel: float, generator: np.random.Generator, largest: float = 0.8
) -> Texture:
    """Texture of random shapes from `largest` [m] down to four texels, under uneven light."""
    base = float(generator.uniform(95.0, 160.0))
    canvas = np.full((rows, columns), int(base), np.uint8)
    size = largest / texel
    while size >= 4.0:
        share = 0.4 * (size * texel / largest) ** 0.45  # of the surface that this size covers
        _scatter(canvas, max(int(share * rows * columns / size**2), 1), size, base, generator)
        size /= 1.5
    return Texture(_lit(canvas, generator), texel)


def sky(texel: float, generator: np.random.Generator, size: int = 256) -> Texture:
    """Bright texture that changes slowly and has no corners."""
    return Texture(_lit(np.full((size, size), 205, np.uint8), generator), texel)


def _scatter(
    canvas: np.ndarray, count: int, size: float, base: float, generator: np.random.Generator
) -> None:
    """Paint shapes of about one size, around a grey."""
    rows, columns = canvas.shape
    widths, heights = (size * np.exp(generator.uniform(-0.5, 0.5, (2, count)))).astype(int) + 2
    tops, lefts = generator.integers(-2, rows, count), generator.integers(-2, columns, count)
    greys = np.clip(generator.normal(base, 50.0, count), 12, 243).astype(np.uint8)
    kinds = generator.integers(0, len(_SHAPES), count)
    masks = {name: _mask(name, int(size) + 2) for name in set(_SHAPES) - {"rectangle"}}
    for top, left, width, height, grey, kind in zip(
        tops.tolist(), lefts.tolist(), widths.tolist(), heights.tolist(), greys, kinds.tolist(), strict=True
    ):
        y, x = max(top, 0), max(left, 0)
        mask = masks.get(_SHAPES[kind])
        if mask is None:
            canvas[y : top + height, x : left + width] = grey
            continue
        patch = canvas[y : y + len(mask), x : x + len(mask)]
        patch[mask[: patch.shape[0], : patch.shape[1]]] = grey


def _mask(shape: str, size: int) -> np.ndarray:
    """(size, size) bool."""
    place = np.abs(np.arange(size) - 0.5 * (size - 1)) / (0.5 * size)
    far = np.hypot(*np.meshgrid(place, place)) if shape == "disc" else np.add.outer(place, place)
    return far <= 1.0


def _lit(canvas: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Light that changes slowly over the surface, and grain."""
    rows, columns = canvas.shape
    coarse = generator.uniform(0.75, 1.1, (5, 5))
    y, x = np.linspace(0.0, 4.0, rows), np.linspace(0.0, 4.0, columns)
    along = np.stack([np.interp(x, np.arange(5), row) for row in coarse])
    i = np.minimum(y.astype(int), 3)
    share = (y - i)[:, None].astype(np.float32)
    light = along[i].astype(np.float32) * (1.0 - share) + along[i + 1].astype(np.float32) * share
    light *= canvas
    light += generator.integers(-5, 6, canvas.shape, dtype=np.int8)
    return np.clip(light, 4.0, 250.0).astype(np.uint8)
