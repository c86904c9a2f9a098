"""The CPU's sparse Cholesky beside CHOLMOD's supernodal one, on the structures of pose graphs.

    python benchmarks/cholmod.py [CASE ...] [--repeats N]

Needs scikit-sparse below 0.5 (Debian: libsuitesparse-dev and libopenblas0-pthread; with the reference BLAS
CHOLMOD is ten times slower). Cases as in device_cholesky.py; both solvers factorize in turn, so that other
work on the machine meets both. CHOLMOD with AMD and with METIS; the faster one counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from device_cholesky import pattern_of
from linear import dominant_values

from graphopt.cpu_kernels import isa, kernels
from graphopt.solver.linear import SparseCholesky
from graphopt.solver.linear.as_scipy import symmetric_matrix

DEFAULT = ["sphere-2500", "manhattan-10000", "torus-5000", "grid2d-100000", "manhattan-100000"]


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def compare(name: str, repeats: int) -> None:
    """One line."""
    from sksparse.cholmod import analyze

    pattern = pattern_of(name)
    values = dominant_values(pattern)
    matrix = symmetric_matrix(pattern, values)
    ours = SparseCholesky(pattern)
    theirs = {order: analyze(matrix, mode="supernodal", ordering_method=order) for order in ("amd", "metis")}
    calls: dict[str, Callable[[], object]] = {"ours": lambda: ours.factorize(values)}
    calls |= {order: lambda f=factor: f.cholesky_inplace(matrix) for order, factor in theirs.items()}
    times = {key: [] for key in calls}
    for _ in range(repeats + 1):
        for key, call in calls.items():
            times[key].append(seconds(call))
    best = {key: min(found[1:]) for key, found in times.items()}
    b = np.ones(pattern.dim)
    difference = np.abs(ours.solve(b) - theirs["amd"](b)).max() / np.abs(ours.solve(b)).max()
    faster = min(best["amd"], best["metis"])
    rate = 1e-9 * ours.flops / best["ours"]
    print(
        f"{name:18} ours ({ours.ordering}) {1e3 * best['ours']:8.1f} ms {rate:6.1f} GFLOP/s   "
        f"CHOLMOD amd {1e3 * best['amd']:8.1f} ms, metis {1e3 * best['metis']:8.1f} ms   "
        f"{faster / best['ours']:.2f} times faster   solutions differ by {difference:.1e}",
        flush=True,
    )


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=DEFAULT, metavar="CASE")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"{isa}, {kernels.num_threads()} threads")
    for name in args.cases:
        compare(name, args.repeats)


if __name__ == "__main__":
    main()
