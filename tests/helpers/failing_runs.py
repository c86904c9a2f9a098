"""Runs in which one call after the other fails once; a program of its own, with `fail_in_turn` preloaded.

    python failing_runs.py LIBRARY FOLDER SUBSYSTEM:SHARE ...

runs each subsystem once for each of its allocations or file calls (of a SHARE of them, chosen at random),
lets that one fail, and prints what went wrong as JSON: errors that do not say what was asked, estimates that
were lost, descriptors that stay open, a next call with another answer.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
import graphopt.colmap
from graphopt.errors import GraphOptError

MEMORY, FILE, LEARN = 1, 2, 3


class Faults:
    """The preloaded library."""

    def __init__(self, library: str):
        self.calls = ctypes.CDLL(library)
        self.calls.fail_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
        self.calls.fail_seen.restype = ctypes.c_long
        self.calls.fail_last.restype = ctypes.c_char_p
        self.calls.fail_in_range.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.calls.fail_from.argtypes = [ctypes.c_size_t]

    def only_ours(self, modules: str, least: int) -> None:
        """Allocations of at least so many bytes by shared objects whose path matches, and data of arrays.

        Not all of numpy's: it ends the process where some of its own fail (`numpy.array_equal`).
        """
        strange = 1234567
        self.calls.fail_from(strange)
        self.calls.fail_arm(LEARN, -1, 0)
        np.empty(strange, np.uint8), np.zeros(strange, np.uint8)
        self.calls.fail_disarm()
        for line in Path("/proc/self/maps").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and "x" in words[1] and re.search(modules, words[5]):
                begin, end = (int(part, 16) for part in words[0].split("-"))
                self.calls.fail_in_range(begin, end)
        self.calls.fail_from(least)

    def in_folder(self, folder: str) -> None:
        """File calls on paths in it."""
        self.calls.fail_in_folder(folder.encode())

    def count(self, kind: int, work: Callable[[], Any]) -> int:
        """Calls that could fail."""
        self.calls.fail_arm(kind, -1, 0)
        try:
            work()
        finally:
            self.calls.fail_disarm()
        return self.calls.fail_seen()

    def fail(self, kind: int, at: int, error: int, work: Callable[[], Any]) -> tuple[bool, str, Any]:
        """Whether a call failed, which, and what `work` raised."""
        raised = None
        self.calls.fail_arm(kind, at, error)
        try:
            work()
        except BaseException as caught:
            self.calls.fail_disarm()
            raised = caught.with_traceback(None)
            raised.__context__ = raised.__cause__ = None
        fired = bool(self.calls.fail_disarm())
        return fired, self.calls.fail_last().decode(), raised


class Subsystem:
    """What is run. A subclass has `run`, and `check` for what a failed run must leave behind."""

    kind = MEMORY
    errors = (0,)

    def __init__(self, folder: Path):
        self.folder = folder

    def prepare(self) -> None:
        """Before each run."""

    def run(self) -> Any:
        """The call."""

    def check(self, raised: Any) -> str:
        """What is wrong after a run in which a call failed, "" if nothing."""
        return ""

    def answer(self) -> Any:
        """Of a run without faults: the same before and after."""
        self.prepare()
        return self.run()


class Optimization(Subsystem):
    """`optimize` on the CPU: the estimates are never worse than before the call."""

    def make(self) -> graphopt.Graph:
        """What is worked on."""
        from graphopt.evaluate import datasets

        return datasets.ba(cameras=6, points=60, seed=1)

    def prepare(self) -> None:
        """Before each run, without faults."""
        if not hasattr(self, "graph"):
            self.graph = self.make()
            self.start = [vertex_set.estimate.copy() for vertex_set in self.graph.vertex_sets]
            self.chi2 = self.graph.chi2()
        for vertex_set, estimate in zip(self.graph.vertex_sets, self.start, strict=True):
            vertex_set.estimate[:] = estimate

    def run(self) -> Any:
        """The call."""
        return round(graphopt.optimize(self.graph, "lm", 4, device="cpu").final_chi2, 9)

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        chi2 = self.graph.chi2()
        if not chi2 <= self.chi2 * (1.0 + 1e-9):
            return f"chi2 is {chi2}, was {self.chi2} before the call"
        return ""


class ColdOptimization(Optimization):
    """The same of a graph that nobody has solved yet."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        self.graph = self.make()
        self.chi2 = self.graph.chi2()


