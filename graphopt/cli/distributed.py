"""`graphopt optimize --distributed`: rank 0 reads, reports and writes, all ranks solve."""

from __future__ import annotations

import argparse

from graphopt.errors import GraphOptError, OptionError


def refuse(args: argparse.Namespace, has_distributed: bool = True) -> None:
    """`OptionError` for options that need ranks, and for ranks that would all do the same.

    has_distributed: the command can share its work among ranks.
    """
    for name in ("checkpoint", "resume", "read_in_parts"):
        if getattr(args, name):
            option = name.replace("_", "-")
            raise OptionError(
                f"--{option} needs --distributed, which also works without mpirun, as one rank."
            )
    from graphopt.distributed.mpi import started_ranks

    size = started_ranks()
    if size > 1:
        raise OptionError(
            f"{size} ranks were started, and without --distributed each would do all the work and write the "
            f"same file. {'Add --distributed, or leave' if has_distributed else 'Leave'} out mpirun."
        )


def run(args: argparse.Namespace) -> int:
    """What each rank does; its exit status."""
    from graphopt.cli import optimize
    from graphopt.distributed.communicator import is_agreed, together
    from graphopt.distributed.mpi import MpiCommunicator, world

    comm = world()
    ranks = MpiCommunicator.of(comm)
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
