"""Maps of ORB-SLAM2 and 3 in Osmap's files (github.com/AlejandroSilvestri/osmap): reading and writing.

    NAME.keyframes   id, pose cam_T_world (3, 4), number of its K
    NAME.mappoints   id, position
    NAME.features    per keyframe: map point, undistorted pixel, octave
    NAME.yaml        names of these files, and the matrices K: fx fy cx cy

The three are protocol buffers (`osmap.proto`), floats of 32 bits. With FEATURES_FILE_DELIMITED among the
options features come in several messages, each with its size in front. Osmap has neither times nor right
columns: stamps are ids of keyframes in seconds. A feature without `mappoint_id` is of no map point.

ORB-SLAM3's own .osa files are archives of boost's serialization, whose bytes depend on compiler, boost and
the options they were built with, and do not say so; they are refused. Osmap leads out of it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3, SO3
from graphopt.io.files import write_together
from slam_bridge.cameras import Camera, refuse_non_rotations
from slam_bridge.map import Map
from slam_bridge.map_check import check_map
from slam_bridge.readers.damage import file_bytes, refused_as

_IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
_PARTS = ("keyframes", "mappoints", "features")
SCALE = 1.2
"""Between octaves, ORB-SLAM's default."""
_SECOND = 1_000_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # kinds of fields of protocol buffers


def read_osmap(path: str | os.PathLike[str], sigma: float = 1.0, scale: float = SCALE) -> Map:
    """Read NAME.yaml with the files it names; sigma [px] of octave 0, scale between octaves.

    Raises `FormatError`, also for ORB-SLAM3's own .osa.
    """
    yaml, name = Path(path), os.fspath(path)
    if yaml.suffix.lower() == ".osa":
        raise FormatError(
            f"{name}: an .osa is a boost archive, which only the program that wrote it can read. Save "
            "the map with Osmap (osmap.mapSave), or export COLMAP or TUM files."
        )
    text = file_bytes(yaml, "NAME.yaml of Osmap").decode("utf-8", "replace")
    with refused_as(name, "damaged, or no files of Osmap; copy all four files of the map again"):
        cameras = _cameras(text, name)
        content = {part: _part(yaml, text, part) for part in _PARTS}
        frames = [_keyframe(message) for message in _messages(content["keyframes"])]
        points = [_mappoint(message) for message in _messages(content["mappoints"])]
        for part, kind, messages in (
            ("keyframes", "nKeyframes", frames),
            ("mappoints", "nMappoints", points),
        ):
            _refuse_missing(text, kind, len(messages), part)
        parts = _pieces(content["features"], "FEATURES_FILE_DELIMITED" in text)
        features = [_features(message) for part in parts for message in _messages(part)]
        world = _map_of(cameras, frames, points, features, sigma, scale)
        check_map(world)
        return world


def _cameras(text: str, name: str) -> list[np.ndarray]:
    """fx fy cx cy of each matrix."""
    number = r"([-+.0-9eE]+)"
    pattern = r"fx\s*:\s*" + number + "".join(rf"[\s,]*{key}\s*:\s*" + number for key in ("fy", "cx", "cy"))
    matrices = [np.array([float(group) for group in groups]) for groups in re.findall(pattern, text)]
    if not matrices:
        raise FormatError(
            f"{name}: no camera matrix, expected 'fx: .. fy: .. cx: .. cy: ..', as Osmap writes."
        )
    return matrices


def _part(yaml: Path, text: str, part: str) -> bytes:
    """Content of one of the three files."""
    file = yaml.parent / _file_of(text, part, os.fspath(yaml))
    if not os.path.exists(file):  # also where no file can have the name
        raise FormatError(
            f"{os.fspath(yaml)}: names {file.name[:80]!r} as its {part}File, which is not beside it. Copy "
            "all four files of the map."
        )
    return file_bytes(file, f"the {part} of Osmap")


def _refuse_missing(text: str, kind: str, count: int, part: str) -> None:
    """A file that was cut between two messages looks whole; the header counts them."""
    match = re.search(rf"^\s*{kind}\s*:\s*(\d+)\s*$", text, re.MULTILINE)
    if match and count < int(match[1]):
        raise ValueError(f"the header says {match[1]} {part}, their file holds {count}: cut off")


def _file_of(text: str, part: str, name: str) -> str:
    match = re.search(rf"^\s*{part}File\s*:\s*\"?([^\"\s]+)\"?\s*$", text, re.MULTILINE)
    file = match[1] if match else f"{Path(name).stem}.{part}"
    return Path(file).name


