"""COLMAP's text files: cameras, images, points3D, rigs, frames. Lines that start with # are comments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphopt.colmap.model import (
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
from graphopt.io.numbers import RaggedRows, format_ragged, to_integers

DIGITS = 17
"""Significant ones that COLMAP writes: files in which nothing changes keep their bytes."""


def _integer(token: str, where: str, what: str) -> int:
    try:
        value = int(token)
    except ValueError:
        raise FormatError(f"{where}: {what} {token[:40]!r} is not an integer") from None
    if not 0 <= value < 1 << 53:
        raise FormatError(f"{where}: {what} {value} is out of range")
    return value


def _numbers(tokens: list[str], where: str) -> np.ndarray:
    rows = RaggedRows(" ".join(tokens).encode("utf-8", "surrogateescape"), where)
    if len(rows.values) != len(tokens):
        raise FormatError(f"{where}: expected {len(tokens)} numbers, got {len(rows.values)}")
    return rows.values


def parse_cameras(data: bytes, path: str) -> list[ColmapCamera]:
    """Read cameras.txt: CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]."""
    cameras = []
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        tokens = line.split()
        where = f"{path}:{number}"
        if not tokens or tokens[0].startswith("#"):
            continue
        if len(tokens) < 4 or tokens[1] not in MODELS:
            name = tokens[1][:40] if len(tokens) > 1 else "none"
            raise FormatError(
                f"{where}: camera model {name!r}, expected ID MODEL WIDTH HEIGHT ... with a model of COLMAP"
            )
        expected = MODELS[tokens[1]].num_params
        if len(tokens) - 4 != expected:
            raise FormatError(f"{where}: {tokens[1]}: got {len(tokens) - 4} parameters, expected {expected}")
        size = [
            _integer(tokens[i], where, what) for i, what in ((0, "camera id"), (2, "width"), (3, "height"))
        ]
        cameras.append(ColmapCamera(size[0], tokens[1], size[1], size[2], _numbers(tokens[4:], where)))
    return cameras


def parse_images(data: bytes, path: str, first_line: int = 1) -> ColmapImages:
    """Read images.txt: a line ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, then one of X Y POINT3D_ID triples.

    first_line: number of the first line, for errors, where `data` is a piece of the file.
    """
    lines = data.split(b"\n")
    heads: list[np.ndarray] = []
    names: list[str] = []
    keypoint_lines: list[bytes] = []
    head_lines: list[int] = []
    at = 0
    while at < len(lines):
        tokens = lines[at].decode("utf-8", "surrogateescape").split(maxsplit=9)
        at += 1
        if not tokens or tokens[0].startswith("#"):
            continue
        where = f"{path}:{at + first_line - 1}"
        if len(tokens) < 10:
            raise FormatError(
                f"{where}: got {len(tokens)} tokens, expected 10 (IMAGE_ID QW QX QY QZ TX TY TZ "
                "CAMERA_ID NAME)"
            )
        heads.append(_numbers(tokens[:9], where))
        names.append(tokens[9].rstrip())
        head_lines.append(at + first_line - 1)
        keypoint_lines.append(lines[at] if at < len(lines) else b"")
        at += 1
    table = np.array(heads).reshape(-1, 9)
    at_lines = np.array(head_lines, np.int64)
    keypoints = [
        _parse_keypoints(text, path, line + 1) for text, line in zip(keypoint_lines, head_lines, strict=True)
    ]
    every = np.concatenate(keypoints) if keypoints else np.empty((0, 3))
    line_of = np.repeat(at_lines + 1, [len(k) for k in keypoints]) if keypoints else at_lines
    return ColmapImages(
        ids=to_integers(table[:, 0], at_lines, path, "image id"),
        quaternion=table[:, 1:5].copy(),
        translation=table[:, 5:8].copy(),
        camera_ids=to_integers(table[:, 8], at_lines, path, "camera id"),
        names=names,
        keypoint_start=np.cumsum([0] + [len(k) for k in keypoints]),
        xy=every[:, :2].copy(),
        point_ids=to_integers(every[:, 2], line_of, path, "point id"),
    )


def _parse_keypoints(text: bytes, path: str, line: int) -> np.ndarray:
    rows = RaggedRows(text, path, first_line=line)
    if len(rows.values) % 3:
        raise FormatError(
            f"{path}:{line}: got {len(rows.values)} numbers, expected a multiple of 3 (X Y POINT3D_ID)"
        )
    return rows.values.reshape(-1, 3)


def parse_points(data: bytes, path: str, first_line: int = 1) -> ColmapPoints:
    """Read points3D.txt: POINT3D_ID X Y Z R G B ERROR, then pairs IMAGE_ID POINT2D_IDX.

    first_line: number of the first line, for errors, where `data` is a piece of the file.
    """
    rows = RaggedRows(data, path, first_line)
    wrong = np.flatnonzero((rows.lengths < 8) | (rows.lengths % 2 != 0))
    if len(wrong):
        row = wrong[0]
        raise FormatError(
            f"{path}:{rows.lines[row]}: got {rows.lengths[row]} numbers, expected 8 (POINT3D_ID X Y Z R "
            "G B ERROR) "
            "and pairs IMAGE_ID POINT2D_IDX"
        )
    start = rows.row_start[:-1]
    head = rows.values[start[:, None] + np.arange(8)] if len(rows) else np.empty((0, 8))
    in_track = np.ones(len(rows.values), bool)
    in_track[(start[:, None] + np.arange(8)).ravel()] = False
    length = (rows.lengths - 8) // 2
    rgb = to_integers(head[:, 4:7].ravel(), np.repeat(rows.lines, 3), path, "colour").reshape(-1, 3)
    outside = np.flatnonzero(((rgb < 0) | (rgb > 255)).any(axis=1))
    if len(outside):
        raise FormatError(
            f"{path}:{rows.lines[outside[0]]}: colour {rgb[outside[0]].tolist()}, expected 0 to 255"
        )
    return ColmapPoints(
        ids=to_integers(head[:, 0], rows.lines, path, "point id"),
        xyz=head[:, 1:4].copy(),
        rgb=rgb.astype(np.uint8),
        error=head[:, 7].copy(),
        track_start=np.concatenate([[0], np.cumsum(length)]),
        track=to_integers(
            rows.values[in_track], np.repeat(rows.lines, 2 * length), path, "track element"
        ).reshape(-1, 2),
    )


def _token_lines(data: bytes, path: str) -> Iterator[tuple[_Tokens, str]]:
    """Yield the tokens of each line that is no comment, and `path:line`."""
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        tokens = line.split()
        if tokens and not tokens[0].startswith("#"):
            yield _Tokens(tokens, f"{path}:{number}"), f"{path}:{number}"


class _Tokens:
    """Tokens of a line, taken one after the other."""

    def __init__(self, tokens: list[str], where: str):
        self._tokens = tokens
        self._where = where
        self._at = 0

    def take(self, what: str) -> str:
        if self._at == len(self._tokens):
            raise FormatError(f"{self._where}: the line ends where {what} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def integer(self, what: str) -> int:
        return _integer(self.take(what), self._where, what)

    def pose(self, what: str) -> np.ndarray:
        return _numbers([self.take(what) for _ in range(7)], self._where)

    def sensor_type(self) -> int:
        word = self.take("a sensor type")
        for number, name in SENSOR_TYPES.items():
            if word == name:
                return number
        known = ", ".join(SENSOR_TYPES.values())
        raise FormatError(f"{self._where}: sensor type {word[:40]!r}, expected one of {known}")

    def end(self) -> None:
        if self._at != len(self._tokens):
            raise FormatError(f"{self._where}: {len(self._tokens) - self._at} tokens too many")


def parse_rigs(data: bytes, path: str) -> list[ColmapRig]:
    """Read rigs.txt: RIG_ID NUM_SENSORS REF_TYPE REF_ID, then TYPE ID HAS_POSE [QW QX QY QZ TX TY TZ]."""
    rigs = []
    for tokens, _ in _token_lines(data, path):
        rig_id, count = tokens.integer("the rig id"), tokens.integer("the number of sensors")
        sensors: list[ColmapSensor] = []
        for number in range(count):
            kind, sensor_id = tokens.sensor_type(), tokens.integer("a sensor id")
            known = number > 0 and tokens.integer("HAS_POSE") != 0
            sensors.append(ColmapSensor(kind, sensor_id, tokens.pose("a pose") if known else None))
        tokens.end()
        rigs.append(ColmapRig(rig_id, sensors))
    return rigs


def parse_frames(data: bytes, path: str) -> ColmapFrames:
    """Read frames.txt: FRAME_ID RIG_ID QW QX QY QZ TX TY TZ NUM_DATA_IDS, then TYPE SENSOR_ID DATA_ID."""
    heads, poses, lists = [], [], []
    for tokens, _ in _token_lines(data, path):
        heads.append((tokens.integer("the frame id"), tokens.integer("the rig id")))
        poses.append(tokens.pose("the pose"))
        count = tokens.integer("the number of data ids")
        rows = [
            (tokens.sensor_type(), tokens.integer("a sensor id"), tokens.integer("a data id"))
            for _ in range(count)
        ]
        tokens.end()
        lists.append(np.array(rows, np.int64).reshape(-1, 3))
    table = np.array(heads, np.int64).reshape(-1, 2)
    return ColmapFrames(table[:, 0], table[:, 1], np.array(poses).reshape(-1, 7), lists)


def format_cameras(cameras: list[ColmapCamera]) -> bytes:
    """Content of cameras.txt."""
    lines = [
        b"# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    ]
    lines.append(f"# Number of cameras: {len(cameras)}\n".encode())
    for camera in cameras:
        values = format_ragged(camera.params, np.array([0, len(camera.params)]), DIGITS)
        lines.append(f"{camera.id} {camera.model} {camera.width} {camera.height} ".encode() + values)
    return b"".join(lines)


def format_images(images: ColmapImages) -> bytes:
    """Content of images.txt."""
    return images_header(len(images.ids), int((images.point_ids >= 0).sum())) + image_entries(images)


def images_header(num_images: int, num_seen: int) -> bytes:
    """Comments before the first image; num_seen: keypoints that have a point."""
    mean = num_seen / max(num_images, 1)
    return (
        "# Image list with two lines of data per image:\n"
        "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n#   POINTS2D[] as (X, Y, POINT3D_ID)\n"
        f"# Number of images: {num_images}, mean observations per image: {mean:.{DIGITS}g}\n"
    ).encode()


def image_entries(images: ColmapImages) -> bytes:
    """Two lines per image."""
    parts = []
    head = np.concatenate(
        [images.ids[:, None], images.quaternion, images.translation, images.camera_ids[:, None]], axis=1
    )
    heads = format_ragged(head.ravel(), np.arange(len(head) + 1) * 9, DIGITS).split(b"\n")
    keypoints = np.concatenate([images.xy, images.point_ids[:, None]], axis=1)
    keypoint_lines = format_ragged(keypoints.ravel(), images.keypoint_start * 3, DIGITS).split(b"\n")
    for row, name in enumerate(images.names):
        parts += [
            heads[row],
            b" ",
            name.encode("utf-8", "surrogateescape"),
            b"\n",
            keypoint_lines[row],
            b" \n" if keypoint_lines[row] else b"\n",  # COLMAP's, of all versions
        ]
    return b"".join(parts)


def format_points(points: ColmapPoints) -> bytes:
    """Content of points3D.txt."""
    return points_header(len(points.ids), len(points.track)) + point_entries(points)


def points_header(num_points: int, num_elements: int) -> bytes:
    """Comments before the first point; num_elements: of all tracks."""
    mean = num_elements / max(num_points, 1)
    return (
        "# 3D point list with one line of data per point:\n"
        "#   POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)\n"
        f"# Number of points: {num_points}, mean track length: {mean:.{DIGITS}g}\n"
    ).encode()


def point_entries(points: ColmapPoints) -> bytes:
    """One line per point."""
    length = np.diff(points.track_start)
    row_start = np.concatenate([[0], np.cumsum(8 + 2 * length)])
    values = np.empty(row_start[-1])
    head = (row_start[:-1, None] + np.arange(8)).ravel()
    in_track = np.ones(len(values), bool)
    in_track[head] = False
    columns = [points.ids[:, None], points.xyz, points.rgb, points.error[:, None]]
    values[head] = np.concatenate(columns, axis=1).ravel()
    values[in_track] = points.track.ravel()
    return format_ragged(values, row_start, DIGITS)


def _pose_text(pose: np.ndarray) -> bytes:
    return format_ragged(pose, np.array([0, len(pose)]), DIGITS).rstrip(b"\n")


def format_rigs(rigs: list[ColmapRig]) -> bytes:
    """Content of rigs.txt."""
    lines = [
        b"# Rig calib list with one line of data per calib:\n"
        b"#   RIG_ID, NUM_SENSORS, REF_SENSOR_TYPE, REF_SENSOR_ID, "
        b"SENSORS[] as (SENSOR_TYPE, SENSOR_ID, HAS_POSE, [QW, QX, QY, QZ, TX, TY, TZ])\n",
        f"# Number of rigs: {len(rigs)}\n".encode(),
    ]
    for rig in rigs:
        parts = [f"{rig.id} {len(rig.sensors)}".encode()]
        for number, sensor in enumerate(rig.sensors):
            parts.append(f"{SENSOR_TYPES[sensor.type]} {sensor.id}".encode())
            if number:
                parts.append(b"0" if sensor.pose is None else b"1 " + _pose_text(sensor.pose))
        lines.append(b" ".join(parts) + b"\n")
    return b"".join(lines)


def format_frames(frames: ColmapFrames) -> bytes:
    """Content of frames.txt."""
    lines = [
        b"# Frame list with one line of data per frame:\n"
        b"#   FRAME_ID, RIG_ID, RIG_FROM_WORLD[QW, QX, QY, QZ, TX, TY, TZ], NUM_DATA_IDS, "
        b"DATA_IDS[] as (SENSOR_TYPE, SENSOR_ID, DATA_ID)\n",
        f"# Number of frames: {len(frames.ids)}\n".encode(),
    ]
    for row, frame_id in enumerate(frames.ids.tolist()):
        data = [f"{SENSOR_TYPES[kind]} {sensor} {image}" for kind, sensor, image in frames.data[row].tolist()]
        head = f"{frame_id} {frames.rig_ids[row]} ".encode() + _pose_text(frames.pose[row])
        lines.append(b" ".join([head, str(len(data)).encode(), *(line.encode() for line in data)]) + b"\n")
    return b"".join(lines)
