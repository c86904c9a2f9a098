"""Start values from measurements: what one edge says about a vertex when its other vertices are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphopt.errors import GraphError

Rule = Callable[[Any, int], Any]
"""(edge, slot of the vertex to estimate) -> its estimate, None if the edge cannot say."""


def _between(edge: Any, slot: int) -> Any:
    """Measurement = first^-1 second."""
    measured = edge.measurement()
    if slot == 1:
        return edge.vertex(0).estimate() * measured
    return edge.vertex(1).estimate() * measured.inverse()


def _between_left(edge: Any, slot: int) -> Any:
    """Measurement = second first^-1 (SE3:EXPMAP and SIM3:EXPMAP)."""
    measured = edge.measurement()
    if slot == 1:
        return measured * edge.vertex(0).estimate()
    return measured.inverse() * edge.vertex(1).estimate()


def _prior(edge: Any, slot: int) -> Any:
    return edge.measurement()


def _prior_se3(edge: Any, slot: int) -> Any:
    """Measurement = pose * offset."""
    return edge.measurement() * edge.parameter(0).param().inverse()


def _point(edge: Any, slot: int) -> Any:
    return edge.vertex(0).estimate() * edge.measurement() if slot == 1 else None


def _point_offset(edge: Any, slot: int) -> Any:
    if slot != 1:
        return None
    return edge.vertex(0).estimate() * (edge.parameter(0).param() * edge.measurement())


def _point_from_bearing(edge: Any, slot: int) -> Any:
    if slot != 1:
        return None
    direction = edge.measurement()  # g2o's guess: 2 m away
    return edge.vertex(0).estimate() * np.array([2.0 * np.cos(direction), 2.0 * np.sin(direction)])


def _difference(edge: Any, slot: int) -> Any:
    """Measurement = second - first."""
    if slot == 1:
        return edge.vertex(0).estimate() + edge.measurement()
    return edge.vertex(1).estimate() - edge.measurement()


def _offset_between(edge: Any, slot: int) -> Any:
    """Measurement = (first offset0)^-1 second offset1."""
    first, second = edge.parameter(0).param(), edge.parameter(1).param()
    motion = first * edge.measurement() * second.inverse()
    if slot == 1:
        return edge.vertex(0).estimate() * motion
    return edge.vertex(1).estimate() * motion.inverse()


RULES: dict[str, Rule] = {
    "EdgeSE2": _between,
    "EdgeSE3": _between,
    "EdgeSE2Offset": _offset_between,
    "EdgeSE3Offset": _offset_between,
    "EdgeSE3Expmap": _between_left,
    "EdgeSim3": _between_left,
    "EdgeSE2Prior": _prior,
    "EdgeSE3Prior": _prior_se3,
    "EdgeXYPrior": _prior,
    "EdgeXYZPrior": _prior,
    "EdgeSE2PointXY": _point,
    "EdgeSE3PointXYZ": _point_offset,
    "EdgeSE2PointXYOffset": _point_offset,
    "EdgeSE2PointXYBearing": _point_from_bearing,
    "EdgePointXY": _difference,
    "EdgePointXYZ": _difference,
}
"""Edge type -> rule."""


def _rule(edge: Any) -> Rule | None:
    return RULES.get(edge._type.name)


def initial_estimate_cost(edge: Any, known: Iterable[Any], to: Any) -> float:
    """1 if `initial_estimate` can set `to` from `known`, else -1."""
    others = [one for one in edge.vertices() if one is not to]
    given = set(known)
    possible = _rule(edge) is not None and all(one in given for one in others)
    if possible and len(others) == 1 and edge.vertex(1) is not to:
        possible = not edge._type.name.startswith(("EdgeSE2Point", "EdgeSE3Point"))
    return 1.0 if possible else -1.0


def initial_estimate(edge: Any, known: Iterable[Any], to: Any) -> None:
    """Set the estimate of `to`; a pose is not changed by an edge that cannot give one."""
    rule = _rule(edge)
    if rule is None:
        raise GraphError(f"{edge!r}: an edge of this type gives no start value.")
    value = rule(edge, edge.vertices().index(to))
    if value is not None:
        to.set_estimate(value)


def measurement_from_state(edge: Any) -> bool:
    """See `OptimizableGraph_Edge.set_measurement_from_state`."""
    name = edge._type.name
    estimates = [one.estimate() for one in edge.vertices()]
    if name in ("EdgeSE2", "EdgeSE3"):
        edge.set_measurement(estimates[0].inverse() * estimates[1])
    elif name in ("EdgeSE3Expmap", "EdgeSim3"):
        edge.set_measurement(estimates[1] * estimates[0].inverse())
    elif name in ("EdgeSE2Prior", "EdgeXYPrior", "EdgeXYZPrior"):
        edge.set_measurement(estimates[0])
    elif name == "EdgeSE3Prior":
        edge.set_measurement(estimates[0] * edge.parameter(0).param())
    elif name == "EdgeSE2PointXY":
        edge.set_measurement(estimates[0].inverse() * estimates[1])
    elif name == "EdgeSE3PointXYZ":
        edge.set_measurement((estimates[0] * edge.parameter(0).param()).inverse() * estimates[1])
    elif name in ("EdgePointXY", "EdgePointXYZ"):
        edge.set_measurement(estimates[1] - estimates[0])
    elif name == "EdgeSE2PointXYBearing":
        local = estimates[0].inverse() * estimates[1]
        edge.set_measurement(float(np.arctan2(local[1], local[0])))
    else:
        return False
    return True
