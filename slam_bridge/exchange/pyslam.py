"""Maps to and from pySLAM's map files (github.com/luigifreda/pyslam, 2.6 to 2.10): JSON.

    pySLAM                                          map
    keyframes: id, kid, timestamp [s], pose         keyframes; pose is cam_T_world (4, 4), the body the camera
    camera: fx fy cx cy bf, width, height           one pinhole camera; bf is fx times the baseline
    kpsu, kps_ur, octaves, points                   observations: undistorted pixel, right column, octave
    points: id, pt, kf_ref                          landmarks with their reference

The standard deviation of a pixel is sigma 1.2^octave. Arrays are lists, or in older files strings of lists.
Bad keyframes and points, and frames between keyframes, are left out. A folder that pySLAM saved holds
`map.json`, whose "map" is the map. Written maps have no descriptors and no images: pySLAM shows and optimizes
them, but recognises no places in them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3, SO3
from graphopt.io.files import write_bytes
from slam_bridge.cameras import Camera, refuse_non_rotations
from slam_bridge.map import Map
from slam_bridge.map_check import check_map
from slam_bridge.readers.damage import file_bytes, nanoseconds, refused_as

_IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
SCALE = 1.2
"""Between octaves, as in pySLAM's and ORB-SLAM's defaults."""
_STEREO, _MONO = 1, 0  # pySLAM's SensorType


def read_pyslam_map(path: str | os.PathLike[str], sigma: float = 1.0, scale: float = SCALE) -> Map:
    """Read map.json, or the folder that has it; sigma [px] of octave 0, scale between octaves.

    Raises `FormatError` for anything else, a damaged file, and for keyframes of different cameras.
    """
    file = Path(path)
    file = file / "map.json" if file.is_dir() else file
    name = os.fspath(file)
    data = file_bytes(file, "map.json of pySLAM")
    with refused_as(name, "no map of pySLAM, or a damaged one; expected JSON with keyframes and points"):
        content = json.loads(data)
        content = content.get("map", content)
        content = json.loads(content) if isinstance(content, str) else content
        frames = [frame for frame in content["keyframes"] if not frame.get("_is_bad", False)]
        points = [point for point in content["points"] if not point.get("_is_bad", False)]
        world = _map_of(frames, points, sigma, scale, name)
        check_map(world)
        return world


def _map_of(frames: list[Any], points: list[Any], sigma: float, scale: float, name: str) -> Map:
    frames = sorted(frames, key=lambda frame: (float(frame["timestamp"]), int(frame["id"])))
    if not frames:
        raise FormatError(f"{name}: the map has no keyframes.")
    world = Map(_camera(frames, name))
    poses = np.stack([_array(frame["pose"]).reshape(4, 4) for frame in frames])
    numbers = [int(frame["id"]) for frame in frames]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise FormatError(f"{name}: two keyframes have id {twice}, expected ids of their own.")
    refuse_non_rotations(poses[:, :3, :3], [f"keyframe {number}" for number in numbers])
    rotation = SO3.from_matrix(poses[:, :3, :3])
    cam_T_world = SE3.from_parts(poses[:, :3, 3], rotation.storage)
    stamps = nanoseconds(np.array([float(frame["timestamp"]) for frame in frames]), "timestamp")
    ids = world.add_keyframes(stamps, cam_T_world.inverse().storage)
    frame_of = {int(frame["id"]): k for k, frame in enumerate(frames)}
    positions = np.array([_array(point["pt"]).ravel() for point in points]).reshape(-1, 3)
    reference = [frame_of.get(_id(point.get("kf_ref")), -1) for point in points]
    landmarks = world.add_landmarks(positions, np.where(np.array(reference, int) >= 0, ids[reference], -1))
    point_of = {int(point["id"]): m for m, point in enumerate(points)}
    for k, frame in enumerate(frames):
        _add_observations(world, frame, int(ids[k]), point_of, landmarks, sigma, scale)
    return world


def _add_observations(
    world: Map,
    frame: Any,
    keyframe: int,
    point_of: dict[int, int],
    landmarks: np.ndarray,
    sigma: float,
    scale: float,
) -> None:
    given = frame["points"]
    given = json.loads(given) if isinstance(given, str) else given or []
    numbers = np.array([point_of.get(_id(point), -1) for point in given], np.int64)
    rows = np.flatnonzero(numbers >= 0)
    rows = rows[np.unique(numbers[rows], return_index=True)[1]]  # a point is seen once by a keyframe
    if not len(rows):
        return
    pixels = _array(frame["kpsu"]).reshape(-1, 2)[rows]
    octave = np.zeros(len(rows)) if frame.get("octaves") is None else _array(frame["octaves"]).ravel()[rows]
    right = np.full(len(rows), np.nan)
    if frame.get("kps_ur") is not None and world.rig is not None and world.rig[0].baseline is not None:
        column = _array(frame["kps_ur"]).ravel()[rows]
        right = np.where(column >= 0.0, column, np.nan)
    landmark = landmarks[numbers[rows]]
    world.add_observations(keyframe, landmark, pixels, right=right, sigma=sigma * scale**octave)


def _camera(frames: list[Any], name: str) -> Camera:
    given = [
        json.loads(frame["camera"]) if isinstance(frame["camera"], str) else frame["camera"]
        for frame in frames
    ]
    first = given[0]
    keys = ("fx", "fy", "cx", "cy", "bf", "width", "height")
    if any(frame.get(key) != first.get(key) for frame in given for key in keys):
        raise FormatError(f"{name}: keyframes are of different cameras; expected one.")
    bf = first.get("bf")
    return Camera.pinhole(
        _IDENTITY,
        *(float(first[key]) for key in keys[:4]),
        baseline=None if not bf else float(bf) / float(first["fx"]),
        resolution=(int(first["width"]), int(first["height"])),
    )


def _array(given: Any) -> np.ndarray:
    """A list, or a string of one."""
    return np.array(json.loads(given) if isinstance(given, str) else given, float)


def _id(given: Any) -> int:
    return -1 if given is None else int(given)


# ------------------------------------------------------------------------ writing


def write_pyslam_map(
    world: Map, path: str | os.PathLike[str], scale: float = SCALE, sigma: float | None = None
) -> None:
    """Write map.json of a map of one pinhole camera with a resolution; whole or not at all.

    sigma: standard deviation of octave 0 [px]; None: the smallest of the map. Depths become right columns
    where the camera has a baseline.
    """
    with world.lock:
        content = _content(world, scale, sigma)
    write_bytes(path, json.dumps({"map": content}).encode())


def _content(world: Map, scale: float, sigma: float | None) -> dict[str, Any]:
    cameras = list(world.rig or ())
    if len(cameras) != 1 or cameras[0].model != "pinhole" or cameras[0].resolution is None:
        raise OptionError(
            "pySLAM's maps are of one pinhole camera with a resolution; this one has "
            f"{', '.join(each_camera.model for each_camera in cameras) or 'none'}. Undistort pixels first, "
            "or write a .vib file."
        )
    camera, seen, frames = cameras[0], world.observations, world.keyframes
    cam_T_world = (SE3(frames["world_T_body"]) * SE3(camera.body_T_cam)).inverse()
    matrices = np.tile(np.eye(4), (len(frames), 1, 1))
    matrices[:, :3, :3] = cam_T_world.rotation.to_matrix()
    matrices[:, :3, 3] = cam_T_world.translation
    base = sigma if sigma is not None else float(seen["sigma"].min(initial=np.inf))
    octave = np.rint(np.log(seen["sigma"] / base) / np.log(scale)).astype(int).clip(0, 255)
    right = np.nan_to_num(_right_columns(world, camera), nan=-1.0)
    keyframes, places = [], np.zeros(len(seen), np.int64)
    row = frames.rows(seen["keyframe"])
    described = _described(camera)
    for k in range(len(frames)):
        mine = np.flatnonzero(row == k)
        places[mine] = np.arange(len(mine))
        keyframes.append(
            _keyframe(world, k, matrices[k], mine, right[mine], octave[mine], described, camera.intrinsics)
        )
    return {
        "FrameBase._id": frames.next_id,
        "MapPointBase._id": world.landmarks.next_id,
        "frames": [],
        "keyframes": keyframes,
        "points": _points(world, places),
        "keyframe_origins": keyframes[:1],
        "max_frame_id": frames.next_id,
        "max_point_id": world.landmarks.next_id,
        "max_keyframe_id": len(frames),
        "viewer_scale": 1.0,
    }


def _right_columns(world: Map, camera: Camera) -> np.ndarray:
    seen = world.observations
    depth = np.isfinite(seen["depth"])
    if not depth.any():
        return seen["right"]
    if camera.baseline is None:
        raise OptionError("the map has depths, but its camera no baseline; pySLAM's maps hold right columns.")
    virtual = seen["pixel"][:, 0] - camera.intrinsics[0] * camera.baseline / seen["depth"]
    return np.where(depth, virtual, seen["right"])


def _keyframe(
    world: Map,
    k: int,
    matrix: np.ndarray,
    rows: np.ndarray,
    right: np.ndarray,
    octave: np.ndarray,
    camera: dict[str, Any],
    intrinsics: np.ndarray,
) -> dict[str, Any]:
    frames, seen = world.keyframes, world.observations
    pixels, nothing = seen["pixel"][rows], dict.fromkeys(_EMPTY)
    count = len(rows)
    return {
        **nothing,
        "id": int(frames.ids[k]),
        "kid": k,
        "img_id": int(frames.ids[k]),
        "timestamp": float(frames["stamp"][k]) * 1e-9,
        "pose": matrix.tolist(),
        "camera": camera,
        "is_keyframe": True,
        "median_depth": -1.0,
        "is_blurry": False,
        "kps": pixels.tolist(),
        "kpsu": pixels.tolist(),
        "kpsn": ((pixels - intrinsics[2:4]) / intrinsics[:2]).tolist(),
        "octaves": octave.tolist(),
        "sizes": [31.0] * count,
        "angles": [0.0] * count,
        "kps_ur": right.tolist() if camera["bf"] else None,
        "points": seen["landmark"][rows].tolist(),
        "outliers": (~seen["inlier"][rows]).tolist(),
        "kf_ref": -1,
        "_is_bad": False,
        "lba_count": 0,
        "to_be_erased": False,
        "_pose_Tcp": np.eye(4).tolist(),
        "is_Tcw_GBA_valid": False,
        "parent": int(frames.ids[k - 1]) if k else None,
        "children": [int(id_) for id_ in frames.ids[k + 1 : k + 2]],
        "loop_edges": [],
        "not_to_erase": False,
        "connected_keyframes_weights": [],
        "ordered_keyframes_weights": [],
        "is_first_connection": False,
    }


_EMPTY = (
    "fov_center_c", "fov_center_w", "laplacian_var", "kps_r", "kps_sem", "octaves_r", "des", "des_r",
    "depths", "img", "depth_img", "img_right", "semantic_img", "semantic_instances_img",
)  # fmt: skip


def _points(world: Map, places: np.ndarray) -> list[dict[str, Any]]:
    seen, landmarks = world.observations, world.landmarks
    row = landmarks.rows(seen["landmark"])
    order = np.argsort(row, kind="stable")
    start = np.searchsorted(row[order], np.arange(len(landmarks) + 1)).tolist()
    pairs = np.stack([seen["keyframe"], places], axis=1)[order].tolist()
    number = dict(zip(world.keyframes.ids.tolist(), range(len(world.keyframes)), strict=True))
    points = []
    for m, (id_, place, reference) in enumerate(
        zip(
            landmarks.ids.tolist(),
            landmarks["position"].tolist(),
            landmarks["reference"].tolist(),
            strict=True,
        )
    ):
        views = pairs[start[m] : start[m + 1]]
        seen_from = reference if reference >= 0 else (views[0][0] if views else None)
        points.append(
            {
                "id": id_,
                "_observations": views,
                "_frame_views": [],
                "_is_bad": False,
                "_num_observations": len(views),
                "num_times_visible": len(views),
                "num_times_found": len(views),
                "last_frame_id_seen": -1,
                "pt": place,
                "color": [128, 128, 128],
                "semantic_des": None,
                "des": None,
                "_min_distance": 0.0,
                "_max_distance": 1e9,
                "normal": [0.0, 0.0, 1.0],
                "first_kid": number[views[0][0]] if views else -1,
                "kf_ref": seen_from,
            }
        )
    return points


def _described(camera: Camera) -> dict[str, Any]:
    fx, fy, cx, cy = camera.intrinsics.tolist()
    assert camera.resolution is not None
    width, height = camera.resolution
    baseline = camera.baseline
    matrix = [[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]]
    inverse = np.linalg.inv(np.array(matrix)).tolist()
    return {
        "type": 1,
        "width": width,
        "height": height,
        **{"fx": fx, "fy": fy, "cx": cx, "cy": cy},
        "D": json.dumps([0.0] * 5),
        "fps": 30,
        "bf": None if baseline is None else fx * baseline,
        "b": baseline,
        "depth_factor": 1.0,
        "depth_threshold": None if baseline is None else 40.0 * baseline,
        "is_distorted": False,
        "u_min": 0.0,
        "u_max": float(width),
        "v_min": 0.0,
        "v_max": float(height),
        "initialized": True,
        "K": json.dumps(matrix),
        "Kinv": json.dumps(inverse),
        "sensor_type": _STEREO if baseline is not None else _MONO,
    }
