"""The map: ids stay, removing and merging keep it whole, files bring it back, snapshots are independent."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from archives import damage, write_old_map
from simulation import CAMERA, observe, poses_and_velocities, samples

import slam_bridge as sb
from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3
from slam_bridge.tables import Table

TIMES = 0.25 * np.arange(7)
NOISE = sb.ImuNoise()


def simulated(count=40, seed=0):
    """Map of seven keyframes with IMU, landmarks seen without noise."""
    rng = np.random.default_rng(seed)
    poses, velocities = poses_and_velocities(TIMES)
    points = rng.uniform([-8.0, 4.0, -4.0], [8.0, 12.0, 4.0], (count, 3))
    keyframe, point, pixel, right = observe(poses, points)
    stamps = np.rint(TIMES * 1e9).astype(np.int64)
    world = sb.Map(CAMERA)
    frames = world.add_keyframes(stamps, poses, velocities)
    landmarks = world.add_landmarks(points, frames[0])
    world.add_observations(frames[keyframe], landmarks[point], pixel, right=right)
    world.add_imu(frames[:-1], frames[1:], sb.preintegrate_intervals(samples(TIMES[-1]), stamps, NOISE))
    return world


def columns(world):
    """All arrays of a map by table and column."""
    return {
        f"{name}/{column}": values
        for name, table in world.tables.items()
        for column, values in table.arrays().items()
    }


def assert_same(first, second):
    for name, values in columns(first).items():
        np.testing.assert_array_equal(values, columns(second)[name], err_msg=name)


def test_ids_stay_when_rows_go():
    """After removals every remaining id has its values, new ids are new, and lost ids are named."""
    table = sb.Table("thing", {"value": ((), float)})
    first = table.append(5, {"value": np.arange(5.0)})
    table.remove(first[[0, 2]])
    second = table.append(2, {"value": [10.0, 11.0]})
    np.testing.assert_array_equal(table.ids, [1, 3, 4, 5, 6])
    np.testing.assert_array_equal(table["value"][table.rows([4, 6, 1])], [4.0, 11.0, 1.0])
    np.testing.assert_array_equal(second, [5, 6])
    np.testing.assert_array_equal(table.find([0, 2, 7, -1, 3]), [-1, -1, -1, -1, 1])
    assert 3 in table and 2 not in table
    with pytest.raises(sb.MapError, match="no thing 2 in this map of 5 things"):
        table.rows([3, 2])


def test_a_table_that_slides_does_not_grow():
    """Adding and removing one row 20,000 times leaves memory bounded."""
    table = sb.Table("thing", {"value": ((3,), float)})
    table.append(20, {"value": 0.0})
    table.find(table.ids)
    for _ in range(20_000):
        table.append(1, {"value": 1.0})
        table.keep(np.arange(len(table)) > 0)
        table.find(table.ids)
    assert len(table) == 20 and table.ids[-1] == 20_019
    assert table.nbytes < 100 * 32


def test_removing_a_keyframe_joins_the_imu():
    """Its observations go, references move on, and the two IMU measurements become the one of all samples."""
    world = simulated()
    gone, (before, after) = int(world.keyframes.ids[3]), world.keyframes.ids[[2, 4]]
    world.landmarks["reference"][:5] = gone
    world.remove_keyframes(gone)
    assert gone not in world.keyframes and len(world.imu) == 5
    assert not (world.observations["keyframe"] == gone).any()
    assert not (world.landmarks["reference"] == gone).any()
    (row,) = np.flatnonzero(world.imu["first"] == before)
    assert world.imu["second"][row] == after
    whole = sb.preintegrate(samples(TIMES[-1]).between(500_000_000, 1_000_000_000), NOISE)
    np.testing.assert_allclose(world.imu["measurement"][row], whole.measurement(np.zeros(3)), atol=1e-12)
    world.remove_keyframes(after, join_imu=False)
    assert len(world.imu) == 3 and set(world.preintegrated) == set(world.imu.ids.tolist())


def test_removing_landmarks():
    """Observations go with them; landmarks that few keyframes see are found."""
    world = simulated()
    before = len(world.observations)
    gone = world.landmarks.ids[[1, 7]]
    count = int(np.isin(world.observations["landmark"], gone).sum())
    world.remove_landmarks(gone)
    assert count > 0 and len(world.observations) == before - count
    lonely = world.add_landmarks([[1.0, 2.0, 3.0]])
    assert lonely[0] in world.remove_unseen_landmarks(1)
    assert lonely[0] not in world.landmarks


def test_merging_landmarks_keeps_one_observation_per_camera():
    """The kept landmark has the union of observers, also through a chain; a cycle is refused."""
    world = simulated()
    a, b, c = world.landmarks.ids[:3].tolist()
    seen = {
        landmark: set(world.observations["keyframe"][world.observations["landmark"] == landmark].tolist())
        for landmark in (a, b, c)
    }
    kept_pixels = world.observations["pixel"][world.observations["landmark"] == a].copy()
    with pytest.raises(sb.MapError, match="into itself"):
        world.merge_landmarks([a, b], [b, a])
    world.merge_landmarks([a, b], [b, c])
    rows = np.flatnonzero(world.observations["landmark"] == a)
    observers = world.observations["keyframe"][rows].tolist()
    assert sorted(observers) == sorted(seen[a] | seen[b] | seen[c])
    assert b not in world.landmarks and c not in world.landmarks
    for pixel in kept_pixels:
        assert (world.observations["pixel"][rows] == pixel).all(axis=1).any()


def test_covisible_counts_shared_observations():
    """By hand: for each other keyframe, observations of landmarks that the given ones observe."""
    world = simulated()
    given = world.keyframes.ids[[0, 1]]
    frames, landmarks = world.observations["keyframe"], world.observations["landmark"]
    own = set(landmarks[np.isin(frames, given)].tolist())
    expected = {
        int(k): sum(1 for f, p in zip(frames, landmarks, strict=True) if f == k and p in own)
        for k in world.keyframes.ids[2:]
    }
    ids, counts = world.covisible(given)
    assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == {k: n for k, n in expected.items() if n}
    assert (np.diff(counts) <= 0).all()


def test_file_brings_everything_back(tmp_path):
    """All tables, the rig, IMU samples and priors survive `save` and `load` bit by bit."""
    world = simulated()
    world.remove_keyframes(world.keyframes.ids[2])
    world.add_loops(world.keyframes.ids[0], world.keyframes.ids[-1], [0, 0, 0, 0, 0, 0, 1.0], np.eye(7))
    world.add_pose_priors(world.keyframes.ids[:1], world.keyframes["world_T_body"][:1], 0.1, 0.01)
    owner = world.keyframes.ids[[0, 0]]
    world.priors.append(sb.MarginalPrior([0, 1], owner, np.ones((2, 7)), np.eye(9), np.arange(9.0)))
    first = int(world.keyframes.ids[0])
    world.set_features(first, [[3.25, 4.5]], np.arange(32, dtype=np.uint8)[None])
    world.save(tmp_path / "world.vib")
    again = sb.Map.load(tmp_path / "world.vib")
    assert_same(world, again)
    np.testing.assert_array_equal(again.features[first].pixel, [[3.25, 4.5]])
    np.testing.assert_array_equal(again.features[first].descriptor[0], np.arange(32))
    np.testing.assert_array_equal(again.rig[0].intrinsics, CAMERA.intrinsics)
    assert again.rig[0].baseline == CAMERA.baseline
    for key, measured in world.preintegrated.items():
        other = again.preintegrated[key]
        np.testing.assert_array_equal(other.samples.gyro, measured.samples.gyro)
        np.testing.assert_array_equal(other.combined_covariance, measured.combined_covariance)
        assert other.noise == measured.noise and other.rule == measured.rule
    np.testing.assert_array_equal(again.priors[0].offset, np.arange(9.0))
    assert again.add_keyframe(5, world.keyframes["world_T_body"][0]) == world.keyframes.next_id


def test_archives_of_older_versions_are_read(tmp_path):
    """All tables; what is damaged is a FormatError with the path. Nothing writes them any more."""
    path, world = tmp_path / "world.npz", simulated()
    write_old_map(world, path)
    again = sb.Map.load(path)
    assert_same(world, again)
    assert again.features == {}
    with pytest.raises(OptionError, match=r"a map is saved as \.vib"):
        world.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match="damaged"):
        sb.Map.load(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(FormatError, match="expected 'slam_bridge map'"):
        sb.Map.load(path)
    path.write_bytes(data)
    damage(path, "landmarks/position", lambda positions: positions[:, :2])
    with pytest.raises(FormatError, match="'position' has shape"):
        sb.Map.load(path)


def test_two_maps_become_one():
    """`follow` gives ids beyond the other map's; `prepend` has all rows of both."""
    earlier, later = simulated(), sb.Map(CAMERA)
    later.follow(earlier)
    pose = [0.0, 0, 0, 0, 0, 0, 1]
    key = later.add_keyframe(10**12, pose)
    points = later.add_landmarks([[0.0, 0, 5], [1, 0, 5]], key)
    later.add_observations(key, points, [[1.0, 2], [3, 4]])
    later.set_features(key, [[1.0, 2]], np.zeros((1, 32), np.uint8))
    counts = {name: len(table) for name, table in later.tables.items()}
    later.prepend(earlier)
    for name, table in later.tables.items():
        assert len(table) == counts[name] + len(earlier.tables[name])
    assert key in later.keyframes and later.features.keys() == {key}
    assert later.preintegrated.keys() == earlier.preintegrated.keys()
    assert later.observed_landmarks([key]).tolist() == points.tolist()
    with pytest.raises(sb.MapError, match="is not above"):
        earlier.prepend(later)
    with pytest.raises(sb.MapError, match="given out ids already"):
        later.follow(earlier)
    later.remove_keyframes([key])
    assert not later.features


