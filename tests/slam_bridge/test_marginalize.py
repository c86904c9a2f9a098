"""Marginalization: priors say what the removed states said, chains of them end where the batch does."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import disturb, rotation_errors, simulated_map

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SO3

CLOSE = sb.SolveOptions(
    iterations=60, rounds=1, kernel=None, confidence=1 - 1e-12, function_tolerance=1e-14, device="cpu"
)


def solved(seed, **rest):
    """A map at its optimum, the first keyframe fixed."""
    rng = np.random.default_rng(seed)
    world, _ = simulated_map(rng, times=0.25 * np.arange(7), count=60, pixels=0.5, **rest)
    world.keyframes["fixed"][0] = True
    disturb(world, rng, 0.005, 0.01, 0.02, 0.02, zero_biases=False, fixed=world.keyframes.ids[:1])
    for _ in range(2):
        sb.full_inertial_ba(world, options=CLOSE)
    return world


def test_the_rest_stays_at_the_optimum():
    """At the batch's optimum, removing two keyframes leaves the same optimum and covariance."""
    world = solved(0)
    batch = world.snapshot()
    gone = world.keyframes.ids[1:3]
    result = sb.marginalize(world, gone)
    prior = result.extra["prior"]
    assert prior is world.priors[0]
    assert len(world.keyframes) == 5 and not np.isin(gone, world.keyframes.ids).any()
    assert not np.isin(result.extra["landmarks"], world.landmarks.ids).any()
    before = world.snapshot()
    after = sb.full_inertial_ba(world, options=CLOSE)
    assert after.is_usable
    np.testing.assert_allclose(world.keyframes["world_T_body"], before.keyframes["world_T_body"], atol=2e-6)
    np.testing.assert_allclose(world.keyframes["velocity"], before.keyframes["velocity"], atol=2e-5)
    last = world.keyframes.ids[-1:]
    full = sb.full_inertial_ba(batch, options=CLOSE).covariance(last)
    part = after.covariance(last)
    key = ("keyframe", int(last[0]))
    scale = np.sqrt(np.outer(np.diag(full[key]), np.diag(full[key])))
    np.testing.assert_allclose(part[key] / scale, full[key] / scale, atol=2e-3)


@pytest.mark.parametrize(("seed", "first_estimates"), [(0, False), (1, True)])
def test_a_sliding_window_ends_where_the_batch_does(seed, first_estimates):
    """Five keyframes at a time, the oldest marginalized before the next comes: ends near the batch.

    Priors hold landmarks that the present window does not see and a later one does.
    """
    rng = np.random.default_rng(seed)
    whole, _ = simulated_map(rng, times=0.25 * np.arange(13), count=80, pixels=0.5)
    whole.keyframes["fixed"][0] = True
    disturb(whole, rng, 0.003, 0.01, 0.02, 0.02, zero_biases=False, fixed=whole.keyframes.ids[:1])
    sliding = whole.snapshot()
    for _ in range(2):
        sb.full_inertial_ba(whole, options=CLOSE)
    ids, unseen = sliding.keyframes.ids.copy(), 0
    for k in range(5, 13):
        window = ids[max(0, k - 5) : k]
        result = sb.local_inertial_ba(sliding, window, fixed=(), options=CLOSE)
        in_priors = [prior.landmarks for prior in sliding.priors]
        unseen += len(np.setdiff1d(np.concatenate([*in_priors, []]), result.landmarks))
        oldest = window[0]
        seen_later = np.isin(sliding.observations["keyframe"], ids[k:])
        keep = sliding.observations["landmark"][seen_later]
        own = np.setdiff1d(sliding.observed_landmarks([oldest]), keep)
        own = own[[_only(sliding, row, window) for row in own]] if len(own) else own
        sb.marginalize(sliding, [oldest], own, first_estimates=first_estimates)
    last = sb.local_inertial_ba(sliding, ids[8:], fixed=(), options=CLOSE)
    assert last.is_usable and unseen > 0
    key = ("keyframe", int(ids[-1]))
    expected = sb.full_inertial_ba(whole, options=CLOSE).covariance(ids[-1:])[key]
    sigma = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(np.sqrt(np.diag(last.covariance(ids[-1:])[key])), sigma, rtol=0.1)
    rows = whole.keyframes.rows(ids[8:])
    batch, found = whole.keyframes["world_T_body"][rows], sliding.keyframes["world_T_body"]
    assert np.abs(found[-1, :3] - batch[-1, :3]).max() < 0.5 * sigma[:3].max()
    half = np.linalg.norm(sigma[3:6])  # of half the angle
    assert rotation_errors(found, batch).max() < half


def _only(world, landmark, window):
    """Seen by keyframes of the window alone."""
    return np.isin(world.observations["keyframe"][world.observations["landmark"] == landmark], window).all()


def test_landmarks_alone_are_removed_too():
    """A landmark that goes ties its observers together; the optimum stays."""
    world = solved(2)
    gone = world.landmarks.ids[:5]
    result = sb.marginalize(world, landmarks=gone)
    prior = result.extra["prior"]
    assert set(prior.kind.tolist()) == {0} and len(prior.keyframes) >= 2
    before = world.keyframes["world_T_body"].copy()
    sb.full_inertial_ba(world, options=CLOSE)
    np.testing.assert_allclose(world.keyframes["world_T_body"], before, atol=2e-6)


