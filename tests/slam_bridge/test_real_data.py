"""EuRoC V1_02_medium and TUM-VI room4: readers, preintegration against ground truth, biases recovered.

Noise densities are those of the data sheet.
"""

import numpy as np
import pytest
from simulation import perturbed

import slam_bridge as sb
from graphopt.errors import FormatError
from graphopt.geometry import SE3, SO3
from graphopt.types.inertial import EdgeInertial

SHEET = sb.ImuNoise()


@pytest.fixture(scope="module")
def euroc(shared_data):
    """(samples, ground truth) of V1_02_medium."""
    folder = shared_data / "vio" / "euroc"
    return sb.read_imu(folder / "V102_imu.txt.xz"), sb.read_states(folder / "V1_02_medium_gt.csv.xz")


def factors(imu, truth, rows, noise):
    """Measurements between rows of the ground truth, integrated with zero biases."""
    return sb.preintegrate_intervals(imu, truth.stamps[rows], noise)


@pytest.mark.data
def test_readers_keep_every_digit(euroc, shared_data):
    """Stamps keep all 19 digits; tables have the sizes of the data's index; quaternions become x y z w."""
    imu, truth = euroc
    assert (len(imu), len(truth)) == (17100, 16702)
    assert imu.stamps[0] == 1403715523912143104
    np.testing.assert_array_equal(
        imu.gyro[0], [-0.00069813170079773186, 0.019547687622336492, 0.076794487087750496]
    )
    expected = [0.515356, 1.996773, 0.971104, 0.789985, -0.205376, 0.554528, 0.161996]
    np.testing.assert_allclose(truth.world_T_body[0], expected, rtol=1e-5)
    folder = shared_data / "vio" / "tumvi"
    poses, room = sb.read_states(folder / "room4_gt.csv.xz"), sb.read_imu(folder / "room4_imu.txt.xz")
    assert poses.velocity is None
    assert (len(poses), len(room)) == (13075, 22212)


def gtsam_error(first, second, part, noise, biases):
    """Residual of GTSAM's factor between two states, in our order: rotation, velocity, position."""
    gtsam = pytest.importorskip("gtsam")
    parameters = gtsam.PreintegrationParams.MakeSharedU(9.81)
    for name, density in (("Gyroscope", noise.gyro_density), ("Accelerometer", noise.acc_density)):
        getattr(parameters, f"set{name}Covariance")(np.eye(3) * density**2)
    parameters.setIntegrationCovariance(np.eye(3) * noise.integration_density**2)
    bias = gtsam.imuBias.ConstantBias(biases[1], biases[0])
    kind = getattr(gtsam, "PreintegratedImuMeasurementsManifold", gtsam.PreintegratedImuMeasurements)
    theirs = kind(parameters, bias)
    for k, dt in enumerate(part.steps):
        theirs.integrateMeasurement(part.acc[k], part.gyro[k], dt)
    states = [
        gtsam.NavState(gtsam.Pose3(SE3(pose).to_matrix()), velocity) for pose, velocity in (first, second)
    ]
    predicted = theirs.predict(states[0], bias)
    turn = SE3(first[0]).rotation.inverse()
    change = [
        turn.act(b - a) for a, b in ((predicted.velocity(), second[1]), (predicted.position(), second[0][:3]))
    ]
    rotation = SO3.from_matrix(predicted.attitude().matrix()).inverse() * SE3(second[0]).rotation
    return np.concatenate([rotation.log(), *change])


@pytest.mark.data
@pytest.mark.oracle
@pytest.mark.parametrize("span", [10, 40])
def test_errors_against_the_ground_truth_are_gtsams(euroc, span):
    """Between ground-truth states 0.05 s and 0.2 s apart, our residuals are those of GTSAM's prediction.

    They are larger than what the data sheet's noise says, for the sensor in flight and the ground truth are
    no better; that is a property of the data, and so none of this package's.
    """
    imu, truth = euroc
    errors = []
    for i in np.arange(0, len(truth) - span, 40 * span):
        j = i + span
        part = imu.between(truth.stamps[i], truth.stamps[j])
        biases = truth.gyro_bias[i], truth.acc_bias[i]
        interval = sb.preintegrate(part, SHEET, *biases, rule="constant")
        ends = [(truth.world_T_body[k], truth.velocity[k]) for k in (i, j)]
        ours = EdgeInertial.error((*ends[0], *biases, *ends[1]), (), interval.measurement())
        np.testing.assert_allclose(ours, gtsam_error(*ends, part, SHEET, biases), atol=1e-8)
        errors.append(
            EdgeInertial.error(
                (*ends[0], *biases, *ends[1]), (), sb.preintegrate(part, SHEET, *biases).measurement()
            )
        )
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    assert rms[:3].max() < 5e-4 and rms[3:6].max() < 9e-3 and rms[6:].max() < 9e-4  # rad, m/s, m


