"""Cameras on a body: pixels of landmarks in any camera of a rig. g2o has no such types.

    point_cam = inv(body_T_cam) inv(world_T_body) point_world,     e = project(intrinsics, point_cam) - pixel

Poses are VertexSE3, world_T_body; the models and the order of their intrinsics are those of
`geometry.rig_cameras`. Per model (PINHOLE, RADTAN, KB8, DOUBLE_SPHERE, OMNI) there are

    EDGE_VI_PIXEL_*         2-D   pose, landmark; mounting and intrinsics are parameters
    EDGE_VI_POSE_PIXEL_*    2-D   pose; the landmark is part of the measurement: u, v, x, y, z
    EDGE_VI_CALIB_PIXEL_*   2-D   pose, landmark, mounting, intrinsics, time offset: all may be estimated

and for a rectified stereo pair, and the depth of an RGB-D camera (with any model),

    EDGE_VI_STEREO, EDGE_VI_POSE_STEREO   3-D   u, v and u_right = u - fx baseline / z
    EDGE_VI_DEPTH, EDGE_VI_POSE_DEPTH     1-D   z - measured [m]
    EDGE_VI_CALIB_STEREO                  3-D   pose, landmark, mounting, time offset: all may be estimated
    EDGE_VI_CALIB_DEPTH                   1-D   pose, landmark, mounting: the same

and for points of one camera seen in another, which a similarity (VERTEX_SIM3:EXPMAP) takes there or back,

    EDGE_VI_SIM3_RAY, EDGE_VI_INVERSE_SIM3_RAY   2-D   e = A q / (r' q),  q = S point or inv(S) point

with the ray r of the pixel and A (2, 3), the pixel's derivative by the ray, A r = 0: to first order the error
in pixels, of any model and in any direction.

Time offset td: an image stamped t was taken at t + td of the IMU's clock. The state is that at t, the pixel
that of t + td; with the pixel's velocity f [px/s] the pixel at t is pixel - td f (Qin and Shen, IROS 2018). A
measurement of EDGE_VI_CALIB_PIXEL_* is u, v, f_u, f_v; of EDGE_VI_CALIB_STEREO u, v, u_right, f_u, f_v, and
the right column moves as u does. Intrinsics of a rectified pair are not estimated: its pixels were made with
them.
"""

from __future__ import annotations

from typing import Any

from graphopt.geometry import SE3, components, stack
from graphopt.geometry.arrays import dot
from graphopt.geometry.cameras import project_pinhole
from graphopt.geometry.rig_cameras import RIG_CAMERA_MODELS, RigCameraModel
from graphopt.types.base import EdgeType, ParameterType, VertexType, unwrapped
from graphopt.types.define import add, define_edge, scalar
from graphopt.types.files import plain
from graphopt.types.registry import register
from graphopt.types.sim3 import Sim3Camera, VertexSim3Expmap
from graphopt.types.slam3d import ParameterSE3Offset, VertexPointXYZ, VertexSE3

Array = Any


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _intrinsics_parameter(model: RigCameraModel) -> ParameterType:
    return register(
        ParameterType(
            f"ParameterIntrinsics{_camel(model.name)}",
            f"PARAMS_VI_{model.name.upper()}",
            len(model.parameter_names),
            unwrapped,
            model.identity,
            plain(len(model.parameter_names)),
            doc=f"Intrinsics: {', '.join(model.parameter_names)}.",
        )
    )


def _intrinsics_vertex(model: RigCameraModel) -> VertexType:
    dim = len(model.parameter_names)
    return register(
        VertexType(
            f"VertexIntrinsics{_camel(model.name)}",
            f"VERTEX_VI_{model.name.upper()}",
            dim,
            dim,
            add,
            unwrapped,
            model.identity,
            plain(dim),
            doc=f"Intrinsics: {', '.join(model.parameter_names)}.",
        )
    )


