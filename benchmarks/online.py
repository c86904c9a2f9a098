"""Pose graphs fed pose by pose to `graphopt.Online`, and to gtsam's ISAM2 beside it.

    python benchmarks/online.py M3500.g2o sphere2500.g2o --json online.json
    python benchmarks/online.py city world --steps 2000       generated ones
    python benchmarks/online.py M3500.g2o --no-isam2
    python benchmarks/online.py M3500.g2o city --steps 1000 --outliers 0 10 30 50

Both get the same poses in the same order: pose k with its edges to poses before it, its start from the edge
to pose k - 1. Timed is `update`, in wall-clock and processor time of the calling thread. ISAM2 relinearizes
in each update (relinearizeSkip 1, threshold 0.1), with Cholesky, or QR where that finds a system singular.

--outliers: percent of the closures that are random, between random poses. Decisions of `Online`, fed pose by
pose, stand beside those of `optimize(robust="graduated")` on the whole graph from odometry: precision and
recall of the outliers, root mean square distance of positions from the answer without them, and the seconds
of the feed over those without outliers. The same once more after `Online.batch()` at the end of the feed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt import Graph, Online
from graphopt.errors import GraphError
from graphopt.geometry import SE2, SE3
from graphopt.online import Edges

GROUPS = {"EDGE_SE2": SE2, "EDGE_SE3:QUAT": SE3}


@dataclass(frozen=True)
class Step:
    """A pose and its edges to poses before it."""

    id: int
    first: np.ndarray | None
    """Start of the first pose; None: of the others, from `odometry`."""
    vertices: np.ndarray
    measurement: np.ndarray
    information: np.ndarray
    odometry: tuple[int, np.ndarray]
    """Pose before, and the motion from there."""
    rows: np.ndarray
    """Rows of the edges in the graph."""


def steps_of(graph: Graph) -> tuple[Any, Iterator[Step]]:
    """Edge type and steps of a graph whose edges are motions of one type."""
    if len(graph.edge_sets) != 1 or graph.edge_sets[0].type.tag not in GROUPS:
        raise GraphError(f"expected a graph of {' or '.join(GROUPS)} edges only.")
    edges = graph.edge_sets[0]
    ids = np.sort(graph.vertex_sets[0].ids)
    order = np.argsort(edges.vertices.max(axis=1), kind="stable")
    newest = edges.vertices.max(axis=1)[order]
    return edges.type, _steps(graph, edges, ids, order, newest)


def _steps(
    graph: Graph, edges: Any, ids: np.ndarray, order: np.ndarray, newest: np.ndarray
) -> Iterator[Step]:
    group = GROUPS[edges.type.tag]
    for k, id_ in enumerate(ids.tolist()):
        rows = order[np.searchsorted(newest, id_) : np.searchsorted(newest, id_, side="right")]
        vertices, measurement = edges.vertices[rows], edges.measurement[rows]
        first = graph.vertex(id_).estimate.copy() if k == 0 else None
        odometry = (id_, np.asarray(group.identity_storage))
        if k > 0:
            before = ids[k - 1]
            found = np.flatnonzero((vertices == before).any(axis=1))
            if not len(found):
                raise GraphError(f"pose {id_} has no edge to the pose before it, {before}.")
            z = group(measurement[found[0]])
            z = z if vertices[found[0], 0] == before else z.inverse()
            odometry = (int(before), np.asarray(z.storage))
        yield Step(id_, first, vertices, measurement, edges.information[rows], odometry, rows)


class Feed:
    """Seconds of the updates."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processor: list[float] = []

    def timed(self, task: Any) -> Any:
        """Run a task and note how long it took; what it returns."""
        wall, processor = time.perf_counter(), time.thread_time()
        found = task()
        self.processor.append(time.thread_time() - processor)
        self.wall.append(time.perf_counter() - wall)
        return found

    def record(self) -> dict[str, float]:
        """Seconds in all and milliseconds of one."""
        wall = np.array(self.wall)
        return {
            "seconds": float(wall.sum()),
            "processor_seconds": float(np.sum(self.processor)),
            "mean_ms": 1e3 * float(wall.mean()),
            "p99_ms": 1e3 * float(np.quantile(wall, 0.99)),
            "worst_ms": 1e3 * float(wall.max()),
        }


