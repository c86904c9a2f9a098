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
    one = sb.preintegrate(samples(1.0), NOISE, *BIASES)
    step = 1e-5
    for column, direction in enumerate(np.eye(6)):
        plus, minus = (
            one.reintegrated(BIASES[0] + sign * step * direction[:3], BIASES[1] + sign * step * direction[3:])
            for sign in (1.0, -1.0)
        )
        numeric = (difference(one, plus) - difference(one, minus)) / (2.0 * step)
        np.testing.assert_allclose(one.delta_D_bias[:, column], numeric, atol=1e-7)


def test_first_order_correction_leaves_a_second_order_error():
    """`corrected` agrees with integrating anew; ten times less bias, a hundred times less error."""
    one = sb.preintegrate(samples(0.5), NOISE)
    errors = []
    for size in (1e-2, 1e-3):
        biases = size * np.array([0.5, -1.0, 0.7]), size * np.array([1.0, 2.0, -1.0])
        turn, velocity, position = one.corrected(*biases)
        again = one.reintegrated(*biases)
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
    assert one.is_far(np.array([0.02, 0.0, 0.0]), np.zeros(3))
    assert not one.is_far(np.array([0.002, 0.0, 0.0]), np.zeros(3))


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
    one = sb.preintegrate(samples(0.005), NOISE)
    assert np.linalg.eigvalsh(one.information).min() > 0.0
    np.testing.assert_allclose(one.information @ one.covariance, np.eye(9), atol=1e-6)


def test_prediction_has_no_residual():
    """EdgeInertial is zero between a state and its prediction, whatever the gravity."""
    gravity = np.array([1.0, -2.0, -9.0])
    one = sb.preintegrate(samples(1.0), NOISE, *BIASES)
    ((pose, velocity),) = states(0.3)
    second = one.predict(pose, velocity, gravity)
    np.testing.assert_allclose(
        residual(one, (pose, velocity), second, *BIASES, gravity=gravity), 0.0, atol=1e-13
    )


def test_interpolated_ends_join_up():
    """Cutting an interval between two samples: the halves chained predict what the whole predicts."""
    all_samples = samples(1.0)
    ((pose, velocity),) = states(0.0)
    whole = sb.preintegrate(all_samples, NOISE).predict(pose, velocity)
    half = sb.preintegrate(all_samples.between(0, 502_300_000), NOISE).predict(pose, velocity)
    rest = sb.preintegrate(all_samples.between(502_300_000, 1_000_000_000), NOISE).predict(*half)
    np.testing.assert_allclose(np.concatenate(rest), np.concatenate(whole), atol=1e-6)


@pytest.mark.oracle
def test_agrees_with_gtsam():
    """GTSAM, fed each step's mean in 100 parts (it uses the rotation at the start), gives the same."""
    gtsam = pytest.importorskip("gtsam")
    part = samples(0.25)
    ours = sb.preintegrate(part, NOISE, *BIASES)
    parameters = gtsam.PreintegrationParams.MakeSharedU(9.81)
    parameters.setGyroscopeCovariance(np.eye(3) * NOISE.gyro_density**2)
    parameters.setAccelerometerCovariance(np.eye(3) * NOISE.acc_density**2)
    parameters.setIntegrationCovariance(np.eye(3) * NOISE.integration_density**2)
    bias = gtsam.imuBias.ConstantBias(BIASES[1], BIASES[0])
    theirs = gtsam.PreintegratedImuMeasurements(parameters, bias)
    for k, dt in enumerate(part.steps):
        acc, gyro = (0.5 * (values[k] + values[k + 1]) for values in (part.acc, part.gyro))
        for _ in range(100):
            theirs.integrateMeasurement(acc, gyro, dt / 100)
    rotation = SO3.from_matrix(theirs.deltaRij().matrix())
    np.testing.assert_allclose((SO3(ours.delta_rotation).inverse() * rotation).log(), 0.0, atol=1e-6)
    np.testing.assert_allclose(ours.delta_velocity, theirs.deltaVij(), atol=1e-4)
    np.testing.assert_allclose(ours.delta_position, theirs.deltaPij(), atol=1e-5)
    order = [0, 1, 2, 6, 7, 8, 3, 4, 5]  # GTSAM has position before velocity
    covariance = theirs.preintMeasCov()[np.ix_(order, order)]
    size = np.sqrt(np.diag(ours.covariance))
    np.testing.assert_allclose(
        covariance / np.outer(size, size), ours.covariance / np.outer(size, size), atol=0.01
    )


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
