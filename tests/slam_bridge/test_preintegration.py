"""Preintegration against the exact motion, finite differences, Monte Carlo and GTSAM."""

import itertools

import numpy as np
import pytest
from simulation import poses_and_velocities, residual, samples, with_noise

import slam_bridge as sb
from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SO3

NOISE = sb.ImuNoise()
BIASES = np.array([0.01, -0.02, 0.03]), np.array([0.1, 0.2, -0.1])


def difference(first, second):
    """(9,) rotation, velocity, position of second relative to first."""
    turn = SO3(first.delta_rotation).inverse() * SO3(second.delta_rotation)
    return np.concatenate(
        [
            turn.log(),
            second.delta_velocity - first.delta_velocity,
            second.delta_position - first.delta_position,
        ]
    )


def states(*times):
    """(pose, velocity) per time."""
    poses, velocities = poses_and_velocities(np.array(times))
    return list(zip(poses, velocities, strict=True))


def test_exact_motion_is_reproduced_to_second_order():
    """Noise-free samples give the true motion; halving the step quarters the error."""
    first, second = states(0.0, 1.0)
    errors = [
        residual(sb.preintegrate(samples(1.0, rate), NOISE), first, second) for rate in (100.0, 200.0, 400.0)
    ]
    assert np.abs(errors[2]).max() < 5e-6
    for coarse, fine in itertools.pairwise(errors):
        assert np.linalg.norm(coarse) / np.linalg.norm(fine) == pytest.approx(4.0, rel=0.02)


def test_biases_are_taken_off():
    """Samples with biases, integrated with them, give what samples without biases give."""
    clean = sb.preintegrate(samples(0.5), NOISE)
    biased = sb.preintegrate(samples(0.5, gyro_bias=BIASES[0], acc_bias=BIASES[1]), NOISE, *BIASES)
    np.testing.assert_allclose(difference(clean, biased), 0.0, atol=1e-13)


def test_bias_jacobians_are_the_derivatives_of_the_integral():
    """Central differences of integrating anew: equal to 1e-7."""
    interval = sb.preintegrate(samples(1.0), NOISE, *BIASES)
    step = 1e-5
    for column, direction in enumerate(np.eye(6)):
        plus, minus = (
            interval.reintegrated(
                BIASES[0] + sign * step * direction[:3], BIASES[1] + sign * step * direction[3:]
            )
            for sign in (1.0, -1.0)
        )
        numeric = (difference(interval, plus) - difference(interval, minus)) / (2.0 * step)
        np.testing.assert_allclose(interval.delta_D_bias[:, column], numeric, atol=1e-7)


def test_first_order_correction_leaves_a_second_order_error():
    """`corrected` agrees with integrating anew; ten times less bias, a hundred times less error."""
    interval = sb.preintegrate(samples(0.5), NOISE)
    errors = []
    for size in (1e-2, 1e-3):
        biases = size * np.array([0.5, -1.0, 0.7]), size * np.array([1.0, 2.0, -1.0])
        turn, velocity, position = interval.corrected(*biases)
        again = interval.reintegrated(*biases)
        errors.append(
            np.linalg.norm(
                [
                    *(SO3(turn).inverse() * SO3(again.delta_rotation)).log(),
                    *(velocity - again.delta_velocity),
                    *(position - again.delta_position),
                ]
            )
        )
    assert errors[0] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(100.0, rel=0.1)
    assert interval.is_far(np.array([0.02, 0.0, 0.0]), np.zeros(3))
    assert not interval.is_far(np.array([0.002, 0.0, 0.0]), np.zeros(3))


def test_covariance_is_that_of_many_noisy_integrations():
    """600 runs with white noise: e' inv(covariance) e has the mean 9 of chi-square, each variance its own."""
    rng = np.random.default_rng(3)
    clean = samples(0.5)
    exact = sb.preintegrate(clean, NOISE)
    errors = np.array(
        [difference(exact, sb.preintegrate(with_noise(clean, NOISE, rng), NOISE)) for _ in range(600)]
    )
    # neighbouring steps share a sample: their noise is that of the samples, which the sum sees as white
    normalized = np.einsum("ni,ij,nj->n", errors, exact.information, errors)
    assert normalized.mean() == pytest.approx(9.0, rel=0.08)
    np.testing.assert_allclose(errors.var(axis=0) / np.diag(exact.covariance), 1.0, atol=0.2)


