"""Estimates on the way, in a file that is whole or not there: `checkpoint=FILE, every=N` and `resume=FILE`.

The file is a .npz archive: `iteration`, `chi2`, and per vertex type i of the graph `tag_i`, `ids_i` (n,) and
`estimate_i` (n, storage_dim). It knows nothing of ranks, so any number of them may go on from it. The damping
starts anew.
"""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.files import check_writable, packed_bytes, write_together

_KIND = "graphopt checkpoint 1"


def write_checkpoint(path: str, graph: Graph, iteration: int, chi2: float) -> None:
    """Write a graph's estimates, whole or not at all. OSError where that fails."""
    sets = graph.vertex_sets
    arrays: dict[str, Any] = {"kind": _KIND, "iteration": iteration, "chi2": chi2, "num_sets": len(sets)}
    for number, vertex_set in enumerate(sets):
        arrays[f"tag_{number}"] = vertex_set.type.tag
        arrays[f"ids_{number}"], arrays[f"estimate_{number}"] = vertex_set.ids, vertex_set.estimate
    write_together({Path(path): lambda file: np.savez(file, **arrays)})


def read_checkpoint(path: str, graph: Graph) -> int:
    """Put a checkpoint's estimates into the graph that it was made of; returns how many iterations it had.

    `FormatError` where it is no checkpoint or one of another graph, which then is unchanged.
    """
    arrays = _arrays_of(path)
    sets = [
        (str(arrays[f"tag_{number}"]), arrays[f"ids_{number}"], arrays[f"estimate_{number}"])
        for number in range(int(arrays["num_sets"]))
    ]
    places = [_places(path, graph, *one) for one in sets]
    every = np.concatenate([np.empty(0, np.int64), *(ids for _, ids, _ in sets)])
    if len(every) != graph.num_vertices:
        raise FormatError(
            f"{path}: the checkpoint has {len(every)} vertices, the graph {graph.num_vertices}. It must be "
            "of the same graph."
        )
    if len(np.unique(every)) != len(every):
        raise FormatError(f"{path}: the checkpoint is damaged: it has a vertex twice.")
    for (numbers, rows), (_, _, estimates) in zip(places, sets, strict=True):
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            graph.vertex_sets[number].estimate[rows[chosen]] = estimates[chosen]
    return int(arrays["iteration"]) + 1


def _arrays_of(path: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, of the kinds and shapes that belong there. `FormatError`, or `OSError`."""
    none = f"{path}: this is no checkpoint of graphopt; --checkpoint writes them."
    try:
        with np.load(BytesIO(packed_bytes(path)), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise FormatError(none) from error
    if str(arrays.get("kind")) != _KIND:
        raise FormatError(none)
    expected = {"iteration": (0, "iu"), "num_sets": (0, "iu")}
    _check_arrays(path, arrays, expected)
    for number in range(int(arrays["num_sets"])):
        _check_arrays(
            path,
            arrays,
            {f"tag_{number}": (0, "U"), f"ids_{number}": (1, "iu"), f"estimate_{number}": (2, "f")},
        )
        if len(arrays[f"ids_{number}"]) != len(arrays[f"estimate_{number}"]):
            raise FormatError(
                f"{path}: the checkpoint is damaged: ids_{number} and estimate_{number} differ."
            )
    return arrays


def _check_arrays(path: str, arrays: dict[str, np.ndarray], expected: dict[str, tuple[int, str]]) -> None:
    """expected: number of dimensions, and kinds of numbers, by name."""
    for name, (ndim, kinds) in expected.items():
        found = arrays.get(name)
        if found is None:
            raise FormatError(f"{path}: the checkpoint is damaged: there is no {name}.")
        if found.ndim != ndim or found.dtype.kind not in kinds:
            raise FormatError(
                f"{path}: the checkpoint is damaged: {name} holds {found.dtype} of shape {found.shape}."
            )


def _places(
    path: str, graph: Graph, tag: str, ids: np.ndarray, estimates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of vertex sets and rows of vertices that have to be there."""
    numbers, rows = graph.find_vertices(ids)
    for row in np.flatnonzero(numbers < 0)[:1]:
        raise FormatError(
            f"{path}: vertex {int(ids[row])} ({tag}) is not in the graph. The checkpoint must be of the same "
            "graph."
        )
    for number in np.unique(numbers).tolist():
        kind = graph.vertex_sets[number].type
        if kind.tag != tag or estimates.shape[1] != kind.storage_dim:
            raise FormatError(
                f"{path}: the checkpoint has {tag} where the graph has {kind.tag}. It must be of the same "
                "graph."
            )
    if not np.isfinite(estimates).all():
        raise FormatError(f"{path}: an estimate of {tag} is not finite.")
    return numbers, rows


def check_path(path: str) -> None:
    """Complain now, not after hours, where a checkpoint could not be written."""
    check_writable(Path(path))
