"""What `--distributed` needs, and what is refused without it."""

from __future__ import annotations

import argparse

from graphopt.errors import OptionError
from graphopt.launcher import started_ranks


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
    size = started_ranks()
    if size > 1:
        raise OptionError(
            f"{size} ranks were started, and without --distributed each would do all the work and write the "
            f"same file. {'Add --distributed, or leave' if has_distributed else 'Leave'} out mpirun."
        )
