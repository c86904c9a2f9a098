"""A SLAM that is fed while it runs: every feeder gives the same poses, every fault of the input is said."""

import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.evaluate.trajectories import Trajectory, compare
from graphopt.geometry import SE3, SO3
from slam_bridge import Map, Rig
from slam_bridge.pipeline import (
    PipelineOptions,
    SequenceError,
    Slam,
    Status,
    open_sequence,
    open_source,
    run,
)
from slam_bridge.pipeline.loops import Loop, Loops
from slam_bridge.pipeline.session import Session
from slam_bridge.pipeline.sources import Pairing
from slam_bridge.readers import StateTable
from slam_bridge.readers.calibration import read_calibration

pytest.importorskip("cv2")
STEREO = PipelineOptions(mode="stereo", single_thread=True)
INERTIAL = PipelineOptions(mode="stereo-inertial", single_thread=True)


@pytest.fixture(scope="module")
def sequence(room):
    """The sequence of that folder."""
    return open_sequence("euroc", room)


@pytest.fixture(scope="module")
def whole(sequence):
    """A run over the folder with stereo and IMU."""
    return run(sequence, INERTIAL)


def feed(slam, sequence, rows, ahead=0):
    """Hand in frames of these rows, each behind the samples up to it and `ahead` [ns] more, one by one."""
    given, imu = 0, sequence.imu
    for row in rows:
        stamp = int(sequence.stamps[row])
        while given < len(imu) and imu.stamps[given] <= stamp + ahead:
            slam.add_imu(int(imu.stamps[given]), imu.gyro[given], imu.acc[given])
            given += 1
        slam.add_images(stamp, *sequence.images(row))
    slam.add_imu(imu.stamps[given:], imu.gyro[given:], imu.acc[given:])


def rmse(found, truth, align="se3"):
    """Absolute error [m] and scale."""
    errors = compare(
        Trajectory(found.stamps * 1e-9, found.world_T_body),
        Trajectory(truth.stamps * 1e-9, truth.world_T_body),
        align=align,
    )
    return float(np.sqrt(np.mean(errors.absolute**2))), errors.scale


# ---------------------------------------------------------------------- feeders


@pytest.mark.parametrize("ahead", [5_000_000, -1, -60_000_000])
def test_samples_one_by_one_give_the_poses_of_the_folder(room, sequence, whole, ahead):
    """Bit by bit, whether the samples come before the image, with it, or 60 ms late."""
    slam = Slam(read_calibration(room / "mav0"), INERTIAL)
    feed(slam, sequence, range(len(sequence)), ahead)
    found = slam.stop()
    np.testing.assert_array_equal(found.stamps, whole.stamps)
    np.testing.assert_array_equal(found.world_T_body, whole.world_T_body)
    assert any("initialization" in step["step"] for step in whole.steps)


@pytest.mark.parametrize("version", [1, 2])
def test_bags_give_the_poses_of_the_folder(room, sequence, whole, tmp_path, version):
    """ROS 1 and 2, topics guessed and said."""
    pytest.importorskip("rosbags")
    path = tmp_path / ("run.bag" if version == 1 else "run")
    write_bag(path, sequence, version)
    source = open_source(path, room / "mav0")
    assert "/cam0/image_raw, /cam1/image_raw" in source.notes[0] and "/imu0" in source.notes[0]
    found = run(source, INERTIAL)
    np.testing.assert_array_equal(found.world_T_body, whole.world_T_body)
    named = {"images": ["/cam1/image_raw"], "imu": "/imu0"}
    with pytest.raises(SequenceError, match=r"one topic of images \(/cam1/image_raw\)"):
        run(open_source(path, room / "mav0", topics=named), STEREO)
    with pytest.raises(SequenceError, match=r"no topic /x\. There are: /cam0/image_raw \(sensor_msgs"):
        open_source(path, room / "mav0", topics={"imu": "/x"})


