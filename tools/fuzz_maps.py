#!/usr/bin/env python3
"""Feed mutated files to every reader of maps: the outcome must be a map or a FormatError, in little time.

    tools/fuzz_maps.py --count 20000 [--seed 1] [--only vib] [--keep FOLDER]

Formats: .vib, slam_bridge's own .npz, pySLAM's JSON, Osmap's three protocol buffers and their YAML, COLMAP's
models read as maps, calibration files. Beside the mutations of `fuzz_readers.py` one array of a .vib, one
value of a JSON file or one of YAML becomes another number, type or shape, or is missing. What reads has only
numbers that a map may have (`check_map`). Exit status 1 if anything else came out.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from fuzz_readers import campaign, main, mutate

from graphopt.errors import FormatError
from slam_bridge import Map, read_calibration
from slam_bridge.exchange import (
    read_colmap_map,
    read_osmap,
    read_pyslam_map,
    read_vib,
    write_colmap_map,
    write_osmap,
    write_pyslam_map,
    write_vib,
)
from slam_bridge.generator.problem import generate_problem
from slam_bridge.map_check import check_map
from slam_bridge.map_file import read_map, write_map

VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 10**6, 2**31, 2**62, 2**63, 10**30, 1e300, float("nan"), float("inf")),
    *("", "nan", "[1, 2", "[[1]]", [], [1], [[]], [None], {}, {"a": 1}, [[[[[1]]]]]),
]
CALIBRATIONS = {
    "camchain.yaml": """\
cam0:
  camera_model: pinhole
  distortion_coeffs: [0.1, 0.2, 0.3, 0.4]
  distortion_model: radtan
  intrinsics: [400.0, 401.0, 320.0, 240.0]
  resolution: [640, 480]
  timeshift_cam_imu: 0.01
  T_cam_imu: [[0.0, -1.0, 0.0, 0.1], [0.0, 0.0, -1.0, 0.2], [1.0, 0.0, 0.0, 0.3], [0.0, 0.0, 0.0, 1.0]]
""",
    "imu.yaml": """\
