"""Edge views, tiles and pair lists against plain loops."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from resident_graphs import mixed_plane, mixed_space
from vulkan_graphs import bundle_adjustment

from graphopt.codegen.gpu import EDGE_BLOCK, TILE, EdgeSignature
from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.array import pack_wide, unpack_wide
from graphopt.vulkan.data.views import (
    TRANSPOSED,
    edge_view,
    loop_lists,
    pair_lists,
    primary_slot,
    write_data,
    write_rows,
)

GRAPHS = {"plane": lambda: mixed_plane(loops=True), "space": mixed_space, "bundle": bundle_adjustment}


@pytest.fixture(params=GRAPHS)
def structure(request) -> Structure:
    """The structure of each graph."""
    return Structure(GRAPHS[request.param]().select())


def test_views_hold_every_edge_of_every_destination(structure):
    """Edges of a destination lie together in the order of the group; the primary view ends with the rest."""
    for group in structure.groups:
        for slot, number in enumerate(group.vertex_sets):
            blocks = structure.vertex_blocks[number][group.vertex_rows[:, slot]]
            for is_primary in (True, False):
                view = edge_view(structure, group, slot, is_primary=is_primary, num_kept=structure.num_kept)
                assert view.num_edges == (len(group.rows) if is_primary else np.count_nonzero(blocks >= 0))
                for d, block in enumerate(view.blocks):
                    mine = view.order[view.first[d] : view.first[d + 1]]
                    np.testing.assert_array_equal(mine, np.flatnonzero(blocks == block))
                rest = view.order[view.first[-1] :]
                np.testing.assert_array_equal(rest, np.flatnonzero(blocks < 0) if is_primary else [])
                assert (np.diff(view.blocks) > 0).all()


def test_tiles_are_runs_of_whole_destinations(structure):
    """No tile has more than TILE edges but a single destination's, nor kept and eliminated ones."""
    for group in structure.groups:
        for slot in range(len(group.vertex_sets)):
            view = edge_view(structure, group, slot, is_primary=True, num_kept=structure.num_kept)
            assert view.tiles[-1] == view.num_destinations
            for t in range(view.num_tiles):
                begin, end = view.tiles[t], view.tiles[t + 1]
                assert end > begin
                assert end == begin + 1 or view.first[end] - view.first[begin] <= TILE
                kept = view.blocks[begin:end] < structure.num_kept
                assert kept.all() == (t < view.num_kept_tiles) and kept.any() == kept.all()


def test_tiles_are_as_long_as_they_may_be():
    """Greedy from the left, with destinations larger than a tile by themselves."""
    counts = np.array([100, 28, 1, 300, 5, 128, 127, 2])
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    assert kernels.tile_starts(first, 0, len(counts), TILE).tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert kernels.tile_starts(first, 4, 4, TILE).tolist() == []


def test_pair_lists_hold_every_off_diagonal_block(structure):
    """Each pair of optimized slots appears once, transposed where H stores it so; loops twice."""
    for group in structure.groups:
        slot = primary_slot(structure, group)
        view = edge_view(structure, group, slot, is_primary=True, num_kept=structure.num_kept)
        expected, pair = set(), 0
        arity = len(group.vertex_sets)
        for a in range(arity):
            for b in range(a, arity):
                for edge in range(len(group.rows)):
                    offset = int(group.block_offset[edge, pair])
                    if a != b and offset >= 0:
                        is_loop = group.vertex_rows[edge, a] == group.vertex_rows[edge, b]
                        is_loop &= group.vertex_sets[a] == group.vertex_sets[b]
                        flags = (False, True) if is_loop else (bool(group.block_transposed[edge, pair]),)
                        expected |= {(a, b, offset, edge, flag) for flag in flags}
                pair += 1
        found = []
        lists = pair_lists(group, view, group.block_offset, group.block_transposed)
        lists += loop_lists(
            structure, group, view, structure.pattern.value_offsets[structure.pattern.col_ptr[1:] - 1]
        )
        for list_ in lists:
            for k, offset in enumerate(list_.offset):
                for entry in list_.edge[list_.first[k] : list_.first[k + 1]]:
                    edge = int(view.order[entry & ~TRANSPOSED])
                    found.append((*list_.slots, int(offset), edge, bool(entry & TRANSPOSED)))
            assert (np.diff(list_.offset.astype(np.int64)) > 0).all()
        assert len(found) == len(set(found)) and set(found) == expected


def in_pieces(num_blocks, block_bytes, write):
    """What `write(first block, bytes)` writes, two blocks at a time; what lies behind stays as it is."""
    out = np.full((num_blocks + 1, block_bytes), 0xA5, np.uint8)
    for first in range(0, num_blocks, 2):
        write(first, out[first : min(first + 2, num_blocks)].reshape(-1))
    assert (out[-1] == 0xA5).all()
    return out[:-1].reshape(-1)


def test_blocked_arrays(structure):
    """Entry (e, k) of K per edge is at ((e / 64) K + k) 64 + e % 64, in pieces of any length."""
    for group in structure.groups:
        view = edge_view(structure, group, 0, is_primary=True, num_kept=structure.num_kept)
        signature = EdgeSignature(group.edge_set.type, group.information, group.kernel)
        num_rows, num_data = signature.num_rows, signature.num_data
        blocks = -(-view.num_edges // EDGE_BLOCK)
        num = blocks * EDGE_BLOCK
        rows = in_pieces(blocks, EDGE_BLOCK * 4 * num_rows, partial(write_rows, group, view)).view(np.uint32)
        data, narrow, pairs = (
            in_pieces(
                blocks,
                EDGE_BLOCK * nbytes * num_data,
                lambda first, out, width=width, group=group, view=view: write_data(
                    group, view, first, width, out
                ),
            ).view(dtype)
            for width, nbytes, dtype in (
                ("float64", 8, np.float64),
                ("float32", 4, np.float32),
                ("two_floats", 8, np.float32),
            )
        )
        np.testing.assert_array_equal(narrow, data.astype(np.float32))
        np.testing.assert_array_equal(pairs, pack_wide(data, False).ravel())
        for e in range(num):
            row = int(view.order[min(e, view.num_edges - 1)])
            places = ((e // 64) * num_rows + np.arange(num_rows)) * 64 + e % 64
            both = [*group.vertex_rows[row], *group.parameter_rows[row]]
            np.testing.assert_array_equal(rows[places], both)
            places = ((e // 64) * num_data + np.arange(num_data)) * 64 + e % 64
            measurement = group.edge_set.measurement[group.rows[row]]
            np.testing.assert_array_equal(data[places][: len(measurement)], measurement)
            if group.kernel:
                assert data[places][-1] == group.edge_set.kernel_width[group.rows[row]]


def test_the_primary_slot_is_the_eliminated_one_or_that_of_most_vertices():
    """For bundle adjustment the points."""
    structure = Structure(bundle_adjustment().select())
    assert [primary_slot(structure, group) for group in structure.groups] == [1]
    graph = bundle_adjustment()
    graph.vertex_set("VERTEX_TRACKXYZ").marginalized = False
    structure = Structure(graph.select())
    assert [primary_slot(structure, group) for group in structure.groups] == [1]


def test_two_floats_carry_48_bits():
    """A float64 as (hi, lo) keeps 14 digits."""
    values = np.array([np.pi, -1e-7 / 3, 12345678.9, 0.0])
    words = pack_wide(values, has_float64=False)
    assert words.dtype == np.float32 and words.nbytes == values.nbytes
    back = unpack_wide(words.view(np.float64).ravel(), has_float64=False)
    np.testing.assert_allclose(back, values, rtol=2.0**-47)
