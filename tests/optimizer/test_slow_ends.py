"""Ends of runs whose steps gain less and less without being damped (`AutoOptions.slow_tolerance`)."""

from types import SimpleNamespace

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.scaled_damping import ScaledDamping

SLOW = 1e-7


def settled_at(decreases, weakest):
    """Index of the first decrease that ends a run whose steps are tried with this lambda; None: none does."""
    damping = ScaledDamping(AutoOptions(function_tolerance=1e-12, slow_tolerance=SLOW))
    damping.start(SimpleNamespace(structure=SimpleNamespace(has_kernels=False)), 1.0)
    for index, decrease in enumerate(decreases):
        damping._weakest = weakest
        if damping.has_settled(decrease, 1e-12):
            return index
    return None


@pytest.mark.parametrize("ratio", [0.7, 0.9, 0.95])
def test_series_that_is_over_ends_where_steps_are_not_damped(ratio):
    """After ten small ones, with ten tolerances left at most; strong damping says nothing of what is left."""
    decreases = SLOW * ratio ** np.arange(400)
    last = settled_at(decreases, 1e-11)
    assert last is not None and last >= 9
    assert decreases[last + 1 :].sum() <= 10.0 * SLOW
    strong = settled_at(decreases, 1e-3)
    assert strong is None or decreases[strong] <= 1e-12


@pytest.mark.parametrize("ratio", [1.0, 1.1])
def test_decreases_that_do_not_fall_are_no_end(ratio):
    assert settled_at(1e-2 * SLOW * ratio ** np.arange(12) * 50.0, 1e-11) is None


def test_negative_tolerance_is_refused():
    with pytest.raises(OptionError, match=r"slow_tolerance is -1.*must be >= 0"):
        AutoOptions(slow_tolerance=-1.0)