class PoseGraph(ColdOptimization):
    """With method auto: all that it tries besides."""

    def make(self) -> graphopt.Graph:
        """What is worked on."""
        from graphopt.evaluate import datasets

        return datasets.sphere(5, 8, radius=20.0, seed=1)

    def run(self) -> Any:
        """The call."""
        return round(graphopt.optimize(self.graph, device="cpu").final_chi2, 9)


class Reading(Subsystem):
    """A g2o file in memory that runs short."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        from graphopt.evaluate import datasets

        self.path = self.folder / "in.g2o"
        if not self.path.exists():
            graphopt.io.write(datasets.manhattan(nodes=300), self.path)

    def run(self) -> Any:
        """The call."""
        return graphopt.io.read(self.path).num_edges


class Files(Subsystem):
    """A file that is written again and read: the old content or the new one, and no other file."""

    kind = FILE
    errors = (errno.ENOSPC, errno.EIO)
    name = "a.g2o"

    def prepare(self) -> None:
        """Before each run, without faults."""
        self.path = self.folder / self.name
        if not hasattr(self, "graphs"):
            self.graphs = [self.make(nodes) for nodes in (40, 60)]
        self.write(self.graphs[0])
        self.old = self.content()

    def make(self, size: int) -> Any:
        """What is worked on."""
        from graphopt.evaluate import datasets

        return datasets.manhattan(nodes=size)

    def write(self, what: Any) -> None:
        """Write it."""
        graphopt.io.write(what, self.path)

    def read(self) -> Any:
        """Read it, return what tells versions apart."""
        return graphopt.io.read(self.path).num_edges

    def content(self) -> dict[str, bytes]:
        """Files by name."""
        return {
            str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()
        }

    def run(self) -> Any:
        """The call."""
        self.write(self.graphs[1])
        return self.read()

    def answer(self) -> Any:
        """See `Subsystem`."""
        found = super().answer()
        self.new = self.content()
        return found

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        found = {name: content for name, content in self.content().items() if "/." not in f"/{name}"}
        if found not in (self.old, self.new):
            return "neither the old content nor the new one"
        self.write(self.graphs[0])  # removes what an earlier one could not
        left = self.content().keys() - self.old.keys()
        return f"left behind: {sorted(left)}" if left else ""


class Colmap(Files):
    """A COLMAP model, a folder of five files."""

    name = "model"

    def make(self, size: int) -> Any:
        """What is worked on."""
        from tests.colmap.test_files import make_model

        return make_model(seed=size)

    def write(self, what: Any) -> None:
        """Write it."""
        graphopt.colmap.write_colmap(what, self.path)

    def read(self) -> Any:
        """Read it, return what tells versions apart."""
        return len(graphopt.colmap.read_colmap(self.path).points.ids)


class MapFile(Files):
    """A map of visual-inertial SLAM."""

    name = "map.vib"

    def make(self, size: int) -> Any:
        """What is worked on."""
        from tests.slam_bridge.test_map import simulated

        return simulated(count=size)

    def write(self, what: Any) -> None:
        """Write it."""
        what.save(self.path)

    def read(self) -> Any:
        """Read it, return what tells versions apart."""
        from slam_bridge import Map

        return len(Map.load(self.path).landmarks)


class Checkpoint(Files):
    """Estimates on the way."""

    name = "c.npz"

    def write(self, what: Any) -> None:
        """Write it."""
        from graphopt.distributed.checkpoint import write_checkpoint

        write_checkpoint(str(self.path), what, 3, 1.0)

    def read(self) -> Any:
        """Read it, return what tells versions apart."""
        from graphopt.distributed.checkpoint import read_checkpoint

        return read_checkpoint(str(self.path), self.graphs[1])


class OnlineUpdate(Subsystem):
    """An update of `Online` and the exact answer after it: a refused one leaves all bits as they were."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        from tests.online.test_sequences import Walk

        self.walk = Walk(seed=3)
        for _ in range(25):
            self.walk.step()
        handles = self.walk.loops()
        self.handles: dict[str, Any] = {"remove": handles[:1], "switch_off": handles[1:2]}
        self.before = self.state()

    def state(self) -> list[bytes]:
        """All that the object has of the graph."""
        from tests.online.test_sequences import bits

        return bits(self.walk.online)

    def run(self) -> Any:
        """The call."""
        online = self.walk.online
        start, last = online.estimate(25) + np.array([1.0, 0.0, 0.1]), [[25, 26], [3, 26]]
        edges = ("EDGE_SE2", last, [[1.0, 0.0, 0.1], [4.0, 1.0, 0.2]], np.eye(3))
        online.update([("VERTEX_SE2", [26], start[None])], [edges], **self.handles)
        return round(online.batch().chi2, 9), round(float(online.marginals([26]).sum()), 9)

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        if raised is None:
            return ""
        online = self.walk.online
        if 26 not in online:
            if self.state() != self.before:
                return "the update was refused, and the graph is another one"
            self.run()
        found = online.batch().chi2
        return "" if abs(found - self.expected) < 1e-6 else f"chi2 is {found}, expected {self.expected}"

    def answer(self) -> Any:
        """See `Subsystem`."""
        found = super().answer()
        self.expected = found[0]
        return found


