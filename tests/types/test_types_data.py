"""Residuals on real data: costs that others computed."""

import lzma
import math

import numpy as np
import pytest

from graphopt.types import bal, registry, slam3d
from graphopt.types.base import EdgeType


def read_text(path):
    """Text of a file that may be compressed."""
    compressed = path.with_name(path.name + ".xz")
    return path.read_text() if path.exists() else lzma.open(compressed, "rt").read()


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    ["tinyGrid3D.g2o", "smallGrid3D.g2o", "intel.g2o", "MIT.g2o", "ring.g2o", "parking-garage.g2o"],
)
def test_initial_chi2_of_pose_graphs(name, shared_data, reference_runs):
    """The chi2 of a file's estimates is g2o's, to what its matrices of unnormalised quaternions differ by."""
    estimates, edges = {}, {}
    for text in read_text(shared_data / "posegraph" / name).splitlines():
        tag, *tokens = text.split() or [""]
        kind = registry.find(tag)
        if isinstance(kind, EdgeType):
            edges.setdefault(kind, []).append(tokens)
        elif kind is not None:
            estimates[int(tokens[0])] = kind.file.decode(np.array([tokens[1:]], dtype=float))[0]
    chi2 = 0.0
    for kind, rows in edges.items():
        arity = len(kind.vertices)
        ids = np.array([row[:arity] for row in rows], dtype=int)
        measurement, information = kind.file.decode(np.array([row[arity:] for row in rows], dtype=float))
        states = tuple(np.array([estimates[i] for i in column]) for column in ids.T)
        error = kind.error(states, (), measurement)
        chi2 += np.einsum("ni,nij,nj->", error, information, error)
    if name in reference_runs:
        assert chi2 == pytest.approx(reference_runs[name]["lm"]["initial_chi2"], rel=1e-8)
    else:
        assert chi2 == pytest.approx(16720.01923472129, rel=1e-8)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "half_cost"), [("dubrovnik-3-7-pre.txt", 2764.22), ("problem-49-7776-pre.txt", 850912.5)]
)
def test_initial_cost_of_bundle_adjustment(name, half_cost, shared_data):
    """Half the sum of squares of the BAL residuals is what the data's index gives (Ceres' convention)."""
    numbers = read_text(shared_data / "bal" / name).split()
    num_cameras, num_points, num_observations = map(int, numbers[:3])
    observations = np.array(numbers[3 : 3 + 4 * num_observations], dtype=float).reshape(-1, 4)
    rest = np.array(numbers[3 + 4 * num_observations :], dtype=float)
    cameras, points = rest[: 9 * num_cameras].reshape(-1, 9), rest[9 * num_cameras :].reshape(num_points, 3)
    states = cameras[observations[:, 0].astype(int)], points[observations[:, 1].astype(int)]
    error = bal.EdgeObservationBAL.error(states, (), observations[:, 2:])
    assert 0.5 * np.sum(error * error) == pytest.approx(half_cost, rel=1e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 9.9e-5, 1.1e-4, 0.5, 3.0, 7.0])
def test_bal_projection_written_out(angle):
    """BAL's formula for one point, with the rotation from a quaternion."""
    axis = np.array([0.6, -0.48, 0.64])
    camera = np.concatenate([angle * axis, [0.1, -0.2, -3.0], [500.0, -0.1, 0.02]])
    point = np.array([0.4, 0.7, -0.3])
    half = 0.5 * angle
    q = np.append(math.sin(half) * axis, math.cos(half))
    x, y, z = slam3d.SE3(np.concatenate([camera[3:6], q])) * point
    u, v = -x / z, -y / z
    r2 = u * u + v * v
    factor = 500.0 * (1 - 0.1 * r2 + 0.02 * r2 * r2)
    error = bal.EdgeObservationBAL.error((camera, point), (), np.array([1.0, 2.0]))
    np.testing.assert_allclose(error, [factor * u - 1.0, factor * v - 2.0], rtol=1e-12)
