"""Run programs for the g2o bindings, unchanged, with these and with graphopt.g2o; print a table.

    python tools/run_clients.py DIR [--peer g2opy] [--timeout 300] [--only NAME] [--logs DIR]

DIR holds checkouts that you have; nothing is downloaded. Each folder below it (or DIR itself) is looked at:

    python/tests/test_*.py        g2o's own tests of its bindings: every test
    python/examples/*.py          g2o's examples: every script that runs without arguments
    optimization.py, loopclosing.py     stereo_ptam, rgbd_ptam: local bundle adjustment, loop closing
    optimize_g2o.py               twitchslam and what derives from it: bundle adjustment
    optimizer_g2o.py              pyslam (also some folders below): bundle adjustment, pose of a frame
    *.py that import g2o or g2opy       any other folder: every script that runs without arguments

The SLAM programs get a small scene (tools/client_scenes.py) instead of images; the code of their optimizers
runs as it is. `--peer` names the bindings to compare with: "g2opy" (2.3.0), or "g2o" (g2o-python, uoip/g2opy)
where that is installed. Each client runs in a process of its own, in an empty folder, with the same random
numbers. Compared are the outcomes of tests and chi2 after every optimization. Exit status 1 if something runs
with the peer and not with graphopt.g2o, or ends elsewhere; 2 for a folder that cannot be used.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_worker import OURS, PYSLAM, pyslam_optimizer

WORKER = Path(__file__).with_name("client_worker.py")
ROOT = Path(__file__).resolve().parents[1]

IMPORTS = re.compile(r"^\s*(import|from)\s+(g2o|g2opy)\b", re.MULTILINE)
SIMULATES = re.compile(r"\bSimulator[23]D\b")
TOLERANCE = 1e-6
"""Largest relative difference of chi2 that counts as the same end."""


def _package_folder() -> Path:
    """Where graphopt is imported from: where it is installed, else the source tree."""
    spec = importlib.util.find_spec("graphopt")
    return Path(spec.origin).parents[1] if spec is not None and spec.origin else ROOT


@dataclass(frozen=True)
class Client:
    """Something to run."""

    name: str
    layout: str
    path: Path


@dataclass(frozen=True)
class Row:
    """What both modules did with a client."""

    client: Client
    theirs: dict[str, Any]
    ours: dict[str, Any]

    @property
    def difference(self) -> float | None:
        """Largest relative difference of chi2 after an optimization; None if there is nothing to compare."""
        pairs = list(zip(self.theirs["chi2"], self.ours["chi2"], strict=False))
        if not pairs or self.theirs["status"] != "ran" or self.ours["status"] != "ran":
            return None
        if len(self.theirs["chi2"]) != len(self.ours["chi2"]):
            return float("inf")
        return max(relative_difference(ours, theirs) for theirs, ours in pairs)

    @property
    def is_good(self) -> bool:
        """Whatever runs with the peer runs here, and ends at the same chi2."""
        if self.theirs["status"] == "ran" and self.ours["status"] != "ran":
            return False
        passed = [name for name, outcome in self.theirs["tests"].items() if outcome == "passed"]
        if any(self.ours["tests"].get(name) != "passed" for name in passed):
            return False
        return self.has_own_world or self.difference is None or self.difference <= TOLERANCE

    @property
    def has_own_world(self) -> bool:
        """Made by a simulator, whose random numbers are each module's own."""
        path = self.client.path
        return path.is_file() and SIMULATES.search(path.read_text(errors="replace")) is not None


def relative_difference(ours: list[float], theirs: list[float]) -> float:
    """Of chi2 after an optimization, (before, after) each; of a perfect fit relative to where it began."""
    if ours[1] == theirs[1] or (ours[1] != ours[1] and theirs[1] != theirs[1]):
        return 0.0
    scale = max(abs(theirs[1]), abs(ours[1]), 1e-9 * abs(theirs[0]))
    difference = abs(ours[1] - theirs[1]) / scale
    return difference if difference == difference else float("inf")


# -------------------------------------------------------------------- finding clients


def clients_of(folder: Path, is_checkout: bool = True) -> list[Client]:
    """Clients of one folder by the files that it has; is_checkout: also by those in folders below."""
    tests, examples = folder / "python" / "tests", folder / "python" / "examples"
    clients = []
    if tests.is_dir() and any(tests.glob("test_*.py")):
        clients.append(Client(f"{folder.name}: tests", "tests", tests))
    if examples.is_dir():
        clients += scripts_of(folder.name, examples)
    if clients:
        return clients
    if (folder / "optimization.py").exists() and (folder / "loopclosing.py").exists():
        return [Client(folder.name, "ptam", folder)]
    if (folder / "optimize_g2o.py").exists():
        return [Client(folder.name, "twitchslam", folder)]
    if pyslam_optimizer(folder) if is_checkout else (folder / PYSLAM).exists():
        return [Client(folder.name, "pyslam", folder)]
    return scripts_of(folder.name, folder)


