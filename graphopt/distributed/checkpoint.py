"""Estimates on the way, in a file that is whole or not there: `checkpoint=FILE, every=N` and `resume=FILE`.

The file is a .npz archive: `iteration`, `chi2`, and per vertex type i of the graph `tag_i`, `ids_i` (n,) and
`estimate_i` (n, storage_dim). It knows nothing of ranks, so any number of them may go on from it. The damping
starts anew.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.distributed.gathering import Piece
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.files import check_writable, write_bytes

_KIND = "graphopt checkpoint 1"


def write_checkpoint(path: str, pieces: list[Piece], iteration: int, chi2: float) -> None:
    """Write estimates, whole or not at all. OSError where that fails."""
    arrays: dict[str, Any] = {"kind": _KIND, "iteration": iteration, "chi2": chi2, "num_sets": len(pieces)}
    for number, piece in enumerate(pieces):
        arrays[f"tag_{number}"] = piece.tag
        arrays[f"ids_{number}"], arrays[f"estimate_{number}"] = piece.ids, piece.estimates
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def pieces_of(graph: Graph) -> list[Piece]:
    """All estimates of a graph."""
    return [
        Piece(vertex_set.type.tag, vertex_set.ids, vertex_set.estimate) for vertex_set in graph.vertex_sets
    ]


def read_checkpoint(path: str, graph: Graph, *, is_part: bool = False) -> int:
    """Put a checkpoint's estimates into the graph that it was made of; returns how many iterations it had.

    is_part: the graph is one rank's part, which must find its free vertices. `FormatError` where it is no
    checkpoint or one of another graph, which then is unchanged.
    """
    arrays = _arrays_of(path)
    pieces = []
    for number in range(int(arrays["num_sets"])):
        tag, ids, estimates = (arrays[f"{name}_{number}"] for name in ("tag", "ids", "estimate"))
        piece = Piece(str(tag), ids, estimates)
        pieces.append(_known(piece, graph) if is_part else piece)
        _check(path, graph, pieces[-1])
    found = sum(len(each_piece.ids) for each_piece in pieces)
    expected = graph.num_vertices
    if is_part:
        expected = sum(int((~vertex_set.fixed).sum()) for vertex_set in graph.vertex_sets)
        found = sum(int((~_fixed(graph, each_piece.ids)).sum()) for each_piece in pieces)
    if found != expected:
        raise FormatError(
            f"{path}: the checkpoint has {found} vertices, the graph {expected}. It must be of the same "
            "graph."
        )
    every = np.concatenate([np.empty(0, np.int64), *(piece.ids for piece in pieces)])
    if len(np.unique(every)) != len(every):
        raise FormatError(f"{path}: the checkpoint is damaged: it has a vertex twice.")
    for piece in pieces:
        piece.write(graph)
    return int(arrays["iteration"]) + 1


def _arrays_of(path: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, of the kinds and shapes that belong there. `FormatError`, or `OSError`."""
    none = f"{path}: this is no checkpoint of graphopt; --checkpoint writes them."
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
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


def _known(piece: Piece, graph: Graph) -> Piece:
    """What a part of the graph has of it."""
    known = graph.find_vertices(piece.ids)[0] >= 0
    return Piece(piece.tag, piece.ids[known], piece.estimates[known])


def _fixed(graph: Graph, ids: np.ndarray) -> np.ndarray:
    numbers, rows = graph.find_vertices(ids)
    fixed = np.zeros(len(ids), bool)
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        fixed[mine] = graph.vertex_sets[number].fixed[rows[mine]]
    return fixed


def _check(path: str, graph: Graph, piece: Piece) -> None:
    numbers, _ = graph.find_vertices(piece.ids)
    for row in np.flatnonzero(numbers < 0)[:1]:
        raise FormatError(
            f"{path}: vertex {int(piece.ids[row])} ({piece.tag}) is not in the graph. The checkpoint must be "
            "of the same graph."
        )
    for number in np.unique(numbers).tolist():
        kind = graph.vertex_sets[number].type
        if kind.tag != piece.tag or piece.estimates.shape[1] != kind.storage_dim:
            raise FormatError(
                f"{path}: the checkpoint has {piece.tag} where the graph has {kind.tag}. It must be of the "
                "same graph."
            )
    if not np.isfinite(piece.estimates).all():
        raise FormatError(f"{path}: an estimate of {piece.tag} is not finite.")


def check_path(path: str) -> None:
    """Complain now, not after hours, where a checkpoint could not be written."""
    check_writable(Path(path))
