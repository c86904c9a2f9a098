"""Cameras with a GPS antenna on a stick: positions of the antenna, not of the camera, in a COLMAP model.

    python examples/colmap/gps.py sparse/0 gps.csv [DEVICE]      lines: image id, x, y, z [m]

For positions of the cameras themselves, and for latitude and longitude, see `graphopt.colmap.PosePrior`.
"""

import sys

import numpy as np

import graphopt.colmap

ANTENNA = np.array([0.0, -0.3, 0.05])
"""In the frame of the camera [m]: 30 cm above it."""


@graphopt.colmap.residual("pose", measurement_dim=3)
def antenna(cam_T_world, measured):
    """Where the antenna is in the world, minus where GPS says [m]."""
    return cam_T_world.inverse_act(ANTENNA) - measured


def main(folder: str, table: str, device: str = "auto") -> None:
    """Refine the model in place; it must be in the world of the GPS, roughly."""
    rows = np.loadtxt(table, delimiter=",", ndmin=2)
    known = antenna(rows[:, :1], rows[:, 1:], sigma=0.05, loss="HUBER", loss_scale=2.0)
    config = graphopt.colmap.Config(images=frozenset(graphopt.colmap.read_colmap(folder).images.ids.tolist()))
    summary = graphopt.colmap.bundle_adjustment(folder, config=config, residuals=[known], device=device)
    print(summary.brief_report())


if __name__ == "__main__":
    main(*sys.argv[1:])
