"""Folders of sequences as their publishers write them.

    EuRoC    mav0/camN/{data.csv, data/STAMP.png, sensor.yaml}, mav0/imu0/{data.csv, sensor.yaml},
             mav0/state_groundtruth_estimate0/{data.csv, sensor.yaml}, mav0/body.yaml
    TUM-VI   mav0/camN/{data.csv, data/STAMP.png}, mav0/imu0/data.csv, mav0/mocap0/data.csv,
             dso/{camchain.yaml, imu_config.yaml} in Kalibr's form; images have 16 bits

Both also get `generated.json`: how the sequence was made, the scene's boxes. Quaternions are w, x, y, z.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera
from slam_bridge.generator.imu import SimulatedImu
from slam_bridge.generator.sensors import Sensors
from slam_bridge.generator.trajectory import Motion

_DISTORTIONS = {"pinhole": "none", "radtan": "radial-tangential", "kb8": "equidistant"}
_IMU_HEADER = (
    "#timestamp [ns],w_RS_S_x [rad s^-1],w_RS_S_y [rad s^-1],w_RS_S_z [rad s^-1],"
    "a_RS_S_x [m s^-2],a_RS_S_y [m s^-2],a_RS_S_z [m s^-2]"
)
_POSE_HEADER = (
    "#timestamp [ns], p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z []"
)
_STATE_HEADER = _POSE_HEADER + (
    ", v_RS_R_x [m s^-1], v_RS_R_y [m s^-1], v_RS_R_z [m s^-1], b_w_RS_S_x [rad s^-1], "
    "b_w_RS_S_y [rad s^-1], b_w_RS_S_z [rad s^-1], "
    "b_a_RS_S_x [m s^-2], b_a_RS_S_y [m s^-2], b_a_RS_S_z [m s^-2]"
)


def png(image: np.ndarray, bits: int = 8) -> bytes:
    """A grey image (height, width), 0 to 255, as PNG of 8 or 16 bits."""
    try:
        from PIL import Image
    except ImportError as error:
        raise OptionError("writing images needs Pillow: pip install graphopt[vib].") from error
    levels = np.rint(image).astype(np.uint8) if bits == 8 else np.rint(257.0 * image).astype(np.uint16)
    buffer = BytesIO()
    Image.fromarray(levels).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def write_csv(path: Path, header: str, stamps: np.ndarray, columns: np.ndarray) -> None:
    """One line per stamp: nanoseconds, then numbers with all digits that matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header]
    for stamp, row in zip(stamps.tolist(), columns.tolist(), strict=True):
        lines.append(",".join([str(stamp), *(f"{value:.12g}" for value in row)]))
    path.write_text("\n".join(lines) + "\n")


def write_image_lists(base: Path, cameras: Sequence[str], stamps: np.ndarray) -> list[Path]:
    """data.csv of each camera; returns the folders of the images."""
    lines = ["#timestamp [ns],filename", *(f"{stamp},{stamp}.png" for stamp in stamps.tolist())]
    for name in cameras:
        (base / name / "data").mkdir(parents=True)
        (base / name / "data.csv").write_text("\n".join(lines) + "\n")
    return [base / name / "data" for name in cameras]


def write_euroc(folder: Path, sensors: Sensors, motion: Motion, imu: SimulatedImu) -> None:
    """All but the images, in EuRoC's form; motion and IMU have the same stamps."""
    base = folder / "mav0"
    for name, camera in zip(sensors.rig.names, sensors.rig, strict=True):
        (base / name).mkdir(parents=True, exist_ok=True)
        (base / name / "sensor.yaml").write_text(_camera_yaml(name, camera, sensors.camera_rate))
    samples = imu.samples
    write_csv(base / "imu0/data.csv", _IMU_HEADER, samples.stamps, np.hstack([samples.gyro, samples.acc]))
    (base / "imu0/sensor.yaml").write_text(_imu_yaml(sensors))
    states = np.hstack([_w_first(motion.world_T_body), motion.velocity, imu.gyro_bias, imu.acc_bias])
    truth = base / "state_groundtruth_estimate0"
    write_csv(truth / "data.csv", _STATE_HEADER, motion.stamps, states)
    (truth / "sensor.yaml").write_text(
        "#Ground truth of a rendered sequence\nsensor_type: visual-inertial\ncomment: exact\n"
        + _pose_yaml(np.eye(4))
    )
    (base / "body.yaml").write_text("%YAML:1.0\ncomment: rendered sequence\n")