class Batch(Subsystem):
    """`optimize_batch`, whose problems do not change what they were made of."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        if not hasattr(self, "graph"):
            from problem_batches import windows

            self.graph, self.given = windows(4)
            self.before = [v.estimate.copy() for v in self.graph.vertex_sets]

    def run(self) -> Any:
        """The call."""
        found = graphopt.optimize_batch(self.graph, max_iterations=3, **self.given)
        return [round(chi2, 7) for chi2 in found.final_chi2.tolist()]

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        now = [v.estimate for v in self.graph.vertex_sets]
        return "" if all(map(np.array_equal, now, self.before)) else "the graph has other estimates"


class ColmapCovariances(Subsystem):
    """Covariances of a model that stays as it is."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        if not hasattr(self, "model"):
            self.model = determined_model()
            self.before = [self.model.images.quaternion.copy(), self.model.points.xyz.copy()]

    def run(self) -> Any:
        """The call."""
        held = graphopt.colmap.Options(refine_focal_length=False, refine_extra_params=False)
        found = graphopt.colmap.covariance(self.model, points="conditional", options=held)
        return [
            round(float(np.log10(np.trace(C))), 6) for C in (*found.poses.values(), *found.points.values())
        ]

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        now = [self.model.images.quaternion, self.model.points.xyz]
        return "" if all(map(np.array_equal, now, self.before)) else "the model has changed"


