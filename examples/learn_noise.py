"""Learn the noise of a visual-inertial graph from ground truth.

A graph of keyframes, IMU and pixels weighs its measurements by their information. Here the two weights start
wrong by a factor of 100, the IMU trusted too much, and are learned from the true positions of a sequence: the
gradient of the trajectory's error goes through the whole optimization. Run: python examples/learn_noise.py
"""

import numpy as np
import torch

import graphopt
import graphopt.torch
from slam_bridge import SolveOptions
from slam_bridge.generator import generate_problem
from slam_bridge.selection import select
from slam_bridge.window import Window

IMU = "EDGE_IMU_INERTIAL_COMBINED"


def inertial_graph(like: str, seed: int) -> tuple[graphopt.Graph, np.ndarray]:
    """The graph of full-inertial bundle adjustment, and true positions of its keyframes (k, 3) [m]."""
    problem = generate_problem(
        like, keyframes=20, landmarks=150, observations=1200, seconds=12.0, mismatches=0.0, seed=seed
    )
    world = problem.map
    ids = world.keyframes.ids
    chosen = select(world, ids[1:], ids[:1], inertial=ids)
    graph = Window().load(chosen, SolveOptions())
    order = np.searchsorted(problem.truth.keyframes, chosen.keyframes)
    return graph, problem.truth.world_T_body[order, :3]


def main(steps: int = 12) -> tuple[float, float]:
    """Error of the trajectory with the wrong weights and with the learned ones [m]."""
    graph, truth = inertial_graph("V101", 0)
    pixels = next(edges.type.tag for edges in graph.edge_sets if edges.type.tag.startswith("EDGE_VI"))
    weights = {tag: torch.tensor(graph.edge_set(tag).information.copy()) for tag in (IMU, pixels)}
    wrong = torch.log(torch.tensor([1e2, 1e-2], dtype=torch.float64))
    logarithms = wrong.clone().requires_grad_()
    known = torch.tensor(truth)

    def loss() -> torch.Tensor:
        inputs = {
            f"{tag}.information": torch.exp(logarithm) * weight
            for (tag, weight), logarithm in zip(weights.items(), logarithms, strict=True)
        }
        poses = graphopt.torch.solve(graph, inputs, look_behind=False, warm_start=True)["VERTEX_SE3:QUAT"]
        return 1e4 * ((poses[: len(known), :3] - known) ** 2).sum(dim=1).mean()  # cm^2

    optimizer = torch.optim.Adam([logarithms], 0.8)
    first = best = float(loss().detach())
    for step in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        best = min(best, float(value.detach()))
        factors = torch.exp(logarithms.detach()).numpy().round(3).tolist()
        print(
            f"step {step}: error {float(value.detach()) ** 0.5:.2f} cm, IMU and pixels weighed by {factors}"
        )
    return first**0.5 / 100.0, best**0.5 / 100.0


if __name__ == "__main__":
    main()
