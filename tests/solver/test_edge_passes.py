"""Passes over all edges (native/src/edges) against numpy, on one thread and on several."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt import Graph, codegen
from graphopt.cpu_kernels import kernels
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.strategies.landmark_problem import chi2_by_vertex

MANY = 100_000


@pytest.mark.parametrize(
    "num_keys, size", [(1, MANY), (7, MANY), (2047, MANY), (2048, MANY), (50_000, MANY), (50_000, 300)]
)
@pytest.mark.parametrize("arranged", ["anyhow", "sorted", "sorted in thirds"])
def test_sort_by_key_is_stable(threads, num_keys, size, arranged):
    """Order, runs and keys; edges without a key come last in their order."""
    rng = np.random.default_rng(num_keys)
    table = rng.permutation(np.arange(-(num_keys // 3 + 1), num_keys))
    rows = rng.integers(len(table), size=(size, 2), dtype=np.int32)
    if arranged == "sorted":
        key = np.where(table < 0, num_keys, table)[rows[:, 1]]
        rows = np.ascontiguousarray(rows[np.argsort(key, kind="stable")])
    elif arranged == "sorted in thirds":  # what threads look at, if there are three: they fall in between
        rows[:, 1] = np.argmax(table == 0)
        rows[size * np.arange(1, 3) // 3 - 1, 1] = np.argmin(table)
    key = np.where(table < 0, num_keys, table)[rows[:, 1]]
    order, first, keys = kernels.sort_by_key(rows, 1, table, num_keys)
    np.testing.assert_array_equal(order, np.argsort(key, kind="stable"))
    present, count = np.unique(key[key < num_keys], return_counts=True)
    np.testing.assert_array_equal(keys, present)
    np.testing.assert_array_equal(first, np.concatenate([[0], np.cumsum(count)]))


@pytest.mark.parametrize("num_keys", [50_000, 1 << 30])
def test_few_keys_of_many_are_sorted_by_comparing(threads, num_keys):
    """Keys of which most do not occur."""
    rng = np.random.default_rng(5)
    table = rng.integers(num_keys, size=900)
    rows = rng.integers(len(table), size=(MANY, 1), dtype=np.int32)
    order, first, keys = kernels.sort_by_key(rows, 0, table, num_keys)
    np.testing.assert_array_equal(order, np.argsort(table[rows[:, 0]], kind="stable"))
    np.testing.assert_array_equal(keys, np.unique(table[rows[:, 0]]))
    assert first[-1] == MANY


@pytest.mark.parametrize("size", [300, MANY])
def test_edges_by_their_ends(threads, size):
    """By key of one slot, then by row of the other, then as they came; rows by their neighbours."""
    rng = np.random.default_rng(6)
    rows = rng.integers([[40, 700]], size=(size, 2)).astype(np.int32)
    table = rng.permutation(np.arange(-3, 37))
    key = np.where(table < 0, 37, table)[rows[:, 0]]
    order = kernels.sort_by_ends(rows, 0, 1, table, 37, 700)
    np.testing.assert_array_equal(order, np.lexsort((rows[:, 1], key)))
    by_end, first, _ = kernels.sort_by_key(rows, 1, np.arange(700), 700)
    keys = kernels.neighbour_keys(rows, 1, 0, by_end, first, 701, 40)
    for row in (0, 5, 699, 700):
        seen = rows[rows[:, 1] == row, 0]
        assert keys[row] == (40 * seen.min() + seen.max() if len(seen) else 1600)
    place = rng.permutation(700).astype(np.uint32)
    others = kernels.renumber_rows(rows, 1, place)
    np.testing.assert_array_equal(others, np.stack([rows[:, 0], place[rows[:, 1]]], axis=1))


@pytest.mark.parametrize("size", [300, MANY])
@pytest.mark.parametrize("leaves_out", [False, True])
def test_pairs_by_their_blocks(threads, size, leaves_out):
    """Places, with a bit for transposed blocks, and where blocks begin; none, and none at all."""
    rng = np.random.default_rng(7)
    offset = 9 * rng.integers(-20, 2000, size=(size, 3))
    transposed, order = rng.random((size, 3)) < 0.3, rng.permutation(size).astype(np.uint32)
    left_out = rng.random(size) < 0.2 if leaves_out else None
    own = offset[order, 1]
    own[own < 0] = -1
    if leaves_out:
        own[left_out[order]] = -1
    places = np.argsort(own, kind="stable")
    places = places[own[places] >= 0].astype(np.uint32)
    blocks, count = np.unique(own[own >= 0], return_counts=True)
    first, edges, found = kernels.sort_pairs(offset, transposed, 1, order, left_out)
    np.testing.assert_array_equal(found, blocks)
    np.testing.assert_array_equal(first, np.concatenate([[0], np.cumsum(count)]))
    np.testing.assert_array_equal(edges & 0x7FFFFFFF, places)
    np.testing.assert_array_equal(edges >> 31, transposed[order[places], 1])
    first, edges, found = kernels.sort_pairs(np.full((size, 3), -1), transposed, 1, order, left_out)
    assert first.tolist() == [0] and len(edges) == len(found) == 0
    numbers = np.unique(rng.integers(1 << 31, size=size))
    values = np.sort(rng.integers(1 << 31, size=size)).astype(np.uint32)
    np.testing.assert_array_equal(kernels.places_in(numbers, values), np.searchsorted(numbers, values))


def test_sorting_nothing_and_only_edges_without_a_key():
    """No destinations."""
    for size in (0, 5):
        order, first, keys = kernels.sort_by_key(np.zeros((size, 1), np.int32), 0, np.array([-1]), 9)
        np.testing.assert_array_equal(order, np.arange(size))
        assert first.tolist() == [0] and not len(keys)


def test_fingerprints_tell_contents_apart(threads):
    """Any bit of it, its length and the order of its words; the number of threads does not matter."""
    values = np.random.default_rng(1).normal(size=MANY)
    found = {kernels.fingerprint(values)}
    for place in (0, 1, 8191, 8192, MANY - 1):
        for bit in (0, 31, 63):
            changed = values.copy()
            changed.view(np.uint64)[place] ^= np.uint64(1) << np.uint64(bit)
            found.add(kernels.fingerprint(changed))
    swapped = values.copy()
    swapped[[0, 8]] = swapped[[8, 0]]
    found |= {kernels.fingerprint(swapped), kernels.fingerprint(values[:-1]), kernels.fingerprint(values[:0])}
    found |= {kernels.fingerprint(values.view(np.uint8)[:size]) for size in range(1, 9)}
    assert len(found) == 1 + 15 + 3 + 8
    assert kernels.fingerprint(values) in found
    kernels.set_num_threads(2)
    assert kernels.fingerprint(values) in found


def test_ids_are_looked_up(threads):
    """Outside the table and in its holes: -1, which the smallest row tells."""
    table = np.array([3, -1, 0, 2], np.int32)
    ids = np.array([[10, 12], [13, 10]])
    rows, smallest = kernels.look_up(ids, 10, table)
    np.testing.assert_array_equal(rows, [[3, 0], [2, 3]])
    assert smallest == 0
    bounds = np.iinfo(np.int64)
    for outside in (9, 11, 14, bounds.min, bounds.max):
        rows, smallest = kernels.look_up(np.array([[10, outside]]), 10, table)
        assert rows.tolist() == [[3, -1]] and smallest == -1
    many = np.random.default_rng(0).integers(10, 14, size=(MANY, 2))
    np.testing.assert_array_equal(kernels.look_up(many, 10, table)[0], table[many - 10])


def test_marks(threads):
    """Every vertex that occurs in the slot, and what was marked before."""
    rows = np.random.default_rng(0).integers(0, 2 * MANY, size=(MANY, 2), dtype=np.int32)
    mask = np.zeros(2 * MANY + 1, bool)
    mask[-1] = True
    kernels.mark(rows, 1, mask)
    np.testing.assert_array_equal(np.flatnonzero(mask[:-1]), np.unique(rows[:, 1]))
    assert mask[-1]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_kind_of_information(threads, dim):
    """One matrix decides; of chosen rows only those count; NaN off the diagonal is no diagonal matrix."""
    information = np.tile(np.eye(dim), (MANY, 1, 1))
    assert kernels.information_kind(information, None) == "identity"
    if dim > 1:
        information[MANY - 9, 0, 1] = -0.0
        assert kernels.information_kind(information, None) == "identity"
    information[77, dim - 1, dim - 1] = 2.0
    assert kernels.information_kind(information, None) == "diagonal"
    if dim > 1:
        for value in (1e-300, np.nan):
            information[MANY - 1, 0, 1] = value
            assert kernels.information_kind(information, None) == "full"
    assert kernels.information_kind(information, np.arange(100)) == "diagonal"
    assert kernels.information_kind(information, np.arange(78, 100)) == "identity"


@pytest.mark.parametrize("stride", [0, 1, 4])
def test_couplings(threads, stride):
    """Edges per pair of slots, and where kept blocks meet, by loops."""
    rng = np.random.default_rng(3)
    tables = [rng.permutation(np.arange(-5, 40)), rng.permutation(np.arange(-3, 60)), np.arange(20)]
    rows = np.stack([rng.integers(len(table), size=MANY, dtype=np.int32) for table in tables], axis=1)
    num_kept, num_gone = 25, 60 - 25
    optimized, eliminated, meetings = kernels.couplings(rows, tables, num_kept, num_gone, stride)
    blocks = np.stack([table[rows[:, slot]] for slot, table in enumerate(tables)], axis=1)
    for number, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        both = (blocks[:, a] >= 0) & (blocks[:, b] >= 0)
        assert optimized[number] == np.count_nonzero(both)
        assert eliminated[number] == np.count_nonzero(both & (blocks[:, [a, b]] >= num_kept).any(axis=1))
    expected = []
    for edge, own in enumerate(blocks.tolist() if stride else []):
        kept = [block for block in own if 0 <= block < num_kept]
        gone = [block - num_kept for block in own if block >= num_kept]
        if gone and gone[-1] % stride == 0:
            expected += [(gone[-1] // stride, block) for block in kept]
        elif not gone and len(kept) > 1:
            expected += [(num_gone // stride + 1 + edge, block) for block in kept]
    assert list(map(tuple, meetings.tolist())) == expected


def test_inverse_order_and_common_step(threads):
    """The inverse of a permutation; whether numbers are equally far apart."""
    order = np.random.default_rng(4).permutation(MANY).astype(np.uint32)
    np.testing.assert_array_equal(kernels.invert_order(order)[order], np.arange(MANY))
    for dtype in (np.int32, np.uint32, np.int64):
        numbers = np.arange(7, 7 + 3 * MANY, 3, dtype=dtype)
        assert kernels.common_step(numbers) == 3
        assert kernels.common_step(numbers[::-1].copy()) == -3
        numbers[-1] += 1
        assert kernels.common_step(numbers) is None
    assert kernels.common_step(np.zeros(2, np.int32)) == 0
    assert kernels.common_step(np.zeros(1, np.int32)) is None


@pytest.mark.parametrize("kernel", ["", "Huber"])
@pytest.mark.parametrize("information", ["identity", "diagonal", "full"])
@pytest.mark.parametrize("some", [False, True])
def test_chi2_by_vertex(threads, kernel, information, some):
    """Sums over the edges of each landmark are those of the Linearizer's chi2 of single edges."""
    rng = np.random.default_rng(5)
    num_cameras, num_points, num_edges = 20, 400, 3000
    graph = Graph()
    cameras = np.zeros((num_cameras, 9))
    cameras[:, :3] = rng.normal(0, 0.02, (num_cameras, 3))
    cameras[:, 6] = 500.0
    points = rng.normal(0, 1, (num_points, 3)) - [0, 0, 8]
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), cameras)
    graph.add_vertices("VERTEX_TRACKXYZ", 100 + np.arange(num_points), points, marginalized=True)
    vertices = np.stack(
        [rng.integers(num_cameras, size=num_edges), 100 + rng.integers(num_points, size=num_edges)], axis=1
    )
    matrix = {"identity": np.eye(2), "diagonal": np.diag([2.0, 3.0]), "full": np.array([[2, 0.5], [0.5, 1]])}
    graph.add_edges(
        "EDGE_OBSERVATION_BAL",
        vertices,
        rng.normal(0, 5, (num_edges, 2)),
        matrix[information],
        kernel=kernel or None,
        kernel_width=rng.uniform(1, 3, num_edges),
        level=rng.integers(2, size=num_edges) if some else 0,
    )
    structure = Structure(graph.select())
    (group,) = structure.groups
    assert (group.chosen_rows is None) == (not some) and group.information == information
    solver = CpuBlockSolver(graph, structure, SolverOptions("cpu"))
    chi2 = solver.edge_chi2(group)
    if kernel:
        width = group.edge_set.kernel_width[group.rows]
        chi2 = np.where(chi2 > width**2, 2 * np.sqrt(chi2) * width - width**2, chi2)
    for slot in (0, 1):
        found = structure.sorted_edges(group, slot)
        row = group.vertex_rows[:, slot]
        expected = np.bincount(row, chi2)[np.unique(row)]
        np.testing.assert_allclose(chi2_by_vertex(structure, group, slot), expected, rtol=1e-12)
        assert found is structure.sorted_edges(group, slot)
    assert len(codegen.information_columns(2, information)) == codegen.information_dim(2, information)


