"""Products with H and its parts from the edges, as launches: nothing of H but its diagonal is stored.

    y_a = sum over edges of J_a' w Omega sum over t of J_t x_t

One launch per group and slot a: destinations are the vertices of the slot, sources t the other slots. What a
vertex contributes to its own row is in H's diagonal block, which is stored; where an edge names one vertex
twice, the diagonal block has its cross terms too, so then all slots are sources and the block is not used.

    eliminated   y_l = H_lp x_p         destinations that Schur eliminates, sources that stay
    kept         y_p = (H_pp without diagonal) x_p + H_pl x_l
    whole        both, with all sources

Launches that write the same rows run one after the other and add, as in `linearization`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.context import Launch
from graphopt.solver.vulkan.edges import DeviceEdges
from graphopt.solver.vulkan.linearization import DeviceLinearizer, plan_writes
from graphopt.solver.vulkan.transfer import DeviceArray


@dataclass(frozen=True)
class _Part:
    """A launch: the tiles of a slot's view, and the slots that it reads x of."""

    edges: DeviceEdges
    slot: int
    sources: tuple[int, ...]
    tiles: tuple[int, int]
    blocks: np.ndarray
    """Blocks of the destinations."""


@dataclass(frozen=True)
class _Plan:
    parts: list[_Part]
    adds: list[bool]
    clears: bool
    """y is cleared before: some rows are written by no launch, or not by the first."""
    offsets: Mapping[int, DeviceArray]


class EdgeProducts:
    """Launches of the products; x and y are vectors like dx."""

    def __init__(self, linearizer: DeviceLinearizer, structure: Structure, num_kept: int):
        """num_kept: blocks that Schur does not eliminate."""
        self._linearizer = linearizer
        self._structure = structure
        self._num_kept = num_kept
        self.uses_diagonal = not any(edges.names_a_vertex_twice for edges in linearizer.edges)
        """The products leave out what H's diagonal blocks hold."""
        estimates = linearizer.estimates
        num_blocks = structure.num_blocks
        self._eliminated = self._plan("eliminated", estimates.kept_offsets, num_kept, num_blocks)
        self._kept = self._plan("kept", estimates.offsets, 0, num_kept)
        self._whole = self._plan("whole", estimates.offsets, 0, num_blocks)

    def _plan(self, part: str, offsets: Mapping[int, DeviceArray], first: int, last: int) -> _Plan:
        parts = [
            one
            for edges in self._linearizer.edges
            for slot in edges.views
            if (one := self._part(edges, slot, part)) is not None
        ]
        adds, clears, touched = plan_writes([one.blocks for one in parts], self._structure.num_blocks)
        clears = clears or not touched[first:last].all()
        return _Plan(parts, [one or clears for one in adds], clears, offsets)

    def _part(self, edges: DeviceEdges, slot: int, part: str) -> _Part | None:
        view = edges.views[slot].view
        boundary = view.num_kept_tiles
        tiles = {
            "eliminated": (boundary, view.num_tiles),
            "kept": (0, boundary),
            "whole": (0, view.num_tiles),
        }[part]
        sources = tuple(
            t
            for t in edges.views
            if (t != slot or not self.uses_diagonal) and (part != "eliminated" or self._has_kept(edges, t))
        )
        if tiles[0] == tiles[1] or not sources:
            return None
        destinations = slice(int(view.tiles[tiles[0]]), int(view.tiles[tiles[1]]))
        return _Part(edges, slot, sources, tiles, view.blocks[destinations])

    def _has_kept(self, edges: DeviceEdges, slot: int) -> bool:
        return edges.views[slot].view.num_kept_tiles > 0

    # ---------------------------------------------------------------- launches

    def clears(self, part: str) -> bool:
        """y must be 0 before the launches of a part: "eliminated", "kept" or "whole"."""
        return self._plan_of(part).clears

    def steps(
        self, part: str, version: int, x: Any, y: Any, status: Any, parity: int | None
    ) -> list[list[Launch]]:
        """The launches of a part: lists of independent ones, to be separated by barriers.

        version: of the estimates that H is linearised at. status, parity: of the conjugate gradient iteration
        that they belong to, parity None: of none.
        """
        plan = self._plan_of(part)
        records = self._linearizer.estimates.version(version)
        steps: list[list[Launch]] = [[]]
        for one, adds in zip(plan.parts, plan.adds, strict=True):
            if adds and steps[-1]:
                steps.append([])
            steps[-1] += one.edges.product_launches(
                one.slot, one.sources, records, plan.offsets, x, y, tiles=one.tiles, accumulate=adds
            )
        return [step for step in steps if step]

    def schur_diagonal_steps(
        self, version: int, inverse: Any, offsets: Mapping[int, Any], values: Any
    ) -> list[list[Launch]]:
        """Subtract H_pl H_ll^-1 H_lp from kept diagonal blocks in `values`, one launch after the other.

        offsets: by vertex set, buffers of where each eliminated vertex has its block in `inverse`.
        """
        records = self._linearizer.estimates.version(version)
        return [
            edges.schur_diagonal_launches(slot, other, records, offsets, inverse, values)
            for edges in self._linearizer.edges
            for slot in edges.views
            if self._has_kept(edges, slot)
            for other in edges.views
            if other != slot and self._has_eliminated(edges, other)
        ]

    def _has_eliminated(self, edges: DeviceEdges, slot: int) -> bool:
        view = edges.views[slot].view
        return view.num_kept_tiles < view.num_tiles

    def _plan_of(self, part: str) -> _Plan:
        return {"eliminated": self._eliminated, "kept": self._kept, "whole": self._whole}[part]