def _map_of(
    cameras: list[np.ndarray],
    frames: list[Any],
    points: list[Any],
    features: list[Any],
    sigma: float,
    scale: float,
) -> Map:
    frames.sort(key=lambda frame: frame[0])
    points.sort(key=lambda point: point[0])
    if not frames:
        raise ValueError("no keyframes")
    used = sorted({frame[2] for frame in frames})
    if len(used) > 1 and any(not np.array_equal(cameras[used[0]], cameras[number]) for number in used):
        raise ValueError(f"keyframes have {len(used)} different cameras; a map has one rig")
    world = Map(Camera.pinhole(_IDENTITY, *cameras[used[0]]))
    matrices = np.stack([frame[1] for frame in frames])
    refuse_non_rotations(matrices[:, :, :3], [f"keyframe {frame[0]}" for frame in frames])
    cam_T_world = SE3.from_parts(matrices[:, :, 3], SO3.from_matrix(matrices[:, :, :3]).storage)
    numbers = np.array([frame[0] for frame in frames], np.int64)
    _refuse_twice(numbers.tolist(), "keyframe")
    _refuse_twice([point[0] for point in points], "map point")
    if numbers.max() >= 2**63 // _SECOND:
        raise ValueError(f"a keyframe has id {numbers.max()}, expected below {2**63 // _SECOND}")
    ids = world.add_keyframes(numbers * _SECOND, cam_T_world.inverse().storage)
    landmarks = world.add_landmarks(np.array([point[1] for point in points]).reshape(-1, 3))
    frame_of = dict(zip(numbers.tolist(), ids.tolist(), strict=True))
    point_of = dict(zip([point[0] for point in points], landmarks.tolist(), strict=True))
    for keyframe, rows in features:
        kept = [row for row in rows if row[0] in point_of]
        if keyframe not in frame_of or not kept:
            continue
        values = np.array([row[1:] for row in kept])
        seen = [point_of[row[0]] for row in kept]
        world.add_observations(frame_of[keyframe], seen, values[:, :2], sigma=sigma * scale ** values[:, 2])
    return world


def _refuse_twice(ids: list[int], kind: str) -> None:
    twice = [id_ for id_, other in pairwise(ids) if id_ == other]
    if twice:
        raise ValueError(f"two {kind}s have id {twice[0]}, expected ids of their own")


