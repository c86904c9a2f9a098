"""Places seen before: the index finds them, loops pull the map together, lost frames are found again."""

from dataclasses import replace

import numpy as np
import pytest

from graphopt.evaluate.trajectories import Trajectory, compare
from slam_bridge import Camera, Map, Rig
from slam_bridge.pipeline import PipelineOptions, Slam, Status, features, open_sequence, places, run
from slam_bridge.pipeline.inputs import Frame
from slam_bridge.pipeline.loops import Loops
from slam_bridge.pipeline.places import Place, PlaceIndex
from slam_bridge.pipeline.tracking import Tracker
from slam_bridge.readers.sequence import Sequence

pytest.importorskip("cv2")


def test_the_index_finds_what_looks_alike():
    """Among 20 places, one with a tenth of its bits flipped is found first; later ones are not asked."""
    rng = np.random.default_rng(0)
    index = PlaceIndex()
    looks = rng.integers(0, 256, (20, 80, 32), np.uint8)
    for number, look in enumerate(looks):
        index.add(Place(number, 1000 * number, look, np.zeros((80, 2)), 80))
    noise = np.packbits(rng.uniform(size=(80, 256)) < 0.1, axis=1)
    seen = looks[7] ^ noise
    assert [view.keyframe for view in index.query(seen, 100_000)] == [7]
    assert index.query(seen, 6_999) == []
    index.remove(7)
    assert index.query(seen, 100_000) == []


def test_a_long_index_compares_few_places(monkeypatch):
    """Of 400 places 20 are compared bit by bit, and every one of which a quarter is seen again is found."""
    rng = np.random.default_rng(1)
    index, looks = PlaceIndex(), rng.integers(0, 256, (400, 100, 32), np.uint8)
    for number, look in enumerate(looks):
        index.add(Place(number, 1000 * number, look, np.zeros((100, 2)), 100))
    index.remove(5)
    compared, compare = [], places.nearest
    monkeypatch.setattr(places, "nearest", lambda *views: compared.append(1) or compare(*views))
    for number in range(10, 400, 30):
        seen = looks[number] ^ np.packbits(rng.uniform(size=(100, 256)) < 0.1, axis=1)
        seen[25:] = rng.integers(0, 256, (75, 32), np.uint8)
        compared.clear()
        assert [view.keyframe for view in index.query(seen, 400_000)] == [number]
        assert len(compared) == places.SHORTLIST
    assert index.query(looks[5], 400_000) == []


def again(sequence: Sequence, rows: list[int]) -> Sequence:
    """Frames of a sequence in another order, a twentieth of a second apart; without IMU."""
    stamps = 50_000_000 * np.arange(len(rows), dtype=np.int64)
    return replace(
        sequence, stamps=stamps, paths=tuple(sequence.paths[k] for k in rows), imu=None, truth=None
    )


@pytest.mark.data
@pytest.mark.parametrize("mode", ["stereo", "mono"])
def test_loops(euroc_clip, mode):
    """There and back again: the way back closes loops, and ends where it began."""
    rows = [*range(0, 90, 3), *range(90, -1, -3)]
    sequence = again(open_sequence("euroc", euroc_clip), rows)
    options = PipelineOptions(mode=mode, single_thread=True, loop_gap=1.5)
    found = run(sequence, options)
    loops = [step for step in found.steps if step["step"] == "loop"]
    assert len(found.stamps) > 0.9 * len(sequence) and any(loop["accepted"] for loop in loops)
    start = int(np.flatnonzero(found.stamps <= sequence.stamps[8])[-1])
    there = found.world_T_body[start], found.world_T_body[len(found.stamps) - 1 - 8]
    extent = np.ptp(found.world_T_body[:, :3], axis=0).max()
    assert np.linalg.norm(there[0][:3] - there[1][:3]) < 0.1 * extent


