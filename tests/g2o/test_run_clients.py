"""`tools/run_clients.py` finds clients by their files, runs them with both modules, says what differs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def run_clients():
    """The tool as a module."""
    sys.path.insert(0, str(TOOLS))
    try:
        import run_clients

        yield run_clients
    finally:
        sys.path.remove(str(TOOLS))


TEST = """
import g2opy as g2o

def test_vertex():
    vertex = g2o.VertexSE2()
    vertex.set_id(3)
    assert vertex.id() == 3

def test_that_fails():
    assert g2o.VertexSE2().id() == 77
"""

SCRIPT = """
import g2o
import numpy as np

optimizer = g2o.SparseOptimizer()
solver = g2o.BlockSolverX(g2o.LinearSolverEigenX())
optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
for i in range(4):
    vertex = g2o.VertexSE2()
    vertex.set_id(i)
    vertex.set_fixed(i == 0)
    vertex.set_estimate(g2o.SE2(i + 0.1 * np.random.rand(), 0.2 * np.random.default_rng().normal(), 0.1 * i))
    optimizer.add_vertex(vertex)
for i, j in ((0, 1), (1, 2), (2, 3), (0, 3)):
    edge = g2o.EdgeSE2()
    edge.set_vertex(0, optimizer.vertex(i))
    edge.set_vertex(1, optimizer.vertex(j))
    edge.set_measurement(g2o.SE2(j - i, 0.1, 0.05))
    edge.set_information(np.eye(3))
    optimizer.add_edge(edge)
optimizer.initialize_optimization()
optimizer.optimize(5)
optimizer.optimize(5)
"""

TWITCH = """
import g2o
import numpy as np
import frames_of_the_program

def optimize(frames, points, local_window, fix_points, verbose=False, rounds=50):
    opt = g2o.SparseOptimizer()
    solver = g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3())
    opt.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    camera = g2o.CameraParameters(1.0, np.zeros(2), 0)
    camera.set_id(0)
    opt.add_parameter(camera)
    for f in frames:
        v = g2o.VertexSE3Expmap()
        v.set_estimate(g2o.SE3Quat(f.pose[:3, :3], f.pose[:3, 3]))
        v.set_id(2 * f.id)
        v.set_fixed(f.id <= 1)
        opt.add_vertex(v)
    for p in points:
        v = g2o.VertexPointXYZ()
        v.set_id(2 * p.id + 1)
        v.set_estimate(p.pt[:3])
        v.set_marginalized(True)
        v.set_fixed(fix_points)
        opt.add_vertex(v)
        for f, idx in zip(p.frames, p.idxs):
            edge = g2o.EdgeProjectXYZ2UV()
            edge.set_parameter_id(0, 0)
            edge.set_vertex(0, v)
            edge.set_vertex(1, opt.vertex(2 * f.id))
            edge.set_measurement(f.kps[idx])
            edge.set_information(np.eye(2))
            opt.add_edge(edge)
    opt.initialize_optimization()
    opt.optimize(rounds)
"""


def _written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def checkouts(tmp_path):
    """Stand-ins for g2o, twitchslam and a program of one's own, and a folder that has nothing of it."""
    _written(tmp_path / "g2o" / "python" / "tests" / "test_one.py", TEST)
    _written(tmp_path / "g2o" / "python" / "examples" / "example.py", SCRIPT)
    _written(tmp_path / "twitchslam" / "optimize_g2o.py", TWITCH)
    _written(tmp_path / "twitchslam" / "frames_of_the_program.py", "")
    _written(tmp_path / "mine" / "poses.py", "from g2opy import VertexSE3\nVertexSE3().set_id(1)\n")
    _written(tmp_path / "mine" / "helpers.py", "import numpy\n")
    _written(tmp_path / "music" / "songs.py", "import os\n")
    return tmp_path


def test_clients_are_found(run_clients, checkouts):
    """Each by its layout; files that import nothing of g2o are no clients."""
    found = [(client.name, client.layout) for client in run_clients.all_clients(checkouts)]
    assert found == [
        ("g2o: tests", "tests"),
        ("g2o: example.py", "script"),
        ("mine: poses.py", "script"),
        ("twitchslam", "twitchslam"),
    ]
    _written(checkouts / "pyslam" / "pyslam" / "slam" / "optimizer_g2o.py", "import g2o")
    for name in ("optimization.py", "loopclosing.py"):
        _written(checkouts / "stereo_ptam" / name, "import g2o")
    found = {client.name: client.layout for client in run_clients.all_clients(checkouts)}
    assert found["pyslam"] == "pyslam" and found["stereo_ptam"] == "ptam"
    assert run_clients.clients_of(checkouts / "twitchslam") == run_clients.all_clients(
        checkouts / "twitchslam"
    )


