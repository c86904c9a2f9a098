"""Warping a picture as rigidly as possible: every pixel has a place and an angle (Opt, section 7.1.1).

    E = w_rigid sum over neighbours (i, j), both ways:  |p_i - p_j - R(a_i) (q_i - q_j)|^2
      + w_fit   sum over constraints:                   |p_i - target_i|^2        q: the pixel as it was

Run: python examples/image_warping.py [--data PICTURE.png MASK.png CONSTRAINTS] [--shrink N] [-o OUT.png]
MASK: black where pixels move, as Opt's. CONSTRAINTS: a count, then lines `x y x_target y_target` [px].
"""

from __future__ import annotations

from pathlib import Path

import command
import images
import numpy as np

import graphopt
from graphopt.geometry import SO2

SMALLEST = 32  # rows or columns of the coarsest picture


Place = graphopt.group_type("PixelPlace", position=2, rotation=SO2)
"""Storage (3,): where a pixel goes, x, y [px], and how far it turns [rad]."""


@graphopt.edge_type(vertices=(Place, Place), measurement_dim=2)
def EdgeRigidPixels(first, second, before):
    """Difference of two places - difference before, turned with the first."""
    return first.position - second.position - first.rotation * before


@graphopt.edge_type(vertices=(Place,), measurement_dim=2)
def EdgePixelTarget(pixel, target):
    """Place - target [px]."""
    return pixel.position - target


def warp(inside: np.ndarray, constraints: np.ndarray, fit: float = 100.0, rigid: float = 0.01, **options):
    """Places and angles (rows, columns, 3) of all pixels, NaN outside; and the summary.

    `inside` (rows, columns) bool; `constraints` (n, 4): x, y, x_target, y_target [px]. Solved at half the
    size first, so that far targets are reached in few iterations.
    """
    rows, columns = inside.shape
    start = np.zeros((rows, columns, 3))
    start[:, :, 1], start[:, :, 0] = np.mgrid[:rows, :columns]
    if min(rows, columns) >= 2 * SMALLEST:
        start = doubled(
            warp(halved(inside), half_as_far(constraints), fit, rigid, **options)[0], inside.shape
        )
    graph = graphopt.Graph()
    pixels = graph.add_grid(Place, inside.shape, estimates=start, fixed=~inside)
    for offset in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        both = graphopt.everywhere(inside, [(0, 0), offset])
        before = np.array([-offset[1], -offset[0]], float)
        graph.add_stencil(EdgeRigidPixels, pixels, [(0, 0), offset], before, information=rigid, mask=both)
    x, y = constraints[:, :2].round().astype(int).T
    held = [0 <= i < rows and 0 <= j < columns and inside[i, j] for i, j in zip(y, x, strict=True)]
    if not any(held):
        raise command.ExampleError("no constraint begins at a pixel of the mask.")
    beginnings = graphopt.indexed(pixels, np.stack([y, x], axis=1)[held])
    graph.add_edges(EdgePixelTarget, (beginnings,), constraints[held, 2:], fit * np.eye(2))
    rules = graphopt.DoglegOptions(100, function_tolerance=1e-6)
    summary = graphopt.optimize(graph, "dogleg", options=rules, **options)
    return np.where(inside[:, :, None], pixels.estimate, np.nan), summary


def halved(inside: np.ndarray) -> np.ndarray:
    """Squares of 2 x 2 pixels with one inside."""
    return images.largest(np.pad(inside, [(0, size % 2) for size in inside.shape]), 2)


def half_as_far(pixels: np.ndarray) -> np.ndarray:
    """Pixel coordinates in the picture of half the size."""
    return (pixels + 0.5) / 2.0 - 0.5