class ColmapAdjustment(ColmapCovariances):
    """Bundle adjustment of a model in place: all of it, or nothing."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        self.model = determined_model()
        self.before = [self.model.images.quaternion.copy(), self.model.points.xyz.copy()]

    def run(self) -> Any:
        """The call."""
        found = graphopt.colmap.bundle_adjustment(self.model, device="cpu", max_iterations=4)
        return round(found.final_chi2, 6)

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        return super().check(raised) if raised is not None else ""


def determined_model() -> Any:
    """Five images that see forty points each: a COLMAP model whose H has full rank but for the gauge."""
    from graphopt.colmap.model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints

    rng, images, points = np.random.default_rng(4), 5, 40
    position = rng.uniform([-2.0, -2.0, 5.0], [2.0, 2.0, 9.0], (points, 3))
    t = np.stack([0.5 * np.arange(images), 0.1 * np.arange(images) ** 2, np.zeros(images)], axis=1)
    local = position + t[:, None]  # cameras without a turn
    pixels = (
        500.0 * local[..., :2] / local[..., 2:] + [320.0, 240.0] + rng.normal(0.0, 0.5, (images, points, 2))
    )
    ids = np.arange(1, images + 1)
    track = np.stack([np.tile(ids, points), np.repeat(np.arange(points), images)], axis=1)
    return ColmapModel(
        [ColmapCamera(1, "PINHOLE", 640, 480, np.array([500.0, 500.0, 320.0, 240.0]))],
        ColmapImages(
            ids,
            np.tile([1.0, 0.0, 0.0, 0.0], (images, 1)),
            t,
            np.ones(images, np.int64),
            [f"{k}.jpg" for k in range(images)],
            np.arange(images + 1) * points,
            pixels.reshape(-1, 2),
            np.tile(np.arange(1, points + 1), images),
        ),
        ColmapPoints(
            np.arange(1, points + 1),
            position,
            np.zeros((points, 3), np.uint8),
            np.full(points, 0.5),
            np.arange(points + 1) * images,
            track,
        ),
    )


class BackendFrame(Subsystem):
    """A frame of the back end of SLAM: a refused one leaves those before it, and may come again."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        import slam_bridge as sb

        sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
        from tests.slam_bridge.test_backend import scene

        camera, poses, self.frames = scene(8)
        self.backend = sb.Backend(camera, sigma=0.3, device="cpu")
        for number in range(7):
            self.add(number, poses[0] if number == 0 else None)
        self.before = [self.backend.pose(number) for number in range(7)]

    def add(self, number: int, pose: Any = None) -> None:
        """Frame by frame."""
        tracks, pixel, depth = self.frames[number]
        right = pixel[:, 0] - 80.0 / depth
        self.backend.add_frame(10**9 + number * 10**8, (tracks, pixel), pose, right=right)

    def run(self) -> Any:
        """The call."""
        self.add(7)
        self.backend.local()
        return np.round(self.backend.pose(7), 5).tolist()

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        if raised is None:
            return ""
        for number, before in enumerate(self.before):
            if not np.allclose(self.backend.pose(number), before, atol=0.02):
                return f"pose {number} is {self.backend.pose(number)}, was {before}"
        if len(self.backend.map.keyframes) == 7:
            self.add(7)
        self.backend.local()
        self.backend.pose(7)
        return ""


class ForeignArrays(Subsystem):
    """Tensors in, shared and out: what is not taken leaves the graph as it was."""

    def prepare(self) -> None:
        """Before each run, without faults."""
        import torch

        self.graph = graphopt.Graph()
        self.graph.add_vertices("VERTEX_XY", torch.arange(60), torch.ones(60, 2, dtype=torch.float32))
        self.pairs = torch.stack([torch.arange(59), torch.arange(1, 60)], dim=1)
        self.moved = 2.0 * torch.ones(60, 2, dtype=torch.float32)

    def run(self) -> Any:
        """The call."""
        import torch

        vertices = self.graph.vertex_set("VERTEX_XY")
        self.graph.add_edges("EDGE_POINTXY", self.pairs, torch.ones(59, 2).flip(0), torch.eye(2))
        vertices.estimate = self.moved
        self.graph.vertex_set("VERTEX_XY").fixed = torch.arange(60) == 0
        found = graphopt.optimize(self.graph, device="cpu")
        return round(found.final_chi2, 9), round(float(torch.from_dlpack(vertices.estimate).sum()), 6)

    def check(self, raised: Any) -> str:
        """What is wrong, "" if nothing."""
        estimate = self.graph.vertex_set("VERTEX_XY").estimate
        if self.graph.num_edges not in (0, 59) or not np.isfinite(estimate).all():
            return f"{self.graph.num_edges} edges, estimates {estimate[:2]}"
        if self.graph.num_edges == 0:
            self.run()
        return "" if graphopt.optimize(self.graph, device="cpu").is_usable else "the next call has no answer"


