"""When a series of small decreases has an end: its sum by the geometric series, beside the true rest."""

from types import SimpleNamespace

import numpy as np
import pytest

from graphopt.optimizer.momentum import Momentum

TOLERANCE = 1e-7


def settled_at(decreases):
    """Index of the first decrease that ends a run; None: none does."""
    momentum = Momentum(SimpleNamespace())  # type: ignore[arg-type]
    return next((k for k, one in enumerate(decreases) if momentum.has_settled(one, TOLERANCE)), None)


@pytest.mark.parametrize("ratio", [0.3, 0.7, 0.9, 0.97])
def test_what_is_left_after_the_end_is_below_ten_tolerances(ratio):
    """Series that converge, slowly and fast."""
    decreases = 1e-2 * ratio ** np.arange(2000)
    last = settled_at(decreases)
    assert last is not None
    assert decreases[last + 1 :].sum() <= 10.0 * TOLERANCE


def test_a_series_that_hardly_converges_ends_far_below_the_tolerance():
    """1 / k: what is left is many times the last decrease, however small that is."""
    decreases = 1e-5 / np.arange(10, 5000)
    last = settled_at(decreases)
    assert last is not None
    assert decreases[last] <= TOLERANCE / 9.0