def feed_online(graph: Graph, may_be_wrong: bool) -> tuple[Online, Feed, dict[int, int]]:
    """What has the graph, times, row of each handle. may_be_wrong: edges to others than the pose before."""
    kind, steps = steps_of(graph)
    group, pose_type = GROUPS[kind.tag], kind.vertices[0]
    online, feed, rows = Online(), Feed(), {}
    for step in steps:
        if step.first is not None:
            online.update([(pose_type, [step.id], step.first[None], True)])
            continue
        before, motion = step.odometry
        start = np.asarray((group(online.estimate(before)) * group(motion)).storage)
        is_closure = may_be_wrong & ~(step.vertices == before).any(axis=1)
        edges = Edges(kind, step.vertices, step.measurement, step.information, closure=is_closure)
        report = feed.timed(lambda: online.update([(pose_type, [step.id], start[None])], [edges]))  # noqa: B023
        rows |= dict(zip(report.handles[0].tolist(), step.rows.tolist(), strict=True))
    return online, feed, rows


def run_online(graph: Graph) -> dict[str, float]:
    """Ours: times, chi2 at the end and of batch."""
    online, feed, _ = feed_online(graph, False)
    chi2 = online.chi2
    return {**feed.record(), "chi2": chi2, "batch_chi2": online.batch().chi2}


def with_outliers(graph: Graph, share: float, seed: int = 1) -> Graph:
    """A copy with random closures in the last rows, which are so large a share of all.

    They lead from random poses to others, as the motion between two other random poses, with the information
    of a random edge.
    """
    rng, found, edges = np.random.default_rng(seed), graph.copy(), graph.edge_sets[0]
    group, poses = GROUPS[edges.type.tag], graph.vertex_sets[0]
    count = round(share / (1.0 - share) * np.count_nonzero(_is_closure(edges)))
    ids = np.sort(poses.ids)
    newer = rng.integers(2, len(ids), size=count)
    older = (rng.random(count) * (newer - 1)).astype(int)
    i, j = (group(poses.estimate[rng.integers(len(ids), size=count)]) for _ in range(2))
    found.add_edges(
        edges.type,
        np.stack([ids[older], ids[newer]], axis=1),
        np.asarray((i.inverse() * j).storage),
        edges.information[rng.integers(len(edges), size=count)],
    )
    return found


def _is_closure(edges: Any) -> np.ndarray:
    return np.abs(np.diff(edges.vertices, axis=1)).ravel() > 1


def run_robust(given: Graph, shares: list[float]) -> Iterator[dict[str, Any]]:
    """Decisions with shares of random closures, and those of batch; see the module."""
    given = given.copy()
    first = int(given.vertex_sets[0].ids.min())
    given.set_fixed([first])
    answer = given.copy()
    graphopt.optimize(answer)
    rights, seconds_without = len(given.edge_sets[0]), 0.0
    for share in [0.0, *[share for share in shares if share > 0.0]]:
        graph = with_outliers(given, share)
        truth = np.arange(rights, len(graph.edge_sets[0]))
        online, feed, rows = feed_online(graph, True)
        found = [rows[handle] for handle in online.outliers()[0].tolist()]
        record = {"outliers": share, "wrong": len(truth), **feed.record()}
        record["online"] = _judged(found, truth, online.graph(), answer)
        online.batch()
        found = [rows[handle] for handle in online.outliers()[0].tolist()]
        record["at_the_end"] = _judged(found, truth, online.graph(), answer)
        start = time.perf_counter()
        summary = graphopt.optimize(graph, robust="graduated")
        record["batch"] = _judged([row for _, row in summary.outliers], truth, graph, answer)
        record["batch"]["seconds"] = time.perf_counter() - start
        seconds_without = seconds_without or record["processor_seconds"]
        record["time_ratio"] = record["processor_seconds"] / seconds_without
        yield record


def _robust_line(record: dict[str, Any]) -> str:
    words = [
        f"{name} finds {own['found']}, precision {own['precision']:.4f}, recall {own['recall']:.4f}, error "
        f"{own['error']:.4g} m"
        for name, own in (
            ("online", record["online"]),
            ("after batch() it", record["at_the_end"]),
            ("batch", record["batch"]),
        )
    ]
    return (
        f"{100 * record['outliers']:.0f} % of closures ({record['wrong']}) random: {'; '.join(words)}; "
        f"{record['processor_seconds']:.2f} s, {record['time_ratio']:.2f} times that without, worst "
        f"{record['worst_ms']:.1f} ms, batch {record['batch']['seconds']:.2f} s"
    )


