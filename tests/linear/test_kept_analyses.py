"""A small matrix with the blocks of one before it is not analysed again; few analyses are kept."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.errors import DeviceLimitError
from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky import analysis as analysis_module
from graphopt.vulkan.cholesky.analysis import MOST_KEPT, analyse, analyse_ahead, analyse_once
from graphopt.vulkan.cholesky.work import Work


def chain(count, dim=3):
    """Each block beside the next one."""
    ptr = np.concatenate([[0], 1 + 2 * np.arange(count)])
    rows = np.concatenate([[0], *((k - 1, k) for k in range(1, count))])
    return BlockPattern(np.full(count, dim, np.int32), ptr.astype(np.int64), rows.astype(np.int32))


def test_equal_patterns_share_what_was_found():
    """Another size of a block, another neighbour or another ordering do not."""
    first = analyse_once(chain(30))
    assert analyse_once(chain(30)) is first
    others = [
        analyse_once(chain(31)),
        analyse_once(chain(30, dim=2)),
        analyse_once(BlockPattern([3] * 30, np.arange(31), np.arange(30))),
        analyse_once(chain(30), "dense"),
    ]
    assert all(analysis is not first for analysis in others)
    assert Work.of(first) is Work.of(first)
    assert Work.of(first) is not Work.of(others[0])


def test_it_is_what_a_new_analysis_finds():
    """Entry by entry."""
    kept, new = analyse_once(chain(40)), analyse(chain(40))
    for name in ("level", "factor_offset", "update_offset", "num_pivots", "num_below"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(new, name))
    np.testing.assert_array_equal(Work.of(kept).words, Work(new).words)


def test_few_small_ones_are_kept(monkeypatch):
    """The oldest one goes; large ones are never kept."""
    for count in range(5, 8 + MOST_KEPT):
        analyse_once(chain(count))
    assert len(analysis_module.kept_analyses) == MOST_KEPT
    monkeypatch.setattr(analysis_module, "MOST_KEPT_BLOCKS", 20)
    assert analyse_once(chain(21)) is not analyse_once(chain(21))


def test_what_was_begun_ahead_is_what_is_found():
    """One analysis, whoever asks first; one that cannot be made says so to each who asks."""
    analyse_ahead(chain(50))
    begun = analyse_once(chain(50))
    assert begun is analyse_once(chain(50))
    np.testing.assert_array_equal(begun.factor_offset, analyse(chain(50)).factor_offset)
    analyse_ahead(chain(50))
    assert analyse_once(chain(50)) is begun


def test_an_analysis_that_fails_ahead_is_told_and_not_kept(monkeypatch):
    """The next one who asks has it made anew."""
    monkeypatch.setattr(analysis_module, "MAX_INDICES", 10)
    analyse_ahead(chain(60))
    with pytest.raises(DeviceLimitError, match="a device counts to 9"):
        analyse_once(chain(60))
    monkeypatch.undo()
    assert analyse_once(chain(60)).dim == 180
