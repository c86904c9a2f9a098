"""What is stored of H for the products of the conjugate gradients, per edge group.

blocks        the off-diagonal blocks that the group contributes to
matrix-free   nothing: products compute the Jacobians anew
jacobians     what a product reads of the Jacobians, per edge and view
expressions   values of a product's program, likewise: see `view_cuts`
jp            nothing: each product first computes J x per edge, see `moved_vectors`

All of them store H's diagonal blocks; y = H x adds up the products of all groups. The choice is made per edge
set: groups of one edge set, which differ in their robust kernel, share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.option_names import EVALUATIONS, Evaluation, Products
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.layout import BlockLayout, DiagonalLayout, whole_layout


@dataclass(frozen=True, eq=False)
class Storage:
    """Stored blocks of H, and who has others."""

    layout: BlockLayout
    """All diagonal blocks, and the off-diagonal ones of groups with "blocks"."""
    products: tuple[Products, ...]
    """Per group."""
    places: tuple[tuple[np.ndarray, np.ndarray] | None, ...]
    """Per group with "blocks" where its blocks are, as `EdgeGroup.block_offset` and `block_transposed`."""
    evaluations: tuple[Evaluation, ...]
    """Per group."""

    @property
    def is_whole(self) -> bool:
        """All blocks of H are stored."""
        return all(product == "blocks" for product in self.products)

    @classmethod
    def of(
        cls,
        structure: Structure,
        num_kept: int,
        products: Sequence[Products],
        evaluations: Sequence[Evaluation] = (),
    ) -> Storage:
        """num_kept: blocks that Schur does not eliminate. evaluations: none: "gather" for all."""
        products = tuple(products)
        evaluations = tuple(evaluations) or ("gather",) * len(products)
        chosen = [product == "blocks" for product in products]
        if all(chosen):
            places = tuple((group.block_offset, group.block_transposed) for group in structure.groups)
            return cls(whole_layout(structure, num_kept), products, places, evaluations)
        if not any(chosen):
            return cls(DiagonalLayout(structure, num_kept), products, (None,) * len(products), evaluations)
        stored = [group for group, wanted in zip(structure.groups, chosen, strict=True) if wanted]
        blocks = structure.blocks_of(stored)
        found = iter(zip(blocks.offsets, blocks.transposed, strict=True))
        layout = BlockLayout.of(blocks.pattern, num_kept)
        places = tuple(next(found) if wanted else None for wanted in chosen)
        return cls(layout, products, places, evaluations)


def split_pin(pin: str) -> tuple[str, str]:
    """What is pinned of products and of the evaluation: "scatter" -> ("auto", "scatter")."""
    parts = pin.split("+")
    products = [part for part in parts if part not in EVALUATIONS] or ["auto"]
    evaluation = [part for part in parts if part in EVALUATIONS] or ["auto"]
    return products[0], evaluation[0]


def join_pin(products: str, evaluation: str) -> str:
    """The reverse of `split_pin`."""
    return "+".join(name for name in (products, evaluation) if name != "auto") or "auto"


def names_of(products: Sequence[Products], evaluations: Sequence[Evaluation]) -> list[str]:
    """Per group: "blocks", or "blocks+scatter"."""
    return [
        product if evaluation == "gather" else f"{product}+{evaluation}"
        for product, evaluation in zip(products, evaluations, strict=True)
    ]


def describe_products(
    tags: Sequence[str], products: Sequence[Products], evaluations: Sequence[Evaluation]
) -> str:
    """The choice of all groups, or those of the edge sets: "EDGE_SE2=blocks, EDGE_SE2_XY=jacobians"."""
    names = names_of(products, evaluations) or ["blocks"]
    if len(set(names)) == 1:
        return names[0]
    return ", ".join(f"{tag}={name}" for tag, name in dict(zip(tags, names, strict=True)).items())
