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
