"""Rigs and frames of COLMAP 3.12 and later: where the poses of a model stand there.

    cam_T_world = sensor_T_rig rig_T_world

A rig lists sensors, the first of which is its reference (sensor_T_rig is the identity). A frame is one
exposure of a rig: rig_T_world and the images that were taken. Models without these files have one rig per
camera and one frame per image, with the same ids, as COLMAP itself makes of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphopt.colmap.model import CAMERA, ColmapFrames, ColmapModel, ColmapRig, ColmapSensor
from graphopt.errors import FormatError
from graphopt.geometry import SE3

_SAME_POSE = 1e-6
"""Difference of a pose in images and in frames that is rounding, relative to 1 + |t|."""


class Places(NamedTuple):
    """Where the images of a model stand."""

    frame: np.ndarray  # (num_images,) row of its frame
    owner: np.ndarray  # (num_images,) row of the first image of its frame
    offset: np.ndarray  # (num_images,) row of `offsets`, -1 for the reference sensor
    offsets: np.ndarray  # (k, 7) x y z qx qy qz qw of rig_T_sensor
    sensors: tuple[tuple[int, int], ...] = ()  # (k) rig and camera of each of them


def to_storage(pose: np.ndarray) -> np.ndarray:
    """(n, 7) w x y z, t as COLMAP has them -> x y z qx qy qz qw with unit quaternions."""
    unit = pose[:, :4] / np.linalg.norm(pose[:, :4], axis=1, keepdims=True)
    return np.concatenate([pose[:, 4:], unit[:, 1:], unit[:, :1]], axis=1)


def from_storage(storage: np.ndarray) -> np.ndarray:
    """(n, 7) x y z qx qy qz qw -> w x y z, t."""
    return storage[:, [6, 3, 4, 5, 0, 1, 2]]


def add_trivial(model: ColmapModel) -> None:
    """Give a model without rigs one per camera, and one frame per image."""
    images = model.images
    model.rigs = [ColmapRig(camera.id, [ColmapSensor(CAMERA, camera.id, None)]) for camera in model.cameras]
    pose = np.concatenate([images.quaternion, images.translation], axis=1)
    pairs = zip(images.camera_ids.tolist(), images.ids.tolist(), strict=True)
    data = [np.array([[CAMERA, camera, image]], np.int64) for camera, image in pairs]
    model.frames = ColmapFrames(images.ids.copy(), images.camera_ids.copy(), pose, data)


def places_of(model: ColmapModel, path: str) -> Places:
    """Frame and sensor of each image. FormatError if a sensor that took images has no known pose."""
    num_images = len(model.images.ids)
    rows = np.arange(num_images)
    if model.frames is None:
        return Places(rows, rows, np.full(num_images, -1), np.empty((0, 7)))
    row_of = dict(zip(model.images.ids.tolist(), range(num_images), strict=True))
    rigs = {rig.id: rig for rig in model.rigs}
    frame, offset = np.zeros(num_images, np.int64), np.full(num_images, -1)
    known: dict[tuple[int, int], int] = {}
    offsets: list[np.ndarray] = []
    for number, data in enumerate(model.frames.data):
        rig = rigs[int(model.frames.rig_ids[number])]
        for kind, sensor_id, image_id in data.tolist():
            row = row_of.get(image_id) if kind == CAMERA else None
            if row is None:
                continue
            frame[row] = number
            if (rig.sensors[0].type, rig.sensors[0].id) == (CAMERA, sensor_id):
                continue
            if (rig.id, sensor_id) not in known:
                known[rig.id, sensor_id] = len(offsets)
                offsets.append(_rig_T_sensor(rig, sensor_id, path))
            offset[row] = known[rig.id, sensor_id]
    first = np.full(len(model.frames.ids), num_images)
    np.minimum.at(first, frame, rows)
    return Places(frame, first[frame], offset, np.array(offsets).reshape(-1, 7), tuple(known))


def moved_rigs(rigs: list[ColmapRig], places: Places) -> list[ColmapRig]:
    """The rigs with the places of their sensors as `places` has them."""
    poses = from_storage(np.asarray(SE3(places.offsets).inverse().storage).reshape(-1, 7))
    new = dict(zip(places.sensors, poses, strict=True))
    return [
        ColmapRig(
            rig.id,
            [
                sensor._replace(pose=new.get((rig.id, sensor.id), sensor.pose))
                if sensor.type == CAMERA
                else sensor
                for sensor in rig.sensors
            ],
        )
        for rig in rigs
    ]


def _rig_T_sensor(rig: ColmapRig, sensor_id: int, path: str) -> np.ndarray:
    pose = next(sensor.pose for sensor in rig.sensors if (sensor.type, sensor.id) == (CAMERA, sensor_id))
    if pose is None:
        raise FormatError(
            f"{path}: camera {sensor_id} has no pose in rig {rig.id}; let COLMAP's rig_configurator or "
            "bundle adjuster find one first"
        )
    with np.errstate(all="ignore"):
        inverse = np.asarray(SE3(to_storage(pose[None])).inverse().storage)[0]
    if not np.isfinite(inverse).all():
        raise FormatError(f"{path}: camera {sensor_id} of rig {rig.id} stands beyond the largest double")
    return inverse


def image_poses(places: Places, rig_T_world: np.ndarray) -> np.ndarray:
    """(num_images, 7) x y z qx qy qz qw of cam_T_world from the poses (num_frames, 7) of all frames."""
    poses = rig_T_world[places.frame].copy()
    moved = places.offset >= 0
    if moved.any():
        rig_T_sensor = SE3(places.offsets[places.offset[moved]])
        with np.errstate(all="ignore"):
            poses[moved] = np.asarray((rig_T_sensor.inverse() * SE3(poses[moved])).storage)
    return poses


def outdated(model: ColmapModel, path: str) -> np.ndarray:
    """Whether an image (num_images,) has another pose in images than in rigs and frames."""
    if model.frames is None or len(model.images.ids) == 0:
        return np.zeros(len(model.images.ids), bool)
    with np.errstate(all="ignore"):
        frames = image_poses(places_of(model, path), to_storage(model.frames.pose))
        images = to_storage(np.concatenate([model.images.quaternion, model.images.translation], axis=1))
        difference = SE3(frames).to_matrix()[:, :3] - SE3(images).to_matrix()[:, :3]
        scale = 1.0 + np.linalg.norm(images[:, :3], axis=1)
        return np.abs(difference).max(axis=(1, 2)) > _SAME_POSE * scale
