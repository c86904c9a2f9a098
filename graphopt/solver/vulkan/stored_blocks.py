"""Products with the stored off-diagonal blocks of H, the part of edge groups with schedule "blocks".

    eliminated   y_l = H_lp x_p
    kept         y_p = (H_pp without diagonal) x_p + H_pl x_l
    whole        both

They assign all rows of y, zeros where there is no block; `edge_products` adds the other groups' part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.products import NORMAL, TRANSPOSED, RowProduct


class StoredBlocks:
    """The off-diagonal blocks of a layout."""

    def __init__(self, context: Context, layout: BlockLayout):
        self._context, self._layout = context, layout
        col = layout.col
        blocks = np.flatnonzero(layout.row_idx != col)
        is_coupling = col[blocks] >= layout.num_kept
        self._coupling, self._among_kept = blocks[is_coupling], blocks[~is_coupling]
        self._products: dict[str, RowProduct | None] = {}
        self._dots: Any = None

    @property
    def couples(self) -> bool:
        """Some of them are blocks of H_pl."""
        return len(self._coupling) > 0

    def steps(
        self, part: str, values: Any, x: Any, y: Any, status: Any, parity: int | None
    ) -> list[list[Launch]]:
        """y = a part of H x; none: there are no blocks, y is as it was."""
        if part not in self._products:
            self._products[part] = self._make(part)
        product = self._products[part]
        if product is None:
            return []
        if self._dots is None:
            self._dots = self._context.accumulators(self._context.vector_groups(self._layout.dim))
        return [
            product.chunk_launches(values, x, status, parity),
            [product.product_launch(x, y, self._dots, status, None, parity)],
        ]

    def _make(self, part: str) -> RowProduct | None:
        layout, both = self._layout, NORMAL | TRANSPOSED
        coupling_use = {"eliminated": TRANSPOSED, "kept": NORMAL, "whole": both}[part]
        kept = self._among_kept[: 0 if part == "eliminated" else None]
        blocks = np.concatenate([kept, self._coupling])
        if not len(blocks):
            return None
        uses = np.full(len(blocks), coupling_use, np.uint8)
        uses[: len(kept)] = both
        num_rows = layout.num_kept if part == "kept" else layout.num_blocks
        return RowProduct(self._context, layout, blocks, uses, num_rows)
