"""Strong and weak scaling over ranks, and a model of communication that is fitted to what was measured.

    python benchmarks/scaling.py --ranks 1,2,4 --device vulkan --problem final-13682.bal
    python benchmarks/scaling.py --ranks 1,2 --cameras 200 --points 20000 --weak

Each number of ranks is one `mpirun` of this file. Levenberg-Marquardt with conjugate gradients on the
implicit Schur complement does a fixed number of iterations of each, so that all runs do the same work. The
model, of one product S p and what belongs to it, is

    T(n) = edge E / n + pose P + (n > 1) (2 (n - 1) latency + 2 (n - 1) / n 8 P / bandwidth)

E observations, P scalars of poses, n ranks. `edge` [s] comes from the runs (an iteration over its products,
so it holds the linearization's share), `pose` [s] from vector operations of one size, `latency` [s] of a
message and `bandwidth` [B/s] from sums of many sizes: a sum sends n - 1 pieces to others, twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.optimize

PRODUCTS, ITERATIONS = 20, 4  # conjugate gradients per step, steps
SIZES = (64, 1_000, 10_000, 100_000, 1_000_000)  # numbers of the sums that are timed
OBSERVATIONS = 1e9
PREDICTED = (8, 64, 512)


def problem(args: argparse.Namespace, num_ranks: int):
    """The graph of rank 0."""
    import graphopt

    if args.problem:
        return graphopt.read(args.problem)
    scale = num_ranks if args.weak else 1
    return graphopt.datasets.bundle_adjustment.ba(args.cameras * scale, args.points * scale, start="truth")


def work(args: argparse.Namespace) -> None:
    """One rank of a run."""
    from mpi4py import MPI

    import graphopt
    from graphopt.distributed.mpi import MpiCommunicator

    comm = MPI.COMM_WORLD
    graph = problem(args, comm.size) if comm.rank == 0 else None
    options = {"schur": "implicit", "pcg_iterations": PRODUCTS, "pcg_tolerance": 1e-30}
    graphopt.optimize(graph, "lm", 1, comm=comm, device=args.device, **options)  # compiles
    start = time.perf_counter()
    summary = graphopt.optimize(graph, "lm", ITERATIONS, comm=comm, device=args.device, **options)
    call = time.perf_counter() - start
    ranks = MpiCommunicator(comm)
    sums = {size: _seconds_of_sum(ranks, size) for size in SIZES}
    if comm.rank == 0:
        trials = sum(one.trials for one in summary.iterations)
        dim = 0 if graph is None else _pose_scalars(graph)
        found = {
            "ranks": comm.size,
            "edges": summary.edges,
            "pose_scalars": dim,
            "iteration_seconds": sum(one.seconds for one in summary.iterations) / trials,
            "call_seconds": call,
            "communication_share": summary.partition["communication_share"],
            "imbalance": summary.partition["imbalance"],
            "kept_copies": summary.partition["kept_copies"],
            "memory_bytes": [one["memory_bytes"] for one in summary.ranks],
            "devices": [one["device_name"] for one in summary.ranks],
            "sum_seconds": sums,
            "pose_seconds": _seconds_per_pose_scalar(),
        }
        Path(args.worker).write_text(json.dumps(found))


def _pose_scalars(graph) -> int:
    return sum(
        int((~one.fixed & ~one.marginalized).sum()) * one.type.tangent_dim for one in graph.vertex_sets
    )


def _seconds_of_sum(ranks, size: int) -> float:
    """Median of some sums."""
    values, seconds = np.ones(size), []
    for _ in range(7):
        ranks.share(None)
        start = time.perf_counter()
        ranks.sum(values)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def _seconds_per_pose_scalar(size: int = 90_000) -> float:
    """What every rank does with vectors of poses per iteration: block Jacobi, updates, scalar products."""
    blocks, vector = np.ones((size // 9, 9, 9)), np.ones(size)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        preconditioned = np.einsum("nij,nj->ni", blocks, vector.reshape(-1, 9)).ravel()
        for _ in range(3):
            vector = vector + 0.5 * preconditioned
        for _ in range(2):
            np.sum(vector * preconditioned)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)) / size


def measured(args: argparse.Namespace, num_ranks: int) -> dict:
    """What a run with so many ranks finds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        beside = Path(sys.executable).parent / "mpirun"
        mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
        command = [mpirun, "-n", str(num_ranks), "--bind-to", "none"]
        command += [*args.mpirun.split(), sys.executable, __file__, "--worker", str(path)]
        given = ["--device", args.device, "--cameras", str(args.cameras), "--points", str(args.points)]
        given += ["--weak"] * args.weak + (["--problem", args.problem] if args.problem else [])
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run([*command, *given], check=True, env={**os.environ, **allowed})
        return json.loads(path.read_text())


