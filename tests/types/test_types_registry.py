"""The registry and the decorators."""

import numpy as np
import pytest

import graphopt.types as types
from graphopt.errors import GraphError, ShapeError, TypeRegistryError
from graphopt.geometry import norm
from graphopt.types import registry
from graphopt.types.base import VariadicEdgeType, VertexType


def test_lookup_by_every_name():
    """A type is found by its class name, its tag and all aliases, and a type finds itself."""
    for kind in types.BUILTIN_TYPES:
        assert {registry.find(name) for name in registry.names_of(kind)} == {kind}
    assert registry.vertex_type("VERTEX_XYZ") is registry.vertex_type("VertexPointXYZ")
    assert registry.edge_type(types.slam3d.EdgeSE3) is types.slam3d.EdgeSE3
    assert registry.find("ROBOTLASER1") is None


@pytest.mark.parametrize("tag", ["VERTEX2", "EDGE2", "VERTEX3", "EDGE3", "VERTEX_POINTXYZ", "EDGE_SE3_XYZ"])
def test_tags_of_files_in_the_wild(tag):
    """Tags that g2o does not register but files hold."""
    assert registry.find(tag) is not None


def test_unknown_name_suggests():
    """The error names the kind and what is close."""
    with pytest.raises(
        TypeRegistryError, match=r"no vertex type is called 'VERTEX_SE33'.*Did you mean VERTEX_SE"
    ):
        registry.vertex_type("VERTEX_SE33")
    with pytest.raises(TypeRegistryError, match="no edge type"):
        registry.edge_type("VERTEX_SE2")


def test_types_are_consistent():
    """Identity and layouts fit the declared sizes; no two layouts of a type have the same length."""
    for kind in types.BUILTIN_TYPES:
        assert kind.doc, kind
        assert kind.describe()["tag"] == kind.tag
        if isinstance(kind, VariadicEdgeType):
            kind = kind.instantiate(3)
        counts = kind.file.token_counts
        assert len(set(counts)) == len(counts), kind
        if isinstance(kind, VertexType):
            identity = np.array(kind.identity)
            assert identity.shape == (kind.storage_dim,)
            np.testing.assert_array_equal(kind.oplus(identity, np.zeros(kind.tangent_dim)), identity)


def test_oplus_of_zero_is_the_estimate():
    """oplus(x, 0) is x to the bit at random estimates: derivatives at zero belong to the stored numbers."""
    rng = np.random.default_rng(0)
    for kind in (kind for kind in types.BUILTIN_TYPES if isinstance(kind, VertexType)):
        x = kind.oplus(np.array(kind.identity), rng.normal(size=kind.tangent_dim))
        np.testing.assert_array_equal(kind.oplus(x, np.zeros(kind.tangent_dim)), x, err_msg=kind.name)


def test_variadic_edges_are_cached():
    """The same number of vertices gives the same type object; fewer than two are refused."""
    lots = registry.edge_type("EDGE_SE2_LOTSOFXY")
    assert lots.instantiate(5) is lots.instantiate(5)
    assert lots.instantiate(5).residual_dim == 8
    assert lots.instantiate(5).tag == lots.tag
    with pytest.raises(GraphError, match="needs at least 2"):
        lots.instantiate(1)


def test_user_types(own_types):
    """Two decorators define a vertex and an edge; they are registered, evaluate, and have a file layout."""

    @types.vertex_type(tag="VERTEX_TEST_BIAS", tangent_dim=2)
    def VertexTestBias(bias, delta):
        """Bias of a sensor."""
        return bias + delta

    @types.edge_type(tag="EDGE_TEST_RANGE", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=1)
    def EdgeTestRange(pose, point, distance):
        """Distance of a landmark."""
        return norm(point - pose.translation) - distance

    assert registry.vertex_type("VERTEX_TEST_BIAS") is VertexTestBias
    assert VertexTestBias.storage_dim == 2
    assert EdgeTestRange.residual_dim == 1
    assert EdgeTestRange.doc == "Distance of a landmark."
    assert EdgeTestRange.file.num_tokens == 2
    pose, point, measured = np.zeros((4, 3)), np.full((4, 2), [3.0, 4.0]), np.full((4, 1), 2.0)
    np.testing.assert_array_equal(EdgeTestRange.error((pose, point), (), measured), np.full((4, 1), 3.0))
    np.testing.assert_array_equal(EdgeTestRange.error((pose[0], point[0]), (), measured[0]), [3.0])


def test_user_edge_with_parameters(own_types):
    """Parameters come between the vertices and the measurement, wrapped."""

    @types.parameter_type(tag="PARAMS_TEST_SCALE", storage_dim=1, identity=(1.0,))
    def ParameterTestScale(storage):
        """Scale of a sensor."""
        return storage[..., 0]

    @types.edge_type(
        tag="EDGE_TEST_SCALED",
        vertices=("VERTEX_XY",),
        parameters=("PARAMS_TEST_SCALE",),
        measurement_dim=2,
        residual_dim=2,
    )
    def EdgeTestScaled(point, scale, measured):
        """Scaled position."""
        return scale * point - measured

    error = EdgeTestScaled.error((np.array([1.0, 2.0]),), (np.array([3.0]),), np.array([1.0, 1.0]))
    np.testing.assert_array_equal(error, [2.0, 5.0])
    assert EdgeTestScaled.parameters == (ParameterTestScale,)


def test_duplicate_tags_are_refused(own_types):
    """The error says which name is taken by which type and how to free it; nothing is registered."""
    with pytest.raises(TypeRegistryError, match=r"'VERTEX_XYZ' is taken by <VertexType VertexPointXYZ"):
        types.vertex_type(tag="VERTEX_NEW", tangent_dim=1, aliases=("VERTEX_XYZ",), name="New")(
            lambda x, d: x + d
        )
    assert registry.find("VERTEX_NEW") is None


@pytest.mark.parametrize(
    ("options", "function", "message"),
    [
        ({"residual_dim": 3}, lambda p, z: p - z, "has 2 numbers, expected residual_dim = 3"),
        ({}, lambda p: p, "takes its vertices, then its parameters, then the measurement"),
        ({}, lambda p, z: p - z[:1] - np.zeros(3), "could not be broadcast"),
        ({}, lambda p, z: np.outer(p, z), r"returned shape \(2, 2\), expected \(residual_dim,\)"),
    ],
)
def test_wrong_edge_functions_are_refused(options, function, message, own_types):
    """Dimensions and arguments are checked when the type is defined."""
    with pytest.raises(ShapeError, match=message):
        types.edge_type(
            tag="EDGE_BAD", vertices=("VERTEX_XY",), measurement_dim=2, name="EdgeBad", **options
        )(function)
    assert registry.find("EDGE_BAD") is None


def test_wrong_vertex_functions_are_refused(own_types):
    """An oplus of the wrong length says that storage_dim is missing."""
    with pytest.raises(
        ShapeError, match=r"returned shape \(3,\), expected \(storage_dim,\) = \(2,\).*storage_dim"
    ):
        types.vertex_type(tag="VERTEX_BAD", tangent_dim=2, name="Bad")(lambda x, d: np.zeros(3))
