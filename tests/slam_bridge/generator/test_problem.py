"""Generated problems have exactly the sizes asked for, and their measurements are the truth's plus noise."""

import numpy as np
import pytest

from graphopt.errors import OptionError
from slam_bridge.generator.problem import ProblemOptions, generate_problem, keyframe_stamps
from slam_bridge.generator.render import from_outside
from slam_bridge.generator.scene import Box
from slam_bridge.generator.sizes import SIZES
from slam_bridge.generator.tracks import Tracks, _crossing, _hidden, thinned

SMALL = {"keyframes": 30, "landmarks": 500, "observations": 3000}


@pytest.mark.parametrize("name", ["MH01", "room3"])
def test_sizes_are_those_of_the_table(name):
    """Keyframes, landmarks and observations of table 5.8; each landmark twice or more, no row double."""
    world = generate_problem(name).map
    assert (len(world.keyframes), len(world.landmarks), len(world.observations)) == SIZES[name]
    seen = world.observations
    assert np.bincount(seen["landmark"], minlength=len(world.landmarks)).min() >= 2
    rows = np.stack([seen["keyframe"], seen["landmark"], seen["camera"]], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert np.bincount(seen["keyframe"], minlength=len(world.keyframes)).min() > 0
    assert len(world.imu) == len(world.keyframes) - 1


def test_a_part_of_a_trajectory():
    """The first seconds alone, which the truth of the whole begins with; more than there are is refused."""
    made = generate_problem("V103", keyframes=12, landmarks=60, observations=240, seconds=6.0, seed=4)
    stamps = made.map.keyframes["stamp"]
    assert 5.0e9 < stamps[-1] - stamps[0] <= 6.0e9
    with pytest.raises(OptionError, match=r"seconds is 1000.*lasts"):
        generate_problem("V103", keyframes=12, landmarks=60, observations=240, seconds=1000.0)
    with pytest.raises(OptionError, match="seconds is -1"):
        generate_problem("V103", keyframes=12, landmarks=60, observations=240, seconds=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["outdoors4", "outdoors6", "V203", "room6"])
def test_sizes_of_larger_maps(name):
    """Outdoors too."""
    world = generate_problem(name).map
    assert (len(world.keyframes), len(world.landmarks), len(world.observations)) == SIZES[name]


@pytest.mark.parametrize("name", ["V101", "room2"])
def test_measurements_are_the_truth_with_noise(name):
    """Whitened errors at the truth have variance 1; mismatches are tens of pixels away."""
    made = generate_problem(name, **SMALL, mismatches=0.05, seed=3)
    world, truth = made.map, made.truth
    seen = world.observations
    k, m = world.keyframes.rows(seen["keyframe"]), world.landmarks.rows(seen["landmark"])
    inside = world.rig.in_cameras(seen["camera"], truth.world_T_body[k], truth.points[m])
    pixels, valid = world.rig.project(seen["camera"], inside)
    assert valid.all()
    wrong = np.isin(seen.ids, truth.mismatches)
    assert wrong.sum() == 150
    white = (seen["pixel"] - pixels) / seen["sigma"][:, None]
    assert np.std(white[~wrong]) == pytest.approx(1.0, abs=0.04)
    assert np.median(np.linalg.norm((seen["pixel"] - pixels)[wrong], axis=1)) > 10.0
    assert seen["sigma"].min() == pytest.approx(0.7) and seen["sigma"].max() <= 0.7 * 1.2**7 + 1e-9
    stereo = np.isfinite(seen["right"])
    if name == "V101":
        column = world.rig[0].right_column(inside)
        assert np.std((seen["right"] - column)[stereo] / seen["sigma"][stereo]) == pytest.approx(
            1.0, abs=0.05
        )
    else:
        assert not stereo.any() and set(np.unique(seen["camera"])) == {0, 1}


def test_imu_measurements_fit_the_true_states():
    """Corrected by the true biases, each measurement predicts the next true state within its noise."""
    made = generate_problem("V102", **SMALL)
    truth = made.truth
    for k, measured in enumerate(made.map.preintegrated.values()):
        exact = measured.reintegrated(truth.gyro_bias[k], truth.acc_bias[k])
        pose, velocity = exact.predict(truth.world_T_body[k], truth.velocity[k])
        sigma = np.sqrt(np.diag(measured.combined_covariance))
        assert (np.abs(pose[:3] - truth.world_T_body[k + 1, :3]) < 6.0 * sigma[6:9].max() + 1e-4).all()
        assert (np.abs(velocity - truth.velocity[k + 1]) < 6.0 * sigma[3:6].max() + 1e-4).all()


def test_seeds_and_starts():
    """A seed gives the same problem again; the start says what the estimates are."""
    first, again = generate_problem("V201", **SMALL), generate_problem("V201", **SMALL)
    other = generate_problem("V201", **SMALL, seed=1)
    np.testing.assert_array_equal(first.map.observations["pixel"], again.map.observations["pixel"])
    assert not np.array_equal(first.map.observations["pixel"], other.map.observations["pixel"])
    exact = generate_problem("V201", **SMALL, start="truth")
    np.testing.assert_allclose(exact.map.keyframes["world_T_body"], exact.truth.world_T_body, atol=1e-12)
    np.testing.assert_array_equal(exact.map.landmarks["position"], exact.truth.points)
    window = generate_problem("V201", **SMALL, start="window")
    moved = np.linalg.norm(
        window.map.keyframes["world_T_body"][:, :3] - window.truth.world_T_body[:, :3], axis=1
    )
    assert moved[:5].max() < 1e-9 < moved[5:].min()


def test_loops_are_revisited():
    """Some landmarks are seen again after a long time."""
    world = generate_problem("V201", keyframes=80, landmarks=1500, observations=9000).map
    keyframe, landmark = world.observations["keyframe"], world.observations["landmark"]
    last, first = np.zeros(len(world.landmarks), int), np.full(len(world.landmarks), 10**6)
    np.maximum.at(last, landmark, keyframe)
    np.minimum.at(first, landmark, keyframe)
    assert np.mean(last - first > 40) > 0.02


def test_thinning_is_exact_for_any_counts():
    """Whatever is possible is reached exactly, the first rows of each landmark are kept."""
    generator = np.random.default_rng(0)
    counts = generator.integers(1, 12, 200)
    landmark = np.repeat(np.arange(200), counts)
    keyframe = np.concatenate([np.arange(n) for n in counts])
    found = Tracks(np.zeros((200, 3)), np.zeros(200, int), landmark, keyframe, np.zeros(len(landmark), int))
    best = int(np.sort(counts)[-60:].sum())
    for total in (120, 200, 400, best):
        kept = thinned(found, 60, total, generator)
        assert len(kept.points) == 60 and len(kept.landmark) == total
        sizes = np.bincount(kept.landmark, minlength=60)
        assert sizes.min() >= 2 and (kept.keyframe < sizes[kept.landmark]).all()


def test_impossible_sizes_are_refused():
    """The message says what would be possible."""
    with pytest.raises(OptionError, match="two at least"):
        generate_problem("V101", keyframes=10, landmarks=100, observations=150)
    with pytest.raises(OptionError, match="at most"):
        generate_problem("V101", keyframes=3, landmarks=20, observations=2000)
    with pytest.raises(OptionError, match="not in the table"):
        generate_problem("corridor1")
    with pytest.raises(OptionError, match="expected one of odometry"):
        ProblemOptions(start="nowhere")


def test_keyframes_stand_where_the_view_changes():
    """Stamps ascend strictly, even where nearly every image is a keyframe."""
    from slam_bridge.generator import built_in, character, sensors

    trajectory = built_in(character("V103"), sensors("euroc").rig)
    for count in (2, 100, 2000, 2100):
        stamps = keyframe_stamps(trajectory, count, 20.0, 3.0)
        assert len(stamps) == count and (np.diff(stamps) > 0).all()
    with pytest.raises(OptionError, match="2101 images"):
        keyframe_stamps(trajectory, 3000, 20.0, 3.0)


def test_boxes_hide_what_is_behind_them():
    """Where lines cross a turned box is where the renderer's rays meet it; points on its face are seen."""
    generator = np.random.default_rng(4)
    box = Box(np.array([3.0, -1.0, 0.5]), np.array([1.0, 0.7, 1.2]), 0.6, ())
    rays = np.array([2.0, -0.5, 0.2]) + generator.normal(size=(4000, 3))
    enter, leave = _crossing(box, np.zeros((3, 1)), np.ascontiguousarray(rays.T))
    distance, _ = from_outside(box, np.zeros(3), rays.astype(np.float32))
    met = np.isfinite(distance)
    assert 200 < met.sum() < 3900
    np.testing.assert_array_equal((enter < leave) & (enter > 0.0), met)
    np.testing.assert_allclose(enter[met], distance[met], rtol=1e-4)
    along = enter[met, None] * rays[met]
    assert not _hidden(np.zeros_like(along), along, [box]).any()
    assert _hidden(np.zeros_like(along), 1.01 * leave[met, None] * rays[met], [box]).all()
