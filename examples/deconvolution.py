"""Deconvolution of a picture of few photons, whose blur may vary with the place (as Thallo's).

    c   = K x                                        (K x)_p = sum over k of w_k(p) x_{p + k}
    E   = sum over pixels p      |2 sqrt(c_p + 3/8) - 2 sqrt(z_p + 3/8)|^2
        + w_tv sum over neighbours   rho(|x_i - x_j|^2)

x: photons per pixel sought, z: counted. After Anscombe's square root the noise of counts has variance 1. rho
is the pseudo-Huber kernel: total variation, rounded. The blur is a computed value (`Graph.add_convolution`):
a residual names one of them, not the 121 pixels that it is a sum of.

Run: python examples/deconvolution.py [--data PICTURE.png] [--size N] [--blur N] [--varying]
         [--photons N] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import images
import numpy as np

import graphopt

Photons = graphopt.group_type("Photons", 1)
Blurred = graphopt.sum_type("BlurredPhotons")
FEWEST = 0.05  # photons + 3/8, below which the root goes on as a constant


@graphopt.edge_type(vertices=(Blurred,), measurement_dim=1)
def EdgeCounted(expected, counted):
    """Anscombe's root of the photons expected - that of those counted."""
    return 2.0 * np.sqrt(np.maximum(expected + 0.375, FEWEST)) - 2.0 * np.sqrt(counted + 0.375)


@graphopt.edge_type(vertices=(Photons, Photons))
def EdgeVariation(first, second):
    """Difference of neighbours."""
    return first - second


def build(counted: np.ndarray, weights: np.ndarray, variation: float, width: float):
    """Graph and grid of the pixels; weights (k, k) of the blur, or (k, k, *counted.shape) that vary."""
    graph = graphopt.Graph()
    pixels = graph.add_grid(Photons, counted.shape, estimates=np.maximum(counted, 1.0))
    reach, size = len(weights) // 2, counted.shape
    offsets = np.stack(np.mgrid[-reach : reach + 1, -reach : reach + 1], axis=-1).reshape(-1, 2)
    flat = weights.reshape(-1, *weights.shape[2:])
    blurred = graph.add_convolution(Blurred, pixels, flat, offsets=offsets, boundary="mirror")
    graph.add_stencil(EdgeCounted, blurred, [(0, 0)], counted)
    for step in ((0, 1), (1, 0)):
        graph.add_stencil(
            EdgeVariation, pixels, [(0, 0), step], information=variation / width, kernel="PseudoHuber",
            kernel_width=np.sqrt(width * variation), mask=np.ones(size, bool),
        )  # fmt: skip
    return graph, pixels


def sharpen(counted: np.ndarray, weights: np.ndarray, variation: float = 0.05, width: float = 1.0, **options):
    """Photons (rows, columns) that explain the counted ones; and the summary."""
    graph, pixels = build(counted, weights, variation, width)
    rules = graphopt.AutoOptions(max_iterations=30, function_tolerance=1e-4)
    summary = graphopt.optimize(graph, options=rules, **options)
    return pixels.estimate[..., 0].copy(), summary


def disk(width: int) -> np.ndarray:
    """Weights (width, width) of a lens that is not in focus."""
    reach = width // 2
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = np.clip(reach + 0.5 - np.hypot(x, y), 0.0, 1.0)
    return inside / inside.sum()


def varying_motion(width: int, shape: tuple[int, int]) -> np.ndarray:
    """Weights (width, width, *shape) of a camera that turned about its axis: streaks around the centre."""
    reach = width // 2
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(float)
    rows, columns = np.mgrid[: shape[0], : shape[1]] - 0.5 * (np.array(shape)[:, None, None] - 1.0)
    radius = np.hypot(rows, columns) + 1e-9
    along, across = -rows / radius, columns / radius  # direction of the streak: (x, y) = (along, across)
    length = reach * radius / radius.max() + 0.5
    x, y = x[..., None, None], y[..., None, None]
    far = np.abs(x * along + y * across) - length
    beside = np.abs(x * across - y * along)
    weights = np.clip(0.5 - far, 0.0, 1.0) * np.clip(1.0 - beside, 0.0, 1.0)
    return weights / weights.sum(axis=(0, 1))


def generated(size: int = 64) -> np.ndarray:
    """Bars, disks and a ramp (size, size), 0 to 1."""
    y, x = np.mgrid[:size, :size] / size
    picture = 0.2 + 0.3 * x * (y > 0.75)
    picture = np.where((y < 0.3) & (np.sin(25.0 * x) > 0.0), 0.9, picture)
    for at, radius in ((0.25, 0.14), (0.55, 0.1), (0.8, 0.06)):
        picture = np.where(np.hypot(x - at, y - 0.53) < radius, 1.0 - 0.6 * at, picture)
    return picture


def counted_photons(truth: np.ndarray, weights: np.ndarray, photons: float, seed: int = 0) -> np.ndarray:
    """Counts (rows, columns) of a picture 0 to 1 seen through a blur; white gives `photons`."""
    reach = len(weights) // 2
    padded = np.pad(photons * truth, reach, mode="reflect")
    rows, columns = truth.shape
    blurred = sum(
        weights[i, j] * padded[i : i + rows, j : j + columns]
        for i in range(len(weights))
        for j in range(len(weights))
    )
    return np.random.default_rng(seed).poisson(blurred).astype(float)


def main(argv: list[str] | None = None):
    """Sharpen; the truth, the counts, the photons found, and the summary."""
    parser = command.parser(
        __doc__, data="picture that is blurred; default: generated", output="picture, .png"
    )
    parser.add_argument("--size", type=int, default=64, metavar="N", help="of the generated one; default: 64")
    parser.add_argument(
        "--blur", type=int, default=11, metavar="N", help="width of the blur, odd; default: 11"
    )
    parser.add_argument("--photons", type=float, default=200.0, metavar="N", help="of white; default: 200")
    parser.add_argument("--varying", action="store_true", help="a turning camera instead of a bad focus")
    args = parser.parse_args(argv)
    if args.blur < 1 or args.blur % 2 == 0:
        raise command.ExampleError(f"--blur is {args.blur}, expected an odd number.")
    data = args.data and command.existing(args.data, 1, "one picture")[0]
    truth = images.gray(images.read(data)) if data else generated(args.size)
    weights = varying_motion(args.blur, truth.shape) if args.varying else disk(args.blur)
    counted = counted_photons(truth, weights, args.photons)
    sharp, summary = sharpen(counted, weights, device=args.device)
    print(f"{truth.shape[0]} x {truth.shape[1]} pixels, a blur of {args.blur} x {args.blur}")
    print(summary.brief_report())
    before, after = (np.sqrt(np.mean((image / args.photons - truth) ** 2)) for image in (counted, sharp))
    print(f"error of the counts {before:.4f}, of the result {after:.4f}")
    if args.output:
        images.write(args.output, np.hstack([truth, counted / args.photons, sharp / args.photons]))
    return truth, counted, sharp, summary


if __name__ == "__main__":
    command.run(main)