def test_covariance_of_one_step_is_regular():
    """Even two samples give an information matrix that is positive definite."""
    interval = sb.preintegrate(samples(0.005), NOISE)
    assert np.linalg.eigvalsh(interval.information).min() > 0.0
    np.testing.assert_allclose(interval.information @ interval.covariance, np.eye(9), atol=1e-6)


def test_prediction_has_no_residual():
    """EdgeInertial is zero between a state and its prediction, whatever the gravity."""
    gravity = np.array([1.0, -2.0, -9.0])
    interval = sb.preintegrate(samples(1.0), NOISE, *BIASES)
    ((pose, velocity),) = states(0.3)
    second = interval.predict(pose, velocity, gravity)
    np.testing.assert_allclose(
        residual(interval, (pose, velocity), second, *BIASES, gravity=gravity), 0.0, atol=1e-13
    )


def test_interpolated_ends_join_up():
    """Cutting an interval between two samples: the halves chained predict what the whole predicts."""
    all_samples = samples(1.0)
    ((pose, velocity),) = states(0.0)
    whole = sb.preintegrate(all_samples, NOISE).predict(pose, velocity)
    half = sb.preintegrate(all_samples.between(0, 502_300_000), NOISE).predict(pose, velocity)
    rest = sb.preintegrate(all_samples.between(502_300_000, 1_000_000_000), NOISE).predict(*half)
    np.testing.assert_allclose(np.concatenate(rest), np.concatenate(whole), atol=1e-6)


def random_part(seed, count=60):
    """Samples of a violent motion at uneven times."""
    rng = np.random.default_rng(seed)
    stamps = np.cumsum(rng.integers(2_000_000, 8_000_000, count))
    return sb.ImuSamples(stamps, rng.normal(size=(count, 3)), 5.0 * rng.normal(size=(count, 3)))


NUMBERS = (
    "delta_rotation", "delta_velocity", "delta_position", "delta_D_bias", "covariance", "combined_covariance",
)  # fmt: skip


@pytest.mark.parametrize("rule", ["midpoint", "constant"])
def test_one_by_one_and_all_at_once(rule):
    """Step by step as samples arrive, and many intervals in one pass, agree to rounding."""
    parts = [random_part(seed, 3 + 17 * seed) for seed in range(5)]
    together = sb.preintegrate_many(parts, NOISE, *BIASES, rule=rule)
    for part, many in zip(parts, together, strict=True):
        step = sb.Preintegrator(NOISE, *BIASES, rule=rule)
        for stamp, gyro, acc in zip(part.stamps, part.gyro, part.acc, strict=True):
            step.add(int(stamp), gyro, acc)
        for name in NUMBERS:
            expected = getattr(many, name)
            tolerance = 1e-12 * (1.0 + np.abs(expected).max())
            np.testing.assert_allclose(getattr(step.result(), name), expected, atol=tolerance, err_msg=name)
            alone = getattr(sb.preintegrate(part, NOISE, *BIASES, rule), name)
            np.testing.assert_allclose(alone, expected, atol=tolerance, err_msg=name)


def test_intervals_without_samples_are_none():
    """A gap, and an interval beyond the samples, give None; the others are those of `between`."""
    whole = samples(1.0)
    kept = (whole.stamps < 300_000_000) | (whole.stamps > 500_000_000)
    holes = sb.ImuSamples(whole.stamps[kept], whole.gyro[kept], whole.acc[kept])
    stamps = np.array([0, 250_000_000, 550_000_000, 800_000_000, 1_200_000_000])
    found = sb.preintegrate_intervals(holes, stamps, NOISE)
    assert [interval is None for interval in found] == [False, True, False, True]
    expected = sb.preintegrate(whole.between(550_000_000, 800_000_000), NOISE)
    np.testing.assert_allclose(found[2].delta_position, expected.delta_position, atol=1e-12)


