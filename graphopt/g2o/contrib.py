"""`g2o.contrib` of uoip/g2opy: start values along a spanning tree that fade out with the distance.

A vertex at distance d (edges from the start) goes from its estimate A towards B, which its edge gives:

    x    = (d - 1) / (max_distance - 2)          0 next to the start, 1 at the last vertices that are reached
    ramp = 1 - x / (1 + 50 (1 - x))              1 ... 0, most of the fall at the far end
    rotation    = slerp(A, B, ramp)
    translation = (1 - ramp) A + ramp B

S-PTAM closes loops with it (Pire et al., S-PTAM: Stereo Parallel Tracking and Mapping, Robotics and
Autonomous Systems 2017).
"""

from __future__ import annotations

from typing import Any

from graphopt.errors import GraphError, OptionError
from graphopt.g2o.propagator import (
    LONGEST,
    EstimatePropagateAction,
    EstimatePropagator,
    EstimatePropagatorCost,
)
from graphopt.g2o.values.isometries import Isometry3d

__all__ = ["SmoothEstimatePropagator"]

_STEEPNESS = 50.0


def ramp(distance: float, max_distance: float) -> float:
    """How much of the way a vertex goes: 1 next to the start, 0 at `max_distance - 1`."""
    if distance <= 1.0:
        return 1.0
    x = (distance - 1.0) / (max_distance - 2.0)
    return 1.0 - x / (1.0 + _STEEPNESS * (1.0 - x))


def interpolated(start: Isometry3d, end: Isometry3d, weight: float) -> Isometry3d:
    """Between two poses: rotation on the great circle, translation on the line; 0 is `start`, 1 is `end`."""
    rotation = start.rotation().slerp(weight, end.rotation())
    return Isometry3d(rotation, (1.0 - weight) * start.translation() + weight * end.translation())


class SmoothPropagateAction(EstimatePropagateAction):
    """Moves a vertex that was reached part of the way to where its edge says that it is."""

    def __init__(self, propagator: EstimatePropagator, max_distance: float) -> None:
        self._propagator = propagator
        self._max_distance = max_distance

    def __call__(self, edge: Any, from_: set[Any], to: Any) -> None:
        """Move `to`, unless it is fixed."""
        if to.fixed():
            return
        if edge._type.name != "EdgeSE3":
            raise GraphError(
                f"SmoothEstimatePropagator: vertex {to.id()} was reached by {edge!r}, expected an EdgeSE3. "
                "Use EstimatePropagator for graphs with other edges."
            )
        first, second = edge.vertices()
        if first in from_:
            target = first.estimate() * edge.measurement()
        else:
            target = second.estimate() * edge.measurement().inverse()
        weight = ramp(self._propagator.adjacency_map()[to].distance(), self._max_distance)
        to.set_estimate(interpolated(to.estimate(), target, weight))


class SmoothEstimatePropagator(EstimatePropagator):
    """Sets poses along active `EdgeSE3` from a vertex that is known, less and less with the distance.

    Only edges count that the last `initialize_optimization` made active, as for every propagator of g2o: of a
    graph that was never initialized nothing is set.
    """

    def __init__(self, g: Any, maxDistance: float = LONGEST, maxEdgeCost: float = LONGEST) -> None:
        super().__init__(g)
        if not maxDistance > 0.0:
            raise OptionError(
                f"SmoothEstimatePropagator: maxDistance is {maxDistance}, expected a number of edges > 0."
            )
        self._max_distance, self._max_edge_cost = float(maxDistance), float(maxEdgeCost)
        self._cost = EstimatePropagatorCost(g)

    def propagate(self, v: Any) -> None:  # type: ignore[override] - g2o's own signature
        """Set vertices nearer than `maxDistance` edges to the vertex `v`."""
        action = SmoothPropagateAction(self, self._max_distance)
        super().propagate(v, self._cost, action, self._max_distance, self._max_edge_cost)
