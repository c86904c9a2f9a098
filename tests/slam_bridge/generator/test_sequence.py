"""Rendered sequences are folders as published ones are: the project's own readers read them back."""

import json

import numpy as np
import pytest
from PIL import Image

from graphopt.cli.main import main
from graphopt.errors import OptionError
from slam_bridge import preintegrate, read_calibration, read_imu, read_states
from slam_bridge.generator import ImageOptions, SequenceOptions, generate_sequence

SMALL = SequenceOptions(seconds=0.3, start=10.0, image_scale=0.15, images=ImageOptions(noise=1.0))


@pytest.fixture(scope="module")
def euroc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("euroc") / "v102"
    return folder, generate_sequence("V102", folder, SMALL)


def test_euroc_folder_is_read_back(euroc):
    """Calibration, IMU, truth and images of both cameras are those that were planned."""
    folder, planned = euroc
    read = read_calibration(folder / "mav0")
    assert [camera.model for camera in read.rig] == ["radtan", "radtan"]
    for mine, theirs in zip(planned.sensors.rig, read.rig, strict=True):
        np.testing.assert_allclose(theirs.intrinsics, mine.intrinsics, rtol=1e-9)
        np.testing.assert_allclose(theirs.body_T_cam, mine.body_T_cam, atol=1e-9)
        assert theirs.resolution == mine.resolution == (113, 72)
    assert read.noise.gyro_density == pytest.approx(planned.sensors.noise.gyro_density)
    imu, truth = (
        read_imu(folder / "mav0/imu0/data.csv"),
        read_states(folder / "mav0/state_groundtruth_estimate0/data.csv"),
    )
    np.testing.assert_array_equal(imu.stamps, truth.stamps)
    assert len(imu) == 61 and np.diff(imu.stamps).max() == 5_000_000
    np.testing.assert_allclose(
        truth.world_T_body, planned.trajectory.at(truth.stamps).world_T_body, atol=1e-9
    )
    for name in ("cam0", "cam1"):
        lines = (folder / "mav0" / name / "data.csv").read_text().splitlines()[1:]
        assert [int(line.split(",")[0]) for line in lines] == planned.image_stamps.tolist()
        with Image.open(folder / "mav0" / name / "data" / lines[-1].split(",")[1]) as image:
            pixels = np.asarray(image)
        assert pixels.shape == (72, 113) and pixels.dtype == np.uint8 and pixels.std() > 10.0


def test_imu_and_truth_of_the_folder_agree(euroc):
    """The samples less the true biases lead from the first true state to the last."""
    folder, planned = euroc
    imu, truth = (
        read_imu(folder / "mav0/imu0/data.csv"),
        read_states(folder / "mav0/state_groundtruth_estimate0/data.csv"),
    )
    measured = preintegrate(imu, planned.sensors.noise, truth.gyro_bias[0], truth.acc_bias[0])
    pose, velocity = measured.predict(truth.world_T_body[0], truth.velocity[0])
    assert np.linalg.norm(pose[:3] - truth.world_T_body[-1, :3]) < 0.01
    assert np.linalg.norm(velocity - truth.velocity[-1]) < 0.02


def test_the_same_seed_gives_the_same_folder(euroc, tmp_path):
    """Every file equals, byte for byte; another seed has another scene."""
    folder, _ = euroc
    generate_sequence("V102", tmp_path / "again", SMALL)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len(files) > 20
    for name in files:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    made = json.loads((folder / "generated.json").read_text())
    assert made["like"] == "V102" and made["scene"]["boxes"] and "built-in" in made["trajectory"]


def test_tumvi_folder_is_read_back(tmp_path):
    """Fisheye images of 16 bits, motion capture instead of states, Kalibr's calibration in dso."""
    planned = generate_sequence("room4", tmp_path / "room4", SMALL)
    read = read_calibration(tmp_path / "room4/dso/camchain.yaml")
    assert [camera.model for camera in read.rig] == ["kb8", "kb8"]
    np.testing.assert_allclose(read.rig[1].body_T_cam, planned.sensors.rig[1].body_T_cam, atol=1e-9)
    truth = read_states(tmp_path / "room4/mav0/mocap0/data.csv")
    assert truth.velocity is None and np.diff(truth.stamps).max() == 8_333_333
    name = f"{planned.image_stamps[0]}.png"
    with Image.open(tmp_path / "room4/mav0/cam1/data" / name) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (77, 77) and pixels.max() > 256
    imu = (tmp_path / "room4/dso/imu_config.yaml").read_text()
    assert "update_rate: 200.0" in imu and "gyroscope_noise_density" in imu


def test_a_folder_with_content_is_left_alone(tmp_path):
    """The error says what to do; an interrupted run leaves nothing behind."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("x")
    with pytest.raises(OptionError, match="not empty"):
        generate_sequence("V102", tmp_path / "full", SMALL)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_sequence("V102", tmp_path / "new", SMALL, stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_command_line(tmp_path, capsys):
    """`graphopt generate vi-sequence` follows a truth that is named, and says what it made."""
    truth = tmp_path / "gt.txt"
    times = np.arange(0.0, 4.0, 0.05)
    truth.write_text("".join(f"{t:.3f} {np.sin(t)} {0.2 * t} 1.5 0 0 0 1\n" for t in times))
    words = [
        "generate",
        "vi-sequence",
        "--like",
        "V1_02",
        "-o",
        str(tmp_path / "out"),
        "--trajectory",
        str(truth),
    ]
    assert (
        main([*words, "--seconds", "0.2", "--image-scale", "0.1", "--shutter", "0.01", "--perfect-imu"]) == 0
    )
    out = capsys.readouterr().out
    assert str(truth) in out and "images" in out
    states = read_states(tmp_path / "out/mav0/state_groundtruth_estimate0/data.csv")
    assert not states.gyro_bias.any()
    assert main([*words, "--seconds", "99"]) == 2
    assert main(["generate", "vi-sequence", "--like", "V9", "-o", str(tmp_path / "x")]) == 2
    assert "Known: MH01" in capsys.readouterr().err
