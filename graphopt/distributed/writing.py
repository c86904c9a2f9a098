"""The result of an archive that was read in parts, written by rank 0, whole or not at all.

Arrays other than estimates are copied from the input, a buffer at a time; estimates come from one rank after
the other, so rank 0 has those of all vertices and nothing else of the whole.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.distributed.gathering import each_rank, own_pieces
from graphopt.distributed.tables import PartedGraph
from graphopt.errors import OptionError
from graphopt.io.files import write_together
from graphopt.io.graph_npz import ArchiveRows

_BUFFER = 1 << 22


def write(parted: PartedGraph, path: str | os.PathLike[str], comm: Communicator) -> None:
    """Write the input's archive with the present estimates. Collective.

    `OptionError` for another format, `OSError` where it cannot be written, on all ranks.
    """
    target = os.fspath(path)
    if not target.endswith(".npz"):
        raise agreed(
            OptionError(f"{target}: a graph that was read in parts is written as a graph archive (.npz).")
        )
    estimates = together(comm, lambda: _Estimates(parted.path) if comm.rank == 0 else None)
    for pieces in each_rank(comm, own_pieces(comm, parted.share)):
        assert estimates is not None
        for piece in pieces:
            estimates.put(piece.tag, piece.ids, piece.estimates)
    together(comm, lambda: None if estimates is None else estimates.write(target))


class _Estimates:
    """All estimates of an archive: those of vertices without edges stay as they are there."""

    def __init__(self, path: str):
        self._path = path
        archive = ArchiveRows(path)
        self._values: dict[str, np.ndarray] = {}
        self._rows: dict[str, tuple[str, np.ndarray, np.ndarray]] = {}
        """By tag: name of the array, ids (n,) ascending and their rows (n,)."""
        for k in range(archive.num_sets("v")):
            name, ids = f"v{k}_estimate", archive.rows(f"v{k}_ids")
            order = np.argsort(ids, kind="stable")
            self._values[name] = archive.rows(name)
            self._rows[archive.tag(f"v{k}")] = name, ids[order], order

    def put(self, tag: str, ids: np.ndarray, estimates: np.ndarray) -> None:
        """Take those of some vertices of one type."""
        name, known, rows = self._rows[tag]
        self._values[name][rows[np.searchsorted(known, ids)]] = estimates

    def write(self, target: str) -> None:
        """The input's arrays, with these estimates."""
        write_together({Path(target): self._fill})

    def _fill(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(self._path) as given, zipfile.ZipFile(file, "w") as made:
            for member in given.infolist():
                with made.open(member.filename, "w", force_zip64=True) as taken:
                    values = self._values.get(member.filename.removesuffix(".npy"))
                    if values is not None:
                        np.lib.format.write_array(taken, values, allow_pickle=False)
                        continue
                    with given.open(member) as source:
                        shutil.copyfileobj(source, taken, _BUFFER)