def _judged(found: list[int], wrong: np.ndarray, graph: Graph, answer: Graph) -> dict[str, float]:
    hits = len(np.intersect1d(found, wrong))
    ids = answer.vertex_sets[0].ids
    dim = 2 if answer.edge_sets[0].type.tag == "EDGE_SE2" else 3
    estimates = np.array([graph.vertex(id_).estimate for id_ in ids.tolist()])
    gap = (estimates - answer.vertex_sets[0].estimate)[:, :dim]
    return {
        "found": len(found),
        "precision": hits / len(found) if len(found) else 1.0,
        "recall": hits / len(wrong) if len(wrong) else 1.0,
        "error": float(np.sqrt((gap**2).sum(axis=1).mean())),
    }


def run_isam2(graph: Graph, factorization: str = "CHOLESKY") -> dict[str, float]:
    """gtsam's: times. factorization: "CHOLESKY" or "QR"."""
    import gtsam

    kind, steps = steps_of(graph)
    is_plane = kind.tag == "EDGE_SE2"
    params = gtsam.ISAM2Params()
    params.setRelinearizeThreshold(0.1)
    params.relinearizeSkip = 1
    params.setFactorization(factorization)
    isam, feed = gtsam.ISAM2(params), Feed()

    def pose(x: np.ndarray) -> Any:
        if is_plane:
            return gtsam.Pose2(*x)
        return gtsam.Pose3(gtsam.Rot3.Quaternion(x[6], x[3], x[4], x[5]), x[:3])

    def noise(information: np.ndarray) -> Any:
        if not is_plane:  # rotation first, as an angle instead of a quaternion's vector
            order, scale = [3, 4, 5, 0, 1, 2], np.array([0.5, 0.5, 0.5, 1.0, 1.0, 1.0])
            information = information[np.ix_(order, order)] * np.outer(scale, scale)
        return gtsam.noiseModel.Gaussian.Information(information)

    for step in steps:
        factors, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
        if step.first is not None:
            start = pose(step.first)
            held = gtsam.PriorFactorPose2 if is_plane else gtsam.PriorFactorPose3
            factors.add(held(step.id, start, gtsam.noiseModel.Isotropic.Sigma(3 if is_plane else 6, 1e-6)))
        else:
            before, motion = step.odometry
            at = isam.calculateEstimatePose2 if is_plane else isam.calculateEstimatePose3
            start = at(before).compose(pose(motion))
        values.insert(step.id, start)
        between = gtsam.BetweenFactorPose2 if is_plane else gtsam.BetweenFactorPose3
        for (i, j), z, information in zip(
            step.vertices.tolist(), step.measurement, step.information, strict=True
        ):
            factors.add(between(i, j, pose(z), noise(information)))
        feed.timed(lambda: isam.update(factors, values))  # noqa: B023
        isam.calculateEstimate()
    return feed.record()