@pytest.mark.oracle
def test_table(run_clients, checkouts, capsys):
    """Both modules pass and fail the same tests and end at the same chi2; the status is 0."""
    pytest.importorskip("g2opy")
    status = run_clients.main([str(checkouts), "--logs", str(checkouts / "logs"), "--timeout", "120"])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0, lines
    assert lines[0] == "| client | g2opy | graphopt.g2o | optimizations | largest difference of chi2 |"
    assert lines[2] == "| g2o: tests | 1 passed, 1 failed | 1 passed, 1 failed |  |  |"
    cells = {line.split(" | ")[0][2:]: line.strip("| ").split(" | ") for line in lines[3:6]}
    for name, count in (("g2o: example.py", "2"), ("twitchslam", "2")):
        assert cells[name][1:4] == ["runs", "runs", count]
        assert float(cells[name][4]) <= 1e-9
    assert lines[-1] == "4 of 4 run with graphopt.g2o, 4 with g2opy."
    assert len(list((checkouts / "logs").iterdir())) == 8


def test_pyslam_and_ptam_layouts(run_clients, tmp_path):
    """Their scenes meet optimizers of the programs' form; other modules of the programs are stood in for."""
    _written(
        tmp_path / "pyslam" / "optimizer_g2o.py",
        "import g2o\nfrom utils_geom import poseRt\nfrom frame import FrameShared\n"
        "from map_point import MapPoint\n"
        "from a.b.c import Nothing\n"
        "def bundle_adjustment(keyframes, points, local_window, rounds, use_robust_kernel):\n"
        "    assert FrameShared.feature_manager.inv_level_sigmas2[keyframes[0].octaves[0]] == 1.0\n"
        "    seen = [kf.kpsu[idx] for kf, idx in points[3].observations()]\n"
        "    assert len(seen) == 8 and poseRt(keyframes[1].Rcw, keyframes[1].tcw).shape == (4, 4)\n"
        "    Nothing.print('as mocks do')\n"
        "def pose_optimization(frame):\n"
        "    with MapPoint.global_lock:\n"
        "        assert len(frame.points) == len(frame.outliers) == 60\n",
    )
    _written(
        tmp_path / "pyslam-4.0" / "pyslam" / "slam" / "optimizer_g2o.py",
        "import cv2\nimport g2o\nfrom pyslam.utilities.geometry import poseRt\n"
        "from pyslam.config_parameters import Parameters\n"
        "from .sim3_pose import Sim3Pose\nfrom ..io import reader\nfrom . import frame\n"
        "from .map_point import MapPoint\n"
        "def bundle_adjustment(keyframes, points, local_window_size, rounds, use_robust_kernel):\n"
        "    from .local_mapping import LocalMapping\n"
        "    LocalMapping.print('as mocks do')\n"
        "    assert not keyframes[0].is_bad() and keyframes[1].Tcw()[:3, 3].shape == (3,)\n"
        "    assert not points[0].is_bad() and points[3].pt()[0:3].copy().shape == (3,)\n"
        "    for kf, idx in points[3].observations():\n"
        "        assert not (Parameters.kUseSemanticsInOptimization and kf.kps_sem is not None)\n"
        "def pose_optimization(frame):\n"
        "    assert 0.0 < Parameters.kMaxOutliersRatioInPoseOptimization\n"
        "    assert poseRt(frame.Rcw().copy(), frame.tcw()).shape == (4, 4)\n",
    )
    clients = run_clients.all_clients(tmp_path)
    assert [client.layout for client in clients] == ["pyslam"] * 2
    for client in clients:
        assert run_clients.run_client(client, run_clients.OURS, 120.0, None)["detail"] == ""
    _written(
        tmp_path / "ptam" / "optimization.py",
        "import g2o\n"
        "class LocalBA:\n"
        "    def set_data(self, adjusted, fixed):\n"
        "        assert len(adjusted) == 6 and fixed[0] < fixed[1] and fixed[1] <= adjusted[0]\n"
        "        kinds = [(m.is_stereo(), m.is_left(), m.is_right()) for m in adjusted[0].measurements()]\n"
        "        assert all(sum(one) == 1 for one in kinds) and len(set(kinds)) == 3\n"
        "    optimize = get_bad_measurements = update_points = update_poses = lambda self, *a: None\n"
        "class PoseGraphOptimization(g2o.SparseOptimizer):\n"
        "    def set_data(self, keyframes, loops):\n"
        "        vertex = g2o.VertexSE3()\n"
        "        vertex.set_id(keyframes[0].id)\n"
        "        vertex.set_estimate(g2o.Isometry3d(keyframes[0].orientation, keyframes[0].position))\n"
        "        self.add_vertex(vertex)\n"
        "    def optimize(self, iterations):\n"
        "        pass\n"
        "    def update_poses_and_points(self, keyframes, correction=None, exclude=set()):\n"
        "        pass\n",
    )
    _written(
        tmp_path / "ptam" / "loopclosing.py",
        "import cv2\nfrom g2o.contrib import SmoothEstimatePropagator\nfrom components import Measurement\n",
    )
    (client,) = run_clients.clients_of(tmp_path / "ptam")
    assert run_clients.run_client(client, run_clients.OURS, 120.0, None)["detail"] == ""


