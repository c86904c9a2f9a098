"""Shape from shading where the light is not known either (Thallo's "shape and shading").

    B   = l . (harmonics of the normal up to degree 2)      shade of a pixel under light l (9), both unknown
    E   = w_fit sum |d - d_scan|^2  +  w_light sum |B - I|^2
        + w_shade sum over neighbours |(B_i - B_j) - (I_i - I_j)|^2  +  w_smooth sum |Laplacian of points|^2

The shade of a pixel is a computed value of three depths and the light: one function for the residuals of the
light and of both neighbours. Scan, camera and surface are those of `shape_from_shading.py`.

Run: python examples/shape_and_shading.py [--size N] [--computed auto|inline|materialize] [--device ...]
         [-o OUT.png]
"""

from __future__ import annotations

import command
import images
import numpy as np
from shape_from_shading import (
    EdgeDepth,
    EdgeSmoothSurface,
    Pinhole,
    Scan,
    VertexDepth,
    generated,
    relief,
    shade,
)

import graphopt
from graphopt.geometry import components

Light = graphopt.group_type("UnknownLight", 9)


@graphopt.computed_type(
    vertices=(VertexDepth, VertexDepth, VertexDepth, Light), parameters=(Pinhole,), measurement_dim=2
)
def PixelShade(depth, left, upper, light, camera, pixel):
    """Brightness of the surface at a pixel."""
    x, y = components(pixel)
    return shade(depth, left, upper, x, y, camera, components(light))


@graphopt.edge_type(vertices=(PixelShade,), measurement_dim=1)
def EdgeLit(shade_here, brightness):
    """Shade - brightness."""
    return shade_here - brightness


@graphopt.edge_type(vertices=(PixelShade, PixelShade), measurement_dim=1)
def EdgeShades(here, there, difference):
    """Difference of two shades - that of the picture."""
    return here - there - difference


def build(scan: Scan, fit: float = 2000.0, lit: float = 5.0, shading: float = 50.0, smooth: float = 1000.0):
    """Graph, grid of the depths, and the light."""
    known = scan.depth > 0.0
    inner = np.pad(known[1:-1, 1:-1], 1)
    graph = graphopt.Graph()
    depth = graph.add_grid(VertexDepth, known.shape, estimates=scan.depth, fixed=~known)
    light = graph.add_array(Light, [np.eye(9)[0]])
    graph.add_parameters(Pinhole, [0], [scan.camera])
    graph.add_stencil(EdgeDepth, depth, [(0, 0)], scan.depth, information=fit, mask=known)
    place, left, right, upper, lower = depth.coordinates(), (0, -1), (0, 1), (-1, 0), (1, 0)
    lit_pixels = inner & graphopt.everywhere(known, [(0, 0), left, upper])
    shades = graph.add_computed(
        PixelShade, [depth, depth, depth, graphopt.unique(light)], [(0, 0), left, upper, None], place,
        parameters=[0], mask=lit_pixels,
    )  # fmt: skip
    graph.add_stencil(EdgeLit, shades, [(0, 0)], scan.intensity, information=lit, mask=lit_pixels)
    for step in (right, lower):
        both = graphopt.everywhere(lit_pixels, [(0, 0), step])
        difference = scan.intensity - images.shifted(scan.intensity, step)
        graph.add_stencil(EdgeShades, shades, [(0, 0), step], difference, information=shading, mask=both)
    stencil = [(0, 0), left, right, upper, lower]
    graph.add_stencil(
        EdgeSmoothSurface, depth, stencil, place, information=smooth, parameters=[0],
        mask=graphopt.everywhere(inner, stencil),
    )  # fmt: skip
    return graph, depth, light


def refine(scan: Scan, **options):
    """Depth (rows, columns), light (9,) and the summary."""
    graph, depth, light = build(scan)
    rules = graphopt.AutoOptions(max_iterations=30, function_tolerance=1e-5)
    summary = graphopt.optimize(graph, options=rules, **options)
    return depth.estimate[:, :, 0].copy(), light.estimate[0].copy(), summary


def main(argv: list[str] | None = None):
    """Refine; scan, depth, light and the summary."""
    parser = command.parser(__doc__, output="picture, .png")
    parser.add_argument("--size", type=int, default=48, metavar="N", help="rows and columns; default: 48")
    parser.add_argument(
        "--computed", default="auto", choices=("auto", "inline", "materialize"), help="of shades"
    )
    args = parser.parse_args(argv)
    scan = generated(args.size)
    depth, light, summary = refine(scan, device=args.device, computed=args.computed)
    print(
        f"{(scan.depth > 0.0).sum()} pixels; light {np.round(light, 3).tolist()}, true {scan.light.tolist()}"
    )
    print(summary.brief_report())
    if args.output:
        views = [scan.intensity, relief(scan.depth, scan.camera), relief(depth, scan.camera)]
        images.write(args.output, np.hstack(views))
    return scan, depth, light, summary


if __name__ == "__main__":
    command.run(main)