@pytest.mark.data
def test_lost_frames_are_found_again(euroc_clip):
    """Ten black images in between: tracking says so, and goes on from a place that it knows."""
    sequence = again(open_sequence("euroc", euroc_clip), [*range(0, 40, 2), *[0] * 6, *range(38, 10, -2)])
    pipeline, last = Slam(sequence.rig, PipelineOptions(mode="stereo", single_thread=True)), None
    for row, stamp in enumerate(sequence.stamps.tolist()):
        images = sequence.images(row)
        if 20 <= row < 26:
            images = [np.zeros_like(image) for image in images]
        assert pipeline.add_images(stamp, *images)
        is_dark = 20 <= row < 26
        assert pipeline.tracker.has_pose != is_dark
        last = last if is_dark else pipeline.tracker.pose()
        np.testing.assert_array_equal(pipeline.tracker.pose(), last)  # nothing is guessed meanwhile
    stamps, poses = pipeline.log.poses(pipeline.world)
    assert len(stamps) == len(sequence) - 6
    # frame 20 + 6 is image 38 again, which was row 19
    np.testing.assert_allclose(poses[20, :3], poses[19, :3], atol=0.02)


@pytest.mark.data
def test_a_run_that_stays_lost_has_what_came_before(euroc_clip):
    """A map does not begin with black images; the message says when all was lost, the trajectory stays."""
    sequence = again(open_sequence("euroc", euroc_clip), [0] * 30)
    pipeline = Slam(sequence.rig, PipelineOptions(mode="stereo", single_thread=True, lost_seconds=0.5))
    for row, stamp in enumerate(sequence.stamps.tolist()):
        images = sequence.images(row)
        if row >= 5:
            images = [np.zeros_like(image) for image in images]
        pipeline.add_images(stamp, *images)
    found = pipeline.stop()
    assert "25 of 30 frames have no pose: 25 from 0.250 s to 1.450 s (lost; looking" in found.message
    assert len(found.stamps) == 5 and found.maps == 1


@pytest.mark.data
def test_a_gap_without_imu_begins_a_map_that_is_joined(euroc_clip):
    """Two seconds of flight are missing: each frame has a pose at once, in one map as soon as it can be."""
    sequence = open_sequence("euroc", euroc_clip)
    rows = [*range(71), *range(111, len(sequence))]
    pipeline = Slam(sequence.rig, PipelineOptions(mode="stereo", single_thread=True))
    maps = []
    for row in rows:
        pipeline.add_images(int(sequence.stamps[row]), *sequence.images(row))
        maps.append(pipeline.state().maps)
        assert pipeline.state().world_T_body is not None
    found = pipeline.stop()
    assert max(maps) == 2 and found.maps == 1 and len(found.stamps) == len(rows)
    assert "a new map began at" in found.message and "no pose" not in found.message
    errors = compare(
        Trajectory(found.stamps * 1e-9, found.world_T_body),
        Trajectory(sequence.truth.stamps * 1e-9, sequence.truth.world_T_body),
        align="se3",
    )
    assert errors.absolute.max() < 0.02


def assert_all_posed(found, sequence):
    """Each frame of a sequence has one pose, to centimetres."""
    np.testing.assert_array_equal(found.stamps, sequence.stamps)
    errors = compare(
        Trajectory(found.stamps * 1e-9, found.world_T_body),
        Trajectory(sequence.truth.stamps * 1e-9, sequence.truth.world_T_body),
        align="se3",
    )
    assert errors.absolute.max() < 0.06


@pytest.mark.data
def test_the_imu_bridges_two_seconds_in_the_dark(euroc_clip):
    """No landmark is seen meanwhile; each frame has one pose, to centimetres."""
    sequence = open_sequence("euroc", euroc_clip)
    options = PipelineOptions(mode="stereo-inertial", single_thread=True)
    pipeline = Slam(sequence.rig, options, noise=sequence.noise)
    pipeline.add_imu(sequence.imu.stamps, sequence.imu.gyro, sequence.imu.acc)
    for row in range(len(sequence)):
        images = sequence.images(row)
        if 80 <= row < 120:
            images = [np.zeros_like(image) for image in images]
        pipeline.add_images(int(sequence.stamps[row]), *images)
    found = pipeline.stop()
    assert_all_posed(found, sequence)


