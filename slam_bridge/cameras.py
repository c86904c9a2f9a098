"""Cameras on a body: models, mounting, time offset; from landmarks to pixels and back.

    point_cam = inv(body_T_cam) inv(world_T_body) point_world,     pixel = project(intrinsics, point_cam)

Body is the IMU's frame. A stereo pair is either one `Camera` with a baseline (rectified: the right camera has
the same intrinsics and stands at +baseline along x) or two cameras of a `Rig` that observe for themselves.
The models and the order of their intrinsics are those of `graphopt.geometry.rig_cameras`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphOptError
from graphopt.geometry import SE3, SO3
from graphopt.geometry.rig_cameras import RigCameraModel, rig_camera_model


class CameraError(GraphOptError, ValueError):
    """A calibration that no camera has."""


def pose_of_matrix(matrix: Any, name: str = "matrix") -> np.ndarray:
    """Pose (7,) x, y, z, qx, qy, qz, qw of a rigid motion (4, 4); the rotation may have few digits."""
    rows = np.asarray(matrix, float)
    if rows.shape != (4, 4) or not np.isfinite(rows).all():
        raise CameraError(f"{name} has shape {rows.shape}, expected a finite (4, 4) matrix.")
    if np.abs(rows[3] - [0.0, 0.0, 0.0, 1.0]).max() > 1e-6:
        raise CameraError(
            f"{name}: its last row is {rows[3]}, expected 0, 0, 0, 1. Is it transposed (stored by columns)?"
        )
    left, size, right = np.linalg.svd(rows[:3, :3])
    if np.abs(size - 1.0).max() > 1e-2 or np.linalg.det(rows[:3, :3]) < 0.0:
        raise CameraError(
            f"{name}: the upper left 3 x 3 block is no rotation (singular values {np.round(size, 4)}, "
            f"determinant {np.linalg.det(rows[:3, :3]):.4f}), expected 1."
        )
    return np.concatenate([rows[:3, 3], np.asarray(SO3.from_matrix(left @ right).storage)])


def refuse_non_rotations(matrices: np.ndarray, names: Sequence[Any]) -> None:
    """`CameraError` names the first of (n, 3, 3) that is no rotation, by two digits."""
    product = matrices @ np.swapaxes(matrices, 1, 2)
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(product - np.eye(3)).max(axis=(1, 2)) < 2e-2) & (np.linalg.det(matrices) > 0.0))
    if bad.any():
        row = int(np.argmax(bad))
        raise CameraError(f"the pose of {names[row]} has {matrices[row].tolist()}, expected a rotation.")


@dataclass(frozen=True, eq=False)
class Camera:
    """One camera of a rig."""

    body_T_cam: np.ndarray
    """(7,) x, y, z, qx, qy, qz, qw; the camera looks along its z."""
    model: str
    """"pinhole", "radtan", "kb8", "double_sphere" or "omni"."""
    intrinsics: np.ndarray
    """Numbers of the model, in the order of `parameter_names` [px and none]."""
    baseline: float | None = None
    """Distance of the right camera of a rectified pair along x [m]; None: no pair. Only with "pinhole"."""
    resolution: tuple[int, int] | None = None
    """Width, height [px]."""
    name: str = ""
    time_offset: float = 0.0
    """Time of the IMU - stamp of the image [s], as in Kalibr (t_imu = t_cam + offset)."""

    def __post_init__(self) -> None:
        model = rig_camera_model(self.model)
        for label, shape in (("body_T_cam", (7,)), ("intrinsics", (len(model.parameter_names),))):
            value = np.array(getattr(self, label), float)
            if value.shape != shape or not np.isfinite(value).all():
                raise CameraError(
                    f"Camera.{label} has shape {value.shape}, expected {shape} finite numbers"
                    + (f": {', '.join(model.parameter_names)}." if label == "intrinsics" else ".")
                )
            object.__setattr__(self, label, value)
        length = np.linalg.norm(self.body_T_cam[3:])
        if abs(length - 1.0) > 1e-2:
            raise CameraError(f"Camera.body_T_cam: its quaternion has length {length:.4f}, expected 1.")
        self.body_T_cam[3:] /= length
        if not (self.intrinsics[:2] > 0.0).all():
            raise CameraError(f"Camera: focal lengths are {self.intrinsics[:2]} px, must be > 0.")
        if self.resolution is not None and not (len(self.resolution) == 2 and min(self.resolution) > 0):
            raise CameraError(f"Camera.resolution is {self.resolution}, expected width, height > 0 [px].")
        if self.baseline is not None and not (self.baseline > 0.0 and self.model == "pinhole"):
            raise CameraError(
                f"Camera.baseline is {self.baseline} with model {self.model!r}: a rectified pair is a "
                "pinhole camera with a positive baseline [m]. An unrectified pair is two cameras of a Rig."
            )

    @classmethod
    def pinhole(
        cls,
        body_T_cam: Any,
        fx: float,
        fy: float,
        cx: float,
        cy: float,
        baseline: float | None = None,
        **rest: Any,
    ) -> Camera:
        """Pinhole camera; with a baseline [m] the left one of a rectified stereo pair."""
        return cls(np.asarray(body_T_cam, float), "pinhole", np.array([fx, fy, cx, cy]), baseline, **rest)

    def scaled(self, factor: float) -> Camera:
        """The same camera with images of `factor` times its width and height."""
        numbers, size = self.intrinsics.copy(), self.resolution
        numbers[:2] *= factor
        numbers[2:4] = (numbers[2:4] + 0.5) * factor - 0.5
        if size is not None:
            size = (round(size[0] * factor), round(size[1] * factor))
        return replace(self, intrinsics=numbers, resolution=size)

    @property
    def kind(self) -> RigCameraModel:
        """The model's functions."""
        return rig_camera_model(self.model)

    def project(self, point_cam: Any) -> np.ndarray:
        """Pixels (..., 2) of points of the camera's frame (..., 3) [m]; see `sees`."""
        return np.asarray(self.kind.project(self.intrinsics, np.asarray(point_cam, float)))

    def unproject(self, pixel: Any) -> np.ndarray:
        """Unit rays (..., 3) in the camera's frame; NaN where no ray has the pixel."""
        return self.kind.unproject(self.intrinsics, np.asarray(pixel, float))

    def sees(self, point_cam: Any) -> np.ndarray:
        """(...,) bool: the model holds there and, with a resolution, the pixel lies in the image."""
        point = np.asarray(point_cam, float)
        with np.errstate(all="ignore"):
            seen = self.kind.sees(self.intrinsics, point)
            if self.resolution is not None:
                pixel = self.project(point)
                seen = seen & ((pixel >= -0.5) & (pixel <= np.array(self.resolution) - 0.5)).all(axis=-1)
        return seen

    def in_camera(self, world_T_body: Any, point_world: Any) -> np.ndarray:
        """Points (..., 3) of the world in the camera's frame, seen from poses (..., 7)."""
        body = SE3(np.asarray(world_T_body, float)).inverse_act(np.asarray(point_world, float))
        return np.asarray(SE3(self.body_T_cam).inverse_act(body))

    def in_world(self, world_T_body: Any, point_cam: Any) -> np.ndarray:
        """The other way round: points (..., 3) of the camera's frame in the world."""
        body = SE3(self.body_T_cam).act(np.asarray(point_cam, float))
        return np.asarray(SE3(np.asarray(world_T_body, float)).act(body))

    def locate(self, pixel: Any, right: Any) -> np.ndarray:
        """Points (..., 3) in the camera's frame of pixels (..., 2) and columns (...,) in the right image."""
        if self.baseline is None:
            raise CameraError(f"camera {self.name!r} has no baseline, so there is no right image.")
        ray, left = self.unproject(pixel), np.asarray(pixel, float)[..., 0]
        depth = self.intrinsics[0] * self.baseline / (left - np.asarray(right, float))
        return ray / ray[..., 2:] * depth[..., None]

    def right_column(self, point_cam: Any) -> np.ndarray:
        """Columns (...,) in the right image of a rectified pair [px]."""
        if self.baseline is None:
            raise CameraError(f"camera {self.name!r} has no baseline, so there is no right image.")
        point = np.asarray(point_cam, float)
        return self.project(point)[..., 0] - self.intrinsics[0] * self.baseline / point[..., 2]


