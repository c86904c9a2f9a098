"""Optimization over the ranks of an MPI communicator, or over threads with a device each: docs/gpu.md."""

from __future__ import annotations

import os
from typing import Any

from graphopt.distributed import reading, writing
from graphopt.distributed.communicator import Communicator, RankError
from graphopt.distributed.mpi import MpiCommunicator
from graphopt.distributed.optimize import optimize
from graphopt.distributed.tables import PartedGraph

__all__ = ["Communicator", "PartedGraph", "RankError", "optimize", "read", "write"]


def read(path: str | os.PathLike[str], comm: Any) -> PartedGraph:
    """Read a graph archive (.npz) in parts, each rank of an mpi4py communicator its own; see `reading`."""
    return reading.read(path, MpiCommunicator.of(comm))


def write(parted: PartedGraph, path: str | os.PathLike[str], comm: Any) -> None:
    """Write the archive of a graph that was read in parts with its present estimates; see `writing`."""
    writing.write(parted, path, MpiCommunicator.of(comm))