def fitted(runs: list[dict]) -> dict[str, float]:
    """Parameters of the model; those of communication only where there was some."""
    rows = [
        (2.0 * (one["ranks"] - 1), 2.0 * (one["ranks"] - 1) / one["ranks"] * 8.0 * int(size), seconds)
        for one in runs
        if one["ranks"] > 1
        for size, seconds in one["sum_seconds"].items()
    ]
    latency, inverse = 0.0, 0.0
    if rows:
        a, b, t = np.array(rows).T
        weight = 1.0 / t  # relative errors
        (latency, inverse), _ = scipy.optimize.nnls(np.stack([a, b], axis=1) * weight[:, None], t * weight)
    per_product = np.array([one["iteration_seconds"] / PRODUCTS for one in runs])
    pose = float(np.median([one["pose_seconds"] for one in runs]))
    other = [
        pose * one["pose_scalars"] + _communication(one["ranks"], one["pose_scalars"], latency, inverse)
        for one in runs
    ]
    share = np.array([one["edges"] / one["ranks"] for one in runs]) / per_product
    rest = np.maximum(per_product - np.array(other), 0.0) / per_product
    edge = float(share @ rest / (share @ share))  # least squares of relative errors
    return {"edge": edge, "pose": pose, "latency": latency, "seconds_per_byte": inverse}


def _communication(ranks: int, dim: float, latency: float, inverse: float) -> float:
    return 2.0 * (ranks - 1) * latency + 2.0 * (ranks - 1) / ranks * 8.0 * dim * inverse


def predicted(model: dict[str, float], edges: float, dim: float, ranks: int) -> tuple[float, float]:
    """Seconds of one product and of its communication."""
    talk = _communication(ranks, dim, model["latency"], model["seconds_per_byte"])
    return model["edge"] * edges / ranks + model["pose"] * dim + talk, talk


def report(runs: list[dict], args: argparse.Namespace) -> None:
    """Print measurements, the model, and what it says about more ranks."""
    model = fitted(runs)
    print("ranks       edges  pose scalars  s/iteration  model  speedup  communication  imbalance  MiB/rank")
    first = runs[0]
    for one in runs:
        modelled = predicted(model, one["edges"], one["pose_scalars"], one["ranks"])[0] * PRODUCTS
        speedup = first["iteration_seconds"] / one["iteration_seconds"]
        speedup *= one["edges"] / first["edges"]
        sizes = f"{one['ranks']:5d} {one['edges']:11d} {one['pose_scalars']:13d}"
        times = f"{one['iteration_seconds']:12.4f} {modelled:6.4g} {speedup:8.2f}"
        balance = f"{one['communication_share']:13.1%} {one['imbalance']:10.2f}"
        print(sizes, times, balance, f"{max(one['memory_bytes']) / 2**20:9.1f}")
    print(
        f"model: edge {model['edge']:.3g} s, pose {model['pose']:.3g} s, latency {model['latency']:.3g} s, "
        f"bandwidth {1e-9 / model['seconds_per_byte'] if model['seconds_per_byte'] else np.inf:.3g} GB/s"
    )
    dim = first["pose_scalars"] / first["edges"] * OBSERVATIONS
    print(f"{OBSERVATIONS:.0g} observations, {dim:.3g} scalars of poses, as the first problem has per edge:")
    for ranks in PREDICTED:
        seconds, talk = predicted(model, OBSERVATIONS, dim, ranks)
        print(
            f"{ranks:5d} ranks: {PRODUCTS * seconds:.3g} s per iteration, {talk / seconds:.1%} communication"
        )
    if args.json:
        Path(args.json).write_text(json.dumps({"runs": runs, "model": model}, indent=2))


def main() -> None:
    """Start the runs, or be a rank of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--problem", help="graph file; without one, synthetic")
    parser.add_argument("--cameras", type=int, default=120)
    parser.add_argument("--points", type=int, default=12_000)
    parser.add_argument("--weak", action="store_true", help="synthetic problems that grow with the ranks")
    parser.add_argument("--mpirun", default="", help="more options of mpirun")
    parser.add_argument("--json", help="write runs and model to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
    else:
        report([measured(args, int(one)) for one in args.ranks.split(",")], args)


if __name__ == "__main__":
    main()
