"""Marginalization: priors say what the removed states said, chains of them end where the batch does."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import disturb, rotation_errors, simulated_map

import slam_bridge as sb
from graphopt.errors import OptionError

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


@pytest.mark.parametrize("first_estimates", [False, True])
def test_a_sliding_window_ends_where_the_batch_does(first_estimates):
    """Five keyframes at a time, the oldest marginalized before the next comes: ends near the batch."""
    rng = np.random.default_rng(1)
    whole, _ = simulated_map(rng, times=0.25 * np.arange(13), count=80, pixels=0.05)
    whole.keyframes["fixed"][0] = True
    disturb(whole, rng, 0.003, 0.01, 0.02, 0.02, zero_biases=False, fixed=whole.keyframes.ids[:1])
    sliding = whole.snapshot()
    for _ in range(2):
        sb.full_inertial_ba(whole, options=CLOSE)
    ids = sliding.keyframes.ids.copy()
    for k in range(5, 13):
        window = ids[max(0, k - 5) : k]
        sb.local_inertial_ba(sliding, window, fixed=(), options=CLOSE)
        oldest = window[0]
        seen_later = np.isin(sliding.observations["keyframe"], ids[k:])
        keep = sliding.observations["landmark"][seen_later]
        own = np.setdiff1d(sliding.observed_landmarks([oldest]), keep)
        own = own[[_only(sliding, one, window) for one in own]] if len(own) else own
        sb.marginalize(sliding, [oldest], own, first_estimates=first_estimates)
    last = sb.local_inertial_ba(sliding, ids[8:], fixed=(), options=CLOSE)
    assert last.is_usable
    rows = whole.keyframes.rows(ids[8:])
    batch = whole.keyframes["world_T_body"][rows]
    covariance = sb.full_inertial_ba(whole, options=CLOSE).covariance(ids[-1:])
    sigma = np.sqrt(np.diag(covariance["keyframe", int(ids[-1])]))
    found = sliding.keyframes["world_T_body"]
    assert np.abs(found[-1, :3] - batch[-1, :3]).max() < sigma[:3].max()
    half = np.linalg.norm(sigma[3:6])  # of half the angle
    assert rotation_errors(found, batch).max() < 4.0 * half


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
