"""File layouts of all types."""

import numpy as np
import pytest

from graphopt.geometry import SE3, Sim3
from graphopt.types import BUILTIN_TYPES, registry, sba, sim3, slam2d, slam3d, toro
from graphopt.types.base import EdgeType, ParameterType, VariadicEdgeType, VertexType
from graphopt.types.icp import EdgeVVGicp, plane_information

STATES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (VertexType, ParameterType))]
EDGES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]

states = pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.tag)
edges = pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.tag)


def stored(kind, n=5, seed=0):
    """Estimates or parameter values with unit quaternions, every number different from its default."""
    rng = np.random.default_rng(seed)
    values = np.array(kind.identity) + rng.uniform(0.1, 0.4, (n, kind.storage_dim))
    if kind.storage_dim in (7, 8, 11, 12, 17):
        values[:, 3:7] /= np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
    if kind.name == "VertexGravityDirection":
        values /= np.linalg.norm(values, axis=-1, keepdims=True)
    return values


def measured(kind, n=5, seed=0):
    """Measurements and informations of an edge type."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.1, 0.4, (n, kind.measurement_dim))
    if getattr(kind.wrap_measurement, "__name__", "") in ("SE3", "Sim3"):
        values[:, 3:7] /= np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
    root = rng.normal(size=(n, kind.residual_dim, kind.residual_dim))
    return values, root @ np.swapaxes(root, -1, -2)


@states
def test_state_layouts_invert_themselves(kind):
    """Tokens -> numbers -> tokens is the identity in every layout; some layout loses nothing."""
    values = stored(kind)
    layouts = [kind.file, *kind.file.alternatives, *kind.alias_files.values()]
    for layout in layouts:
        tokens = layout.encode(values)
        assert tokens.shape == (5, layout.num_tokens)
        again = layout.decode(tokens)
        assert again.shape == values.shape
        np.testing.assert_allclose(layout.encode(again), tokens, rtol=1e-12, atol=1e-14)
    best = kind.file.lossless(values)
    np.testing.assert_allclose(best.decode(best.encode(values)), values, rtol=1e-12)


@edges
def test_edge_layouts_invert_themselves(kind):
    """Tokens -> numbers -> tokens is the identity in every layout; some layout loses nothing."""
    if isinstance(kind, VariadicEdgeType):
        kind = kind.instantiate(3)
    values, information = measured(kind)
    for layout in (kind.file, *kind.file.alternatives, *kind.alias_files.values()):
        tokens = layout.encode(values, information)
        assert tokens.shape == (5, layout.num_tokens)
        again = layout.decode(tokens)
        assert again[0].shape == values.shape
        assert again[1].shape == information.shape
        np.testing.assert_allclose(layout.encode(*again), tokens, rtol=1e-12, atol=1e-14)
    best = kind.file.lossless(values, information)
    for got, expected in zip(
        best.decode(best.encode(values, information)), (values, information), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@edges
def test_line_without_information(kind):
    """A line that ends after the measurement has the identity as information (GICP: that of its plane)."""
    if isinstance(kind, VariadicEdgeType) or kind is EdgeVVGicp:
        return
    short = min(kind.file.token_counts)
    layout = kind.file.for_tokens(short)
    _, information = layout.decode(np.full((2, short), 0.5))
    np.testing.assert_array_equal(information, np.broadcast_to(np.eye(kind.residual_dim), information.shape))


def test_unknown_token_count():
    """for_tokens returns None where no layout fits."""
    assert slam2d.EdgeSE2.file.for_tokens(9) is slam2d.EdgeSE2.file
    assert slam2d.EdgeSE2.file.for_tokens(8) is None
    assert slam2d.VertexSE2.file.for_tokens(4) is None


def test_g2o_layout_is_preferred():
    """Writing chooses g2o's layout where the constants have their defaults, else the longer one."""
    kind = sba.EdgeSE3ProjectXYZ
    information = np.eye(2)[None]
    plain = np.array([[3.0, 4.0, 1.0, 1.0, 0.5, 0.5]])
    assert kind.file.lossless(plain, information) is kind.file
    assert kind.file.num_tokens == 5
    longer = kind.file.lossless(plain + 1.0, information)
    assert longer.num_tokens == 9
    np.testing.assert_array_equal(
        longer.encode(plain + 1.0, information), [[4.0, 5.0, 1.0, 0.0, 1.0, 2.0, 2.0, 1.5, 1.5]]
    )


