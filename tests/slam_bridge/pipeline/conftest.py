"""Sequences for the pipeline's tests: real clips, KITTI's laid out as its archive unpacks."""

import pytest

pytest.importorskip("cv2")


@pytest.fixture
def euroc_clip(shared_data):
    """A clip of EuRoC's MH_01_easy, 180 stereo pairs."""
    return _clip(shared_data / "seq" / "euroc_MH01_5s-14s")


@pytest.fixture
def kitti_clip(shared_data, tmp_path):
    """A clip of KITTI odometry 06, 51 stereo pairs, in its archive's layout."""
    clip = _clip(shared_data / "seq" / "kitti_odo06_0-50")
    folder = tmp_path / "dataset" / "sequences" / "06"
    folder.mkdir(parents=True)
    (folder / "image_0").symlink_to(clip / "image_l")
    (folder / "image_1").symlink_to(clip / "image_r")
    (folder / "times.txt").symlink_to(clip / "times.txt")
    lines = (clip / "calib.txt").read_text().splitlines()
    (folder / "calib.txt").write_text("".join(f"P{k}: {line}\n" for k, line in enumerate(lines)))
    (tmp_path / "dataset" / "poses").mkdir()
    (tmp_path / "dataset" / "poses" / "06.txt").symlink_to(clip / "poses.txt")
    return tmp_path / "dataset"


def _clip(folder):
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


@pytest.fixture(scope="session")
def room(tmp_path_factory):
    """Three and a half seconds of stereo and IMU in a room, 70 small images: a folder of EuRoC's layout."""
    from graphopt.cli.main import main

    folder = tmp_path_factory.mktemp("rendered") / "V1_02"
    arguments = ["--like", "V1_02", "--start", "4", "--seconds", "3.5", "--image-scale", "0.35"]
    assert main(["generate", "vi-sequence", *arguments, "--supersample", "1", "-o", str(folder)]) == 0
    return folder
