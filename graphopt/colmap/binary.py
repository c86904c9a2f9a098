"""COLMAP's binary files: cameras, images, points3D, rigs and frames.bin; little endian, counts first.

Each file holds a number n as uint64, then n entries:

    cameras   id uint32, model int32, width uint64, height uint64, parameters double
    images    id uint32, q (w x y z) double, t double, camera uint32, name ending in 0,
              k uint64, k times (x double, y double, point id uint64)
    points3D  id uint64, xyz double, rgb uint8, error double,
              k uint64, k times (image uint32, keypoint uint32)
    rigs      id uint32, k uint32, reference (type int32, id uint32), k - 1 times (type int32, id uint32,
              known uint8, if known: q (w x y z) double, t double)
    frames    id uint32, rig uint32, q (w x y z) double, t double,
              k uint32, k times (sensor type int32, sensor id uint32, image uint64)
"""

from __future__ import annotations

import struct

import numpy as np

from graphopt._native import join_records, split_records
from graphopt.colmap.model import (
    MODEL_NAMES,
    MODELS,
    SENSOR_TYPES,
    ColmapCamera,
    ColmapFrames,
    ColmapImages,
    ColmapPoints,
    ColmapRig,
    ColmapSensor,
)
from graphopt.errors import FormatError

KEYPOINT = np.dtype([("x", "<f8"), ("y", "<f8"), ("point_id", "<i8")])
TRACK = np.dtype([("image", "<u4"), ("keypoint", "<u4")])
_CAMERA = struct.Struct("<IiQQ")
IMAGE = struct.Struct("<I7dI")
POINT = np.dtype([("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("length", "<u8")])
_RIG = struct.Struct("<II")
_SENSOR = struct.Struct("<iI")
_FRAME = struct.Struct("<II7dI")
_DATA = np.dtype([("type", "<i4"), ("sensor", "<u4"), ("image", "<u8")])


class _Cursor:
    """Reads packed structures; every size is checked against what is left before anything is made."""

    def __init__(self, data: bytes, path: str):
        self.data = data
        self.path = path
        self.offset = 0

    def take(self, layout: struct.Struct, what: str) -> tuple:
        self.need(layout.size, what)
        values = layout.unpack_from(self.data, self.offset)
        self.offset += layout.size
        return values

    def count(self, what: str, bytes_each: int) -> int:
        """Take a uint64 count of things of at least bytes_each bytes."""
        (count,) = self.take(struct.Struct("<Q"), f"number of {what}")
        if count > (len(self.data) - self.offset) // bytes_each:
            raise FormatError(
                f"{self.path}: byte {self.offset - 8}: {count} {what} cannot stand in the remaining "
                f"{len(self.data) - self.offset} bytes"
            )
        return count

    def need(self, size: int, what: str) -> None:
        if size > len(self.data) - self.offset:
            raise FormatError(f"{self.path}: ends in the middle of {what}, at byte {self.offset}")

    def array(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        self.need(count * dtype.itemsize, what)
        values = np.frombuffer(self.data, dtype, count, self.offset)
        self.offset += count * dtype.itemsize
        return values

    def text(self, what: str) -> str:
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise FormatError(f"{self.path}: ends in the middle of {what}, at byte {self.offset}")
        value = self.data[self.offset : end].decode("utf-8", "surrogateescape")
        self.offset = end + 1
        return value

    def end(self) -> None:
        if self.offset != len(self.data):
            raise FormatError(f"{self.path}: {len(self.data) - self.offset} bytes follow the last entry")


def parse_cameras(data: bytes, path: str) -> list[ColmapCamera]:
    """Read cameras.bin."""
    cursor = _Cursor(data, path)
    cameras = []
    for _ in range(cursor.count("cameras", _CAMERA.size)):
        camera_id, number, width, height = cursor.take(_CAMERA, "a camera")
        if number not in MODEL_NAMES:
            raise FormatError(
                f"{path}: camera {camera_id} has model {number}, expected 0 to {max(MODEL_NAMES)}"
            )
        name = MODEL_NAMES[number]
        params = cursor.array(np.dtype("<f8"), MODELS[name].num_params, f"camera {camera_id}")
        cameras.append(ColmapCamera(camera_id, name, width, height, params.astype(np.float64)))
    cursor.end()
    return cameras


def parse_images(data: bytes, path: str) -> ColmapImages:
    """Read images.bin."""
    cursor = _Cursor(data, path)
    heads, names, keypoints = [], [], []
    for _ in range(cursor.count("images", IMAGE.size)):
        heads.append(cursor.take(IMAGE, "an image"))
        names.append(cursor.text(f"the name of image {heads[-1][0]}"))
        what = f"keypoints of image {heads[-1][0]}"
        keypoints.append(cursor.array(KEYPOINT, cursor.count(what, KEYPOINT.itemsize), what))
    cursor.end()
    table = np.array(heads, np.float64).reshape(-1, 9)
    every = np.concatenate(keypoints) if keypoints else np.empty(0, KEYPOINT)
    return ColmapImages(
        ids=table[:, 0].astype(np.int64),
        quaternion=table[:, 1:5].copy(),
        translation=table[:, 5:8].copy(),
        camera_ids=table[:, 8].astype(np.int64),
        names=names,
        keypoint_start=np.cumsum([0] + [len(k) for k in keypoints]),
        xy=np.stack([every["x"], every["y"]], axis=1),
        point_ids=every["point_id"].astype(np.int64),
    )


def parse_points(data: bytes, path: str) -> ColmapPoints:
    """Read points3D.bin."""
    cursor = _Cursor(data, path)
    count = cursor.count("points", POINT.itemsize)
    whole = split_records(bytes(data), cursor.offset, count, POINT.itemsize, TRACK.itemsize)
    heads, elements = np.frombuffer(whole[0], POINT), np.frombuffer(whole[1], TRACK)
    large = np.flatnonzero(heads["id"] >= 1 << 63)
    if len(large):
        raise FormatError(f"{path}: point id {heads['id'][large[0]]} does not fit into 63 bits")
    cursor.offset = whole[3]
    if len(heads) < count:
        head = cursor.array(POINT, 1, "a point")[0]
        cursor.array(TRACK, int(head["length"]), f"the track of point {head['id']}")
    cursor.end()
    return ColmapPoints(
        ids=heads["id"].astype(np.int64),
        xyz=heads["xyz"].astype(np.float64),
        rgb=heads["rgb"].copy(),
        error=heads["error"].astype(np.float64),
        track_start=whole[2],
        track=np.stack([elements["image"], elements["keypoint"]], axis=1).astype(np.int64),
    )


def parse_rigs(data: bytes, path: str) -> list[ColmapRig]:
    """Read rigs.bin."""
    cursor = _Cursor(data, path)
    rigs = []
    for _ in range(cursor.count("rigs", _RIG.size)):
        rig_id, num_sensors = cursor.take(_RIG, "a rig")
        sensors = []
        for number in range(num_sensors):
            kind, sensor_id = cursor.take(_SENSOR, f"sensor {number} of rig {rig_id}")
            if kind not in SENSOR_TYPES:
                raise FormatError(f"{path}: rig {rig_id} has a sensor of type {kind}, expected -1, 0 or 1")
            pose = None
            if number and cursor.take(struct.Struct("<B"), "a flag")[0]:
                pose = cursor.array(np.dtype("<f8"), 7, f"the pose of sensor {sensor_id}").astype(float)
            sensors.append(ColmapSensor(kind, sensor_id, pose))
        rigs.append(ColmapRig(rig_id, sensors))
    cursor.end()
    return rigs


def parse_frames(data: bytes, path: str) -> ColmapFrames:
    """Read frames.bin."""
    cursor = _Cursor(data, path)
    heads, lists = [], []
    for _ in range(cursor.count("frames", _FRAME.size)):
        heads.append(cursor.take(_FRAME, "a frame"))
        raw = cursor.array(_DATA, heads[-1][9], f"the images of frame {heads[-1][0]}")
        columns = (raw["type"], raw["sensor"], raw["image"])
        lists.append(np.stack([column.astype(np.int64) for column in columns], axis=1))
    cursor.end()
    table = np.array(heads, np.float64).reshape(-1, 10)
    return ColmapFrames(
        table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:9].copy(), lists
    )


def format_cameras(cameras: list[ColmapCamera]) -> bytes:
    """Content of cameras.bin."""
    parts = [struct.pack("<Q", len(cameras))]
    for camera in cameras:
        parts.append(_CAMERA.pack(camera.id, MODELS[camera.model].colmap_id, camera.width, camera.height))
        parts.append(camera.params.astype("<f8").tobytes())
    return b"".join(parts)


def format_images(images: ColmapImages) -> bytes:
    """Content of images.bin."""
    parts = [struct.pack("<Q", len(images.ids))]
    keypoints = np.empty(len(images.xy), KEYPOINT)
    keypoints["x"], keypoints["y"], keypoints["point_id"] = images.xy[:, 0], images.xy[:, 1], images.point_ids
    for row, image_id in enumerate(images.ids.tolist()):
        pose = [*images.quaternion[row].tolist(), *images.translation[row].tolist()]
        parts.append(IMAGE.pack(image_id, *pose, int(images.camera_ids[row])))
        parts.append(images.names[row].encode("utf-8", "surrogateescape") + b"\0")
        begin, end = images.keypoint_start[row : row + 2].tolist()
        parts.append(struct.pack("<Q", end - begin) + keypoints[begin:end].tobytes())
    return b"".join(parts)


def format_points(points: ColmapPoints) -> bytes:
    """Content of points3D.bin."""
    heads, track = np.empty(len(points.ids), POINT), np.empty(len(points.track), TRACK)
    track["image"], track["keypoint"] = points.track[:, 0], points.track[:, 1]
    heads["id"], heads["xyz"], heads["rgb"] = points.ids, points.xyz, points.rgb
    heads["error"], heads["length"] = points.error, np.diff(points.track_start)
    entries = join_records(
        heads.tobytes(), track.tobytes(), points.track_start, POINT.itemsize, TRACK.itemsize
    )
    return struct.pack("<Q", len(heads)) + entries


def format_rigs(rigs: list[ColmapRig]) -> bytes:
    """Content of rigs.bin."""
    parts = [struct.pack("<Q", len(rigs))]
    for rig in rigs:
        parts.append(_RIG.pack(rig.id, len(rig.sensors)))
        for number, sensor in enumerate(rig.sensors):
            parts.append(_SENSOR.pack(sensor.type, sensor.id))
            if number:
                pose = b"" if sensor.pose is None else sensor.pose.astype("<f8").tobytes()
                parts.append(struct.pack("<B", sensor.pose is not None) + pose)
    return b"".join(parts)


def format_frames(frames: ColmapFrames) -> bytes:
    """Content of frames.bin."""
    parts = [struct.pack("<Q", len(frames.ids))]
    for row, frame_id in enumerate(frames.ids.tolist()):
        data = np.empty(len(frames.data[row]), _DATA)
        for column, name in enumerate(_DATA.names or ()):
            data[name] = frames.data[row][:, column]
        pose = frames.pose[row].tolist()
        parts.append(_FRAME.pack(frame_id, int(frames.rig_ids[row]), *pose, len(data)) + data.tobytes())
    return b"".join(parts)
