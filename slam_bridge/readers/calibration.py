"""Calibration files: cameras on a body, IMU noise.

    Kalibr       camchain: camN with camera_model, distortion_model, intrinsics, T_cam_imu (or T_imu_cam,
                 T_cn_cnm1), timeshift_cam_imu; IMU: imu0 with densities, scale and misalignment as
                 Kalibr (gyroscopes, accelerometers) or OpenVINS (Tw, Ta, Tg, R_IMUto...) names them
    OpenVINS     estimator_config.yaml, which names these two and the magnitude of gravity
    EuRoC, ASL   a folder mav0 with camN/sensor.yaml and imu0/sensor.yaml, or one sensor.yaml
    TUM-VI       Kalibr's files
    ORB-SLAM3    settings .yaml of version 1.0 and older ones; cameras of the images as taken, not as
                 Camera.newWidth and Camera.newHeight have ORB-SLAM3 resize them

`read_calibration` finds out which of these a file is. Frames: body is the IMU's. Needs PyYAML (extra `slam`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.imu import ImuCalibration, ImuNoise
from slam_bridge.readers.damage import file_bytes, refused_as

PathLike = str | os.PathLike[str]
Content = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a calibration file says; None where it says nothing."""

    rig: Rig | None = None
    noise: ImuNoise | None = None
    imu: ImuCalibration | None = None
    rate: float | None = None
    """Of the IMU [Hz]."""
    gravity: float | None = None
    """Magnitude [m/s^2]."""

    def joined(self, other: Calibration) -> Calibration:
        """This one, completed by another."""
        mine, theirs = vars(self), vars(other)
        return Calibration(**{name: mine[name] if mine[name] is not None else theirs[name] for name in mine})


def read_calibration(*paths: PathLike) -> Calibration:
    """Read one or more calibration files, or EuRoC's folder mav0; earlier ones win.

    Raises `FormatError` with the file's name for what is missing, unknown or not supported.
    """
    result = Calibration()
    for path in paths:
        result = result.joined(_read(Path(path)))
    return result


def _read(path: Path) -> Calibration:
    if path.is_dir():
        return _euroc_folder(path)
    content = _yaml(path)
    converted = [_converted(convert, content, path) for fits, convert in _KINDS if fits(content)]
    if converted:  # cameras and IMU may share a file
        return reduce(Calibration.joined, converted)
    raise FormatError(
        f"{path}: no calibration that is known here; it has {', '.join(map(str, list(content)[:8]))}. "
        "Known are Kalibr's camchain and imu files, EuRoC's sensor.yaml, OpenVINS' estimator_config.yaml, "
        "ORB-SLAM3's settings."
    )


def _converted(convert: Callable[[Content, Path], Calibration], content: Content, path: Path) -> Calibration:
    """What a file says; `FormatError` names it, or the file beside it that is wrong."""
    try:
        with refused_as(str(path), "a value is not of the kind that stands here in such files; correct it"):
            try:
                return convert(content, path)
            except KeyError as error:
                raise FormatError(f"{path}: {error} is missing.") from error
    except FormatError as error:
        sentence = str(error).removeprefix(f"{path}: ")
        if str(path.parent) + os.sep in sentence:  # of another file, which it names
            raise FormatError(sentence) from error
        raise


_HEADER = re.compile(
    r"\A((?:[ \t\r]*(?:#[^\n]*)?\n)*)%YAML:1\.0[^\n]*\n((?:[ \t\r]*(?:#[^\n]*)?\n)*---[^\n]*\n)?"
)
"""OpenCV's first line, which comments may precede, and the line --- after it."""


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise FormatError(f"{path}: reading YAML needs PyYAML: pip install graphopt[slam].") from error

    class Loader(yaml.SafeLoader):
        pass

    def matrix(loader: Any, node: Any) -> np.ndarray:
        parts = loader.construct_mapping(node, deep=True)
        return np.array(parts["data"], float).reshape(int(parts["rows"]), int(parts["cols"]))

    Loader.add_constructor("tag:yaml.org,2002:opencv-matrix", matrix)
    # OpenCV's header is none of YAML's; tabs are no white space there, and "data:[" is no key
    data = file_bytes(path, "a calibration file")
    with refused_as(str(path), "no YAML, expected text in UTF-8"):
        text = _HEADER.sub(r"\1", data.decode("utf-8-sig")).replace("\t", "    ")
        text = re.sub(r"^(\s*[\w.]+):(?=\[)", r"\1: ", text, flags=re.MULTILINE)
        try:
            content = yaml.load(text, Loader)
        except yaml.YAMLError as error:
            raise FormatError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: holds no names and values, but {type(content).__name__}.")
    return content


