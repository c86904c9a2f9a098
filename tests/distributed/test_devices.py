"""Which device a rank takes, with and without a launcher that says so, and what is said where none fits."""

import numpy as np
import pytest
from processes import python
from rank_programs import adjustment, on_all

import graphopt
from graphopt.distributed import devices
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.distributed.devices import assign_device
from graphopt.distributed.part import SolverPart
from graphopt.errors import DeviceError


def assigned(size, device):
    """What each of some threads takes."""
    return [
        run_as_thread.device
        for run_as_thread in run_as_threads(size, lambda comm: assign_device(comm, device))
    ]


def test_gpus_in_the_order_of_local_ranks(monkeypatch):
    """Each its own, by SLURM_LOCALID where there is one; without, in the order of the ranks."""
    monkeypatch.setattr(devices, "_gpus", lambda: [2, 5, 7])
    assert assigned(3, "vulkan") == ["vulkan:2", "vulkan:5", "vulkan:7"]
    told = iter([2, 0, 1])
    monkeypatch.setattr(devices, "local_rank_of_launcher", lambda: next(told))
    found = assigned(3, "vulkan")
    assert sorted(found) == ["vulkan:2", "vulkan:5", "vulkan:7"]


def test_gpus_without_numbers_in_a_list(monkeypatch):
    """They are counted by themselves: the cores before one take no GPU from it."""
    monkeypatch.setattr(devices, "_gpus", lambda: [3, 5])
    assert assigned(3, "cpu,vulkan,vulkan") == ["cpu", "vulkan:3", "vulkan:5"]
    assert assigned(2, "cpu,vulkan") == ["cpu", "vulkan:3"]
    with pytest.raises(DeviceError, match=r"3 ranks run on .*, which has 2 Vulkan devices"):
        assigned(4, "vulkan,cpu,vulkan,vulkan")


@pytest.mark.parametrize("name", devices.LOCAL_RANKS)
def test_launchers_say_the_local_rank(monkeypatch, name):
    """Of a process of its own."""
    for local_rank in devices.LOCAL_RANKS:
        monkeypatch.delenv(local_rank, raising=False)
    assert devices.local_rank_of_launcher() is None
    monkeypatch.setenv(name, "3")
    assert devices.local_rank_of_launcher() == 3
    monkeypatch.setenv("SLURM_NODEID", "1")
    assert devices.node_of_launcher() == " (node 1)"


def test_two_ranks_on_one_device(monkeypatch):
    """Only where the device is named twice."""
    monkeypatch.setattr(devices, "_gpus", lambda: [0])
    with pytest.raises(DeviceError, match=r"Ranks 0 and 1 of .* would both take vulkan:0.*vulkan:0,vulkan:0"):
        assigned(2, "vulkan:0")
    with pytest.raises(DeviceError, match=r"2 ranks run on .*, which has 1 Vulkan device: start 1 rank per"):
        assigned(2, "vulkan")
    assert assigned(2, "vulkan:0,vulkan:0") == ["vulkan:0", "vulkan:0"]


def test_wrong_numbers_of_ranks():
    """A list must have one device for each rank of a host."""
    with pytest.raises(DeviceError, match=r"names 2 devices, but 3 ranks run on .*: name one for each"):
        assigned(3, "cpu,cpu")


@pytest.mark.parametrize("distributed", [True, False])
def test_ranks_that_do_not_find_each_other(tmp_path, distributed):
    """Started by srun, but MPI knows one only; and without --distributed each would do all the work."""
    if distributed:
        pytest.importorskip("mpi4py")
    path = tmp_path / "a.g2o"
    graphopt.write(graphopt.evaluate.datasets.pose_graphs.sphere(4, 3), path)
    words = ["-m", "graphopt", "optimize", str(path), *["--distributed"] * distributed]
    done = python(*words, environment={"SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "2"}, status=2)
    words = "the MPI library finds one only" if distributed else "Add --distributed"
    assert "4 ranks were started" in done.stderr and words in done.stderr


@pytest.mark.parametrize("error", [MemoryError(), DeviceError("vulkan:1 (Some GPU) was lost.")])
def test_a_thread_that_fails_in_the_middle(monkeypatch, error):
    """One message names the rank, nobody waits for ever, and the graph keeps its estimates."""
    plain, calls = SolverPart.linearize, []

    def failing(part):
        calls.append(part)
        if len(calls) == 5:
            raise error
        return plain(part)

    monkeypatch.setattr(SolverPart, "linearize", failing)
    graph = adjustment()
    before = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    with pytest.raises(RankError, match=r"Rank [01]: (out of memory|vulkan:1 \(Some GPU\) was lost)"):
        on_all(graph, None, "lm", 10, device="cpu,cpu", schur="implicit")
    for vertex_set, values in zip(graph.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(vertex_set.estimate, values)