VertexTimeOffset = register(
    VertexType(
        "VertexTimeOffset",
        "VERTEX_VI_TIME_OFFSET",
        1,
        1,
        add,
        scalar,
        (0.0,),
        plain(1),
        doc="Time of the IMU - stamp of the image [s].",
    )
)

ParameterStereoCamera = register(
    ParameterType(
        "ParameterStereoCamera",
        "PARAMS_VI_STEREO",
        5,
        unwrapped,
        (1.0, 1.0, 0.0, 0.0, 0.1),
        plain(5),
        doc="Rectified stereo pair: fx, fy, cx, cy, baseline [m].",
    )
)


def _in_camera(pose: SE3, mounting: SE3, point: Array) -> Array:
    return mounting.inverse_act(pose.inverse_act(point))


def _stereo(camera: Array, point_cam: Array) -> Array:
    u, v = components(project_pinhole(camera[..., :4], point_cam))
    fx, baseline = camera[..., 0][()], camera[..., 4][()]
    return stack(u, v, u - fx * baseline / components(point_cam)[2])


class KnownPoint:
    """Measurement of a landmark whose place is known: numbers of the image, then x, y, z of the world."""

    __slots__ = ("storage",)

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    @property
    def image(self) -> Array:
        """Pixel, pixel and right column, or depth."""
        return self.storage[..., :-3]

    @property
    def point(self) -> Array:
        """Landmark in the world (..., 3)."""
        return self.storage[..., -3:]


def _known(num_image: int) -> type[KnownPoint]:
    """The class with a point ahead of the camera as its default."""
    name, values = (
        f"KnownPoint{num_image}",
        {"identity_storage": (*(0.0,) * (num_image + 2), 1.0), "__slots__": ()},
    )
    return type(name, (KnownPoint,), values)


def _residuals(model: RigCameraModel) -> tuple[Any, ...]:
    """Residuals of a landmark, of a known one, and with calibration; whether a camera sees either."""
    project = model.project

    def pixel(pose: SE3, point: Array, mounting: SE3, intrinsics: Array, measured: Array) -> Array:
        return project(intrinsics, _in_camera(pose, mounting, point)) - measured

    def pose_pixel(pose: SE3, mounting: SE3, intrinsics: Array, measured: KnownPoint) -> Array:
        return project(intrinsics, _in_camera(pose, mounting, measured.point)) - measured.image

    def calib_pixel(
        pose: SE3, point: Array, mounting: SE3, intrinsics: Array, offset: Array, measured: Array
    ) -> Array:
        u, v = components(project(intrinsics, _in_camera(pose, mounting, point)))
        at_u, at_v, flow_u, flow_v = components(measured)
        return stack(u - (at_u - offset * flow_u), v - (at_v - offset * flow_v))

    def sees(pose: SE3, point: Array, mounting: SE3, intrinsics: Array, *rest: Array) -> Array:
        return model.sees(intrinsics, _in_camera(pose, mounting, point))

    def sees_known(pose: SE3, mounting: SE3, intrinsics: Array, measured: KnownPoint) -> Array:
        return model.sees(intrinsics, _in_camera(pose, mounting, measured.point))

    pixel.__doc__ = f"Projection of a landmark into a {model.name} camera on the body - pixel."
    pose_pixel.__doc__ = f"The same of a known landmark; measured: u, v, x, y, z ({model.name})."
    calib_pixel.__doc__ = (
        f"The same with calibration and time offset; measured: u, v and their velocity ({model.name})."
    )
    return pixel, pose_pixel, calib_pixel, sees, sees_known


