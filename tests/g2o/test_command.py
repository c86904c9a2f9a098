"""`graphopt g2o`: flags, messages, files, exit status."""

from __future__ import annotations

import numpy as np
import pytest
from both import ring

import graphopt.g2o as ours
from graphopt import io
from graphopt.cli.g2o import main
from graphopt.cli.g2o.solvers import solver_names


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
    assert stats.read_text().startswith("iteration= 0\t numVertices= 8\t numEdges= 8\t chi2= ")
    names, values = (line.split(",") for line in summary.read_text().splitlines())
    found = dict(zip(names, values, strict=True))
    assert names == sorted(names) and found["realIterations"] == "4" and found["n_poses"] == "8"
    assert float(found["final_chi"]) < float(found["load_chi"]) and found["edge_types"] == "EDGE_SE3:QUAT "


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
    """Covariances of each free vertex are printed; the fixed one is named."""
    assert main(["-guess", "-computeMarginals", "-gaugeId", "2", str(graph_file)]) == 0
    text = capsys.readouterr().err
    assert text.count("Vertex id:") == 8 and text.count("inv block :") == 13


@pytest.mark.parametrize("solver", ["lm_var", "gn_var"])
def test_incremental(solver, graph_file, tmp_path, capsys):
    """Edges by and by; each optimization is reported, and drawn by gnuplot commands with -guiout."""
    out = tmp_path / "out.g2o"
    words = [
        "-solver",
        solver,
        "-inc",
        "-update",
        "3",
        "-i",
        "5",
        "-gaugeId",
        "0",
        "-v",
        "-guiout",
        "-o",
        str(out),
    ]
    assert main([*words, str(graph_file)]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("nodes= ") == 3 and "#\t solve every 3" in printed.err
    blocks = printed.out.split("set terminal x11 noraise\n")[1:]
    assert len(blocks) == 3
    for block, edges in zip(blocks, (2, 5, 8), strict=True):
        lines = block.splitlines()
        assert lines[1] == 'plot "-" w l' and lines[-1] == "e"
        assert [len(line.split()) for line in lines[2:-1]] == [12] * edges
    batch = tmp_path / "batch.g2o"
    assert main(["-i", "20", "-gaugeId", "0", "-o", str(batch), str(graph_file)]) == 0
    for id in range(8):
        np.testing.assert_allclose(
            io.read(out).vertex(id).estimate, io.read(batch).vertex(id).estimate, atol=1e-3
        )


def test_gnuplot_files(graph_file, tmp_path, capsys):
    """Edges and vertices as numbers; no landmarks, so no file of landmark edges."""
    assert main(["-i", "1", "-gnudump", str(tmp_path / "plot.txt"), str(graph_file)]) == 0
    assert sorted(path.name for path in tmp_path.glob("plot*")) == [
        "plot_edges.txt",
        "plot_odom_edges.txt",
        "plot_vertices.txt",
    ]
    assert len(np.loadtxt(tmp_path / "plot_vertices.txt")) == 8


def test_renamed_types(graph_file, tmp_path, capsys):
    """Tags of a file are read as others, in text and in JSON; a tag that does not exist is refused."""
    text = graph_file.read_text().replace("VERTEX_SE3:QUAT", "MY_POSE").replace("EDGE_SE3:QUAT", "MY_EDGE")
    (tmp_path / "own.g2o").write_text(text)
    rename = "MY_POSE=VERTEX_SE3:QUAT,MY_EDGE=EDGE_SE3:QUAT"
    assert (
        main(["-i", "0", "-renameTypes", rename, "-o", str(tmp_path / "x.json"), str(tmp_path / "own.g2o")])
        == 0
    )
    assert "Loaded 8 vertices\nLoaded 8 edges" in capsys.readouterr().err
    tree = (tmp_path / "x.json").read_text().replace("VERTEX_SE3:QUAT", "MY_POSE")
    (tmp_path / "own.json").write_text(tree)
    assert main(["-i", "0", "--rename_types", rename, str(tmp_path / "own.json")]) == 0
    assert "as JSON\nLoaded 8 vertices\nLoaded 8 edges" in capsys.readouterr().err
    assert main(["-renameTypes", "A=NO_TYPE", str(graph_file)]) == 2
    assert "NO_TYPE" in capsys.readouterr().err


def test_types_library(graph_file, tmp_path, capsys):
    """A Python file is run before the graph is read; anything else is refused."""
    library = tmp_path / "library.py"
    library.write_text("print('library was run')\n")
    assert (
        main(["-typeslib", str(library), "-solverlib", "libg2o_solver_x.so", "-i", "0", str(graph_file)]) == 0
    )
    printed = capsys.readouterr()
    assert "library was run" in printed.out and "all solvers are there" in printed.err
    assert main(["-typeslib", "libtypes.so", str(graph_file)]) == 2
    assert "libtypes.so" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import numpy\n\nnumpy.no_such_name\n", ":3: AttributeError: "),
        ("x = (\n", ":1: SyntaxError: "),
        ("raise SystemExit(3)\n", ":1: SystemExit: 3"),
        (None, ": No such file"),
    ],
)
def test_an_error_in_a_types_library_is_the_files(text, expected, graph_file, tmp_path, capsys):
    """The message names the file and its line; the status is that of bad input."""
    library = tmp_path / "library.py"
    if text is not None:
        library.write_text(text)
    assert main(["-typeslib", str(library), str(graph_file)]) == 2
    assert f"-typeslib {library}{expected}" in capsys.readouterr().err