# ------------------------------------------------------------------------ camera models

_DISTORTIONS = {
    "none": "none",
    "": "none",
    "radtan": "radtan",
    "radial-tangential": "radtan",
    "plumb_bob": "radtan",
    "equidistant": "equidistant",
    "kannala_brandt": "equidistant",
}


def _camera(
    model: str, distortion: Any, intrinsics: Any, coefficients: Any, body_T_cam: np.ndarray, **rest: Any
) -> Camera:
    """Camera of Kalibr's names; intrinsics are in the order of its wiki."""
    numbers, extra = (
        [float(intrinsic) for intrinsic in intrinsics],
        [float(coefficient) for coefficient in coefficients or ()],
    )
    kind = _DISTORTIONS.get(str(distortion or "").lower())
    if model == "pinhole" and (kind == "none" or (kind == "radtan" and not any(extra))):
        return Camera(body_T_cam, "pinhole", np.array(numbers), **rest)
    if model == "pinhole" and kind == "radtan":
        if len(extra) not in (4, 5):
            raise FormatError(f"radtan has {len(extra)} coefficients, expected k1, k2, p1, p2 and maybe k3.")
        return Camera(body_T_cam, "radtan", np.array([*numbers, *extra, 0.0][:9]), **rest)
    if model == "pinhole" and kind == "equidistant":
        return Camera(body_T_cam, "kb8", np.array([*numbers, *extra]), **rest)
    if model == "omni" and kind in ("radtan", "none"):
        xi, *plain = numbers
        return Camera(body_T_cam, "omni", np.array([*plain, xi, *(extra or [0.0] * 4)]), **rest)
    if model == "ds" and kind == "none":
        xi, alpha, *plain = numbers
        return Camera(body_T_cam, "double_sphere", np.array([*plain, xi, alpha]), **rest)
    raise FormatError(
        f"camera_model {model!r} with distortion_model {distortion!r} is not supported; known are pinhole "
        "with none, radtan or equidistant, omni with radtan, ds with none."
    )


def _resolution(given: Any) -> tuple[int, int] | None:
    return None if given is None else (int(given[0]), int(given[1]))


# ------------------------------------------------------------------------ Kalibr


def _is_kalibr_cameras(content: Content) -> bool:
    return isinstance(content.get("cam0"), Mapping)


def _kalibr_cameras(content: Content, path: Path) -> Calibration:
    cameras: list[Camera] = []
    names = (name for name in content if re.fullmatch(r"cam\d+", str(name)))
    for name in sorted(names, key=lambda name: int(name[3:])):
        camera = content[name]
        cameras.append(
            _camera(
                str(camera["camera_model"]),
                camera.get("distortion_model"),
                camera["intrinsics"],
                camera.get("distortion_coeffs"),
                _kalibr_mounting(camera, cameras, name),
                resolution=_resolution(camera.get("resolution")),
                name=name,
                time_offset=float(camera.get("timeshift_cam_imu") or 0.0),
            )
        )
    return Calibration(Rig(cameras))


def _kalibr_mounting(camera: Content, before: list[Camera], name: str) -> np.ndarray:
    """body_T_cam of T_imu_cam, of T_cam_imu, or from the camera before; camera 0 alone is the body."""
    if "T_imu_cam" in camera:
        return pose_of_matrix(camera["T_imu_cam"], f"{name}: T_imu_cam")
    if "T_cam_imu" in camera:
        return np.asarray(SE3(pose_of_matrix(camera["T_cam_imu"], f"{name}: T_cam_imu")).inverse().storage)
    if not before:
        return np.array(SE3.identity_storage)
    cam_T_previous = SE3(pose_of_matrix(camera["T_cn_cnm1"], f"{name}: T_cn_cnm1"))
    return np.asarray((SE3(before[-1].body_T_cam) * cam_T_previous.inverse()).storage)


def _is_kalibr_imu(content: Content) -> bool:
    return isinstance(content.get("imu0"), Mapping) or "gyroscope_noise_density" in content


def _kalibr_imu(content: Content, path: Path) -> Calibration:
    imu = content.get("imu0", content)
    _require_identity(imu.get("T_i_b"), "T_i_b")
    rate = imu.get("update_rate")
    return Calibration(None, _densities(imu), _scale_misalignment(imu), None if rate is None else float(rate))