def _define_model(model: RigCameraModel) -> tuple[ParameterType, VertexType, EdgeType, EdgeType, EdgeType]:
    """Parameter, vertex and edge types of one camera model."""
    parameter, vertex = _intrinsics_parameter(model), _intrinsics_vertex(model)
    label, tag = _camel(model.name), model.name.upper()
    pixel, pose_pixel, calib_pixel, sees, sees_known = _residuals(model)
    constants = (ParameterSE3Offset, parameter)
    return (
        parameter,
        vertex,
        define_edge(
            f"EdgeViPixel{label}",
            f"EDGE_VI_PIXEL_{tag}",
            (VertexSE3, VertexPointXYZ),
            2,
            pixel,
            sees=sees,
            parameters=constants,
        ),
        define_edge(
            f"EdgeViPosePixel{label}",
            f"EDGE_VI_POSE_PIXEL_{tag}",
            (VertexSE3,),
            2,
            pose_pixel,
            _known(2),
            sees=sees_known,
            parameters=constants,
            measurement=plain(5),
        ),
        define_edge(
            f"EdgeViCalibPixel{label}",
            f"EDGE_VI_CALIB_PIXEL_{tag}",
            (VertexSE3, VertexPointXYZ, VertexSE3, vertex, VertexTimeOffset),
            2,
            calib_pixel,
            sees=sees,
            measurement=plain(4),
        ),
    )


_TYPES = {name: _define_model(model) for name, model in RIG_CAMERA_MODELS.items()}

INTRINSICS_PARAMETERS: dict[str, ParameterType] = {name: types[0] for name, types in _TYPES.items()}
INTRINSICS_VERTICES: dict[str, VertexType] = {name: types[1] for name, types in _TYPES.items()}
PIXEL_EDGES: dict[str, EdgeType] = {name: types[2] for name, types in _TYPES.items()}
POSE_PIXEL_EDGES: dict[str, EdgeType] = {name: types[3] for name, types in _TYPES.items()}
CALIB_PIXEL_EDGES: dict[str, EdgeType] = {name: types[4] for name, types in _TYPES.items()}


def edge_stereo(pose: SE3, point: Array, mounting: SE3, camera: Array, measured: Array) -> Array:
    """(u, v, column in the right image) - measured, of a rectified pair; mounting of the left camera."""
    return _stereo(camera, _in_camera(pose, mounting, point)) - measured


def edge_pose_stereo(pose: SE3, mounting: SE3, camera: Array, measured: KnownPoint) -> Array:
    """The same of a known landmark; measured: u, v, u_right, x, y, z."""
    return _stereo(camera, _in_camera(pose, mounting, measured.point)) - measured.image


def edge_depth(pose: SE3, point: Array, mounting: SE3, measured: Array) -> Array:
    """z of a landmark in a camera - measured [m]."""
    return stack(components(_in_camera(pose, mounting, point))[2] - measured)


def edge_pose_depth(pose: SE3, mounting: SE3, measured: KnownPoint) -> Array:
    """The same of a known landmark; measured: depth, x, y, z."""
    depth = components(_in_camera(pose, mounting, measured.point))[2]
    return stack(depth - components(measured.image)[0])


def edge_calib_stereo(
    pose: SE3, point: Array, mounting: SE3, offset: Array, camera: Array, measured: Array
) -> Array:
    """EDGE_VI_STEREO with mounting and time offset; measured: u, v, u_right and the velocity of u, v."""
    u, v, right = components(_stereo(camera, _in_camera(pose, mounting, point)))
    at_u, at_v, at_right, flow_u, flow_v = components(measured)
    moved = offset * flow_u
    return stack(u - (at_u - moved), v - (at_v - offset * flow_v), right - (at_right - moved))


def edge_calib_depth(pose: SE3, point: Array, mounting: SE3, measured: Array) -> Array:
    """EDGE_VI_DEPTH with the mounting as a vertex."""
    return edge_depth(pose, point, mounting, measured)


def _ahead(pose: SE3, point: Array, mounting: SE3, *rest: Array) -> Array:
    return components(_in_camera(pose, mounting, point))[2] > 0.0


def _known_ahead(pose: SE3, mounting: SE3, *rest: Any) -> Array:
    return components(_in_camera(pose, mounting, rest[-1].point))[2] > 0.0


