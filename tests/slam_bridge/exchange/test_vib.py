"""Problems survive .vib files unchanged; damaged, foreign and incomplete files are refused by name."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest

import slam_bridge.exchange
from graphopt.cli.main import main
from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge import Map, SolveOptions
from slam_bridge.exchange import (
    VibProblem,
    read_vib,
    solve_problem,
    truth_errors,
    write_map_file,
    write_vib,
)
from slam_bridge.exchange.errors import aligning
from slam_bridge.generator.problem import generate_problem

SMALL = {"keyframes": 20, "landmarks": 300, "observations": 1900}
CPU = SolveOptions(device="cpu")


@pytest.fixture(scope="module")
def problem() -> VibProblem:
    made = generate_problem("room1", **SMALL)
    made.map.add_loops(1, 15, np.array([0.1, 0, 0, 0, 0, 0, 1.0]), np.eye(7))
    made.map.add_pose_priors(3, made.map.keyframes["world_T_body"][3], 0.1, 0.1)
    return made


@pytest.fixture
def path(problem, tmp_path):
    write_vib(problem, tmp_path / "small.vib")
    return tmp_path / "small.vib"


def test_everything_comes_back(problem, path):
    """All columns, ids, cameras, measurements with samples, raw IMU, noise, truth, provenance."""
    problem = replace(problem, map=problem.map.snapshot())
    problem.map.remove_landmarks(problem.map.landmarks.ids[5:9])  # ids with holes
    write_vib(problem, path)
    again = read_vib(path)
    for name, table in problem.map.tables.items():
        for column, values in table.arrays().items():
            np.testing.assert_array_equal(again.map.tables[name].arrays()[column], values, f"{name}/{column}")
    for mine, theirs in zip(problem.map.rig, again.map.rig, strict=True):
        assert (mine.model, mine.name, mine.resolution, mine.baseline) == (
            theirs.model, theirs.name, theirs.resolution, theirs.baseline,
        )  # fmt: skip
        np.testing.assert_array_equal(mine.intrinsics, theirs.intrinsics)
    for key, measured in problem.map.preintegrated.items():
        np.testing.assert_array_equal(again.map.preintegrated[key].samples.gyro, measured.samples.gyro)
        np.testing.assert_array_equal(
            again.map.preintegrated[key].combined_covariance, measured.combined_covariance
        )
        assert again.map.preintegrated[key].rule == measured.rule
    for name, values in vars(problem.truth).items():
        np.testing.assert_array_equal(getattr(again.truth, name), values)
    np.testing.assert_array_equal(again.imu.stamps, problem.imu.stamps)
    assert again.noise == problem.noise and again.provenance == problem.provenance
    assert again.provenance["like"] == "room1"


def test_an_empty_map_and_missing_parts_come_back(tmp_path):
    """A map without cameras, truth or IMU is a problem as well."""
    write_vib(VibProblem(Map(gravity=(0.0, 0.0, -9.8))), tmp_path / "x.vib")
    again = read_vib(tmp_path / "x.vib")
    assert (
        again.truth is None and again.imu is None and again.map.rig is None and len(again.map.keyframes) == 0
    )
    assert again.map.gravity[2] == -9.8


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.99])
def test_truncated_files_are_refused(path, kept):
    """The message has the file's name and what to do."""
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(FormatError, match=r"small.vib: .*damaged"):
        read_vib(path)


def test_changed_bytes_are_noticed(path):
    """A byte in the middle of the numbers fails the checksum of its data set, which the message names."""
    with h5py.File(path) as file:
        name = "edges/observations/pixel"
        place = file[name].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[place + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(FormatError, match=f"small.vib: the data set {name} is damaged"):
        read_vib(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.attrs.__setitem__("format", "other"), "'format' is 'other'"),
        (lambda f: f.attrs.__setitem__("version", 9), "version 9 of the format"),
        (lambda f: f.__delitem__("variables/landmarks/position"), "variables/landmarks/position is missing"),
        (lambda f: f.__delitem__("preintegrated/measured/dt"), "preintegrated/measured/dt is missing"),
        (lambda f: f.__delitem__("truth/velocity"), "truth/velocity is missing"),
    ],
)
def test_foreign_and_incomplete_files_are_refused(path, change, message):
    """Another format, a later version, a missing data set: each named."""
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(FormatError, match=message):
        read_vib(path)


