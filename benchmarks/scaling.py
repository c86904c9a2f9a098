"""Strong and weak scaling over ranks, and a model of communication that is fitted to what was measured.

    python benchmarks/scaling.py --ranks 1,2 --device vulkan --problem final-13682 --json measured.json
    python benchmarks/scaling.py --ranks 1,2 --device vulkan --problem final-13682 --weak --json measured.json
    python benchmarks/scaling.py --read measured.json

Ranks are threads of this process with a device each (`vulkan:0,vulkan:1`); with `--mpi` those of one mpirun.
One rank is the ordinary solver of one device. A problem is a file, or a street with the published numbers of
cameras, points and observations (`CAMERAS,POINTS,OBSERVATIONS` for others); `--weak` makes it as many times
as large as there are ranks. Levenberg-Marquardt with a fixed number of conjugate gradients on the implicit
Schur complement does a fixed number of steps, so that all runs do the same work; the seconds of a product are
the difference between two numbers of them. Runs are added to the JSON. The model of one product S p is

    T(n) = edge E / n + (n > 1) (trip + 2 (n - 1) latency + 2 (n - 1) / n 8 M / bandwidth)

E observations, n ranks, M numbers of a message (scalars of poses that several ranks have). `edge` and `trip`
[s] (submission, numbers to the host and back) come from the runs, `latency` [s] and `bandwidth` [B/s] from
sums of many sizes: a sum sends n - 1 pieces to others, twice.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # started as a file

from graphopt.evaluate.datasets import street
from graphopt.reproduce.ranks import FEW, MANY, devices_of
from graphopt.reproduce.ranks import run as measured_ranks

PUBLISHED = {
    "ladybug-49": (49, 7776, 31843),
    "venice-1778": (1778, 993923, 5001946),
    "final-4585": (4585, 1324582, 9125125),
    "final-13682": (13682, 4456117, 28987644),
}
SIZES = (64, 1_000, 10_000, 100_000, 1_000_000)  # numbers of the sums that are timed
OBSERVATIONS = 1e9
NETWORK = (3e-6, 40e9)
"""Latency [s] and bandwidth [B/s] of a cluster's network (400 Gbit/s InfiniBand), assumed."""


# ---------------------------------------------------------------- problems


@lru_cache(maxsize=1)
def problem(name: str, times: int):
    """A file, or a street as long as so many of the named size."""
    import graphopt

    if name in PUBLISHED or re.fullmatch(r"\d+,\d+,\d+", name):
        sizes = PUBLISHED.get(name) or tuple(map(int, name.split(",")))
        return street(*(times * size for size in sizes), seed=0)
    return graphopt.read(name)


# ---------------------------------------------------------------- runs


def run(args: argparse.Namespace, ranks: int, comm: Any) -> dict[str, Any]:
    """What `ranks` ranks do with the problem; over MPI what rank 0 finds."""
    leads = comm is None or comm.rank == 0
    start = time.perf_counter()
    graph = problem(args.problem, ranks if args.weak else 1) if leads else None
    made = time.perf_counter() - start
    device = args.device if comm is not None else devices_of(args.device, ranks)
    kept = sum(
        int((~vertex_set.fixed & ~vertex_set.marginalized).sum()) * vertex_set.type.tangent_dim
        for vertex_set in (graph.vertex_sets if graph is not None else ())
    )
    return {
        "problem": args.problem,
        "weak": args.weak,
        "ranks": ranks,
        "over": "MPI" if comm is not None else "threads",
        "pose_scalars": kept,
        "made_seconds": made,
        "sum_seconds": {},
        **measured_ranks(graph, comm, device, args.precision, args.iterations),
    }


def seconds_of_sums(comm: Any) -> dict[str, float]:
    """Medians of sums of some sizes."""
    found = {}
    for size in SIZES:
        values, seconds = np.ones(size), []
        for _ in range(9):
            comm.share(None)
            start = time.perf_counter()
            comm.sum(values)
            seconds.append(time.perf_counter() - start)
        found[str(size)] = float(np.median(seconds))
    return found


