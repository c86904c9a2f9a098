"""Parameter types whose value is an image: `parameters=(graphopt.image_type(tag="IMAGE_TARGET"),)`.

The stored numbers of such a parameter are the handles of the image's planes, one per channel; a residual sees
a `SampledImage` and calls it with column and row. The graph takes the `Image` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphopt.types.registry as registry
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.symbolic.images import Image, SampledImage, checked_interpolation
from graphopt.types.base import ImageFormat, ParameterType
from graphopt.types.files import VertexFile
from graphopt.types.identity import home_of_caller

Array = Any


def image_type(
    *, tag: str, channels: int = 1, interpolation: str = "bilinear", name: str | None = None
) -> ParameterType:
    """Register and return a parameter type whose values are images with this many channels."""
    if channels < 1:
        raise OptionError(f"image type {tag}: channels is {channels}, expected 1 or more.")
    checked_interpolation(interpolation)
    kind = ParameterType(
        name or tag,
        tag,
        channels,
        _sampler(interpolation),
        (0.0,) * channels,
        VertexFile(channels, _refuse(tag), _refuse(tag)),
        doc=f"Image of {channels} channel(s), sampled {interpolation}.",
        image=ImageFormat(channels, interpolation),
        home=home_of_caller(name or tag),
    )
    return registry.register(kind)


def image_handles(kind: ParameterType, values: Any) -> tuple[Any, list[Image]]:
    """Stored numbers (p, channels) for an image or a sequence of images, and these images in a list."""
    images = [values] if isinstance(values, Image) else list(values)
    assert kind.image is not None
    for image in images:
        if not isinstance(image, Image):
            raise GraphError(
                f"{kind.tag} takes images, got {type(image).__name__}. Pass graphopt.Image(array)."
            )
        if image.channels != kind.image.channels:
            raise ShapeError(
                f"{kind.tag} takes images of {kind.image.channels} channel(s), got {image!r}. "
                f"Define the type with channels={image.channels}."
            )
    return np.array([image.planes for image in images], np.float64).reshape(-1, kind.image.channels), images


def _sampler(interpolation: str) -> Callable[[Array], SampledImage]:
    def sampled_image(storage: Array) -> SampledImage:
        return SampledImage(storage, interpolation)

    return sampled_image


def _refuse(tag: str) -> Callable[[Array], Array]:
    def refuse(numbers: Array) -> Array:
        raise GraphError(f"{tag}: an image cannot be written to or read from a .g2o file.")

    return refuse
