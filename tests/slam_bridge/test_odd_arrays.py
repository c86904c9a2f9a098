"""Arrays of length zero and one, ids that are none, few landmarks: an answer or an error that names it."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.errors import GraphOptError, OptionError
from slam_bridge.dense import offset_of
from slam_bridge.tables import MapError

CAMERA = sb.Camera(
    np.eye(7)[6], "pinhole", np.array([400.0, 400.0, 320.0, 240.0]), baseline=0.1, resolution=(640, 480)
)
RIG = sb.Rig([CAMERA])


def scene(num_keyframes: int, num_landmarks: int) -> tuple[sb.Map, np.ndarray, np.ndarray]:
    """Keyframes in a row that all see all landmarks, with noise."""
    random = np.random.default_rng(0)
    poses = np.tile(np.eye(7)[6], (num_keyframes, 1))
    poses[:, 0] = 0.3 * np.arange(num_keyframes)
    world = sb.Map(RIG)
    keyframes = world.add_keyframes(100_000_000 * np.arange(num_keyframes), poses)
    points = random.uniform([-2, -2, 4], [2, 2, 8], (num_landmarks, 3))
    landmarks = world.add_landmarks(points)
    frame, point = (
        np.repeat(np.arange(num_keyframes), num_landmarks),
        np.tile(np.arange(num_landmarks), num_keyframes),
    )
    seen = points[point] - poses[frame, :3]
    pixel = 400.0 * seen[:, :2] / seen[:, 2:] + [320.0, 240.0] + random.normal(0.0, 0.5, (len(seen), 2))
    right = pixel[:, 0] - 40.0 / seen[:, 2]
    world.add_observations(keyframes[frame], landmarks[point], pixel, right=right)
    return world, keyframes, landmarks


def test_empty_lists_add_nothing():
    """As empty arrays of the right shape do."""
    world = sb.Map(RIG)
    for ids in (
        world.add_keyframes([], []),
        world.add_landmarks([]),
        world.add_observations([], [], []),
        world.add_imu([], [], []),
        world.add_loops([], [], [], np.eye(7)),
        world.add_pose_priors([], [], 1.0, 1.0),
    ):
        assert ids.shape == (0,)
    assert len(sb.FrameObservations.of([], [])) == 0


@pytest.mark.parametrize(
    "problem",
    [
        sb.global_ba,
        sb.full_inertial_ba,
        lambda world: sb.local_ba(world, []),
        lambda world: sb.local_inertial_ba(world, []),
        lambda world: sb.marginalize(world, []),
        sb.inertial_initialization,
        sb.essential_graph_optimization,
    ],
)
def test_an_empty_map_is_an_error_of_the_library(problem):
    """None of numpy's."""
    with pytest.raises(GraphOptError):
        problem(sb.Map(RIG))


@pytest.mark.parametrize("ids", [[1.5], [np.nan], "a", [True], [None]])
def test_ids_are_whole_numbers(ids):
    """A half is not rounded, a flag is no id: by every way in."""
    world, keyframes, landmarks = scene(3, 10)
    for call in (
        lambda: sb.local_ba(world, ids),
        lambda: sb.local_inertial_ba(world, ids),
        lambda: sb.global_ba(world, fixed=ids),
        lambda: sb.marginalize(world, ids),
        lambda: world.add_observations(ids, landmarks[:1], [[1.0, 2.0]]),
        lambda: world.add_observations(keyframes[:1], ids, [[1.0, 2.0]]),
        lambda: world.add_observations(keyframes[:1], landmarks[:1], [[1.0, 2.0]], camera=ids),
        lambda: world.remove_keyframes(ids),
        lambda: world.remove_landmarks(ids),
        lambda: world.keyframes.rows(ids),
        lambda: world.add_loops(ids, keyframes[:1], np.eye(7)[6:], np.eye(7)),
    ):
        with pytest.raises(MapError, match="whole numbers"):
            call()
    assert len(world.keyframes) == 3 and len(world.landmarks) == 10


def test_ids_as_floats_in_any_order_and_repeated():
    """What numpy makes of ids on the way."""
    world, keyframes, _ = scene(4, 20)
    again = sb.local_ba(world, keyframes[[3, 1, 1]].astype(float))
    assert again.keyframes.ids.tolist() == keyframes[[1, 3]].tolist()


def test_lengths_that_differ_are_named():
    """Which argument, its shape, what was expected."""
    world, keyframes, landmarks = scene(2, 5)
    with pytest.raises(MapError, match=r"keyframe has shape \(2,\), expected \(1,\)"):
        world.add_observations(keyframes, landmarks[:1], [[1.0, 2.0]])
    with pytest.raises(MapError, match=r"sigma has shape \(3,\), expected \(2,\)"):
        world.add_observations(keyframes, landmarks[:2], np.ones((2, 2)), sigma=[1, 1, 1])


