"""`mpirun -n 2 graphopt optimize FILE --distributed`: one report, one file, the answer of one process."""

import json

import pytest
from rank_programs import adjustment, launch, why_not
from vulkan_devices import vulkan_runtime

import graphopt
from graphopt.cli.main import main
from graphopt.device.listing import list_devices

with_ranks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
COMMAND = ("-m", "graphopt.cli.main", "optimize")


@pytest.fixture
def file(tmp_path):
    """A graph file."""
    path = tmp_path / "a.g2o"
    graphopt.write(adjustment(), path)
    return path


@with_ranks
def test_distributed(file, tmp_path):
    """Options as without; the JSON names the ranks, and rank 0 writes."""
    out, stats = tmp_path / "b.g2o", tmp_path / "s.json"
    arguments = (str(file), "--distributed", "--method", "lm", "-o", str(out), "--stats", str(stats))
    checkpoint = ("--checkpoint", str(tmp_path / "c.npz"), "--checkpoint-every", "5")
    done = launch(2, *COMMAND, *arguments, *checkpoint, "--ranks", "all")
    assert done.returncode == 0, done.stderr
    document = json.loads(stats.read_text())
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    assert done.stdout.count("termination") == 1 and "rank 1 on" in done.stdout
    assert (tmp_path / "c.npz").exists()
    graph = graphopt.read(file)
    for vertex_set in graph.vertex_sets:
        if vertex_set.type.role == "point":
            vertex_set.marginalized = True
    assert document["final_chi2"] == pytest.approx(graphopt.optimize(graph, "lm").final_chi2, rel=1e-8)
    assert graphopt.read(out).chi2() == pytest.approx(document["final_chi2"], rel=1e-6)


@with_ranks
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["missing.g2o", "--distributed"], "missing.g2o"),
        (["{file}"], "2 ranks were started, and without --distributed each would do all the work"),
        (["{file}", "--distributed", "--resume", "{file}"], "no checkpoint of graphopt"),
        (["{file}", "--distributed", "--device", "cpu,cpu,cpu"], "names 3 devices, but 2 ranks run on"),
    ],
)
def test_what_cannot_be(file, arguments, words):
    """One sentence, and a status that is not 0."""
    done = launch(2, *COMMAND, *(argument.format(file=file) for argument in arguments))
    assert done.returncode != 0
    assert words in done.stderr and "Traceback" not in done.stderr


@with_ranks
def test_reading_in_parts(tmp_path):
    """An archive of which no rank has all; the result is an archive."""
    path, out = tmp_path / "a.npz", tmp_path / "b.npz"
    graphopt.write(graphopt.evaluate.datasets.bundle_adjustment.ba(8, 80, seed=1), path)
    options = ("--distributed", "--read-in-parts", "--ranks", "all", "--method", "lm")
    arguments = (str(path), *options, "-o", str(out), "--json")
    done = launch(2, *COMMAND, *arguments)
    assert done.returncode == 0, done.stderr
    expected = graphopt.optimize(graphopt.read(path), "lm").final_chi2
    assert json.loads(done.stdout)["final_chi2"] == pytest.approx(expected, rel=1e-8)
    assert graphopt.read(out).chi2() == pytest.approx(expected, rel=1e-6)
    nowhere = tmp_path / "nowhere"
    given = (str(path), "--distributed", "--read-in-parts", "-o", str(nowhere / "out.npz"))
    refused = launch(2, *COMMAND, *given)
    assert refused.returncode == 2
    assert "The folder to write into does not exist" in refused.stderr and str(nowhere) in refused.stderr
    text = tmp_path / "a.g2o"
    text.write_text("")
    refused = launch(2, *COMMAND, str(text), "--distributed", "--read-in-parts")
    assert refused.returncode == 2 and "Make one with `graphopt convert" in refused.stderr


def test_options_that_need_ranks(file, capsys):
    """Refused, not ignored."""
    assert main(["optimize", str(file), "--checkpoint", "c.npz"]) == 2
    assert "--checkpoint needs --distributed" in capsys.readouterr().err
    assert main(["optimize", str(file), "--device", "cpu,cpu", "--robust", "graduated"]) == 2
    assert "--robust graduated runs on one rank" in capsys.readouterr().err


def test_without_mpi4py(file, capsys, monkeypatch):
    """What to install."""
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    assert main(["optimize", str(file), "--distributed"]) == 2
    assert "pip install 'graphopt[mpi]'" in capsys.readouterr().err


def test_transport_of_threads(file, tmp_path, capsys):
    """Without mpirun; one device has nobody to talk to."""
    vulkan_runtime()
    if not list_devices()[0].features["host_alignment"]:
        pytest.skip("needs a driver with VK_EXT_external_memory_host")
    stats = tmp_path / "s.json"
    arguments = ["optimize", str(file), "--method", "lm", "--schur", "implicit", "--iterations", "2"]
    devices = ["--device", "vulkan:0,vulkan:0", "--transport", "pages", "--stats", str(stats)]
    assert main([*arguments, *devices, "--ranks", "all"]) == 0
    assert json.loads(stats.read_text())["partition"]["transport"] == "pages"
    assert "by pages" in capsys.readouterr().out
    assert main([*arguments, "--device", "cpu", "--transport", "pages"]) != 0
    assert "one device has nobody to talk to" in capsys.readouterr().err
