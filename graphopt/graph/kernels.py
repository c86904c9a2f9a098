"""Numbers of robust kernels in another process: users' kernels are numbered as they are defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphopt.types.robust_kernels import KERNELS, RobustKernel, robust_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphopt.graph.sets import EdgeSet


def used_own_kernels(edge_sets: Iterable[EdgeSet]) -> dict[int, RobustKernel]:
    """The users' kernels that edges have, by number."""
    numbers = {int(number) for edge_set in edge_sets for number in np.unique(edge_set.kernel)}
    return {number: robust_kernel(number) for number in sorted(numbers) if number >= len(KERNELS)}


def renumber_kernels(edge_sets: Iterable[EdgeSet], kernels: Mapping[int, RobustKernel]) -> None:
    """Give edges the numbers that these kernels have here."""
    changed = {old: kernel.number for old, kernel in kernels.items() if kernel.number != old}
    if changed:
        for edge_set in edge_sets:
            before = edge_set.kernel.copy()
            for old, new in changed.items():
                edge_set.kernel[before == old] = new
