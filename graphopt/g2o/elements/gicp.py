"""`EdgeVVGicp`: generalized ICP between two poses, point to plane or plane to plane.

Plane to plane (`pl_pl`), each evaluation sets the information matrix at the present estimates,

    Omega = (cov0 + R cov1 R')^-1,    R = R0' R1

and a linearization takes it as constant, as in g2o. Such edges have an edge type of their own, so that a
block solver can be told before it evaluates them (`python_edges`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.g2o.elements.base import INVALID_ID
from graphopt.g2o.elements.edges import OptimizableGraph_Edge
from graphopt.g2o.engine.storage import edge_pool
from graphopt.g2o.values import scalar
from graphopt.g2o.values.cameras import EdgeGICP, inverse_turn_derivative
from graphopt.geometry import SO3
from graphopt.types import EdgeType, VertexType, icp
from graphopt.types.cache import per_type_cache

DEFAULT_MEASUREMENT = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0) * 2
"""Both points at zero, both normals along z."""


@per_type_cache
def _variant(vertices: tuple[VertexType, ...], planes: bool) -> EdgeType:
    """The edge type for vertices some of which are `VertexSCam`, which is a `VertexSE3` in g2o."""
    kind = icp.EdgeVVGicp
    if vertices == kind.vertices and not planes:
        return kind

    def residual(*arguments: Any) -> Any:
        return kind.residual(*(getattr(argument, "pose", argument) for argument in arguments))

    name = f"{kind.name}{'Planes' if planes else ''}_{'_'.join(vertex.name for vertex in vertices)}"
    return replace(kind, name=name, vertices=vertices, residual=residual)


class EdgeVVGicp(OptimizableGraph_Edge):
    """`EDGE_V_V_GICP`: edge of VertexSE3, VertexSE3; error of 3 numbers: first^-1 (second pos1) - pos0.

    The measurement is an `EdgeGICP`. Point to plane: `set_information(measurement.prec0(e))`. Plane to plane:
    `pl_pl = True` and both covariances, `cov0 = measurement.cov0(e)`, `cov1 = measurement.cov1(e)`; the
    information matrix then follows from the estimates at each `compute_error`.
    """

    __slots__ = ("_covariances", "_pl_pl")
    _arity = 2
    _pool = edge_pool(icp.EdgeVVGicp, DEFAULT_MEASUREMENT)
    _value = EdgeGICP
    dRidx, dRidy, dRidz = map(inverse_turn_derivative, range(3))

    def __init__(self, id: int = INVALID_ID) -> None:
        super().__init__(id)
        self._pl_pl = False
        self._covariances = np.stack([np.eye(3), np.eye(3)])

    @property
    def _type(self) -> EdgeType:  # type: ignore[override]
        standard = icp.EdgeVVGicp.vertices[0]
        kinds = tuple(standard if vertex is None else vertex._type for vertex in self._vertices)
        return _variant(kinds, self._pl_pl)

    def _from_storage(self, storage: np.ndarray) -> EdgeGICP:
        return EdgeGICP._from_storage(storage.tolist())

    def _to_storage(self, value: EdgeGICP) -> Any:
        return value._storage()

    def minimal_measurement_dimension(self) -> int:
        """12."""
        return 12

    @property
    def pl_pl(self) -> bool:
        """Plane to plane instead of point to plane."""
        return self._pl_pl

    @pl_pl.setter
    def pl_pl(self, value: bool) -> None:
        if bool(value) != self._pl_pl:
            self._pl_pl = bool(value)
            if self._graph is not None:
                self._graph._topology_changed()

    @property
    def cov0(self) -> np.ndarray:
        """(3, 3) covariance of the first point, for plane to plane; live."""
        return self._covariances[0]

    @cov0.setter
    def cov0(self, value: Any) -> None:
        self._covariances[0] = scalar.matrix(value, ((3, 3),), "cov0")

    @property
    def cov1(self) -> np.ndarray:
        """(3, 3) covariance of the second point, for plane to plane; live."""
        return self._covariances[1]

    @cov1.setter
    def cov1(self, value: Any) -> None:
        self._covariances[1] = scalar.matrix(value, ((3, 3),), "cov1")

    def compute_error(self) -> Any:
        """Compute `error` at the present estimates, plane to plane also the information matrix."""
        if self._pl_pl:
            poses = [vertex._chunk.estimate[vertex._row, None] for vertex in self._vertices]
            self.set_information(plane_information(self._covariances[None], *poses)[0])
        super().compute_error()


def plane_information(covariances: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(n, 3, 3) information matrices: covariances (n, 2, 3, 3), poses (n, >= 7) x y z qx qy qz qw ..."""
    turns = [SO3(poses[:, 3:7]).to_matrix() for poses in (first, second)]
    turn = np.swapaxes(turns[0], -1, -2) @ turns[1]
    return np.linalg.inv(covariances[:, 0] + turn @ covariances[:, 1] @ np.swapaxes(turn, -1, -2))


def is_plane_to_plane(edge: Any) -> bool:
    """The information matrix follows from the estimates."""
    return isinstance(edge, EdgeVVGicp) and edge._pl_pl