@pytest.mark.parametrize("again", [lambda world: pickle.loads(pickle.dumps(world)), copy.copy, copy.deepcopy])
def test_a_map_is_copied_and_pickled(again):
    """All tables, IMU measurements and priors come along; the copy has a lock of its own and can be used."""
    world = simulated()
    other = again(world)
    for name, table in world.tables.items():
        assert all(
            np.array_equal(table[column], other.tables[name][column], equal_nan=True)
            for column in table.columns
        )
    assert list(other.preintegrated) == list(world.preintegrated) and other.rig is not None
    assert other.lock is not world.lock
    other.landmarks["position"][:] = 0.0
    assert world.landmarks["position"].any()
    other.remove_keyframes(other.keyframes.ids[:1])
    assert len(world.keyframes) == len(other.keyframes) + 1
    assert sb.full_inertial_ba(again(world), options=sb.SolveOptions(iterations=2)).is_usable


def test_snapshot_is_independent_and_apply_brings_results_home():
    """What changes after a snapshot is not in it; results come back to what still exists."""
    world = simulated()
    before = simulated()
    copy = world.snapshot()
    world.keyframes["world_T_body"][0, 0] += 1.0
    world.remove_landmarks(world.landmarks.ids[0])
    new = world.add_landmarks([[0.0, 0.0, 5.0]])
    assert_same(copy, before)
    copy.landmarks["position"][:] += 2.0
    copy.keyframes["velocity"][1] = [1.0, 2.0, 3.0]
    world.apply(copy, keyframes=copy.keyframes.ids[1:])
    np.testing.assert_array_equal(world.landmarks["position"][:-1], before.landmarks["position"][1:] + 2.0)
    np.testing.assert_array_equal(world.landmarks["position"][world.landmarks.rows(new)], [[0.0, 0.0, 5.0]])
    assert world.keyframes["world_T_body"][0, 0] == before.keyframes["world_T_body"][0, 0] + 1.0
    np.testing.assert_array_equal(world.keyframes["velocity"][1], [1.0, 2.0, 3.0])


