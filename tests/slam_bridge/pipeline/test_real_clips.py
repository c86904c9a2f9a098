"""Real images, from pixels to trajectory errors; one thread gives the same answer twice; the report."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphopt.cli.main import main
from graphopt.evaluate.trajectories import Trajectory, compare
from slam_bridge.pipeline import PipelineOptions, find_sequences, open_sequence, run, tracking
from slam_bridge.pipeline.result import without_pose
from slam_bridge.pipeline.slam import Slam
from slam_bridge.pipeline.tracking import Status

pytestmark = pytest.mark.data


def errors_of(sequence, found, align):
    """Absolute errors of a run against the sequence's truth."""
    truth = sequence.truth
    estimate = Trajectory(found.stamps * 1e-9, found.world_T_body)
    return compare(estimate, Trajectory(truth.stamps * 1e-9, truth.world_T_body), align=align)


def rmse(errors):
    return float(np.sqrt(np.mean(errors.absolute**2)))


@pytest.mark.parametrize("mode", ["stereo-inertial", "mono"])
def test_euroc(euroc_clip, mode):
    """60 frames, 0.66 m of path: all tracked, within 2 cm; with the IMU the map stands upright."""
    sequence = open_sequence("euroc", euroc_clip).first(60)
    found = run(sequence, PipelineOptions(mode=mode, single_thread=True))
    assert found.message == ""
    reference = sequence.of_camera() if mode == "mono" else sequence
    errors = errors_of(reference, found, "sim3" if mode == "mono" else "se3")
    assert rmse(errors) < 0.02
    assert found.tracked_fraction > 0.85
    assert all(call["observations"] > 0 for call in found.calls)
    if mode == "stereo-inertial":
        assert any(step["step"] == "inertial initialization" and not step["refused"] for step in found.steps)
        # gravity is along -z: a turn about z alone aligns as well as any
        assert rmse(errors_of(reference, found, "yaw")) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["stereo-inertial", "stereo", "mono-inertial", "mono"])
def test_euroc_whole_clip(euroc_clip, mode):
    """180 frames with the mapping thread: within 2 cm, no frame lost, scale within 3 %."""
    sequence = open_sequence("euroc", euroc_clip)
    found = run(sequence, PipelineOptions(mode=mode))
    assert found.message == ""
    reference = sequence.of_camera() if mode == "mono" else sequence
    errors = errors_of(reference, found, "sim3")
    assert rmse(errors) < 0.02
    assert found.tracked_fraction > 0.9
    assert mode == "mono" or abs(errors.scale - 1.0) < 0.03


@pytest.mark.slow
def test_two_seconds_without_frames_and_samples(euroc_clip):
    """The frame afterwards is recognised, not guessed: within 2 cm."""
    sequence = open_sequence("euroc", euroc_clip)
    rows = np.r_[:80, 120:150]
    start, end = sequence.stamps[[79, 120]]
    imu = sequence.imu
    kept = (imu.stamps <= start) | (imu.stamps >= end)
    imu = replace(imu, stamps=imu.stamps[kept], gyro=imu.gyro[kept], acc=imu.acc[kept])
    gap = replace(
        sequence, stamps=sequence.stamps[rows], paths=[sequence.paths[row] for row in rows], imu=imu
    )
    found = run(gap, PipelineOptions(single_thread=True))
    assert len(found.stamps) == len(rows)
    assert "pauses between frames" in found.message
    assert rmse(errors_of(sequence, found, "se3")) < 0.02


@pytest.mark.parametrize("first", [50, 100])
def test_mono_inertial_in_flight(euroc_clip, first):
    """80 frames, keyframes removed before the IMU starts: upright, and scale to three of its deviations."""
    sequence = open_sequence("euroc", euroc_clip)
    part = slice(first, first + 80)
    sequence = replace(sequence, stamps=sequence.stamps[part], paths=sequence.paths[part])
    found = run(sequence, PipelineOptions(mode="mono-inertial", single_thread=True))
    assert found.message == ""
    claimed = found.steps[-1]["scale_deviation"]
    errors = errors_of(sequence, found, "sim3")
    assert rmse(errors) < 0.01
    assert abs(np.log(errors.scale)) < 3.0 * claimed < 0.15


def test_kitti(kitti_clip):
    """20 frames of driving, 23 m: within 1 % of the path in metres."""
    folder = find_sequences("kitti", kitti_clip)["06"]
    sequence = open_sequence("kitti", folder).first(20)
    found = run(sequence, PipelineOptions(mode="stereo", single_thread=True))
    errors = errors_of(sequence, found, "se3")
    assert found.tracked_fraction == 1.0
    assert errors.path_length > 20.0
    assert rmse(errors) < 0.01 * errors.path_length


def test_one_thread_gives_the_same_answer_twice(euroc_clip):
    """Poses are equal to the last bit."""
    sequence = open_sequence("euroc", euroc_clip).first(15)
    options = PipelineOptions(mode="stereo", single_thread=True)
    first, second = (run(sequence, options) for _ in range(2))
    np.testing.assert_array_equal(first.world_T_body, second.world_T_body)


