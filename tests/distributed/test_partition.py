"""Landmarks are assigned in equal numbers of edges with few copies of poses; no eliminated vertex is cut."""

import numpy as np
import pytest

from graphopt.distributed import partition as partitions
from graphopt.distributed.partition import Incidence, partition
from graphopt.errors import OptionError


def incidence_of(num_kept, num_eliminated, kept, eliminated):
    """With numbers as native code takes them."""
    columns = (np.ascontiguousarray(column, np.int32) for column in (kept, eliminated))
    return Incidence(num_kept, num_eliminated, *columns)


def street(num_poses=60, num_landmarks=400, reach=3, seed=0):
    """Landmarks along a street, each seen by poses near it; poses and landmarks in any order."""
    rng = np.random.default_rng(seed)
    pose, landmark = rng.permutation(num_poses), rng.permutation(num_landmarks)
    pairs = [
        (pose[k], landmark[i])
        for i in range(num_landmarks)
        for k in range(num_poses)
        if abs(k - i * num_poses / num_landmarks) <= reach
    ]
    kept, eliminated = np.array(pairs).T
    return incidence_of(num_poses, num_landmarks, kept[:, None], eliminated)


@pytest.mark.parametrize("method", ["slabs", "metis", "auto"])
@pytest.mark.parametrize("num_ranks", [2, 3, 7])
def test_balance_and_few_copies(method, num_ranks):
    """A street falls into pieces that share the poses at their ends."""
    incidence = street()
    found = partition(incidence, num_ranks, method)
    assert found.imbalance() < 1.1
    assert found.copies <= incidence.num_kept + (num_ranks - 1) * 14  # 2 * reach + 1 poses on either side
    first = np.full(incidence.num_eliminated, -1)
    first[incidence.eliminated] = found.edges
    np.testing.assert_array_equal(found.edges, first[incidence.eliminated])


def test_auto_takes_the_one_with_fewer_copies():
    """Measured, not guessed."""
    incidence = street(seed=5)
    both = [partition(incidence, 4, method).copies for method in ("slabs", "metis")]
    assert partition(incidence, 4).copies == min(both)


def test_auto_asks_metis_only_where_there_is_something_to_gain(monkeypatch):
    """A long street: slabs copy a few poses of hundreds."""
    incidence = street(600, 900, 1)
    slabs = partition(incidence, 2, "slabs")
    assert slabs.copies <= 1.01 * incidence.num_kept
    monkeypatch.setattr(partitions, "_by_metis", None)
    np.testing.assert_array_equal(partition(incidence, 2).edges, slabs.edges)


@pytest.mark.parametrize("method", ["slabs", "metis"])
def test_pose_graphs(method):
    """Edges between kept vertices, a ring of them."""
    kept = np.stack([np.arange(50), (np.arange(50) + 1) % 50], axis=1)
    found = partition(incidence_of(50, 0, kept, np.full(50, -1)), 4, method)
    assert found.imbalance() <= 1.12
    assert found.copies <= 50 + 4 * 4


def test_more_ranks_than_edges():
    """Some get nothing."""
    found = partition(incidence_of(3, 0, [[0, 1], [1, 2]], [-1, -1]), 5)
    assert len(set(found.edges.tolist())) == 2


def test_an_unknown_method_is_refused():
    """With the known ones."""
    with pytest.raises(OptionError, match="partition is 'best', expected one of auto, slabs, metis"):
        partition(street(), 2, "best")
