"""COLMAP's text files: cameras.txt, images.txt, points3D.txt. Lines that start with # are comments."""

from __future__ import annotations

import numpy as np

from graphopt.errors import FormatError
from graphopt.io.colmap.model import MODELS, ColmapCamera, ColmapImages, ColmapPoints
from graphopt.io.numbers import RaggedRows, format_ragged, to_integers


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


def parse_images(data: bytes, path: str) -> ColmapImages:
    """Read images.txt: a line ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, then one of X Y POINT3D_ID triples."""
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
        where = f"{path}:{at}"
        if len(tokens) < 10:
            raise FormatError(
                f"{where}: got {len(tokens)} tokens, expected 10 (IMAGE_ID QW QX QY QZ TX TY TZ "
                "CAMERA_ID NAME)"
            )
        heads.append(_numbers(tokens[:9], where))
        names.append(tokens[9].rstrip())
        head_lines.append(at)
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


def parse_points(data: bytes, path: str) -> ColmapPoints:
    """Read points3D.txt: POINT3D_ID X Y Z R G B ERROR, then pairs IMAGE_ID POINT2D_IDX."""
    rows = RaggedRows(data, path)
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


def format_cameras(cameras: list[ColmapCamera]) -> bytes:
    """Content of cameras.txt."""
    lines = [
        b"# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    ]
    lines.append(f"# Number of cameras: {len(cameras)}\n".encode())
    for camera in cameras:
        values = format_ragged(camera.params, np.array([0, len(camera.params)]))
        lines.append(f"{camera.id} {camera.model} {camera.width} {camera.height} ".encode() + values)
    return b"".join(lines)


def format_images(images: ColmapImages) -> bytes:
    """Content of images.txt."""
    seen = int((images.point_ids >= 0).sum())
    mean = seen / len(images.ids) if len(images.ids) else 0.0
    parts = [
        b"# Image list with two lines of data per image:\n"
        b"#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n#   POINTS2D[] as (X, Y, POINT3D_ID)\n",
        f"# Number of images: {len(images.ids)}, mean observations per image: {mean:.6g}\n".encode(),
    ]
    head = np.concatenate(
        [images.ids[:, None], images.quaternion, images.translation, images.camera_ids[:, None]], axis=1
    )
    heads = format_ragged(head.ravel(), np.arange(len(head) + 1) * 9).split(b"\n")
    keypoints = np.concatenate([images.xy, images.point_ids[:, None]], axis=1)
    keypoint_lines = format_ragged(keypoints.ravel(), images.keypoint_start * 3).split(b"\n")
    for row, name in enumerate(images.names):
        parts += [
            heads[row],
            b" ",
            name.encode("utf-8", "surrogateescape"),
            b"\n",
            keypoint_lines[row],
            b"\n",
        ]
    return b"".join(parts)


def format_points(points: ColmapPoints) -> bytes:
    """Content of points3D.txt."""
    length = np.diff(points.track_start)
    mean = length.mean() if len(length) else 0.0
    header = (
        "# 3D point list with one line of data per point:\n"
        "#   POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)\n"
        f"# Number of points: {len(points.ids)}, mean track length: {mean:.6g}\n"
    ).encode()
    row_start = np.concatenate([[0], np.cumsum(8 + 2 * length)])
    values = np.empty(row_start[-1])
    head = (row_start[:-1, None] + np.arange(8)).ravel()
    in_track = np.ones(len(values), bool)
    in_track[head] = False
    columns = [points.ids[:, None], points.xyz, points.rgb, points.error[:, None]]
    values[head] = np.concatenate(columns, axis=1).ravel()
    values[in_track] = points.track.ravel()
    return header + format_ragged(values, row_start)