@pytest.mark.data
def test_biases_and_velocities_are_recovered(euroc):
    """60 s, from zero biases (the gyroscope's is 0.079 rad/s), with velocities 0.3 m/s and poses 5 cm wrong.

    Ground-truth poses are priors, noise is the data sheet's. Gyroscope biases come out to 3e-4 rad/s, those
    of the accelerometer to 0.05 m/s^2, velocities to 1 cm/s, root mean square against the ground truth.
    """
    imu, truth = euroc
    rows = 500 + 50 * np.arange(241)
    rng = np.random.default_rng(0)
    n = len(rows)
    world = sb.Map()
    start = perturbed(rng, truth.world_T_body[rows])
    frames = world.add_keyframes(
        truth.stamps[rows], start, truth.velocity[rows] + 0.3 * rng.normal(size=(n, 3))
    )
    world.add_pose_priors(frames, truth.world_T_body[rows], 1e-3, 1e-3)
    world.add_imu(frames[:-1], frames[1:], factors(imu, truth, rows, SHEET))
    result = sb.full_inertial_ba(world, options=sb.SolveOptions(iterations=50, rounds=5, kernel=None))
    assert result.is_usable and result.rounds > 1
    found = world.keyframes

    def rms(name):
        return np.sqrt(np.mean(np.square(found[name] - getattr(truth, name)[rows]), axis=0)).max()

    assert rms("gyro_bias") < 3e-4
    assert rms("acc_bias") < 0.05
    assert rms("velocity") < 1e-2
    np.testing.assert_allclose(found["gyro_bias"].mean(axis=0), truth.gyro_bias[rows].mean(axis=0), atol=1e-4)


@pytest.mark.data
@pytest.mark.parametrize("first", [1000, 4000, 8000])
def test_gravity_and_scale_of_a_turned_map(euroc, first):
    """10 s of a map turned and shrunk to a unit of 0.37 m: scale to 2 %, down to 0.5 deg."""
    imu, truth = euroc
    rows = first + 50 * np.arange(40)
    tilt, scale = SO3.exp(np.array([0.7, -1.1, 0.4])), 0.37
    poses = truth.world_T_body[rows]
    position = tilt.act(poses[:, :3] - poses[0, :3]) / scale
    turned = np.concatenate([position, (tilt * SE3(poses).rotation).storage], axis=1)
    start = sb.initialize(turned, factors(imu, truth, rows, SHEET))
    assert start.is_usable, start.refused
    assert start.scale == pytest.approx(scale, rel=0.02)
    up = (SO3(start.world_R_map) * tilt).act(np.array([0.0, 0.0, 1.0]))
    assert np.degrees(np.arccos(up[2])) < 0.5


@pytest.mark.data
@pytest.mark.parametrize(
    ("seconds", "gap"),
    [(4.0, 0.25), (10.0, 0.25), (20.0, 1.0), pytest.param(8.0, 0.1, marks=pytest.mark.slow)],
)
def test_the_scale_of_a_flight_is_as_good_as_claimed(euroc, shared_data, seconds, gap):
    """Log of the scale over its deviation, at starts all along two flights: its rms is about one.

    True poses and the data sheet's noise: errors of both are some five times what the sheet says, and last.
    The truth's 0.3 mm make least squares find scales up to 9 % too small where intervals last 0.1 s. The
    accelerometer of V1_02 reads about 1 % too little, which 20 s of motion would claim to know better.
    """
    folder = shared_data / "seq" / "euroc_MH01_5s-14s" / "mav0"
    hall = (
        sb.read_imu(folder / "imu0" / "data.csv"),
        sb.read_states(folder / "state_groundtruth_estimate0" / "data.csv"),
    )
    ratios = []
    for imu, truth in (euroc, hall):
        first = max(truth.stamps[0], imu.stamps[0]) * 1e-9 + 0.1
        last = min(truth.stamps[-1], imu.stamps[-1]) * 1e-9 - 0.1
        for begin in np.arange(first, last - seconds, 2.5 if gap > 0.1 else 5.0 if imu is euroc[0] else 0.25):
            stamps = np.rint(1e9 * (begin + np.arange(0.0, seconds + 1e-6, gap))).astype(np.int64)
            rows = np.searchsorted(truth.stamps, stamps)
            start = sb.initialize(truth.world_T_body[rows], factors(imu, truth, rows, SHEET))
            if start.is_usable:
                ratios.append(np.log(start.scale) / start.deviations["log_scale"])
    assert len(ratios) > 15
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.5
    assert np.mean(np.abs(ratios) < 2.58) > 0.9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#only a comment\n", "holds no samples"),
        ("1,2,3\n", "has 3 columns"),
        ("1,0,0,0,0,0,9.8\n2,0,0,x,0,0,9.8\n", "x"),
    ],
)
def test_broken_files_are_named(tmp_path, text, message):
    """Errors of reading name the file and what is wrong."""
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        sb.read_imu(path)
    assert str(path) in str(caught.value)


def test_nearest_states(tmp_path):
    """`nearest` finds rows by stamp and refuses what is too far."""
    path = tmp_path / "data.csv"
    path.write_text("".join(f"{k * 10_000_000},{k},0,0,1,0,0,0\n" for k in range(5)))
    table = sb.read_states(path)
    np.testing.assert_array_equal(table.nearest(np.array([0, 11_000_000, 39_000_000])), [0, 1, 4])
    with pytest.raises(sb.ImuDataError, match="no state within"):
        table.nearest(np.array([5_000_000]))
    path.write_text("0,0,0,0,1,1,0,0\n")
    with pytest.raises(FormatError, match="quaternion"):
        sb.read_states(path)
