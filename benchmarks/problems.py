"""The problems: real graphs from the data folder, unpacked once, and the one function that computes chi2.

The data folder is `../shared/data` beside the checkout, or `$GRAPHOPT_SHARED/data`.
"""

from __future__ import annotations

import lzma
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
