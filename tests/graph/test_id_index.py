"""`IdIndex`: single look-ups by the direct table and by the dictionary have the same answers."""

import numpy as np
import pytest

from graphopt.graph.id_index import IdIndex


class Ids:
    """A set with ids."""

    def __init__(self, ids: np.ndarray):
        self.ids = ids


def made(low: int = -3, stride: int = 2) -> tuple[list[Ids], IdIndex]:
    """20,000 ids in two sets, shuffled."""
    ids = np.random.default_rng(0).permutation(low + stride * np.arange(20_000, dtype=np.int64))
    sets = [Ids(ids[:500]), Ids(ids[500:])]
    return sets, IdIndex(sets)


@pytest.mark.parametrize("stride", [1, 2, 50])
def test_single_look_ups(stride: int) -> None:
    """Of dense and of sparse ids, few (by the table) and more than a sixteenth of all (by the dictionary)."""
    sets, index = made(stride=stride)
    for number, row in [(0, 0), (0, 499), (1, 0), (1, 19_499), *((1, row) for row in range(2000))] * 2:
        assert index.get(int(sets[number].ids[row])) == (number, row)
        assert index.get(np.int64(sets[number].ids[row])) == (number, row)
    assert made(stride=stride)[1].get(-4) is None
    assert made(stride=stride)[1].get(-3 + 20_000 * stride) is None
    assert made(stride=stride)[1].get(2**40) is None
    assert (made(stride=stride)[1].get(-2) is None) == (stride > 1)


@pytest.mark.parametrize("count", [1, 5000])
def test_look_ups_between_additions(count: int) -> None:
    """What was added is found, what is new is not found before."""
    sets, index = made()
    first = int(sets[1].ids.max()) + 7
    assert index.get(first) is None
    for k in range(5):
        more = first + k * count + np.arange(count)
        assert index.get(int(more[-1])) is None
        row = len(sets[1].ids)
        sets[1].ids = np.concatenate([sets[1].ids, more])
        index.added(1, row, more)
        assert index.get(int(more[-1])) == (1, row + count - 1)
        assert index.get(int(sets[0].ids[3])) == (0, 3)
    index.clear()
    assert index.get(first) == (1, 19_500)
