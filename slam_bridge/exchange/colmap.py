"""Maps to and from COLMAP sparse models.

    map                        COLMAP
    camera of the rig          camera and sensor of the one rig; the first is the rig's reference
    keyframe in row k          frame k + 1: rig_T_world = cam0_T_world
    its cameras                images "cam0/<stamp>.png", each with its keypoints
    landmark, observations     point3D, track; error: mean distance of projections [px]

Pixels: COLMAP's are 0.5 larger, its (0, 0) is the upper left corner of the image, not of a pixel's middle.
COLMAP has no right columns, depths, noise, velocities, biases or IMU: `write_colmap_map` says what was left
out. Image names of digits are stamps [ns]; others are numbered.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from graphopt.colmap import read_colmap, write_colmap
from graphopt.colmap.model import (
    CAMERA,
    ColmapCamera,
    ColmapFrames,
    ColmapImages,
    ColmapModel,
    ColmapPoints,
    ColmapRig,
    ColmapSensor,
)
from graphopt.colmap.rigs import add_trivial, from_storage, places_of, to_storage
from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.map import Map
from slam_bridge.map_check import check_map
from slam_bridge.readers.damage import refused_as

_MIDDLE = 0.5  # of a pixel, in COLMAP's coordinates
_IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
_SECOND = 1_000_000_000


def write_colmap_map(world: Map, folder: str | os.PathLike[str], as_text: bool = False) -> list[str]:
    """Write a map as a sparse model; the sentences say what COLMAP has no place for.

    Raises `OptionError` for camera models that COLMAP lacks (double_sphere, omni) and for cameras without a
    resolution.
    """
    with world.lock:
        model = model_of_map(world)
        write_colmap(model, folder, as_text)
        return _left_out(world)


def read_colmap_map(folder: str | os.PathLike[str], sigma: float = 1.0) -> Map:
    """The map of a sparse model; sigma [px] of all its observations, as COLMAP knows none.

    The body is the reference of the rig; all images belong to one rig, or each camera is a rig of its own.
    """
    name = os.fspath(folder)
    model = read_colmap(folder)
    with refused_as(name, "no model that a map can be made of; export it anew, all files at once"):
        _refuse_lost_points(model, name)
        world = map_of_model(model, name, sigma)
        check_map(world)
        return world


def _refuse_lost_points(model: ColmapModel, name: str) -> None:
    """Keypoints name points: those that are not there were lost, as at the end of a file that was cut."""
    named = model.images.point_ids
    lost = np.flatnonzero((named >= 0) & ~np.isin(named, model.points.ids))
    if len(lost):
        row = int(np.searchsorted(model.images.keypoint_start, lost[0], "right")) - 1
        raise FormatError(
            f"{name}: image {model.images.ids[row]} has a keypoint of point {named[lost[0]]}, which "
            f"points3D does not have ({len(lost)} keypoints in all). Copy points3D again, or export the "
            "model anew with COLMAP's model_converter."
        )


# ------------------------------------------------------------------------ to COLMAP


def model_of_map(world: Map) -> ColmapModel:
    """A map as a sparse model, frames and rig included."""
    if world.rig is None or not len(world.observations):
        raise OptionError("the map has no observations; a sparse model is made of them.")
    cameras = [_colmap_camera(number + 1, camera) for number, camera in enumerate(world.rig)]
    first = SE3(world.rig[0].body_T_cam)
    sensors = [ColmapSensor(CAMERA, 1, None)]
    for number, camera in enumerate(world.rig):
        if number:
            pose = np.asarray((SE3(camera.body_T_cam).inverse() * first).storage)[None]
            sensors.append(ColmapSensor(CAMERA, number + 1, from_storage(pose)[0]))
    frames = world.keyframes
    rig_T_world = np.asarray((SE3(frames["world_T_body"]) * first).inverse().storage)
    images, track = _images(world, rig_T_world)
    data = [
        np.array([[CAMERA, c + 1, k * len(cameras) + c + 1] for c in range(len(cameras))], np.int64)
        for k in range(len(frames))
    ]
    poses = ColmapFrames(
        np.arange(1, len(frames) + 1), np.ones(len(frames), np.int64), from_storage(rig_T_world), data
    )
    return ColmapModel(cameras, images, _points(world, track), [], [ColmapRig(1, sensors)], poses)


def _images(world: Map, rig_T_world: np.ndarray) -> tuple[ColmapImages, np.ndarray]:
    """Images of all keyframes and cameras; per observation (o, 2): image id, number of its keypoint."""
    assert world.rig is not None
    seen, frames, count = world.observations, world.keyframes, len(world.rig)
    image = frames.rows(seen["keyframe"]) * count + seen["camera"]
    order = np.argsort(image, kind="stable")
    start = np.searchsorted(image[order], np.arange(len(frames) * count + 1))
    place = np.empty(len(image), np.int64)
    place[order] = np.arange(len(image)) - start[image[order]]
    sensors = np.stack([camera.body_T_cam for camera in world.rig])
    cam_T_cam0 = SE3(sensors).inverse() * SE3(sensors[:1])
    poses = from_storage(
        np.asarray((SE3(cam_T_cam0.storage[None]) * SE3(rig_T_world[:, None])).storage).reshape(-1, 7)
    )
    names = [f"{name}/{stamp:019d}.png" for stamp in frames["stamp"].tolist() for name in world.rig.names]
    images = ColmapImages(
        np.arange(1, len(names) + 1),
        poses[:, :4],
        poses[:, 4:],
        np.tile(np.arange(1, count + 1), len(frames)),
        names,
        start.astype(np.int64),
        seen["pixel"][order] + _MIDDLE,
        world.landmarks.rows(seen["landmark"])[order] + 1,
    )
    return images, np.stack([image + 1, place], axis=1)


def _points(world: Map, track: np.ndarray) -> ColmapPoints:
    assert world.rig is not None
    seen, landmarks = world.observations, world.landmarks
    row = landmarks.rows(seen["landmark"])
    order = np.argsort(row, kind="stable")
    poses = world.keyframes["world_T_body"][world.keyframes.rows(seen["keyframe"])]
    inside = world.rig.in_cameras(seen["camera"], poses, landmarks["position"][row])
    away = np.linalg.norm(world.rig.project(seen["camera"], inside)[0] - seen["pixel"], axis=1)
    known = np.isfinite(away)
    number = np.bincount(row[known], minlength=len(landmarks))
    total = np.bincount(row[known], away[known], minlength=len(landmarks))
    return ColmapPoints(
        np.arange(1, len(landmarks) + 1),
        landmarks["position"].copy(),
        np.full((len(landmarks), 3), 128, np.uint8),
        np.where(number > 0, total / np.maximum(number, 1), -1.0),
        np.searchsorted(row[order], np.arange(len(landmarks) + 1)).astype(np.int64),
        track[order],
    )


def _colmap_camera(number: int, camera: Camera) -> ColmapCamera:
    if camera.resolution is None:
        raise OptionError(f"camera {number - 1} has no resolution, which COLMAP needs: Camera(resolution=).")
    values = camera.intrinsics
    params = np.concatenate([values[:2], values[2:4] + _MIDDLE, values[4:]])
    if camera.model == "radtan":
        if values[8] == 0.0:
            name, params = "OPENCV", params[:8]
        else:  # fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6
            name, params = "FULL_OPENCV", np.concatenate([params, np.zeros(3)])
    elif camera.model in ("pinhole", "kb8"):
        name = {"pinhole": "PINHOLE", "kb8": "OPENCV_FISHEYE"}[camera.model]
    else:
        raise OptionError(
            f"camera {number - 1} is a {camera.model}; COLMAP has pinhole, radtan and kb8 (OPENCV_FISHEYE)."
        )
    return ColmapCamera(number, name, *camera.resolution, params)


def _left_out(world: Map) -> list[str]:
    seen = world.observations
    counts = {
        "columns in right images": int(np.isfinite(seen["right"]).sum()),
        "measured depths": int(np.isfinite(seen["depth"]).sum()),
        "standard deviations of pixels": int((seen["sigma"] != 1.0).sum()),
        "velocities and biases of keyframes": int(world.keyframes["has_states"].sum()),
        "IMU measurements": len(world.imu),
        "loops": len(world.loops),
        "marginal and pose priors": len(world.priors) + len(world.pose_priors),
    }
    return [f"{count} {what} are not in COLMAP's format" for what, count in counts.items() if count]


# ------------------------------------------------------------------------ from COLMAP


def map_of_model(model: ColmapModel, path: str = "the model", sigma: float = 1.0) -> Map:
    """The map of a sparse model; `FormatError` for camera models without a counterpart."""
    if model.frames is None:
        add_trivial(model)
    assert model.frames is not None
    rigs = [rig for rig in model.rigs if rig.id in set(model.frames.rig_ids.tolist())]
    cameras, number_of = _rig(model, rigs, path)
    world = Map(Rig(cameras))
    places = places_of(model, path)
    frames, first, of_frame = np.unique(places.frame, return_index=True, return_inverse=True)
    stamps = np.array([_stamp(model.images.names[row], k) for k, row in enumerate(first.tolist())], np.int64)
    order = np.argsort(stamps, kind="stable")
    rank = np.argsort(order)
    poses = np.asarray(SE3(to_storage(model.frames.pose[frames])).inverse().storage)
    ids = world.add_keyframes(stamps[order], poses[order])
    landmarks = world.add_landmarks(model.points.xyz)
    image, point, pixel = model.observations()[:3]
    camera = np.array([number_of[camera_id] for camera_id in model.images.camera_ids.tolist()])[image]
    world.add_observations(ids[rank[of_frame[image]]], landmarks[point], pixel - _MIDDLE, camera, sigma=sigma)
    return world


def _rig(model: ColmapModel, rigs: list[ColmapRig], path: str) -> tuple[list[Camera], dict[int, int]]:
    """Cameras, and the number of each camera id; the body is the rig's reference."""
    by_id = {camera.id: camera for camera in model.cameras}
    sensors = [each_sensor for rig in rigs for each_sensor in rig.sensors if each_sensor.type == CAMERA]
    if len(rigs) > 1 and any(len(rig.sensors) > 1 for rig in rigs):
        raise FormatError(f"{path}: {len(rigs)} rigs of several cameras; a map has one rig.")
    cameras = []
    for sensor in sensors:
        body_T_cam = _IDENTITY
        if sensor.pose is not None:
            body_T_cam = np.asarray(SE3(to_storage(sensor.pose[None])).inverse().storage)[0]
        cameras.append(_camera(by_id[sensor.id], body_T_cam, path))
    return cameras, {sensor.id: number for number, sensor in enumerate(sensors)}