def test_threads_may_share_a_map():
    """One thread adds and removes while another takes snapshots: each snapshot is whole."""
    world = simulated()
    frame, failures, done = int(world.keyframes.ids[0]), [], threading.Event()

    def track():
        for _ in range(300):
            new = world.add_landmarks(np.zeros((5, 3)))
            world.add_observations(frame, new, np.zeros((5, 2)))
            world.remove_landmarks(new)
        done.set()

    thread = threading.Thread(target=track)
    thread.start()
    while not done.is_set():
        copy = world.snapshot()
        try:
            copy.landmarks.rows(copy.observations["landmark"])
        except sb.MapError as error:
            failures.append(error)
    thread.join()
    assert not failures


def test_transform_moves_poses_and_points_alike():
    """Pixels do not change when the whole map is moved and scaled."""
    world = simulated()
    frames = world.keyframes.rows(world.observations["keyframe"])
    points = world.landmarks.rows(world.observations["landmark"])

    def rays():
        local = CAMERA.in_camera(world.keyframes["world_T_body"][frames], world.landmarks["position"][points])
        return local / np.linalg.norm(local, axis=1, keepdims=True)

    mono = sb.Map(sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 1.0, 1.0, 0.0, 0.0))
    motion = np.asarray(SE3.exp(np.array([0.3, -0.2, 0.5, 1.0, 2.0, -3.0])).storage)
    before, velocity = rays(), world.keyframes["velocity"].copy()
    star = world.add_landmarks([1.0, 2.0, 3.0])
    world.landmarks["position"][world.landmarks.rows(star)] = [np.inf, 0.0, np.nan]
    world.transform(motion)
    np.testing.assert_array_equal(world.landmarks["position"][-1], [np.inf, 0.0, np.nan])
    np.testing.assert_allclose(rays(), before, atol=1e-12)
    np.testing.assert_allclose(world.keyframes["velocity"], SE3(motion).rotation.act(velocity), atol=1e-12)
    k = mono.add_keyframes([0, 1], [[0, 0, 0, 0, 0, 0, 1.0], [1.0, 0, 0, 0, 0, 0, 1.0]], np.ones((2, 3)))
    mono.transform(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.5]))
    np.testing.assert_allclose(mono.keyframes["world_T_body"][k, 0], [0.0, 2.5])
    np.testing.assert_allclose(mono.keyframes["velocity"][k], 2.5)