def test_what_goes_wrong_is_said(run_clients, tmp_path):
    """Errors, arguments, missing packages, ends of the process, no end at all."""
    cases = {
        "raise ValueError('no map')": "ValueError: no map",
        "import argparse; argparse.ArgumentParser().parse_args(['x'])": "needs arguments",
        "import a_package_that_nobody_has": "needs the module a_package_that_nobody_has",
        "from os import _exit; _exit(3)": "process ended with status 3",
    }
    for code, expected in cases.items():
        path = _written(tmp_path / "case.py", f"import g2o\n{code}\n")
        (client,) = run_clients.scripts_of("case", tmp_path)
        assert client.path == path
        report = run_clients.run_client(client, run_clients.OURS, 120.0, None)
        assert run_clients.outcome(report) == expected
    _written(tmp_path / "case.py", "import g2o\nwhile True: pass\n")
    report = run_clients.run_client(client, run_clients.OURS, 0.3, None)
    assert run_clients.outcome(report) == "no end after 0.3 s"


def test_differences_are_named(run_clients, tmp_path):
    """Something that runs with the peer only, a test that passes there only, another chi2, another count."""
    client = run_clients.Client("one", "script", _written(tmp_path / "one.py", "import g2o"))

    def row(theirs, ours):
        empty = {"status": "ran", "detail": "", "chi2": [], "tests": {}}
        return run_clients.Row(client, {**empty, **theirs}, {**empty, **ours})

    near, far = {"chi2": [[9.0, 2.0]]}, {"chi2": [[9.0, 2.1]]}
    assert row(near, near).is_good and not row(near, far).is_good
    assert not row(near, {"chi2": [[9.0, 2.0], [2.0, 1.0]]}).is_good
    assert row({"chi2": [[9.0, 1e-20]]}, {"chi2": [[9.0, 3e-25]]}).is_good  # a perfect fit
    assert not row({}, {"status": "failed", "detail": "x"}).is_good
    assert row({"status": "failed", "detail": "x"}, {}).is_good
    assert not row({"tests": {"a": "passed"}}, {"tests": {"a": "failed"}}).is_good
    bad = row(near, far)
    assert run_clients.summary([bad], "g2opy").endswith("Different: one.")
    assert "| one | runs | runs | 1 | 5e-02 |" in run_clients.table([bad], "g2opy")
    client.path.write_text("import g2o\nworld = g2o.Simulator2D()\n")
    assert bad.is_good and "another random world" in run_clients.table([bad], "g2opy")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path / "nowhere", "nowhere is not a folder. Pass one that holds checkouts"),
        (lambda path: path, "has no client of g2o: neither python/tests"),
    ],
)
def test_folders_that_cannot_be_used(run_clients, tmp_path, make, expected, capsys):
    """The message says what is expected there; the status is 2."""
    with pytest.raises(SystemExit) as ended:
        run_clients.main([str(make(tmp_path))])
    assert ended.value.code == 2
    assert expected in " ".join(capsys.readouterr().err.split())
    _written(tmp_path / "some" / "one.py", "import g2o")
    for arguments, said in (
        (["--only", "another"], "no client of g2o with 'another' in its name"),
        (["--peer", "no_such_bindings"], "there is no module 'no_such_bindings' to compare with"),
    ):
        with pytest.raises(SystemExit):
            run_clients.main([str(tmp_path), *arguments])
        assert said in " ".join(capsys.readouterr().err.split())