@pytest.mark.parametrize(
    ("array", "place", "value", "message"),
    [
        ("variables/keyframes/world_T_body", (3, 1), np.nan, r"keyframes/world_T_body of row 3 .*nan"),
        ("variables/keyframes/world_T_body", (3, slice(3, 7)), 0.0, "row 3 .*unit quaternion"),
        ("variables/keyframes/acc_bias", (3, 1), np.inf, "keyframes/acc_bias of row 3 .*inf"),
        ("variables/landmarks/reference", 3, 10**6, "landmarks/reference of row 3 .*1000000"),
        ("edges/observations/pixel", (3, 1), np.nan, "observations/pixel of row 3 .*nan"),
        ("edges/observations/sigma", 3, 0.0, "observations/sigma of row 3 .*> 0 px"),
        ("edges/observations/keyframe", 3, 10**6, "observations/keyframe of row 3 .*no id of keyframes"),
        ("edges/observations/camera", 3, 7, "observations/camera of row 3 .*has 2 cameras"),
        ("edges/imu/measurement", (3, 1), np.nan, "imu/measurement of row 3 .*nan"),
        ("edges/imu/information", (3, 1, 1), np.nan, "imu/information of row 3 .*finite"),
        ("edges/imu/first", 3, 10**6, "imu/first of row 3 .*no id"),
        ("truth/world_T_body", (2, 0), np.nan, "truth/world_T_body of row 2 .*nan"),
        ("imu/acc", (2, 0), np.nan, "imu/acc of row 2 .*nan"),
    ],
)
def test_numbers_that_are_none_are_refused_by_row(path, array, place, value, message):
    """The error names the file, the array and the row."""
    with h5py.File(path, "r+") as file:
        values = file[array][...]
        values[place] = value
        file[array][...] = values
    with pytest.raises(FormatError, match=rf"small\.vib: .*{message}"):
        read_vib(path)


def test_a_landmark_at_infinity_comes_back(problem, path):
    """It is what a map may hold."""
    changed = replace(problem, map=problem.map.snapshot())
    changed.map.landmarks["position"][4] = np.inf
    write_vib(changed, path)
    assert np.isinf(read_vib(path).map.landmarks["position"][4]).all()


def test_files_that_are_no_hdf5_are_refused(tmp_path):
    """A text file is none."""
    (tmp_path / "x.vib").write_text("VERTEX_SE3:QUAT 0 0 0 0 0 0 0 1\n")
    with pytest.raises(FormatError, match=r"x.vib: no .vib file"):
        read_vib(tmp_path / "x.vib")


def test_errors_are_measured_after_the_gauge_is_taken_out(problem):
    """The truth moved by a turn about z and a shift has no error; a scale and a bias are seen."""
    truth = problem.truth
    motion = SE3.from_parts(np.array([3.0, -2.0, 1.0]), SO3.exp(np.array([0.0, 0.0, 0.7])).storage)
    world = problem.map.snapshot()
    world.keyframes["world_T_body"][:] = (motion * SE3(truth.world_T_body)).storage
    world.keyframes["velocity"][:] = motion.rotation.act(truth.velocity)
    world.keyframes["gyro_bias"][:], world.keyframes["acc_bias"][:] = (
        truth.gyro_bias,
        truth.acc_bias + np.array([0.3, 0, 0]),
    )
    errors = truth_errors(world, truth)
    assert errors["position_m"] < 1e-9 and errors["rotation_deg"] < 1e-6 and errors["velocity_mps"] < 1e-9
    assert errors["acc_bias_mps2"] == pytest.approx(0.3) and errors["scale"] == pytest.approx(1.0)
    world.keyframes["world_T_body"][:, :3] *= 1.1
    assert truth_errors(world, truth)["scale"] == pytest.approx(1.0 / 1.1)
    tilted = (
        SE3.from_parts(np.zeros(3), SO3.exp(np.array([0.1, 0.0, 0.0])).storage) * SE3(truth.world_T_body)
    ).storage
    assert np.abs(aligning(np.asarray(tilted), truth.world_T_body, False).rotation.log()[0] + 0.1) < 1e-6


