"""Files of visual-inertial problems, .vib: HDF5 with one data set per array.

    /                 attributes format "visual-inertial problem", version 1, gravity, provenance (JSON)
    /variables        keyframes, landmarks: columns of the map's tables, with id and next_id
    /edges            observations, imu, loops, pose_priors: likewise; priors/0, 1, ...: marginal priors
    /calibration      0, 1, ...: one group per camera; count
    /preintegrated    measured/...: per row of edges/imu; samples/...: its IMU samples, one after another
    /imu              stamps, gyro, acc, noise: the raw recording; may be missing
    /truth            keyframes, world_T_body, velocity, ...: may be missing

Units are metres, seconds, radians, pixels, but stamps are nanoseconds; poses are x, y, z, qx, qy, qz, qw.
Arrays carry checksums (Fletcher 32). Files are written whole or not at all.
`docs/formats.md` lists every array.
"""

from __future__ import annotations

import io
import json
import os
from typing import Any

import numpy as np

from graphopt.errors import FormatError, OptionError
from graphopt.io.files import write_bytes
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.map import Map, map_files
from slam_bridge.map_file import map_arrays, map_of_arrays, read_map
from slam_bridge.readers.damage import file_bytes, refused_as
from slam_bridge.tables import MapError
from slam_bridge.vib_problem import Truth, VibProblem

FORMAT, VERSION = "visual-inertial problem", 1
_PLACES = {
    "keyframes": "variables/keyframes",
    "landmarks": "variables/landmarks",
    "observations": "edges/observations",
    "imu": "edges/imu",
    "loops": "edges/loops",
    "pose_priors": "edges/pose_priors",
    "priors": "edges/priors",
    "rig": "calibration",
    "measured": "preintegrated/measured",
    "samples": "preintegrated/samples",
    "features": "variables/features",
}
"""Where each group of a map's arrays stands."""
_COMPRESSED_FROM = 1 << 12  # bytes
PathLike = str | os.PathLike[str]


def write_vib(problem: VibProblem | Map, path: PathLike) -> None:
    """Write a problem, or a map alone; a file that is there stays until the new one is complete."""
    h5py, problem = _h5py(path), VibProblem.of(problem)
    arrays = map_arrays(problem.map)
    gravity = arrays.pop("gravity")
    content = {
        f"{_PLACES[name.split('/')[0]]}/{name.split('/', 1)[1]}": value for name, value in arrays.items()
    }
    content |= _imu_arrays(problem)
    if problem.truth is not None:
        content |= {f"truth/{name}": value for name, value in vars(problem.truth).items()}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
        file.attrs["gravity"] = gravity
        file.attrs["provenance"] = json.dumps(problem.provenance)
        for name, value in content.items():
            _put(file, h5py, name, np.asarray(value))
    write_bytes(path, buffer.getvalue())


def read_vib(path: PathLike) -> VibProblem:
    """Read a problem; `FormatError` says what is damaged, missing or of another kind, and where."""
    h5py, name = _h5py(path), os.fspath(path)
    data = file_bytes(path, "a .vib file")
    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            _check_kind(file, name)
            arrays = _arrays(file, h5py, name)
            gravity, provenance = np.array(file.attrs["gravity"]), json.loads(file.attrs["provenance"])
    except FormatError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError, ArithmeticError) as error:
        raise FormatError(
            f"{name}: no .vib file, or a damaged one: {len(data)} bytes, HDF5 says: {error}. "
            "Copy it again, or make it anew."
        ) from error
    with refused_as(name, "damaged; copy the file again, or make it anew"):
        try:
            return _problem_of(arrays, gravity, provenance)
        except KeyError as error:
            place = _place_of(str(error.args[0]))
            raise FormatError(f"{name}: the data set {place} is missing; copy the file again.") from error


def _save_map(world: Map, path: PathLike) -> None:
    if not is_vib(path):
        raise OptionError(f"{os.fspath(path)}: a map is saved as .vib; `graphopt convert` makes other files.")
    write_vib(world, path)