def _densities(imu: Content) -> ImuNoise:
    return ImuNoise(
        float(imu["gyroscope_noise_density"]),
        float(imu["accelerometer_noise_density"]),
        float(imu["gyroscope_random_walk"]),
        float(imu["accelerometer_random_walk"]),
    )


def _scale_misalignment(imu: Content) -> ImuCalibration | None:
    """OpenVINS' names; raw = Tw R_IMUtoGYRO omega + Tg a, raw = Ta R_IMUtoACC a.

    "kalibr" and "rpng" differ in which triangle of Tw, Ta and which turn are free, not in the equation.

    Kalibr's own: raw = M C_gyro_i omega + A C_gyro_i a of `gyroscopes`, raw = M a of `accelerometers`.
    """
    if "gyroscopes" in imu or "accelerometers" in imu:
        return _kalibr_scale_misalignment(imu)
    if "Tw" not in imu:
        return None
    if str(imu.get("model", "kalibr")) not in ("kalibr", "rpng", "calibrated"):
        raise FormatError(
            f"model {imu['model']!r} of the IMU is not supported; known: kalibr, rpng, calibrated."
        )
    t = {name: np.array(imu[name], float) for name in ("Tw", "R_IMUtoGYRO", "Ta", "R_IMUtoACC", "Tg")}
    return ImuCalibration(t["Tw"] @ t["R_IMUtoGYRO"], t["Ta"] @ t["R_IMUtoACC"], t["Tg"])


def _kalibr_scale_misalignment(imu: Content) -> ImuCalibration:
    model = str(imu.get("model", "scale-misalignment"))
    if model != "scale-misalignment":
        raise FormatError(
            f"model {model!r} of the IMU is not supported; known: calibrated, scale-misalignment. Calibrate "
            "with kalibr_calibrate_imu_camera --imu-models scale-misalignment."
        )
    gyro, acc = imu.get("gyroscopes", {}), imu.get("accelerometers", {})
    turn = np.array(gyro.get("C_gyro_i", np.eye(3)), float)
    by_rate, by_force = (
        np.array(gyro.get(name, rest), float) for name, rest in (("M", np.eye(3)), ("A", 0.0 * turn))
    )
    return ImuCalibration(by_rate @ turn, np.array(acc.get("M", np.eye(3)), float), by_force @ turn)


def _require_identity(matrix: Any, name: str) -> None:
    if matrix is None:
        return
    rows = matrix["data"] if isinstance(matrix, Mapping) else matrix
    if not np.allclose(np.array(rows, float).reshape(4, 4), np.eye(4), atol=1e-9):
        raise FormatError(
            f"{name} of the IMU is not the identity; the body's frame has to be the IMU's here."
        )


# ------------------------------------------------------------------------ OpenVINS, EuRoC


def _is_openvins(content: Content) -> bool:
    return "relative_config_imucam" in content


def _openvins(content: Content, path: Path) -> Calibration:
    gravity = Calibration(gravity=float(content["gravity_mag"]) if "gravity_mag" in content else None)
    files = [_beside(path, str(content[name])) for name in ("relative_config_imucam", "relative_config_imu")]
    return gravity.joined(read_calibration(*files))


def _beside(path: Path, name: str) -> Path:
    """The file that a configuration names; copied alone, it may carry the configuration's prefix."""
    prefix = path.name.removesuffix("estimator_config.yaml")
    for candidate in (path.parent / name, path.parent / f"{prefix}{name}"):
        if candidate.is_file():
            return candidate
    raise FormatError(f"{path}: names {name}, which is not beside it.")


def _is_sensor(content: Content) -> bool:
    return "sensor_type" in content


def _sensor(content: Content, path: Path) -> Calibration:
    if content["sensor_type"] == "imu":
        _require_identity(content.get("T_BS"), "T_BS")
        return Calibration(None, _densities(content), None, float(content["rate_hz"]))
    if content["sensor_type"] != "camera":
        raise FormatError(f"{path}: sensor_type is {content['sensor_type']!r}, expected camera or imu.")
    camera = _camera(
        str(content["camera_model"]),
        content.get("distortion_model"),
        content["intrinsics"],
        content.get("distortion_coefficients"),
        pose_of_matrix(np.array(content["T_BS"]["data"], float).reshape(4, 4), "T_BS"),
        resolution=_resolution(content.get("resolution")),
        name=path.parent.name,
    )
    return Calibration(Rig(camera))


