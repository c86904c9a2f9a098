"""COLMAP sparse models: a folder with cameras, images, points3D, and since COLMAP 3.12 rigs and frames.

Each is .bin or .txt, maybe compressed. All five are written, so that no old rigs and frames, which are where
COLMAP reads the poses, stay beside new images.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from graphopt.colmap import binary, text
from graphopt.colmap.graph import graph_of, model_of
from graphopt.colmap.model import ColmapModel
from graphopt.colmap.rigs import add_trivial, outdated
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.files import (
    COMPRESSION_SUFFIXES,
    Content,
    PathLike,
    check_writable,
    read_bytes,
    strip_compression,
)
from graphopt.io.folders import in_folder, write_folder
from graphopt.io.formats import Folder, Format
from graphopt.io.read_report import ReadReport

_PARTS = ("cameras", "images", "points3D")
_RIG_PARTS = ("rigs", "frames")
_PARSED = ("cameras", "images", "points", "rigs", "frames")
_FORMS = tuple(suffix + packed for suffix in (".bin", ".txt") for packed in ("", *COMPRESSION_SUFFIXES))


def find_part(folder: PathLike, part: str) -> Path | None:
    """The file of a part ("cameras", ...), or None: binary before text, unpacked before packed."""
    for suffix in (".bin", ".txt"):
        for compression in ("", *COMPRESSION_SUFFIXES):
            path = in_folder(folder, f"{part}{suffix}{compression}")
            if path.is_file():
                return path
    return None


def find_folder(path: PathLike) -> Path | None:
    """Folder of a model: any folder, or the parent for one of a model's files; None for other files."""
    target = Path(path)
    if target.is_dir():
        return target
    name = strip_compression(target)
    is_part = name.stem in (*_PARTS, *_RIG_PARTS) and name.suffix in (".bin", ".txt")
    return target.parent if is_part and is_model(target.parent) else None


def is_model(folder: PathLike) -> bool:
    """Tell whether the folder holds a sparse model."""
    return Path(folder).is_dir() and all(find_part(folder, part) is not None for part in _PARTS)


def read_colmap(folder: PathLike) -> ColmapModel:
    """Read a sparse model, whatever its camera models. Raises FormatError, OSError."""
    contents: dict[Path, bytes] = {}
    for part in _PARTS:
        path = find_part(folder, part)
        if path is None:
            raise FormatError(
                f"{os.fspath(folder)}: no {part}.bin or {part}.txt in this folder, expected a COLMAP model. "
                "Pass the folder that has one (often sparse/0), or a file"
            )
        contents[path] = read_bytes(path)
    rig_paths = [path for part in _RIG_PARTS if (path := find_part(folder, part)) is not None]
    if len(rig_paths) == len(_RIG_PARTS):
        contents |= {path: read_bytes(path) for path in rig_paths}
    model = parse_colmap(contents, os.fspath(folder))
    if len(rig_paths) == 1:
        model.warnings.append(f"{rig_paths[0].name} is not read: rigs and frames belong together")
    return model


def parse_colmap(contents: dict[Path, bytes], folder: str) -> ColmapModel:
    """Sparse model of the unpacked contents of its files: cameras, images, points3D, maybe rigs, frames."""
    parts: list[Any] = []
    for position, (path, data) in enumerate(contents.items()):
        form: Any = binary if ".bin" in path.suffixes else text
        parts.append(getattr(form, f"parse_{_PARSED[position]}")(data, os.fspath(path)))
    model = ColmapModel(*parts[:3])
    if len(parts) == 5:
        model.rigs, model.frames = parts[3:]
    model.check(folder)
    num_outdated = int(outdated(model, folder).sum())
    if num_outdated:
        model.warnings.append(
            f"{num_outdated} images have other poses in images than in rigs and frames; those of rigs and "
            "frames are taken, as COLMAP does since 3.12"
        )
    return model


def write_colmap(model: ColmapModel, folder: PathLike, as_text: bool = False) -> None:
    """Write a sparse model, binary or text; the folder is made if it is not there. Raises OSError.

    A model without rigs gets one per camera. A part in another form (text beside binary, or packed) would
    contradict the new one and is refused.
    """
    target = Path(folder)
    form, suffix = (text, ".txt") if as_text else (binary, ".bin")
    _refuse_other_forms(target, suffix)
    if model.frames is None:
        model = replace(model)
        add_trivial(model)
    assert model.frames is not None
    contents: dict[str, Content] = {
        "cameras": form.format_cameras(model.cameras),
        "images": form.format_images(model.images),
        "points3D": form.format_points(model.points),
        "rigs": form.format_rigs(model.rigs),
        "frames": form.format_frames(model.frames),
    }
    write_folder(target, {part + suffix: data for part, data in contents.items()})


def _refuse_other_forms(target: Path, suffix: str) -> None:
    for part in (*_PARTS, *_RIG_PARTS):
        for other in (form for form in _FORMS if form != suffix):
            if (target / (part + other)).exists():
                raise FormatError(
                    f"{target}: holds {part}{other} already, which the new {part}{suffix} would contradict; "
                    "write into an empty folder, or remove it"
                )


def check_folder_writable(folder: PathLike, as_text: bool = False) -> None:
    """Raise OSError or FormatError now if `write_colmap` could not work later."""
    target = Path(folder)
    _refuse_other_forms(target, ".txt" if as_text else ".bin")
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


def _as_folder(as_text: bool) -> Folder:
    return Folder(
        find_folder,
        read_colmap_graph,
        partial(write_colmap_graph, as_text=as_text),
        partial(check_folder_writable, as_text=as_text),
    )


BINARY = Format(
    "colmap",
    "COLMAP sparse model, a folder (read: binary or text; written: binary)",
    None,
    None,
    _as_folder(as_text=False),
    check=model_of,
)
TEXT = Format(
    "colmap_text",
    "COLMAP sparse model, a folder, written as text",
    None,
    None,
    _as_folder(as_text=True),
    check=model_of,
)
