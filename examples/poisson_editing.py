"""Poisson image editing (Perez et al., SIGGRAPH 2003): paste a part of a picture without a seam.

    E = sum over neighbours (i, j) with a pixel in the mask:  |(x_i - x_j) - (s_i - s_j)|^2

x: the colours sought, those of the target outside of the mask; s: the source. It is linear: one iteration.

Run: python examples/poisson_editing.py [--data TARGET.png SOURCE.png MASK.png] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import images
import numpy as np

import graphopt

Color = graphopt.group_type("PixelColor", 3)


@graphopt.edge_type(vertices=(Color, Color), measurement_dim=3)
def EdgeGradient(first, second, wanted):
    """Difference of two neighbours - that of the source."""
    return first - second - wanted


def paste(target: np.ndarray, source: np.ndarray, mask: np.ndarray, **options):
    """Target (rows, columns, 3) with the source where `mask` (rows, columns) is true; and the summary."""
    graph = graphopt.Graph()
    pixels = graph.add_grid(Color, mask.shape, estimates=target, fixed=~mask)
    for offset in ((0, 1), (1, 0)):
        gradients = source - images.shifted(source, offset)
        graph.add_stencil(EdgeGradient, pixels, [(0, 0), offset], gradients)
    summary = graphopt.optimize(graph, "gn", 1, **options)
    return pixels.estimate.copy(), summary


def generated(size: int = 48) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A blue gradient, a disk with rings on another ground, and the square around the disk."""
    y, x = np.mgrid[:size, :size] / size
    target = np.stack([0.2 + 0.2 * x, 0.3 + 0.4 * y, 0.9 - 0.3 * x], axis=2)
    r = np.hypot(x - 0.5, y - 0.5)
    rings = np.where(r < 0.25, 0.3 * np.cos(60.0 * r), 0.0)
    source = np.stack([0.5 + rings, 0.5 + 0.5 * rings, 0.5 - rings], axis=2)
    return target, source, (abs(x - 0.5) < 0.3) & (abs(y - 0.5) < 0.3)


def main(argv: list[str] | None = None) -> tuple[np.ndarray, graphopt.Summary]:
    """Paste; the picture and the summary."""
    parser = command.parser(
        __doc__,
        data="target, source and mask (white: from the source); default: generated",
        output="picture, .png",
    )
    parser.add_argument(
        "--shrink", type=int, default=1, metavar="N", help="pixels per side of one; default: 1"
    )
    parser.add_argument("--solver", default="auto", choices=("auto", "cholesky", "pcg"), help="default: auto")
    args = parser.parse_args(argv)
    if args.data:
        paths = command.existing(args.data, 3, "target, source and mask")
        target, source, mask = (images.shrink(images.read(path), args.shrink) for path in paths)
        images.same_size(paths, target, source, mask)
        mask = mask[:, :, 0] > 0.5
    else:
        target, source, mask = generated()
    result, summary = paste(target, source, mask, device=args.device, linear_solver=args.solver)
    print(f"{mask.sum()} pixels pasted")
    print(summary.brief_report())
    if args.output:
        cut = np.where(mask[:, :, None], source, target)
        images.write(args.output, np.hstack([target, source, cut, result]))
    return result, summary


if __name__ == "__main__":
    command.run(main)
