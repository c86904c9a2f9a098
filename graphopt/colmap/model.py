"""A COLMAP sparse reconstruction as arrays, and its consistency.

Pixels: x to the right, y down, the upper left corner of the image is (0, 0). `cam_T_world` maps world to
camera coordinates, z forward. The camera models' parameters are listed in `MODELS` in COLMAP's order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import FormatError
from graphopt.geometry.cameras import CAMERA_MODELS, CameraModel
from graphopt.graph.id_index import IdIndex

MODELS: dict[str, CameraModel] = {
    name: model for name, model in CAMERA_MODELS.items() if model.colmap_id is not None
}
"""COLMAP's camera models."""
MODEL_NAMES = {model.colmap_id or 0: name for name, model in MODELS.items()}
CAMERA = 0
SENSOR_TYPES = {-1: "INVALID", CAMERA: "CAMERA", 1: "IMU"}
"""COLMAP's number of a kind of sensor -> its word in text files."""
NO_POINT = -1
UNKNOWN_ERROR = -1.0


@dataclass
class ColmapCamera:
    """Intrinsics that any number of images share."""

    id: int
    model: str
    width: int
    height: int
    params: np.ndarray  # (num_params,)


@dataclass
class ColmapImages:
    """All images; keypoints of image i are rows keypoint_start[i] ..

    keypoint_start[i + 1] of xy and point_id.
    """

    ids: np.ndarray  # (n,) int64
    quaternion: np.ndarray  # (n, 4) w x y z of cam_R_world
    translation: np.ndarray  # (n, 3) of cam_T_world
    camera_ids: np.ndarray  # (n,) int64
    names: list[str]
    keypoint_start: np.ndarray  # (n + 1,) int64
    xy: np.ndarray  # (keypoints, 2) [px]
    point_ids: np.ndarray  # (keypoints,) int64, NO_POINT where the keypoint has none


@dataclass
class ColmapPoints:
    """All points; the track of point i is rows track_start[i] .. track_start[i + 1] of track."""

    ids: np.ndarray  # (n,) int64
    xyz: np.ndarray  # (n, 3)
    rgb: np.ndarray  # (n, 3) uint8
    error: np.ndarray  # (n,) [px] mean reprojection error, -1 if unknown
    track_start: np.ndarray  # (n + 1,) int64
    track: np.ndarray  # (track elements, 2) int64: image id, index of its keypoint


class ColmapSensor(NamedTuple):
    """One sensor of a rig."""

    type: int
    """Key of SENSOR_TYPES."""
    id: int
    """Of the camera."""
    pose: np.ndarray | None
    """(7,) w x y z, t of sensor_T_rig; None for the reference, and where it is unknown."""


@dataclass
class ColmapRig:
    """Sensors that move together; the first is the reference."""

    id: int
    sensors: list[ColmapSensor]


@dataclass
class ColmapFrames:
    """All frames."""

    ids: np.ndarray  # (n,) int64
    rig_ids: np.ndarray  # (n,) int64
    pose: np.ndarray  # (n, 7) w x y z, t of rig_T_world
    data: list[np.ndarray]
    """Of each frame (k, 3) int64: sensor type, sensor id, image id."""

    def select(self, rows: np.ndarray) -> ColmapFrames:
        """Some of the frames."""
        data = [self.data[row] for row in rows.tolist()]
        return ColmapFrames(self.ids[rows], self.rig_ids[rows], self.pose[rows], data)


class Observations(NamedTuple):
    """Where the points of a model were seen."""

    image_row: np.ndarray  # (m,) int32 or int64
    point_row: np.ndarray  # (m,) int32 or int64
    pixel: np.ndarray  # (m, 2)
    image_count: np.ndarray  # (images,) how many each has
    track_length: np.ndarray  # (points,) how many each has

    @classmethod
    def counted(
        cls, image_row: np.ndarray, point_row: np.ndarray, pixel: np.ndarray, images: int, points: int
    ) -> Observations:
        """With the numbers of observations of so many images and points."""
        counts = np.bincount(image_row, minlength=images), np.bincount(point_row, minlength=points)
        return cls(image_row, point_row, pixel, *counts)


