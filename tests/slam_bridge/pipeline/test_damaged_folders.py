"""Folders and bags in which files, rows or messages are wrong: what is left out is said, the rest is used."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from slam_bridge.pipeline import PipelineOptions, SequenceError, open_source, run

cv2 = pytest.importorskip("cv2")
STEREO = PipelineOptions(mode="stereo", single_thread=True)
MESSAGES = {
    "size": "1 images of camera 1 were left out: is ",
    "damaged": "1 images of camera 1 were left out: missing, or no image that OpenCV reads, the first at",
    "both": "1 of 20 frames have no pose",
}


@pytest.fixture
def folder(room: Path, tmp_path: Path) -> Path:
    """The first 20 frames of the room, as a copy."""
    place = tmp_path / "V1_02"
    for camera in ("cam0", "cam1"):
        (place / "mav0" / camera / "data").mkdir(parents=True)
        shutil.copy(room / "mav0" / camera / "sensor.yaml", place / "mav0" / camera)
        lines = (room / "mav0" / camera / "data.csv").read_text().splitlines()[:21]
        (place / "mav0" / camera / "data.csv").write_text("\n".join(lines) + "\n")
        for line in lines[1:]:
            name = line.split(",")[1].strip()
            shutil.copy(room / "mav0" / camera / "data" / name, place / "mav0" / camera / "data")
    shutil.copytree(room / "mav0" / "imu0", place / "mav0" / "imu0")
    return place


def images(folder: Path, camera: int) -> list[Path]:
    """Files of a camera."""
    return sorted((folder / "mav0" / f"cam{camera}" / "data").iterdir())


@pytest.mark.parametrize("fault", MESSAGES)
def test_one_image_of_a_folder(folder, fault):
    """The run goes on behind it."""
    for camera in (0, 1) if fault == "both" else (1,):
        path = images(folder, camera)[12]
        if fault == "size":
            cv2.imwrite(str(path), cv2.imread(str(path), 0)[:-2])
        else:
            path.write_bytes(path.read_bytes()[:20])
    found = run(open_source(folder), STEREO)
    assert found.num_frames == 20 and len(found.stamps) == 20 - (fault == "both")
    assert MESSAGES[fault] in found.message and "ended early" not in found.message


def test_a_folder_whose_images_are_all_of_another_size(folder):
    """The calibration is another camera's: the first file is named."""
    for path in images(folder, 0):
        cv2.imwrite(str(path), cv2.imread(str(path), 0)[:-2])
    with pytest.raises(SequenceError, match=r"cam0/data/\d+\.png: is \d+ x \d+ pixels, the calibration is"):
        run(open_source(folder), STEREO)


def test_rows_of_a_table_of_samples(folder):
    """Out of order, repeated, not finite: said with the file's name, the others are the same."""
    table = folder / "mav0" / "imu0" / "data.csv"
    whole = open_source(folder).sequence.imu
    lines = table.read_text().splitlines()
    lines[50], lines[51] = lines[51], lines[50]
    lines.insert(80, lines[79])
    lines[100] = ",".join([lines[100].split(",")[0], "nan", *lines[100].split(",")[2:]])
    table.write_text("\n".join(lines) + "\n")
    source = open_source(folder)
    assert [note.split(" ")[0] for note in source.notes] == ["1", "1", "1"]
    assert all(str(table) in note for note in source.notes)
    assert len(source.sequence.imu) == len(whole) - 1
    rows = np.searchsorted(whole.stamps, source.sequence.imu.stamps)
    np.testing.assert_array_equal(source.sequence.imu.gyro, whole.gyro[rows])


def test_a_frame_that_is_listed_twice(folder):
    """Once is used."""
    table = folder / "mav0" / "cam0" / "data.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:5], lines[4], *lines[5:]]) + "\n")
    source = open_source(folder)
    assert len(source.sequence) == 20 and f"1 stamps that {table} lists were there already" in source.notes


def test_a_pause_of_the_imu(folder):
    """Half a second without samples."""
    table = folder / "mav0" / "imu0" / "data.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:60] + lines[160:]) + "\n")
    found = run(open_source(folder), PipelineOptions(single_thread=True))
    assert "1 pauses between IMU samples are longer than 0.1 s, the first at 1500000004.2" in found.message
    assert len(found.stamps) == 20


def test_a_bag_that_is_cut_off(room, tmp_path):
    """Named, with what mends it."""
    pytest.importorskip("rosbags")
    path = tmp_path / "run.bag"
    path.write_bytes(b"#ROSBAG V2.0\n" + bytes(2000))
    with pytest.raises(SequenceError, match=r"run\.bag: no bag that can be read, or a damaged one"):
        open_source(path, room / "mav0")
