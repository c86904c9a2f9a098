"""Batches of expressions over sizes: evaluations and fits, as chapter 5 of Roth's thesis (2025) has them.

    python -m benchmarks.expression_batches            # benchmarks 1 to 3, sweeps over points, counts, sizes
    python -m benchmarks.expression_batches --quick    # benchmark 2 only
    python -m benchmarks.expression_batches --device vulkan    # on a GPU
    python -m benchmarks.expression_batches --fits             # fits from 1 to 100 starts each

Roth's benchmarks: 250,000 or 10,000 expressions of two variables from an exhaustive search (+ - * / ^ abs
log exp 1/x sqrt, about two parameters), 362 or 10,860 points, 100 evaluations with new parameters, float32.
His medians of benchmark 2: about 4 s on the CPU, 21 s on the GPU. Ours are random expressions of the same
operations with a given number of tokens.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import graphopt
from graphopt.cpu_kernels import isa, kernels

BINARY = ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "(abs({}) ^ {})")
UNARY = ("abs({})", "log({})", "exp({})", "(1 / {})", "sqrt({})")


def random_text(rng: np.random.Generator, tokens: int) -> str:
    """An expression of about so many operators, variables, parameters and constants."""
    if tokens <= 1:
        return str(rng.choice(["x1", "x2", "p1", "p2", "1.5"], p=[0.25, 0.25, 0.2, 0.2, 0.1]))
    if tokens == 2 or rng.uniform() < 0.3:
        return str(rng.choice(UNARY)).format(random_text(rng, tokens - 1))
    left = int(rng.integers(1, tokens - 1))
    return str(rng.choice(BINARY)).format(random_text(rng, left), random_text(rng, tokens - 1 - left))


def problem(num_expressions: int, num_points: int, num_sets: int, tokens: int, dtype: type):
    """Texts, data, parameters, target."""
    rng = np.random.default_rng(0)
    texts = [random_text(rng, tokens) for _ in range(num_expressions)]
    data = rng.uniform(0.5, 3, (num_points, 2)).astype(dtype)
    target = (2 * data[:, 0] ** 0.3 + data[:, 1]).astype(dtype)
    return texts, data, rng.uniform(0.5, 2, (num_expressions, num_sets, 2)), target


def best_of(repeats: int, call) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def row(
    name: str, num_expressions: int, num_points: int, num_sets: int, tokens: int, repeats: int, device: str
) -> None:
    """One line: microseconds to read an expression, seconds of values, of sums and of fits."""
    cells = []
    for dtype in (np.float32, np.float64):
        texts, data, parameters, target = problem(num_expressions, num_points, num_sets, tokens, dtype)
        read = best_of(repeats, lambda texts=texts: graphopt.ExpressionBatch(texts, 2))
        batch = graphopt.ExpressionBatch(texts, 2)
        if dtype == np.float32:
            cells.append(f"{1e6 * read / num_expressions:8.1f}")
        for wanted in (None, target):
            size = num_expressions * num_sets * num_points * data.itemsize
            if wanted is None and size > 4e9:
                cells.append("       -")
                continue
            out = None if wanted is not None else np.ones((num_expressions, num_sets, num_points), dtype)
            seconds = best_of(
                repeats,
                lambda b=batch, d=data, p=parameters, w=wanted, o=out: graphopt.evaluate_batch(
                    b, d, p, w, out=o, device=device
                ),
            )
            cells.append(f"{seconds:8.3f}")
            del out
        starts = parameters[:, :1]
        fitted = best_of(
            repeats, lambda b=batch, d=data, t=target, s=starts: graphopt.fit_batch(b, d, t, s, device=device)
        )
        cells.append(f"{fitted:8.3f}")
    print(f"{name:12} {num_expressions:8} {num_points:7} {num_sets:5} {tokens:6}", *cells, flush=True)


def print_fits(num_expressions: int, num_points: int, num_sets: int, device: str) -> None:
    """One line: seconds of fits from several starts, and how they ended."""
    for dtype in (np.float32, np.float64):
        texts, data, starts, target = problem(num_expressions, num_points, num_sets, 12, dtype)
        batch = graphopt.ExpressionBatch(texts, 2)
        fits = graphopt.fit_batch(batch, data, target, starts[:, :1], device=device)  # kernels are made
        begin = time.perf_counter()
        fits = graphopt.fit_batch(batch, data, target, starts, device=device)
        seconds = time.perf_counter() - begin
        usable, steps = np.mean(fits.status <= 1), np.mean(fits.num_iterations)
        print(
            f"fits, {np.dtype(dtype).name}: {num_expressions} expressions from {num_sets} starts, "
            f"{num_points} points: {seconds:.3f} s, {steps:.1f} steps on average, "
            f"{100.0 * usable:.1f} % usable",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="benchmark 2 only")
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or vulkan:NUMBER; default: cpu")
    parser.add_argument("--fits", action="store_true", help="fits from several starts only")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"Device: {arguments.device}; CPU: {isa}, {kernels.num_threads()} threads. Seconds; fits: one start "
        "each, up to 100 iterations."
    )
    print(
        f"{'':12} {'expr.':>8} {'points':>7} {'sets':>5} {'tokens':>6} {'read[us]':>8} {'f32 val.':>8} "
        f"{'f32 sums':>8} {'f32 fits':>8} {'f64 val.':>8} {'f64 sums':>8} {'f64 fits':>8}"
    )
    if arguments.fits:
        for sets in (1, 10, 100):
            print_fits(10000, 362, sets, arguments.device)
        return
    row("benchmark 2", 10000, 362, 100, 12, arguments.repeats, arguments.device)
    if arguments.quick:
        return
    row("benchmark 3", 10000, 10860, 100, 12, 1, arguments.device)
    row("benchmark 1", 250000, 362, 100, 12, 1, arguments.device)
    for points in (10, 100, 1000, 10000):
        row("points", 1000, points, 100, 12, arguments.repeats, arguments.device)
    for expressions in (10, 100, 1000, 10000):
        row("expressions", expressions, 362, 100, 12, arguments.repeats, arguments.device)
    for tokens in (5, 10, 20, 50):
        row("tokens", 1000, 362, 100, tokens, arguments.repeats, arguments.device)
    for sets in (1, 10, 100, 1000):
        row("sets", 1000, 362, sets, 12, arguments.repeats, arguments.device)


if __name__ == "__main__":
    main()