def test_command_line(euroc_clip, tmp_path, capsys):
    """`graphopt eval euroc` writes trajectory, report and the numbers that the table shows."""
    arguments = ["--modes", "stereo", "--single-thread", "--max-frames", "20"]
    output = tmp_path / "out"
    assert main(["eval", "euroc", "--root", str(euroc_clip), *arguments, "-o", str(output)]) == 0
    entries = json.loads((output / "results.json").read_text())["entries"]
    (entry,) = entries.values()
    for name in ("ate_rmse_m", "rpe", "scale", "tracked_fraction", "real_time_factor"):
        assert entry[name] is not None
    assert entry["tracked_fraction"] == 1.0
    assert entry["ate_rmse_m"] < 0.02
    lines = Path(entry["trajectory"]).read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == 20
    assert (output / "report.html").is_file()
    assert "ATE rmse" in capsys.readouterr().out


def test_one_failed_sequence_does_not_stop_the_others(euroc_clip, tmp_path, capsys):
    """A folder without calibration becomes an entry with its error; the exit status says so."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "good").symlink_to(euroc_clip)
    (tmp_path / "root" / "bad" / "mav0" / "cam0").mkdir(parents=True)
    arguments = ["--modes", "stereo", "--single-thread", "--max-frames", "4", "-o", str(tmp_path / "out")]
    assert main(["eval", "euroc", "--root", str(tmp_path / "root"), *arguments]) == 1
    entries = json.loads((tmp_path / "out" / "results.json").read_text())["entries"]
    assert "no calibration" in entries["bad"]["error"]
    assert [key for key, entry in entries.items() if "error" not in entry] == [euroc_clip.name]
    assert "bad: SequenceError" in capsys.readouterr().err


def test_a_scale_that_the_motion_hardly_shows_is_refused(euroc_clip):
    """The deviation of lengths is known and small here; a stricter limit refuses the same run."""
    sequence = open_sequence("euroc", euroc_clip).first(110)
    options = PipelineOptions(mode="mono-inertial", single_thread=True)
    found = run(sequence, options)
    deviation = found.steps[-1]["scale_deviation"]
    assert found.message == "" and 0.0 < deviation < 0.05
    strict = replace(options, max_scale_deviation=0.5 * deviation)
    refused = run(sequence, strict)
    assert len(refused.stamps) == 0
    assert f"{100.0 * deviation:.1f} % only" in refused.message and "--mode mono" in refused.message


def test_a_map_that_moves_while_a_frame_is_tracked(euroc_clip, monkeypatch):
    """Mapping moves everything by 5 m while the pose is computed: relative to the keyframe nothing jumps."""
    sequence = open_sequence("euroc", euroc_clip).first(6)
    pipeline = Slam(sequence.rig, PipelineOptions(mode="stereo", single_thread=True))
    solve, moves = tracking.pose_optimization, []

    def interrupted(*arguments, **named):
        result = solve(*arguments, **named)
        pipeline.world.transform([5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
        moves.append(result)
        return result

    monkeypatch.setattr(tracking, "pose_optimization", interrupted)
    for row, stamp in enumerate(sequence.stamps.tolist()):
        pipeline.add_images(stamp, *sequence.images(row))
        assert np.linalg.norm(pipeline.tracker.reference_T_body[:3]) < 0.5
    assert len(moves) == 5


def test_opencv_is_left_as_it_was(euroc_clip):
    """Its number of threads and its random numbers, which other code of the process uses."""
    cv2 = pytest.importorskip("cv2")
    threads = cv2.getNumThreads()
    try:
        cv2.setNumThreads(3)
        cv2.setRNGSeed(7)
        expected = cv2.randu(np.zeros(4), 0.0, 1.0).tolist()
        cv2.setRNGSeed(7)
        run(open_sequence("euroc", euroc_clip).first(30), PipelineOptions(mode="mono", single_thread=True))
        assert cv2.getNumThreads() == 3
        assert cv2.randu(np.zeros(4), 0.0, 1.0).tolist() == expected
    finally:
        cv2.setNumThreads(threads)


@pytest.mark.parametrize("mode", ["mono", "stereo"])
def test_frames_without_a_pose_are_named(euroc_clip, monkeypatch, mode):
    """Ten frames in the dark: how many they and those until tracking goes on are, when, and why."""
    sequence = open_sequence("euroc", euroc_clip).first(60)
    bright = type(sequence).image

    def image(self, row, camera):
        seen = bright(self, row, camera)
        return np.zeros_like(seen) if 40 <= row < 50 else seen

    monkeypatch.setattr(type(sequence), "image", image)
    found = run(sequence, PipelineOptions(mode=mode, single_thread=True))
    missing = sequence.stamps[~np.isin(sequence.stamps, found.stamps)]
    assert len(missing) >= 10
    assert f"{len(missing)} of 60 frames have no pose: " in found.message
    assert f"from {1e-9 * sequence.stamps[40]:.3f} s to " in found.message and "(lost;" in found.message


def test_gaps_of_a_trajectory():
    """Longest first, three at most; each has one cause; no sentence where nothing is missing."""
    statuses = [(k * 10**9, Status.STARTING if k < 2 else Status.LOST) for k in range(20)]
    stamps = 10**9 * np.array([3, 4, 7, 9, 11, 13, 14, 15])
    text = without_pose(statuses, stamps)
    assert text.startswith("12 of 20 frames have no pose: 4 from 16.000 s to 19.000 s (lost; ")
    assert "2 from 0.000 s to 1.000 s (waiting for" in text and text.endswith("and 4 shorter gaps.")
    assert without_pose(statuses, 10**9 * np.arange(20)) == ""
