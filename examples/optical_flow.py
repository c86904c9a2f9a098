"""Optical flow (Horn and Schunck 1981), coarse to fine: where each pixel of a picture is in the next one.

    E = sum over pixels      rho((I_next(x + u, y + v) - I(x, y)) / 0.02)^2        brightness stays
      + sum over neighbours  tau(w |(u, v) - (u, v)_neighbour|^2)                  neighbours move alike

I_next is a sampled image: the residual calls it with coordinates, its derivatives come from the pixels. rho
is Cauchy's kernel, since what is hidden in one picture has no counterpart; tau is Huber's, since motions
differ at the outline of things. w = w_0 exp(-|I - I_neighbour| / 0.1) is small where the picture has an edge.

Run: python examples/optical_flow.py [--data FIRST.png NEXT.png] [--shrink N] [--device ...] [-o OUT.png]
The picture: both frames, the next one drawn back along the flow, and the flow (hue: direction, white: none).
"""

from __future__ import annotations

import command
import images
import numpy as np

import graphopt

NOISE = 0.02  # of the brightness
SMALLEST = 24  # rows or columns of the coarsest picture
Flow = graphopt.group_type("PixelFlow", 2)  # to the right and down [px]
NextImage = graphopt.image_type(tag="IMAGE_NEXT", channels=1)


@graphopt.edge_type(vertices=(Flow,), parameters=(NextImage,), measurement_dim=3)
def EdgeSameBrightness(flow, next_image, pixel):
    """Brightness where the pixel (x, y, brightness) has gone - what it was."""
    u, v = flow
    x, y, brightness = pixel
    return next_image(x + u, y + v) - brightness


@graphopt.edge_type(vertices=(Flow, Flow))
def EdgeSameFlow(first, second):
    """Difference of two motions."""
    return first - second


def estimate(first: np.ndarray, following: np.ndarray, smooth: float = 10.0, **options):
    """Flow (rows, columns, 2) from `first` to `following` (rows, columns); summary of the last level."""
    start = np.zeros((*first.shape, 2))
    if min(first.shape) >= 2 * SMALLEST:
        coarse, _ = estimate(images.shrink(first, 2), images.shrink(following, 2), smooth, **options)
        start = images.enlarge(2.0 * coarse, first.shape)
    graph = graphopt.Graph()
    flow = graph.add_grid(Flow, first.shape, estimates=start)
    pixels = np.dstack([flow.coordinates(), first])
    graph.add_stencil(
        EdgeSameBrightness, flow, [(0, 0)], pixels, information=NOISE**-2, kernel="Cauchy", kernel_width=1.0,
        parameters=graphopt.Image(following),
    )  # fmt: skip
    for offset in ((0, 1), (1, 0)):
        weight = smooth * np.exp(-np.abs(first - images.shifted(first, offset)) / 0.1)
        graph.add_stencil(
            EdgeSameFlow, flow, [(0, 0), offset], information=weight, kernel="Huber", kernel_width=0.3
        )
    rules = graphopt.AutoOptions(max_iterations=30, function_tolerance=1e-3)
    summary = graphopt.optimize(graph, options=rules, **options)
    return flow.estimate.copy(), summary


def drawn_back(following: np.ndarray, flow: np.ndarray) -> np.ndarray:
    """The next picture (rows, columns[, channels]) sampled where each pixel has gone."""
    from scipy.ndimage import map_coordinates

    y, x = np.mgrid[: flow.shape[0], : flow.shape[1]]
    places = np.stack([y + flow[:, :, 1], x + flow[:, :, 0]])
    channels = following.reshape(*flow.shape[:2], -1).transpose(2, 0, 1)
    sampled = [map_coordinates(channel, places, order=1, mode="nearest") for channel in channels]
    return np.dstack(sampled).reshape(following.shape)


def colored(flow: np.ndarray) -> np.ndarray:
    """Hue for the direction, saturation for the length."""
    from matplotlib.colors import hsv_to_rgb

    length = np.hypot(flow[:, :, 0], flow[:, :, 1])
    hue = (np.arctan2(flow[:, :, 1], flow[:, :, 0]) / (2.0 * np.pi)) % 1.0
    saturation = np.clip(length / max(np.percentile(length, 99), 1e-9), 0.0, 1.0)
    return hsv_to_rgb(np.dstack([hue, saturation, np.ones_like(hue)]))


def generated(size: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A smooth pattern, the same turned by 3 degrees about the centre and moved, and the true flow."""
    y, x = np.mgrid[:size, :size].astype(float)
    angle, centre = np.radians(3.0), 0.5 * (size - 1)

    def pattern(x, y):
        waves = np.sin(0.35 * x + 0.1 * y) + np.sin(0.27 * y - 0.12 * x) + np.sin(0.18 * (x + y))
        return np.dstack([0.5 + waves / 6.0] * 3)

    def turned(x, y, angle):
        x, y = x - centre, y - centre
        return np.cos(angle) * x - np.sin(angle) * y + centre, np.sin(angle) * x + np.cos(angle) * y + centre

    new_x, new_y = turned(x, y, angle)
    flow = np.dstack([new_x + 1.5 - x, new_y - 1.0 - y])
    return pattern(x, y), pattern(*turned(x - 1.5, y + 1.0, -angle)), flow


def main(argv: list[str] | None = None) -> tuple[np.ndarray, float, float]:
    """Estimate; the flow, and the mean difference of the pictures without and with it."""
    parser = command.parser(__doc__, data="two frames; default: generated", output="picture, .png")
    parser.add_argument(
        "--shrink", type=int, default=2, metavar="N", help="pixels per side of one; default: 2"
    )
    args = parser.parse_args(argv)
    if args.data:
        paths = command.existing(args.data, 2, "two frames")
        first, following = (images.shrink(images.read(path), args.shrink) for path in paths)
        images.same_size(paths, first, following)
    else:
        first, following, _ = generated()
    flow, summary = estimate(images.gray(first), images.gray(following), device=args.device)
    print(summary.brief_report())
    back = drawn_back(following, flow)
    differences = [np.abs(images.gray(first - image)).mean() for image in (following, back)]
    print(f"largest motion {np.hypot(*flow.T).max():.1f} px; pictures differ by", end=" ")
    print(f"{differences[0]:.4f}, along the flow by {differences[1]:.4f}")
    if args.output:
        images.write(
            args.output, np.vstack([np.hstack([first, following]), np.hstack([back, colored(flow)])])
        )
    return flow, differences[0], differences[1]


if __name__ == "__main__":
    command.run(main)