def measured(args: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """What a run with so many ranks finds."""
    if args.mpi:
        return _over_mpi(args, ranks)
    from graphopt.distributed.communicator import run_as_threads

    found = run(args, ranks, None)
    if ranks > 1:
        found["sum_seconds"] = run_as_threads(ranks, seconds_of_sums)[0]
    return found


def _over_mpi(args: argparse.Namespace, ranks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        beside = Path(sys.executable).parent / "mpirun"
        mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
        command = [mpirun, "-n", str(ranks), "--bind-to", "none", *args.mpirun.split()]
        given = ["--device", args.device, "--precision", args.precision, "--problem", args.problem]
        given += ["--iterations", str(args.iterations), *(["--weak"] * args.weak)]
        command += [sys.executable, __file__, "--worker", str(path), *given]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run(command, check=True, env={**os.environ, **allowed})
        return json.loads(path.read_text())


def worker(args: argparse.Namespace) -> None:
    """One rank of a run over MPI."""
    from graphopt.distributed.mpi import MpiCommunicator, world

    comm = world()
    found = run(args, comm.size, comm)
    found["sum_seconds"] = seconds_of_sums(MpiCommunicator.of(comm))
    if comm.rank == 0:
        Path(args.worker).write_text(json.dumps(found))


# ---------------------------------------------------------------- model


def talk(ranks: float, numbers: float, latency: float, bandwidth: float) -> float:
    """Seconds of a sum in the order of the ranks."""
    return 2.0 * (ranks - 1) * (latency + 8.0 * numbers / ranks / bandwidth)


def message(run: dict[str, Any]) -> float:
    """Numbers of a message."""
    return float(run["partition"].get("shared_scalars", 0)) if run["ranks"] > 1 else 0.0


def comparable(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of one precision, double where there is any, and without runs whose products were not all alike."""
    double = [run for run in runs if run["precision"] == "double" and run.get("switched_at") is None]
    return double or runs


def fitted(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Parameters of the model; those of communication only where there was some."""
    import scipy.optimize

    runs = comparable(runs)
    rows = [
        (
            2.0 * (each_run["ranks"] - 1),
            16.0 * (each_run["ranks"] - 1) / each_run["ranks"] * int(size),
            seconds,
        )
        for each_run in runs
        for size, seconds in each_run["sum_seconds"].items()
        if each_run["ranks"] > 1
    ]
    latency, inverse = 0.0, 0.0
    if rows:
        a, b, t = np.array(rows).T
        (latency, inverse), _ = scipy.optimize.nnls(np.stack([a, b], axis=1) / t[:, None], np.ones(len(t)))
    bandwidth = 1.0 / inverse if inverse else np.inf
    product = np.array([each_run["product_seconds"] for each_run in runs])
    busiest = [
        each_run["partition"].get("edge_imbalance", 1.0) * each_run["edges"] / each_run["ranks"]
        for each_run in runs
    ]
    spoken = np.array([talk(each_run["ranks"], message(each_run), latency, bandwidth) for each_run in runs])
    columns = np.array(
        [[edges, float(each_run["ranks"] > 1)] for edges, each_run in zip(busiest, runs, strict=True)]
    )
    rest = np.maximum(product - spoken, 0.0) / product
    (edge, trip), _ = scipy.optimize.nnls(columns / product[:, None], rest)  # relative errors
    return {
        "edge": float(edge),
        "trip": float(trip),
        "latency": float(latency),
        "bandwidth": float(bandwidth),
    }


def predicted(
    model: dict[str, float], edges: float, numbers: float, ranks: int, network: tuple[float, float]
) -> tuple[float, float]:
    """Seconds of one product and of its communication."""
    if ranks == 1:
        return model["edge"] * edges, 0.0
    spoken = model["trip"] + talk(ranks, numbers, *network)
    return model["edge"] * edges / ranks + spoken, spoken


# ---------------------------------------------------------------- report


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Markdown: what was measured."""
    lines = [
        f"| problem | | ranks | observations | product | speed-up | iteration, {FEW} products | speed-up "
        f"| {MANY} products | speed-up | call, iterations | again | speed-up "
        "| communication | message | MiB per rank |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        alike = [
            other
            for other in runs
            if all(other[key] == run[key] for key in ("problem", "precision", "over")) and other["ranks"] == 1
        ]
        keys = ("product_seconds", "iteration_seconds", "long_iteration_seconds", "second_call_seconds")
        gains = [""] * len(keys)
        if alike:
            work = run["edges"] / alike[0]["edges"]
            gains = [f"{work * alike[0][key] / run[key]:.2f}" for key in keys]
        kind = "weak" if run["weak"] else "strong"
        share = run["partition"].get("communication_share", 0.0)
        lines.append(
            f"| {run['problem']} | {run['precision']}, {kind} | {run['ranks']} | {run['edges']:,} "
            f"| {1e3 * run['product_seconds']:.3g} ms | {gains[0]} | {1e3 * run['iteration_seconds']:.3g} ms "
            f"| {gains[1]} | {1e3 * run['long_iteration_seconds']:.3g} ms | {gains[2]} "
            f"| {run['call_seconds']:.2f} s, {run['call_iterations']} "
            f"| {run['second_call_seconds']:.2f} s | {gains[3]} | {share:.0%} "
            f"| {8e-3 * message(run):.3g} kB | {max(run['memory_bytes']) / 2**20:,.0f} |"
        )
    return lines


def prediction(runs: list[dict[str, Any]]) -> list[str]:
    """Markdown: the model, and what it says about more ranks."""
    model, largest = fitted(runs), max(runs, key=lambda each_run: each_run["edges"])
    poses = largest["pose_scalars"] / largest["edges"] * OBSERVATIONS
    lines = [
        f"Model fitted to these runs: edge {1e9 * model['edge']:.3g} ns per observation and product, trip "
        f"{1e6 * model['trip']:.0f} us, latency {1e6 * model['latency']:.1f} us, bandwidth "
        f"{1e-9 * model['bandwidth']:.3g} GB/s of sums within the host. For a cluster "
        f"{1e6 * NETWORK[0]:.0f} us and {1e-9 * NETWORK[1]:.0f} GB/s are assumed.",
        "",
        f"| devices | {OBSERVATIONS:.0e} observations, {cut_size(runs):,.0f} numbers per cut | speed-up "
        f"| all {poses:.2g} scalars of poses shared | speed-up |",
        "|---|---|---|---|---|",
    ]
    alone = predicted(model, OBSERVATIONS, 0.0, 1, NETWORK)[0]
    for ranks in (8, 64, 512):
        few = predicted(model, OBSERVATIONS, min(cut_size(runs) * (ranks - 1), poses), ranks, NETWORK)
        all_poses = predicted(model, OBSERVATIONS, poses, ranks, NETWORK)
        cells = [
            f"{1e3 * t:.3g} ms, {c / t:.0%} communication | {alone / t:.0f}" for t, c in (few, all_poses)
        ]
        lines.append(f"| {ranks} | {' | '.join(cells)} |")
    return lines


def cut_size(runs: list[dict[str, Any]]) -> float:
    """Numbers of a message per cut between two ranks."""
    several = [message(each_run) / (each_run["ranks"] - 1) for each_run in runs if each_run["ranks"] > 1]
    return max(several, default=0.0)


def main() -> None:
    """Start the runs, or be a rank of one, or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--problem", default="ladybug-49", help="a file, a published name, or three numbers")
    parser.add_argument("--iterations", type=int, default=10, help="of the ordinary call")
    parser.add_argument("--weak", action="store_true", help="problems that grow with the ranks")
    parser.add_argument("--mpi", action="store_true", help="ranks of mpirun instead of threads")
    parser.add_argument("--mpirun", default="", help="more options of mpirun")
    parser.add_argument("--json", type=Path, help="add the runs to this file")
    parser.add_argument("--read", type=Path, help="report about the runs of this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    path = args.read or args.json
    runs = json.loads(path.read_text()) if path is not None and path.exists() else []
    if args.read is None:
        for word in args.ranks.split(","):
            runs.append(measured(args, int(word)))
            print(json.dumps(runs[-1]), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(runs, indent=1) + "\n")
    print("\n".join([*table(runs), "", *prediction(runs)]))


if __name__ == "__main__":
    main()
