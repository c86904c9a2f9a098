"""The native partition is what its definition in numpy says, bit by bit, for any number of threads."""

import numpy as np
import pytest
import scipy.sparse

from graphopt.cpu_kernels import kernels
from graphopt.distributed.partition import cut
from graphopt.graph.gather import gathered, put

NUM_RANKS = 3


def mixed(num_edges, num_kept, num_eliminated, seed=0):
    """Edges in any order: with and without an eliminated vertex, some slots empty."""
    rng = np.random.default_rng(seed)
    kept = rng.integers(-1, num_kept, (num_edges, 2), dtype=np.int32)
    eliminated = rng.integers(-num_eliminated // 4, num_eliminated, num_edges, dtype=np.int32)
    return kept, np.maximum(eliminated, -1), num_kept, num_eliminated


def items_of(kept, eliminated, num_eliminated):
    """Item of each edge, and (item, pose) of each slot that has one."""
    item = eliminated.astype(np.int64)
    alone = np.flatnonzero(item < 0)
    item[alone] = num_eliminated + np.arange(len(alone))
    edge, slot = np.nonzero(kept >= 0)
    return item, num_eliminated + len(alone), item[edge], kept[edge, slot]


@pytest.fixture(params=[(300, 11, 40), (70_000, 500, 9_000)])
def edges(request):
    """A few edges, and so many that they are shared by threads."""
    return mixed(*request.param)


def test_covisibility(threads, edges):
    """Pairs of neighbours in the sorted row of an item's poses, of every item or of every k-th."""
    kept, eliminated, num_kept, num_eliminated = edges
    native = kernels.EdgePartition(kept, eliminated, num_kept, num_eliminated)
    _, _, of_item, pose = items_of(kept, eliminated, num_eliminated)
    step = -(-len(pose) // (60 * num_kept))
    for most, each in ((10 * len(pose), 1), (1, step)):
        chosen = of_item % each == 0
        order = np.lexsort((pose[chosen], of_item[chosen]))
        one, two = of_item[chosen][order], pose[chosen][order]
        meet = (one[1:] == one[:-1]) & (two[1:] != two[:-1])
        pairs = two[:-1][meet], two[1:][meet]
        half = scipy.sparse.coo_matrix((np.ones(meet.sum()), pairs), shape=(num_kept, num_kept))
        expected = scipy.sparse.csr_matrix(half + half.T)
        begin, neighbor, count = native.covisibility(most)
        np.testing.assert_array_equal(begin, expected.indptr)
        np.testing.assert_array_equal(neighbor, expected.indices)
        np.testing.assert_array_equal(count, expected.data)


@pytest.mark.parametrize("spread", [1, 100])
def test_slabs(threads, edges, spread):
    """Items sorted by mean place, and cut; also where most have the same place."""
    kept, eliminated, num_kept, num_eliminated = edges
    native = kernels.EdgePartition(kept, eliminated, num_kept, num_eliminated)
    item, count, of_item, pose = items_of(kept, eliminated, num_eliminated)
    place = (np.random.default_rng(1).permutation(num_kept) // spread).astype(np.int32)
    mean = np.bincount(of_item, place[pose], minlength=count) / np.maximum(
        np.bincount(of_item, minlength=count), 1
    )
    row, weight = np.argsort(mean, kind="stable"), np.bincount(item, minlength=count)
    expected = np.empty(count, np.int64)
    expected[row] = cut(weight[row], NUM_RANKS)
    np.testing.assert_array_equal(native.weights(), weight)
    np.testing.assert_array_equal(native.slabs(place, NUM_RANKS), expected)


@pytest.mark.parametrize("room", [1.05, 10.0])
def test_nearest(threads, edges, room):
    """Where most kept vertices are; what has no room, from the least sure on, goes where there is some."""
    kept, eliminated, num_kept, num_eliminated = edges
    native = kernels.EdgePartition(kept, eliminated, num_kept, num_eliminated)
    item, count, of_item, pose = items_of(kept, eliminated, num_eliminated)
    weight = np.bincount(item, minlength=count).astype(float)
    label = (np.random.default_rng(2).integers(0, 9, num_kept) // 4).astype(np.int32)  # uneven
    votes = np.bincount(of_item * NUM_RANKS + label[pose], minlength=count * NUM_RANKS).reshape(-1, NUM_RANKS)
    expected = np.argmax(votes, axis=1)
    sure = votes.max(axis=1) / np.maximum(votes.sum(axis=1), 1)
    limit = room * weight.sum() / NUM_RANKS
    moved = []
    for rank in range(NUM_RANKS):
        members = np.flatnonzero(expected == rank)
        members = members[np.argsort(-sure[members], kind="stable")]
        moved.append(members[np.cumsum(weight[members]) > limit])
    moved = np.concatenate(moved)
    assert len(moved) > 0 or room > 2.0
    loads = np.bincount(np.delete(expected, moved), np.delete(weight, moved), minlength=NUM_RANKS)
    middle = np.cumsum(weight[moved]) - 0.5 * weight[moved]
    ends = np.cumsum(np.maximum(limit - loads, 0.0))
    expected[moved] = np.minimum(np.searchsorted(ends, middle), NUM_RANKS - 1)
    np.testing.assert_array_equal(native.nearest(label, NUM_RANKS, room), expected)


@pytest.mark.parametrize("num_ranks", [1, NUM_RANKS, 130])
def test_what_ranks_of_items_mean(threads, edges, num_ranks):
    """Ranks of edges, how many each has, and copies of kept vertices."""
    kept, eliminated, num_kept, num_eliminated = edges
    native = kernels.EdgePartition(kept, eliminated, num_kept, num_eliminated)
    item, count, of_item, pose = items_of(kept, eliminated, num_eliminated)
    ranks = np.random.default_rng(3).integers(0, num_ranks, count).astype(np.uint16)
    of_edges, counts, copies = native.assign(ranks, num_ranks)
    np.testing.assert_array_equal(of_edges, ranks[item])
    np.testing.assert_array_equal(counts, np.bincount(ranks[item], minlength=num_ranks))
    assert copies == len(np.unique(ranks[of_item].astype(np.int64) * num_kept + pose))
    np.testing.assert_array_equal(native.degrees(), np.bincount(pose, minlength=num_kept))
    for rank in (0, num_ranks - 1):
        np.testing.assert_array_equal(kernels.places_of(of_edges, rank), np.flatnonzero(of_edges == rank))


@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (3, 3), (0,)])
@pytest.mark.parametrize("dtype", [bool, np.int32, float])
def test_rows_are_gathered(threads, shape, dtype):
    """As indexing says."""
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2, (500, *shape)).astype(dtype)
    index = rng.integers(0, 500, 40_000)
    np.testing.assert_array_equal(gathered(values, index), values[index])


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("dtype", [bool, np.int32, float])
def test_rows_are_put_back(threads, shape, dtype):
    """As indexing says; other rows stay."""
    rng = np.random.default_rng(5)
    target, index = np.zeros((60_000, *shape), dtype), rng.permutation(60_000)[:40_000]
    values = rng.integers(0, 2, (40_000, *shape)).astype(dtype)
    requested = target.copy()
    requested[index] = values
    put(target, index, values)
    np.testing.assert_array_equal(target, requested)


def test_what_does_not_fit_is_refused():
    """Instead of memory of others."""
    kept, gone = np.zeros((2, 1), np.int32), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="kept names a vertex"):
        kernels.EdgePartition(kept + 5, gone, 5, 1)
    with pytest.raises(ValueError, match="eliminated names a vertex"):
        kernels.EdgePartition(kept, gone + 1, 5, 1)
    with pytest.raises(ValueError, match="an entry is outside"):
        kernels.EdgePartition(kept, gone, 1, 1).nearest(np.array([2], np.int32), 2, 1.0)
    with pytest.raises(ValueError, match="index names a row"):
        gathered(np.zeros(3), np.array([3]))
    with pytest.raises(ValueError, match="index names a row"):
        put(np.zeros(3), np.array([-1]), np.zeros(1))
    with pytest.raises(ValueError, match="values has a row per index"):
        put(np.zeros((3, 2)), np.array([1]), np.zeros((1, 3)))
