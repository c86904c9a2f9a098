"""Drives of KITTI raw as the archives unpack: cameras, IMU, poses, and what a cut archive leaves of them."""

import shutil

import numpy as np
import pytest

from graphopt.cli.main import main
from graphopt.evaluate.trajectories import Trajectory, compare
from graphopt.geometry import SE3
from slam_bridge.generator import SequenceOptions, plan_sequence
from slam_bridge.pipeline import PipelineOptions, SequenceError, find_sequences, open_sequence, run
from slam_bridge.readers.folders import FolderSource
from slam_bridge.readers.kitti_raw import read_oxts

pytest.importorskip("cv2")
SECONDS, SCALE, SEED = 5.0, 0.2, 2


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A day with one drive, rectified with 10 records per second, and one as taken with 100, far apart."""
    roots = {kind: tmp_path_factory.mktemp("kitti") / kind / "of" / "one" for kind in ("sync", "extract")}
    for kind, root in roots.items():
        arguments = [
            "--like",
            "V1_02",
            "--format",
            f"kitti-{kind}",
            "--seed",
            str(SEED),
            "--seconds",
            str(SECONDS),
        ]
        arguments += ["--image-scale", str(SCALE), "--supersample", "1", "-o", str(root)]
        assert main(["generate", "vi-sequence", *arguments]) == 0
    return roots


def copy(archives, tmp_path, *kinds):
    """Drives of these kinds below one root; the folder of the first."""
    for kind in kinds:
        shutil.copytree(archives[kind], tmp_path, dirs_exist_ok=True)
    return next(tmp_path.glob(f"*/*_{kinds[0]}"))


def planned(kind):
    """What the drive was rendered from."""
    options = SequenceOptions(format=f"kitti-{kind}", seed=SEED, seconds=SECONDS, image_scale=SCALE)
    return plan_sequence("V1_02", options)


@pytest.mark.parametrize("kind", ["sync", "extract"])
def test_cameras_and_poses_are_those_that_were_rendered(archives, kind):
    """Through the calibration's files and Mercator's projection, to the digits that the files have."""
    ((name, folder),) = find_sequences("kitti", archives[kind]).items()
    assert name.endswith(f"_drive_0001_{kind}")
    sequence, truth = open_sequence("kitti", folder), planned(kind)
    assert sequence.stamps.tolist() == truth.image_stamps.tolist()
    assert [len(path) for path in sequence.paths] == [2] * len(sequence)
    for camera, known in zip(sequence.rig, list(truth.sensors.rig)[:2], strict=True):
        assert (camera.model, camera.resolution) == (known.model, known.resolution)
        np.testing.assert_allclose(camera.intrinsics, known.intrinsics, atol=1e-9)
        np.testing.assert_allclose(camera.body_T_cam, known.body_T_cam, atol=1e-9)
    motion = truth.trajectory.at(truth.image_stamps)
    first = SE3(motion.world_T_body[0]).translation
    np.testing.assert_allclose(
        sequence.truth.world_T_body[:, :3], motion.world_T_body[:, :3] - first, atol=1e-5
    )
    turned = np.abs(np.sum(sequence.truth.world_T_body[:, 3:] * motion.world_T_body[:, 3:], axis=1))
    np.testing.assert_allclose(turned, 1.0, atol=1e-9)
    np.testing.assert_allclose(sequence.truth.velocity, motion.velocity, atol=1e-5)


def test_extract_has_an_imu(archives):
    """100 Hz: what it measured at rest is gravity and the turn of a second is that of the poses."""
    (folder,) = find_sequences("kitti", archives["extract"]).values()
    sequence, truth = open_sequence("kitti", folder), planned("extract")
    assert sequence.imu.stamps.tolist() == truth.imu_stamps.tolist()
    assert np.linalg.norm(sequence.imu.acc[:50].mean(axis=0)) == pytest.approx(9.81, abs=0.1)
    motion = truth.trajectory.at(truth.imu_stamps)
    assert np.abs(sequence.imu.gyro - motion.rate).mean() < 0.01


def test_sync_alone_has_no_imu_and_says_what_would_help(archives):
    """Ten records per second are refused by name; stereo works."""
    (folder,) = find_sequences("kitti", archives["sync"]).values()
    sequence = open_sequence("kitti", folder)
    assert sequence.imu is None and sequence.truth is not None
    with pytest.raises(
        SequenceError, match=r"10 records per second, .* unpack \w+_extract \(100 Hz\) beside it"
    ):
        run(sequence, PipelineOptions(mode="stereo-inertial"))
    FolderSource.of(sequence).refuse(PipelineOptions(mode="stereo"))


def test_sync_takes_the_imu_of_the_extract_beside_it(archives, tmp_path):
    """As most do who run with an IMU: rectified images, 100 records per second."""
    folder = copy(archives, tmp_path, "sync", "extract")
    assert len(find_sequences("kitti", tmp_path)) == 2
    sequence = open_sequence("kitti", folder)
    assert sequence.rig[0].model == "pinhole" and len(sequence.imu) == round(100 * SECONDS) + 1
    assert "IMU and truth from" in sequence.notes[0]


def test_archives_that_were_fetched_one_by_one_find_each_other(archives, tmp_path):
    """Each in a folder of its own, as `graphopt datasets fetch` unpacks: drive, calibration, _extract."""
    day = next(archives["sync"].glob("2*"))
    drive = next(day.glob("*_sync"))
    dense = next(archives["extract"].glob("*/*_extract"))
    folder = tmp_path / "kitti-raw" / "drive" / day.name / drive.name
    shutil.copytree(drive, folder)
    with pytest.raises(SequenceError, match=r"calib_cam_to_cam\.txt: missing"):
        open_sequence("kitti", folder)
    calibration = tmp_path / "kitti-raw-calibration" / "calib" / day.name
    calibration.mkdir(parents=True)
    for path in day.glob("calib_*.txt"):
        shutil.copy(path, calibration)
    assert open_sequence("kitti", folder).imu is None
    shutil.copytree(dense, tmp_path / "kitti-raw-unsynced" / "drive" / day.name / dense.name)
    assert open_sequence("kitti", folder).imu is not None


@pytest.mark.parametrize("mode", ["stereo-inertial", "stereo"])
def test_from_pixels_to_trajectory_errors(archives, mode):
    """At 0.2 of the size: no frame lost, below 1 % of the path, in metres."""
    (folder,) = find_sequences("kitti", archives["extract"]).values()
    sequence = open_sequence("kitti", folder)
    found = run(sequence, PipelineOptions(mode=mode, single_thread=True))
    assert found.message == "" and found.tracked_fraction == 1.0
    estimate = Trajectory(found.stamps * 1e-9, found.world_T_body)
    errors = compare(
        estimate, Trajectory(sequence.truth.stamps * 1e-9, sequence.truth.world_T_body), align="se3"
    )
    assert np.sqrt(np.mean(errors.absolute**2)) < 0.01 * errors.path_length
    refused = [step["refused"] for step in found.steps if step["step"] == "inertial initialization"]
    assert refused[-1:] == ([""] if mode == "stereo-inertial" else [])


def test_colour_cameras_serve_where_grey_ones_are_missing(archives, tmp_path):
    """image_02 and image_03, at their own places."""
    folder = copy(archives, tmp_path, "sync")
    shutil.rmtree(folder / "image_00")
    shutil.rmtree(folder / "image_01")
    sequence = open_sequence("kitti", find_sequences("kitti", tmp_path)[folder.name])
    known = planned("sync").sensors.rig
    np.testing.assert_allclose(sequence.rig[1].body_T_cam, known[3].body_T_cam, atol=1e-9)
    assert sequence.paths[0][0].parent.parent.name == "image_02"
    assert sequence.images(0)[0].ndim == 2


def test_what_a_cut_archive_lacks_is_left_out_or_named(archives, tmp_path):
    """Images without a partner, half a record, no calibration, no oxts."""
    folder = copy(archives, tmp_path, "extract")
    (folder / "image_01" / "data" / "0000000003.png").unlink()
    sequence = open_sequence("kitti", folder)
    assert len(sequence) == len(planned("extract").image_stamps) - 1
    assert any("1 of 51 images of image_00 have none of image_01" in note for note in sequence.notes)
    record = folder / "oxts" / "data" / "0000000007.txt"
    record.write_text(record.read_text()[:40])
    with pytest.raises(Exception, match=r"0000000007\.txt: expected 30 numbers.*unpacked completely"):
        open_sequence("kitti", folder)
    shutil.rmtree(folder / "oxts")
    bare = open_sequence("kitti", folder)
    assert bare.imu is None and bare.truth is None and "missing" in bare.notes[-1]
    (folder.parent / "calib_imu_to_velo.txt").unlink()
    np.testing.assert_allclose(open_sequence("kitti", folder).rig[1].body_T_cam[0], 0.537, atol=0.02)
    (folder.parent / "calib_cam_to_cam.txt").unlink()
    with pytest.raises(
        SequenceError, match=r"calib_cam_to_cam\.txt: missing; unpack the calibration of that day"
    ):
        open_sequence("kitti", folder)


def test_records_out_of_order_and_pauses_are_put_right_and_noted(archives, tmp_path):
    """As in some published drives."""
    folder = copy(archives, tmp_path, "extract") / "oxts"
    lines = (folder / "timestamps.txt").read_text().splitlines()
    lines[10], lines[11] = lines[11], lines[10]
    lines[20] = lines[21]
    lines[100:150] = [""] * 50
    (folder / "timestamps.txt").write_text("\n".join(lines) + "\n")
    records, notes = read_oxts(folder)
    assert len(records.stamps) == len(lines) - 51 and (np.diff(records.stamps) > 0).all()
    assert "2 records are not after the one before" in notes[0] and "1 pauses of up to 0.51 s" in notes[1]
    sequence = open_sequence("kitti", folder.parent)
    assert len(sequence.truth) < len(sequence)


def test_what_the_data_do_not_support_is_refused(archives):
    """One camera, two seconds of which one at rest: no map, no poses; stereo without its IMU says so."""
    (folder,) = find_sequences("kitti", archives["extract"]).values()
    sequence = open_sequence("kitti", folder).first(25)
    found = run(sequence, PipelineOptions(mode="mono-inertial", single_thread=True))
    assert len(found.stamps) == 0 and "the map never started" in found.message
    found = run(sequence, PipelineOptions(mode="stereo-inertial", single_thread=True))
    assert len(found.stamps) == 25 and "the IMU was never initialized" in found.message
