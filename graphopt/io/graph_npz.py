"""Every array of a graph as a numpy archive: all digits, robust kernels, levels, edges of any arity.

    graphopt                                                    version of the layout, 2
    v0_tag v0_ids v0_estimate v0_fixed v0_marginalized v0_order ...   a set of vertices
    v0_lower v0_upper                                           where some of them have bounds
    p0_tag p0_ids p0_values ...                                 a set of parameters
    e0_tag e0_vertices e0_measurement e0_information e0_kernel (names) e0_kernel_width e0_level e0_parameters
    e0_order ...                                                a set of edges of one type and arity

Information, kernels, widths and levels that all edges of a set share are one row (since layout 2). Arrays are
not packed: `map_graph_npz` makes a graph whose arrays are pages of the file.

Types are found by their tags: those of one's own must be defined before a file with them is read.
"""

from __future__ import annotations

import io
import math
import struct
import time
import zipfile
from typing import IO, Any

import numpy as np

from graphopt.errors import FormatError, GraphOptError, OptionError
from graphopt.foreign_arrays import adopted
from graphopt.graph import Graph
from graphopt.io.bal_problem import refuse_oversized
from graphopt.io.files import Content
from graphopt.io.read_report import ReadReport
from graphopt.types.computed import ComputedVertexType
from graphopt.types.robust_kernels import robust_kernel

VERSION = 2
MEMBER = "graphopt.npy"
"""First member of such an archive."""
_VERTICES = ("ids", "estimate", "fixed", "marginalized")
_BOUNDS = ("lower", "upper")
"""Columns of vertices, where some have bounds."""
_PARAMETERS = ("ids", "values")
_EDGES = ("vertices", "measurement", "information", "kernel_width", "level", "parameters")
_SHARED = ("information", "kernel", "kernel_width", "level")
"""Columns of edges that are one row where all edges have the same."""


def write_graph_npz(graph: Graph) -> tuple[Content, list[str]]:
    """What writes the archive of a graph, and what was lost. FormatError for computed values and images."""
    arrays: dict[str, Any] = {"graphopt": np.array(VERSION)}
    for k, vertex_set in enumerate(graph.vertex_sets):
        _refuse_computed(vertex_set.type)
        arrays |= {
            f"v{k}_tag": vertex_set.type.tag,
            **{f"v{k}_{name}": getattr(vertex_set, name) for name in _VERTICES},
        }
        arrays[f"v{k}_order"] = vertex_set.sequence
        if vertex_set.has_bounds:
            arrays |= {f"v{k}_{name}": vertex_set.look(name) for name in _BOUNDS}
    for k, parameter_set in enumerate(graph.parameter_sets):
        if parameter_set.type.image is not None:
            raise FormatError(f"{parameter_set.type.tag} holds images, which this format has no place for.")
        arrays |= {
            f"p{k}_tag": parameter_set.type.tag,
            **{f"p{k}_{name}": getattr(parameter_set, name) for name in _PARAMETERS},
        }
    for k, edge_set in enumerate(graph.edge_sets):
        columns = {name: np.asarray(edge_set.look(name)) for name in _EDGES}
        columns["kernel"] = _kernel_names(edge_set.look("kernel"))
        for name in _SHARED:
            if len(edge_set) and (columns[name] == columns[name][:1]).all():
                columns[name] = columns[name][:1]
        arrays |= {f"e{k}_{name}": values for name, values in columns.items()}
        arrays |= {f"e{k}_tag": edge_set.type.tag, f"e{k}_order": edge_set.look("sequence")}
    held = any(vertex_set.holds_components for vertex_set in graph.vertex_sets)
    lost = ["which components of vertices are held"] if held else []
    lost += ["lines of unknown tags"] if graph.unparsed else []
    return lambda file: np.savez(file, **arrays), lost


def _refuse_computed(kind: Any) -> None:
    if isinstance(kind, ComputedVertexType):
        raise FormatError(
            f"{kind.tag} is a computed value, which this format has no place for: pickle the graph."
        )


