"""Points of a straight edge, such as a roof's, whose image is a line that a detector found.

    python examples/colmap/lines.py sparse/0 lines.csv [DEVICE]  lines: image id, point id, a, b, c

The line is a u + b v + c = 0 with a^2 + b^2 = 1 [px]. A point on the edge may lie anywhere along it: only its
distance to the line counts.
"""

import sys

import numpy as np

import graphopt.colmap


@graphopt.colmap.residual("image", "point", measurement_dim=3)
def off_the_line(view, point, line):
    """Distance of a point's image to a line [px]."""
    pixel = view.project(point)
    return (pixel * line[..., :2]).sum(axis=-1, keepdims=True) + line[..., 2:]


def main(folder: str, table: str, device: str = "auto") -> None:
    """Refine the model in place."""
    rows = np.loadtxt(table, delimiter=",", ndmin=2)
    seen = off_the_line(rows[:, :2], rows[:, 2:], sigma=0.5, loss="CAUCHY")
    summary = graphopt.colmap.bundle_adjustment(folder, residuals=[seen], device=device)
    print(summary.brief_report())


if __name__ == "__main__":
    main(*sys.argv[1:])
