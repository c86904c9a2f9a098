"""Points on the outline of a ball: a turntable's reference sphere, seen as an ellipse in each image.

    python examples/colmap/silhouettes.py sparse/0 outline.csv CENTRE RADIUS [DEVICE]

Lines: image id, camera id, u, v of a pixel on the outline [px]. CENTRE is the id of the point that is the
ball's centre, RADIUS its radius [m]: the ray of an outline's pixel touches the ball.
"""

import sys

import numpy as np

import graphopt.colmap


@graphopt.colmap.residual("pose", "camera", "point", measurement_dim=3)
def touches(cam_T_world, camera, centre, measured):
    """Distance of the ball's centre to the ray of a pixel, minus the radius [m]; of a PINHOLE camera."""
    fx, fy, cx, cy = (camera.params[..., k] for k in range(4))
    x, y = (measured[..., 0] - cx) / fx, (measured[..., 1] - cy) / fy
    ray = np.stack([x, y, np.ones_like(x)], axis=-1)
    seen = cam_T_world.act(centre)
    across = np.cross(seen, ray)
    squared = (across * across).sum(axis=-1) / (ray * ray).sum(axis=-1)
    return (np.sqrt(squared) - measured[..., 2])[..., None]


def main(folder: str, table: str, centre: str, radius: str, device: str = "auto") -> None:
    """Refine the model in place."""
    rows = np.loadtxt(table, delimiter=",", ndmin=2)
    ids = np.column_stack([rows[:, :2], np.full(len(rows), int(centre))])
    measured = np.column_stack([rows[:, 2:], np.full(len(rows), float(radius))])
    outline = touches(ids, measured, sigma=2e-3, loss="HUBER")
    summary = graphopt.colmap.bundle_adjustment(folder, residuals=[outline], device=device)
    print(summary.brief_report())


if __name__ == "__main__":
    main(*sys.argv[1:])
