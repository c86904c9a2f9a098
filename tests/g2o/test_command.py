"""`graphopt g2o`: flags, messages, files, exit status."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt.g2o as ours
from graphopt import io
from graphopt.cli.g2o_command import main, solver_names
from tests.g2o.both import ring


@pytest.fixture
def graph_file(tmp_path):
    """A ring without fixed vertex."""
    optimizer = ring(ours)
    optimizer.vertex(0).set_fixed(False)
    path = tmp_path / "in.g2o"
    assert optimizer.save(str(path))
    return path


def test_optimizes_and_writes(graph_file, tmp_path, capsys):
    """The file has the estimates of the same run by the drop-in; stats and summary are written."""
    out, stats, summary = (tmp_path / name for name in ("out.g2o", "stats", "summary"))
    words = [
        "-i",
        "4",
        "-solver",
        "lm_var_cholmod",
        "-v",
        "-o",
        str(out),
        "-stats",
        str(stats),
        "-summary",
        str(summary),
    ]
    assert main([*words, str(graph_file)]) == 0
    text = capsys.readouterr().err
    for line in (
        "Read input from",
        "Loaded 8 vertices",
        "Loaded 8 edges",
        "# graph is fixed by node",
        "iteration= 3\t chi2=",
    ):
        assert line in text
    optimizer = ours.SparseOptimizer()
    assert optimizer.load(str(graph_file))
    optimizer.set_algorithm(ours.OptimizationAlgorithmLevenberg(ours.BlockSolverX(ours.LinearSolverEigenX())))
    optimizer.find_gauge().set_fixed(True)
    optimizer.initialize_optimization()
    optimizer.optimize(4)
    written = io.read(out)
    for id, vertex in optimizer.vertices().items():
        np.testing.assert_allclose(
            written.vertex(id).estimate[:3], vertex.estimate().translation(), atol=1e-12
        )
    assert len(stats.read_text().splitlines()) == 4
    assert 'iterations="4"' in summary.read_text() and "finalChi=" in summary.read_text()


def test_standard_output(graph_file, capfd):
    """`-o -` prints the graph and nothing else there."""
    assert main(["-i", "1", "-o", "-", str(graph_file)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", "FIX"}


def test_gain_and_kernels(graph_file, capsys):
    """A negative -i stops by the gain; a robust kernel on loop closures only."""
    words = [
        "-i",
        "-1",
        "-gain",
        "1e-3",
        "-v",
        "-robustKernel",
        "Huber",
        "-robustKernelWidth",
        "0.5",
        "-nonSequential",
    ]
    assert main([*words, "-gaugeList", "0,3", str(graph_file)]) == 0
    text = capsys.readouterr().err
    assert "Fixing gauges: 0 3" in text and "# setup termination criterion" in text
    assert 1 < text.count("iteration= ") < 30


def test_marginals_and_guess(graph_file, capsys):
    """Covariances of each free vertex are printed."""
    assert main(["-guess", "-computeMarginals", "-gaugeId", "2", str(graph_file)]) == 0
    text = capsys.readouterr().err
    assert text.count("Vertex id:") == 7 and text.count("inv block :") == 13


def test_incremental(graph_file, capsys):
    """Edges by and by, then all."""
    assert main(["-inc", "-update", "3", "-i", "2", str(graph_file)]) == 0
    assert "Initial chi2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["-solver", "lm_foo", "x"], 2, "lm_var_cholmod"),
        (["/no/such/file"], 2, "Error loading"),
        ([], 2, "no graph file"),
        (["-robustKernel", "Hubris"], 2, "Huber"),
        (["-gaugeId", "77"], 2, "not found the vertex of id 77"),
        (["-listSolvers"], 0, "gn_fix6_3_csparse"),
        (["-listTypes"], 0, "EDGE_SE3:QUAT"),
        (["-listRobustKernels"], 0, "PseudoHuber"),
    ],
)
def test_messages(words, status, text, graph_file, capsys):
    """What goes wrong is said; lists are printed."""
    if words and words[0] in ("-robustKernel", "-gaugeId"):
        words = [*words, str(graph_file)]
    assert main(words) == status
    assert text in capsys.readouterr().err


def test_solver_names():
    """g2o's registered names of the usual builds are known."""
    names = solver_names()
    for name in (
        "gn_var lm_var dl_var gn_var_eigen lm_var_cholmod lm_var_csparse gn_fix3_2 lm_fix6_3_eigen "
        "gn_fix7_3_csparse gn_dense lm_dense3_2 gn_dense6_3 lm_dense7_3 "
        "gn_pcg lm_pcg3_2 gn_pcg6_3 lm_pcg7_3 dl_var_cholmod"
    ).split():
        assert name in names


def test_main_program(graph_file, tmp_path, capsys):
    """`graphopt g2o` reaches it; a mistyped flag is bad usage."""
    from graphopt.cli.main import main as program

    out = tmp_path / "out.g2o"
    assert program(["g2o", "-i", "2", "-solver", "lm_var", "-o", str(out), str(graph_file)]) == 0
    assert out.exists()
    assert program(["g2o", "-itterations", "2", str(graph_file)]) == 2
