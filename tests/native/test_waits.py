"""Threads that wait for each other go on: whoever asks Python meanwhile, fails, is interrupted or resizes.

Each script runs in a process of its own, which is given up after `_PATIENCE` seconds: a wait without an end
would otherwise take the tests along.
"""

from __future__ import annotations

import inspect

import pytest
from linear_problems import lattice, make_pattern, neighbours
from processes import python

_PATIENCE = 120
_PREPARE = f"""
import itertools, signal, threading, time
import numpy as np
from graphopt.cpu_kernels import kernels
from graphopt.errors import SolverError, Stopped
from graphopt.linear import BlockPattern, DenseCholesky, Pcg, SparseCholesky

{inspect.getsource(make_pattern)}
{inspect.getsource(neighbours)}
{inspect.getsource(lattice)}
class watching:
    def __init__(self, ask): self.watch = kernels.Watch(ask, 0.0)
    def __enter__(self): self.watch.begin()
    def __exit__(self, *error): self.watch.end()

def in_thread(task):
    thread = threading.Thread(target=task)
    thread.start()
    return thread
"""


def run(script: str) -> None:
    """The script ends by itself, without an error."""
    python("-c", _PREPARE + script, timeout=_PATIENCE)


@pytest.mark.parametrize(
    "meanwhile",
    [
        "kernels.set_num_threads(2 + k % 3)",
        "kernels.all_finite(np.zeros(100_000))",
        "kernels.all_symmetric(np.zeros((20_000, 3, 3)))",
        "kernels.large_sums(np.zeros(100_000), np.arange(100_001, dtype=np.uint32), 1.0)",
        "solvers[1].factorize(values, damping)",
        "Expressions(k)",
    ],
)
def test_calls_beside_a_region_that_asks_python(meanwhile: str) -> None:
    """Whoever waits for another thread's region lets Python run, which that region may ask."""
    run(f"""
from graphopt.expressions import ExpressionBatch
from graphopt.cpu_kernels import kernels

def Expressions(k):
    batch = ExpressionBatch([f"x1 * {{j + 1}} + p1" for j in range(k + 2)], 1, None, 1)
    batch.native.pack_fit(np.zeros((1, 8)))

kernels.set_num_threads(2)
pattern, values = lattice(30, 6)
damping = np.full(pattern.dim, 60.0)
solvers = [SparseCholesky(pattern) for _ in range(2)]
done = threading.Event()

def work():
    with watching(lambda: False):
        while not done.is_set():
            assert solvers[0].factorize(values, damping)

thread = in_thread(work)
try:
    for k in range(100):
        {meanwhile}
finally:
    done.set()
thread.join()
""")


def test_what_a_region_asks_may_use_other_solvers() -> None:
    """Code that runs while a region waits has its own thread for its regions; results do not change."""
    run("""
pattern, values = lattice(45, 4)
damping = np.full(pattern.dim, 40.0)
for threads in (2, 3, 8):
    kernels.set_num_threads(threads)
    outer, inner = SparseCholesky(pattern), SparseCholesky(pattern, "auto", "ldlt")
    dense_pattern, dense_values = lattice(12, 4)
    dense = DenseCholesky(dense_pattern)
    found = []

    def ask():
        assert inner.factorize(values, damping)
        assert dense.factorize(dense_values, np.full(dense_pattern.dim, 40.0))
        product = kernels.SymmetricProduct(pattern)
        product.multiply(values, inner.solve(np.ones(pattern.dim)))
        found.append((kernels.num_threads(), len(kernels.time_regions(2, True, 0, 1))))
        return False

    with watching(ask):
        for _ in range(200):  # on a crowded machine the caller may do all of a region, and wait for nobody
            assert outer.factorize(values, damping)
            if (1, 0) in found:
                break
    assert (1, 0) in found and set(found) <= {(1, 0), (threads, 1)}, set(found)  # within the region, after it
    assert kernels.num_threads() == threads
    one = outer.solve(np.ones(pattern.dim))
    assert inner.factorize(values, damping)
    np.testing.assert_allclose(inner.solve(np.ones(pattern.dim)), one, rtol=1e-12)
""")


def test_what_a_region_asks_may_not_use_its_own_solver() -> None:
    """It would wait for itself: an error, from the call that asked; so for the number of threads."""
    run("""
pattern, values = lattice(45, 4)
damping = np.full(pattern.dim, 40.0)
for threads in (1, 2, 5):
    kernels.set_num_threads(threads)
    solvers = [SparseCholesky(pattern), Pcg(pattern, tolerance=1e-20)]
    for solver, again in itertools.product(solvers, (True, False)):
        def ask():
            return solver.factorize(values, damping) if again else kernels.set_num_threads(2)
        assert solver.factorize(values, damping)
        try:
            with watching(ask):
                solver.factorize(values, damping)
                solver.solve(np.ones(pattern.dim))
        except (SolverError, RuntimeError) as error:
            assert "within" in str(error), error
        else:
            assert not again or isinstance(solver, Pcg) or threads == 1, threads
        kernels.set_num_threads(threads)
        assert solver.factorize(values, damping)
        solver.solve(np.ones(pattern.dim))
""")


