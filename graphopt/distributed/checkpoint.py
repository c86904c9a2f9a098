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


def write_checkpoint(path: str, graph: Graph, iteration: int, chi2: float) -> None:
    """Write the estimates of a graph, whole or not at all. OSError where that fails."""
    arrays: dict[str, Any] = {"kind": _KIND, "iteration": iteration, "chi2": chi2}
    arrays["num_sets"] = len(graph.vertex_sets)
    for number, one in enumerate(graph.vertex_sets):
        arrays[f"tag_{number}"] = one.type.tag
        arrays[f"ids_{number}"], arrays[f"estimate_{number}"] = one.ids, one.estimate
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_checkpoint(path: str, graph: Graph) -> int:
    """Put a checkpoint's estimates into the graph that it was made of; returns how many iterations it had.

    `FormatError` where it is no checkpoint or one of another graph, which then is unchanged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise FormatError(f"{path}: this is no checkpoint of graphopt; --checkpoint writes them.") from error
    if str(arrays.get("kind")) != _KIND:
        raise FormatError(f"{path}: this is no checkpoint of graphopt; --checkpoint writes them.")
    pieces = []
    for number in range(int(arrays["num_sets"])):
        piece = Piece(str(arrays[f"tag_{number}"]), arrays[f"ids_{number}"], arrays[f"estimate_{number}"])
        _check(path, graph, piece)
        pieces.append(piece)
    if sum(len(one.ids) for one in pieces) != graph.num_vertices:
        raise FormatError(
            f"{path}: the checkpoint has {sum(len(one.ids) for one in pieces)} vertices, the graph "
            f"{graph.num_vertices}. It must be of the same graph."
        )
    for piece in pieces:
        piece.write(graph)
    return int(arrays["iteration"]) + 1


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
