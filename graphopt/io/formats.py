"""The table of formats, and `read` and `write` over it."""

from __future__ import annotations

import errno
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphopt.io.bal as bal
import graphopt.io.bundler as bundler
import graphopt.io.files as files
import graphopt.io.g2o_file as g2o_file
import graphopt.io.g2o_tree as g2o_tree
import graphopt.io.g2o_write as g2o_write
import graphopt.io.graph_npz as graph_npz
import graphopt.io.gtsam_stereo as gtsam_stereo
import graphopt.io.isam as isam
import graphopt.io.isam_write as isam_write
import graphopt.io.libmv as libmv
import graphopt.io.toro as toro
import graphopt.io.trajectory as trajectory
from graphopt.errors import FormatError, GraphOptError
from graphopt.graph import Graph
from graphopt.host_memory import memory_for
from graphopt.io.detect import SUFFIXES, detect, suffix_format
from graphopt.io.dialects import dialects_of, for_writing
from graphopt.io.dialects import look_up as look_up_dialect
from graphopt.io.files import PathLike
from graphopt.io.read_report import ReadReport
from graphopt.option_names import FOLDER_FORMATS
from graphopt.plugins import Table
from graphopt.suggestions import knows_its_options

Reader = Callable[[bytes, str, ReadReport], Graph]
Writer = Callable[..., tuple[files.Content, list[str]]]


@dataclass(frozen=True)
class Folder:
    """How a format that is a folder is found, read and written."""

    find: Callable[[PathLike], Path | None]
    """The folder that a path stands for: itself, or that of one of its files; None: it is no such folder."""
    read: Callable[[Path, ReadReport], Graph]
    """(folder, report to fill) -> graph"""
    write: Callable[[Graph, PathLike], list[str]]
    """Writes the folder whole or not at all; returns what was lost."""
    check_writable: Callable[[PathLike], None]
    """Raises OSError or FormatError if `write` could not work later."""