@pytest.mark.parametrize("down", [(0.0, 9.78, 0.0), (1.0, 2.0, -9.0)])
def test_the_turn_about_any_gravity_is_taken_out(problem, down):
    """In a world whose gravity points elsewhere: turned about it the truth has no error, tilted it has."""
    truth, axis = problem.truth, np.array(down) / np.linalg.norm(down)
    for turn, expected in ((0.7 * axis, 0.0), (0.1 * np.cross(axis, [1.0, 0.0, 0.0]), None)):
        motion = SE3.from_parts(np.array([3.0, -2.0, 1.0]), SO3.exp(turn).storage)
        found = Map(problem.map.rig, gravity=down)
        found.add_keyframes(
            problem.map.keyframes["stamp"],
            (motion * SE3(truth.world_T_body)).storage,
            motion.rotation.act(truth.velocity),
        )
        errors = truth_errors(found, replace(truth, keyframes=found.keyframes.ids))
        if expected is None:
            assert errors["rotation_deg"] > 1.0
        else:
            assert errors["position_m"] < 1e-9 and errors["rotation_deg"] < 1e-6


def test_normalised_errors_with_a_fixed_keyframe():
    """One in the middle is held where it is true: errors are against it, not against the first free one."""
    made = generate_problem("V102", keyframes=20, landmarks=200, observations=1200, mismatches=0.0, seed=2)
    frames, truth = made.map.keyframes, made.truth
    for name in ("world_T_body", "velocity", "gyro_bias", "acc_bias"):
        frames[name][10] = getattr(truth, name)[10]
    frames["fixed"][10] = True
    found = solve_problem(made, "full-inertial", CPU).truth
    assert found["normalised_keyframes"] == 5 and 0.3 < found["normalised"] < 2.5


@pytest.mark.parametrize("kind", ["full-inertial", "local-inertial", "visual"])
def test_problems_are_solved_to_the_truth(kind):
    """From a drifted start the errors fall to what the noise leaves; mismatches are found."""
    start = "window" if kind == "local-inertial" else "odometry"
    made = generate_problem(
        "V102", keyframes=40, landmarks=900, observations=5200, start=start, mismatches=0.03
    )
    solved = solve_problem(made, kind, CPU)
    assert solved.truth["rotation_deg"] < 0.5 * solved.truth_before["rotation_deg"]
    assert solved.truth["position_m"] < 0.05 and abs(solved.truth["scale"] - 1.0) < 0.02
    assert solved.truth["mismatches_rejected"] > 0.9 and solved.truth["matches_rejected"] < 0.25
    if kind != "visual":
        assert solved.truth["velocity_mps"] < 0.5 * solved.truth_before["velocity_mps"]


def test_normalised_errors_are_near_one():
    """Errors of the states are as large as their covariances say."""
    made = generate_problem("V102", keyframes=20, landmarks=400, observations=2500, mismatches=0.0)
    assert 0.3 < solve_problem(made, options=CPU).truth["normalised"] < 2.5


def test_unsolvable_requests_are_refused(problem):
    """An unknown kind, and inertial without IMU."""
    with pytest.raises(OptionError, match="expected one of full-inertial"):
        solve_problem(problem, "fast")
    world = problem.map.snapshot()
    world.remove_imu(world.imu.ids)
    with pytest.raises(OptionError, match="Use visual"):
        solve_problem(VibProblem(world), "full-inertial")