def streets(poses: int, edges: int, size: int, seed: int = 1) -> Graph:
    """A walk of 1 m steps along the streets of a square town, with edges to earlier poses within 1 m.

    size: of the town in blocks of 5 m. The walk turns at random crossings and stays inside; the closures are
    drawn from all pairs of poses at most 1 m apart, so that there are `edges` in all.
    """
    rng, block = np.random.default_rng(seed), 5
    place, heading = np.array([size // 2 * block, size // 2 * block]), 0
    truth, visited, candidates = np.empty((poses, 3)), {}, []
    ways = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    for k in range(poses):
        truth[k] = [*place, (heading + 1) % 4 * np.pi / 2 - np.pi / 2]
        for offset in ([0, 0], *ways.tolist()):
            near = visited.get((place[0] + offset[0], place[1] + offset[1]), [])
            candidates += [(j, k) for j in near if j < k - 1]
        visited.setdefault((place[0], place[1]), []).append(k)
        if (place % block == 0).all():
            turns = [(heading + turn) % 4 for turn in (0, 0, 1, 3, 2)]
            inside = [way for way in turns if ((place + block * ways[way]) // block <= size).all()]
            inside = [way for way in inside if (place + block * ways[way] >= 0).all()]
            heading = inside[rng.integers(len(inside[:-1]) or 1)]
        place = place + ways[heading]
    drawn = rng.choice(len(candidates), min(len(candidates), edges - poses + 1), replace=False)
    pairs = np.concatenate(
        [np.stack([np.arange(poses - 1), np.arange(1, poses)], axis=1), np.array(candidates)[np.sort(drawn)]]
    )
    sigma = np.array([0.05, 0.05, 0.01])
    motion = (SE2(truth[pairs[:, 0]]).inverse() * SE2(truth[pairs[:, 1]])).storage
    motion = np.asarray(motion) + sigma * rng.normal(size=(len(pairs), 3))
    graph, start = Graph(), np.zeros((poses, 3))
    start[0] = truth[0]
    for k in range(1, poses):
        start[k] = (SE2(start[k - 1]) * SE2(motion[k - 1])).storage
    graph.add_vertices("VERTEX_SE2", np.arange(poses), start)
    graph.add_edges("EDGE_SE2", pairs, motion, np.diag(sigma**-2.0))
    return graph


GENERATED = {"city": (10_000, 20_687, 30), "world": (10_000, 64_000, 18)}
"""Poses, edges, and size in blocks."""


def load(name: str, steps: int | None) -> Graph:
    """A file, or a generated graph, of which `steps` poses have the same share of edges."""
    if name in GENERATED:
        poses, edges, size = GENERATED[name]
        share = min(1.0, (steps or poses) / poses)
        return streets(round(share * poses), round(share * edges), max(3, round(size * share**0.5)))
    graph = graphopt.read(name)
    return graph if steps is None else first_poses(graph, steps)


def first_poses(graph: Graph, most: int) -> Graph:
    """The poses with the smallest ids and the edges between them."""
    found, poses, edges = Graph(), graph.vertex_sets[0], graph.edge_sets[0]
    kept = np.argsort(poses.ids)[:most]
    rows = np.isin(edges.vertices, poses.ids[kept]).all(axis=1)
    found.add_vertices(poses.type, poses.ids[kept], poses.estimate[kept])
    found.add_edges(edges.type, edges.vertices[rows], edges.measurement[rows], edges.information[rows])
    return found


def _beside(graph: Graph, record: dict[str, Any]) -> str:
    """ISAM2's numbers into the record, and in words: with QR where Cholesky finds a system singular."""
    factorization = "CHOLESKY"
    try:
        theirs = run_isam2(graph, factorization)
    except RuntimeError:  # gtsam's IndeterminateLinearSystemException
        factorization = "QR"
        theirs = run_isam2(graph, factorization)
    record["isam2"], record["ratio"] = theirs, theirs["seconds"] / record["seconds"]
    words = f"{theirs['seconds']:.2f} s, worst {theirs['worst_ms']:.1f} ms, ratio {record['ratio']:.2f}"
    return words if factorization == "CHOLESKY" else f"{words} (with QR: Cholesky finds it singular)"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="+", metavar="FILE", help="pose graphs, 'city' or 'world'")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers here")
    parser.add_argument("--steps", type=int, help="only so many poses")
    parser.add_argument(
        "--outliers", type=float, nargs="+", metavar="PERCENT", help="random closures instead of ISAM2"
    )
    parser.add_argument("--no-isam2", action="store_true", help="only graphopt")
    args = parser.parse_args()
    records: dict[str, Any] = {}
    for name in args.graphs:
        graph = load(name, args.steps)
        if args.outliers:
            records[Path(name).name] = found = []
            for record in run_robust(graph, [1e-2 * percent for percent in args.outliers]):
                found.append(record)
                print(f"{Path(name).name} {_robust_line(record)}", flush=True)
            continue
        record: dict[str, Any] = run_online(graph)
        line = f"{Path(name).name}: {record['seconds']:.2f} s, worst {record['worst_ms']:.1f} ms, chi2 "
        line += f"{record['chi2']:.6g} (batch {record['batch_chi2']:.6g})"
        if not args.no_isam2:
            line += f", ISAM2 {_beside(graph, record)}"
        print(line, flush=True)
        records[Path(name).name] = record
    if args.json is not None:
        args.json.write_text(json.dumps(records, indent=2) + "\n")


if __name__ == "__main__":
    main()
