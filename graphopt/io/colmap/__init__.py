"""COLMAP sparse models: a folder with cameras, images and points3D as .bin or .txt, each maybe compressed."""

from __future__ import annotations

import os
from pathlib import Path

from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.colmap import binary, text
from graphopt.io.colmap.graph import graph_of, model_of
from graphopt.io.colmap.model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints
from graphopt.io.files import COMPRESSION_SUFFIXES, PathLike, check_writable, read_bytes, write_bytes
from graphopt.io.read_report import ReadReport

__all__ = [
    "ColmapCamera",
    "ColmapImages",
    "ColmapModel",
    "ColmapPoints",
    "check_folder_writable",
    "is_model",
    "parse_colmap",
    "read_colmap",
    "read_colmap_graph",
    "write_colmap",
    "write_colmap_graph",
]
_PARTS = ("cameras", "images", "points3D")
_OUTDATED = ("rigs", "frames")


def _find(folder: Path, part: str) -> Path | None:
    for suffix in (".bin", ".txt"):
        for compression in ("", *COMPRESSION_SUFFIXES):
            path = folder / f"{part}{suffix}{compression}"
            if path.is_file():
                return path
    return None


def is_model(folder: PathLike) -> bool:
    """Tell whether the folder holds a sparse model."""
    return Path(folder).is_dir() and all(_find(Path(folder), part) is not None for part in _PARTS)


def read_colmap(folder: PathLike) -> ColmapModel:
    """Read a sparse model, whatever its camera models. Raises FormatError, OSError."""
    contents: dict[Path, bytes] = {}
    for part in _PARTS:
        path = _find(Path(folder), part)
        if path is None:
            raise FormatError(
                f"{os.fspath(folder)}: no {part}.bin or {part}.txt, expected a folder with a COLMAP model"
            )
        contents[path] = read_bytes(path)
    model = parse_colmap(contents, os.fspath(folder))
    for name in _OUTDATED:
        if _find(Path(folder), name) is not None:
            model.warnings.append(f"{name} are not read: images are taken as independent of each other")
    return model


def parse_colmap(contents: dict[Path, bytes], folder: str) -> ColmapModel:
    """Sparse model of the unpacked contents of its three files, in the order cameras, images, points3D."""
    parsers = {
        ".bin": (binary.parse_cameras, binary.parse_images, binary.parse_points),
        ".txt": (text.parse_cameras, text.parse_images, text.parse_points),
    }
    parts = []
    for position, (path, data) in enumerate(contents.items()):
        parse = parsers[".bin" if ".bin" in path.suffixes else ".txt"][position]
        parts.append(parse(data, os.fspath(path)))
    model = ColmapModel(*parts)
    model.check(folder)
    return model


def write_colmap(model: ColmapModel, folder: PathLike, as_text: bool = False) -> None:
    """Write a sparse model, binary or text; the folder is made if it is not there. Raises OSError.

    A part in the other form (text beside binary) would contradict the new one and is refused.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    form, suffix = (text, ".txt") if as_text else (binary, ".bin")
    other = ".bin" if as_text else ".txt"
    for part in _PARTS:
        if (target / (part + other)).exists():
            raise FormatError(
                f"{target}: holds {part}{other} already; write into an empty folder or in that form"
            )
    contents = {
        "cameras": form.format_cameras(model.cameras),
        "images": form.format_images(model.images),
        "points3D": form.format_points(model.points),
    }
    for part in contents:
        check_writable(target / (part + suffix))
    for part, data in contents.items():
        write_bytes(target / (part + suffix), data)


def check_folder_writable(folder: PathLike) -> None:
    """Raise OSError now if `write_colmap` could not work later."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{target}: a COLMAP model is a folder, this is a file")
    existing = next(parent for parent in (target, *target.absolute().parents) if parent.is_dir())
    check_writable(existing / "cameras.bin")


def read_colmap_graph(folder: PathLike, report: ReadReport) -> Graph:
    """Graph of the model in a folder."""
    model = read_colmap(folder)
    report.warnings += model.warnings
    return graph_of(model, os.fspath(folder), report)


def write_colmap_graph(graph: Graph, folder: PathLike, as_text: bool = False) -> list[str]:
    """Write the model a graph came from with the graph's estimates. Returns what was lost."""
    model, warnings = model_of(graph)
    write_colmap(model, folder, as_text)
    return warnings