def test_combined_covariance_is_that_of_walking_biases():
    """Over 4,000 simulated walks, the errors of (R, v, p) and the walks have the 15 x 15 covariance."""
    rng = np.random.default_rng(3)
    noise = sb.ImuNoise(1e-3, 1e-2, 5e-3, 5e-2)
    part = samples(0.5, 100.0)
    exact = sb.preintegrate(part, noise, rule="constant")
    dt = part.steps[0]
    moved, walks = [], []
    for _ in range(4000):
        step = np.repeat([noise.gyro_bias_density, noise.acc_bias_density], 3) * np.sqrt(dt)
        walk = np.concatenate(
            [np.zeros((1, 6)), np.cumsum(step * rng.normal(size=(len(part) - 1, 6)), axis=0)]
        )
        white = np.repeat([noise.gyro_density, noise.acc_density], 3) / np.sqrt(dt)
        error = walk + white * rng.normal(size=walk.shape)
        moved.append(sb.ImuSamples(part.stamps, part.gyro + error[:, :3], part.acc + error[:, 3:]))
        walks.append(walk[-1])
    errors = []
    for interval, walk in zip(sb.preintegrate_many(moved, noise, rule="constant"), walks, strict=True):
        turn = (SO3(interval.delta_rotation).inverse() * SO3(exact.delta_rotation)).log()
        delta = exact.delta_velocity - interval.delta_velocity, exact.delta_position - interval.delta_position
        errors.append(np.concatenate([turn, *delta, walk]))
    size = np.sqrt(np.diag(exact.combined_covariance))
    found = np.cov(np.array(errors).T) / np.outer(size, size)
    np.testing.assert_allclose(found, exact.combined_covariance / np.outer(size, size), atol=0.1)


def gtsam_of(part, noise, biases, combined):
    """GTSAM's manifold preintegration of the same samples; order and frames as ours."""
    gtsam = pytest.importorskip("gtsam")
    kind = gtsam.PreintegrationCombinedParams if combined else gtsam.PreintegrationParams
    parameters = kind.MakeSharedU(9.81)
    parameters.setGyroscopeCovariance(np.eye(3) * noise.gyro_density**2)
    parameters.setAccelerometerCovariance(np.eye(3) * noise.acc_density**2)
    parameters.setIntegrationCovariance(np.eye(3) * noise.integration_density**2)
    if combined:
        parameters.setBiasAccCovariance(np.eye(3) * noise.acc_bias_density**2)
        parameters.setBiasOmegaCovariance(np.eye(3) * noise.gyro_bias_density**2)
    bias = gtsam.imuBias.ConstantBias(np.asarray(biases[1], float), np.asarray(biases[0], float))
    name = "PreintegratedCombinedMeasurements" if combined else "PreintegratedImuMeasurements"
    theirs = getattr(gtsam, f"{name}Manifold", getattr(gtsam, name))(parameters, bias)
    for k, dt in enumerate(part.steps):
        theirs.integrateMeasurement(part.acc[k], part.gyro[k], dt)
    order = [0, 1, 2, 6, 7, 8, 3, 4, 5, *([12, 13, 14, 9, 10, 11] if combined else [])]
    turn = np.eye(len(order))  # velocity and position in the last frame; biases: first - second
    turn[3:6, 3:6] = turn[6:9, 6:9] = theirs.deltaRij().matrix()
    turn[9:, 9:] *= -1.0
    covariance = turn @ theirs.preintMeasCov()[np.ix_(order, order)] @ turn.T
    return theirs.deltaRij().matrix(), theirs.deltaVij(), theirs.deltaPij(), covariance


def real_parts(shared_data):
    """Cuts of EuRoC and TUM-VI recordings with the densities of their calibration files."""
    vio = shared_data / "vio"
    for recording, calibration in (
        (vio / "euroc" / "V102_imu.txt.xz", vio / "calib" / "euroc_mav_kalibr_imu_chain.yaml"),
        (vio / "tumvi" / "room4_imu.txt.xz", vio / "calib" / "tum_vi_kalibr_imu_chain.yaml"),
    ):
        imu, noise = sb.read_imu(recording), sb.read_calibration(calibration).noise
        for first in range(2000, len(imu) - 2000, 4000):
            for length in (10, 50, 400):
                start, end = int(imu.stamps[first]) + 1_234_567, int(imu.stamps[first + length]) - 2_345
                yield imu.between(start, end), noise