def test_unknown_lines_stay(graph_file, tmp_path, capsys):
    """Lines of unknown types are named, and written back at their place; JSON has no place for them."""
    lines = graph_file.read_text().splitlines()
    lines.insert(1, "ROBOTLASER1 1 2 3")
    graph_file.write_text("\n".join([*lines, "EDGE_FOO 0 1 2"]) + "\n")
    out = tmp_path / "out.g2o"
    assert main(["-i", "2", "-o", str(out), str(graph_file)]) == 0
    text = capsys.readouterr().err
    assert "unknown type EDGE_FOO: 1 lines" in text and "2 lines of unknown types are kept" in text
    written = out.read_text().splitlines()
    assert written[1] == "ROBOTLASER1 1 2 3" and "EDGE_FOO 0 1 2" in written
    assert written[2].split()[:2] == lines[2].split()[:2] and written[2] != lines[2]
    assert main(["-i", "1", "-o", str(tmp_path / "out.json"), str(graph_file)]) == 0
    assert "2 lines of unknown types have no place in JSON" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-h", "-help", "--help"])
def test_help_is_for_users(flag, capsys):
    """All three spellings show the flags; no word of how the command is built."""
    with pytest.raises(SystemExit) as ended:
        main([flag])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and "-guessOdometry" in text and "exit status" in text
    assert "add_parser" not in text and "main(words)" not in text


def test_verbose_shows_the_guess_and_the_trust_region(graph_file, capsys):
    """g2o's line of iteration -1 after a guess, and Delta, step and tries of the dogleg."""
    assert main(["-guess", "-v", "-solver", "dl_var", "-i", "3", str(graph_file)]) == 0
    lines = capsys.readouterr().err.splitlines()
    guess = next(line for line in lines if line.startswith("iteration= -1"))
    assert guess.endswith("(using initial guess from spanning tree)") and "chi2= " in guess
    first = next(line for line in lines if line.startswith("iteration= 0"))
    assert "\t Delta= " in first and "\t step= GN\t tries= 1" in first
    assert main(["-guessOdometry", "-v", "-i", "1", str(graph_file)]) == 0
    assert "(using initial guess from odometry)" in capsys.readouterr().err


def test_files_are_in_the_layout_of_the_cpp_program(tmp_path, capsys):
    """Poses of VERTEX_SE3:EXPMAP are inverses, unless another dialect is asked for or found."""
    from tests.io.test_dialects import cpp_text, pose_graph

    graph, path, out = pose_graph(), tmp_path / "cpp.g2o", tmp_path / "out.g2o"
    path.write_text(cpp_text(graph))
    for words, dialect in (([], "g2o"), (["-dialect", "auto"], "g2o")):
        assert main([*words, "-i", "0", "-o", str(out), str(path)]) == 0
        assert f"Initial chi2 = {graph.chi2():.6f}" in capsys.readouterr().err
        assert io.read_with_report(out)[1].dialect == dialect
    assert main(["--dialect", "g2opy", "-i", "0", str(path)]) == 0
    text = capsys.readouterr().err
    assert "looks like g2o" in text and f"Initial chi2 = {graph.chi2():.6f}" not in text


def test_properties_and_suitability(graph_file, capsys):
    """Properties are set and printed; a solver for planar poses does not take poses in space."""
    words = ["-solver", "lm_var", "-solverProperties", "initialLambda=1e-3,maxTrialsAfterFailure=2"]
    assert main([*words, "-i", "1", "-v", str(graph_file)]) == 0
    text = capsys.readouterr().err
    assert "initialLambda\t0.001\nmaxTrialsAfterFailure\t2\n" in text and "lambda= 0.000" in text
    assert main(["-solver", "lm_var", "-solverProperties", "speed=3", str(graph_file)]) == 0
    assert "has no property 'speed', it is ignored. Known: initialLambda" in capsys.readouterr().err
    assert main(["-solver", "gn_fix3_2", str(graph_file)]) == 3
    assert main(["-graphSummary", str(graph_file)]) == 0
    assert "connected_components: 1" in capsys.readouterr().out


