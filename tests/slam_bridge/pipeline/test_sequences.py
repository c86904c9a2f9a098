"""Folders are recognised as their archives unpack; what is missing is named, with what was expected."""

import numpy as np
import pytest

from graphopt.errors import GraphOptError
from slam_bridge.pipeline import SequenceError, find_sequences, open_sequence

cv2 = pytest.importorskip("cv2")

SENSOR = """
sensor_type: camera
T_BS: {{cols: 4, rows: 4, data: [1, 0, 0, {x}, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]}}
rate_hz: 20
resolution: [64, 48]
camera_model: pinhole
intrinsics: [60.0, 60.0, 32.0, 24.0]
distortion_model: radial-tangential
distortion_coefficients: [0.0, 0.0, 0.0, 0.0]
"""
IMU = """
sensor_type: imu
rate_hz: 200
gyroscope_noise_density: 1.6968e-04
gyroscope_random_walk: 1.9393e-05
accelerometer_noise_density: 2.0000e-3
accelerometer_random_walk: 3.0000e-3
"""
CHAIN = """
cam0: {cam_overlaps: [1], camera_model: pinhole, distortion_model: equidistant, resolution: [64, 48],
  distortion_coeffs: [0.0, 0.0, 0.0, 0.0], intrinsics: [30.0, 30.0, 32.0, 24.0], timeshift_cam_imu: 0.001,
  T_cam_imu: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}
cam1: {camera_model: pinhole, distortion_model: equidistant, resolution: [64, 48],
  distortion_coeffs: [0.0, 0.0, 0.0, 0.0], intrinsics: [30.0, 30.0, 32.0, 24.0],
  T_cam_imu: [[1, 0, 0, -0.1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}
"""


def write_image(path, depth=np.uint8, size=(48, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), np.full(size, 40 if depth is np.uint8 else 40 * 256, depth))


def write_asl(folder, cameras=("cam0", "cam1"), sensors=True, depth=np.uint8):
    """A tiny sequence of three frames, the second one of cam0 only."""
    mav = folder / "mav0"
    for number, name in enumerate(cameras):
        stamps = [1000, 1500, 2000] if number == 0 else [1000, 2000]
        for stamp in stamps:
            write_image(mav / name / "data" / f"{stamp}.png", depth)
        rows = "".join(f"{stamp},{stamp}.png\n" for stamp in stamps)
        (mav / name / "data.csv").write_text("#timestamp [ns],filename\n" + rows)
        if sensors:
            (mav / name / "sensor.yaml").write_text(SENSOR.format(x=0.1 * number))
    (mav / "imu0").mkdir()
    (mav / "imu0" / "data.csv").write_text("#t\n900,0,0,0,0,0,9.81\n2100,0,0,0,0,0,9.81\n")
    if sensors:
        (mav / "imu0" / "sensor.yaml").write_text(IMU)
    return folder


def test_euroc(tmp_path):
    """Below a root by name; frames that any camera has; calibration and noise from sensor.yaml."""
    write_asl(tmp_path / "MH_01_easy")
    write_asl(tmp_path / "vicon" / "V1_02_medium")
    assert set(find_sequences("euroc", tmp_path)) == {"MH_01_easy", "V1_02_medium"}
    found = find_sequences("euroc", tmp_path, ["MH_01"])
    sequence = open_sequence("euroc", found["MH_01_easy"])
    assert sequence.stamps.tolist() == [1000, 1500, 2000]
    assert [len(path) for path in sequence.paths] == [2, 2, 2]
    assert [image is None for image in sequence.images(1)] == [False, True]
    assert len(sequence.with_cameras(1)) == 3
    assert sequence.rig[1].body_T_cam[0] == pytest.approx(0.1)
    assert sequence.noise is not None and sequence.noise.gyro_density == pytest.approx(1.6968e-4)
    assert [image.shape for image in sequence.images(0)] == [(48, 64), (48, 64)]
    assert sequence.truth is None


def test_the_sequence_itself_may_be_the_root(tmp_path):
    """--root MH_01_easy and --root MH_01_easy/mav0 mean that sequence."""
    write_asl(tmp_path / "MH_01_easy")
    for root in (tmp_path / "MH_01_easy", tmp_path / "MH_01_easy" / "mav0"):
        assert list(find_sequences("euroc", root)) == ["MH_01_easy"]


