"""A new edge type in ten lines: distances from a walking robot to beacons, as from ultra-wideband radios.

The residual is written once, in numpy; its derivatives come from the compiler and it runs at the speed of the
built-in types. Run: python examples/custom_edge.py
"""

import numpy as np

import graphopt
from graphopt.geometry import norm


@graphopt.edge_type(tag="EDGE_RANGE", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=1)
def EdgeRange(pose, beacon, distance):
    """Difference between the measured distance and that from the robot to the beacon [m]."""
    return norm(beacon - pose.translation) - distance


def main() -> None:
    """Walk a circle, measure odometry and ranges with noise, and recover poses and beacons."""
    rng = np.random.default_rng(0)
    angle = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    poses = np.stack([8.0 * np.cos(angle), 8.0 * np.sin(angle), angle + np.pi / 2], axis=-1)
    beacons = np.array([[0.0, 0.0], [12.0, 3.0], [-5.0, 11.0], [2.0, -12.0]])
    beacon_ids = 1000 + np.arange(len(beacons))

    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(60), poses + rng.normal(0.0, 0.3, poses.shape))
    graph.vertex(0).estimate = poses[0]
    graph.vertex(0).fixed = True
    graph.add_vertices("VERTEX_XY", beacon_ids, beacons + rng.normal(0.0, 1.0, beacons.shape))

    turn = 2.0 * np.pi / 60
    step = [8.0 * np.sin(turn), 8.0 * (1.0 - np.cos(turn)), turn]
    odometry = np.array(step) + rng.normal(0.0, 0.02, (59, 3))
    graph.add_edges("EDGE_SE2", [(i, i + 1) for i in range(59)], odometry, np.eye(3) / 0.02**2)

    pairs = [(i, j) for i in range(60) for j in range(len(beacons))]
    ranges = np.array([[np.hypot(*(beacons[j] - poses[i, :2]))] for i, j in pairs])
    noisy = ranges + rng.normal(0.0, 0.05, ranges.shape)
    graph.add_edges(EdgeRange, [(i, beacon_ids[j]) for i, j in pairs], noisy, np.eye(1) / 0.05**2)

    print(graphopt.optimize(graph).brief_report())
    error = np.linalg.norm(graph.vertex_set("VERTEX_XY").estimate - beacons, axis=1)
    print(f"beacons found to within {error.max():.3f} m")


if __name__ == "__main__":
    main()
