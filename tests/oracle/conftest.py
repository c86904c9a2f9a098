"""The oracle: g2o itself, through its official Python binding, and random graphs of one edge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.types.base import EdgeType, VariadicEdgeType


@dataclass
class OneEdge:
    """Stored numbers of one edge with its vertices and parameters, as a file would give them."""

    kind: EdgeType
    variadic: bool
    estimates: list[np.ndarray]
    parameters: list[np.ndarray]
    measurement: np.ndarray
    information: np.ndarray

    def error(self, estimates: list[np.ndarray] | None = None) -> np.ndarray:
        """Our residual."""
        return self.kind.error(tuple(estimates or self.estimates), tuple(self.parameters), self.measurement)

    def chi2(self) -> float:
        """Our chi2."""
        e = self.error()
        return float(e @ self.information @ e)

    def text(self) -> str:
        """Write the lines of a .g2o file with 17 digits."""
        lines = []
        for number, (kind, p) in enumerate(zip(self.kind.parameters, self.parameters, strict=True)):
            lines.append(line(kind.tag, [number], kind.file.encode(p[None])[0]))
        for number, (kind, x) in enumerate(zip(self.kind.vertices, self.estimates, strict=True)):
            lines.append(line(kind.tag, [number], kind.file.encode(x[None])[0]))
        ids = list(range(len(self.estimates)))
        ids = [len(ids), *ids] if self.variadic else ids + list(range(len(self.parameters)))
        tokens = self.kind.file.encode(self.measurement[None], self.information[None])[0]
        lines.append(line(self.kind.tag, ids, tokens))
        return "\n".join(lines) + "\n"

    def numeric_jacobian(self, vertex: int, step: float = 1e-6) -> np.ndarray:
        """Central differences of our residual through our oplus."""
        kind, columns = self.kind.vertices[vertex], []
        for direction in np.eye(kind.tangent_dim):
            values = []
            for sign in (1.0, -1.0):
                moved = list(self.estimates)
                moved[vertex] = kind.oplus(moved[vertex], sign * step * direction)
                values.append(self.error(moved))
            columns.append((values[0] - values[1]) / (2.0 * step))
        return np.stack(columns, axis=-1)


def line(tag: str, ids: list[int], tokens: np.ndarray) -> str:
    """One line; whole numbers without a point, for counts."""
    values = (str(int(t)) if float(t).is_integer() else repr(float(t)) for t in tokens)
    return " ".join([tag, *map(str, ids), *values])


def random_pose(rng: np.random.Generator) -> np.ndarray:
    """Draw a translation and a unit quaternion of any sign."""
    q = rng.normal(size=4)
    return np.concatenate([rng.normal(size=3), q / np.linalg.norm(q)])


def random_estimate(kind: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw an estimate around the identity, as a file would give it."""
    x = kind.oplus(np.array(kind.identity), 0.4 * rng.normal(size=kind.tangent_dim))
    return kind.file.decode(kind.file.encode(x[None]))[0]


def random_parameter(kind: Any, rng: np.random.Generator) -> np.ndarray:
    """Values of a parameter."""
    if kind.storage_dim == 7:
        return random_pose(rng)
    if kind.storage_dim == 11:
        return np.concatenate([random_pose(rng), rng.uniform(0.5, 2.0, 4)])
    return np.array(kind.identity) + rng.uniform(0.1, 0.9, kind.storage_dim)


def random_measurement(kind: EdgeType, rng: np.random.Generator) -> np.ndarray:
    """Values of a measurement."""
    name = getattr(kind.wrap_measurement, "__name__", "")
    if name == "SE3":
        return random_pose(rng)
    if name == "Sim3":
        return np.append(random_pose(rng), np.exp(0.3 * rng.normal()))
    return rng.normal(size=kind.measurement_dim)


def random_edge(kind: EdgeType | VariadicEdgeType, seed: int, num_vertices: int = 4) -> OneEdge:
    """One edge with random values, exactly as reading its own file gives them."""
    rng = np.random.default_rng(seed)
    variadic = isinstance(kind, VariadicEdgeType)
    edge = kind.instantiate(num_vertices) if variadic else kind
    estimates = [random_estimate(vertex, rng) for vertex in edge.vertices]
    parameters = [random_parameter(parameter, rng) for parameter in edge.parameters]
    root = rng.normal(size=(edge.residual_dim, edge.residual_dim))
    information = root @ root.T + np.eye(edge.residual_dim)
    measurement = random_measurement(edge, rng)
    tokens = edge.file.encode(measurement[None], information[None])
    measurement, information = (array[0] for array in edge.file.decode(tokens))
    parameters = [
        k.file.decode(k.file.encode(p[None]))[0] for k, p in zip(edge.parameters, parameters, strict=True)
    ]
    return OneEdge(edge, variadic, estimates, parameters, measurement, information)


@pytest.fixture(scope="session")
def g2o() -> Any:
    """g2opy; tests that use it are skipped where it cannot be imported."""
    return pytest.importorskip("g2opy")


@pytest.fixture(scope="session")
def make_edge() -> Any:
    """random_edge(kind, seed)."""
    return random_edge


@pytest.fixture(scope="session")
def g2o_tags(g2o: Any) -> frozenset[str]:
    """Tags that g2o registers, without its caches."""
    return frozenset(tag for tag in g2o.Factory.instance().known_types() if not tag.startswith("CACHE_"))


@pytest.fixture
def load(g2o: Any, tmp_path: Path) -> Any:
    """Let g2o read a text, and return its optimizer with errors computed."""

    def read(text: str) -> Any:
        path = tmp_path / "graph.g2o"
        path.write_text(text)
        optimizer = g2o.SparseOptimizer()
        assert optimizer.load(str(path))
        optimizer.initialize_optimization()
        optimizer.compute_active_errors()
        return optimizer

    return read


@pytest.fixture(scope="session")
def call() -> Any:
    """Value of an attribute that the binding has as a method or as a property."""
    return lambda attribute: attribute() if callable(attribute) else attribute