@dataclass(frozen=True)
class Format:
    """One file format."""

    name: str
    description: str
    read: Reader | None
    """(content, path for messages, report to fill) -> graph; None where the format is a folder."""
    write: Writer | None
    """graph (and a dialect, if the format has some) -> content and what was lost; None where it cannot be
    written or is a folder."""
    folder: Folder | None = None
    """Where the format is a folder; `name` is the attachment of graphs that came from one."""
    check: Callable[[Graph], object] | None = None
    """Raises FormatError for a graph that the format cannot hold, cheaper than `write`; None: as `write`."""
    keeps_bounds: bool = False
    """It has a place for bounds of estimates."""

    @property
    def is_folder(self) -> bool:
        """The format is a folder, not a file."""
        return self.folder is not None

    @property
    def dialects(self) -> tuple[str, ...]:
        """Names of the ways to write this format, the default first; none if there is only one."""
        return tuple(dialect.name for dialect in dialects_of(self.name))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes that stand for this format alone."""
        return tuple(suffix for suffix, name in SUFFIXES.items() if name == self.name)


_BUILT_IN = (
    Format("g2o", "g2o's text format", g2o_file.read_g2o, g2o_write.write_g2o, check=g2o_write.check_finite),
    Format("g2o_json", "g2o's JSON", g2o_tree.read_json, g2o_tree.write_json),
    Format("g2o_cbor", "g2o's binary format (CBOR)", g2o_tree.read_cbor, g2o_tree.write_cbor),
    Format("toro", "TORO .graph, 2-D and 3-D, with GTSAM's BR lines", toro.read_toro, toro.write_toro),
    Format("isam", "iSAM text, and GTSAM's with covariances", isam.read_isam, isam_write.write_isam),
    Format(
        "bal",
        "Bundle Adjustment in the Large, text",
        bal.read_bal,
        bal.write_bal,
        check=bal.problem_of,
    ),
    Format(
        "bal_npz",
        "Bundle Adjustment in the Large, numpy archive",
        bal.read_bal_npz,
        None,
    ),
    Format(
        "graph_npz",
        "every array of a graph, numpy archive",
        graph_npz.read_graph_npz,
        graph_npz.write_graph_npz,
        keeps_bounds=True,
    ),
    Format(
        "bal_fixed_k",
        "BAL with known, shared fx fy cx cy",
        bal.read_fixed_intrinsics,
        bal.write_fixed_intrinsics,
    ),
    Format("bundler", "Bundler v0.3 bundle.out", bundler.read_bundler, bundler.write_bundler),
    Format("libmv", "libmv (Blender) bundle adjustment problem", libmv.read_libmv, None),
    Format(
        "gtsam_stereo",
        "GTSAM's stereo visual odometry: factors, with poses and calibration beside them",
        gtsam_stereo.read_gtsam_stereo,
        None,
    ),
    Format("tum", "TUM trajectory", trajectory.read_tum_graph, trajectory.write_tum_graph),
    Format("kitti", "KITTI trajectory", trajectory.read_kitti_graph, trajectory.write_kitti_graph),
)
FORMATS = Table(
    "graphopt.formats", "format", {**{row.name: row for row in _BUILT_IN}, **FOLDER_FORMATS}, Format
)
"""Name -> format."""


def register_format(format: Format) -> None:
    """Add a file format; files whose suffix is its name, and none of `io.detect.SUFFIXES`, are read as such.

    A package offers one by an entry point of the group "graphopt.formats", whose name is that of the format
    and whose object is the `Format`. Raises `OptionError` for a name that is taken.
    """
    FORMATS.register(format.name, format)


def _added_format(path: PathLike) -> str | None:
    """The format, of a program or an installed package, that the suffix names; None if it names none."""
    name = files.strip_compression(path).suffix.lower().removeprefix(".")
    is_own = name in FOLDER_FORMATS or name in {row.name for row in _BUILT_IN}
    is_added = name and not is_own and name in FORMATS
    return name if is_added else None


def detect_format(path: PathLike) -> str:
    """Name of the format of a file or folder.

    Raises FormatError if nothing fits, OSError if it cannot be read.
    """
    of_folder = _folder_format(path)
    return of_folder[0].name if of_folder else _added_format(path) or detect(files.read_bytes(path), path)


def _folder_format(path: PathLike) -> tuple[Format, Path] | None:
    """The format of a folder, and the folder; None for files of their own."""
    for name in FOLDER_FORMATS:
        row = FORMATS[name]
        folder = row.folder.find(path) if row.folder is not None else None
        if folder is not None:
            return row, folder
    return None


@knows_its_options
def read(path: PathLike, format: str | None = None, dialect: str | None = None) -> Graph:
    """Read a graph; format and dialect None: found from content and suffix. .gz .bz2 .xz are unpacked.

    `dialect` is one of `io.DIALECTS`: which program's layout the file is in. Raises FormatError
    (`path:line: ...`) for a file that does not follow its format, OSError for one that cannot be read,
    OptionError for a format or dialect that does not exist or does not fit. Warns where the file has edges
    only, so that all estimates are identities: `graphopt.initialize` computes start values from the edges.
    """
    graph, report = read_with_report(path, format, dialect)
    if report.needs_initialization:
        warnings.warn(
            f"{report.path} holds no estimates: all {graph.num_vertices} vertices are at the identity. "
            "graphopt.initialize(graph) computes start values from the edges.",
            UserWarning,
            stacklevel=3,
        )
    return graph


def read_with_report(
    path: PathLike, format: str | None = None, dialect: str | None = None
) -> tuple[Graph, ReadReport]:
    """Like `read`, with a report of what was found: counts, unknown lines, the dialect, warnings."""
    with memory_for(lambda: f"{os.fsdecode(path)} needs more to be read than the system gives."):
        return _read(os.fsdecode(path), format, dialect)


def _read(path: str, format: str | None, dialect: str | None) -> tuple[Graph, ReadReport]:
    start = time.perf_counter()
    requested = None if format is None else FORMATS.row(format)
    if dialect is not None:
        look_up_dialect(dialect, format)
    of_folder = _folder_format(path)
    if of_folder is not None and (requested is None or requested.is_folder):
        row, folder = of_folder
        if dialect is not None:
            look_up_dialect(dialect, row.name)
        report = ReadReport(os.fspath(path), row.name)
        assert row.folder is not None
        graph = row.folder.read(folder, report)
    else:
        if requested is not None and requested.is_folder:
            raise FormatError(f"{os.fspath(path)}: a {requested.description.split(',')[0]} is a folder")
        data = files.read_bytes(path)
        preferred = None if dialect is None else look_up_dialect(dialect).format
        chosen = requested or FORMATS[_added_format(path) or detect(data, path, preferred)]
        if dialect is not None:
            look_up_dialect(dialect, chosen.name)
        report = ReadReport(os.fspath(path), chosen.name, dialect)
        graph = read_content(chosen, data, report)
    report.seconds = time.perf_counter() - start
    return graph, report


def read_content(format_: Format, data: bytes, report: ReadReport) -> Graph:
    """Graph of the unpacked content of a file.

    Raises FormatError; errors of the graph's own checks get the path.
    """
    assert format_.read is not None
    try:
        with np.errstate(all="ignore"):  # results are checked for being finite
            return format_.read(data, report.path, report)
    except FormatError:
        raise
    except GraphOptError as error:
        raise FormatError(f"{report.path}: {error}") from error


def content_of(graph: Graph, format_: Format, dialect: str | None = None) -> tuple[files.Content, list[str]]:
    """Content of a file of a graph, and what the format does not hold. Raises FormatError, OptionError."""
    assert format_.write is not None
    chosen = for_writing(graph, format_.name, dialect)
    with np.errstate(all="ignore"):  # numbers are checked for being finite
        return format_.write(graph) if chosen is None else format_.write(graph, chosen)


@knows_its_options
def write(graph: Graph, path: PathLike, format: str | None = None, dialect: str | None = None) -> list[str]:
    """Write a graph; format None: the one that `format_for_writing` names.

    `dialect` is one of `io.DIALECTS`, None: the one the graph was read in, else the format's default. .gz
    .bz2 .xz pack the file. The file is whole or not there: it is written beside its target and renamed.
    Returns sentences about what the format does not hold. Raises FormatError if it cannot hold the graph at
    all (nothing is written then), OSError if the path cannot be written, OptionError for a format or dialect
    that does not exist or does not fit.
    """
    with memory_for(lambda: f"{os.fsdecode(path)} needs more to be written than the system gives."):
        chosen = _writable(graph, path, format, dialect)
        if chosen.folder is not None:
            return chosen.folder.write(graph, path)
        data, warnings = content_of(graph, chosen, dialect)
        files.write_content(path, data)
        return warnings


def _writable(graph: Graph, path: PathLike, format: str | None, dialect: str | None) -> Format:
    """Format to write in, which can be written and has the dialect."""
    chosen = FORMATS.row(format or format_for_writing(graph, path))
    holding = next(
        (vertex_set.type.tag for vertex_set in graph.vertex_sets if vertex_set.holds_components), None
    )
    if holding is not None:
        raise FormatError(
            f"{os.fspath(path)}: some {holding} hold single components (Graph.hold), which no file format "
            "can say. Free them first, graph.hold(ids, components, held=False), or keep the graph by pickle."
        )
    bounded = next((vertex_set.type.tag for vertex_set in graph.vertex_sets if vertex_set.has_bounds), None)
    if bounded is not None and not chosen.keeps_bounds:
        raise FormatError(
            f"{os.fspath(path)}: some {bounded} have bounds (Graph.set_bounds), for which {chosen.name} has "
            "no place. Write .npz, keep the graph by pickle, or remove them, graph.set_bounds(ids)."
        )
    if dialect is not None:
        look_up_dialect(dialect, chosen.name)
    if chosen.write is None and not chosen.is_folder:
        raise FormatError(f"{os.fspath(path)}: {chosen.description} can be read but not written")
    return chosen


def check_representable(
    graph: Graph, path: PathLike, format: str | None = None, dialect: str | None = None
) -> None:
    """Raise now what `write` would raise for this graph, whatever its estimates will be; writes nothing.

    For callers that compute for a long time before they write. Raises FormatError, OptionError.
    """
    chosen = _writable(graph, path, format, dialect)
    if chosen.check is not None:
        chosen.check(graph)
    else:
        content_of(graph, chosen, dialect)


def format_for_writing(graph: Graph, path: PathLike) -> str:
    """Format that a path stands for.

    Raises FormatError where the suffix says nothing and the graph leaves it open.
    """
    for name in FOLDER_FORMATS:
        if Path(path).is_dir() or (not Path(path).suffix and name in graph.attachments):
            return name
    named = suffix_format(path) or _added_format(path)
    if named is not None:
        return named
    if any(len(vertex_set) and vertex_set.type.tag == bal.CAMERA for vertex_set in graph.vertex_sets):
        return "bal"
    raise FormatError(
        f"{os.fspath(path)}: the suffix names no format; use one of {', '.join(SUFFIXES)} or pass format="
    )


def check_writable(path: PathLike, format: str | None = None) -> None:
    """Raise OSError now if `write` to this path could not work later; leaves nothing behind.

    For callers that compute for a long time before they write.
    """
    requested = None if format is None else FORMATS.row(format)
    if requested is None and Path(path).is_dir():
        requested = FORMATS[next(iter(FOLDER_FORMATS))]
    if requested is not None and requested.folder is not None:
        requested.folder.check_writable(path)
    elif not Path(path).absolute().parent.is_dir():
        parent = os.fspath(Path(path).absolute().parent)
        raise FileNotFoundError(errno.ENOENT, "The folder to write into does not exist", parent)
    else:
        files.check_writable(path)