_PINHOLES = {"SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"}


def _camera(given: ColmapCamera, body_T_cam: np.ndarray, path: str) -> Camera:
    p = given.params
    one_focal = given.model in ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
    centre = p[1:3] if one_focal else p[2:4]
    rest = p[3:] if one_focal else p[4:]
    focal = [p[0], p[0]] if one_focal else p[:2]
    values = np.concatenate([focal, centre - _MIDDLE])
    size: Any = {"resolution": (given.width, given.height), "name": f"cam{given.id}"}
    if given.model == "OPENCV_FISHEYE":
        return Camera(body_T_cam, "kb8", np.concatenate([values, rest]), **size)
    if given.model not in _PINHOLES or (given.model == "FULL_OPENCV" and rest[5:].any()):
        raise FormatError(
            f"{path}: camera {given.id} is a {given.model}{' with k4 to k6' if len(rest) > 5 else ''}; a map "
            "has pinhole, radtan and kb8. Undistort the model with COLMAP's image_undistorter."
        )
    if not rest.any():
        return Camera(body_T_cam, "pinhole", values, **size)
    distortion = np.zeros(5)  # k1 k2 p1 p2 k3
    distortion[: min(len(rest), 5)] = rest[:5]
    return Camera(body_T_cam, "radtan", np.concatenate([values, distortion]), **size)


def _stamp(name: str, number: int) -> int:
    stem = PurePosixPath(name).stem
    return int(stem) if stem.isdigit() and len(stem) <= 19 else number * _SECOND
