"""An iteration of Gauss-Newton beside gtsam's, on lattices of poses.

    python -m benchmarks.gauss_newton [CASE-POSES ...] [--iterations N]

Cases: grid2d (poses in the plane, edges to the four neighbours), torus, sphere, manhattan. Both solvers read
the same file and iterate from its estimates; the median of the iterations after the first counts, in which
orderings and structures are made. gtsam: METIS ordering, multifrontal Cholesky, its own threads.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import graphopt
from benchmarks.solvers import gtsam_driver
from graphopt import datasets
from graphopt.cpu_kernels import isa, kernels

DEFAULT = ["torus-5000", "grid2d-100000"]


def lattice(side: int) -> str:
    """g2o file of side * side poses in the plane whose edges have noise; the estimates have more."""
    rng = np.random.default_rng(0)
    place = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 2)
    index = np.arange(side * side).reshape(side, side)
    pairs = [np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)]
    pairs.append(np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1))
    start = np.column_stack([place, np.zeros(len(place))]) + rng.normal(size=(len(place), 3)) * 0.05
    lines = [f"VERTEX_SE2 {k} {x:.6f} {y:.6f} {a:.6f}" for k, (x, y, a) in enumerate(start)]
    for i, j in np.concatenate(pairs):
        x, y, a = (*(place[j] - place[i]), 0.0) + rng.normal(size=3) * 0.02
        lines.append(f"EDGE_SE2 {i} {j} {x:.6f} {y:.6f} {a:.6f} 100 0 0 100 0 100")
    return "\n".join(lines) + "\n"


def write(case: str, path: Path) -> None:
    """The file of a case such as torus-5000."""
    kind, text = case.rsplit("-", 1)
    size, side = int(text), round(np.sqrt(int(text)))
    if kind == "grid2d":
        path.write_text(lattice(side))
        return
    makers = {
        "torus": lambda: datasets.torus(side, side),
        "sphere": lambda: datasets.sphere(side, side),
        "manhattan": lambda: datasets.manhattan(size),
    }
    graphopt.io.write(makers[kind](), path)


def of_graphopt(path: Path, iterations: int) -> tuple[list[float], float]:
    """Seconds of the iterations after the first, and chi2."""
    graph = graphopt.io.read(path)
    ends = [time.perf_counter()]
    summary = graphopt.optimize(
        graph,
        method="gn",
        linear_solver="cholesky",
        max_iterations=iterations,
        device="cpu",
        callback=lambda _: ends.append(time.perf_counter()),
    )
    return np.diff(ends)[1:].tolist(), summary.final_chi2


def of_gtsam(path: Path, iterations: int) -> tuple[list[float], float]:
    """The same; chi2 is twice gtsam's error."""
    optimizer = gtsam_driver.make_optimizer("gn", *gtsam_driver.load(path))
    seconds = []
    for _ in range(iterations):
        begin = time.perf_counter()
        optimizer.iterate()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:], 2.0 * optimizer.error()


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=DEFAULT, metavar="CASE")
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    print(f"{isa}, {kernels.num_threads()} threads")
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{case}.g2o"
            write(case, path)
            (ours, chi2), (theirs, their_chi2) = (
                run(path, args.iterations) for run in (of_graphopt, of_gtsam)
            )
        mine, other = (1e3 * statistics.median(times) for times in (ours, theirs))
        print(
            f"{case:16} ours {mine:9.1f} ms   gtsam {other:9.1f} ms   {other / mine:6.1f} times   "
            f"chi2 {chi2:.6g}, {their_chi2:.6g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