def test_what_leaves_the_map_leaves_its_priors():
    """Landmarks and keyframes that go are summed out, merged ones renamed; all problems go on working."""
    rng = np.random.default_rng(5)
    world, _ = simulated_map(rng, times=0.25 * np.arange(7), count=60, pixels=0.5)
    oldest = world.keyframes.ids[0]
    sb.marginalize(world, [oldest], landmarks=[])
    full = world.priors[0]
    points = full.landmarks
    assert len(points) > 6
    world.merge_landmarks([points[3]], [points[1]])
    (prior,) = world.priors
    assert points[1] not in prior.landmarks and points[3] in prior.landmarks
    world.remove_landmarks(points[:1])
    world.remove_keyframes(world.keyframes.ids[2:3])
    (prior,) = world.priors
    assert set(prior.landmarks) == set(points[2:])
    kept = np.isin(full.kind * 10**6 + full.owner, prior.kind * 10**6 + prior.owner)
    rows = np.repeat(kept, full.dims)
    np.testing.assert_allclose(prior.offset, full.offset[rows])
    for _ in range(5):  # the smallest chi2 that the whole prior has with these states
        d = np.where(rows, rng.normal(size=len(rows)), 0.0)
        h = full.information
        d[~rows] = -np.linalg.lstsq(h[np.ix_(~rows, ~rows)], h[~rows] @ d, rcond=1e-13)[0]
        assert d[rows] @ prior.information @ d[rows] == pytest.approx(d @ h @ d, rel=1e-6)
    for call in (sb.local_ba, sb.local_inertial_ba):
        assert call(world, world.keyframes.ids[:2]).is_usable  # with states and without, in part
    assert sb.global_ba(world).is_usable and sb.full_inertial_ba(world).is_usable
    again = sb.marginalize(world, world.keyframes.ids[:1], landmarks=[])
    assert again.is_usable and len(world.priors) == 1


def test_priors_move_with_the_map():
    """A map that is turned, shifted and scaled has priors that say the same about it."""
    world = solved(6)
    world.add_pose_priors(world.keyframes.ids[2], world.keyframes["world_T_body"][2], 0.1, 0.02)
    sb.marginalize(world, world.keyframes.ids[1:2], landmarks=[])
    disturb(world, np.random.default_rng(0), 0.01, 0.02, 0.05, 0.05, zero_biases=False)

    def chi2():
        result = sb.global_ba(world.snapshot(), options=CLOSE.with_changes(iterations=0))
        return world.priors[0].chi2(_states_of(world.priors[0], world)), result.chi2["EDGE_SE3_PRIOR"]

    before, landmarks = chi2(), world.priors[0].landmarks
    assert len(landmarks) and min(before) > 0.1
    turn = SO3.exp(np.array([0.6, -1.2, 0.5]))
    world.transform(np.concatenate([[0.3, -0.2, 1.0], turn.quaternion, [2.5]]))
    np.testing.assert_allclose(chi2(), before, rtol=1e-6)


def test_the_gauge_stays_open():
    """A prior of a free problem has the four unobservable directions of the visual-inertial problem."""
    rng = np.random.default_rng(3)
    world, _ = simulated_map(rng, times=0.25 * np.arange(5), count=60, pixels=0.0)
    result = sb.marginalize(world, world.keyframes.ids[:1])
    prior = result.extra["prior"]
    h = prior.information
    shift = np.zeros(len(h))
    start = prior.starts
    from graphopt.geometry import SE3

    for k, (kind, pose) in enumerate(zip(prior.kind, prior.reference, strict=True)):
        if kind == 0:
            shift[start[k] : start[k] + 3] = SE3(pose).rotation.inverse().act(np.array([1.0, 0.0, 0.0]))
        elif kind == 4:
            shift[start[k] : start[k] + 3] = [1.0, 0.0, 0.0]
    assert np.abs(h @ shift).max() < 1e-6 * np.abs(h).max()
    values = np.linalg.eigvalsh(h)
    assert values[0] > -1e-9 * values[-1]