imu0:
  accelerometer_noise_density: 0.002
  accelerometer_random_walk: 0.003
  gyroscope_noise_density: 0.0001
  gyroscope_random_walk: 0.00001
  update_rate: 200.0
  T_i_b: [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
""",
    "sensor.yaml": """\
sensor_type: camera
camera_model: pinhole
distortion_model: radial-tangential
distortion_coefficients: [-0.28, 0.07, 0.0001, 0.00001]
intrinsics: [458.6, 457.2, 367.2, 248.3]
resolution: [752, 480]
T_BS:
  rows: 4
  cols: 4
  data: [0, -1, 0, 0.1, 1, 0, 0, 0.2, 0, 0, 1, 0.3, 0, 0, 0, 1]
""",
    "orb.yaml": """\
%YAML:1.0
---
Camera.type: "PinHole"
Camera.fx: 435.2
Camera.fy: 435.3
Camera.cx: 367.4
Camera.cy: 252.2
Camera.bf: 47.9
Camera.width: 752
Camera.height: 480
IMU.NoiseGyro: 0.0001
IMU.NoiseAcc: 0.002
IMU.GyroWalk: 0.00001
IMU.AccWalk: 0.003
IMU.Frequency: 200
Tbc: !!opencv-matrix
   rows: 4
   cols: 4
   dt: f
   data: [0, -1, 0, 0.1, 1, 0, 0, 0.2, 0, 0, 1, 0.3, 0, 0, 0, 1]
""",
}
"""One small file of each kind."""
Seed = tuple[str, str, bytes]


def make_seeds(folder: Path) -> list[Seed]:
    """List (format, name, content); files of several parts stay in the folder, one at a time is changed."""
    made = generate_problem("MH01", keyframes=5, landmarks=20, observations=60, seed=3)
    pinhole, fisheye = made.map, generate_problem("room2", keyframes=4, landmarks=15, observations=50, seed=4)
    fisheye.map.add_loops(0, 2, np.array([0.1, 0, 0, 0, 0, 0, 1.0]), np.eye(7))
    fisheye.map.add_pose_priors(1, fisheye.map.keyframes["world_T_body"][1], 0.1, 0.1)
    write_vib(fisheye, folder / "a.vib")
    write_map(pinhole, folder / "a.npz")
    write_pyslam_map(pinhole, folder / "map.json")
    write_osmap(pinhole, folder / "orb.yaml")
    write_colmap_map(pinhole, folder / "text", as_text=True)
    write_colmap_map(fisheye.map, folder / "binary")
    parts = [f"orb.{end}" for end in ("yaml", "keyframes", "mappoints", "features")]
    parts += [f"{path.parent.name}/{path.name}" for path in sorted(folder.glob("*/*"))]
    seeds = [
        (READER_OF[Path(name).suffix], name, (folder / name).read_bytes())
        for name in ("a.vib", "a.npz", "map.json")
    ]
    seeds += [
        ("osmap" if "/" not in name else "colmap", name, (folder / name).read_bytes()) for name in parts
    ]
    return seeds + [("calibration", f"calib-{name}", text.encode()) for name, text in CALIBRATIONS.items()]


READER_OF = {".vib": "vib", ".npz": "npz", ".json": "pyslam"}
READERS: dict[str, Callable[[Path, Path], Any]] = {
    "vib": lambda path, folder: read_vib(path).map,
    "npz": lambda path, folder: read_map(path),
    "pyslam": lambda path, folder: read_pyslam_map(path),
    "osmap": lambda path, folder: read_osmap(folder / "orb.yaml"),
    "colmap": lambda path, folder: read_colmap_map(path.parent),
    "calibration": lambda path, folder: read_calibration(path),
}


def mutate_map(form: str, data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Bytes and words, or one value of what the file means."""
    if form == "vib" and rng.random() < 0.8:
        return change_array(data, rng)
    if form == "npz" and rng.random() < 0.8:
        return change_npz(data, rng)
    if form == "pyslam" and rng.random() < 0.7:
        content = json.loads(data)
        change_value(content, rng)
        return json.dumps(content).encode()
    if form == "calibration" and rng.random() < 0.5:
        return change_line(data, rng)
    return mutate(data, rng, others)


def change_array(data: bytes, rng: random.Random) -> bytes:
    """Change, replace or remove one data set of a .vib, or one of its attributes."""
    buffer = io.BytesIO(data)
    with h5py.File(buffer, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        name = rng.choice([*names, "gravity", "provenance"])
        if name not in names:
            file.attrs[name] = rng.choice(["[1]", "{", 3.0, np.nan, np.ones(5), -1])
            return _closed(file, buffer)
        dataset: Any = file[name]
        value = dataset[()]
        del file[name]
        changed = changed_array(np.asarray(value), rng)
        if changed is not None:
            file[name] = changed if changed.dtype.kind != "U" else changed.astype("S")
        return _closed(file, buffer)


def _closed(file: h5py.File, buffer: io.BytesIO) -> bytes:
    file.close()
    return buffer.getvalue()


def change_npz(data: bytes, rng: random.Random) -> bytes:
    """Change, replace or remove one array."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = rng.choice(list(arrays))
    changed = changed_array(arrays.pop(name), rng)
    if changed is not None:
        arrays[name] = changed
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def changed_array(value: np.ndarray, rng: random.Random) -> np.ndarray | None:
    """Another entry, shape or type; None: it goes."""
    kind = rng.randrange(8)
    if kind < 4 and value.size and value.dtype.kind in "iufb":
        flat = value.reshape(-1).copy()
        flat[rng.randrange(flat.size)] = entry_of(value.dtype, rng)
        return flat.reshape(value.shape)
    if kind == 4:
        return value[: len(value) // 2] if value.ndim else np.array([value.tolist()] * 2)
    if kind == 5:
        return np.array(rng.choice(["text", "1.5", ""]))
    if kind == 6:
        return np.array(rng.choice([np.nan, -1, 2**62, 0, 7]))
    return None


def entry_of(dtype: np.dtype, rng: random.Random) -> Any:
    """A number of this type that a map hardly has."""
    if dtype.kind == "f":
        return rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-320])
    if dtype.kind == "b":
        return rng.random() < 0.5
    info = np.iinfo(dtype)
    return rng.choice([info.max, info.min, 0, info.max // 2, 100, -1 if info.min < 0 else 1])


def change_value(content: Any, rng: random.Random) -> None:
    """Walk down a JSON value and change, double or remove what is met at some depth."""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = rng.choice(keys)
        inner = content[key]
        if not (isinstance(inner, (dict, list)) and inner) or rng.random() < 0.15:
            break
        content = inner
    if rng.random() < 0.2:
        del content[key]
    elif rng.random() < 0.1 and isinstance(content, list):
        content.append(content[key])
    else:
        content[key] = rng.choice(VALUES)


def change_line(data: bytes, rng: random.Random) -> bytes:
    """One name of YAML gets another value, or goes."""
    lines = data.decode().split("\n")
    at = rng.randrange(len(lines))
    name, colon, _ = lines[at].partition(":")
    lines[at] = f"{name}{colon} {json.dumps(rng.choice(VALUES))}" if rng.random() < 0.8 else ""
    return "\n".join(lines).encode()


def reader(folder: Path) -> Callable[..., str]:
    """What `campaign` calls: write the changed file among its neighbours, read it, put the old one back."""

    def read_once(form: str, name: str, data: bytes, parts: dict[str, bytes]) -> str:
        path = folder / name
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(data)
        try:
            found = READERS[form](path, folder)
            if isinstance(found, Map):
                check_map(found)
            return "read"
        except FormatError as error:
            if path.name not in str(error) and path.parent.name not in str(error) and form != "osmap":
                raise AssertionError(f"the error does not name the file: {error}") from error
            return "refused"
        finally:
            path.write_bytes(before)

    return read_once


def map_campaign(
    count: int, seed: int, only: str | None = None, keep: Path | None = None
) -> tuple[Counter[str], list[str]]:
    """Run `count` inputs. Returns how often each outcome came and a text for each failure."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = [seed for seed in make_seeds(Path(folder)) if only is None or seed[0].startswith(only)]
        return campaign(count, seed, keep=keep, seeds=seeds, read=reader(Path(folder)), change=mutate_map)


if __name__ == "__main__":
    sys.exit(main(__doc__, map_campaign, 5_000))
