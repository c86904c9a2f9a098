"""Vertices of any size on a device: those above fifteen components are solved in pieces."""

import numpy as np
import pytest
from examples_modules import face_fitting, own_types
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import DeviceLimitError
from graphopt.geometry import SE3
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.rewrite import Rewrite
from graphopt.problem.small_blocks import SMALL_BLOCKS, pieces_of

__all__ = ["own_types"]  # a fixture of this module


@pytest.mark.parametrize("num_weights", [16, pytest.param(40, marks=pytest.mark.slow)])
def test_a_face_of_many_weights(num_weights):
    """The same minimum as on the CPU, pose and weights."""
    shared_device("address")
    mean, basis, marks, _, _ = face_fitting.generated(num_weights, 60)
    expected = face_fitting.fit(mean, basis, marks, 0.002, device="cpu")
    found = face_fitting.fit(mean, basis, marks, 0.002, device="vulkan", precision="double")
    assert "cpu" not in found[2].device
    assert found[2].final_chi2 == pytest.approx(expected[2].final_chi2, rel=1e-6)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-3)


def mixed_problem():
    """Vertices of a pose and twenty numbers, which oplus cuts into these; with an own Jacobian."""
    Rig = graphopt.group_type("LbRig", world_T_rig=SE3, offsets=20)

    @graphopt.edge_type(vertices=(Rig, Rig), measurement_dim=4)
    def LbTie(first, second, data):
        """Between two of them."""
        moved = first.world_T_rig * second.offsets[..., 2:5]
        return np.stack([
            moved[..., 0] - data[..., 0], moved[..., 1] * second.offsets[..., 19] - data[..., 1],
            second.world_T_rig.storage[..., 2] - data[..., 2], first.offsets[..., 7] - data[..., 3],
        ], axis=-1)  # fmt: skip

    @graphopt.edge_type(vertices=(Rig,), residual_dim=26)
    def LbPrior(rig):
        """Keeps everything near the start."""
        return 0.3 * np.concatenate([rig.world_T_rig.log(), rig.offsets], axis=-1)

    rng = np.random.default_rng(0)
    graph = graphopt.Graph()
    start = rng.normal(0.0, 0.2, (3, 27))
    start[:, 3:7] = [0.0, 0.0, 0.0, 1.0]
    rigs = graph.add_array(Rig, start)
    graph.add_edges(LbTie, graphopt.pairwise(rigs), rng.normal(size=(2, 4)))
    graph.add_edges(LbPrior, (graphopt.sequential(rigs),))
    return graph, rigs


def test_pieces_follow_from_oplus():
    """A pose stays whole; numbers are cut anywhere."""
    _, rigs = mixed_problem()
    pieces = pieces_of(rigs.type, 15)
    assert [len(piece.tangent) for piece in pieces] == [15, 11]
    assert set(range(7)) <= set(pieces[0].storage) and set(range(6)) <= set(pieces[0].tangent)
    assert sorted(k for piece in pieces for k in piece.storage) == list(range(27))


def test_the_equations_are_the_same():
    """H, b of the pieces are those of the whole in another order; held components stay held."""
    graph, _ = mixed_problem()
    graph.hold([1], [3, 20])
    problem = Rewrite(graph, graph.select()).apply(FIXED_COMPONENTS)
    whole = graphopt.linearize(problem.graph)
    split = graphopt.linearize(problem.apply(SMALL_BLOCKS).graph)
    assert split.chi2 == pytest.approx(whole.chi2, rel=1e-13)
    assert split.H.shape == whole.H.shape and np.diff(split.offsets).max() <= 15
    np.testing.assert_allclose(np.sort(split.b), np.sort(whole.b), rtol=1e-11, atol=1e-13)
    a, b = (np.linalg.eigvalsh(system.H.toarray()) for system in (whole, split))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


GPU = [
    {"device": "vulkan", "precision": "double"},
    {"schedule": "blocks", "precision": "double"},
    {"precision": "mixed"},
]


@pytest.mark.parametrize("options", GPU)
def test_a_pose_with_numbers_on_the_device(options):
    """Estimates come back into the graph, also for the callback, however the device was named."""
    shared_device("address")
    expected, graph = mixed_problem()[0], mixed_problem()[0]
    for graph_ in (expected, graph):
        graph_.set_fixed([0])
        graph_.hold([1], [20])
    seen = []
    graphopt.optimize(expected, "lm", 6, device="cpu")
    summary = graphopt.optimize(graph, "lm", 6, callback=lambda _: seen.append(graph.chi2()), **options)
    assert not summary.device.startswith("cpu")
    assert graph.chi2() == pytest.approx(expected.chi2(), rel=1e-6)
    assert seen == pytest.approx([iteration.chi2 for iteration in summary.iterations], rel=1e-9)


def test_what_oplus_joins_cannot_be_cut():
    """Sixteen numbers on a sphere: the error says how large blocks may be."""

    @graphopt.vertex_type(tag="LB_SPHERE", tangent_dim=16, identity=(1.0,) + (0.0,) * 15)
    def LbSphere(x, delta):
        """Every number depends on all."""
        moved = x + delta
        return moved / np.sqrt((moved * moved).sum(axis=-1, keepdims=True))

    @graphopt.edge_type(vertices=(LbSphere,))
    def LbFirst(x):
        """Of the first number."""
        return x[..., 0]

    graph = graphopt.Graph()
    graph.add_edges(LbFirst, (graphopt.sequential(graph.add_array(LbSphere, np.eye(16)[:1])),))
    with pytest.raises(DeviceLimitError, match="expected 1 to 15"):
        graphopt.optimize(graph, device="vulkan")
