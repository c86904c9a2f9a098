"""Optimization over the ranks of an MPI communicator, or over threads with a device each: docs/scaling.md."""

from graphopt.distributed.communicator import Communicator, RankError
from graphopt.distributed.optimize import optimize

__all__ = ["Communicator", "RankError", "optimize"]
