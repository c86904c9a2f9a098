"""How many processes mpirun or srun has started, without loading what they would do."""

from __future__ import annotations

import os

TASKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Where launchers say how many ranks they have started."""


def started_ranks() -> int:
    """What the launcher says; 1 where there was none."""
    told = (os.environ.get(name, "") for name in TASKS)
    return max((int(word) for word in told if word.isdigit()), default=1)