@dataclass
class ColmapModel:
    """A sparse model."""

    cameras: list[ColmapCamera]
    images: ColmapImages
    points: ColmapPoints
    warnings: list[str] = field(default_factory=list)
    rigs: list[ColmapRig] = field(default_factory=list)
    """Rigs, empty if `frames` is None."""
    frames: ColmapFrames | None = None
    """Frames; None for models of COLMAP before 3.12, which have the poses with the images."""

    seen: Observations | None = None
    """Of a model without tracks and keypoints, one that was taken from memory."""

    def observations(self) -> Observations:
        """Every track element."""
        if self.seen is not None:
            return self.seen
        images, points = self.images, self.points
        names = points.track, points.track_start, images.ids, images.keypoint_start
        integers = [np.ascontiguousarray(numbers, np.int64) for numbers in names]
        places = np.ascontiguousarray(images.xy, float)
        image_row, point_row, pixel, image_count, lost = kernels.read_tracks(*integers, places)
        if lost >= 0:
            image, number = points.track[lost].tolist()
            raise FormatError(f"a track names keypoint {number} of image {image}, which does not exist")
        track_length = np.diff(points.track_start)
        return Observations(image_row, point_row, pixel.reshape(-1, 2), image_count, track_length)

    def has_same_numbers(self, other: ColmapModel) -> bool:
        """Whether nothing that an adjustment may change differs in the same model."""
        pairs = [
            *((one.params, two.params) for one, two in zip(self.cameras, other.cameras, strict=True)),
            (self.images.quaternion, other.images.quaternion),
            (self.images.translation, other.images.translation),
            (self.points.xyz, other.points.xyz),
            (self.points.error, other.points.error),
        ]
        if self.frames is not None and other.frames is not None:
            pairs.append((self.frames.pose, other.frames.pose))
        for one, two in zip(self.rigs, other.rigs, strict=True):
            poses = zip(one.sensors, two.sensors, strict=True)
            pairs += [(a.pose, b.pose) for a, b in poses if a.pose is not None and b.pose is not None]
        return all(np.array_equal(one, two) for one, two in pairs)

    def check(self, path: str) -> None:
        """Raise FormatError for ids used twice and references to what does not exist."""
        camera_ids = np.array([camera.id for camera in self.cameras], np.int64)
        for what, ids in (("camera", camera_ids), ("image", self.images.ids), ("point", self.points.ids)):
            distinct, count = np.unique(ids, return_counts=True)
            if len(distinct) != len(ids):
                raise FormatError(f"{path}: {what} id {distinct[count > 1][0]} is used twice")
        missing = ~np.isin(self.images.camera_ids, camera_ids)
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            raise FormatError(
                f"{path}: image {self.images.ids[row]} names camera {self.images.camera_ids[row]}, "
                "which does not exist"
            )
        self._check_finite(path)
        if self.seen is None:
            self._check_tracks(path)
        if self.frames is not None:
            _check_rigs(self, path)

    def _check_finite(self, path: str) -> None:
        for camera in self.cameras:
            if not np.isfinite(camera.params).all():
                raise FormatError(f"{path}: camera {camera.id} has a parameter that is not finite")
        for what, ids, arrays in (
            ("image", self.images.ids, (self.images.quaternion, self.images.translation)),
            ("point", self.points.ids, (self.points.xyz,)),
        ):
            for values in arrays:
                bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
                if len(bad):
                    raise FormatError(f"{path}: {what} {ids[bad[0]]} has a number that is not finite")
        with np.errstate(over="ignore"):
            length = np.linalg.norm(self.images.quaternion, axis=1)
        wrong = np.flatnonzero(~(length > 1e-12) | ~np.isfinite(length))
        if len(wrong):
            raise FormatError(
                f"{path}: image {self.images.ids[wrong[0]]} has a quaternion of length "
                f"{length[wrong[0]]:g}, expected 1"
            )

        if self.seen is not None:
            bad = np.flatnonzero(~np.isfinite(self.seen.pixel).all(axis=1))
            if len(bad):
                image, point = self.images.ids[self.seen.image_row[bad[0]]], self.seen.point_row[bad[0]]
                raise FormatError(
                    f"{path}: the keypoint of image {image} on point {self.points.ids[point]} is not finite"
                )

    def _check_tracks(self, path: str) -> None:
        track = self.points.track
        point_of = np.repeat(self.points.ids, np.diff(self.points.track_start))
        missing = np.flatnonzero(~np.isin(track[:, 0], self.images.ids))
        if len(missing):
            k = missing[0]
            raise FormatError(
                f"{path}: the track of point {point_of[k]} names image {track[k, 0]}, which does not exist"
            )
        row = _rows_of(self.images, track[:, 0])
        beyond = np.flatnonzero((track[:, 1] < 0) | (track[:, 1] >= np.diff(self.images.keypoint_start)[row]))
        if len(beyond):
            k = beyond[0]
            raise FormatError(
                f"{path}: the track of point {point_of[k]} names keypoint {track[k, 1]} of image "
                f"{track[k, 0]}, "
                f"which has {np.diff(self.images.keypoint_start)[row[k]]}"
            )
        pixel = self.images.xy[self.images.keypoint_start[row] + track[:, 1]]
        bad = np.flatnonzero(~np.isfinite(pixel).all(axis=1))
        if len(bad):
            raise FormatError(
                f"{path}: keypoint {track[bad[0], 1]} of image {track[bad[0], 0]} is not finite"
            )


