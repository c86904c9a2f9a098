"""Intrinsic images (Meka et al., Live Intrinsic Video, SIGGRAPH 2016): colours apart from light.

    log picture = r + s (1, 1, 1)            r: log of the albedo (3 numbers), s: log of the shading
    E = w_fit |r + s - log picture|^2
      + w_albedo  sum over neighbours:  w_ij rho(|r_i - r_j|)     rho: Welsch, colours change at few places
      + w_shading sum over neighbours:  |s_i - s_j|^2

w_ij = exp(-k |chroma_i - chroma_j|) is small where the colour, not only the brightness, changes.

Run: python examples/intrinsic_images.py [--data PICTURE.png] [--shrink N] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

import command
import images
import numpy as np

import graphopt

Pixel = graphopt.group_type("IntrinsicPixel", albedo=3, shading=1)
W_FIT, W_ALBEDO, W_SHADING, CHROMA = 100.0, 10.0, 5.0, 15.0
STEPS = ((0, 1), (1, 0))


@graphopt.edge_type(vertices=(Pixel,), measurement_dim=3)
def EdgePicture(pixel, seen):
    """Albedo and shading together - what is seen."""
    return pixel.albedo + pixel.shading - seen


@graphopt.edge_type(vertices=(Pixel, Pixel), measurement_dim=1, residual_dim=3)
def EdgeAlbedo(first, second, weight):
    """Change of the albedo, less where the chroma changes."""
    return weight * (first.albedo - second.albedo)


@graphopt.edge_type(vertices=(Pixel, Pixel), measurement_dim=0, residual_dim=1)
def EdgeShading(first, second):
    """Change of the shading."""
    return first.shading - second.shading


def separate(picture: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray, graphopt.Summary]:
    """Albedo (rows, columns, 3) and shading (rows, columns); their product is the picture."""
    seen = np.log(np.maximum(picture, 1.0 / 255.0))
    graph = graphopt.Graph()
    brightness = seen.mean(axis=2, keepdims=True)
    start = np.concatenate([seen - brightness, brightness], axis=2)
    pixels = graph.add_grid(Pixel, picture.shape[:2], estimates=start)
    graph.add_stencil(EdgePicture, pixels, [(0, 0)], seen, information=W_FIT * np.eye(3))
    chroma = picture / np.maximum(picture.sum(axis=2, keepdims=True), 1e-3)
    for step in STEPS:
        change = np.linalg.norm(chroma - images.shifted(chroma, step), axis=2, keepdims=True)
        weights = np.sqrt(W_ALBEDO) * np.exp(-0.5 * CHROMA * change)
        graph.add_stencil(EdgeAlbedo, pixels, [(0, 0), step], weights, kernel="Welsch", kernel_width=0.5)
        graph.add_stencil(EdgeShading, pixels, [(0, 0), step], information=W_SHADING * np.eye(1))
    summary = graphopt.optimize(graph, **options)
    albedo, shading = np.exp(pixels.estimate[..., :3]), np.exp(pixels.estimate[..., 3])
    scale = max(albedo.max(), 1e-9)  # only the product is seen: the brightest albedo is 1
    return albedo / scale, shading * scale, summary


def generated(size: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Picture, albedo and shading: a checkerboard of four colours under a light that fades."""
    y, x = np.mgrid[:size, :size] / size
    colours = np.array([[0.9, 0.3, 0.2], [0.2, 0.6, 0.9], [0.9, 0.8, 0.3], [0.3, 0.8, 0.4]])
    albedo = colours[2 * (y * 4).astype(int) % 4 + (x * 4).astype(int) % 2]
    shading = 0.35 + 0.6 * np.exp(-3.0 * ((x - 0.3) ** 2 + (y - 0.4) ** 2))
    return albedo * shading[..., None], albedo, shading


def main(argv: list[str] | None = None) -> tuple[np.ndarray, np.ndarray, graphopt.Summary]:
    """Separate; albedo, shading and the summary."""
    parser = command.parser(__doc__, data="picture; default: generated", output="picture .png")
    parser.add_argument(
        "--shrink", type=int, default=1, metavar="N", help="pixels per side of one; default: 1"
    )
    args = parser.parse_args(argv)
    if args.data:
        picture = images.shrink(images.read(command.existing(args.data, 1, "a picture")[0]), args.shrink)
    else:
        picture = generated()[0]
    albedo, shading, summary = separate(picture, device=args.device)
    print(f"{picture.shape[1]} x {picture.shape[0]} pixels")
    print(summary.brief_report())
    if args.output:
        shown = np.repeat((shading / shading.max())[..., None], 3, axis=2)
        images.write(args.output, np.hstack([picture, albedo, shown]))
    return albedo, shading, summary


if __name__ == "__main__":
    command.run(main)
