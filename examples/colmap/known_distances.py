"""Points whose distance was measured with a tape give a COLMAP model its scale.

python examples/colmap/known_distances.py sparse/0 POINT POINT METRES [DEVICE]
"""

import sys

import numpy as np

import graphopt.colmap


@graphopt.colmap.residual("point", "point", measurement_dim=1)
def distance(first, second, measured):
    """Distance of two points minus the measured one [m]."""
    return np.linalg.norm(first - second, axis=-1, keepdims=True) - measured


def main(folder: str, first: str, second: str, metres: str, device: str = "auto") -> None:
    """Refine the model in place; its scale is free, so that the distance can be met."""
    known = distance([(int(first), int(second))], [[float(metres)]], sigma=1e-3)
    images = frozenset(graphopt.colmap.read_colmap(folder).images.ids.tolist())
    config = graphopt.colmap.Config(images=images)  # no gauge: the two cameras' would hold the scale
    summary = graphopt.colmap.bundle_adjustment(folder, config=config, residuals=[known], device=device)
    print(summary.brief_report())


if __name__ == "__main__":
    main(*sys.argv[1:])
