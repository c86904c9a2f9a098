"""What device "auto" takes: a discrete GPU for large graphs, and what keeps it on the CPU."""

from __future__ import annotations

import pytest

from graphopt import datasets
from graphopt.solver import auto_device
from graphopt.solver.auto_device import choose_device
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure


@pytest.fixture
def gpu(monkeypatch):
    """A discrete GPU, number 1; graphs of 100 edges are large."""
    monkeypatch.setattr(auto_device, "_discrete_gpu", lambda: 1)
    monkeypatch.setattr(auto_device, "LARGE", 100)


GRAPHS = {
    "poses": (lambda: datasets.sphere(5, 30), "vulkan:1"),
    "landmarks": (lambda: datasets.ba(5, 60), "vulkan:1"),
    "few poses": (lambda: datasets.manhattan(20), "cpu"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_large_graphs_go_to_a_gpu(gpu, name):
    """With landmarks to eliminate and without."""
    make, expected = GRAPHS[name]
    assert choose_device(Structure(make().select()), SolverOptions()) == expected


@pytest.mark.parametrize("options", [{"schur": "off"}, {"linear_solver": "cholesky"}])
def test_what_is_asked_for_may_keep_it_on_the_cpu(gpu, options):
    """A factorization of all of H, or by name, is the CPU's unless a device is named too."""
    structure = Structure(datasets.ba(5, 60).select())
    assert choose_device(structure, SolverOptions(**options)) == "cpu"


def test_without_a_gpu_it_is_the_cpu(monkeypatch):
    """However large."""
    monkeypatch.setattr(auto_device, "_discrete_gpu", lambda: None)
    monkeypatch.setattr(auto_device, "LARGE", 1)
    assert choose_device(Structure(datasets.sphere(5, 30).select()), SolverOptions()) == "cpu"
