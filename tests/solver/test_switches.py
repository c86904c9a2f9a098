"""Each optimization can be switched off, and the answer stays the same."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from optimizer_graphs import noisy_ring
from processes import completed
from vulkan_graphs import pose_graph

import graphopt
from graphopt import switches
from graphopt.errors import OptionError
from graphopt.evaluate import datasets
from graphopt.linear import SparseCholesky
from graphopt.problem.structure import Structure
from graphopt.types.robust_kernels import robust_kernel

PROBLEMS = {
    "few": lambda: noisy_ring(8),
    "poses": pose_graph,
    "space": lambda: datasets.sphere(5, 8, radius=20.0, seed=1),
    "bundle": lambda: datasets.ba(cameras=6, points=60, seed=1),
    "kernels": lambda: with_kernels(datasets.ba(cameras=6, points=60, seed=2)),
    "large": lambda: datasets.torus(20, 20, seed=1),
}
ON_CPU = ("dissection", "native_loop", "reuse", "speculation")
ON_DEVICE = ("fused_kernels", "regular_places", "reuse", "speculation")
BITS = {"reuse", "machine_code"}
"""Without these the same numbers are computed in the same order."""


def with_kernels(graph):
    """All edges robust."""
    graph.edge_sets[0].kernel, graph.edge_sets[0].kernel_width = robust_kernel("Huber").number, 1.0
    return graph


def two_calls(make, **options):
    """chi2 after each iteration of two calls, and the estimates."""
    graph = make()
    start = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    found = []
    for _ in range(2):
        for vertex_set, estimate in zip(graph.vertex_sets, start, strict=True):
            vertex_set.estimate[:] = estimate
        summary = graphopt.optimize(graph, **options)
        found += [iteration.chi2 for iteration in summary.iterations]
    return np.array(found), [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]


def assert_same(switch, expected, actual):
    (chi2, estimates), (other_chi2, others) = expected, actual
    tolerance = 0.0 if switch in BITS else 1e-9
    np.testing.assert_allclose(other_chi2, chi2, rtol=tolerance, atol=tolerance * chi2.max())
    for first, second in zip(estimates, others, strict=True):
        np.testing.assert_allclose(second, first, rtol=0.0, atol=1e3 * tolerance)


def note_switches(monkeypatch):
    """Names of the switches that are found to be off from now on, by modules that have been in use."""
    found, is_off = set(), switches.is_off

    def noted(name):
        if is_off(name):
            found.add(name)
        return is_off(name)

    for module in [module for name, module in sys.modules.items() if name.startswith("graphopt.")]:
        if getattr(module, "is_off", None) is is_off and module is not switches:
            monkeypatch.setattr(module, "is_off", noted)
    return found


@pytest.mark.parametrize("method", ["lm", "dogleg", "gn", "auto"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_cpu_gives_the_same_answer(name, method, monkeypatch):
    """Iteration by iteration, of a first and a second call; each switch takes part."""
    options = {"method": method, "device": "cpu", "max_iterations": 3 if name == "large" else 10}
    expected = two_calls(PROBLEMS[name], **options)
    looked_at = note_switches(monkeypatch)
    for switch in ON_CPU:
        with monkeypatch.context() as patch:
            patch.setenv("GRAPHOPT_WITHOUT", switch)
            assert_same(switch, expected, two_calls(PROBLEMS[name], **options))
    assert looked_at >= ({"reuse", "speculation"} if method == "auto" else {"reuse", "native_loop"})


@pytest.mark.parametrize("name", ["poses", "bundle"])
@pytest.mark.parametrize("switch", ON_DEVICE)
def test_a_device_gives_the_same_answer(switch, name, monkeypatch):
    """As the CPU, in double."""
    expected = two_calls(PROBLEMS[name], method="lm", device="vulkan", precision="double")
    looked_at = note_switches(monkeypatch)
    monkeypatch.setenv("GRAPHOPT_WITHOUT", switch)
    actual = two_calls(PROBLEMS[name], method="lm", device="vulkan", precision="double")
    assert_same(switch, expected, actual)
    assert switch in looked_at


def test_dissection_orders_the_large_problem(monkeypatch):
    """Its switch changes the order of elimination there; elsewhere it would prove nothing."""
    structure = Structure(PROBLEMS["large"]().select())
    assert SparseCholesky(structure.pattern).ordering != "amd"
    monkeypatch.setenv("GRAPHOPT_WITHOUT", "dissection")
    assert SparseCholesky(structure.pattern).ordering == "amd"


def test_mixed_is_double_when_switched_off(monkeypatch):
    """Bit by bit."""
    options = {"method": "lm", "device": "vulkan"}
    expected = two_calls(pose_graph, precision="double", **options)
    monkeypatch.setenv("GRAPHOPT_WITHOUT", "mixed")
    assert_same("reuse", expected, two_calls(pose_graph, precision="mixed", **options))


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from test_switches import PROBLEMS, two_calls
for name, make in PROBLEMS.items():
    chi2, estimates = two_calls(make, method="lm", device="cpu")
    print(name, chi2.tobytes().hex(), *(estimate.tobytes().hex() for estimate in estimates))
"""


def test_bytecode_has_the_digits_of_machine_code():
    """In processes of their own: programs are made once in each."""
    here = Path(__file__).parent
    words = [sys.executable, "-c", PROGRAM, str(here), str(here.parent / "helpers")]
    printed = []
    for without in ("", "machine_code"):
        done = completed(words, timeout=110.0, env={**os.environ, "GRAPHOPT_WITHOUT": without})
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]


def test_unknown_names_are_refused(monkeypatch):
    """With those that there are."""
    monkeypatch.setenv("GRAPHOPT_WITHOUT", "reuse,speed")
    with pytest.raises(OptionError, match=r"speed.*dissection"):
        graphopt.optimize(noisy_ring(8), device="cpu")