def _plane(landmarks):
    """A noisy path on the plane with a loop closure, and perhaps landmarks."""
    optimizer = ours.SparseOptimizer()
    random = np.random.default_rng(5)
    truth = [ours.SE2(np.cos(i), np.sin(i), i + 0.5 * np.pi) for i in np.arange(6) * np.pi / 3.0]
    for i, pose in enumerate(truth):
        vertex = ours.VertexSE2()
        vertex.set_id(i)
        vertex.set_estimate(ours.SE2(*(pose.to_vector() + random.normal(0.0, 0.3, 3))) if i else pose)
        optimizer.add_vertex(vertex)
    for i in range(6):
        edge = ours.EdgeSE2()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex((i + 1) % 6))
        edge.set_measurement(truth[i].inverse() * truth[(i + 1) % 6])
        optimizer.add_edge(edge)
    for number in range(landmarks):
        point = ours.VertexPointXY()
        point.set_id(10 + number)
        optimizer.add_vertex(point)
        for i in range(6):
            edge = ours.EdgeSE2PointXY()
            edge.set_vertex(0, optimizer.vertex(i))
            edge.set_vertex(1, point)
            edge.set_measurement(optimizer.vertex(i).estimate().inverse() * np.array([number, 2.0]))
            optimizer.add_edge(edge)
    return optimizer


def test_special_solvers(tmp_path, capsys):
    """`2dlinear` starts at the measurements; `structure_only_2` moves the landmarks only."""
    path, out = str(tmp_path / "in.g2o"), str(tmp_path / "out.g2o")
    assert _plane(0).save(path)
    assert main(["-solver", "2dlinear", "-i", "0", "-o", out, path]) == 0
    optimizer = ours.SparseOptimizer()
    assert optimizer.load(out) and optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    assert optimizer.chi2() < 1e-12  # the measurements agree with each other
    before = _plane(3)
    assert before.save(path)
    assert main(["-solver", "structure_only_2", "-i", "10", "-o", out, path]) == 0
    assert optimizer.load(out)
    for i in range(6):
        np.testing.assert_array_equal(
            optimizer.vertex(i).get_estimate_data(), before.vertex(i).get_estimate_data()
        )
    for number in range(3):
        np.testing.assert_allclose(optimizer.vertex(10 + number).estimate(), [number, 2.0], atol=1e-6)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["-solver", "lm_foo", "x"], 2, "lm_var_cholmod"),
        (["/no/such/file"], 2, "Error loading"),
        ([], 2, "no graph file"),
        (["-robustKernel", "Hubris"], 0, "Unknown Robust Kernel: Hubris. Known: Cauchy"),
        (["-dialect", "g2opi"], 2, "Known dialects: g2o (C++ g2o), g2opy"),
        (["-o", "/no/such/folder/x.g2o"], 1, "Nothing was optimized"),
        (["-gaugeId", "77"], 2, "not found the vertex of id 77"),
        (["-listSolvers"], 0, "gn_fix6_3_csparse"),
        (["-listTypes"], 0, "EDGE_SE3:QUAT"),
        (["-listRobustKernels"], 0, "PseudoHuber"),
    ],
)
def test_messages(words, status, text, graph_file, capsys):
    """What goes wrong is said; lists are printed."""
    if words and words[0] in ("-robustKernel", "-gaugeId", "-dialect", "-o"):
        words = [*words, str(graph_file)]
    assert main(words) == status
    printed = capsys.readouterr()
    assert text in (printed.out if words and words[0].startswith("-list") else printed.err)


def test_solver_names():
    """g2o's registered names of the usual builds are known."""
    names = solver_names()
    for name in (
        "gn_var lm_var dl_var gn_var_eigen lm_var_cholmod lm_var_csparse gn_fix3_2 lm_fix6_3_eigen "
        "gn_fix7_3_csparse gn_dense lm_dense3_2 gn_dense6_3 lm_dense7_3 "
        "gn_pcg lm_pcg3_2 gn_pcg6_3 lm_pcg7_3 dl_var_cholmod structure_only_2 structure_only_3 2dlinear"
    ).split():
        assert name in names


def test_main_program(graph_file, tmp_path, capsys):
    """`graphopt g2o` reaches it; a mistyped flag is bad usage."""
    from graphopt.cli.main import main as program

    out = tmp_path / "out.g2o"
    assert program(["g2o", "-i", "2", "-solver", "lm_var", "-o", str(out), str(graph_file)]) == 0
    assert out.exists()
    assert program(["g2o", "-itterations", "2", str(graph_file)]) == 2
