"""What a product from the edges consists of: parts, units that one launch sums, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.edge_views import MANY_EDGES
from graphopt.solver.vulkan.edges import DeviceEdges
from graphopt.solver.vulkan.merging import MergedViews, Merging
from graphopt.solver.vulkan.transfer import DeviceArray
from graphopt.solver.vulkan.write_plan import WritePlan


@dataclass(frozen=True)
class Part:
    """The tiles of a slot's view, and the slots that their product reads x of."""

    edges: DeviceEdges
    slot: int
    sources: tuple[int, ...]
    tiles: tuple[int, int]
    blocks: np.ndarray
    """Blocks of the destinations."""

    @property
    def has_many_edges(self) -> bool:
        """Its destinations that are not long have many edges each."""
        view = self.edges.views[self.slot].view
        runs = view.short_tiles(self.tiles)
        count = sum(int(view.tiles[last]) - int(view.tiles[first]) for first, last in runs)
        return sum(map(view.edges_of, runs)) >= MANY_EDGES * count

    @property
    def long(self) -> tuple[int, int]:
        """Its long destinations, as `EdgeView.long_destinations`."""
        return self.edges.views[self.slot].view.long_destinations(self.tiles)


@dataclass(frozen=True)
class Unit:
    """What one launch sums: a part, or several with the same destinations."""

    parts: tuple[Part, ...]
    views: MergedViews | None
    """None: of a single part."""
    tiles: tuple[int, int]
    blocks: np.ndarray
    """Blocks of the destinations."""

    @property
    def key(self) -> tuple[tuple[int, int], ...]:
        """Tells the views of the parts."""
        return tuple((id(one.edges), one.slot) for one in self.parts)

    @property
    def all_blocks(self) -> np.ndarray:
        """Blocks of the destinations of all tiles, those of other products, too."""
        if self.views is not None:
            return self.views.tiles.blocks
        (one,) = self.parts
        return one.edges.views[one.slot].view.blocks


@dataclass(frozen=True)
class ProductPlan:
    """A product: "eliminated", "kept" or "whole"."""

    name: str
    units: list[Unit]
    writes: WritePlan
    offsets: Mapping[int, DeviceArray]

    @property
    def parts(self) -> list[Part]:
        """Those of all units."""
        return [part for unit in self.units for part in unit.parts]


def units_of(parts: Sequence[Part], name: str, merging: Merging) -> list[Unit]:
    """Parts of a product, those together that one launch sums."""
    own = {(id(one.edges), one.slot): one for one in parts}
    units = []
    for members in merging.units([(one.edges, one.slot) for one in parts]):
        chosen = tuple(own[id(edges), slot] for edges, slot in members)
        if len(chosen) == 1:
            units.append(Unit(chosen, None, chosen[0].tiles, chosen[0].blocks))
            continue
        views = merging.views(members)
        tiles = tiles_of(name, views.tiles.num_kept_tiles, views.tiles.num_tiles)
        begin, end = (int(views.tiles.tiles[one]) for one in tiles)
        units.append(Unit(chosen, views, tiles, views.tiles.blocks[begin:end]))
    return units


def tiles_of(name: str, boundary: int, num_tiles: int) -> tuple[int, int]:
    """Tiles of a product's destinations: those that stay come before the boundary."""
    return {"eliminated": (boundary, num_tiles), "kept": (0, boundary), "whole": (0, num_tiles)}[name]


def solve_arrays(
    structure: Structure, num_kept: int, unit: Unit, inverse_offset: np.ndarray
) -> dict[str, np.ndarray]:
    """Where destinations have their inverses and, of several parts, packed records; kept ones: 0.

    inverse_offset: (num_eliminated,) where each eliminated block's inverse begins.
    """
    landmark = unit.all_blocks - num_kept
    arrays = {"dest_inverse": np.where(landmark >= 0, inverse_offset[np.maximum(landmark, 0)], 0)}
    if unit.views is not None:
        first = unit.parts[0]
        blocks = structure.vertex_blocks[first.edges.group.vertex_sets[first.slot]]
        row_of = np.zeros(structure.num_blocks, np.int64)
        row_of[blocks[blocks >= 0]] = np.flatnonzero(blocks >= 0)
        arrays["dest_row"] = row_of[unit.all_blocks]
    return arrays
