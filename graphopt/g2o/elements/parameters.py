"""Parameters: constants that edges share, found by id in the graph."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import ref

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.g2o.elements.base import HyperGraphElement, HyperGraphElementType
from graphopt.g2o.engine.storage import Pool, parameter_pool
from graphopt.g2o.values import scalar
from graphopt.g2o.values.isometries import Isometry2d, Isometry3d
from graphopt.g2o.values.se2 import SE2
from graphopt.types import ParameterType, registry


class Parameter(HyperGraphElement, kernels.Row):
    """A parameter."""

    __slots__ = ("_id",)
    _type: ClassVar[ParameterType]
    _pool: ClassVar[Pool]

    def __init__(self) -> None:
        self._id = -1
        self._chunk, self._row = self._pool.take()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}>"

    def id(self) -> int:
        """Id, -1 until set."""
        return self._id

    def set_id(self, id: int) -> None:
        """Set the id; do it before the parameter is added."""
        self._id = int(id)

    def element_type(self) -> HyperGraphElementType:
        """HGET_PARAMETER."""
        return HyperGraphElementType.HGET_PARAMETER

    def _values(self) -> np.ndarray:
        return self._chunk.estimate[self._row]

    def set_param_data(self, data: Any) -> bool:
        """Replace the numbers; False if the count is wrong."""
        numbers = np.asarray(data, np.float64).ravel()
        fits = len(numbers) == self._type.storage_dim
        if fits:
            self._values()[:] = numbers
        return fits


class ParameterSE2Offset(Parameter):
    """`PARAMS_SE2OFFSET`: pose of a sensor on a planar robot."""

    __slots__ = ()
    _type = registry.parameter_type("ParameterSE2Offset")
    _pool = parameter_pool(_type)

    def param(self) -> SE2:
        """The offset (a copy)."""
        return SE2._from_storage(self._values().tolist())

    def set_param(self, value: SE2) -> None:
        """Replace the offset."""
        self._values()[:] = SE2(value)._storage()

    offset = param
    set_offset = set_param

    def offset_matrix(self) -> Isometry2d:
        """The offset as an isometry."""
        return self.param().to_isometry()

    def inverse_offset_matrix(self) -> Isometry2d:
        """The inverse of the offset as an isometry."""
        return self.param().inverse().to_isometry()


class ParameterSE3Offset(Parameter):
    """`PARAMS_SE3OFFSET`: pose of a sensor on a robot."""

    __slots__ = ()
    _type = registry.parameter_type("ParameterSE3Offset")
    _pool = parameter_pool(_type)

    def param(self) -> Isometry3d:
        """The offset (a copy)."""
        return Isometry3d._from_storage(self._values().tolist())

    def set_param(self, value: Isometry3d) -> None:
        """Replace the offset."""
        self._values()[:] = Isometry3d(value)._storage()

    offset = param
    set_offset = set_param

    def inverse_offset(self) -> Isometry3d:
        """Inverse of the offset."""
        return self.param().inverse()


class ParameterCamera(ParameterSE3Offset):
    """`PARAMS_CAMERACALIB`: pose of a camera on a robot, fx, fy, cx, cy."""

    __slots__ = ()
    _type = registry.parameter_type("ParameterCamera")
    _pool = parameter_pool(_type)

    def set_param(self, value: Isometry3d) -> None:
        """Replace the pose of the camera on the robot."""
        self._values()[:7] = Isometry3d(value)._storage()

    set_offset = setOffset = set_param

    def set_kcam(self, fx: float, fy: float, cx: float, cy: float) -> None:
        """Set the intrinsics [px]."""
        self._values()[7:11] = fx, fy, cx, cy

    def kcam(self) -> np.ndarray:
        """(3, 3) camera matrix."""
        fx, fy, cx, cy = self._values()[7:11].tolist()
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    Kcam = kcam
    setKcam = set_kcam

    def invKcam(self) -> np.ndarray:
        """(3, 3) inverse of the camera matrix."""
        return np.linalg.inv(self.kcam())

    def Kcam_inverseOffsetR(self) -> np.ndarray:
        """(3, 3) camera matrix times the rotation from the robot into the camera."""
        return self.kcam() @ self.inverse_offset().matrix()[:3, :3]


class ParameterStereoCamera(ParameterCamera):
    """`PARAMS_STEREOCAMERACALIB` of g2o-python: a `ParameterCamera` with a baseline [m]; no edge uses it."""

    __slots__ = ("_baseline",)

    def __init__(self) -> None:
        super().__init__()
        self._baseline = 0.075  # g2o's

    def baseline(self) -> float:
        """Baseline [m]."""
        return self._baseline

    def set_baseline(self, baseline: float) -> None:
        """Set the baseline [m]."""
        self._baseline = float(baseline)


class CameraParameters(Parameter):
    """`PARAMS_CAMERAPARAMETERS`: focal length [px], principle point [px] (g2o's spelling), baseline [m]."""

    __slots__ = ()
    _type = registry.parameter_type("CameraParameters")
    _pool = parameter_pool(_type)

    def __init__(self, focal_length: Any = None, principle_point: Any = None, baseline: float = 0.0) -> None:
        super().__init__()
        if focal_length is not None:
            center = scalar.floats(
                (0.0, 0.0) if principle_point is None else principle_point, 2, "principle point"
            )
            self._values()[:] = (float(focal_length), *center, float(baseline))

    @property
    def focal_length(self) -> float:
        """Focal length [px]."""
        return float(self._values()[0])

    @focal_length.setter
    def focal_length(self, value: float) -> None:
        self._values()[0] = value

    @property
    def principle_point(self) -> np.ndarray:
        """(2,) principal point [px] (a copy)."""
        return self._values()[1:3].copy()

    @principle_point.setter
    def principle_point(self, value: Any) -> None:
        self._values()[1:3] = scalar.floats(value, 2, "principle point")

    principal_point = principle_point

    @property
    def baseline(self) -> float:
        """Stereo baseline [m]."""
        return float(self._values()[3])

    @baseline.setter
    def baseline(self, value: float) -> None:
        self._values()[3] = value

    def cam_map(self, trans_xyz: Any) -> np.ndarray:
        """(2,) pixel of a point in the camera's frame."""
        x, y, z = scalar.floats(trans_xyz, 3, "point")
        f, cx, cy, _ = self._values().tolist()
        return np.array([x / z * f + cx, y / z * f + cy])

    def stereocam_uvu_map(self, trans_xyz: Any) -> np.ndarray:
        """(3,) left u, v and right u of a point in the left camera's frame."""
        u, v = self.cam_map(trans_xyz).tolist()
        z = scalar.floats(trans_xyz, 3, "point")[2]
        return np.array([u, v, u - self.baseline * self.focal_length / z])


PARAMETER_CLASSES: dict[ParameterType, type[Parameter]] = {
    kind._type: kind for kind in (ParameterSE2Offset, ParameterSE3Offset, ParameterCamera, CameraParameters)
}
"""Parameter type -> class."""


def parameter_class(kind: ParameterType) -> type[Parameter]:
    """The class of a parameter type; made on first use for types that users registered."""
    if kind not in PARAMETER_CLASSES:
        members = {"__slots__": (), "_type": kind, "_pool": parameter_pool(kind), "__module__": __name__}
        PARAMETER_CLASSES[kind] = type(kind.name, (Parameter,), {**members, "__doc__": f"`{kind.tag}`."})
    return PARAMETER_CLASSES[kind]


class ParameterContainer:
    """Parameters of a graph by id."""

    __slots__ = ("_by_id", "_graph")

    def __init__(self, graph: Any = None) -> None:
        self._by_id: dict[int, Parameter] = {}
        self._graph = None if graph is None else ref(graph)

    def __len__(self) -> int:
        return len(self._by_id)

    def size(self) -> int:
        """Number of parameters."""
        return len(self._by_id)

    def add_parameter(self, parameter: Parameter) -> bool:
        """Add one; False if its id is negative or taken."""
        if parameter._id < 0 or parameter._id in self._by_id:
            return False
        self._by_id[parameter._id] = parameter
        self._changed()
        return True

    def get_parameter(self, id: int) -> Parameter | None:
        """The parameter with this id, None if there is none."""
        return self._by_id.get(id)

    def detach_parameter(self, id: int) -> Parameter | None:
        """Take a parameter out and return it, None if there is none."""
        parameter = self._by_id.pop(id, None)
        if parameter is not None:
            self._changed()
        return parameter

    def clear(self) -> None:
        """Remove all."""
        self._by_id.clear()
        self._changed()

    def _changed(self) -> None:
        graph = None if self._graph is None else self._graph()
        if graph is not None:
            graph._topology_changed()