@pytest.mark.data
@pytest.mark.parametrize("mode", ["stereo-inertial", "mono-inertial"])
def test_darkness_before_the_imu_is_initialized(euroc_clip, mode):
    """Four seconds, of which the IMU says afterwards where the frames were."""
    sequence = open_sequence("euroc", euroc_clip)
    pipeline = Slam(sequence.rig, PipelineOptions(mode=mode, single_thread=True), noise=sequence.noise)
    pipeline.add_imu(sequence.imu.stamps, sequence.imu.gyro, sequence.imu.acc)
    for row in range(len(sequence)):
        images = sequence.images(row)
        if 50 < row <= 130:
            images = [np.zeros_like(image) for image in images]
            assert pipeline.state().status is (Status.LOST if row > 51 else Status.TRACKING)
        pipeline.add_images(int(sequence.stamps[row]), *images[: 1 + mode.startswith("stereo")])
    found = pipeline.stop()
    assert_all_posed(found, sequence)


@pytest.mark.data
def test_a_gap_of_one_camera(euroc_clip, monkeypatch):
    """Three frames after two seconds that nobody recognises are followed back from the first that is."""
    recognised, calls = Loops.recognised, []

    def later(loops, *views):
        calls.append(views)
        return recognised(loops, *views) if len(calls) > 3 else None

    monkeypatch.setattr(Loops, "recognised", later)
    beside, followed = Tracker._beside, []

    def logged(tracker, view, *rest):
        followed.append(view.stamp)
        return beside(tracker, view, *rest)

    monkeypatch.setattr(Tracker, "_beside", logged)
    sequence = open_sequence("euroc", euroc_clip)
    rows = [*range(71), *range(111, len(sequence))]
    pipeline = Slam(sequence.rig, PipelineOptions(mode="mono", single_thread=True))
    for row in rows:
        pipeline.add_images(int(sequence.stamps[row]), sequence.images(row)[0])
        assert pipeline.tracker.has_pose or row < 30 or 111 <= row < 114
    found = pipeline.stop()
    assert found.maps == 1
    assert followed == sequence.stamps[[113, 112, 111]].tolist()
    np.testing.assert_array_equal(found.stamps, sequence.stamps[rows])
    truth = sequence.of_camera().truth
    errors = compare(
        Trajectory(found.stamps * 1e-9, found.world_T_body),
        Trajectory(truth.stamps * 1e-9, truth.world_T_body),
        align="sim3",
    )
    assert errors.absolute.max() < 0.04


@pytest.mark.data
@pytest.mark.parametrize("nearer", [1.35, 1.0 / 1.35])
def test_a_place_seen_from_another_distance(euroc_clip, nearer):
    """All is a third larger, or smaller: the index finds the place, and three times as many corners match."""
    image = open_sequence("euroc", euroc_clip).images(0)[0]
    other = np.zeros_like(image)
    large = features.resized(image, nearer)
    shape = np.minimum(large.shape, image.shape)
    other[: shape[0], : shape[1]] = large[: shape[0], : shape[1]]
    rig = Rig([Camera.pinhole([0, 0, 0, 0, 0, 0, 1], 400, 400, 320, 240)])
    loops = Loops(rig, PipelineOptions(mode="mono"), Map(rig))
    now, then = (Frame(1000 * k, [one], (0,), (0,)) for k, one in enumerate((other, image)))
    pixel = loops.look(then, levels=1).pixel[::2]
    old, index, view = loops.look(then, 5, pixel), PlaceIndex(), loops.look(now)
    index.add(old)
    assert [place.keyframe for place in index.query(view.descriptor, 10_000)] == [5]
    rows, rows_old = places.common(view, index.places[5])
    off = view.pixel[rows] + 0.5 - (index.places[5].pixel[rows_old] + 0.5) * nearer
    right = np.linalg.norm(off, axis=1) < 3.0
    visible = (index.places[5].pixel * nearer < shape[::-1]).all(axis=1).sum()
    assert right.mean() > 0.75 and right.sum() > 0.4 * visible
    alone = loops.look(now, levels=1)
    assert len(places.common(alone, index.places[5])[0]) < 0.5 * right.sum()
