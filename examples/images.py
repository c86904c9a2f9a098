"""Pictures as arrays (rows, columns[, channels]) of numbers from 0 to 1."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

import command
import numpy as np

_DUMP_TYPES = {0: np.dtype("<f4"), 1: np.dtype("u1")}


def _matplotlib_image():
    try:
        import matplotlib.image
    except ImportError as error:
        raise command.ExampleError("pictures need matplotlib: pip install graphopt[plot].") from error
    return matplotlib.image


def read(path: Path) -> np.ndarray:
    """Picture (rows, columns, 3); gray ones are repeated, opacity is dropped."""
    try:
        picture = np.asarray(_matplotlib_image().imread(path), float)
    except (OSError, ValueError, SyntaxError) as error:
        raise command.ExampleError(f"{path} cannot be read as a picture: {error}.") from error
    picture = picture / 255.0 if picture.max() > 1.0 else picture
    if picture.ndim == 2 or picture.shape[2] < 3:
        picture = np.repeat(picture.reshape(*picture.shape[:2], -1)[:, :, :1], 3, axis=2)
    return picture[:, :, :3].copy()


def write(path: Path, picture: np.ndarray) -> None:
    """Write a .png file; gray for (rows, columns)."""
    picture = np.clip(picture, 0.0, 1.0)
    picture = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
    _matplotlib_image().imsave(path, np.ascontiguousarray(picture))


def read_dump(path: Path) -> np.ndarray:
    """Opt's .imagedump: width, height, channels, type (0: float32, 1: uint8) as int32, then the rows."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    if len(data) < 16:
        raise command.ExampleError(f"{path} is too short for an .imagedump.")
    width, height, channels, kind = struct.unpack("<4i", data[:16])
    expected = 16 + width * height * channels * (_DUMP_TYPES[kind].itemsize if kind in _DUMP_TYPES else 0)
    if kind not in _DUMP_TYPES or len(data) != expected:
        raise command.ExampleError(
            f"{path}: {width} x {height} x {channels} numbers of type {kind} do not fit {len(data)} bytes."
        )
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.frombuffer(data[16:], _DUMP_TYPES[kind]).reshape(shape)


def gray(picture: np.ndarray) -> np.ndarray:
    """Brightness (rows, columns) after ITU-R BT.601."""
    return picture @ np.array([0.299, 0.587, 0.114])


def shrink(picture: np.ndarray, factor: int) -> np.ndarray:
    """Means over squares of factor x factor pixels; what is left over at the right and below is cut off."""
    if factor < 1:
        raise command.ExampleError(f"a picture cannot be shrunk by {factor}; expected 1, 2, ...")
    rows, columns = (size // factor for size in picture.shape[:2])
    if min(rows, columns) < 2:
        raise command.ExampleError(
            f"a picture of shape {picture.shape} is too small to be shrunk by {factor}."
        )
    cut = picture[: rows * factor, : columns * factor]
    return cut.reshape(rows, factor, columns, factor, *picture.shape[2:]).mean(axis=(1, 3))


def shifted(picture: np.ndarray, offset: tuple[int, int]) -> np.ndarray:
    """What stands `offset` (rows down, columns right) away from each pixel, around the border."""
    return np.roll(picture, (-offset[0], -offset[1]), axis=(0, 1))


def largest(picture: np.ndarray, factor: int) -> np.ndarray:
    """Largest value over squares of factor x factor pixels, cut as by `shrink`."""
    rows, columns = (size // factor for size in picture.shape)
    return (
        picture[: rows * factor, : columns * factor].reshape(rows, factor, columns, factor).max(axis=(1, 3))
    )


def same_size(paths: list[Path], *pictures: np.ndarray) -> None:
    """Raise unless all pictures have as many rows and columns as the first."""
    for path, picture in zip(paths, pictures, strict=True):
        if picture.shape[:2] != pictures[0].shape[:2]:
            raise command.ExampleError(
                f"{path} has shape {picture.shape[:2]}, expected {pictures[0].shape[:2]} as {paths[0]}."
            )


def enlarge(picture: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Picture of this shape, interpolated in one of half the size."""
    from scipy.ndimage import map_coordinates

    places = (np.mgrid[: shape[0], : shape[1]] + 0.5) / 2.0 - 0.5
    channels = picture.reshape(*picture.shape[:2], -1).transpose(2, 0, 1)
    larger = [map_coordinates(channel, places, order=1, mode="nearest") for channel in channels]
    return np.dstack(larger).reshape(*shape, *picture.shape[2:])


def dots(panels: list[list[np.ndarray]], size: int = 220) -> np.ndarray:
    """Picture (size, size * panels, 3): clouds of points (n, 3) seen along z, each in its colour."""
    colours = np.array([[0.1, 0.3, 0.8], [0.9, 0.45, 0.1], [0.2, 0.6, 0.3], [0.6, 0.2, 0.6], [0.5, 0.4, 0.3]])
    drawn = []
    for clouds in panels:
        every = np.concatenate(clouds)[:, :2]
        low, extent = every.min(axis=0), max(float(np.ptp(every, axis=0).max()), 1e-12)
        margin = 0.5 * (extent - np.ptp(every, axis=0))
        picture = np.ones((size, size, 3))
        for number, points in enumerate(clouds):
            place = ((points[:, :2] - low + margin) / extent * (size - 7)).round().astype(int) + 3
            reach = 2 - min(number, 1)  # the first cloud's dots are larger
            for dx, dy in np.ndindex(2 * reach, 2 * reach):
                rows, columns = size - 1 - place[:, 1] + dy - reach, place[:, 0] + dx - reach
                picture[rows, columns] = colours[number % len(colours)]
        drawn.append(picture)
    return np.hstack(drawn)
