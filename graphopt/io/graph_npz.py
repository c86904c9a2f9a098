"""Every array of a graph as a numpy archive: all digits, robust kernels, levels, edges of any arity.

    graphopt                                                    version of the layout, 1
    v0_tag v0_ids v0_estimate v0_fixed v0_marginalized v0_order ...   a set of vertices
    p0_tag p0_ids p0_values ...                                 a set of parameters
    e0_tag e0_vertices e0_measurement e0_information e0_kernel (names) e0_kernel_width e0_level e0_parameters
    e0_order ...                                                a set of edges of one type and arity

Types are found by their tags: those of one's own must be defined before a file with them is read.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from graphopt.errors import FormatError, GraphOptError
from graphopt.graph import Graph
from graphopt.io.bal_problem import refuse_oversized
from graphopt.io.read_report import ReadReport
from graphopt.types.computed import ComputedVertexType
from graphopt.types.robust_kernels import robust_kernel

VERSION = 1
MEMBER = "graphopt.npy"
"""First member of such an archive."""
_VERTICES = ("ids", "estimate", "fixed", "marginalized")
_PARAMETERS = ("ids", "values")
_EDGES = ("vertices", "measurement", "information", "kernel_width", "level", "parameters")


def write_graph_npz(graph: Graph) -> tuple[bytes, list[str]]:
    """Archive of a graph, and what was lost. FormatError for computed values and images."""
    arrays: dict[str, Any] = {"graphopt": np.array(VERSION)}
    for k, vertex_set in enumerate(graph.vertex_sets):
        _refuse_computed(vertex_set.type)
        arrays |= {
            f"v{k}_tag": vertex_set.type.tag,
            **{f"v{k}_{name}": getattr(vertex_set, name) for name in _VERTICES},
        }
        arrays[f"v{k}_order"] = vertex_set.sequence
    for k, parameter_set in enumerate(graph.parameter_sets):
        if parameter_set.type.image is not None:
            raise FormatError(f"{parameter_set.type.tag} holds images, which this format has no place for.")
        arrays |= {
            f"p{k}_tag": parameter_set.type.tag,
            **{f"p{k}_{name}": getattr(parameter_set, name) for name in _PARAMETERS},
        }
    for k, edge_set in enumerate(graph.edge_sets):
        arrays |= {
            f"e{k}_tag": edge_set.type.tag,
            **{f"e{k}_{name}": getattr(edge_set, name) for name in _EDGES},
        }
        names = [robust_kernel(number).name if number else "" for number in edge_set.kernel.tolist()]
        arrays[f"e{k}_kernel"] = np.array(names, str)
        arrays[f"e{k}_order"] = edge_set.sequence
    file = io.BytesIO()
    np.savez(file, **arrays)
    held = any(vertex_set.holds_components for vertex_set in graph.vertex_sets)
    lost = ["which components of vertices are held"] if held else []
    return file.getvalue(), [*lost, *(["lines of unknown tags"] if graph.unparsed else [])]


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
        if int(arrays["graphopt"]) != VERSION:
            raise FormatError(f"layout {int(arrays['graphopt'])}, expected {VERSION}: of a newer graphopt?")
        return _graph_of(arrays)
    except KeyError as error:
        raise FormatError(f"{path}: the archive has no array {error}") from error
    except GraphOptError as error:
        raise FormatError(f"{path}: {error}") from error
    except Exception as error:  # numpy lets SyntaxError, zlib.error, ... through
        raise FormatError(f"{path}: damaged .npz archive ({type(error).__name__}: {error})") from error


def _graph_of(arrays: dict[str, np.ndarray]) -> Graph:
    graph = Graph()
    for k in range(_count(arrays, "v")):
        ids, estimate, fixed, marginalized = (arrays[f"v{k}_{name}"] for name in _VERTICES)
        tag = str(arrays[f"v{k}_tag"])
        order = arrays[f"v{k}_order"]
        graph.add_vertices(tag, ids, estimate, fixed=fixed, marginalized=marginalized, order=order)
    for k in range(_count(arrays, "p")):
        graph.add_parameters(str(arrays[f"p{k}_tag"]), arrays[f"p{k}_ids"], arrays[f"p{k}_values"])
    for k in range(_count(arrays, "e")):
        vertices, measurement, information, width, level, parameters = (
            arrays[f"e{k}_{name}"] for name in _EDGES
        )
        rows = graph.add_edges(
            str(arrays[f"e{k}_tag"]), vertices, measurement, information,
            kernel_width=width, level=level, parameters=parameters, order=arrays[f"e{k}_order"],
        )  # fmt: skip
        edge_set, names = graph.edge_sets[-1], arrays[f"e{k}_kernel"]
        for name in filter(None, np.unique(names).tolist()):
            edge_set.kernel[rows][names == name] = robust_kernel(name).number
    return graph


def _count(arrays: dict[str, np.ndarray], kind: str) -> int:
    return sum(name.startswith(kind) and name.endswith("_tag") for name in arrays)