@dataclass(frozen=True, eq=False)
class Rig:
    """Cameras on one body; an observation names its camera by number."""

    cameras: tuple[Camera, ...]
    names: tuple[str, ...] = field(init=False)

    def __init__(self, cameras: Camera | Sequence[Camera]) -> None:
        given = (cameras,) if isinstance(cameras, Camera) else tuple(cameras)
        wrong = [type(camera).__name__ for camera in given if not isinstance(camera, Camera)]
        if not given or wrong:
            raise CameraError(f"Rig got {wrong or 'no cameras'}, expected one or more Camera.")
        object.__setattr__(self, "cameras", given)
        object.__setattr__(self, "names", tuple(camera.name or f"cam{k}" for k, camera in enumerate(given)))

    @classmethod
    def of(cls, given: Rig | Camera | Sequence[Camera]) -> Rig:
        """The rig itself, or that of one camera or of several."""
        return given if isinstance(given, Rig) else cls(given)

    def is_same(self, other: Rig) -> bool:
        """The same models, numbers and places."""
        return self is other or (
            len(self) == len(other) and all(map(_is_same_camera, self.cameras, other.cameras))
        )

    def __len__(self) -> int:
        return len(self.cameras)

    def __getitem__(self, number: int) -> Camera:
        return self.cameras[number]

    def __iter__(self) -> Iterator[Camera]:
        return iter(self.cameras)

    def with_camera(self, number: int, **changes: Any) -> Rig:
        """The same rig with fields of one camera changed."""
        cameras = list(self.cameras)
        cameras[number] = replace(cameras[number], **changes)
        return Rig(cameras)

    def scaled(self, factor: float) -> Rig:
        """The same cameras with fewer or more pixels; pixel (0, 0) keeps its corner."""
        return self if factor == 1.0 else Rig([camera.scaled(factor) for camera in self])

    def in_cones(
        self,
        world_T_body: np.ndarray,
        keyframe: np.ndarray,
        camera: np.ndarray,
        points: np.ndarray,
        landmark: np.ndarray,
    ) -> np.ndarray:
        """(o,) bool: cameras' models hold where observed points are, see `RigCameraModel.cone`.

        An observation is by `camera` (o,) at row `keyframe` (o,) of the poses (k, 7), of row `landmark` (o,)
        of the points (m, 3) [m]; what is not finite is nowhere.
        """
        mountings = np.array([camera.body_T_cam for camera in self])
        cosines = np.array([camera.kind.cone(camera.intrinsics) for camera in self])
        return kernels.in_cones(world_T_body, mountings, cosines, keyframe, camera, points, landmark)

    def in_cameras(self, camera: np.ndarray, world_T_body: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Points (o, 3) [m] in the frames of cameras (o,) at poses (o, 7)."""
        mountings = np.stack([each_camera.body_T_cam for each_camera in self.cameras])[camera]
        return np.asarray(SE3(mountings).inverse_act(SE3(world_T_body).inverse_act(points)))

    def project(self, camera: np.ndarray, point_cam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (o, 2) and (o,) bool where the camera's model holds; pixels are NaN where it doesn't."""
        pixels = np.full((len(camera), 2), np.nan)
        valid = np.zeros(len(camera), bool)
        for number, each_camera in enumerate(self.cameras):
            rows = np.flatnonzero(camera == number)
            with np.errstate(all="ignore"):
                valid[rows] = each_camera.kind.sees(each_camera.intrinsics, point_cam[rows])
                pixels[rows] = each_camera.project(point_cam[rows])
        pixels[~valid] = np.nan
        return pixels, valid


def _is_same_camera(one: Camera, two: Camera) -> bool:
    return one is two or (
        (one.model, one.baseline) == (two.model, two.baseline)
        and np.array_equal(one.intrinsics, two.intrinsics)
        and np.array_equal(one.body_T_cam, two.body_T_cam)
    )


def cam_T_world_from_world_T_body(world_T_body: Any, body_T_cam: Any) -> np.ndarray:
    """Convert world_T_body (n, 7) of VertexSE3 to cam_T_world (n, 7) of VertexSE3Expmap."""
    return np.asarray((SE3(np.asarray(world_T_body, float)) * SE3(_mounting(body_T_cam))).inverse().storage)


def world_T_body_from_cam_T_world(cam_T_world: Any, body_T_cam: Any) -> np.ndarray:
    """Convert cam_T_world (n, 7) of VertexSE3Expmap to world_T_body (n, 7) of VertexSE3."""
    return np.asarray((SE3(_mounting(body_T_cam)) * SE3(np.asarray(cam_T_world, float))).inverse().storage)


def _mounting(body_T_cam: Any) -> np.ndarray:
    mounting = np.asarray(body_T_cam, float)
    if mounting.shape != (7,):
        raise CameraError(f"body_T_cam has shape {mounting.shape}, expected (7,): x, y, z, qx, qy, qz, qw.")
    return mounting