def test_quaternions_of_files():
    """Quaternions far from unit length are scaled, zero is the identity; few digits stay, as in g2o 2.x."""
    tokens = np.array([[1, 2, 3, 0, 0, 0.6, -0.9], [0] * 7, [1, 2, 3, 0, 0, 0.6, 0.8001]], dtype=float)
    values = slam3d.VertexSE3.file.decode(tokens)
    np.testing.assert_allclose(np.linalg.norm(values[:2, 3:], axis=-1), 1.0)
    np.testing.assert_array_equal(values[1], [0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(values[2], tokens[2])
    np.testing.assert_array_equal(slam3d.VertexSE3.file.encode(values), values)
    similarity = sim3.VertexSim3Expmap.file.decode(np.array([[0, 0, 0.6, 0.8001, 1, 2, 3, 1.5]]))
    np.testing.assert_allclose(np.linalg.norm(similarity[:, 3:7]), 1.0, rtol=1e-15)


def test_toro_edge_in_the_plane():
    """EDGE2 has the information in the order xx xy yy tt xt yt."""
    tokens = np.array([[1.0, 2.0, 0.3, 11.0, 12.0, 22.0, 33.0, 13.0, 23.0]])
    measurement, information = slam2d.EdgeSE2.file_for("EDGE2").decode(tokens)
    np.testing.assert_array_equal(measurement, [[1.0, 2.0, 0.3]])
    np.testing.assert_array_equal(information, [[[11.0, 12.0, 13.0], [12.0, 22.0, 23.0], [13.0, 23.0, 33.0]]])


def test_toro_pose_in_space():
    """VERTEX3 holds roll, pitch, yaw: R = Rz(yaw) Ry(pitch) Rx(roll)."""
    tokens = np.random.default_rng(0).uniform(-1.5, 1.5, (20, 6))
    roll, pitch, yaw = tokens[:, 3:].T
    zero, one = np.zeros(20), np.ones(20)

    def rotation(rows):
        return np.moveaxis(np.array(rows), -1, 0)

    rx = rotation(
        [[one, zero, zero], [zero, np.cos(roll), -np.sin(roll)], [zero, np.sin(roll), np.cos(roll)]]
    )
    ry = rotation(
        [[np.cos(pitch), zero, np.sin(pitch)], [zero, one, zero], [-np.sin(pitch), zero, np.cos(pitch)]]
    )
    rz = rotation([[np.cos(yaw), -np.sin(yaw), zero], [np.sin(yaw), np.cos(yaw), zero], [zero, zero, one]])
    values = toro.VERTEX3.decode(tokens)
    np.testing.assert_allclose(SE3(values).rotation.to_matrix(), rz @ ry @ rx, atol=1e-14)
    np.testing.assert_allclose(toro.VERTEX3.encode(values), tokens, atol=1e-12)


def test_toro_information_in_space():
    """EDGE3's information of small angles fits g2o's residual: chi2 agrees to first order."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    angles = root @ root.T
    small = 1e-6 * rng.normal(size=6)
    tokens = np.concatenate([np.zeros(6), angles[np.triu_indices(6)]])[None]
    measurement, information = slam3d.EdgeSE3.file_for("EDGE3").decode(tokens)
    second = toro.pose_from_euler(small[None])
    error = slam3d.EdgeSE3.error((measurement, second), (), measurement)
    np.testing.assert_allclose(error @ information[0] @ error.T, small @ angles @ small, rtol=1e-5)


def test_old_sim3_layouts():
    """C++ g2o writes the logarithm of the inverse, and the first camera's intrinsics."""
    rng = np.random.default_rng(2)
    tokens = rng.uniform(-0.5, 0.5, (6, 11))
    values = sim3.VertexSim3Expmap.file.for_tokens(11).decode(tokens)
    np.testing.assert_allclose(Sim3(values[:, :8]).inverse().log(), tokens[:, :7], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(values[:, 8:12], tokens[:, 7:])
    line = np.concatenate([tokens[:, :7], np.tile(np.eye(7)[np.triu_indices(7)], (6, 1))], axis=-1)
    measurement, information = sim3.EdgeSim3.file.for_tokens(35).decode(line)
    np.testing.assert_allclose(Sim3(measurement).inverse().log(), tokens[:, :7], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(information[0], np.eye(7))


def test_old_expmap_layout_is_the_inverse():
    """C++ g2o writes poses and measurements as their inverse."""
    values = stored(sba.VertexSE3Expmap)
    pose = SE3(sba.INVERSE_FILE.decode(values))
    tokens = np.concatenate([values, np.zeros((5, 21))], axis=-1)
    measurement, _ = sba.INVERSE_EDGE_FILE.decode(tokens)
    np.testing.assert_array_equal(measurement, pose.storage)
    np.testing.assert_allclose(
        (pose * SE3(values)).to_matrix(), np.broadcast_to(np.eye(4), (5, 4, 4)), atol=1e-15
    )


def test_old_gicp_information():
    """Without an information, GICP weighs along the normal with 1 and across it with 0.01."""
    normals = np.random.default_rng(3).normal(size=(10, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    information = plane_information(normals)
    np.testing.assert_allclose((information @ normals[..., None])[..., 0], normals, atol=1e-14)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(information), np.tile([0.01, 0.01, 1.0], (10, 1)), atol=1e-14
    )
    tokens = np.concatenate([np.zeros((10, 3)), normals, np.zeros((10, 6))], axis=-1)
    np.testing.assert_array_equal(EdgeVVGicp.file.for_tokens(12).decode(tokens)[1], information)


def test_lots_of_points_layouts():
    """g2o 2.x writes two counts; g2o 1.x, after `||`, the number of points."""
    kind = registry.edge_type("EDGE_SE2_LOTSOFXY").instantiate(3)
    information = np.diag([1.0, 2.0, 3.0, 4.0])[None]
    measurement = np.array([[5.0, 6.0, 7.0, 8.0]])
    triangle = [1.0, 0, 0, 0, 2, 0, 0, 3, 0, 4]
    np.testing.assert_array_equal(
        kind.file.encode(measurement, information), [[4, 5, 6, 7, 8, 10, *triangle]]
    )
    old = kind.file.for_tokens(15)
    np.testing.assert_array_equal(old.encode(measurement, information), [[2, 5, 6, 7, 8, *triangle]])