def write_tumvi(folder: Path, sensors: Sensors, motion: Motion, imu: SimulatedImu) -> None:
    """All but the images, in TUM-VI's form; motion has the stamps of the motion capture."""
    samples = imu.samples
    values = np.hstack([samples.gyro, samples.acc])
    write_csv(folder / "mav0/imu0/data.csv", _IMU_HEADER, samples.stamps, values)
    write_csv(folder / "mav0/mocap0/data.csv", _POSE_HEADER, motion.stamps, _w_first(motion.world_T_body))
    (folder / "dso").mkdir(parents=True, exist_ok=True)
    cameras = zip(sensors.rig.names, sensors.rig, strict=True)
    (folder / "dso/camchain.yaml").write_text(
        "".join(_kalibr_camera(name, camera) for name, camera in cameras)
    )
    (folder / "dso/imu_config.yaml").write_text(_kalibr_imu(sensors))


def write_provenance(folder: Path, content: dict[str, Any]) -> None:
    """`generated.json`."""
    (folder / "generated.json").write_text(json.dumps(content, indent=1) + "\n")


def _w_first(poses: np.ndarray) -> np.ndarray:
    return poses[:, [0, 1, 2, 6, 3, 4, 5]]


def _row(values: Any) -> str:
    return "[" + ", ".join(f"{value:.12g}" for value in np.ravel(values).tolist()) + "]"


def _pose_yaml(matrix: np.ndarray) -> str:
    rows = ",\n         ".join(_row(row)[1:-1] for row in matrix)
    return f"T_BS:\n  cols: 4\n  rows: 4\n  data: [{rows}]\n"


def _split(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """fx, fy, cx, cy and the coefficients of the distortion."""
    if camera.model not in _DISTORTIONS:
        raise OptionError(
            f"a camera of model {camera.model!r} has no place in these files; known: "
            f"{', '.join(_DISTORTIONS)}."
        )
    extra = camera.intrinsics[4:]
    if camera.model == "radtan" and extra[4] == 0.0:
        extra = extra[:4]
    return camera.intrinsics[:4], extra


def _matrix(camera: Camera) -> np.ndarray:
    return np.asarray(SE3(camera.body_T_cam).to_matrix())


def _camera_yaml(name: str, camera: Camera, rate: float) -> str:
    intrinsics, distortion = _split(camera)
    assert camera.resolution is not None
    return (
        f"%YAML:1.0\nsensor_type: camera\ncomment: rendered {name}\n\n# Extrinsics: body (IMU) from sensor\n"
        f"{_pose_yaml(_matrix(camera))}\nrate_hz: {rate:g}\nresolution: {list(camera.resolution)}\n"
        f"camera_model: pinhole\nintrinsics: {_row(intrinsics)} #fu, fv, cu, cv\n"
        f"distortion_model: {_DISTORTIONS[camera.model]}\ndistortion_coefficients: {_row(distortion)}\n"
    )


def _imu_yaml(sensors: Sensors) -> str:
    noise = sensors.noise
    return (
        f"%YAML:1.0\nsensor_type: imu\ncomment: simulated\n\n{_pose_yaml(np.eye(4))}"
        f"rate_hz: {sensors.imu_rate:g}\n\n"
        f"gyroscope_noise_density: {noise.gyro_density:.8g}     # [rad/s/sqrt(Hz)]\n"
        f"gyroscope_random_walk: {noise.gyro_bias_density:.8g}       # [rad/s^2/sqrt(Hz)]\n"
        f"accelerometer_noise_density: {noise.acc_density:.8g}  # [m/s^2/sqrt(Hz)]\n"
        f"accelerometer_random_walk: {noise.acc_bias_density:.8g}    # [m/s^3/sqrt(Hz)]\n"
    )


def _kalibr_camera(name: str, camera: Camera) -> str:
    intrinsics, distortion = _split(camera)
    assert camera.resolution is not None
    model = {"radtan": "radtan", "kb8": "equidistant", "pinhole": "none"}[camera.model]
    rows = "".join(f"  - {_row(row)}\n" for row in np.linalg.inv(_matrix(camera)))
    return (
        f"{name}:\n  T_cam_imu:\n{rows}  camera_model: pinhole\n  distortion_coeffs: {_row(distortion)}\n"
        f"  distortion_model: {model}\n  intrinsics: {_row(intrinsics)}\n"
        f"  resolution: {list(camera.resolution)}\n  rostopic: /{name}/image_raw\n"
    )


def _kalibr_imu(sensors: Sensors) -> str:
    noise = sensors.noise
    return (
        f"accelerometer_noise_density: {noise.acc_density:.8g}  # [m/s^2/sqrt(Hz)]\n"
        f"accelerometer_random_walk: {noise.acc_bias_density:.8g}    # [m/s^3/sqrt(Hz)]\n"
        f"gyroscope_noise_density: {noise.gyro_density:.8g}      # [rad/s/sqrt(Hz)]\n"
        f"gyroscope_random_walk: {noise.gyro_bias_density:.8g}        # [rad/s^2/sqrt(Hz)]\n"
        f"rostopic: /imu0\nupdate_rate: {sensors.imu_rate:.1f}\n"
    )