def write_bag(path, sequence, version):
    """A sequence as a bag with a message per image and sample."""
    from rosbags.rosbag1 import Writer as First
    from rosbags.rosbag2 import Writer as Second
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if version == 1 else Stores.LATEST)
    packages = {"builtin_interfaces": ("Time",), "geometry_msgs": ("Quaternion", "Vector3")}
    packages |= {"std_msgs": ("Header",), "sensor_msgs": ("Image", "Imu")}
    kinds = {name: store.types[f"{package}/msg/{name}"] for package, of in packages.items() for name in of}
    pack = store.serialize_ros1 if version == 1 else store.serialize_cdr

    def header(stamp):
        moment = kinds["Time"](sec=int(stamp // 10**9), nanosec=int(stamp % 10**9))
        return kinds["Header"](**({"seq": 0} if version == 1 else {}), stamp=moment, frame_id="")

    with First(path) if version == 1 else Second(path, version=9) as writer:
        topics = {
            topic: (writer.add_connection(topic, kinds[kind].__msgtype__, typestore=store), kinds[kind])
            for topic, kind in (
                ("/cam0/image_raw", "Image"),
                ("/cam1/image_raw", "Image"),
                ("/imu0", "Imu"),
            )
        }

        def write(topic, stamp, **values):
            connection, kind = topics[topic]
            writer.write(connection, stamp, pack(kind(header=header(stamp), **values), kind.__msgtype__))

        given, none = 0, np.zeros(9)
        for row, stamp in enumerate(sequence.stamps.tolist()):
            for camera, image in enumerate(sequence.images(row)):
                values = {"encoding": "mono8", "is_bigendian": 0, "step": image.shape[1]}
                size = {"height": image.shape[0], "width": image.shape[1]}
                write(f"/cam{camera}/image_raw", stamp, **size, **values, data=image.ravel())
            while given < len(sequence.imu) and sequence.imu.stamps[given] <= stamp + 10_000_000:
                write(
                    "/imu0",
                    int(sequence.imu.stamps[given]),
                    orientation=kinds["Quaternion"](0.0, 0.0, 0.0, 1.0),
                    orientation_covariance=none,
                    angular_velocity=kinds["Vector3"](*sequence.imu.gyro[given]),
                    angular_velocity_covariance=none,
                    linear_acceleration=kinds["Vector3"](*sequence.imu.acc[given]),
                    linear_acceleration_covariance=none,
                )
                given += 1


def test_a_video_with_a_table_of_samples(room, sequence, tmp_path):
    """Frames and samples of the file are those of the folder."""
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "run.avi"
    image = sequence.images(0)[0]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"FFV1"), 20.0, image.shape[::-1])
    for row in range(12):
        writer.write(cv2.cvtColor(sequence.images(row)[0], cv2.COLOR_GRAY2BGR))
    writer.release()
    start, table = int(sequence.stamps[0]), room / "mav0" / "imu0" / "data.csv"
    options = replace(INERTIAL, mode="mono-inertial")
    source = open_source(path, room / "mav0", imu=table, start=start)
    events = [event for event in source.events(options) if hasattr(event, "images")]
    assert [event.stamp for event in events] == [start + 50_000_000 * k for k in range(12)]
    shown = events[7].images[0][:, :, 0]
    np.testing.assert_array_equal(shown, sequence.images(7)[0][:, : shown.shape[1]])  # even widths alone
    with pytest.raises(SequenceError, match="needs the IMU's samples: --imu"):
        run(open_source(path, room / "mav0"), options)


def test_a_webcam_runs_until_it_ends(sequence, room):
    """Images as OpenCV delivers them, stamped when they come; mono without IMU."""
    from slam_bridge.readers.video import WebcamSource

    class Capture:
        def __init__(self):
            self.row, self.is_open = 0, True

        def isOpened(self):
            return self.is_open

        def read(self):
            self.row += 1
            return self.row <= 30, sequence.images(min(self.row, 30))[0]

        def release(self):
            self.is_open = False

    capture = Capture()
    source = WebcamSource(0, read_calibration(room / "mav0"), capture)
    found = run(source, PipelineOptions(mode="mono", single_thread=True))
    assert found.num_frames == 30 and len(found.stamps) > 15 and not capture.is_open
    with pytest.raises(SequenceError, match="a webcam has one camera and no IMU"):
        run(WebcamSource(0, read_calibration(room / "mav0"), Capture()), STEREO)


# ---------------------------------------------------------------------- faults of the input