def test_rows_are_padded(threads):
    """In pieces, with zeros behind, as float64, float32 and two floats."""
    values = np.random.default_rng(0).normal(size=(MANY, 3))
    for width, dtype, numbers in (
        ("float64", np.float64, 1),
        ("float32", np.float32, 1),
        ("two_floats", np.float32, 2),
    ):
        out = np.ones((MANY, 4, numbers), dtype)
        for first in (0, MANY // 3):
            last = MANY // 3 if first == 0 else MANY
            kernels.pad_rows(values, 4, first, width, out[first:last].reshape(-1).view(np.uint8))
        assert not out[:, 3].any()
        np.testing.assert_array_equal(out[:, :3, 0], values.astype(dtype))
        if numbers == 2:
            rest = values - out[:, :3, 0]
            np.testing.assert_array_equal(out[:, :3, 1], rest.astype(np.float32))


@pytest.mark.parametrize("width", ["float64", "two_floats"])
def test_rows_come_back(threads, width):
    """Chosen ones, without what pads them; the others stay."""
    rng = np.random.default_rng(0)
    sent, values = rng.normal(size=(MANY, 3)), rng.normal(size=(MANY, 3))
    records = np.empty(MANY * 4)
    kernels.pad_rows(sent, 4, 0, width, records.view(np.uint8))
    chosen = rng.random(MANY) < 0.7
    expected = np.where(chosen[:, None], sent, values)
    kernels.unpad_rows(records, 4, width, chosen, values)
    np.testing.assert_allclose(values, expected, rtol=0.0 if width == "float64" else 1e-14)


@pytest.mark.parametrize("num", [0, 1, MANY])
def test_row_table(threads, num):
    """Offset, first scalar row and dimension of the block, for every scalar row."""
    rng = np.random.default_rng(num)
    dims = rng.integers(1, 9, size=num, dtype=np.int32)
    offset = rng.permutation(num) * 100
    first = np.cumsum(dims) - dims
    within = np.arange(int(dims.sum())) - np.repeat(first, dims)
    expected = np.stack(
        [np.repeat(offset, dims) + within, np.repeat(first, dims), np.repeat(dims, dims)], axis=1
    )
    np.testing.assert_array_equal(kernels.row_table(dims, offset), expected)


def test_large_sums(threads):
    """Above the bound per edge, or not a number, in order; places without edges are left out."""
    rng = np.random.default_rng(4)
    count = rng.integers(0, 4, MANY).astype(np.uint32)
    sums = rng.exponential(size=MANY)
    sums[[5, 77, MANY - 1]] = np.nan, np.inf, 1e300
    count[[5, 77, MANY - 1]] = 1
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.uint32)
    expected = np.flatnonzero((count > 0) & ~(sums <= 0.7 * count))
    np.testing.assert_array_equal(kernels.large_sums(sums, first, 0.7), expected)
    assert not len(kernels.large_sums(sums[:0], first[:1], 0.0))


@pytest.mark.parametrize("num", [0, 5, 70_000])
def test_segments_in_another_order(num):
    """What follows the last segment stays behind them; a segment twice is refused."""
    rng = np.random.default_rng(num)
    first = np.concatenate([[0], np.cumsum(rng.integers(0, 4, num))]).astype(np.uint32)
    numbers = rng.integers(1 << 32, size=int(first[-1]) + 7, dtype=np.uint32)
    chosen = rng.permutation(num)
    starts, taken = kernels.take_segments(first, chosen, numbers)
    pieces = [numbers[first[s] : first[s + 1]] for s in chosen.tolist()]
    np.testing.assert_array_equal(taken, np.concatenate([*pieces, numbers[first[-1] :]]))
    np.testing.assert_array_equal(starts, np.cumsum([0, *map(len, pieces)]))
    if num:
        chosen[0] = chosen[-1]
        with pytest.raises(ValueError, match="each segment once"):
            kernels.take_segments(first, chosen, numbers)