# ------------------------------------------------------------------------ protocol buffers


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a message: int, bytes or 4 bytes of a number."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind not in (_BYTES, _FIXED32, _FIXED64):
            raise ValueError(f"field of kind {kind} at byte {at}")
        size, at = _varint(data, at) if kind == _BYTES else ({_FIXED32: 4, _FIXED64: 8}[kind], at)
        if at + size > len(data):
            raise ValueError(f"{size} bytes at byte {at} of {len(data)}: cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"a number at byte {at} of {len(data)} has no end")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _messages(data: bytes) -> Iterator[bytes]:
    """Entries (field 1) of an array."""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            yield value


def _pieces(data: bytes, delimited: bool) -> Iterator[bytes]:
    """Messages of a file: one, or several with their sizes in front."""
    at = 0
    while delimited and at < len(data):
        size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError(f"a message of {size} bytes at byte {at} of {len(data)}: cut off")
        yield data[at : at + size]
        at += size
    if not delimited:
        yield data


def _floats(value: Any) -> list[float]:
    """Packed floats of 32 bits."""
    if not isinstance(value, bytes):
        raise ValueError(f"the number {value} stands where packed floats are expected")
    return list(struct.unpack(f"<{len(value) // 4}f", value))


def _keyframe(data: bytes) -> tuple[int, np.ndarray, int]:
    number, camera, pose = 0, 0, []
    for field, value in _fields(data):
        if field == 1:
            number = value
        elif field == 2:
            pose = [float_ for _, packed in _fields(value) for float_ in _floats(packed)]
        elif field == 3:
            camera = value
    return number, np.array(pose).reshape(3, 4), camera


def _mappoint(data: bytes) -> tuple[int, list[float]]:
    number, place = 0, [0.0, 0.0, 0.0]
    for field, value in _fields(data):
        if field == 1:
            number = value
        elif field == 2:
            place = _numbered(value, 3)
    return number, place


def _features(data: bytes) -> tuple[int, list[tuple[float, ...]]]:
    """Keyframe, and per feature: map point, u, v, octave."""
    keyframe, rows = 0, []
    for field, value in _fields(data):
        if field == 1:
            keyframe = value
        elif field == 2:
            point, key = -1, [0.0] * 4
            for inner, content in _fields(value):
                if inner == 2:
                    point = content
                elif inner == 3:
                    key = _numbered(content, 4)
            rows.append((point, key[0], key[1], key[3]))
    return keyframe, rows


def _numbered(data: bytes, count: int) -> list[float]:
    """Floats that are fields 1 to `count`; those left out are zero."""
    values = [0.0] * count
    for field, value in _fields(data):
        if 1 <= field <= count:
            values[field - 1] = _floats(value)[0]
    return values


# ------------------------------------------------------------------------ writing


def write_osmap(
    world: Map, path: str | os.PathLike[str], sigma: float | None = None, scale: float = SCALE
) -> list[str]:
    """Write NAME.yaml and its three files; the sentences say what Osmap has no place for.

    sigma: standard deviation of octave 0 [px]; None: the smallest of the map. Raises `OptionError` where the
    map is not of one pinhole camera.
    """
    yaml = Path(path)
    with world.lock:
        cameras = list(world.rig or ())
        if len(cameras) != 1 or cameras[0].model != "pinhole":
            raise OptionError(
                f"Osmap's files are of one pinhole camera; the map has {len(cameras)}: "
                f"{', '.join(camera.model for camera in cameras)}. Undistort pixels first, or write a "
                ".vib file."
            )
        content = _content(world, cameras[0], sigma, scale)
        lost = sum(int(np.isfinite(world.observations[name]).sum()) for name in ("right", "depth"))
    fx, fy, cx, cy = (repr(float(intrinsic)) for intrinsic in cameras[0].intrinsics)
    counts = {
        "keyframes": ("nKeyframes", len(world.keyframes)),
        "mappoints": ("nMappoints", len(world.landmarks)),
    }
    lines = ["%YAML:1.0", "---", "Options: 0", "cameraMatrices:"]
    lines.append(f"   - {{ fx: {fx}, fy: {fy}, cx: {cx}, cy: {cy} }}")
    for part in content:
        lines.append(f"{part}File: {yaml.stem}.{part}")
        if part in counts:
            lines.append(f"{counts[part][0]}: {counts[part][1]}")
    files = {yaml.parent / f"{yaml.stem}.{part}": data for part, data in content.items()}
    write_together({**files, yaml: ("\n".join(lines) + "\n").encode()})
    inertial = len(world.imu)
    notes = {"right columns and depths": lost, "IMU measurements": inertial, "stamps": len(world.keyframes)}
    return [f"{count} {what} are not in Osmap's format" for what, count in notes.items() if count]


def _content(world: Map, camera: Camera, sigma: float | None, scale: float) -> dict[str, bytes]:
    frames, seen = world.keyframes, world.observations
    poses = (SE3(frames["world_T_body"]) * SE3(camera.body_T_cam)).inverse()
    matrices = np.concatenate(
        [np.asarray(poses.rotation.to_matrix()), np.asarray(poses.translation)[:, :, None]], axis=2
    )
    base = sigma if sigma is not None else float(seen["sigma"].min(initial=np.inf))
    octave = np.rint(np.log(seen["sigma"] / base) / np.log(scale)).clip(0.0)
    keyframes = b"".join(
        _field(1, _number(1, id_) + _field(2, _field(1, matrix.astype("<f4").tobytes())))
        for id_, matrix in zip(frames.ids.tolist(), matrices, strict=True)
    )
    points = b"".join(
        _field(1, _number(1, id_ + 1) + _field(2, _numbers(place)))  # 0 would be no map point
        for id_, place in zip(world.landmarks.ids.tolist(), world.landmarks["position"].tolist(), strict=True)
    )
    row = frames.rows(seen["keyframe"])
    features = b""
    for k, id_ in enumerate(frames.ids.tolist()):
        mine = np.flatnonzero(row == k)
        values = np.stack([*seen["pixel"][mine].T, np.zeros(len(mine)), octave[mine]], axis=1).tolist()
        rows = [
            _field(2, _number(2, landmark + 1) + _field(3, _numbers(key)))
            for landmark, key in zip(seen["landmark"][mine].tolist(), values, strict=True)
        ]
        features += _field(1, _number(1, id_) + b"".join(rows))
    return {"keyframes": keyframes, "mappoints": points, "features": features}


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _encoded(field << 3 | _VARINT) + _encoded(value)


def _field(field: int, data: bytes) -> bytes:
    return _encoded(field << 3 | _BYTES) + _encoded(len(data)) + data


def _numbers(values: list[float]) -> bytes:
    """Floats as fields 1, 2, ..."""
    parts = [_encoded(k << 3 | _FIXED32) + struct.pack("<f", value) for k, value in enumerate(values, 1)]
    return b"".join(parts)