FAULTS = {
    "out of order": (lambda rows: [*rows[:20], rows[21], rows[20], *rows[22:]], "1 frames came out of order"),
    "too late": (
        lambda rows: [*rows[:9], *rows[10:40], 9, *rows[40:]],
        "came more than 1 s after later ones",
    ),
    "repeated": (lambda rows: [*rows[:20], rows[19], *rows[20:]], "with a stamp that was there already"),
    "missing for 2 s": (lambda rows: [*rows[:15], *rows[55:]], "pauses between frames are longer than 1 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_frames_that_do_not_follow_each_other(room, sequence, fault):
    """What was wrong is in the message with its time; all other frames have poses of the usual accuracy."""
    change, said = FAULTS[fault]
    rows = change(list(range(len(sequence))))
    slam = Slam(read_calibration(room / "mav0"), STEREO)
    feed(slam, sequence, rows, 5_000_000)
    found = slam.stop()
    assert said in found.message and "the first at 15000" in found.message
    if fault != "missing for 2 s":
        assert len(found.stamps) == len(sequence) - (fault == "too late")
        assert rmse(found, sequence.truth)[0] < 0.05


def test_frames_out_of_order_before_a_mono_map_starts(room, sequence):
    """They wait with the others for the start, and have poses then."""
    rows = [0, 2, 1, 4, 3, *range(5, len(sequence))]
    slam = Slam(read_calibration(room / "mav0"), replace(STEREO, mode="mono"))
    for number, row in enumerate(rows):
        slam.add_images(int(sequence.stamps[row]), sequence.images(row)[0])
        assert number != 4 or slam.state().status is Status.STARTING
    found = slam.stop()
    np.testing.assert_array_equal(found.stamps, sequence.stamps)
    assert "2 frames came out of order" in found.message and "no pose" not in found.message
    assert rmse(found, sequence.of_camera().truth, "sim3")[0] < 0.06


def test_samples_that_come_late_are_waited_for(room, sequence, whole):
    """By 60 ms, in threads: said, and no frame is tracked without them."""
    slam = Slam(read_calibration(room / "mav0"), replace(INERTIAL, single_thread=False))
    feed(slam, sequence, range(30), -60_000_000)
    notes = slam.state().notes
    found = slam.stop()
    assert any("waited for IMU samples that came later than the next frame" in note for note in notes)
    assert "without the IMU" not in found.message and len(found.stamps) == 30


def test_samples_that_never_come_do_not_stop_the_run(room, sequence):
    """Frames wait for `imu_wait`, then go on without; the message says how many did."""
    slam = Slam(read_calibration(room / "mav0"), INERTIAL)
    for row in range(25):
        slam.add_images(int(sequence.stamps[row]), *sequence.images(row))
    found = slam.stop()
    assert len(found.stamps) == 25
    assert "25 frames were tracked without the IMU, whose samples did not come" in found.message
    assert "the IMU was never initialized" in found.message


GONE = {"right": {1: range(30, 70)}, "left": {0: range(30, 70)}, "left, comes back": {0: range(30, 50)}}
GONE["left flickers"] = {0: range(31, 70, 2)}
GONE["one after the other"] = {0: range(30, 45), 1: range(45, 60)}
GONE["both"] = {0: range(30, 33), 1: range(30, 33)}


@pytest.mark.parametrize("options", [STEREO, INERTIAL], ids=lambda options: options.mode)
@pytest.mark.parametrize("gone", GONE)
def test_a_camera_that_stops(room, sequence, gone, options):
    """The other one goes on in the same map: every frame with an image has a pose, the message says so."""
    slam = Slam(read_calibration(room / "mav0"), options)
    if options.is_inertial:
        slam.add_imu(sequence.imu.stamps, sequence.imu.gyro, sequence.imu.acc)
    blind = 3 if gone == "both" else 0
    for row in range(70):
        images = sequence.images(row)
        images = [None if row in GONE[gone].get(camera, ()) else images[camera] for camera in (0, 1)]
        assert slam.add_images(int(sequence.stamps[row]), *images) == any(one is not None for one in images)
    found = slam.stop()
    assert len(found.stamps) == 70 - blind and found.maps == 1
    for camera, rows in GONE[gone].items():
        assert f"{len(rows)} frames have no image of camera {camera}" in found.message
    assert rmse(found, sequence.truth)[0] < 0.02
    cameras = found.world.observations["camera"]
    newest = found.world.keyframes.ids[found.world.keyframes["stamp"] > sequence.stamps[45]]
    assert set(cameras[np.isin(found.world.observations["keyframe"], newest)].tolist()) == (
        {0} if gone == "right" else {1} if gone == "left" else {0, 1}
    )


def without(sequence, room, options, rows, camera):
    """A run in which a camera gives no image in these rows."""
    slam = Slam(read_calibration(room / "mav0"), options)
    if options.is_inertial:
        slam.add_imu(sequence.imu.stamps, sequence.imu.gyro, sequence.imu.acc)
    for row in range(70):
        images = sequence.images(row)
        images = [None if row in rows and k == camera else image for k, image in enumerate(images)]
        slam.add_images(int(sequence.stamps[row]), *images)
        if row == 45 and len(rows) > 45:
            assert f"camera {camera} gave no image" in slam.state().notes[0]
            assert slam.state().world_T_body is not None
    return slam.stop()


@pytest.mark.parametrize("camera", [0, 1])
@pytest.mark.parametrize("options", [STEREO, INERTIAL], ids=lambda options: options.mode)
def test_a_camera_that_never_delivers(room, sequence, options, camera):
    """After two seconds the run goes on with the other one, in its mono mode, which is said by number."""
    found = without(sequence, room, options, range(70), camera)
    np.testing.assert_array_equal(found.stamps, sequence.stamps[:70])
    assert found.maps == 1 and found.message.startswith(
        f"camera {camera} gave no image from 1500000004.000 s"
    )
    assert f"the run goes on with camera {1 - camera} alone" in found.message
    if options.is_inertial:
        error, scale = rmse(found, sequence.truth, "sim3")
        assert error < 0.03 and abs(scale - 1.0) < 0.05
    else:
        assert "lengths have no unit then" in found.message
        mounting = SE3(np.tile(read_calibration(room / "mav0").rig[1 - camera].body_T_cam, (70, 1)))
        rows = np.searchsorted(sequence.truth.stamps, found.stamps)
        truth = np.asarray((SE3(sequence.truth.world_T_body[rows]) * mounting).storage)
        assert rmse(found, StateTable(found.stamps, truth, None, None, None), "sim3")[0] < 0.03


@pytest.mark.parametrize("count", [25, 50])
@pytest.mark.parametrize("options", [STEREO, INERTIAL], ids=lambda options: options.mode)
def test_a_camera_that_comes_late(room, sequence, options, count):
    """A map in metres begins; frames before it are followed back, or are in that of the other camera."""
    found = without(sequence, room, options, range(count), 1)
    assert np.isin(sequence.stamps[count:70], found.stamps).all()
    stamps = [found.stamps, *(other.stamps for other in found.others)]
    np.testing.assert_array_equal(np.unique(np.concatenate(stamps)), sequence.stamps[:70])
    assert len(found.stamps) == 70 or count == 50
    assert ("a map in metres began at 1500000006.500 s" in found.message) == (count == 50)
    error, scale = rmse(found, sequence.truth, "sim3")
    assert error < 0.03 and abs(scale - 1.0) < 0.05


def test_a_short_run_with_one_camera(room, sequence):
    """It ends before the wait for the other does: poses all the same."""
    slam = Slam(read_calibration(room / "mav0"), STEREO)
    for row in range(35):
        slam.add_images(int(sequence.stamps[row]), sequence.images(row)[0], None)
    found = slam.stop()
    assert len(found.stamps) == 35 and "the run goes on with camera 0 alone" in found.message


def test_a_camera_that_flickers_costs_no_keyframes(room, sequence):
    """Tracks come back with it, and cameras side by side are no motion."""
    counts = [
        len(without(sequence, room, STEREO, rows, 0).world.keyframes) for rows in ((), range(21, 70, 2))
    ]
    assert counts[1] <= 1.2 * counts[0]


def test_images_of_another_size(room, sequence):
    """Left out one by one; a kind of array that is no image is refused at once, and the run goes on."""
    slam = Slam(read_calibration(room / "mav0"), STEREO)
    with pytest.raises(SequenceError, match="type float64, expected"):
        slam.add_images(1, np.zeros((10, 10)), np.zeros((10, 10)))
    for row in range(20):
        images = sequence.images(row)
        if row in (8, 9):
            images = [image[:-2] for image in images]
        assert slam.add_images(int(sequence.stamps[row]), *images) == (row not in (8, 9))
        state = slam.state()
        assert (state.status is Status.BLIND) == (row in (8, 9)) == (state.world_T_body is None)
    found = slam.stop()
    assert len(found.stamps) == 18 and found.num_frames == 20
    assert "2 images of camera 0 were left out: " in found.message and ", expected " in found.message
    assert "2 of 20 frames have no pose" in found.message


def test_samples_that_are_none(room, sequence):
    """NaN and repeated samples are left out and counted; a wrong shape is refused."""
    slam = Slam(read_calibration(room / "mav0"), INERTIAL)
    slam.add_imu(5, [np.nan, 0.0, 0.0], np.zeros(3))
    slam.add_imu([7, 7], np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(SequenceError, match=r"2 stamps, and gyro of shape \(3,\), expected \(2, 3\)"):
        slam.add_imu([7, 8], np.zeros(3), np.zeros(3))
    with pytest.raises(SequenceError, match="expected int64 nanoseconds"):
        slam.add_imu(0.5, np.zeros(3), np.zeros(3))
    slam.add_images(6, *sequence.images(0))
    notes = " ".join(slam.state().notes)
    assert "1 IMU samples with NaN" in notes and "1 IMU samples with a stamp that was there" in notes
    slam.abandon()


# ---------------------------------------------------------------------- threads


def test_frames_are_dropped_and_counted_or_waited_for(room, sequence):
    """A slow watcher keeps tracking busy: "drop" leaves out the oldest, "wait" none."""
    before = sys.getswitchinterval()
    for when_busy in ("drop", "wait"):
        options = replace(STEREO, single_thread=False, when_busy=when_busy, max_frames=2)
        slam = Slam(read_calibration(room / "mav0"), options, watch=lambda number, slam: time.sleep(0.02))
        for row in range(20):
            slam.add_images(int(sequence.stamps[row]), *sequence.images(row))
        assert sys.getswitchinterval() < before
        found = slam.stop()
        assert sys.getswitchinterval() == before
        assert found.num_frames == 20 and found.latency.count == 20 - found.num_dropped
        assert found.latency.median <= found.latency.p99 <= found.latency.worst
        if when_busy == "drop":
            assert found.num_dropped > 0
            assert f"{found.num_dropped} frames were dropped because tracking was busy" in found.message
            assert "left out, because tracking was busy" in found.message
        else:
            assert found.num_dropped == 0 and len(found.stamps) == 20


def test_keyframes_wait_while_mapping_is_behind(room, sequence, monkeypatch):
    """All frames are tracked; keyframes only where fewer than `keyframe_features` landmarks are left."""
    counts, process = [], Session.process
    for is_behind in (False, True):

        def processed(session, frame, _=False, is_behind=is_behind):
            return process(session, frame, is_behind)

        monkeypatch.setattr(Session, "process", processed)
        slam = Slam(read_calibration(room / "mav0"), STEREO)
        feed(slam, sequence, range(40))
        counts.append(slam.state().keyframes)
        assert len(slam.stop().stamps) == 40
    assert 1 <= counts[1] < counts[0]


def test_state_while_it_runs(room, sequence):
    """Pose, status and sizes of the present moment; after the end nothing more is taken."""
    slam = Slam(read_calibration(room / "mav0"), STEREO)
    assert slam.state().stamp is None and slam.state().world_T_body is None
    for row in range(5):
        slam.add_images(int(sequence.stamps[row]), *sequence.images(row))
    state = slam.state()
    assert state.status is Status.TRACKING and state.is_metric and state.num_frames == 5
    assert state.stamp == sequence.stamps[4] and state.keyframes >= 1 and state.landmarks > 50
    found = slam.stop()
    np.testing.assert_allclose(found.world_T_body[-1], state.world_T_body, atol=0.02)
    with pytest.raises(SequenceError, match="was stopped"):
        slam.add_images(1, *sequence.images(0))


def test_nobody_finds_half_a_keyframe(room, sequence):
    """Whoever holds the map's lock sees keyframes with all their observations, and landmarks with theirs."""
    slam = Slam(read_calibration(room / "mav0"), replace(INERTIAL, single_thread=False))
    halves, is_over = [], threading.Event()

    def look():
        while not is_over.is_set():
            world = slam.world
            with world.lock:
                seen = set(world.observations["keyframe"].tolist())
                halves.extend(set(world.keyframes.ids.tolist()) - seen)
                known = world.landmarks.find(world.observations["landmark"])
                halves.extend(np.flatnonzero(known < 0).tolist())
            time.sleep(1e-4)

    watcher = threading.Thread(target=look)
    watcher.start()
    feed(slam, sequence, range(len(sequence)), 5_000_000)
    found = slam.stop()
    is_over.set()
    watcher.join()
    assert halves == [] and len(found.world.keyframes) > 5


def test_a_failure_in_a_thread_reaches_the_caller(room, sequence):
    """The exception of a watcher is raised by the next call."""

    def watch(number, slam):
        raise ValueError("watcher")

    before, interval = set(threading.enumerate()), sys.getswitchinterval()
    slam = Slam(read_calibration(room / "mav0"), replace(STEREO, single_thread=False), watch=watch)
    mine = set(threading.enumerate()) - before
    with pytest.raises(ValueError, match="watcher"):
        for row in range(20):
            slam.add_images(int(sequence.stamps[row]), *sequence.images(row))
    with pytest.raises(ValueError, match="watcher"):
        slam.stop()
    for thread in mine:
        thread.join(10.0)
    assert len(mine) == 2 and not any(thread.is_alive() for thread in mine)
    assert sys.getswitchinterval() == interval


def test_what_a_mode_needs_is_said(room):
    """Cameras, noise, a map with features of the same cameras."""
    known = read_calibration(room / "mav0")
    with pytest.raises(SequenceError, match="a stereo mode needs two"):
        Slam(known.rig[0], STEREO)
    with pytest.raises(SequenceError, match="needs the noise of an IMU"):
        Slam(known.rig, INERTIAL)
    with pytest.raises(OptionError, match="localization needs a map"):
        Slam(known, replace(STEREO, localization=True))
    with pytest.raises(OptionError, match="no features"):
        Slam(known, STEREO, Map(known.rig))
    with pytest.raises(SequenceError, match="at the same place, a stereo mode needs a baseline"):
        Slam(Rig([known.rig[0], known.rig[0]]), STEREO)
    for arguments, said in {
        ("camchain.yaml",): "rig is 'camchain.yaml', expected Calibration, as read_calibration",
        (known, "mono"): "options is 'mono', expected PipelineOptions",
        (known, STEREO, "map.vib"): r"map is 'map.vib', expected Map, as Map.load",
    }.items():
        with pytest.raises(OptionError, match=said):
            Slam(*arguments)


def test_what_is_handed_in_is_checked(room, sequence):
    """Stamps in seconds, too many images, depth where the mode has none, or none where it needs one."""
    known, images = read_calibration(room / "mav0"), sequence.images(0)
    slam = Slam(known, STEREO)
    with pytest.raises(SequenceError, match=r"stamp is 1.5, expected whole nanoseconds: round\(1e9"):
        slam.add_images(1.5, *images)
    with pytest.raises(SequenceError, match="3 images, the calibration has 2 cameras"):
        slam.add_images(1, *images, images[0])
    with pytest.raises(SequenceError, match="of which mode 'stereo' makes no use"):
        slam.add_images(1, *images, depth=np.ones(images[0].shape))
    assert slam.stop().message == "no frames were given."
    slam = Slam(known, replace(STEREO, mode="rgbd"))
    slam.add_images(1, images[0])
    assert slam.state().notes == ("1 frames have no depth image, the first at 0.000 s",)


# ---------------------------------------------------------------------- maps that stay


@pytest.mark.parametrize("options", [STEREO, INERTIAL], ids=lambda options: options.mode)
def test_a_saved_map_is_recognised(sequence, tmp_path, options):
    """A run begins in the middle of an earlier one's map: it is localised there, and nothing changes."""
    first = run(sequence, options)
    path = tmp_path / "map.vib"
    first.world.save(path)
    world = Map.load(path)
    assert sum(len(one.pixel) for one in world.features.values()) > 500
    before = world.snapshot()
    later = sequence.part(slice(20, 65))
    found = run(later, replace(options, localization=True), map=world)
    assert found.message == "" and len(found.stamps) == 45
    _, mine, theirs = np.intersect1d(found.stamps, first.stamps, return_indices=True)
    off = np.linalg.norm(found.world_T_body[mine, :3] - first.world_T_body[theirs, :3], axis=1)
    assert np.median(off) < 0.04 and off.max() < 0.12  # a pixel is 2 cm there
    for name, table in world.tables.items():
        for column in table.columns:
            np.testing.assert_array_equal(table[column], before.tables[name][column])


def test_a_saved_map_is_extended(sequence):
    """The first half's map, and all frames again: one map, in the first one's frame, with more keyframes."""
    first = run(sequence.first(35), STEREO)
    count = len(first.world.keyframes)
    found = run(sequence, STEREO, map=first.world.snapshot())
    assert found.maps == 1 and len(found.stamps) == len(sequence)
    assert len(found.world.keyframes) > count
    _, mine, theirs = np.intersect1d(found.stamps, first.stamps, return_indices=True)
    off = np.linalg.norm(found.world_T_body[mine, :3] - first.world_T_body[theirs, :3], axis=1)
    assert off.max() < 0.05
    assert rmse(found, sequence.truth)[0] < 0.05


@pytest.mark.parametrize("mode", ["stereo", "mono"])
def test_a_lost_run_begins_a_map_that_is_joined(sequence, mode, monkeypatch):
    """Half a second in the dark, then back along the way: two maps become one, to scale.

    No frame is recognised on its own: this room is small.
    """
    monkeypatch.setattr(Loops, "recognised", lambda loops, here: None)
    rows = [*range(0, 40), *([40] * 12), *range(41, 69), *range(68, 0, -1)]
    stamps = int(sequence.stamps[0]) + 50_000_000 * np.arange(len(rows))
    options = PipelineOptions(mode=mode, single_thread=True, lost_seconds=0.3)
    pipeline = Slam(sequence.rig, options)
    for number, (row, stamp) in enumerate(zip(rows, stamps.tolist(), strict=True)):
        images = sequence.images(row)
        if 40 <= number < 52:
            images = [np.zeros_like(image) for image in images]
        pipeline.add_images(stamp, *images)
    found = pipeline.stop()
    assert found.maps == 1
    assert any(step["step"] == "join" for step in found.steps)
    assert "no place was recognised; a new map began at" in found.message
    assert np.isin(stamps[:40], found.stamps).all()  # those before the first map's start, too
    reference = sequence.of_camera() if mode == "mono" else sequence
    of_row = np.searchsorted(reference.truth.stamps, sequence.stamps[rows])
    truth = replace(reference.truth, stamps=stamps, world_T_body=reference.truth.world_T_body[of_row])
    truth = replace(truth, velocity=None, gyro_bias=None, acc_bias=None)
    assert rmse(found, truth, "sim3" if mode == "mono" else "se3")[0] < 0.06


def test_maps_that_know_gravity_are_joined_by_position_and_heading(room):
    """A place seen again at a tilt of 3 degrees that is the place's error: the joined map stays upright."""
    slam, rng = Slam(read_calibration(room / "mav0"), INERTIAL), np.random.default_rng(0)
    theirs = Session(slam.sensors, slam.options, [])
    heading = SO3.exp(np.array([0.0, 0.0, 0.8]))  # theirs_R_ours about gravity
    shift, places = np.array([3.0, -1.0, 0.5]), rng.normal(size=(4, 3))
    turns = SO3.exp(rng.normal(size=(4, 3)))
    poses = np.concatenate([places, np.asarray(turns.storage)], axis=1)
    theirs_T_ours = SE3(np.concatenate([shift, np.asarray(heading.storage)]))
    truth = np.asarray((SE3(np.tile(theirs_T_ours.storage, (4, 1))) * SE3(poses)).storage)
    old = theirs.world.add_keyframe(0, truth[3], np.zeros(3))
    ours = Session(slam.sensors, slam.options, [theirs])
    now = [ours.world.add_keyframe(k + 1, pose, np.ones(3)) for k, pose in enumerate(poses)]
    tilt = SE3(np.concatenate([np.zeros(3), np.asarray(SO3.exp(np.array([0.05, 0.0, 0.0])).storage)]))
    tilted = np.asarray((tilt * SE3(truth[3])).storage)  # turned about the world's x, where it is
    tilted[:3] = truth[3, :3]
    old_T_now = np.asarray((SE3(truth[3]).inverse() * SE3(tilted)).storage)
    ours.take_in(theirs, Loop(old, now[3], np.append(old_T_now, 1.0), np.zeros((0, 2), np.int64)))
    found = ours.world.keyframes["world_T_body"][ours.world.keyframes.rows(now)]
    motion = SE3(found) * SE3(poses).inverse()
    rotation = np.asarray(motion.rotation.to_matrix())
    np.testing.assert_allclose(rotation[:, 2], np.tile([0.0, 0.0, 1.0], (4, 1)), atol=1e-12)
    np.testing.assert_allclose(rotation[:, 0, 0], np.cos(0.8), atol=0.002)
    np.testing.assert_allclose(found[3, :3], truth[3, :3], atol=1e-12)
    velocity = ours.world.keyframes["velocity"][ours.world.keyframes.rows(now)]
    np.testing.assert_allclose(velocity, rotation[0] @ np.ones(3) * np.ones((4, 1)), atol=1e-12)
    assert len(ours.world.keyframes) == 5


# ---------------------------------------------------------------------- other rigs


class Rendered:
    """A moving rig in a room: cameras beside each other, images at any time."""

    def __init__(self, baselines, seconds=1.5):
        from slam_bridge import Rig
        from slam_bridge.generator.render import Renderer
        from slam_bridge.generator.sequence import SequenceOptions, plan_sequence

        self.planned = plan_sequence("V1_02", SequenceOptions(start=5, seconds=seconds, image_scale=0.3))
        first = self.planned.sensors.rig[0]
        across = SE3(first.body_T_cam).rotation.act(np.eye(3)[0])
        cameras = [
            replace(first, body_T_cam=np.append(first.body_T_cam[:3] + shift * across, first.body_T_cam[3:]))
            for shift in (0.0, *baselines)
        ]
        self.rig = Rig(cameras)
        self.renderers = [Renderer(camera, self.planned.scene, 1) for camera in cameras]
        self.stamps = self.planned.image_stamps.tolist()

    def image(self, camera, stamp):
        """What a camera sees at a time [ns]."""
        pose = self.planned.trajectory.at(np.array([stamp])).world_T_body[0]
        return np.clip(self.renderers[camera].render(pose).grey, 0.0, 255.0).astype(np.uint8)

    def error(self, found):
        """Absolute error [m] and scale."""
        truth = self.planned.trajectory.at(np.array(self.stamps)).world_T_body
        return rmse(found, StateTable(np.array(self.stamps), truth, None, None, None), "sim3")


@pytest.mark.parametrize("by", ["stamps", "time offset"])
def test_cameras_that_are_not_triggered_together(by):
    """The right image is 20 ms later, in which the body moves by a fifth of the baseline: metres to 5 %."""
    rendered, late = Rendered([0.11]), 20_000_000
    rig = rendered.rig.with_camera(1, time_offset=0.02) if by == "time offset" else rendered.rig
    slam = Slam(rig, STEREO)
    for stamp in rendered.stamps:
        images = rendered.image(0, stamp), rendered.image(1, stamp + late)
        slam.add_images(stamp, *images, stamps=[stamp, stamp + late] if by == "stamps" else None)
    error, scale = rendered.error(slam.stop())
    assert error < 0.02 and abs(scale - 1.0) < 0.05


def test_a_rig_of_three_cameras():
    """Corners of the first are matched in both others; landmarks are seen by all three."""
    rendered = Rendered([0.11, -0.11], seconds=0.8)
    slam = Slam(rendered.rig, STEREO)
    for stamp in rendered.stamps:
        slam.add_images(stamp, *(rendered.image(camera, stamp) for camera in range(3)))
    found = slam.stop()
    counts = np.bincount(found.world.observations["camera"], minlength=3)
    assert counts.min() > 50
    error, scale = rendered.error(found)
    assert error < 0.01 and abs(scale - 1.0) < 0.02


@pytest.mark.parametrize("gone", [None, 0, 1])
def test_cameras_of_different_size(gone):
    """The second one has a quarter more pixels; either may stop."""
    rendered = Rendered([0.11], seconds=1.5)
    first = rendered.rig[0]
    size = tuple(int(1.25 * side) for side in first.resolution)
    numbers = np.concatenate([1.25 * first.intrinsics[:4], first.intrinsics[4:]])
    rendered.rig = rendered.rig.with_camera(1, intrinsics=numbers, resolution=size)
    rendered.renderers[1] = type(rendered.renderers[1])(rendered.rig[1], rendered.planned.scene, 1)
    slam = Slam(rendered.rig, STEREO)
    for number, stamp in enumerate(rendered.stamps):
        images = [rendered.image(camera, stamp) for camera in range(2)]
        images = [None if camera == gone and number > 15 else image for camera, image in enumerate(images)]
        slam.add_images(stamp, *images)
    found = slam.stop()
    error, scale = rendered.error(found)
    assert len(found.stamps) == len(rendered.stamps) and error < 0.015 and abs(scale - 1.0) < 0.02


def test_pairs_by_the_nearest_stamp():
    """Each image of the first camera with the nearest of the second, within half a frame."""
    pairing = Pairing((0, 0))
    order = [(0, 100), (1, 104), (0, 150), (1, 153), (0, 200), (0, 250), (1, 252), (0, 300), (0, 350)]
    frames = [frame for camera, stamp in order for frame in pairing.add(camera, stamp, np.zeros((1, 1)))]
    frames += list(pairing.rest())
    assert [frame.stamp for frame in frames] == [100, 150, 200, 250, 300, 350]
    assert [None if frame.images[1] is None else frame.stamps[1] for frame in frames] == [
        *(104, 153, None, 252, None, None),
    ]


def test_pairs_go_on_without_the_first_camera():
    """It stops, and comes back; at the end, too, each image is in a frame."""
    pairing = Pairing((0, 5))
    order = [(camera, 100 * k) for k in range(40) for camera in (0, 1) if camera or not 4 <= k < 30]
    order = [*order[:-1], (1, 4000), (1, 4100)]
    frames = [frame for camera, stamp in order for frame in pairing.add(camera, stamp, np.zeros((1, 1)))]
    frames += list(pairing.rest())
    assert [frame.stamps[1] for frame in frames] == [*range(0, 3900, 100), 3895, 4000, 4100]
    has_first = [frame.images[0] is not None for frame in frames]
    assert has_first == [k < 4 or 30 <= k < 39 for k in range(39)] + [True, False, False]
    assert frames[39].images[1] is None


def test_depth_images(tmp_path):
    """A folder of TUM RGB-D's layout, depth 4 ms off: metres to 1 % without a second camera."""
    cv2 = pytest.importorskip("cv2")
    rendered = Rendered([])
    camera = rendered.rig[0]
    width, height = camera.resolution
    pixels = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(float)
    along = camera.unproject(pixels)[..., 2]
    lists = {"rgb": [], "depth": [], "groundtruth": []}
    for kind in ("rgb", "depth"):
        (tmp_path / kind).mkdir()
    for stamp in rendered.stamps:
        pose = rendered.planned.trajectory.at(np.array([stamp])).world_T_body[0]
        view, name = rendered.renderers[0].render(pose), f"{1e-9 * stamp:.6f}"
        depth = np.where(np.isfinite(view.depth), view.depth * along, 0.0)
        cv2.imwrite(str(tmp_path / "rgb" / f"{name}.png"), np.clip(view.grey, 0, 255).astype(np.uint8))
        cv2.imwrite(
            str(tmp_path / "depth" / f"{name}.png"), np.clip(5000 * depth, 0, 65535).astype(np.uint16)
        )
        seen = np.asarray((SE3(pose) * SE3(camera.body_T_cam)).storage)
        lists["rgb"].append(f"{name} rgb/{name}.png")
        lists["depth"].append(f"{1e-9 * stamp + 0.004:.6f} depth/{name}.png")
        lists["groundtruth"].append(" ".join([name, *map(str, seen.tolist())]))
    for name, lines in lists.items():
        (tmp_path / f"{name}.txt").write_text("# time\n" + "\n".join(lines) + "\n")
    numbers = camera.intrinsics.tolist()
    rows = "".join(f"\n  - {row}" for row in np.eye(4).tolist())
    (tmp_path / "camera.yaml").write_text(
        f"cam0:\n  camera_model: pinhole\n  intrinsics: {numbers[:4]}\n  distortion_model: radtan\n"
        f"  distortion_coeffs: {numbers[4:8]}\n  resolution: [{width}, {height}]\n  T_cam_imu:{rows}\n"
    )
    source = open_source(tmp_path, tmp_path / "camera.yaml")
    found = run(source, PipelineOptions(mode="rgbd", single_thread=True))
    error, scale = rmse(found, source.truth, "sim3")
    assert len(found.stamps) == len(rendered.stamps) and error < 0.02 and abs(scale - 1.0) < 0.01
    assert np.isfinite(found.world.observations["depth"]).sum() > 200
    with pytest.raises(SequenceError, match="which camera is this"):
        open_source(tmp_path)