def read_graph_npz(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of an archive. FormatError where an array is missing or does not fit, or a tag is unknown."""
    refuse_oversized(data, path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _graph_of(arrays)
    except KeyError as error:
        raise FormatError(f"{path}: the archive has no array {error}") from error
    except GraphOptError as error:
        raise FormatError(f"{path}: {error}") from error
    except Exception as error:  # numpy lets SyntaxError, zlib.error, ... through
        raise FormatError(f"{path}: damaged .npz archive ({type(error).__name__}: {error})") from error


def map_with_report(path: str, dialect: str | None = None) -> tuple[Graph, ReadReport]:
    """`map_graph_npz`, with a report. `OptionError` for another format, which ranks do not get parts of."""
    if not path.endswith(".npz") or dialect is not None:
        raise OptionError(
            f"{path}: ranks read parts of a graph archive (.npz) only. Make one with `graphopt convert "
            f"{path} graph.npz`, or let rank 0 read the file and scatter it."
        )
    start = time.perf_counter()
    graph, report = map_graph_npz(path), ReadReport(path, "graph_npz")
    report.seconds = time.perf_counter() - start
    return graph, report


def map_graph_npz(path: str) -> Graph:
    """Graph of an archive whose arrays of vertices and edges are pages of the file, which stays as it is.

    Memory is taken by what is written (estimates), and by kernels and levels. Information that all edges of a
    set share can be read only. Raises `FormatError` where the archive is damaged, packed, or none of a graph,
    and `OSError` where it cannot be read.
    """
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for member in archive.infolist():
                arrays[member.filename.removesuffix(".npy")] = _mapped(path, file, member)
        for name, values in arrays.items():
            if name.endswith("_information") and len(values) == 1:
                count = len(arrays[name.replace("_information", "_vertices")])
                arrays[name] = adopted(_of_all(values, count))
        return _graph_of(arrays)
    except KeyError as error:
        raise FormatError(f"{path}: the archive has no array {error}; is it one of a graph?") from error
    except GraphOptError as error:
        raise FormatError(f"{path}: {error}") from error
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, struct.error) as error:
        raise FormatError(f"{path}: damaged or truncated .npz archive ({error})") from error


def _graph_of(arrays: dict[str, np.ndarray]) -> Graph:
    _check_version(int(arrays["graphopt"]))
    graph = Graph()
    for k in range(_count(arrays, "v")):
        ids, estimate, fixed, marginalized = (arrays[f"v{k}_{name}"] for name in _VERTICES)
        tag = str(arrays[f"v{k}_tag"])
        order = arrays[f"v{k}_order"]
        graph.add_vertices(tag, ids, estimate, fixed=fixed, marginalized=marginalized, order=order)
        if f"v{k}_lower" in arrays:
            graph.set_bounds(ids, *(arrays[f"v{k}_{name}"] for name in _BOUNDS))
    for k in range(_count(arrays, "p")):
        graph.add_parameters(str(arrays[f"p{k}_tag"]), arrays[f"p{k}_ids"], arrays[f"p{k}_values"])
    for k in range(_count(arrays, "e")):
        vertices, measurement, information, width, level, parameters = (
            arrays[f"e{k}_{name}"] for name in _EDGES
        )
        count = len(vertices)
        kernel, level = (_of_all(values, count) for values in (arrays[f"e{k}_kernel"], level))
        graph.add_edges(
            str(arrays[f"e{k}_tag"]), vertices, measurement, _of_all(information, count),
            kernel=kernel_numbers_of(kernel), kernel_width=_of_all(width, count), level=level,
            parameters=parameters, order=arrays[f"e{k}_order"],
        )  # fmt: skip
    return graph


def _check_version(version: int) -> None:
    if not 1 <= version <= VERSION:
        raise FormatError(f"layout {version}, expected 1 to {VERSION}: of a newer graphopt?")


def _of_all(values: np.ndarray, count: int) -> np.ndarray:
    """(count, ...) of a column that may be one row."""
    return np.broadcast_to(values, (count, *values.shape[1:])) if len(values) == 1 else values


def _kernel_names(numbers: np.ndarray) -> np.ndarray:
    """(n,) names of robust kernels, "" for none."""
    unique, index = np.unique(numbers, return_inverse=True)
    names = [robust_kernel(number).name if number else "" for number in unique.tolist()]
    return np.array(names, str)[index] if names else np.empty(0, str)


def kernel_numbers_of(names: np.ndarray) -> np.ndarray:
    """(n,) int32 numbers of robust kernels by their names, 0 for ""."""
    unique, index = np.unique(names, return_inverse=True)
    numbers = [robust_kernel(name).number if name else 0 for name in unique.tolist()]
    return np.array(numbers, np.int32)[index]


def _count(arrays: dict[str, np.ndarray], kind: str) -> int:
    return sum(name.startswith(kind) and name.endswith("_tag") for name in arrays)


def _mapped(path: str, file: IO[bytes], member: zipfile.ZipInfo) -> np.ndarray:
    """An array of an archive, mapped where it stands in the file; what is written there stays in memory."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise FormatError(
            f"{member.filename} is packed, so that its rows cannot be read by themselves; "
            "graphopt.write packs nothing."
        )
    file.seek(member.header_offset)
    header = file.read(30)
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    file.seek(name_length + extra_length, io.SEEK_CUR)
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise FormatError(f"{member.filename} holds Python objects, expected numbers.")
    start, size = file.tell(), dtype.itemsize * math.prod(shape)
    if start + size > member.header_offset + 30 + name_length + extra_length + member.file_size:
        raise FormatError(f"{member.filename} is shorter than its shape {shape} says.")
    order = "F" if is_fortran else "C"
    if not size:
        return np.empty(shape, dtype)
    return adopted(np.memmap(path, dtype, "c", start, shape, order))