def test_failures_anywhere_with_any_number_of_threads() -> None:
    """Two callers whose pivots fail at random places, while the number of threads changes."""
    run("""
pattern, values = lattice(40, 4)
done, errors = threading.Event(), []

def work(seed, method):
    rng, solver = np.random.default_rng(seed), SparseCholesky(pattern, "auto", method)
    try:
        while not done.is_set():
            damping = np.full(pattern.dim, 40.0)
            bad = rng.integers(0, 1600, rng.integers(0, 4))
            damping[4 * bad] = -1e6 if method == "llt" else np.nan
            assert solver.factorize(values, damping) == (len(bad) == 0)
            assert (solver.failed_block is None) if len(bad) == 0 else (solver.failed_block in bad)
            if len(bad) == 0:
                solver.solve(np.ones(pattern.dim))
    except BaseException as error:
        errors.append(error)
        raise

threads = [in_thread(lambda: work(1, "llt")), in_thread(lambda: work(2, "ldlt"))]
rng = np.random.default_rng(0)
try:
    for count in rng.integers(2, 25, 40):
        kernels.set_num_threads(int(count))
        time.sleep(0.02)
finally:
    done.set()
for thread in threads:
    thread.join()
assert not errors, errors
""")


def test_interruptions_at_any_time() -> None:
    """A signal whose handler raises ends the call it meets; the solver works afterwards."""
    run("""
pattern, values = lattice(60, 6)
damping = np.full(pattern.dim, 60.0)
class Alarm(Exception): pass
def handler(number, frame):
    raise Alarm
signal.signal(signal.SIGALRM, handler)
rng, stopped = np.random.default_rng(0), 0
for count in (1, 2, 3, 8, 16, 24):
    kernels.set_num_threads(count)
    solver, pcg = SparseCholesky(pattern), Pcg(pattern, tolerance=1e-30)
    for delay in rng.uniform(1e-4, 0.03, 10):
        try:
            with watching(lambda: False):
                signal.setitimer(signal.ITIMER_REAL, delay)
                for _ in range(1000):
                    assert solver.factorize(values, damping) and pcg.factorize(values, damping)
                    pcg.solve(solver.solve(np.ones(pattern.dim)))
        except Alarm:
            stopped += 1
    assert solver.factorize(values, damping)
assert stopped == 60
""")


def test_a_region_without_shares_ends() -> None:
    """Nothing to do, with workers and without."""
    run("""
for count in (1, 3):
    kernels.set_num_threads(count)
    assert len(kernels.time_regions(0, False, 0, 3)) == 3
""")


def test_threads_that_the_system_refuses() -> None:
    """Said, with the number that there are; these work, and the pool may be made smaller or larger again."""
    run("""
import resource
pattern, values = lattice(45, 4)
damping = np.full(pattern.dim, 40.0)
kernels.set_num_threads(1)
solver = SparseCholesky(pattern)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), before[1]))
try:
    kernels.set_num_threads(500)
except RuntimeError as error:
    assert f"there are {kernels.num_threads()} now" in str(error), error
else:
    raise AssertionError("500 stacks fit into 100 MiB")
resource.setrlimit(resource.RLIMIT_AS, before)
count = kernels.num_threads()
assert count < 500
assert len(kernels.time_regions(count, True, 0, 3)) == 3
assert solver.factorize(values, damping)
for more in (1, 4):
    kernels.set_num_threads(more)
    assert len(kernels.time_regions(more, True, 0, 3)) == 3 and solver.factorize(values, damping)
""")


def test_memory_that_the_system_refuses() -> None:
    """MemoryError, as often as it is tried; once there is room, the same solver works."""
    run("""
import resource
pattern, values = lattice(90, 6)
damping = np.full(pattern.dim, 60.0)
kernels.set_num_threads(2)
solver = SparseCholesky(pattern)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + solver.required_bytes // 2, before[1]))
for _ in range(3):
    try:
        solver.factorize(values, damping)
    except MemoryError:
        continue
    raise AssertionError("there was room")
resource.setrlimit(resource.RLIMIT_AS, before)
assert solver.factorize(values, damping)
x = solver.solve(np.ones(pattern.dim))
product = kernels.SymmetricProduct(pattern)
np.testing.assert_allclose(product.multiply(values, x) + damping * x, 1.0, atol=1e-11)
""")
