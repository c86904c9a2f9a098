"""`graphopt optimize --distributed`: rank 0 reads, reports and writes, all ranks solve."""

from __future__ import annotations

import argparse
import os

from graphopt.errors import GraphOptError, OptionError

_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""What mpirun says how many ranks there are with."""


def refuse(args: argparse.Namespace) -> None:
    """`OptionError` for options that need ranks, and for ranks that would all do the same."""
    for name in ("checkpoint", "resume"):
        if getattr(args, name) is not None:
            raise OptionError(f"--{name} needs --distributed, which also works without mpirun, as one rank.")
    size = max((int(os.environ.get(name, "1") or 1) for name in _LAUNCHERS), default=1)
    if size > 1:
        raise OptionError(
            f"{size} ranks were started, and without --distributed each would do all the work and write the "
            "same file. Add --distributed, or leave out mpirun."
        )


def run(args: argparse.Namespace) -> int:
    """What each rank does; its exit status."""
    from graphopt.cli import optimize
    from graphopt.distributed.communicator import is_agreed, together
    from graphopt.distributed.mpi import MpiCommunicator, world

    comm = world()
    ranks = MpiCommunicator(comm)
    leads = ranks.rank == 0
    try:
        given = together(ranks, lambda: optimize.read(args) if leads else None)
        if given is not None:
            return optimize.report(args, given, comm)
        return 0 if optimize.solve(None, args, comm).is_usable else 1
    except GraphOptError as error:
        if leads or not is_agreed(error):
            raise
        return 2  # rank 0 says it
