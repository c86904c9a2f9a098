"""A COLMAP sparse reconstruction as arrays, and its consistency.

Pixels: x to the right, y down, the upper left corner of the image is (0, 0). `cam_T_world` maps world to
camera coordinates, z forward. The camera models' parameters are listed in `MODELS` in COLMAP's order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from graphopt.colmap import rigs
from graphopt.colmap.rigs import ColmapFrames, ColmapRig
from graphopt.errors import FormatError
from graphopt.geometry.cameras import CAMERA_MODELS, CameraModel

MODELS: dict[str, CameraModel] = {
    name: model for name, model in CAMERA_MODELS.items() if model.colmap_id is not None
}
"""COLMAP's camera models."""
MODEL_NAMES = {model.colmap_id or 0: name for name, model in MODELS.items()}
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

    seen: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """`observations` of a model without tracks and keypoints, one that was taken from memory."""

    def observations(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Image row (m,), point row (m,) and pixel (m, 2) of every track element."""
        if self.seen is not None:
            return self.seen
        image_row = _rows_of(self.images.ids, self.points.track[:, 0])
        point_row = np.repeat(np.arange(len(self.points.ids)), np.diff(self.points.track_start))
        pixel = self.images.xy[self.images.keypoint_start[image_row] + self.points.track[:, 1]]
        return image_row, point_row, pixel

    def track_lengths(self) -> np.ndarray:
        """(points,) number of observations of each point."""
        if self.seen is not None:
            return np.bincount(self.seen[1], minlength=len(self.points.ids))
        return np.diff(self.points.track_start)

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
        self._check_tracks(path)
        if self.frames is not None:
            rigs.check(self, path)

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

    def _check_tracks(self, path: str) -> None:
        track = self.points.track
        point_of = np.repeat(self.points.ids, np.diff(self.points.track_start))
        missing = np.flatnonzero(~np.isin(track[:, 0], self.images.ids))
        if len(missing):
            k = missing[0]
            raise FormatError(
                f"{path}: the track of point {point_of[k]} names image {track[k, 0]}, which does not exist"
            )
        row = _rows_of(self.images.ids, track[:, 0])
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


def _rows_of(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Row of each wanted id; all must be there."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids, wanted, sorter=order)] if len(ids) else np.empty(0, np.int64)
