"""Shape from shading: depth of a scanner, refined with the shades of its picture (Wu et al., TOG 2014).

    p(x, y) = d ((x - c_x) / f_x, (y - c_y) / f_y, 1)             point of a pixel with depth d
    n       = normal of the points of a pixel, its left and its upper neighbour
    B       = l_0 + l . (harmonics of n up to degree 2)           shade under light l (9)
    E = w_fit   sum |d - d_scan|^2 + w_shade sum over neighbours |(B_i - B_j) - (I_i - I_j)|^2
      + w_smooth sum |4 p - p_left - p_right - p_up - p_down|^2

Cast shadows and paint are not in this model; a robust kernel on the shades leaves them out.

Run: python examples/shape_from_shading.py [--data FOLDER] [--shrink N] [--device ...] [-o OUT.png]
FOLDER holds Opt's default_targetDepth, default_targetIntensity, default_maskEdgeMap (.imagedump, plain or
.xz) and default.SFSSolverParameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import command
import images
import numpy as np

import graphopt
from graphopt.geometry import components, stack

LARGEST_STEP = 0.01  # of depth between neighbours on one surface [m]


@dataclass
class Scan:
    """Depth [m] with 0 where there is none, picture, and what is known about camera and light."""

    depth: np.ndarray  # (rows, columns)
    intensity: np.ndarray  # (rows, columns)
    beside: np.ndarray  # (rows, columns) bool: no edge of the picture towards the right neighbour
    below: np.ndarray  # (rows, columns) bool: none towards the lower neighbour
    camera: np.ndarray  # f_x, f_y, c_x, c_y [px]
    light: np.ndarray  # (9,)


@graphopt.vertex_type(tag="VERTEX_DEPTH", tangent_dim=1, wrap=lambda storage: storage[..., 0])
def VertexDepth(depth, delta):
    """Depth of a pixel [m]."""
    return depth + delta


@graphopt.parameter_type(tag="PARAMS_PINHOLE", storage_dim=4)
def Pinhole(numbers):
    """f_x, f_y, c_x, c_y."""
    return components(numbers)


@graphopt.parameter_type(tag="PARAMS_LIGHT", storage_dim=9)
def Light(coefficients):
    """Spherical harmonics up to degree 2."""
    return components(coefficients)


def shade(depth, left, upper, x, y, camera, light):
    """Brightness of the surface at pixel (x, y)."""
    f_x, f_y, c_x, c_y = camera
    n_x = upper * (depth - left) / f_y
    n_y = left * (depth - upper) / f_x
    n_z = n_x * (c_x - x) / f_x + n_y * (c_y - y) / f_y - left * upper / (f_x * f_y)
    length = np.sqrt(n_x * n_x + n_y * n_y + n_z * n_z)
    a, b, c = n_x / length, n_y / length, n_z / length
    harmonics = (1.0, b, c, a, a * b, b * c, 2.0 * c * c - a * a - b * b, c * a, a * a - b * b)
    return sum(weight * value for weight, value in zip(light, harmonics, strict=True))


@graphopt.edge_type(vertices=(VertexDepth,), measurement_dim=1)
def EdgeDepth(depth, scanned):
    """Depth - scanned."""
    return depth - scanned


@graphopt.computed_type(vertices=(VertexDepth,) * 3, parameters=(Pinhole, Light), measurement_dim=2)
def KnownLightShade(depth, left, upper, camera, light, pixel):
    """Brightness of the surface at a pixel, for all residuals that compare it."""
    x, y = components(pixel)
    return shade(depth, left, upper, x, y, camera, light)


@graphopt.edge_type(vertices=(KnownLightShade, KnownLightShade), measurement_dim=1)
def EdgeShadeStep(here, there, difference):
    """Difference of the shades of two neighbours - that of the picture."""
    return here - there - difference


@graphopt.edge_type(vertices=(VertexDepth,) * 5, parameters=(Pinhole,), measurement_dim=2)
def EdgeSmoothSurface(depth, left, right, upper, lower, camera, pixel):
    """Laplacian of the points."""
    f_x, f_y, c_x, c_y = camera
    x, y = components(pixel)

    def point(d, dx, dy):
        return stack(d * ((x + dx - c_x) / f_x), d * ((y + dy - c_y) / f_y), d)

    around = (
        point(left, -1.0, 0.0) + point(right, 1.0, 0.0) + point(upper, 0.0, -1.0) + point(lower, 0.0, 1.0)
    )
    return 4.0 * point(depth, 0.0, 0.0) - around


def build(scan: Scan, fit: float = 2000.0, smooth: float = 1000.0, largest_shade: float = 0.17):
    """Graph and grid of the pixels; differences of shades above `largest_shade` count less and less."""
    known = scan.depth > 0.0
    inner = np.pad(known[1:-1, 1:-1], 1)
    graph = graphopt.Graph()
    depth = graph.add_grid(VertexDepth, known.shape, estimates=scan.depth, fixed=~known)
    graph.add_parameters(Pinhole, [0], [scan.camera])
    graph.add_parameters(Light, [1], [scan.light])
    graph.add_stencil(EdgeDepth, depth, [(0, 0)], scan.depth, information=fit, mask=known)
    place = depth.coordinates()
    left, right, upper, lower = (0, -1), (0, 1), (-1, 0), (1, 0)
    mean = 0.5 * scan.intensity
    mean = mean + 0.25 * (images.shifted(scan.intensity, left) + images.shifted(scan.intensity, upper))
    lit = graphopt.everywhere(known, [(0, 0), left, upper])
    shades = graph.add_computed(
        KnownLightShade, depth, [(0, 0), left, upper], place, parameters=[0, 1], mask=lit
    )
    for free, step in ((scan.beside, right), (scan.below, lower)):
        graph.add_stencil(
            EdgeShadeStep,
            shades,
            [(0, 0), step],
            mean - images.shifted(mean, step),
            mask=inner & free & graphopt.everywhere(lit, [(0, 0), step]),
            kernel="GemanMcClure",
            kernel_width=largest_shade**2,
        )
    stencil = [(0, 0), left, right, upper, lower]
    near = [np.abs(images.shifted(scan.depth, offset) - scan.depth) < LARGEST_STEP for offset in stencil]
    graph.add_stencil(
        EdgeSmoothSurface,
        depth,
        stencil,
        place,
        information=smooth,
        mask=inner & np.all(near, axis=0),
        parameters=[0],
    )
    return graph, depth


def read(folder: Path, factor: int) -> Scan:
    """Opt's files, shrunk by a factor."""

    def dump(name):
        files = [
            path for path in folder.glob(f"default_{name}.imagedump*") if path.suffix in (".imagedump", ".xz")
        ]
        if not files:
            raise command.ExampleError(f"{folder} has no default_{name}.imagedump.")
        return images.read_dump(files[0])

    def worst(picture):
        return -images.largest(-picture.astype(float), factor)

    depth, edges = dump("targetDepth").astype(float), dump("maskEdgeMap")
    known = worst(np.isfinite(depth) & (depth > 0.0)) > 0.0
    depth = np.where(known, images.shrink(np.where(np.isfinite(depth), depth, 0.0), factor), 0.0)
    numbers = np.fromfile(command.existing([folder / "default.SFSSolverParameters"])[0], "<f4").astype(float)
    camera = numbers[7:11] / factor
    camera[2:] += 0.5 / factor - 0.5
    beside, below = (worst(word) > 0.0 for word in np.split(edges, 2))
    intensity = images.shrink(dump("targetIntensity").astype(float), factor)
    return Scan(depth, intensity, beside, below, camera, numbers[27:36])


