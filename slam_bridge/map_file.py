"""Maps as named arrays: what .vib files hold (`vib`), and older versions' archives, read only.

format                 "slam_bridge map"; version 1
rig/k/...              cameras
keyframes/world_T_body, landmarks/position, ...    columns of the tables; */id, */next_id
samples/stamps, gyro, acc, ends                    IMU samples of all measurements, one after the other
measured/...                                       what was integrated from them
priors/k/...                                       marginal priors
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import Any
from zipfile import BadZipFile

import numpy as np

from graphopt.errors import FormatError
from slam_bridge.cameras import Camera, Rig
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.map import Features, Map
from slam_bridge.map_check import check_map
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.preintegration import Preintegrated
from slam_bridge.readers.damage import file_bytes, refused_as

_DAMAGE = (
    *(ValueError, TypeError, LookupError, OSError, EOFError, MemoryError, ArithmeticError, SyntaxError),
    *(BadZipFile, NotImplementedError, RuntimeError, struct.error, zlib.error),
)
"""What numpy and zipfile raise on bytes that are no archive of arrays."""
FORMAT, VERSION = "slam_bridge map", 1
_MEASURED = (
    "dt", "gyro_bias", "acc_bias", "delta_rotation", "delta_velocity", "delta_position",
    "delta_D_bias", "covariance", "combined_covariance",
)  # fmt: skip
_NOISE = tuple(ImuNoise.__dataclass_fields__)


def map_arrays(map: Map) -> dict[str, Any]:
    """Everything that a map holds, as arrays by name; copies."""
    with map.lock:
        arrays: dict[str, Any] = {"gravity": map.gravity.copy()}
        for name, table in map.tables.items():
            arrays |= {f"{name}/{column}": values.copy() for column, values in table.arrays().items()}
        arrays |= _feature_arrays(map.features)
        return arrays | _rig_arrays(map.rig) | _measured_arrays(map) | _prior_arrays(map.priors)


def read_map(path: str | os.PathLike[str]) -> Map:
    """Read a map from an archive (.npz), as older versions wrote them: `map_arrays`, format and version."""
    name = os.fspath(path)
    data = file_bytes(path, "a map of slam_bridge")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    except _DAMAGE as error:
        raise FormatError(
            f"{name}: no map of slam_bridge, or a damaged one ({error}); copy the file again."
        ) from error
    if str(arrays.get("format")) != FORMAT or str(arrays.get("version")) != str(VERSION):
        raise FormatError(
            f"{name}: format {arrays.get('format')}, version {arrays.get('version')}; "
            f"expected '{FORMAT}' of version {VERSION}."
        )
    with refused_as(name, "damaged; copy the file again, or save the map anew"):
        try:
            return map_of_arrays(arrays)
        except KeyError as error:
            raise FormatError(f"{name}: the array {error} is missing; copy the file again.") from error


def map_of_arrays(arrays: dict[str, Any]) -> Map:
    """The map of `map_arrays`; `KeyError` names a missing array, `MapError` one that does not fit."""
    map = Map(_rig_of(arrays), arrays["gravity"])
    for name, table in map.tables.items():
        table.fill({column: arrays[f"{name}/{column}"] for column in ("id", "next_id", *table.columns)})
    map.preintegrated = _measured_of(arrays, map.imu.ids)
    map.features = _features_of(arrays, map)
    map.priors = _priors_of(arrays)
    check_map(map)
    return map


def _rig_arrays(rig: Rig | None) -> dict[str, Any]:
    arrays: dict[str, Any] = {"rig/count": 0 if rig is None else len(rig)}
    for k, camera in enumerate(rig or ()):
        arrays |= {f"rig/{k}/{name}": value for name, value in vars(camera).items() if value is not None}
    return arrays


def _rig_of(arrays: dict[str, np.ndarray]) -> Rig | None:
    cameras = []
    for k in range(int(arrays["rig/count"])):
        given: dict[str, Any] = {
            key.split("/")[2]: value for key, value in arrays.items() if key.startswith(f"rig/{k}/")
        }
        for name, convert in (("model", str), ("name", str), ("baseline", float), ("time_offset", float)):
            if name in given:
                given[name] = convert(given[name])
        if "resolution" in given:
            given["resolution"] = tuple(given["resolution"].tolist())
        cameras.append(Camera(**given))
    return Rig(cameras) if cameras else None


def _measured_arrays(map: Map) -> dict[str, Any]:
    given = [map.preintegrated[id_] for id_ in map.imu.ids.tolist()]
    arrays = {
        f"measured/{name}": np.array([getattr(interval, name) for interval in given]) for name in _MEASURED
    }
    arrays["measured/noise"] = np.array(
        [[getattr(interval.noise, name) for name in _NOISE] for interval in given]
    )
    arrays["measured/rule"] = np.array([interval.rule for interval in given], dtype="U16")
    arrays["samples/ends"] = np.cumsum([len(interval.samples) for interval in given], dtype=np.int64)
    for name, empty in (
        ("stamps", np.zeros(0, np.int64)),
        ("gyro", np.zeros((0, 3))),
        ("acc", np.zeros((0, 3))),
    ):
        arrays[f"samples/{name}"] = np.concatenate(
            [empty, *(getattr(interval.samples, name) for interval in given)]
        )
    return arrays


def _measured_of(arrays: dict[str, np.ndarray], ids: np.ndarray) -> dict[int, Preintegrated]:
    ends = arrays["samples/ends"].tolist()
    result = {}
    for k, (id_, first, last) in enumerate(zip(ids.tolist(), [0, *ends][: len(ends)], ends, strict=True)):
        samples = ImuSamples(*(arrays[f"samples/{name}"][first:last] for name in ("stamps", "gyro", "acc")))
        noise = ImuNoise(*arrays["measured/noise"][k].tolist())
        numbers = {name: arrays[f"measured/{name}"][k] for name in _MEASURED}
        numbers["dt"] = float(numbers["dt"])
        result[id_] = Preintegrated(samples, noise, **numbers, rule=str(arrays["measured/rule"][k]))
    return result


def _feature_arrays(features: dict[int, Features]) -> dict[str, Any]:
    """Corners of all keyframes, one after the other."""
    found = list(features.values())
    return {
        "features/keyframe": np.array(list(features), np.int64),
        "features/ends": np.cumsum([len(one.pixel) for one in found], dtype=np.int64),
        "features/pixel": np.concatenate([np.zeros((0, 2)), *(one.pixel for one in found)]),
        "features/descriptor": np.concatenate(
            [np.zeros((0, 32), np.uint8), *(one.descriptor for one in found)]
        ),
    }


def _features_of(arrays: dict[str, np.ndarray], map: Map) -> dict[int, Features]:
    """Files of older versions have none."""
    if "features/keyframe" not in arrays:
        return {}
    ends = arrays["features/ends"].tolist()
    for keyframe, first, last in zip(
        arrays["features/keyframe"].tolist(), [0, *ends][: len(ends)], ends, strict=True
    ):
        map.set_features(
            keyframe, arrays["features/pixel"][first:last], arrays["features/descriptor"][first:last]
        )
    return map.features


def _prior_arrays(priors: list[MarginalPrior]) -> dict[str, Any]:
    arrays: dict[str, Any] = {"priors/count": len(priors)}
    for k, prior in enumerate(priors):
        arrays |= {f"priors/{k}/{name}": value for name, value in prior.arrays().items()}
    return arrays


def _priors_of(arrays: dict[str, np.ndarray]) -> list[MarginalPrior]:
    names = MarginalPrior.ARRAYS
    return [
        MarginalPrior(**{name: arrays[f"priors/{k}/{name}"] for name in names})
        for k in range(int(arrays["priors/count"]))
    ]