def test_tumvi(tmp_path):
    """Kalibr's chain in dso/ with its time offset; 16-bit images are read as 8 bits and evened out."""
    folder = write_asl(tmp_path / "dataset-room1_512_16", sensors=False, depth=np.uint16)
    (folder / "dso").mkdir()
    (folder / "dso" / "camchain.yaml").write_text(CHAIN)
    (folder / "dso" / "imu_config.yaml").write_text(IMU.replace("sensor_type: imu\nrate_hz", "update_rate"))
    sequence = open_sequence("tumvi", find_sequences("tumvi", tmp_path)["dataset-room1_512_16"])
    assert sequence.rig[0].model == "kb8"
    assert sequence.stamps.tolist() == [1_001_000, 1_001_500, 1_002_000]
    assert sequence.equalize and sequence.images(0)[0].dtype == np.uint8
    assert sequence.noise is not None


def test_images_that_are_listed_but_missing_are_left_out_and_named(tmp_path):
    """A folder that was cut: frames without files go, and a note says how many."""
    folder = write_asl(tmp_path / "a", cameras=("cam0",))
    (folder / "mav0" / "cam0" / "data" / "2000.png").unlink()
    sequence = open_sequence("euroc", folder)
    assert sequence.stamps.tolist() == [1000, 1500]
    (note,) = sequence.notes
    assert "1 of the 3 images" in note and "2000.png" in note
    (folder / "mav0" / "cam0" / "data" / "1500.png").unlink()
    with pytest.raises(SequenceError, match=r"1 images, expected .*; 2 of the 3 images .* are missing"):
        open_sequence("euroc", folder)


def test_a_list_that_breaks_off_is_named(tmp_path):
    """File, line and what stands there."""
    folder = write_asl(tmp_path / "a", cameras=("cam0",))
    (folder / "mav0" / "cam0" / "data.csv").write_text("#t,name\n1000,1000.png\n15")
    with pytest.raises(SequenceError, match=r"data\.csv, line 3: '15'; expected a stamp"):
        open_sequence("euroc", folder)


@pytest.mark.parametrize("ending", ["jpg", "pgm", "tif"])
def test_folders_that_kalibr_extracts_from_bags(tmp_path, ending):
    """cam0/STAMP.*, imu0.csv and camchain.yaml side by side, without mav0 and data.csv."""
    folder = tmp_path / "run1"
    for camera in ("cam0", "cam1"):
        for stamp in (1000, 2000):
            write_image(folder / camera / f"{stamp}.{ending}")
    (folder / "imu0.csv").write_text(
        "#timestamp,wx,wy,wz,ax,ay,az\n900,0,0,0,0,0,9.81\n2100,0,0,0,0,0,9.81\n"
    )
    (folder / "camchain.yaml").write_text(CHAIN)
    sequence = open_sequence("euroc", find_sequences("euroc", tmp_path)["run1"])
    assert len(sequence) == 2 and len(sequence.rig) == 2
    assert sequence.imu is not None and len(sequence.imu.stamps) == 2
    assert [image.shape for image in sequence.images(0)] == [(48, 64), (48, 64)]


def test_cameras_without_calibration_and_tables_that_break_off_are_named(tmp_path):
    """The other camera's numbers are not taken for it; the line that is cut is said."""
    folder = write_asl(tmp_path / "a")
    (folder / "mav0" / "cam0" / "sensor.yaml").unlink()
    with pytest.raises(
        SequenceError, match=r"images of cam0 and cam1, .* of 1 camera\. cam0/sensor\.yaml is missing"
    ):
        open_sequence("euroc", folder)
    whole = write_asl(tmp_path / "b")
    table = whole / "mav0" / "imu0" / "data.csv"
    table.write_text(table.read_text() + "2200,0,0")
    with pytest.raises(
        GraphOptError, match=r"imu0/data\.csv: line 4 has not 7 columns as the first\. Is the file"
    ):
        open_sequence("euroc", whole)


def test_archives_that_were_not_unpacked_are_named(tmp_path):
    """The way out is in the message."""
    (tmp_path / "MH_01_easy.zip").write_bytes(b"PK")
    with pytest.raises(SequenceError, match=r"Unpack MH_01_easy\.zip there first"):
        find_sequences("euroc", tmp_path)


def write_kitti(root, frames=3):
    """KITTI odometry: calibration, times, both grey cameras, poses."""
    folder = root / "sequences" / "06"
    for camera in ("image_0", "image_1"):
        for number in range(frames):
            write_image(folder / camera / f"{number:06d}.png")
    matrix = "700 0 32 {} 0 700 24 0 0 0 1 0"
    lines = (f"P{number}: {matrix.format(shift)}\n" for number, shift in ((0, 0), (1, -350)))
    (folder / "calib.txt").write_text("".join(lines))
    (folder / "times.txt").write_text("".join(f"{0.1 * number:e}\n" for number in range(frames)))
    (root / "poses").mkdir()
    poses = "".join(f"1 0 0 0 0 1 0 0 0 0 1 {number}\n" for number in range(frames))
    (root / "poses" / "06.txt").write_text(poses)
    return folder