def test_dense_and_shared_out_priors_are_the_same():
    """A large prior becomes edges per state and pair, with the same chi2, gradient and curvature."""
    import slam_bridge.window as module
    from slam_bridge.dense import dense_system
    from slam_bridge.selection import select

    world = solved(4)
    sb.marginalize(world, world.keyframes.ids[1:2])
    disturb(world, np.random.default_rng(0), 0.01, 0.02, 0.05, 0.05, zero_biases=False)
    ids = world.keyframes.ids
    s = select(world, ids, inertial=ids).with_changes(pose_prior_keyframe=np.zeros(0, np.int64))
    prior = s.priors[0]
    chi2 = prior.chi2(_states_of(prior, world))
    results = []
    limit = module._DENSE_UP_TO
    try:
        for module._DENSE_UP_TO in (10_000, 10):
            graph = sb.Window(hold_gauge=False).load(s, CLOSE)
            h, b, _ = dense_system(graph)
            results.append((graph.chi2(), h, b))
            own = sum(
                float(np.einsum("ni,nij,nj->", _errors(graph, e), e.information, _errors(graph, e)))
                for e in graph.edge_sets
                if e.type.tag.startswith("EDGE_VI_PRIOR")
            )
            assert own == pytest.approx(chi2, rel=1e-9)
    finally:
        module._DENSE_UP_TO = limit
    (one, h_one, b_one), (two, h_two, b_two) = results
    assert one == pytest.approx(two, rel=1e-9)
    np.testing.assert_allclose(h_two, h_one, atol=1e-9 * np.abs(h_one).max())
    np.testing.assert_allclose(b_two, b_one, atol=1e-9 * np.abs(b_one).max())


def _errors(graph, edges):
    from graphopt.graph.residuals import errors

    return errors(graph, edges, np.arange(len(edges)))


def _states_of(prior, world):
    states = np.zeros((len(prior.kind), 7))
    for row, (kind, owner) in enumerate(zip(prior.kind, prior.owner, strict=True)):
        table, column = (world.landmarks, "position") if kind == 4 else (
            world.keyframes, ("world_T_body", "velocity", "gyro_bias", "acc_bias")[kind]
        )  # fmt: skip
        values = table[column][table.rows(owner)]
        states[row, : len(values)] = values
    return states


def test_misuse_is_named():
    """Nothing to remove, unknown ids; without update the map stays."""
    world = solved(5)
    with pytest.raises(OptionError, match="neither keyframes nor landmarks"):
        sb.marginalize(world)
    with pytest.raises(sb.MapError, match="no keyframe 99"):
        sb.marginalize(world, [99])
    count = len(world.landmarks)
    sb.marginalize(world, world.keyframes.ids[1:2], options=CLOSE.with_changes(update=False))
    assert len(world.landmarks) == count and not world.priors


@pytest.mark.parametrize("inertial", [True, False], ids=["with IMU", "images"])
@pytest.mark.parametrize("gravity", [(0.0, 0.0, -9.81), (0.0, 9.81, 0.0)])
def test_what_is_left_of_a_map_without_fixed_keyframe(inertial, gravity):
    """Its prior does not know where the whole is: the gauge is held, covariances are the batch's."""
    rng = np.random.default_rng(3)
    world, _ = simulated_map(rng, times=0.25 * np.arange(7), count=60, pixels=0.5)
    axis = np.array([1.0, 0.0, 0.0])
    turn = SO3.exp(axis * (np.pi / 2 if gravity[1] else 0.0))
    world.transform([0.5, -2.0, 1.0, *turn.quaternion])
    world.gravity = np.array(gravity)
    solve = sb.full_inertial_ba if inertial else sb.global_ba
    kept = world.keyframes.ids[3:]
    for _ in range(2):  # with IMU measurements integrated anew
        solve(world, options=CLOSE)
    batch = world.snapshot()
    sb.marginalize(world, world.keyframes.ids[:3], inertial=inertial)
    assert not world.priors[0].is_absolute(world.gravity if inertial else None)
    result = solve(world, options=CLOSE)
    last = int(kept[-1])
    part = result.covariance([last])["keyframe", last]
    whole = relative_covariance(batch, kept, solve, inertial)
    scale = np.sqrt(np.outer(np.diag(whole), np.diag(whole)))
    np.testing.assert_allclose(part / scale, whole / scale, atol=5e-3)


def relative_covariance(batch, kept, solve, inertial):
    """(n, n) of the last keyframe where the first of `kept` holds the gauge: it comes first in a copy."""
    again = sb.Map(batch.rig, batch.gravity)
    frames, order = batch.keyframes, np.argsort(~np.isin(batch.keyframes.ids, kept), kind="stable")
    columns = [frames[name][order] for name in ("stamp", "world_T_body", "velocity", "gyro_bias", "acc_bias")]
    name = dict(zip(frames.ids[order].tolist(), again.add_keyframes(*columns).tolist(), strict=True))
    points = again.add_landmarks(batch.landmarks["position"])
    seen = batch.observations
    rows = [name[id_] for id_ in seen["keyframe"].tolist()]
    landmark = points[batch.landmarks.rows(seen["landmark"])]
    again.add_observations(rows, landmark, seen["pixel"], right=seen["right"], sigma=seen["sigma"])
    if inertial:
        ends = ([name[id_] for id_ in batch.imu[end].tolist()] for end in ("first", "second"))
        again.add_imu(*ends, [batch.preintegrated[id_] for id_ in batch.imu.ids.tolist()])
    last = name[int(kept[-1])]
    return solve(again, options=CLOSE).covariance([last])["keyframe", last]


def test_priors_of_fixed_keyframes_are_absolute():
    """Where a keyframe was fixed, or its pose measured, what is left knows where the whole is."""
    world = solved(0)
    sb.marginalize(world, world.keyframes.ids[:2])
    assert world.priors[0].is_absolute(world.gravity)
