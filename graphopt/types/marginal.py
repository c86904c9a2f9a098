"""Dense priors over several vertices: what marginalized states leave behind.

    chi2 = (d - m)' Omega (d - m),     d = (x_1 - x_1^0, x_2 - x_2^0, ...)        in the tangent spaces

x - x^0 is the update that leads from x^0 to x: for VertexSE3 the (translation, quaternion's vector part) of
inv(x^0) x, for vectors their difference. A measurement holds all x^0, then m. `prior_edge` makes the edge
type for any vertices; that of one inertial state, EDGE_VI_PRIOR_POSE_VELOCITY_GYRO_ACC, is a built-in type.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from graphopt.errors import OptionError
from graphopt.geometry import SE3, concatenate
from graphopt.types.base import EdgeType, VertexType
from graphopt.types.cache import per_type_cache
from graphopt.types.define import define_edge
from graphopt.types.files import plain
from graphopt.types.inertial import VertexAccBias, VertexGyroBias, VertexVelocity
from graphopt.types.slam3d import VertexPointXYZ, VertexSE3, minimal

Array = Any

_CODES = {
    VertexSE3.tag: "POSE",
    VertexVelocity.tag: "VELOCITY",
    VertexGyroBias.tag: "GYRO",
    VertexAccBias.tag: "ACC",
    VertexPointXYZ.tag: "POINT",
}


class Reference:
    """Measurement of a prior: the states x^0 and the offset m."""

    def __init__(self, storage: Array, storage_ends: tuple[int, ...]) -> None:
        self._storage, self._ends = storage, storage_ends

    def state(self, slot: int) -> Array:
        """Storage of x^0 in one slot."""
        return self._storage[..., (0, *self._ends)[slot] : self._ends[slot]]

    @property
    def offset(self) -> Array:
        """m."""
        return self._storage[..., self._ends[-1] :]


def prior_edge(*vertices: VertexType) -> EdgeType:
    """The prior between vertices of these types: poses, velocities, biases, points."""
    unknown = [vertex.tag for vertex in vertices if vertex.tag not in _CODES]
    if unknown or not vertices:
        raise OptionError(f"a prior cannot hold {unknown or 'nothing'}; it can hold {', '.join(_CODES)}.")
    return _prior_edge(vertices)


@per_type_cache
def _prior_edge(vertices: tuple[VertexType, ...]) -> EdgeType:
    code = "_".join(_CODES[vertex.tag] for vertex in vertices)
    ends = tuple(accumulate(vertex.storage_dim for vertex in vertices))
    dim = sum(vertex.tangent_dim for vertex in vertices)

    def residual(*arguments: Array) -> Array:
        *states, measured = arguments
        moved = [
            minimal(SE3(measured.state(k)).between(state))
            if isinstance(state, SE3)
            else state - measured.state(k)
            for k, state in enumerate(states)
        ]
        return concatenate(*moved) - measured.offset

    def wrap(storage: Array) -> Reference:
        return Reference(storage, ends)

    residual.__doc__ = (
        f"Prior over {', '.join(vertex.name for vertex in vertices)}; measured: their states, an offset."
    )
    label = "".join(part.capitalize() for part in code.split("_"))
    return define_edge(
        f"EdgePrior{label}",
        f"EDGE_VI_PRIOR_{code}",
        vertices,
        dim,
        residual,
        wrap,
        measurement=plain(ends[-1] + dim),
    )


STATE_TYPES = (VertexSE3, VertexVelocity, VertexGyroBias, VertexAccBias)
EdgePriorState = _prior_edge(STATE_TYPES)
EdgePriorPose = _prior_edge((VertexSE3,))
