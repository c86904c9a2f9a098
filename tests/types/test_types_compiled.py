"""All edge types through the compiler: the same numbers as floats, derivatives as finite differences."""

import numpy as np
import pytest

from graphopt.codegen.program import build_program
from graphopt.codegen.trace import trace_edge, trace_oplus
from graphopt.symbolic import as_exprs
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType

N = 40
NOT_THE_DERIVATIVE = {"EDGE_SE2_POINTXY_OFFSET"}
"""g2o's Jacobian of these is not the derivative of its error; the oracle's tests compare it."""

EDGES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]
VERTICES = [kind for kind in BUILTIN_TYPES if isinstance(kind, VertexType)]

edges = pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.tag)
vertices = pytest.mark.parametrize("kind", VERTICES, ids=lambda kind: kind.tag)


def random_case(kind, seed=0):
    """Batches of estimates, parameters and measurements."""
    rng = np.random.default_rng(seed)
    estimates = [
        vertex.oplus(
            np.tile(np.array(vertex.identity), (N, 1)), 0.4 * rng.normal(size=(N, vertex.tangent_dim))
        )
        for vertex in kind.vertices
    ]
    constants = []
    for parameter in kind.parameters:
        values = np.tile(np.array(parameter.identity), (N, 1)) + rng.uniform(
            0.1, 0.5, (N, parameter.storage_dim)
        )
        if parameter.storage_dim >= 7:
            values[:, 3:7] /= np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
        constants.append(values)
    measurement = rng.normal(size=(N, kind.measurement_dim))
    name = getattr(kind.wrap_measurement, "__name__", "")
    if name in ("SE3", "Sim3"):
        measurement[:, 3:7] /= np.linalg.norm(measurement[:, 3:7], axis=-1, keepdims=True)
    if name == "Sim3":
        measurement[:, 7] = np.exp(0.3 * measurement[:, 7])
    return estimates, constants, measurement


def finite_differences(kind, estimates, constants, measurement, vertex, step=1e-6):
    """Central differences of the float residual through oplus."""
    columns = []
    for direction in np.eye(kind.vertices[vertex].tangent_dim):
        ends = []
        for sign in (1.0, -1.0):
            moved = list(estimates)
            delta = np.broadcast_to(sign * step * direction, (N, len(direction)))
            moved[vertex] = kind.vertices[vertex].oplus(moved[vertex], delta)
            ends.append(kind.error(tuple(moved), tuple(constants), measurement))
        columns.append((ends[0] - ends[1]) / (2.0 * step))
    return np.stack(columns, axis=-1)


@edges
def test_compiled_residual_and_jacobians(kind):
    """The program gives the float residual, and its Jacobians are the derivative through oplus."""
    if isinstance(kind, VariadicEdgeType):
        kind = kind.instantiate(4)
    traced = trace_edge(kind)
    outputs = [*traced.residual, *(entry for block in traced.jacobians() for entry in block.ravel())]
    program = build_program(kind.name, traced.inputs, outputs)
    estimates, constants, measurement = random_case(kind)
    values = program.interpret(np.concatenate([*estimates, *constants, measurement], axis=-1))
    residual = kind.error(tuple(estimates), tuple(constants), measurement)
    size = 1.0 + np.abs(residual).max(axis=-1, keepdims=True)
    np.testing.assert_allclose(values[:, : kind.residual_dim] / size, residual / size, atol=1e-13)
    if kind.tag in NOT_THE_DERIVATIVE:
        return
    start = kind.residual_dim
    for i, vertex in enumerate(kind.vertices):
        count = kind.residual_dim * vertex.tangent_dim
        block = values[:, start : start + count].reshape(N, kind.residual_dim, vertex.tangent_dim)
        start += count
        expected = finite_differences(kind, estimates, constants, measurement, i)
        scale = (1.0 + np.abs(block).max(axis=(1, 2))) * size[:, 0]
        worst = np.abs(block - expected).max(axis=(1, 2)) / scale
        # a few random points lie where the central difference itself is poor (a point beside the camera)
        assert np.sort(worst)[-4] < 2e-8, kind.name
        assert np.isfinite(block).all()


@vertices
def test_compiled_oplus(kind):
    """The program of oplus gives the float update."""
    storage, delta, moved = trace_oplus(kind)
    program = build_program(kind.name, [*as_exprs(storage), *as_exprs(delta)], moved)
    rng = np.random.default_rng(1)
    x = kind.oplus(np.tile(np.array(kind.identity), (N, 1)), 0.4 * rng.normal(size=(N, kind.tangent_dim)))
    d = 0.7 * rng.normal(size=(N, kind.tangent_dim))
    np.testing.assert_allclose(
        program.interpret(np.concatenate([x, d], axis=-1)), kind.oplus(x, d), atol=1e-13
    )


@edges
def test_derivatives_are_finite_where_everything_coincides(kind):
    """All poses at the identity, a measurement of no motion: no division by zero in any derivative."""
    if isinstance(kind, VariadicEdgeType):
        kind = kind.instantiate(3)
    traced = trace_edge(kind)
    outputs = [*traced.residual, *(entry for block in traced.jacobians() for entry in block.ravel())]
    program = build_program(kind.name, traced.inputs, outputs)
    point = np.array([0.1, 0.2, -1.0]) if "BAL" in kind.tag else np.array([0.1, 0.2, 1.0])
    points = {"VertexPointXYZ": point, "VertexPointXY": np.array([0.3, 0.1])}
    states = [points.get(vertex.name, np.array(vertex.identity)) for vertex in kind.vertices]
    if kind.name.endswith("OnlyPose"):
        states[0][2] = 1.0  # the default point is the origin
    constants = [np.array(parameter.identity) for parameter in kind.parameters]
    measurement = np.zeros(kind.measurement_dim)
    identity = getattr(kind.wrap_measurement, "identity_storage", None)
    if identity is not None:
        measurement = np.array(identity)
    values = program.interpret(np.concatenate([*states, *constants, measurement])[None])
    assert np.isfinite(values).all()