def test_kitti_odometry(tmp_path):
    """The baseline is in P1; truth is beside the sequences."""
    write_kitti(tmp_path / "dataset")
    sequence = open_sequence("kitti", find_sequences("kitti", tmp_path, ["06"])["06"])
    assert sequence.rig[1].body_T_cam[0] == pytest.approx(0.5)
    assert sequence.stamps.tolist() == [0, 100_000_000, 200_000_000]
    assert sequence.truth is not None and sequence.truth.world_T_body[:, 2].tolist() == [0.0, 1.0, 2.0]


def test_kitti_odometry_in_colour_and_cut(tmp_path):
    """image_2 and image_3 serve where the grey ones are missing; frames without a partner go, with a note."""
    folder = write_kitti(tmp_path / "dataset")
    matrix = "700 0 32 {} 0 700 24 0 0 0 1 0"
    lines = (f"P{number}: {matrix.format(shift)}\n" for number, shift in ((2, 42), (3, -308)))
    (folder / "calib.txt").write_text("".join(lines))
    (folder / "image_0").rename(folder / "image_2")
    (folder / "image_1").rename(folder / "image_3")
    (folder / "image_3" / "000001.png").unlink()
    sequence = open_sequence("kitti", find_sequences("kitti", tmp_path, ["06"])["06"])
    assert [camera.body_T_cam[0] for camera in sequence.rig] == pytest.approx([-0.06, 0.44])
    assert sequence.stamps.tolist() == [0, 200_000_000]
    assert sequence.notes == ("1 of 3 images have none of the other camera",)
    (folder / "image_3" / "000007.png").write_bytes(b"")
    (folder / "image_2" / "000007.png").write_bytes(b"")
    with pytest.raises(SequenceError, match=r"numbered up to 7, for 3 times"):
        open_sequence("kitti", folder)


@pytest.mark.parametrize("kind", ["euroc", "tumvi", "kitti"])
def test_an_empty_folder_says_what_was_expected(tmp_path, kind):
    """The message names the folder and an example of what it should hold."""
    with pytest.raises(SequenceError, match=r"holds no sequence of \w+\. Expected .*with"):
        find_sequences(kind, tmp_path)


def test_a_kitti_folder_without_its_images_says_which_it_looked_for(tmp_path):
    """Folders of other names are listed."""
    folder = tmp_path / "06"
    (folder / "image_l").mkdir(parents=True)
    (folder / "times.txt").write_text("0.0\n0.1\n")
    (folder / "calib.txt").write_text("")
    with pytest.raises(SequenceError, match=r"06: no folder of images; .*image_0 .*there: image_l\."):
        open_sequence("kitti", folder)


def test_names_that_fit_nothing_or_several(tmp_path):
    """Known sequences are listed."""
    write_asl(tmp_path / "MH_01_easy")
    write_asl(tmp_path / "MH_02_easy")
    with pytest.raises(SequenceError, match="'V1_01' is not among MH_01_easy, MH_02_easy"):
        find_sequences("euroc", tmp_path, ["V1_01"])
    with pytest.raises(SequenceError, match="'MH_0' fits MH_01_easy, MH_02_easy"):
        find_sequences("euroc", tmp_path, ["MH_0"])


def test_missing_parts_are_named(tmp_path):
    """No calibration, an image that is gone, an image of another size."""
    bare = write_asl(tmp_path / "a", sensors=False)
    with pytest.raises(SequenceError, match=r"no calibration\. Expected mav0/cam0/sensor\.yaml"):
        open_sequence("euroc", bare)
    folder = write_asl(tmp_path / "b")
    sequence = open_sequence("euroc", folder)
    write_image(folder / "mav0" / "cam0" / "data" / "1000.png", size=(24, 32))
    with pytest.raises(SequenceError, match=r"32 x 24 pixels, the calibration is for 64 x 48"):
        sequence.images(0)
    (folder / "mav0" / "cam0" / "data" / "1000.png").unlink()
    with pytest.raises(SequenceError, match=r"1000\.png: missing"):
        sequence.images(0)


def test_a_mode_needs_its_sensors(tmp_path):
    """Stereo of one camera, and an IMU that KITTI does not have, are refused by name."""
    from slam_bridge.pipeline import PipelineOptions, run

    mono = open_sequence("euroc", write_asl(tmp_path / "a", cameras=("cam0",)))
    with pytest.raises(GraphOptError, match="has 1 camera, a stereo mode needs two"):
        run(mono, PipelineOptions(mode="stereo"))
    kitti = open_sequence("kitti", write_kitti(tmp_path))
    with pytest.raises(GraphOptError, match=r"needs IMU samples.* --mode stereo"):
        run(kitti, PipelineOptions(mode="stereo-inertial"))
