"""A factorization whose numbers decay into denormals beside one of the same structure whose numbers do not.

    python benchmarks/decay.py [CASE ...] [--repeats N]

Dominant diagonals make entries of the factor fall with the distance of their poses, below 1e-308 in large
graphs; some processors take far longer for those. The other matrix is the Laplacian, whose numbers stay.
Both in turn; their ratio is 1 where denormals cost nothing. Cases as in device_cholesky.py.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from device_cholesky import pattern_of
from linear import dominant_values

from graphopt.cpu_kernels import isa, kernels
from graphopt.solver.linear import BlockPattern, SparseCholesky

DEFAULT = ["sphere-2500", "manhattan-100000", "grid2d-100000", "sphere-100000"]


def laplacian(pattern: BlockPattern) -> np.ndarray:
    """Values of the graph's Laplacian times identities, a little more on the diagonal; blocks of one size."""
    dim = int(pattern.dims[0])
    column = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    row = pattern.row_idx
    degree = np.bincount(np.concatenate([row, column]), minlength=pattern.num_blocks) - 2
    weight = np.where(row == column, degree[row] + 1e-3, -1.0)
    return (weight[:, None, None] * np.eye(dim)).ravel()


def compare(name: str, repeats: int) -> None:
    """One line."""
    pattern = pattern_of(name)
    solver = SparseCholesky(pattern)
    values = {"decays": dominant_values(pattern), "stays": laplacian(pattern)}
    times: dict[str, list[float]] = {key: [] for key in values}
    shares = {}
    impulse = np.zeros(pattern.dim)
    impulse[0] = 1.0
    for _ in range(repeats + 1):
        for key, numbers in values.items():
            begin = time.perf_counter()
            assert solver.factorize(numbers)
            times[key].append(time.perf_counter() - begin)
            column = np.abs(solver.solve(impulse))
            shares[key] = float(np.mean((column > 0.0) & (column < np.finfo(np.float64).tiny)))
    decays, stays = (1e3 * min(times[key][1:]) for key in ("decays", "stays"))
    print(
        f"{name:18} decays {decays:8.1f} ms, stays {stays:8.1f} ms, ratio {decays / stays:.2f}   "
        f"denormal in a column of the inverse: {shares['decays']:.3f}, {shares['stays']:.3f}",
        flush=True,
    )


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=DEFAULT, metavar="CASE")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(f"{isa}, {kernels.num_threads()} threads")
    for name in args.cases:
        compare(name, args.repeats)


if __name__ == "__main__":
    main()