def doubled(places: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Places and angles (rows, columns, 3) of the pixels of a picture of twice the size."""
    from scipy.ndimage import distance_transform_edt

    y, x = (axis.ravel() for axis in np.mgrid[: shape[0], : shape[1]])
    known = np.isfinite(places[:, :, 0])
    nearest_y, nearest_x = distance_transform_edt(~known, return_distances=False, return_indices=True)
    parent_y, parent_x = nearest_y[y // 2, x // 2], nearest_x[y // 2, x // 2]
    parent = places[parent_y, parent_x]
    offset = half_as_far(np.stack([x, y], axis=1)) - np.stack([parent_x, parent_y], axis=1)
    moved = parent[:, :2] + SO2(parent[:, 2:]) * offset
    return np.column_stack([2.0 * moved + 0.5, parent[:, 2]]).reshape(*shape, 3)


def render(picture: np.ndarray, places: np.ndarray, samples: int = 4) -> np.ndarray:
    """The picture with its pixels at their places, on white; squares of four pixels are filled."""
    rows, columns = picture.shape[:2]
    total, weight = np.zeros((rows * columns, 3)), np.zeros(rows * columns)
    steps = (np.arange(samples) + 0.5) / samples
    for u in steps:
        for v in steps:
            point, color = (
                (1 - v) * ((1 - u) * image[:-1, :-1] + u * image[:-1, 1:])
                + v * ((1 - u) * image[1:, :-1] + u * image[1:, 1:])
                for image in (places, picture)
            )
            x, y = np.floor(np.nan_to_num(point, nan=-9.0) + 0.5).astype(int).reshape(-1, 2).T
            seen = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
            np.add.at(total, (y * columns + x)[seen], color.reshape(-1, 3)[seen])
            np.add.at(weight, (y * columns + x)[seen], 1.0)
    result = np.where(weight[:, None] > 0.0, total / np.maximum(weight, 1.0)[:, None], 1.0)
    return result.reshape(picture.shape)


def generated() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A striped bar, whose ends are held and whose middle is drawn up."""
    y, x = np.mgrid[:48, :96]
    inside = (abs(y - 30) < 8) & (abs(x - 48) < 40)
    stripes = np.where((x // 6 + y // 6)[:, :, None] % 2, [0.9, 0.6, 0.2], [0.2, 0.4, 0.7])
    constraints = [[10, 30, 14, 34], [48, 30, 48, 12], [86, 30, 82, 34]]
    return np.where(inside[:, :, None], stripes, 1.0), inside, np.array(constraints, float)


def read(paths: list[Path], factor: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Picture, mask and constraints, shrunk by a factor."""
    picture, mask, listed = command.existing(paths, 3, "picture, mask and constraints")
    picture, mask = (images.shrink(images.read(path), factor) for path in (picture, mask))
    images.same_size(paths[:2], picture, mask)
    try:
        words = listed.read_text(encoding="ascii").split()
        constraints = np.array(words[1:], float).reshape(int(words[0]), 4)
    except (ValueError, IndexError) as error:
        raise command.ExampleError(f"{listed} cannot be read as constraints: {error}.") from error
    return picture, mask[:, :, 0] < 0.5, (constraints + 0.5) / factor - 0.5


def main(argv: list[str] | None = None) -> tuple[np.ndarray, graphopt.Summary]:
    """Warp; places and angles of the pixels, and the summary."""
    parser = command.parser(
        __doc__, data="picture, mask, constraints; default: generated", output="picture, .png"
    )
    parser.add_argument(
        "--shrink", type=int, default=2, metavar="N", help="pixels per side of one; default: 2"
    )
    args = parser.parse_args(argv)
    picture, inside, constraints = read(args.data, args.shrink) if args.data else generated()
    places, summary = warp(inside, constraints, device=args.device)
    print(f"{np.isfinite(places[:, :, 0]).sum()} pixels, {len(constraints)} constraints")
    print(summary.brief_report())
    if args.output:
        images.write(args.output, np.hstack([picture, render(picture, places[:, :, :2])]))
    return places, summary


if __name__ == "__main__":
    command.run(main)