def test_misuse_is_named():
    """What does not fit is refused with row, value and what was expected; nothing is added."""
    world = simulated()
    frame, point = int(world.keyframes.ids[0]), int(world.landmarks.ids[0])
    count = len(world.observations)
    pixel = np.array([[1.0, 2.0]])
    with pytest.raises(sb.MapError, match="no keyframe 99"):
        world.add_observations(99, point, pixel)
    with pytest.raises(sb.MapError, match="no landmark 999"):
        world.add_observations(frame, 999, pixel)
    with pytest.raises(sb.MapError, match="rig has 0 to 0"):
        world.add_observations(frame, point, pixel, camera=1)
    with pytest.raises(sb.MapError, match=r"sigma is 0\.0"):
        world.add_observations(frame, point, pixel, sigma=0.0)
    with pytest.raises(sb.MapError, match="depth_sigma nan"):
        world.add_observations(frame, point, pixel, depth=2.0)
    with pytest.raises(sb.MapError, match=r"row 0 is .*not finite"):
        world.add_observations(frame, point, np.array([[np.nan, 2.0]]))
    with pytest.raises(sb.MapError, match="not finite"):
        world.add_landmarks([[0.0, np.inf, 1.0]])
    with pytest.raises(sb.MapError, match="nanoseconds"):
        world.add_keyframe(0.5, world.keyframes["world_T_body"][0])
    with pytest.raises(sb.MapError, match="length 0"):
        world.add_keyframe(5, np.zeros(7))
    with pytest.raises(sb.MapError, match="no cameras"):
        bare = sb.Map()
        bare.add_keyframe(0, [0, 0, 0, 0, 0, 0, 1.0])
        bare.add_observations([], [], np.zeros((0, 2)))
    with pytest.raises(sb.MapError, match="not all zero"):
        sb.Map(gravity=np.zeros(3))
    assert len(world.observations) == count


def test_indexed_columns_find_what_a_scan_finds():
    """Through adding (a few rows, very many), removing, replacing, copies; they cannot be written past it."""
    rng = np.random.default_rng(5)
    layout = {"keyframe": ((), np.int64), "weight": ((), float)}
    table = Table("observation", layout, indexed=("keyframe",))

    def check(table):
        for values in ([3], [], [7, 2, 2, 40], np.arange(60), [-5, 10**9]):
            expected = np.flatnonzero(np.isin(table["keyframe"], values))
            np.testing.assert_array_equal(table.rows_where("keyframe", values), expected)

    check(table)
    for size in (5, 300, 3, 9000, 20, 1, 2500):
        first = rng.integers(0, 50) if size % 2 else np.sort(rng.integers(0, 50, size))
        table.append(size, {"keyframe": first, "weight": 1.0})
        check(table)
        if size in (300, 9000, 20):
            table.keep(rng.random(len(table)) < 0.8)
            check(table)
    before = table.copy()
    for count in (0, 1, 700, len(table)):
        rows = rng.choice(len(table), count, replace=False)
        table.change("keyframe", rows, rng.integers(0, 50, count))
        check(table)
    table.remove(table.ids[:10])
    for table_ in (before, table):
        check(table_)
    table.fill(before.arrays())
    check(table)
    table["weight"][0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        table["keyframe"][0] = 3
