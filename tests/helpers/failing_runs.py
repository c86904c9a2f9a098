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
        graphopt.io.write_colmap(what, self.path)

    def read(self) -> Any:
        """Read it, return what tells versions apart."""
        return len(graphopt.io.read_colmap(self.path).points.ids)


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


SUBSYSTEMS: dict[str, type[Subsystem]] = {
    "optimize": Optimization,
    "cold": ColdOptimization,
    "auto": PoseGraph,
    "read": Reading,
    "g2o": Files,
    "colmap": Colmap,
    "map": MapFile,
    "checkpoint": Checkpoint,
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
            for wrong in (unclear(raised), subsystem.check(raised)):
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
