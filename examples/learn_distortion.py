"""Learn the distortion of a camera through the solves that use it.

Poses of a camera in front of a board are estimated from its corners; of 12 poses a robot arm knows the truth.
The distortion is what makes the estimated poses the known ones: its gradient goes through all the solves.
Run: python examples/learn_distortion.py
"""

import numpy as np
import torch

import graphopt
import graphopt.torch
from graphopt.geometry import SE3, SO3
from graphopt.types.registry import edge_type, parameter_type

EDGE, CAMERA = "EDGE_VI_POSE_PIXEL_RADTAN", "PARAMS_VI_RADTAN"


def board_graph(truth: np.ndarray, camera: np.ndarray, rng: np.random.Generator) -> graphopt.Graph:
    """Poses that see the corners of a board through this camera, with half a pixel of noise."""
    side = np.linspace(-0.5, 0.5, 7)
    corners = np.array([(x, y, 0.0) for x in side for y in side])
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", range(len(truth)), truth)
    graph.add_parameters("PARAMS_SE3OFFSET", [0], SE3.identity_storage)
    graph.add_parameters(CAMERA, [1], camera)
    kind = edge_type(EDGE)
    poses = np.repeat(truth, len(corners), axis=0)
    seen = np.concatenate([np.zeros((len(poses), 2)), np.tile(corners, (len(truth), 1))], axis=1)
    constants = [np.tile(values, (len(poses), 1)) for values in (SE3.identity_storage, camera)]
    seen[:, :2] = kind.error((poses,), tuple(constants), seen) + 0.5 * rng.standard_normal((len(poses), 2))
    ids = np.repeat(np.arange(len(truth)), len(corners))[:, None]
    graph.add_edges(kind, ids, seen, 4.0 * np.eye(2), parameters=[0, 1])
    return graph


def main(steps: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """The learned and the true distortion, as the camera's parameters have it."""
    rng = np.random.default_rng(1)
    names = parameter_type(CAMERA).doc
    camera = np.array([458.0, 457.0, 367.0, 248.0, -0.28, 0.07, 2e-4, 2e-5, 0.0])
    world_R_cam = SO3.exp(rng.normal(0.0, 0.25, (12, 3)))
    away = world_R_cam.act(np.tile([0.0, 0.0, 1.0], (12, 1)))
    position = -rng.uniform(0.9, 1.4, (12, 1)) * away + rng.normal(0.0, 0.05, (12, 3))
    truth = np.concatenate([position, world_R_cam.storage], axis=1)
    graph = board_graph(truth, camera, rng)
    print(f"camera: {names}")

    distortion = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.1, 0.1, 0.01, 0.01, 0.1], dtype=torch.float64)
    known, intrinsics = torch.tensor(truth[:, :3]), torch.tensor(camera[:4])

    def loss() -> torch.Tensor:
        values = torch.cat([intrinsics, distortion * scale])[None]
        poses = graphopt.torch.solve(graph, {f"{CAMERA}.values": values})["VERTEX_SE3:QUAT"]
        return 1e4 * ((poses[:, :3] - known) ** 2).sum(dim=1).mean()  # cm^2

    optimizer = torch.optim.LBFGS([distortion], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    before = float(closure().detach())
    optimizer.step(closure)
    found = (distortion * scale).detach().numpy()
    print(f"error of positions {before**0.5:.2f} -> {float(loss().detach()) ** 0.5:.2f} cm")
    print(f"distortion {found.round(4).tolist()}, true {camera[4:].tolist()}")
    return found, camera[4:]


if __name__ == "__main__":
    main()
