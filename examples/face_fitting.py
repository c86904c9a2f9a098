"""Fitting of a blendshape model (as in Thallo's face fitting): a pose and forty weights from marked points.

    E = sum over marks i:  |R (m_i + sum_k w_k b_ik) + t - z_i|^2  +  w_prior |w|^2

m: the mean shape, b_k: the blendshapes. All weights are one vertex; a mark is one edge, whose measurement
holds its column of the basis. The weights of real models are normalised so that the prior is |w|^2.

Run: python examples/face_fitting.py [--weights K] [--marks N] [--device auto|cpu|vulkan] [-o OUT]
"""

from __future__ import annotations

import functools

import command
import images
import numpy as np

import graphopt
from graphopt.geometry import SE3, SO3

Pose = graphopt.group_type("FacePose", SE3)


@functools.cache
def types(num_weights: int):
    """Vertex type of the weights, edge types of a mark and of the prior."""
    weights = graphopt.group_type(f"FaceWeights{num_weights}", num_weights)

    def mark(world_T_face, weights, data):
        """Model's point in the world - the marked point; data: z, m, then the basis (3, K) row by row."""
        basis = np.stack([data[6 + row * num_weights : 6 + (row + 1) * num_weights] for row in range(3)])
        return world_T_face.act(data[3:6] + basis @ weights) - data[:3]

    def prior(weights):
        """The weights themselves."""
        return weights

    mark.__name__, prior.__name__ = f"EdgeFaceMark{num_weights}", f"EdgeFacePrior{num_weights}"
    edge = graphopt.edge_type(vertices=(Pose, weights), measurement_dim=6 + 3 * num_weights)(mark)
    held = graphopt.edge_type(vertices=(weights,), measurement_dim=0, residual_dim=num_weights)(prior)
    return weights, edge, held


def fit(mean: np.ndarray, basis: np.ndarray, marks: np.ndarray, sigma: float, **options):
    """Pose (7,), weights (K,) and the summary; mean (n, 3), basis (K, n, 3), marks (n, 3) with sigma."""
    weights_type, edge, prior = types(len(basis))
    graph = graphopt.Graph()
    pose = graph.add_array(Pose, [np.r_[marks.mean(axis=0) - mean.mean(axis=0), 0.0, 0.0, 0.0, 1.0]])
    weights = graph.add_array(weights_type, np.zeros((1, len(basis))))
    data = np.concatenate([marks, mean, basis.transpose(1, 2, 0).reshape(len(mean), -1)], axis=1)
    zeros = np.zeros(len(mean), int)
    graph.add_edges(
        edge, (graphopt.indexed(pose, zeros), graphopt.indexed(weights, zeros)), data, np.eye(3) / sigma**2
    )
    graph.add_edges(prior, (graphopt.indexed(weights, [0]),))
    summary = graphopt.optimize(graph, fix="none", **options)
    return pose.estimate[0].copy(), weights.estimate[0].copy(), summary


def generated(num_weights: int = 40, num_marks: int = 300, sigma: float = 0.002, seed: int = 0):
    """Mean, basis, marks, and the true pose and weights: smooth random deformations of an ellipsoid."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(0.0, 1.0, (num_marks, 3))
    mean *= [0.8, 1.1, 0.7] / np.linalg.norm(mean, axis=1, keepdims=True)
    centres = mean[rng.choice(num_marks, num_weights, replace=False)]
    near = np.exp(-4.0 * ((mean - centres[:, None]) ** 2).sum(axis=2))
    basis = 0.1 * near[..., None] * rng.normal(0.0, 1.0, (num_weights, 1, 3))
    weights = rng.normal(0.0, 1.0, num_weights)
    rotation = np.asarray(SO3.exp(np.array([0.2, -0.5, 0.1])).storage)
    pose = np.r_[0.3, -0.1, 2.0, rotation]
    shape = mean + np.einsum("k,kni->ni", weights, basis)
    marks = np.asarray(SE3(pose).act(shape)) + rng.normal(0.0, sigma, mean.shape)
    return mean, basis, marks, pose, weights


def main(argv: list[str] | None = None):
    """Fit; pose, weights and the summary."""
    parser = command.parser(__doc__, output="picture .png, before and after, or table .csv of the weights")
    parser.add_argument("--weights", type=int, default=40, metavar="K", help="blendshapes; default: 40")
    parser.add_argument("--marks", type=int, default=300, metavar="N", help="marked points; default: 300")
    args = parser.parse_args(argv)
    if not 1 <= args.weights <= args.marks:
        raise command.ExampleError(f"--weights is {args.weights}, expected 1 to {args.marks} (--marks).")
    mean, basis, marks, _, truth = generated(args.weights, args.marks)
    pose, weights, summary = fit(mean, basis, marks, 0.002, device=args.device)
    print(f"{args.weights} blendshapes, {args.marks} marks")
    print(summary.brief_report())
    print(f"weights are off by {np.abs(weights - truth).max():.3g} at most")
    if args.output and args.output.suffix == ".png":
        fitted = np.asarray(SE3(pose).act(mean + np.einsum("k,kni->ni", weights, basis)))
        start = mean + marks.mean(axis=0) - mean.mean(axis=0)
        images.write(args.output, images.dots([[marks, start], [marks, fitted]]))
    elif args.output:
        command.write_table(args.output, ("weight",), [[value] for value in weights.tolist()])
    return pose, weights, summary


if __name__ == "__main__":
    command.run(main)