def _rows_of(images: ColmapImages, wanted: np.ndarray) -> np.ndarray:
    """Row (m,) int32 of each wanted id; all must be there."""
    return IdIndex([images]).find_rows(np.ascontiguousarray(wanted, np.int64)[:, None])[0][:, 0]


def _check_rigs(model: ColmapModel, path: str) -> None:
    """Raise FormatError for ids used twice, references to what does not exist, and poses that are none."""
    assert model.frames is not None
    frames = model.frames
    rigs = {rig.id: rig for rig in model.rigs}
    for what, ids in (("rig", [rig.id for rig in model.rigs]), ("frame", frames.ids.tolist())):
        if len(set(ids)) != len(ids):
            twice = next(id_ for id_ in ids if ids.count(id_) > 1)
            raise FormatError(f"{path}: {what} id {twice} is used twice")
    cameras = {camera.id for camera in model.cameras}
    for rig in model.rigs:
        for sensor in rig.sensors:
            if sensor.type == CAMERA and sensor.id not in cameras:
                raise FormatError(f"{path}: rig {rig.id} names camera {sensor.id}, which does not exist")
            if sensor.pose is not None:
                _check_poses(sensor.pose[None], f"{path}: rig {rig.id}, sensor {sensor.id}")
    for row, rig_id in enumerate(frames.rig_ids.tolist()):
        where = f"{path}: frame {frames.ids[row]}"
        if rig_id not in rigs:
            raise FormatError(f"{where} names rig {rig_id}, which does not exist")
        _check_poses(frames.pose[row : row + 1], where)
    _check_images(model, path, rigs)


def _check_poses(pose: np.ndarray, where: str) -> None:
    with np.errstate(over="ignore"):
        length = np.linalg.norm(pose[:, :4], axis=1)
    if not np.isfinite(pose).all() or not ((length > 1e-12) & np.isfinite(length)).all():
        raise FormatError(f"{where}: the pose {pose[0].tolist()} is none, expected a unit quaternion and t")


def _check_images(model: ColmapModel, path: str, rigs: dict[int, ColmapRig]) -> None:
    """Every image is in one frame, seen by a camera of its rig that is its own."""
    assert model.frames is not None
    camera_of = dict(zip(model.images.ids.tolist(), model.images.camera_ids.tolist(), strict=True))
    seen: set[int] = set()
    for row, data in enumerate(model.frames.data):
        where = f"{path}: frame {model.frames.ids[row]}"
        rig = rigs[int(model.frames.rig_ids[row])]
        for kind, sensor_id, image_id in data.tolist():
            if kind != CAMERA or image_id not in camera_of:
                continue
            if camera_of[image_id] != sensor_id:
                raise FormatError(
                    f"{where}: image {image_id} was taken by camera {camera_of[image_id]}, not {sensor_id}"
                )
            if image_id in seen:
                raise FormatError(f"{where}: image {image_id} is in two frames")
            if not any((sensor.type, sensor.id) == (CAMERA, sensor_id) for sensor in rig.sensors):
                raise FormatError(f"{where}: rig {rig.id} has no camera {sensor_id}")
            seen.add(image_id)
    alone = set(camera_of) - seen
    if alone:
        raise FormatError(f"{path}: image {min(alone)} is in no frame")
