"""The problems: real graphs from the data folder, unpacked once, and the one function that computes chi2.

The data folder is `../shared/data` beside the checkout, or `$GRAPHOPT_SHARED/data`.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.graph import Graph

POSE_GRAPHS = {
    "sphere2500": "posegraph/sphere2500.g2o.xz",
    "M3500": "posegraph/M3500.g2o.xz",
    "parking-garage": "posegraph/parking-garage.g2o.xz",
    "intel": "posegraph/intel.g2o",
    "victoriaPark-full": "landmark/victoriaPark-full.g2o.xz",
}

BEST_CHI2 = {
    # Best that g2o or gtsam reach from the file's start; victoriaPark: g2o's Dogleg, 50 iterations.
    "sphere2500": 727.1492469980326,
    "M3500": 137.91295093603816,
    "parking-garage": 1.2386906415850636,
    "intel": 546.4611116018948,
    "victoriaPark-full": 13319.424907645422,
}

TARGET = 1.001
"""A solver has converged when its chi2 is at most this times the best known."""

Array = NDArray[np.float64]
Estimates = dict[str, tuple[NDArray[np.int64], Array]]
"""Vertex tag -> (ids (n,), estimates (n, storage_dim) in g2o's storage order)."""


@dataclass(frozen=True)
class Answer:
    """What a solver returned."""

    estimates: Estimates
    seconds: float
    """From the loaded problem to the answer: analysis, ordering, all iterations."""
    iterations: int
    objective: float | None = None
    """The solver's own objective at the answer, where it is not g2o's chi2 (gtsam's 3D factors)."""


def data_folder() -> Path:
    """Return the folder of real data sets; raises `FileNotFoundError` where there is none."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        raise FileNotFoundError(
            f"{root / 'data'}: the benchmarks need the real data sets; set GRAPHOPT_SHARED."
        )
    return root / "data"


def synthetic() -> Any:
    """The module ../shared/tools/synthetic_bal.py, which makes problems of published sizes."""
    path = data_folder().parent / "tools" / "synthetic_bal.py"
    specification = importlib.util.spec_from_file_location("synthetic_bal", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def graph_of(name: str) -> Graph:
    """A graph file, a file of the data folder, or a synthetic problem of a published size."""
    import graphopt

    if Path(name).exists():
        return graphopt.read(name)
    if (data_folder() / name).exists():
        return graphopt.read(data_folder() / name)
    tool = synthetic()
    if name not in tool.PUBLISHED:
        raise FileNotFoundError(f"{name} is no file, and none of {', '.join(tool.PUBLISHED)}.")
    return graph_of_arrays(tool.make(*tool.PUBLISHED[name], 1))


def graph_of_arrays(arrays: dict[str, np.ndarray]) -> Graph:
    """What `synthetic().make` returns as a graph: cameras stay, points are eliminated."""
    num_cameras, num_points = len(arrays["cameras"]), len(arrays["points"])
    graph = Graph()
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), arrays["cameras"])
    ids = num_cameras + np.arange(num_points)
    graph.add_vertices("VERTEX_TRACKXYZ", ids, arrays["points"], marginalized=True)
    edges = np.stack([arrays["camera_index"], ids[arrays["point_index"]]], axis=1)
    graph.add_edges("EDGE_OBSERVATION_BAL", edges, arrays["observations"])
    return graph


def with_other_ids(graph: Graph, seed: int) -> Graph:
    """The same problem with other vertex ids, and the edges of each set in another order."""
    rng, other = np.random.default_rng(seed), Graph()
    order = np.sort(np.concatenate([vertices.ids for vertices in graph.vertex_sets]))
    new_ids = 2 * rng.permutation(len(order)) + 1
    for vertices in graph.vertex_sets:
        rows = rng.permutation(len(vertices))
        ids = new_ids[np.searchsorted(order, vertices.ids[rows])]
        flags = {"fixed": vertices.fixed[rows], "marginalized": vertices.marginalized[rows]}
        other.add_vertices(vertices.type, ids, vertices.estimate[rows], **flags)
    for parameters in graph.parameter_sets:
        other.add_parameters(parameters.type, parameters.ids, parameters.values)
    for edges in graph.edge_sets:
        rows = rng.permutation(len(edges))
        other.add_edges(
            edges.type,
            new_ids[np.searchsorted(order, edges.vertices[rows])],
            edges.measurement[rows],
            edges.information[rows],
            kernel=edges.kernel[rows],
            kernel_width=edges.kernel_width[rows],
            level=edges.level[rows],
            parameters=edges.parameters[rows] if edges.parameters.shape[1] else None,
        )
    return other


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="graphopt-bench-")


@cache
def unpacked(name: str) -> Path:
    """Return the path of a data file, unpacked into a scratch folder if it is compressed."""
    source = data_folder() / name
    if source.suffix != ".xz":
        return source
    target = Path(_scratch().name) / source.stem
    target.write_bytes(lzma.decompress(source.read_bytes()))
    return target


@cache
def _graph(path: Path):
    import graphopt

    return graphopt.io.read(path)


def chi2(path: Path, estimates: Estimates) -> float:
    """Return the sum of e' Omega e over the graph in `path` at `estimates`, computed in numpy by graphopt."""
    graph = _graph(path).copy()
    for tag, (ids, values) in estimates.items():
        vertex_set = graph.vertex_set(tag)
        order = np.argsort(vertex_set.ids)
        vertex_set.estimate[order[np.searchsorted(vertex_set.ids, ids, sorter=order)]] = values
    return float(graph.chi2(robust=False))