def _euroc_folder(path: Path) -> Calibration:
    root = path / "mav0" if (path / "mav0").is_dir() else path
    cameras = [_read(each_path) for each_path in sorted(root.glob("cam*/sensor.yaml"))]
    imu = root / "imu0" / "sensor.yaml"
    if not cameras and not imu.is_file():
        raise FormatError(f"{path}: holds neither cam0/sensor.yaml nor imu0/sensor.yaml.")
    rig = Rig([camera.rig[0] for camera in cameras if camera.rig is not None]) if cameras else None
    return Calibration(rig).joined(_read(imu) if imu.is_file() else Calibration())


# ------------------------------------------------------------------------ ORB-SLAM3


def _is_orb_slam(content: Content) -> bool:
    return "Camera.fx" in content or "Camera1.fx" in content


def _orb_slam(content: Content, path: Path) -> Calibration:
    prefix = "Camera1" if "Camera1.fx" in content else "Camera"
    mounting = content.get("IMU.T_b_c1", content.get("Tbc"))
    body_T_cam = np.array(SE3.identity_storage) if mounting is None else pose_of_matrix(mounting, "Tbc")
    kind = str(content.get("Camera.type", "PinHole"))
    cameras = [_orb_camera(content, prefix, kind, body_T_cam, _orb_baseline(content, prefix, kind))]
    between = content.get("Stereo.T_c1_c2", content.get("Tlr"))
    if "Camera2.fx" in content and between is None:
        raise FormatError(f"{path}: has a Camera2, but neither Stereo.T_c1_c2 nor Tlr says where it is.")
    if "Camera2.fx" in content:
        rows = np.vstack([np.asarray(between, float)[:3], [0.0, 0.0, 0.0, 1.0]])
        second = SE3(body_T_cam) * SE3(pose_of_matrix(rows, "T_c1_c2"))
        cameras.append(_orb_camera(content, "Camera2", kind, np.asarray(second.storage), None))
    names = ("IMU.NoiseGyro", "IMU.NoiseAcc", "IMU.GyroWalk", "IMU.AccWalk")
    noise = ImuNoise(*(float(content[name]) for name in names)) if names[0] in content else None
    rate = content.get("IMU.Frequency")
    return Calibration(Rig(cameras), noise, None, None if rate is None else float(rate))


def _orb_baseline(content: Content, prefix: str, kind: str) -> float | None:
    """Of a rectified pair; ORB-SLAM3 itself rectifies where a file has distortion or a second camera."""
    distorted = any(float(content.get(f"{prefix}.{name}", 0.0)) for name in ("k1", "k2", "p1", "p2", "k3"))
    if kind == "KannalaBrandt8" or (kind == "PinHole" and ("Camera2.fx" in content or distorted)):
        return None
    if "Stereo.b" in content:
        return float(content["Stereo.b"])
    if "Camera.bf" in content:
        return float(content["Camera.bf"]) / float(content[f"{prefix}.fx"])
    return None


def _orb_camera(
    content: Content, prefix: str, kind: str, body_T_cam: np.ndarray, baseline: float | None
) -> Camera:
    numbers = [float(content[f"{prefix}.{name}"]) for name in ("fx", "fy", "cx", "cy")]
    size = content.get("Camera.width"), content.get("Camera.height")
    name = "cam1" if prefix == "Camera2" else "cam0"
    rest: dict[str, Any] = {"resolution": None if None in size else _resolution(size), "name": name}
    if kind == "KannalaBrandt8":
        extra = [float(content[f"{prefix}.k{k}"]) for k in (1, 2, 3, 4)]
        return _camera("pinhole", "equidistant", numbers, extra, body_T_cam, **rest)
    if kind not in ("PinHole", "Rectified"):
        raise FormatError(f"Camera.type is {kind!r}, expected PinHole, Rectified or KannalaBrandt8.")
    if baseline is not None:
        return Camera(body_T_cam, "pinhole", np.array(numbers), baseline, **rest)
    extra = [float(content.get(f"{prefix}.{name}", 0.0)) for name in ("k1", "k2", "p1", "p2", "k3")]
    return _camera("pinhole", "radtan", numbers, extra, body_T_cam, **rest)


_KINDS: tuple[tuple[Callable[[Content], bool], Callable[[Content, Path], Calibration]], ...] = (
    (_is_openvins, _openvins),
    (_is_kalibr_cameras, _kalibr_cameras),
    (_is_sensor, _sensor),
    (_is_kalibr_imu, _kalibr_imu),
    (_is_orb_slam, _orb_slam),
)
"""Which kind of file, and what it says."""
