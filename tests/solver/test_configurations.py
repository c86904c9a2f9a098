"""Configurations by name, and the options of conjugate gradients, on the CPU and a device."""

from __future__ import annotations

import re

import pytest

from graphopt.errors import OptionError
from graphopt.evaluate import datasets
from graphopt.optimizer import optimize


@pytest.mark.parametrize(
    "options, words",
    [
        ({"configuration": "PCG Implizit (GPU)"}, "Did you mean 'PCG Implicit"),
        ({"configuration": "llt-cpu", "linear_solver": "pcg"}, "has linear_solver 'cholesky'"),
        ({"configuration": "PCG (GPU)", "device": "cpu"}, "has device 'vulkan'"),
        ({"preconditioner": "hpp", "schur": "explicit"}, "is for schur='implicit'"),
        ({"pcg_tolerance": 1.5}, "between 0 and 1"),
        ({"pcg_iterations": 0}, "at least 1"),
    ],
)
def test_configurations_that_are_none(options, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        optimize(datasets.ba(cameras=3, points=10), "lm", 1, **options)


def test_few_pcg_iterations_solve_less():
    """pcg_iterations bounds the work of a step, on every way to solve."""
    for device in ("cpu", "vulkan"):
        for schur in ("explicit", "implicit", "off"):
            ends = []
            for limit in (1, None):
                graph = datasets.ba(cameras=5, points=60, camera="bal", seed=1)
                summary = optimize(
                    graph, "lm", 2, device=device, linear_solver="pcg", schur=schur, pcg_iterations=limit
                )
                ends.append(summary.final_chi2)
            assert ends[0] > ends[1]
