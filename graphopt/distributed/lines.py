"""Equal pieces of a text's bytes, cut between lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphopt.distributed.communicator import Communicator, together


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines that begin in a rank's piece."""

    data: bytes
    end: int
    """Byte of the file that follows."""
    first_line: int
    """Number of the first one in the file, from 1 on."""


def read_lines(path: str, comm: Communicator) -> Lines:
    """This rank's lines. Collective; `OSError` on all ranks."""
    data, end = together(comm, lambda: _piece(path, comm.rank, comm.size))
    return Lines(data, end, 1 + sum(comm.share(data.count(b"\n"))[: comm.rank]))


def _piece(path: str, rank: int, size: int) -> tuple[bytes, int]:
    length = Path(path).stat().st_size
    begin, end = (number * length // size for number in (rank, rank + 1))
    with open(path, "rb") as file:
        file.seek(max(begin - 1, 0))
        if begin:
            file.readline()  # the rank before has it
        first = file.tell()
        data = file.read(max(end - first, 0))
        if data and not data.endswith(b"\n"):
            data += file.readline()
        return data, first + len(data)
