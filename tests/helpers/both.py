"""Run the same script with g2opy and with graphopt.g2o and compare what it returns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphopt.g2o as ours


def both(script: Any, *arguments: Any) -> tuple[Any, Any]:
    """(result with graphopt.g2o, result with g2opy)."""
    theirs = pytest.importorskip("g2opy")
    return script(ours, *arguments), script(theirs, *arguments)


def assert_same(
    actual: Any, expected: Any, *, rtol: float = 1e-9, atol: float = 1e-9, where: str = ""
) -> None:
    """Equal structure; numbers to rtol and atol."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_same(actual[key], value, rtol=rtol, atol=atol, where=f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), where
        for index, value in enumerate(expected):
            assert_same(actual[index], value, rtol=rtol, atol=atol, where=f"{where}[{index}]")
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=atol, err_msg=where)
    else:
        assert actual == expected, where


def same_as_g2opy(**tolerances: float) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test whose first argument is `graphopt.g2o`, then `g2opy`: what it returns is the same."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def compared(**arguments: Any) -> None:
            actual, expected = both(functools.partial(test, **arguments))
            assert_same(actual, expected, **tolerances)

        del compared.__wrapped__
        _, *others = inspect.signature(test).parameters.values()
        vars(compared)["__signature__"] = inspect.Signature(others)
        return compared

    return decorate


def rotation_of(vector: Any) -> np.ndarray:
    """(3, 3) rotation matrix of a rotation vector."""
    vector = np.asarray(vector, float)
    angle = np.linalg.norm(vector)
    if angle == 0.0:
        return np.eye(3)
    x, y, z = vector / angle
    hat = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * hat + (1.0 - np.cos(angle)) * hat @ hat


def isometry(g2o: Any, translation: Any, vector: Any = (0.0, 0.0, 0.0)) -> Any:
    """An Isometry3d in the one form that both modules take."""
    return g2o.Isometry3d(rotation_of(vector), np.reshape(np.asarray(translation, float), (3, 1)))


def optimizer_of(g2o: Any, algorithm: str = "Levenberg", linear: str = "Eigen", size: str = "X") -> Any:
    """An empty optimizer."""
    optimizer = g2o.SparseOptimizer()
    solver = getattr(g2o, f"BlockSolver{size}")(getattr(g2o, f"LinearSolver{linear}{size}")())
    optimizer.set_algorithm(getattr(g2o, f"OptimizationAlgorithm{algorithm}")(solver))
    return optimizer


def ring(g2o: Any, count: int = 8, **options: Any) -> Any:
    """A noisy ring of VertexSE3, the first fixed."""
    optimizer = optimizer_of(g2o, **options)
    random = np.random.default_rng(3)
    turn = np.array([0.0, 0.0, 2.0 * np.pi / count])
    for i in range(count):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        angle = i * turn[2]
        position = np.array([np.cos(angle), np.sin(angle), 0.0]) + random.normal(0.0, 0.05, 3)
        vertex.set_estimate(isometry(g2o, position, i * turn + random.normal(0.0, 0.05, 3)))
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    step = rotation_of(-0.5 * turn) @ np.array([0.0, 2.0 * np.sin(np.pi / count), 0.0])
    for i in range(count):
        edge = g2o.EdgeSE3()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex((i + 1) % count))
        edge.set_measurement(
            isometry(g2o, step + random.normal(0.0, 0.02, 3), turn + random.normal(0.0, 0.02, 3))
        )
        edge.set_information(np.diag([100.0, 100.0, 100.0, 400.0, 400.0, 400.0]))
        optimizer.add_edge(edge)
    return optimizer


def estimates(optimizer: Any) -> dict[int, Any]:
    """Id -> numbers of the estimate."""
    return {id: vertex.get_estimate_data() for id, vertex in sorted(optimizer.vertices().items())}