@pytest.mark.oracle
@pytest.mark.data
def test_equals_gtsam_on_real_recordings(shared_data):
    """By the rule of held samples: deltas, 9 x 9 and combined 15 x 15 covariance equal GTSAM's to 1e-6."""
    biases = np.array([0.03, -0.02, 0.04]), np.array([0.15, -0.1, 0.2])
    count = 0
    for part, noise in real_parts(shared_data):
        ours = sb.preintegrate(part, noise, *biases, rule="constant")
        for combined in (False, True):
            rotation, velocity, position, covariance = gtsam_of(part, noise, biases, combined)
            np.testing.assert_allclose(SO3(ours.delta_rotation).to_matrix(), rotation, atol=1e-9)
            np.testing.assert_allclose(ours.delta_velocity, velocity, atol=1e-9)
            np.testing.assert_allclose(ours.delta_position, position, atol=1e-9)
            expected = ours.combined_covariance if combined else ours.covariance
            size = np.sqrt(np.diag(expected))
            scale = np.outer(size, size)
            np.testing.assert_allclose(covariance / scale, expected / scale, atol=1e-6)
            count += 1
    assert count >= 30


@pytest.mark.oracle
def test_midpoint_rule_is_gtsams_limit():
    """GTSAM, fed each step's mean in 100 parts (it uses the rotation at the start), tends to our midpoint."""
    part = samples(0.25)
    ours = sb.preintegrate(part, NOISE, *BIASES)
    stamps = np.concatenate([a + (b - a) * np.arange(100) // 100 for a, b in itertools.pairwise(part.stamps)])
    means = [np.repeat(0.5 * (values[1:] + values[:-1]), 100, axis=0) for values in (part.gyro, part.acc)]
    ends = [np.concatenate([mean, mean[-1:]]) for mean in means]
    fine = sb.ImuSamples(np.append(stamps, part.stamps[-1]), *ends)
    rotation, velocity, position, covariance = gtsam_of(fine, NOISE, BIASES, False)
    np.testing.assert_allclose(SO3(ours.delta_rotation).to_matrix(), rotation, atol=1e-6)
    np.testing.assert_allclose(ours.delta_velocity, velocity, atol=1e-4)
    np.testing.assert_allclose(ours.delta_position, position, atol=1e-5)
    size = np.sqrt(np.diag(ours.covariance))
    scale = np.outer(size, size)
    np.testing.assert_allclose(covariance / scale, ours.covariance / scale, atol=0.01)


def test_tidy_sorts_and_drops():
    """Unsorted, repeated and non-finite samples are put right, and counted."""
    good = samples(0.1)
    order = np.array([0, 2, 1, 3, 3, *range(4, len(good))])
    gyro = good.gyro[order].copy()
    gyro[7] = np.nan
    tidy, report = sb.ImuSamples.tidy(good.stamps[order], gyro, good.acc[order])
    assert report == sb.ImuTidied(unsorted=1, duplicates=1, non_finite=1)
    np.testing.assert_array_equal(tidy.stamps, np.delete(good.stamps, order[7]))
    with pytest.raises(ShapeError, match="int64 nanoseconds"):
        sb.ImuSamples.tidy(good.stamps * 1e-9, gyro, good.acc)


def test_saturation_is_named():
    """Samples at the sensor's range are found, and refused with the first one's stamp."""
    good = samples(0.1)
    gyro = good.gyro.copy()
    gyro[5, 1] = -35.0
    clipped = sb.ImuSamples(good.stamps, gyro, good.acc)
    np.testing.assert_array_equal(np.flatnonzero(clipped.saturated(gyro_range=34.9)), [5])
    with pytest.raises(
        sb.ImuDataError, match=f"1 of 21 samples are saturated, the first at {good.stamps[5]} ns"
    ):
        clipped.refuse_saturated(gyro_range=34.9)
    assert clipped.refuse_saturated(gyro_range=40.0) is clipped


def test_scale_and_misalignment_are_undone():
    """Samples through Kalibr's model and back are the same; a matrix that is none is refused."""
    rng = np.random.default_rng(0)
    errors = [np.eye(3) + 0.02 * rng.normal(size=(3, 3)) for _ in range(2)]
    calibration = sb.ImuCalibration(*errors, 0.001 * rng.normal(size=(3, 3)))
    true = samples(0.1)
    raw_gyro = true.gyro @ errors[0].T + true.acc @ calibration.gyro_D_acc.T
    back = calibration.corrected(sb.ImuSamples(true.stamps, raw_gyro, true.acc @ errors[1].T))
    np.testing.assert_allclose(back.gyro, true.gyro, atol=1e-12)
    np.testing.assert_allclose(back.acc, true.acc, atol=1e-12)
    with pytest.raises(OptionError, match="determinant"):
        sb.ImuCalibration(np.zeros((3, 3)))
    with pytest.raises(OptionError, match="magnitude is 98"):
        sb.gravity_of(98.1)
    np.testing.assert_array_equal(sb.gravity_of(9.80766), [0.0, 0.0, -9.80766])


def test_misuse_is_named():
    """Wrong input is refused with what was got and what to do."""
    good = samples(0.1)
    with pytest.raises(sb.ImuDataError, match="do not ascend"):
        sb.ImuSamples(good.stamps[::-1], good.gyro, good.acc)
    with pytest.raises(ShapeError, match="from_seconds"):
        sb.ImuSamples(good.stamps * 1e-9, good.gyro, good.acc)
    with pytest.raises(ShapeError, match=r"expected \(21, 3\)"):
        sb.ImuSamples(good.stamps, good.gyro[:-1], good.acc)
    with pytest.raises(sb.ImuDataError, match="is not covered"):
        good.between(0, 200_000_000)
    with pytest.raises(sb.ImuDataError, match="is empty"):
        good.between(50, 50)
    with pytest.raises(sb.ImuDataError, match="without a sample"):
        good.between(0, 100_000_000, max_gap=0.001)
    with pytest.raises(ShapeError, match="gyro_bias has shape"):
        sb.preintegrate(good, NOISE, np.zeros(2))
    with pytest.raises(OptionError, match="acc_density"):
        sb.ImuNoise(acc_density=0.0)


def test_stamps_are_whole_numbers_that_ascend():
    """Seconds, nanoseconds in float64 and stamps out of order are refused; unsigned ones are stamps."""
    imu = samples(1.0)
    ends = imu.stamps[[3, 50, 90]]
    for wrong in (1e-9 * ends, ends.astype(float)):
        with pytest.raises(sb.ImuDataError, match=r"expected .* int64 nanoseconds"):
            sb.preintegrate_intervals(imu, wrong, NOISE)
    for wrong in (ends[::-1], ends[[0, 0, 1]]):
        with pytest.raises(sb.ImuDataError, match=r"stamps do not ascend"):
            sb.preintegrate_intervals(imu, wrong, NOISE)
    unsigned = sb.ImuSamples(imu.stamps.astype(np.uint64), imu.gyro, imu.acc)
    assert unsigned.stamps.dtype == np.int64
    found = sb.preintegrate_intervals(unsigned, ends.astype(np.uint64), NOISE)
    expected = sb.preintegrate_intervals(imu, ends, NOISE)
    np.testing.assert_array_equal(found[1].delta_position, expected[1].delta_position)
    again, counted = sb.ImuSamples.tidy(imu.stamps[::-1].astype(np.uint64), imu.gyro[::-1], imu.acc[::-1])
    assert counted.unsorted == len(imu) - 1
    np.testing.assert_array_equal(again.stamps, imu.stamps)


def test_a_map_takes_no_missing_measurement():
    """What `preintegrate_intervals` has where samples are missing is refused by the keyframes' ids."""
    world = sb.Map()
    frames = world.add_keyframes(np.array([0, 10**9, 9 * 10**9]), np.tile([0, 0, 0, 0, 0, 0, 1.0], (3, 1)))
    measured = sb.preintegrate_intervals(samples(2.0), world.keyframes["stamp"], NOISE)
    assert measured[1] is None
    with pytest.raises(sb.MapError, match="measurement 1, from keyframe 1 to 2, is None"):
        world.add_imu(frames[:-1], frames[1:], measured)
    assert not len(world.imu)