def generated(size: int = 48, noise: float = 0.0008) -> Scan:
    """A plate with a bump, seen from 0.5 m: the depth with noise, the picture without."""
    y, x = np.mgrid[:size, :size].astype(float)
    camera = np.array([1.1 * size, 1.1 * size, 0.5 * size, 0.5 * size])
    light = np.array([0.7, 0.1, -0.25, -0.15, 0.0, 0.0, 0.0, 0.0, 0.0])
    r2 = ((x - 0.5 * size) ** 2 + (y - 0.45 * size) ** 2) / (0.22 * size) ** 2
    depth = 0.5 - 0.03 * np.exp(-r2)
    left, upper = np.roll(depth, 1, axis=1), np.roll(depth, 1, axis=0)
    picture = shade(depth, left, upper, x, y, camera, light)
    everywhere = np.ones((size, size), bool)
    noisy = depth + np.random.default_rng(0).normal(0.0, noise, depth.shape)
    return Scan(noisy, picture, everywhere, everywhere, camera, light)


def relief(depth: np.ndarray, camera: np.ndarray) -> np.ndarray:
    """The surface as it looks lit from the upper left, white where there is none."""
    left, upper = np.roll(depth, 1, axis=1), np.roll(depth, 1, axis=0)
    known = np.all([depths > 0.0 for depths in (depth, left, upper)], axis=0)
    known[0], known[:, 0] = False, False
    y, x = np.mgrid[: depth.shape[0], : depth.shape[1]].astype(float)
    lit = shade(
        *(np.where(known, depths, 1.0) for depths in (depth, left, upper)),
        x,
        y,
        camera,
        (0, -0.4, -0.82, -0.4, 0, 0, 0, 0, 0),
    )
    return np.where(known, lit, 1.0)


def refine(scan: Scan, **options) -> tuple[np.ndarray, graphopt.Summary]:
    """Depth (rows, columns) that explains scan and picture, 0 where there is none; and the summary."""
    graph, depth = build(scan)
    rules = graphopt.AutoOptions(max_iterations=30, function_tolerance=1e-4)
    summary = graphopt.optimize(graph, options=rules, **options)
    return depth.estimate[:, :, 0].copy(), summary


def main(argv: list[str] | None = None) -> tuple[Scan, np.ndarray, graphopt.Summary]:
    """Refine; the scan, the depth and the summary."""
    parser = command.parser(
        __doc__, data="folder of a scan; default: a generated one", output="picture, .png"
    )
    parser.add_argument(
        "--shrink", type=int, default=2, metavar="N", help="pixels per side of one; default: 2"
    )
    args = parser.parse_args(argv)
    scan = read(command.existing(args.data, 1, "one folder")[0], args.shrink) if args.data else generated()
    depth, summary = refine(scan, device=args.device)
    moved = 1000.0 * np.abs(depth - scan.depth)[scan.depth > 0.0].mean()
    print(f"{(scan.depth > 0.0).sum()} pixels, moved by {moved:.2f} mm on average")
    print(summary.brief_report())
    if args.output:
        views = [scan.intensity, relief(scan.depth, scan.camera), relief(depth, scan.camera)]
        images.write(args.output, np.hstack(views))
    return scan, depth, summary


if __name__ == "__main__":
    command.run(main)