def _load_map(path: PathLike) -> Map:
    """The map in a .vib file, or in an archive of an older version."""
    if file_bytes(path, "a map of slam_bridge")[:2] == b"PK":
        return read_map(path)
    return read_vib(path).map


map_files.update(save=_save_map, load=_load_map)


def is_vib(path: PathLike) -> bool:
    """The name ends in .vib."""
    return os.fspath(path).lower().endswith(".vib")


def _problem_of(arrays: dict[str, Any], gravity: np.ndarray, provenance: dict[str, Any]) -> VibProblem:
    if not isinstance(provenance, dict):
        raise MapError(f"the attribute provenance is {provenance!r}, expected names and values in JSON.")
    named: dict[str, Any] = {"gravity": gravity}
    for group, place in _PLACES.items():
        inside = f"{place}/"
        named |= {
            f"{group}/{key[len(inside) :]}": value for key, value in arrays.items() if key.startswith(inside)
        }
    world = map_of_arrays(named)
    truth = None
    if any(key.startswith("truth/") for key in arrays):
        truth = Truth(**{name: arrays[f"truth/{name}"] for name in Truth.__dataclass_fields__})
        _refuse_non_finite("truth", vars(truth))
    imu = noise = None
    if "imu/stamps" in arrays:
        parts = {name: arrays[f"imu/{name}"] for name in ("stamps", "gyro", "acc")}
        _refuse_non_finite("imu", parts)
        imu = ImuSamples(**parts)
    if "imu/noise" in arrays:
        noise = ImuNoise(*arrays["imu/noise"].tolist())
    return VibProblem(world, truth, imu, noise, provenance)


def _refuse_non_finite(group: str, arrays: dict[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.argmax(bad.any(axis=tuple(range(1, bad.ndim)))))
            shown = np.array2string(np.ravel(values[row]), precision=4)
            raise MapError(f"{group}/{name} of row {row} is {shown}: expected finite numbers.")


def _imu_arrays(problem: VibProblem) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    if problem.imu is not None:
        arrays |= {f"imu/{name}": getattr(problem.imu, name) for name in ("stamps", "gyro", "acc")}
    if problem.noise is not None:
        arrays["imu/noise"] = np.array(list(vars(problem.noise).values()))
    return arrays


def _put(file: Any, h5py: Any, name: str, value: np.ndarray) -> None:
    if value.dtype.kind == "U":
        file.create_dataset(name, data=value.astype(object), dtype=h5py.string_dtype())
        return
    options: dict[str, Any] = {}
    if value.ndim and value.size:
        options["fletcher32"] = True
        if value.nbytes >= _COMPRESSED_FROM:
            options |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    file.create_dataset(name, data=value, **options)


def _check_kind(file: Any, name: str) -> None:
    kind, version = file.attrs.get("format"), file.attrs.get("version")
    if kind != FORMAT:
        raise FormatError(
            f"{name}: an HDF5 file, but none of a visual-inertial problem: its "
            f"attribute 'format' is {kind!r}, expected {FORMAT!r}."
        )
    if version != VERSION:
        raise FormatError(
            f"{name}: version {version} of the format; this program reads version {VERSION}. Update graphopt."
        )


def _arrays(file: Any, h5py: Any, name: str) -> dict[str, Any]:
    arrays: dict[str, Any] = {}

    def take(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            try:
                text = h5py.check_string_dtype(item.dtype) is not None
                value = item.asstr()[()] if text else item[()]
                arrays[key] = np.asarray(value, dtype=str) if text else np.asarray(value)
            except (OSError, RuntimeError) as error:
                raise FormatError(f"{name}: the data set {key} is damaged ({error}).") from error

    file.visititems(take)
    return arrays


def _place_of(key: str) -> str:
    group, _, rest = key.partition("/")
    return f"{_PLACES[group]}/{rest}" if group in _PLACES and rest else key


def _h5py(path: PathLike) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise OptionError(f"{os.fspath(path)}: .vib files need h5py: pip install graphopt[vib].") from error
    return h5py
