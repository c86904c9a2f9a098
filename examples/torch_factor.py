"""A factor whose residual torch computes: a network that reads the height of the ground below a robot.

The network is trained beforehand on surveyed points; in the graph it says where, along its path, a robot with
a barometer can be. Odometry is compiled, the network's edges are evaluated by torch, all at once.
Run: python examples/torch_factor.py
"""

import numpy as np
import torch

import graphopt
import graphopt.torch


def ground(x, y):
    """True height of the ground [m]."""
    return 2.0 * np.sin(0.35 * x) + 1.5 * np.cos(0.3 * y) + 0.1 * x


def trained_network(rng: np.random.Generator) -> torch.nn.Module:
    """A small network of the ground's height, from 1,000 surveyed points."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the network is small
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, 1),
    ).double()
    places = torch.tensor(rng.uniform(-12.0, 12.0, (1000, 2)))
    heights = torch.tensor(ground(places[:, 0].numpy(), places[:, 1].numpy()))[:, None]
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        ((network(places / 6.0) - heights) ** 2).mean().backward()
        optimizer.step()
    return network.requires_grad_(False)


def main() -> tuple[float, float]:
    """Walk over the ground; mean error of positions by odometry alone, and with the network [m]."""
    rng = np.random.default_rng(0)
    network = trained_network(rng)

    @graphopt.torch.edge_type(
        tag="EDGE_GROUND_HEIGHT", vertices=["VERTEX_SE2"], residual_dim=1, measurement_dim=1
    )
    def ground_height(poses, measured):
        """Height of the ground below (m, 3) poses, minus what the barometer says (m, 1) [m]."""
        return network(poses[:, :2] / 6.0) - measured

    angle = np.linspace(0.0, 2.0 * np.pi, 120)
    truth = np.stack([8.0 * np.cos(angle), 8.0 * np.sin(2.0 * angle) / 1.5, np.zeros(120)], axis=1)
    step = np.diff(truth, axis=0)
    truth[:, 2] = np.unwrap(np.arctan2(*np.vstack([step, step[-1:]])[:, 1::-1].T))
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", range(120), truth, fixed=np.arange(120) == 0)
    motion = graph.vertex_set("VERTEX_SE2").type.pose(truth[:-1]).inverse() * graph.vertex_set(
        "VERTEX_SE2"
    ).type.pose(truth[1:])
    sigma = np.array([0.05, 0.02, 0.02])
    odometry = motion.storage + sigma * rng.standard_normal((119, 3))
    graph.add_edges("EDGE_SE2", [(i, i + 1) for i in range(119)], odometry, np.diag(sigma**-2.0))
    graphopt.initialize(graph, "odometry")

    def error() -> float:
        return float(np.hypot(*(graph.vertex_set("VERTEX_SE2").estimate - truth)[:, :2].T).mean())

    before = error()
    measured = ground(*truth[:, :2].T)[:, None] + 0.05 * rng.standard_normal((120, 1))
    graph.add_edges(ground_height, np.arange(120)[:, None], measured, [[0.1**-2]], kernel="Huber")
    print(graphopt.optimize(graph).brief_report())
    print(f"mean error by odometry {before:.2f} m, with the network {error():.2f} m")
    return before, error()


if __name__ == "__main__":
    main()
