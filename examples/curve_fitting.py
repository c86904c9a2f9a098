"""Curve fitting with outliers: a damped oscillation, without and with a robust kernel.

    y = amplitude exp(-decay x) cos(2 pi frequency x)

One vertex holds the three coefficients, each measurement is an edge with (x, y).
Run: python examples/curve_fitting.py [--data XY.csv] [--device auto|cpu|vulkan] [-o FIT.png]
"""

from __future__ import annotations

from pathlib import Path

import command
import numpy as np

import graphopt

TRUTH = np.array([2.0, 0.4, 0.5])
NOISE = 0.05


Oscillation = graphopt.group_type("Oscillation", 3)
"""Amplitude, decay [1/s], frequency [Hz]."""


def oscillation(coefficients, x):
    """Value at x [s]."""
    amplitude, decay, frequency = coefficients
    return amplitude * np.exp(-decay * x) * np.cos(2.0 * np.pi * frequency * x)


@graphopt.edge_type(vertices=(Oscillation,), measurement_dim=2)
def EdgeSample(coefficients, sample):
    """Curve - measured."""
    return oscillation(coefficients, sample[0]) - sample[1]


def generated(num_samples: int = 80, seed: int = 0) -> np.ndarray:
    """Samples (x, y) with noise; every tenth is an outlier."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 6.0, num_samples)
    y = oscillation(TRUTH, x) + rng.normal(0.0, NOISE, num_samples)
    y[::10] += rng.uniform(0.5, 2.0, len(y[::10]))
    return np.column_stack([x, y])


def fit(samples: np.ndarray, kernel: str | None, device: str = "auto") -> tuple[np.ndarray, graphopt.Summary]:
    """Coefficients of the curve through samples (n, 2)."""
    graph = graphopt.Graph()
    coefficients = graph.add_array(Oscillation, [[1.0, 0.1, 0.45]])
    graph.add_edges(EdgeSample, graphopt.unique(coefficients), samples, np.eye(1) / NOISE**2)
    graph.set_robust_kernel(kernel, 2.0)
    summary = graphopt.optimize(graph, device=device)
    return coefficients.estimate[0].copy(), summary


def read(path: Path) -> np.ndarray:
    """Rows x, y of a .csv file."""
    try:
        samples = np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise command.ExampleError(f"{path}: {error}") from error
    if samples.shape[1:] != (2,):
        raise command.ExampleError(f"{path} has {samples.shape[1]} columns, expected 2: x, y.")
    return samples


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    """Fit twice; coefficients by kernel."""
    parser = command.parser(__doc__, data="file with rows x, y; default: generated", output="plot, .png")
    args = parser.parse_args(argv)
    samples = read(command.existing(args.data, 1, "one .csv file")[0]) if args.data else generated()
    fits = {}
    for kernel in (None, "Cauchy"):
        fits[kernel or "none"], summary = fit(samples, kernel, args.device)
        print(f"kernel {kernel}: amplitude, decay, frequency = {fits[kernel or 'none'].round(4)}")
        print(f"  {summary.brief_report()}")
    if args.output:
        plot(samples, fits, args.output)
    return fits


def plot(samples: np.ndarray, fits: dict[str, np.ndarray], path: Path) -> None:
    """Samples and both curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = np.linspace(samples[:, 0].min(), samples[:, 0].max(), 400)
    pyplot.figure(figsize=(6.0, 3.5))
    pyplot.plot(samples[:, 0], samples[:, 1], "k.", label="samples")
    for kernel, coefficients in fits.items():
        pyplot.plot(x, oscillation(coefficients, x), label=f"kernel: {kernel}")
    pyplot.legend()
    pyplot.savefig(path, dpi=100)
    pyplot.close()


if __name__ == "__main__":
    command.run(main)