def test_command_line(tmp_path, capsys):
    """generate vi, info, optimize --json, eval vib: from nothing to a report with the truth in it."""
    path, solved = tmp_path / "p.vib", tmp_path / "solved.vib"
    words = [f"--{name}={value}" for name, value in SMALL.items()]
    assert main(["generate", "vi", "--like", "room1", "-o", str(path), *words]) == 0
    assert "observations  1900" in capsys.readouterr().out
    assert main(["info", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["keyframes"] == 20 and found["truth"] and found["provenance"]["like"] == "room1"
    assert main(["info", str(path)]) == 0
    capsys.readouterr()
    arguments = ["optimize", str(path), "--problem", "full-inertial", "--device", "cpu", "-o", str(solved)]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["truth"]["rotation_deg"] < found["truth_before"]["rotation_deg"]
    assert found["problem"] == "full-inertial" and found["final_chi2"] > 0.0
    errors = truth_errors(read_vib(solved).map, read_vib(solved).truth)
    assert errors["position_m"] == pytest.approx(found["truth"]["position_m"])
    assert main([*arguments, "--iterations", "3"]) == 0
    assert "truth position_m" in capsys.readouterr().out
    shutil.copy(path, tmp_path / "q.vib")
    options = ["--configurations", "llt-cpu", "--runs", "1", "-o", str(tmp_path / "report"), "--json"]
    assert main(["eval", "vib", str(path), str(tmp_path / "q.vib"), *options]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert {entry["problem"] for entry in entries.values()} == {"p", "q"}
    assert all(entry["truth"]["position_m"] < 0.05 and entry["seconds"] > 0.0 for entry in entries.values())


@pytest.mark.parametrize(
    "words",
    [
        ["--robust-kernel", "Huber"],
        ["--fix", "none"],
        ["-o", "x.g2o"],
        ["--initialize", "odometry"],
    ],
)
def test_options_of_graphs_are_refused(path, capsys, words):
    """No option is ignored: each is named, with what a .vib file takes."""
    assert main(["optimize", str(path), *words]) == 2
    message = capsys.readouterr().err
    assert ".vib" in message and (words[0] in message or words[0] == "-o")


def test_the_schedule_is_taken(path, capsys, monkeypatch):
    """It reaches the options of the solver."""
    taken = []
    solve = slam_bridge.exchange.solve_problem

    def spy(problem, kind, options):
        taken.append(options.schedule)
        return solve(problem, kind, options)

    monkeypatch.setattr(slam_bridge.exchange, "solve_problem", spy)
    assert main(["optimize", str(path), "--schedule", "jacobians", "--device", "cpu", "-i", "1"]) == 2
    assert taken == ["jacobians"] and "schedule 'jacobians' is for GPUs" in capsys.readouterr().err


def test_truth_that_does_not_fit_is_refused(path):
    """A truth with fewer poses than keyframes is damaged."""
    with h5py.File(path, "r+") as file:
        values = file["truth/world_T_body"][:-1]
        del file["truth/world_T_body"]
        file["truth/world_T_body"] = values
    with pytest.raises(FormatError, match=r"Truth.world_T_body has shape \(19, 7\), expected \(20, 7\)"):
        read_vib(path)


def test_a_map_alone_is_a_problem(tmp_path):
    """Without truth and recording; what is neither is named."""
    world = Map(gravity=[0.0, 9.8, 0.0])
    world.add_keyframe(5, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    for write in (write_vib, write_map_file):
        write(world, tmp_path / "map.vib")
        found = read_vib(tmp_path / "map.vib")
        assert found.truth is None and found.map.keyframes["stamp"].tolist() == [5]
        with pytest.raises(OptionError, match="got dict, expected a Map"):
            write({}, tmp_path / "other.vib")
    assert not (tmp_path / "other.vib").exists()