def test_cameras_outside_the_rig_are_refused():
    """In a frame, too."""
    seen = sb.FrameObservations.of(np.ones((4, 3)), np.ones((4, 2)), camera=[0, 0, 2, 0])
    with pytest.raises(OptionError, match="camera is 0 to 2; the rig has 0 to 0"):
        sb.pose_optimization(RIG, np.eye(7)[6], seen)


@pytest.mark.parametrize(
    "pairs", [(np.zeros((0, 3)), np.zeros((0, 3))), (np.zeros((3, 3)), np.zeros((2, 3)))]
)
def test_no_pairs_have_no_similarity(pairs):
    """And none that do not belong together."""
    with pytest.raises(OptionError, match="umeyama"):
        sb.umeyama(*pairs)


@pytest.mark.parametrize("num_landmarks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("num_keyframes", [2, 3])
def test_marginalization_of_what_hardly_holds_together(num_keyframes, num_landmarks):
    """Few landmarks leave directions that nothing measures; the prior is finite, and what it says is used."""
    world, keyframes, _ = scene(num_keyframes, num_landmarks)
    prior = sb.marginalize(world, keyframes[:1]).extra["prior"]
    assert np.isfinite(prior.information).all() and np.isfinite(prior.offset).all()


def test_a_diagonal_of_rounding_errors_is_no_scale():
    """H of which one direction is nothing but noise, of either sign, or zero."""
    h, b = np.diag([1e6, 1e4, 1.0]), np.array([1e6, 1e4, 1e-12])
    for noise in (-1e-10, 0.0, 1e-12):
        h[2, 2], h[0, 2], h[2, 0] = noise, 1e-9, 1e-9
        np.testing.assert_allclose(offset_of(h, b)[:2], 1.0, rtol=1e-9)


POSE = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"information": -np.eye(7)}, "row 0 is indefinite"),
        ({"information": np.triu(np.ones((7, 7)))}, "row 0 is not symmetric"),
        ({"scale": 0.0}, r"scale of row 0 is 0\.0"),
        ({"scale": -1.0}, r"scale of row 0 is -1\.0"),
        ({"scale": np.nan}, "scale of row 0 is nan"),
        ({"first_T_second": [0.0] * 7}, r"length 0\.0000"),
        ({"first_T_second": [*[0.0] * 6, 2.0]}, r"length 2\.0000"),
        ({"second": 0}, "links keyframe 0 with itself"),
    ],
)
def test_loops_that_are_none_are_refused(changes, message):
    """Where they are added, and nothing is."""
    world, _, _ = scene(3, 10)
    loop = {"first": 0, "second": 2, "first_T_second": POSE, "information": np.eye(7)}
    with pytest.raises(MapError, match=message):
        world.add_loops(**{**loop, **changes})
    assert len(world.loops) == 0 and len(world.add_loops(**loop)) == 1


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf])
def test_measured_poses_have_sigmas(sigma):
    """Both of them, and a unit quaternion."""
    world, keyframes, _ = scene(2, 10)
    with pytest.raises(MapError, match="position_sigma of row 0"):
        world.add_pose_priors(keyframes[0], POSE, sigma, 1.0)
    with pytest.raises(MapError, match="rotation_sigma of row 1"):
        world.add_pose_priors(keyframes, [POSE, POSE], 1.0, [1.0, sigma])
    with pytest.raises(MapError, match=r"length 2\.0000"):
        world.add_pose_priors(keyframes[0], [*POSE[:6], 2.0], 1.0, 1.0)
    assert len(world.pose_priors) == 0


@pytest.mark.parametrize(
    "motion", [[np.nan] * 7, [*POSE, 0.0], [*POSE, -2.0], [*POSE, np.nan], [*POSE[:6], 3.0], [0.0] * 8]
)
def test_transforms_that_are_none_leave_the_map(motion):
    """Said before anything moves."""
    world, _, _ = scene(2, 10)
    before = {name: table.arrays() for name, table in world.snapshot().tables.items()}
    with pytest.raises(MapError, match="new_S_old"):
        world.transform(motion)
    for name, arrays in before.items():
        for column, values in arrays.items():
            np.testing.assert_array_equal(world.tables[name].arrays()[column], values)


