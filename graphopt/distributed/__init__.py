"""Optimization over the ranks of an MPI communicator, or over threads with a device each: docs/gpu.md."""

from __future__ import annotations

import os
from typing import Any

from graphopt import io
from graphopt.distributed.communicator import Communicator, RankError, together
from graphopt.distributed.mpi import MpiCommunicator
from graphopt.distributed.optimize import optimize
from graphopt.graph import Graph
from graphopt.io.graph_npz import map_with_report
from graphopt.problem.structure import marginalize_points

__all__ = ["Communicator", "RankError", "optimize", "read", "write"]


def read(path: str | os.PathLike[str], comm: Any) -> Graph | None:
    """On rank 0 of an mpi4py communicator a graph archive (.npz), on the others None. Collective.

    Measurements and the like stay in the file (`io.graph_npz.map_graph_npz`), from which ranks get theirs
    when the graph is optimized: no rank's memory has to hold the whole graph. Points are eliminated where the
    archive marks them as marginalized; where it marks nothing, if there are more of them than of other
    vertices.
    `FormatError`, `OptionError` or `OSError` on all ranks where a file is damaged or of another kind.
    """
    ranks = MpiCommunicator.of(comm)
    graph = together(ranks, lambda: map_with_report(os.fspath(path))[0] if ranks.rank == 0 else None)
    if graph is not None:
        marginalize_points(graph)
    return graph


def write(graph: Graph | None, path: str | os.PathLike[str], comm: Any) -> None:
    """Write rank 0's graph, whole or not at all, piece by piece as an archive (.npz). Collective.

    `FormatError` or `OSError`, on all ranks, where it cannot be written.
    """
    together(MpiCommunicator.of(comm), lambda: None if graph is None else io.write(graph, path))
