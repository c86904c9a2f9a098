"""Damping on a device, three numbers beside H's diagonal or a vector of the host: the CPU's steps."""

from __future__ import annotations

import numpy as np
import pytest
from device_solvers import close, on_cpu, resident
from vulkan_graphs import bundle_adjustment

from graphopt.solver.trial import Damping
from graphopt.vulkan.kernels.damping import HEADER, header

WAYS = [("cholesky", "auto", "blocks"), ("pcg", "explicit", "blocks"), ("pcg", "implicit", "matrix-free")]
RULES = [
    Damping(1e-3, True, 1e-6, 1e32),
    Damping(0.3),
    Damping(0.5, True, 3.0, 3.0),
    Damping(0.5, True, 4.0, 3.0),
]


@pytest.mark.parametrize("access", ["address", "storage"])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_rules_after_a_vector(way, access):
    """H's diagonal is there again, also where a vector was given in its place; a floor above the ceiling."""
    device, host = resident(bundle_adjustment(), access, *way, tolerance=1e-24), on_cpu(bundle_adjustment())
    device.linearize()
    host.linearize()
    vector = np.random.default_rng(0).uniform(0.5, 2.0, host.dim) * host.diagonal
    for rule in RULES:
        assert device.solve(vector) and host.solve(vector)
        close(device.dx, host.dx, 1e-7)
        actual, expected = device.trial(rule), host.trial(rule)
        assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8)
        assert actual.gain == pytest.approx(expected.gain, rel=1e-7)
        close(device.dx, host.dx, 1e-5)
        for solver in (device, host):
            solver.pop()


@pytest.mark.parametrize("rows", [0, 1, 65535, 65536, 123456789])
def test_numbers_of_rows_survive_float32(rows):
    """Two numbers hold what one of 24 bits does not."""
    found = header(Damping(2.0, True, 0.5, 8.0), rows).astype(np.float32)
    assert len(found) == HEADER and found[:3].tolist() == [2.0, 0.5, 8.0]
    assert (int(found[3]) << 16) + int(found[4]) == rows
