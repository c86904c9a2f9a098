"""Schedule "blocks": the off-diagonal blocks of H that a group contributes to are stored.

Factorizations and an explicit Schur complement need them; products come from the blocks
(`kernels.blocks.StoredBlocks`), so the group's edges have no part in them. The fastest for small problems.
"""

from __future__ import annotations

from graphopt.option_names import Products
from graphopt.vulkan.operators.interface import EdgeSchedule


class Blocks(EdgeSchedule):
    """Pair lists write the blocks with H's diagonal (`kernels.writers`)."""

    name: Products = "blocks"
    stores_blocks = True

    def reads_estimate(self, slot: int) -> bool:
        """Not even x."""
        return False