SUBSYSTEMS: dict[str, type[Subsystem]] = {
    "optimize": Optimization,
    "cold": ColdOptimization,
    "auto": PoseGraph,
    "read": Reading,
    "g2o": Files,
    "colmap": Colmap,
    "map": MapFile,
    "checkpoint": Checkpoint,
    "online": OnlineUpdate,
    "batch": Batch,
    "covariances": ColmapCovariances,
    "adjustment": ColmapAdjustment,
    "backend": BackendFrame,
    "arrays": ForeignArrays,
}


def unclear(raised: Any) -> str:
    """Why an error is not one that a user can act upon, "" if it is."""
    if raised is None:
        return ""
    named = isinstance(raised, GraphOptError | OSError)
    if not named and not (isinstance(raised, MemoryError) and len(str(raised)) > 20):
        return f"{type(raised).__name__}: {raised}"
    if isinstance(raised, OSError) and not isinstance(raised, GraphOptError) and not raised.filename:
        return f"no file is named: {raised!r}"
    return ""


def checked(subsystem: Subsystem, raised: Any) -> str:
    """What is wrong after a fault; an error of what is done then is."""
    try:
        return subsystem.check(raised)
    except Exception as error:
        return f"after {raised!r}: {error!r}"


def surroundings() -> tuple[int, int]:
    """Open descriptors, threads."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def run_in_turn(faults: Faults, subsystem: Subsystem, share: float) -> dict[str, Any]:
    """Outcomes and problems of one subsystem."""
    faults.in_folder(str(subsystem.folder))
    expected = subsystem.answer()
    subsystem.answer()
    subsystem.prepare()
    total = faults.count(subsystem.kind, subsystem.run)
    before, outcomes, problems = surroundings(), Counter(), []
    for at in sorted(random.Random(1).sample(range(total), max(1, int(total * share)))):
        for error in subsystem.errors:
            subsystem.prepare()
            fired, call, raised = faults.fail(subsystem.kind, at, error, subsystem.run)
            if not fired:
                continue
            what, _, module = call.partition(" ")
            outcomes[f"{what}: {type(raised).__name__}"] += 1
            for wrong in (unclear(raised), checked(subsystem, raised)):
                if wrong:
                    name = errno.errorcode.get(error, os.path.basename(module))
                    problems.append(f"{what} {at} of {total} ({name}): {wrong}")
    after = surroundings()
    again = subsystem.answer()
    if again != expected:
        problems.append(f"the next call gives {again}, expected {expected}")
    if after[0] > before[0] + 1:
        problems.append(f"{after[0] - before[0]} descriptors stay open")
    return {"total": total, "outcomes": outcomes, "problems": problems}


def main() -> None:
    """Run subsystems, print JSON."""
    from graphopt import _native  # noqa: F401  loaded now, so that `only_ours` finds it
    from graphopt.cpu_kernels import kernels  # noqa: F401

    library, folder, *chosen = sys.argv[1:]
    ignored: list[str] = []
    sys.unraisablehook = lambda raised: ignored.append(f"{raised.exc_type.__name__}: {raised.exc_value}")
    faults, found = Faults(library), {}
    faults.only_ours("graphopt/_", 256)
    for each in chosen:
        name, _, share = each.partition(":")
        own = Path(folder) / name
        own.mkdir()
        found[name] = run_in_turn(faults, SUBSYSTEMS[name](own), float(share))
    print(json.dumps({"found": found, "ignored": ignored}))


if __name__ == "__main__":
    main()