def scripts_of(name: str, folder: Path) -> list[Client]:
    """Scripts that import the bindings."""
    files = [
        each_path
        for each_path in sorted(folder.glob("*.py"))
        if IMPORTS.search(each_path.read_text(errors="replace"))
    ]
    return [Client(f"{name}: {file.name}", "script", file) for file in files]


def all_clients(folder: Path) -> list[Client]:
    """Clients of a folder and of the folders in it."""
    below = [
        each_path
        for each_path in sorted(folder.iterdir())
        if each_path.is_dir() and not each_path.name.startswith(".")
    ]
    return [*clients_of(folder, False), *(client for directory in below for client in clients_of(directory))]


# -------------------------------------------------------------------- running


def run_client(client: Client, module: str, timeout: float, logs: Path | None) -> dict[str, Any]:
    """The worker's report; a client that hangs or takes the process down has failed."""
    failed = {"status": "failed", "chi2": [], "tests": {}}
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        work = Path(scratch) / "work"
        work.mkdir()
        command = [
            sys.executable,
            str(WORKER),
            module,
            client.layout,
            str(client.path.resolve()),
            str(report),
        ]
        path = os.pathsep.join(
            path for path in (str(_package_folder()), os.environ.get("PYTHONPATH")) if path
        )
        environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
        try:
            done = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return {**failed, "detail": f"no end after {timeout:g} s"}
        if logs is not None:
            name = re.sub(r"[^\w.-]+", "_", f"{client.name}-{module}")
            (logs / f"{name}.log").write_bytes(done.stdout + done.stderr)
        if not report.exists():
            return {**failed, "detail": f"process ended with status {done.returncode}"}
        return json.loads(report.read_text())


def rows_of(clients: list[Client], peer: str, timeout: float, logs: Path | None) -> Iterator[Row]:
    """Run them one after the other."""
    for client in clients:
        print(f"{client.name} ...", file=sys.stderr, flush=True)
        yield Row(client, *(run_client(client, module, timeout, logs) for module in (peer, OURS)))


# -------------------------------------------------------------------- table


def outcome(report: dict[str, Any]) -> str:
    """A cell of the table."""
    if report["status"] == "needs":
        return f"needs {report['detail']}"
    if report["status"] == "failed":
        return report["detail"].replace("|", "\\|")
    if report["tests"]:
        counts = Counter(report["tests"].values())
        return ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped") if counts[name])
    return "runs"


def table(rows: list[Row], peer: str) -> str:
    """A table in Markdown, a row per client."""
    lines = [
        f"| client | {peer} | graphopt.g2o | optimizations | largest difference of chi2 |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        count = len(row.ours["chi2"])
        difference = "" if row.difference is None else f"{row.difference:.0e}"
        if row.has_own_world:
            difference = "another random world"
        cells = (row.client.name, outcome(row.theirs), outcome(row.ours), str(count or ""), difference)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: list[Row], peer: str) -> str:
    """How many run."""
    here = sum(row.ours["status"] == "ran" for row in rows)
    there = sum(row.theirs["status"] == "ran" for row in rows)
    bad = [row.client.name for row in rows if not row.is_good]
    text = f"{here} of {len(rows)} run with graphopt.g2o, {there} with {peer}."
    return text + (f" Different: {', '.join(bad)}." if bad else "")


def main(arguments: list[str] | None = None) -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of checkouts")
    parser.add_argument("--peer", default="g2opy", help="bindings to compare with: g2opy (default) or g2o")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one client (300)")
    parser.add_argument("--only", metavar="NAME", help="clients with this text in their name")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="folder for what the clients print")
    args = parser.parse_args(arguments)
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is not a folder. Pass one that holds checkouts of programs for g2o.")
    clients = [
        each_client
        for each_client in all_clients(args.folder)
        if args.only is None or args.only in each_client.name
    ]
    if not clients:
        named = "" if args.only is None else f" with {args.only!r} in its name"
        parser.error(
            f"{args.folder} has no client of g2o{named}: neither python/tests, optimization.py, "
            "optimize_g2o.py, optimizer_g2o.py, nor a script that imports g2o or g2opy, in it or in a folder "
            "below it."
        )
    if importlib.util.find_spec(args.peer) is None:
        parser.error(f"there is no module {args.peer!r} to compare with: pip install g2opy, or say --peer.")
    if args.logs is not None:
        args.logs.mkdir(parents=True, exist_ok=True)
    rows = list(rows_of(clients, args.peer, args.timeout, args.logs))
    print(table(rows, args.peer))
    print()
    print(summary(rows, args.peer))
    return int(not all(row.is_good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