def test_merges_that_are_none_are_named():
    """Lists of two lengths; one landmark into two others."""
    world, _, landmarks = scene(2, 10)
    with pytest.raises(MapError, match="1 landmarks are to go into 2"):
        world.merge_landmarks(landmarks[:2], landmarks[2:3])
    with pytest.raises(MapError, match="into two others"):
        world.merge_landmarks(landmarks[:2], landmarks[[5, 5]])
    with pytest.raises(MapError, match="whole numbers"):
        world.merge_landmarks([0.5], landmarks[:1])
    assert len(world.landmarks) == 10


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan])
def test_sigmas_written_by_hand_are_judged(sigma):
    """As pixels and poses are."""
    world, _, _ = scene(2, 10)
    world.observations["sigma"][3] = sigma
    with pytest.raises(MapError, match="observation 3: sigma is"):
        sb.global_ba(world)


def test_options_of_another_kind_are_named():
    """A dict; a negative number of keyframes to hold, which is none."""
    world, keyframes, _ = scene(3, 10)
    with pytest.raises(OptionError, match="expected SolveOptions"):
        sb.local_ba(world, keyframes[:1], options={"device": "cpu"})
    for call in (sb.local_ba, sb.local_inertial_ba):
        with pytest.raises(OptionError, match="max_fixed is -1"):
            call(world, keyframes[:1], max_fixed=-1)


def measured(seconds: float) -> sb.Preintegrated:
    """By an IMU at rest."""
    times = np.linspace(0.0, seconds, 21)
    samples = sb.ImuSamples.from_seconds(times, np.zeros((21, 3)), np.tile([0.0, 0.0, 9.81], (21, 1)))
    return sb.preintegrate(samples, sb.ImuNoise())


def test_imu_measurements_lead_forward_and_once():
    """Backwards, and the same motion twice, in one call or two: refused; nothing is added."""
    world, keyframes, _ = scene(3, 10)
    interval = measured(0.1)
    with pytest.raises(
        MapError, match=r"measurement 1 leads from keyframe 2 at 200000000 ns to 1 .* not later"
    ):
        world.add_imu([0, 2], [1, 1], [interval, interval])
    with pytest.raises(MapError, match="there is a measurement from keyframe 0 to 1"):
        world.add_imu([0, 0], [1, 1], [interval, interval])
    assert len(world.imu) == 0 and not world.keyframes["has_states"].any()
    world.add_imu(keyframes[:-1], keyframes[1:], [interval, interval])
    with pytest.raises(MapError, match="there is a measurement from keyframe 1 to 2"):
        world.add_imu(1, 2, interval)
    world.add_imu(0, 2, measured(0.2))
    world.remove_keyframes(1)  # the two around it do not become a second one from 0 to 2
    assert world.imu["first"].tolist() == [0] and world.imu["second"].tolist() == [2]


def test_numbers_of_an_imu_that_are_none():
    """Biases, times and gaps of NaN."""
    times, zeros = np.arange(5) * 0.01, np.zeros((5, 3))
    samples = sb.ImuSamples.from_seconds(times, zeros, zeros)
    with pytest.raises(OptionError, match="gyro_bias is"):
        sb.preintegrate(samples, sb.ImuNoise(), gyro_bias=[np.nan, 0.0, 0.0])
    with pytest.raises(sb.ImuDataError, match="allowed are nan s"):
        samples.between(0, 10_000_000, np.nan)
    for wrong in (np.nan, np.inf, 1.4e18):
        with pytest.raises(sb.ImuDataError, match="time 2 is"):
            sb.ImuSamples.from_seconds([0.0, 0.01, wrong, 0.03, 0.04], zeros, zeros)


@pytest.mark.parametrize("far", [1e7, -1e30, 1e300, np.inf, np.nan])
def test_pixels_of_no_image_are_refused(far):
    """One of 1e30 outweighed all others and left an eighth of the inliers; maps, columns by hand, frames."""
    world, keyframes, landmarks = scene(2, 10)
    with pytest.raises(MapError, match=r"no image has such|not finite"):
        world.add_observations(keyframes[0], landmarks[:2], [[1.0, 2.0], [far, 3.0]])
    if np.isfinite(far):
        with pytest.raises(MapError, match=r"row 0: pixel is .*, right .*no image has such"):
            world.add_observations(keyframes[0], landmarks[:1], [[1.0, 2.0]], right=far)
    seen = sb.FrameObservations.of(np.ones((4, 3)), [[1.0, 2.0], [far, 3.0], [1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(OptionError, match="observation in row 1"):
        sb.pose_optimization(RIG, np.eye(7)[6], seen)
    world.observations["pixel"][5, 1] = far
    with pytest.raises(MapError, match=r"observation 5: pixel is .*up to 1e"):
        sb.global_ba(world)
