"""Images that a residual samples, with derivatives: `image(u, v)`.

    picture = graphopt.Image(array)             # (height, width) or (height, width, channels)
    picture(3.5, 2.0)                           # column, row; pixel centres at whole numbers

An image reaches a residual as a parameter (`graphopt.image_type`; every edge may have another one), or as a
variable of the Python function. On symbols a sample is one operation per channel with its two derivatives;
`sampling` says what it means. Programs refer to planes by number, so pixels and even sizes may change between
two optimizations without compiling anything again.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

import graphopt.symbolic.sampling as sampling
from graphopt.errors import OptionError, ShapeError
from graphopt.symbolic.expr import Expr, lift, make
from graphopt.symbolic.symbolic_array import symbolic_array

INTERPOLATIONS = {"bilinear": "sample", "bicubic": "sample_cubic"}
"""Interpolation -> operation (ops.OPS)."""


def checked_interpolation(name: str) -> str:
    """`name`, if it is one of INTERPOLATIONS."""
    if name not in INTERPOLATIONS:
        raise OptionError(f"interpolation is {name!r}, expected one of {', '.join(INTERPOLATIONS)}.")
    return name


class SampledImage:
    """What a residual sees of an image: call it with column u and row v."""

    __slots__ = ("interpolation", "storage")

    def __init__(self, storage: Any, interpolation: str = "bilinear"):
        self.storage = storage
        """(..., channels) handles of planes, floats or symbols."""
        self.interpolation = interpolation

    def __call__(self, u: Any, v: Any) -> Any:
        """Value at (u, v): of the shape of u for one channel, else with the channels as last axis."""
        op = INTERPOLATIONS[self.interpolation]
        handles = [self.storage[..., c] for c in range(self.storage.shape[-1])]
        values = [_sample(op, handle, u, v) for handle in handles]
        return values[0] if len(values) == 1 else np.stack(values, axis=-1)


class Image:
    """Pixels (height, width) or (height, width, channels), kept as float32.

    `interpolation` is "bilinear", or "bicubic" (smooth derivatives, four times the work). Outside, the value
    is that of the nearest border pixel and the derivative towards the outside is zero.
    """

    def __init__(self, pixels: Any, interpolation: str = "bilinear"):
        self.interpolation = checked_interpolation(interpolation)
        planes = _planes(pixels)
        self._pixels = planes
        self.planes: tuple[int, ...] = tuple(sampling.add_plane(plane) for plane in planes)
        """Handle of each channel."""
        weakref.finalize(self, _drop, self.planes)

    @property
    def pixels(self) -> np.ndarray:
        """(height, width) or (height, width, channels) float32, live: writing into it changes the image."""
        return self._pixels[0] if len(self.planes) == 1 else np.moveaxis(self._pixels, 0, -1)

    @pixels.setter
    def pixels(self, pixels: Any) -> None:
        planes = _planes(pixels)
        if len(planes) != len(self.planes):
            raise ShapeError(
                f"This image has {len(self.planes)} channels, got pixels of shape {np.shape(pixels)}. "
                "Make another Image."
            )
        self._pixels = planes
        for number, plane in zip(self.planes, planes, strict=True):
            sampling.set_plane(number, plane)

    @property
    def height(self) -> int:
        """Rows."""
        return self._pixels.shape[1]

    @property
    def width(self) -> int:
        """Columns."""
        return self._pixels.shape[2]

    @property
    def channels(self) -> int:
        """Values per pixel."""
        return len(self.planes)

    def __call__(self, u: Any, v: Any) -> Any:
        """Value at column u and row v; see `SampledImage`."""
        return SampledImage(np.array(self.planes, np.float64), self.interpolation)(u, v)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pixels travel, handles do not: a copy is an image of its own."""
        return Image, (self.pixels, self.interpolation)

    def __repr__(self) -> str:
        return f"<Image {self.height} x {self.width} x {self.channels}, {self.interpolation}>"


def _drop(planes: tuple[int, ...]) -> None:
    for number in planes:
        sampling.drop_plane(number)


def _planes(pixels: Any) -> np.ndarray:
    """(channels, height, width) float32, a copy."""
    array = np.asarray(pixels)
    if array.ndim not in (2, 3) or not array.size or array.dtype.kind not in "buif":
        raise ShapeError(
            f"An image has shape {array.shape} of {array.dtype}, "
            "expected (height, width) or (height, width, channels) of numbers."
        )
    with np.errstate(over="ignore"):
        planes = np.array(np.moveaxis(np.atleast_3d(array), -1, 0), np.float32, order="C")
    if not np.isfinite(planes).all():
        raise ShapeError("An image holds NaN, infinity or a number beyond float32; fill such pixels first.")
    return planes


def _sample(op: str, handle: Any, u: Any, v: Any) -> Any:
    """One channel at (u, v), numbers or symbols."""
    if not any(map(_is_symbolic, (handle, u, v))):
        function = sampling.bilinear if op == "sample" else sampling.bicubic
        return function(handle, u, v)[0][()]
    if not any(isinstance(x, np.ndarray) and x.ndim for x in (handle, u, v)):
        return make(op, *(lift(_scalar(x)) for x in (handle, u, v)))
    arrays = np.broadcast_arrays(*(np.asarray(x, object).view(np.ndarray) for x in (handle, u, v)))
    flat = [make(op, *map(lift, values)) for values in zip(*(a.ravel() for a in arrays), strict=True)]
    result = np.empty(len(flat), object)
    result[:] = flat
    return symbolic_array(result.reshape(arrays[0].shape))


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, Expr) or (isinstance(x, np.ndarray) and x.dtype == object)


def _scalar(x: Any) -> Any:
    return x.item() if isinstance(x, np.ndarray) else x
