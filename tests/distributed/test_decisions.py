"""What an algorithm decides by, it decides on all ranks as on one: products over ranks, damping, gauge."""

import numpy as np
import pytest
from rank_programs import on_all

import graphopt
from graphopt.distributed.communicator import run_as_threads
from graphopt.distributed.vectors import rank_vector
from graphopt.geometry import SE3
from graphopt.linear.vectors import dot, norm

KEPT = 3
WHOLE = np.random.default_rng(0).normal(size=(2, 8))  # two vectors: three kept entries, then 2, 0 and 3


def of_rank(comm, row):
    """This rank's part of one of `WHOLE`."""
    first, last = [(3, 5), (5, 5), (5, 8)][comm.rank]
    vector = np.concatenate([WHOLE[row, :KEPT], WHOLE[row, first:last]])
    return rank_vector(vector, comm, KEPT)


def numbers(comm):
    """All that goes over the ranks."""
    a, b = of_rank(comm, 0), of_rank(comm, 1)
    return [dot(a, b), norm(a), a @ b, a.sum(), a.min(), a.max(), (a > 0.0).any(), (a > -9.0).all()]


def test_products_and_extremes_are_those_of_the_whole_vector():
    """The same bits on every rank."""
    a, b = WHOLE
    expected = [dot(a, b), norm(a), dot(a, b), a.sum(), a.min(), a.max(), True, True]
    found = run_as_threads(3, numbers)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(found[0], expected, rtol=1e-14)


def seen_landmarks(num_parts=1):
    """Poses in chains that see landmarks from shifted sensors; nothing is fixed, ids in no order."""
    rng = np.random.default_rng(4)
    graph = graphopt.Graph()
    ids = rng.permutation(5000)[: 60 * num_parts].tolist()
    graph.add_parameters("PARAMS_SE3OFFSET", [7], [[0.1, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0]])
    for _ in range(num_parts):
        twists = np.concatenate([rng.normal(0.0, 3.0, (15, 3)), rng.normal(0.0, 0.5, (15, 3))], axis=1)
        poses = [SE3.exp(twist) for twist in twists]
        points, names = rng.normal(0.0, 5.0, (40, 3)), [ids.pop() for _ in range(55)]
        started = [np.asarray((pose * SE3.exp(rng.normal(0.0, 1.0, 6))).storage) for pose in poses]
        graph.add_vertices("VERTEX_TRACKXYZ", names[15:], points + rng.normal(0.0, 3.0, (40, 3)))
        graph.add_vertices("VERTEX_SE3:QUAT", names[:15], started)
        for first in range(14):
            z = poses[first].inverse() * poses[first + 1] * SE3.exp(rng.normal(0.0, 0.02, 6))
            graph.add_edges("EDGE_SE3:QUAT", [names[first : first + 2]], [np.asarray(z.storage)])
        offset = SE3(np.array([0.1, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0]))
        for number in range(40):
            for pose in rng.choice(15, 3, replace=False).tolist():
                z = np.asarray((poses[pose] * offset).inverse().act(points[number]))
                pair = [names[pose], names[15 + number]]
                graph.add_edges("EDGE_SE3_TRACKXYZ", [pair], [z + rng.normal(0.0, 0.02, 3)], parameters=[[7]])
    for vertices in graph.vertex_sets:
        vertices.marginalized[:] = vertices.type.role == "point"
    return graph


RULES = {
    "lm": graphopt.LevenbergMarquardtOptions(max_iterations=8),
    "dogleg": graphopt.DoglegOptions(max_iterations=8, initial_delta=2.0),
}


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize("device", ["cpu,cpu", "cpu,cpu,cpu"])
def test_every_decision_is_that_of_one_rank(method, device):
    """Damping, trials and chi2 of each iteration: gains of steps are between those that change neither."""
    options = {"method": method, "options": RULES[method]}
    iterated = {"linear_solver": "pcg", "pcg_tolerance": 1e-26}
    found = on_all(seen_landmarks(), None, device=device, **options, **iterated)
    expected = graphopt.optimize(seen_landmarks(), device="cpu", linear_solver="cholesky", **options)
    for name in ("chi2", "lambda_", "trials"):
        ours, theirs = (
            np.array([getattr(iteration, name) for iteration in summary.iterations], float)
            for summary in (found, expected)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    assert found.termination == expected.termination
