"""Calibration files of Kalibr, EuRoC, TUM-VI, OpenVINS and ORB-SLAM3 say the same about the same rig."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.errors import FormatError
from graphopt.geometry import SE3

KALIBR = """\
cam0:
  camera_model: {model}
  distortion_coeffs: {coefficients}
  distortion_model: {distortion}
  intrinsics: {intrinsics}
  resolution: [640, 480]
  timeshift_cam_imu: 0.0123
  T_cam_imu:
    - [0.0, -1.0, 0.0, 0.1]
    - [0.0, 0.0, -1.0, 0.2]
    - [1.0, 0.0, 0.0, 0.3]
    - [0.0, 0.0, 0.0, 1.0]
cam1:
  camera_model: {model}
  distortion_coeffs: {coefficients}
  distortion_model: {distortion}
  intrinsics: {intrinsics}
  resolution: [640, 480]
  T_cn_cnm1:
    - [1.0, 0.0, 0.0, -0.11]
    - [0.0, 1.0, 0.0, 0.0]
    - [0.0, 0.0, 1.0, 0.0]
    - [0.0, 0.0, 0.0, 1.0]
"""


@pytest.mark.parametrize(
    ("model", "distortion", "intrinsics", "coefficients", "ours", "numbers"),
    [
        ("pinhole", "none", [400, 401, 320, 240], [], "pinhole", [400, 401, 320, 240]),
        ("pinhole", "radtan", [400, 401, 320, 240], [0.1, 0.2, 0.3, 0.4], "radtan",
         [400, 401, 320, 240, 0.1, 0.2, 0.3, 0.4, 0.0]),
        ("pinhole", "equidistant", [400, 401, 320, 240], [0.1, 0.2, 0.3, 0.4], "kb8",
         [400, 401, 320, 240, 0.1, 0.2, 0.3, 0.4]),
        ("omni", "radtan", [1.5, 400, 401, 320, 240], [0.1, 0.2, 0.3, 0.4], "omni",
         [400, 401, 320, 240, 1.5, 0.1, 0.2, 0.3, 0.4]),
        ("ds", "none", [-0.2, 0.6, 400, 401, 320, 240], [], "double_sphere", [400, 401, 320, 240, -0.2, 0.6]),
    ],
)  # fmt: skip
def test_kalibr_models(tmp_path, model, distortion, intrinsics, coefficients, ours, numbers):
    """Model, order of intrinsics, chained mountings, time shift and resolution."""
    path = tmp_path / "camchain.yaml"
    names = {"model": model, "distortion": distortion, "intrinsics": intrinsics, "coefficients": coefficients}
    path.write_text(KALIBR.format(**names))
    rig = sb.read_calibration(path).rig
    assert [camera.model for camera in rig] == [ours, ours]
    np.testing.assert_allclose(rig[0].intrinsics, numbers)
    assert rig[0].time_offset == 0.0123 and rig[0].resolution == (640, 480)
    point = np.array([1.0, 2.0, 3.0])  # of the body: cam = R body + t
    np.testing.assert_allclose(SE3(rig[0].body_T_cam).inverse_act(point), [-1.9, -2.8, 1.3], atol=1e-12)
    np.testing.assert_allclose(SE3(rig[1].body_T_cam).inverse_act(point), [-2.01, -2.8, 1.3], atol=1e-12)


ORB = """\
%YAML:1.0
---
Camera.type: "{kind}"
Camera.fx: 435.2
Camera.fy: 435.3
Camera.cx: 367.4
Camera.cy: 252.2
{more}
"""


def test_orb_slam_rectified_pairs(tmp_path):
    """`Camera.bf` of an undistorted pinhole, and `Stereo.b` of a rectified one, are baselines."""
    path = tmp_path / "settings.yaml"
    path.write_text(ORB.format(kind="PinHole", more="Camera.bf: 47.9"))
    assert sb.read_calibration(path).rig[0].baseline == pytest.approx(47.9 / 435.2)
    text = ORB.format(kind="Rectified", more="Stereo.b: 0.11").replace("Camera.f", "Camera1.f")
    path.write_text(text.replace("Camera.c", "Camera1.c"))
    assert sb.read_calibration(path).rig[0].baseline == 0.11
    more = "Camera.k1: -0.1\nCamera.k2: 0.01\nCamera.p1: 0.0\nCamera.p2: 0.0\nCamera.bf: 47.9"
    path.write_text(ORB.format(kind="PinHole", more=more))
    assert sb.read_calibration(path).rig[0].model == "radtan"


def test_kalibr_scale_and_misalignment(tmp_path):
    """`imu-scale-misalignment` results: samples of such a sensor, corrected, are those of a perfect one."""
    path = tmp_path / "imu.yaml"
    path.write_text(KALIBR_IMU)
    found = sb.read_calibration(path)
    assert found.noise.gyro_density == 0.003 and found.rate == 400.0
    rng = np.random.default_rng(0)
    omega, force = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    gyro_scale = np.array([[1.02, 0, 0], [0.002, 0.99, 0], [0.003, 0.001, 1.0]])
    by_force, turn = np.array([[1e-3, 0, 2e-3], [0, 3e-3, 0], [0, 0, 1e-3]]), np.eye(3)[[1, 2, 0]]
    acc_scale = np.array([[1.01, 0, 0], [0.002, 0.98, 0], [0.003, 0.001, 1.0]])
    gyro = omega @ (gyro_scale @ turn).T + force @ (by_force @ turn).T
    raw = sb.ImuSamples(np.arange(5), gyro, force @ acc_scale.T)
    clean = found.imu.corrected(raw)
    np.testing.assert_allclose(clean.gyro, omega, atol=1e-12)
    np.testing.assert_allclose(clean.acc, force, atol=1e-12)
    path.write_text(KALIBR_IMU.replace("scale-misalignment", "scale-misalignment-size-effect"))
    with pytest.raises(FormatError, match=r"imu\.yaml.*size-effect.*not supported"):
        sb.read_calibration(path)


KALIBR_IMU = """\
imu0:
  T_i_b: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
  accelerometer_noise_density: 0.011
  accelerometer_random_walk: 0.0002
  accelerometers:
    M: [[1.01, 0, 0], [0.002, 0.98, 0], [0.003, 0.001, 1.0]]
  gyroscope_noise_density: 0.003
  gyroscope_random_walk: 4.0e-05
  gyroscopes:
    A: [[0.001, 0, 0.002], [0, 0.003, 0], [0, 0, 0.001]]
    C_gyro_i: [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    M: [[1.02, 0, 0], [0.002, 0.99, 0], [0.003, 0.001, 1.0]]
  model: scale-misalignment
  rostopic: /imu0
  time_offset: 0.0
  update_rate: 400.0
"""


def test_orb_slam_fisheye_pair(tmp_path):
    """Two fisheye cameras with the pose of the second in the first."""
    second = "\n".join(
        f"Camera2.{name}: {value}" for name, value in (("fx", 190), ("fy", 191), ("cx", 250), ("cy", 251))
    )
    ks = "\n".join(f"{camera}.k{k}: 0.00{k}" for camera in ("Camera", "Camera2") for k in (1, 2, 3, 4))
    pose = "Tlr: !!opencv-matrix\n   rows: 3\n   cols: 4\n   dt: f\n   data: [1,0,0,0.1, 0,1,0,0, 0,0,1,0]"
    path = tmp_path / "settings.yaml"
    path.write_text(ORB.format(kind="KannalaBrandt8", more=f"{second}\n{ks}\n{pose}"))
    rig = sb.read_calibration(path).rig
    assert [camera.model for camera in rig] == ["kb8", "kb8"]
    np.testing.assert_allclose(rig[1].body_T_cam, [0.1, 0, 0, 0, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(rig[1].intrinsics, [190, 191, 250, 251, 0.001, 0.002, 0.003, 0.004])


@pytest.mark.data
def test_published_files_agree(shared_data):
    """EuRoC by Kalibr, sensor.yaml, OpenVINS and ORB-SLAM3, TUM-VI by Kalibr and ORB-SLAM3."""
    folder = shared_data / "vio"
    kalibr = sb.read_calibration(folder / "calib" / "euroc_mav_kalibr_imucam_chain.yaml")
    openvins = sb.read_calibration(folder / "calib" / "euroc_mav_estimator_config.yaml")
    asl = sb.read_calibration(folder / "euroc_micro_mav0")
    orb = sb.read_calibration(folder / "calib" / "orbslam3_EuRoC.yaml")
    for other in (openvins, asl):
        assert len(other.rig) == 2 and other.noise == sb.ImuNoise() and other.rate == 200.0
        for one, two in zip(kalibr.rig, other.rig, strict=True):
            np.testing.assert_allclose(one.intrinsics, two.intrinsics)
            np.testing.assert_allclose(one.body_T_cam, two.body_T_cam, atol=1e-9)
    np.testing.assert_allclose(orb.rig[0].intrinsics, kalibr.rig[0].intrinsics)
    np.testing.assert_allclose(orb.rig[0].body_T_cam, kalibr.rig[0].body_T_cam, atol=1e-9)
    assert openvins.gravity == 9.81
    np.testing.assert_allclose(openvins.imu.gyro_matrix, np.eye(3), atol=1e-12)
    tum = sb.read_calibration(folder / "calib" / "tum_vi_estimator_config.yaml")
    orb = sb.read_calibration(folder / "calib" / "orbslam3_TUM_512.yaml")
    assert [camera.model for camera in tum.rig] == ["kb8", "kb8"] and tum.gravity == 9.80766
    np.testing.assert_allclose(orb.rig[0].intrinsics, tum.rig[0].intrinsics, atol=1e-5)
    np.testing.assert_allclose(orb.rig[0].body_T_cam[:3], tum.rig[0].body_T_cam[:3], atol=1e-6)
    assert orb.noise == tum.noise


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("just text", "holds no names"),
        ("a: [1, 2", "settings.yaml"),
        ("hello: world", "no calibration that is known"),
        ("cam0: {camera_model: pinhole, distortion_model: fov, intrinsics: [1]}", "'fov' is not supported"),
        ("cam0: {camera_model: pinhole, distortion_model: none}", "'intrinsics' is missing"),
        ("cam0: {camera_model: pinhole, distortion_model: none, intrinsics: [1, 1]}", r"expected \(4,\)"),
        ("cam0: {camera_model: pinhole, distortion_model: radtan, intrinsics: [1], distortion_coeffs: [1]}",
         "1 coefficients"),
        ("imu0: {gyroscope_noise_density: 1}", "accelerometer_noise_density"),
        ("relative_config_imucam: nothing.yaml\nrelative_config_imu: x.yaml", r"names nothing\.yaml"),
        ("Camera.fx: 1", "Camera.fy"),
    ],
)  # fmt: skip
def test_broken_files_are_named(tmp_path, text, message):
    """Errors name the file and what is wrong."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        sb.read_calibration(path)
    assert str(path) in str(caught.value)


IMU = """\
imu0:
  gyroscope_noise_density: 1e-3
  accelerometer_noise_density: 1e-2
  gyroscope_random_walk: 1e-5
  accelerometer_random_walk: 1e-4
"""
PINHOLE = "Camera.type: PinHole\nCamera.fx: 400.\nCamera.fy: 401.\nCamera.cx: 320\nCamera.cy: 240\n"


@pytest.mark.parametrize("before", ["", "\ufeff", "# made by a tool\n\n", "\n", "\ufeff# both\r\n"])
@pytest.mark.parametrize("after", ["---\n", "\n---\n", "# version\n---\n", ""])
def test_the_header_of_opencv_is_found(tmp_path, before, after):
    """After comments, blank lines and a byte order mark."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"{before}%YAML:1.0\n{after}{PINHOLE}", encoding="utf-8")
    assert sb.read_calibration(path).rig[0].intrinsics.tolist() == [400.0, 401.0, 320.0, 240.0]


def test_arrays_without_a_blank_after_the_colon(tmp_path):
    """OpenCV reads and ORB-SLAM2's EuRoC.yaml has "data:[1, 2]", which YAML takes for text."""
    path = tmp_path / "settings.yaml"
    data = "data:[-0.28, 0.07, 1.9e-4, 1.7e-05, 0.0]"
    more = f"LEFT.D: !!opencv-matrix\n   rows: 1\n   cols: 5\n   dt: d\n   {data}\n"
    path.write_text(f"%YAML:1.0\n---\n{PINHOLE}Camera.bf: 40.0\n{more}")
    assert sb.read_calibration(path).rig[0].baseline == pytest.approx(0.1)


def test_cameras_and_imu_in_one_file(tmp_path):
    """Both are taken; a field without a value is one that is not there."""
    path = tmp_path / "rig.yaml"
    camera = "camera_model: pinhole, distortion_model: none, intrinsics: [1, 2, 3, 4], timeshift_cam_imu: "
    path.write_text(f"cam0: {{{camera}}}\n{IMU}")
    found = sb.read_calibration(path)
    assert len(found.rig) == 1 and found.noise.gyro_density == 1e-3 and found.rig[0].time_offset == 0.0


def test_openvins_models_of_an_imu_have_one_equation(tmp_path):
    """Which triangle is free is the estimator's matter."""
    matrices = "".join(
        f"  {name}: {value}\n"
        for name, value in (
            ("Tw", [[1, 0, 0], [0.01, 1, 0], [0, 0, 1]]),
            ("R_IMUtoGYRO", np.eye(3).tolist()),
            ("Ta", [[1, 0, 0], [0, 1, 0], [0, 0, 1.02]]),
            ("R_IMUtoACC", [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
            ("Tg", np.zeros((3, 3)).tolist()),
        )
    )
    path = tmp_path / "imu.yaml"
    found = []
    for model in ("kalibr", "rpng"):
        path.write_text(f"{IMU}  model: {model}\n{matrices}")
        found.append(sb.read_calibration(path).imu)
    np.testing.assert_array_equal(found[0].acc_matrix, [[0, -1, 0], [1, 0, 0], [0, 0, 1.02]])
    np.testing.assert_array_equal(found[0].acc_matrix, found[1].acc_matrix)
    path.write_text(f"{IMU}  model: other\n{matrices}")
    with pytest.raises(FormatError, match="'other' of the IMU is not supported"):
        sb.read_calibration(path)


def test_a_pair_of_orb_slam_by_its_baseline(tmp_path):
    """Stereo.b of version 1.0 as Camera.bf of older files, where pixels are not distorted."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"%YAML:1.0\n{PINHOLE}Stereo.b: 0.1\n")
    assert sb.read_calibration(path).rig[0].baseline == 0.1
    path.write_text(f"%YAML:1.0\n{PINHOLE}Stereo.b: 0.1\nCamera.k3: 0.01\n")
    camera = sb.read_calibration(path).rig[0]
    assert camera.baseline is None and camera.model == "radtan"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cam0: {camera_model: pinhole, distortion_model: none, intrinsics: [1, 1, 1, 1], "
         "T_cam_imu: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 2, 3, 1]]}", "transposed"),
        ("cam0: {camera_model: pinhole, distortion_model: none, intrinsics: [1, 1, 1, 1], "
         "resolution: [0, 9]}", "width, height > 0"),
        (f"{PINHOLE}Camera2.fx: 1", "neither Stereo.T_c1_c2 nor Tlr"),
    ],
)  # fmt: skip
def test_calibrations_that_would_be_half_read_are_refused(tmp_path, text, message):
    """A matrix stored by columns, an image of no size, a second camera that stands nowhere."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        sb.read_calibration(path)
