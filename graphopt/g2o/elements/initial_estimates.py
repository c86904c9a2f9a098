"""Start values from measurements: what one edge says about a vertex when its other vertices are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.errors import GraphError


def initial_estimate_cost(edge: Any, known: Iterable[Any], to: Any) -> float:
    """1 if `initial_estimate` can set `to` from `known`, else -1."""
    given = set(known)
    slot = edge.vertices().index(to)
    others = [vertex for vertex in edge.vertices() if vertex is not to]
    return 1.0 if edge._type.can_predict(slot) and all(other in given for other in others) else -1.0


def initial_estimate(edge: Any, known: Iterable[Any], to: Any) -> None:
    """Set the estimate of `to`; a pose is not changed by an edge that cannot give one."""
    kind, vertices = edge._type, edge.vertices()
    if not any(map(kind.can_predict, range(len(kind.vertices)))):
        raise GraphError(f"{edge!r}: an edge of this type gives no start value.")
    slot = vertices.index(to)
    if kind.can_predict(slot):
        estimates = tuple(vertex._chunk.estimate[vertex._row] for vertex in vertices)
        parameters = tuple(np.asarray(edge.parameter(i)._values()) for i in range(len(kind.parameters)))
        measurement = edge._chunk.measurement[edge._row]
        to.set_estimate(to._from_storage(kind.predicted(slot, estimates, parameters, measurement)))


def measurement_from_state(edge: Any) -> bool:
    """See `OptimizableGraph_Edge.set_measurement_from_state`."""
    kind = edge._type
    if kind.measure is None:
        return False
    estimates = tuple(vertex._chunk.estimate[vertex._row] for vertex in edge.vertices())
    parameters = tuple(np.asarray(edge.parameter(i)._values()) for i in range(len(kind.parameters)))
    edge.set_measurement(edge._from_storage(kind.measured(estimates, parameters)))
    return True