class SeenAlong:
    """Measurement of a point by a pixel's ray: two rows of A, the unit ray, the point in the other camera."""

    __slots__ = ("storage",)
    identity_storage = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0)

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    @property
    def point(self) -> Array:
        """(..., 3) in the frame of the camera that it comes from [m]."""
        return self.storage[..., 9:]

    def ahead(self, point_cam: Array) -> Array:
        """How far along the ray a point is [m]."""
        return dot(self.storage[..., 6:9], point_cam)

    def error(self, point_cam: Array) -> Array:
        """(..., 2) [px]."""
        along = self.ahead(point_cam)
        first, second = self.storage[..., :3], self.storage[..., 3:6]
        return stack(dot(first, point_cam) / along, dot(second, point_cam) / along)


def edge_sim3_ray(similarity: Sim3Camera, measured: SeenAlong) -> Array:
    """Pixel of a point of the second camera in the first - measured, along the measured ray."""
    return measured.error(similarity.similarity * measured.point)


def edge_inverse_sim3_ray(similarity: Sim3Camera, measured: SeenAlong) -> Array:
    """Pixel of a point of the first camera in the second - measured, along the measured ray."""
    return measured.error(similarity.similarity.inverse() * measured.point)


EdgeSim3Ray = define_edge(
    "EdgeViSim3Ray",
    "EDGE_VI_SIM3_RAY",
    (VertexSim3Expmap,),
    2,
    edge_sim3_ray,
    SeenAlong,
    sees=lambda similarity, measured: measured.ahead(similarity.similarity * measured.point) > 0.0,
    measurement=plain(12),
)
EdgeInverseSim3Ray = define_edge(
    "EdgeViInverseSim3Ray",
    "EDGE_VI_INVERSE_SIM3_RAY",
    (VertexSim3Expmap,),
    2,
    edge_inverse_sim3_ray,
    SeenAlong,
    sees=lambda similarity, measured: measured.ahead(similarity.similarity.inverse() * measured.point) > 0.0,
    measurement=plain(12),
)
EdgeStereo = define_edge(
    "EdgeViStereo",
    "EDGE_VI_STEREO",
    (VertexSE3, VertexPointXYZ),
    3,
    edge_stereo,
    sees=_ahead,
    parameters=(ParameterSE3Offset, ParameterStereoCamera),
)
EdgePoseStereo = define_edge(
    "EdgeViPoseStereo",
    "EDGE_VI_POSE_STEREO",
    (VertexSE3,),
    3,
    edge_pose_stereo,
    _known(3),
    sees=_known_ahead,
    parameters=(ParameterSE3Offset, ParameterStereoCamera),
    measurement=plain(6),
)
EdgeDepth = define_edge(
    "EdgeViDepth",
    "EDGE_VI_DEPTH",
    (VertexSE3, VertexPointXYZ),
    1,
    edge_depth,
    scalar,
    sees=_ahead,
    parameters=(ParameterSE3Offset,),
)
EdgePoseDepth = define_edge(
    "EdgeViPoseDepth",
    "EDGE_VI_POSE_DEPTH",
    (VertexSE3,),
    1,
    edge_pose_depth,
    _known(1),
    sees=_known_ahead,
    parameters=(ParameterSE3Offset,),
    measurement=plain(4),
)
EdgeCalibStereo = define_edge(
    "EdgeViCalibStereo",
    "EDGE_VI_CALIB_STEREO",
    (VertexSE3, VertexPointXYZ, VertexSE3, VertexTimeOffset),
    3,
    edge_calib_stereo,
    sees=_ahead,
    parameters=(ParameterStereoCamera,),
    measurement=plain(5),
)
EdgeCalibDepth = define_edge(
    "EdgeViCalibDepth",
    "EDGE_VI_CALIB_DEPTH",
    (VertexSE3, VertexPointXYZ, VertexSE3),
    1,
    edge_calib_depth,
    scalar,
    sees=_ahead,
)
