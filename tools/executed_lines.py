"""Lines and branches of the solvers that no test executes; the status is 1 where a line is left.

Of the kernels' room, graphopt/vulkan, lines are reported alone: what a driver lacks depends on the device.

    python tools/executed_lines.py                     all rooms, Python and C++ (`make coverage`)
    python tools/executed_lines.py --python            Python alone, with the modules as they are
    python tools/executed_lines.py --keep tests/linear add to what earlier calls executed

Python is traced with branches, subprocesses too; C++ is built with counters into build/watch-lines, where
`report.txt` is written. What cannot be executed is marked where it stands, with the reason:

    raise AssertionError  # pragma: no cover - every kind is above
    return -1;  // GCOVR_EXCL_LINE - METIS gives no other status
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from watch_tests import Kind, build
from workshop import ROOT, Workshop

PYTHON_ROOMS = tuple(f"graphopt/{name}" for name in ("linear", "problem", "solver", "optimizer", "vulkan"))
NATIVE_ROOM = "native/src/linear"
REPORTED = ("graphopt/vulkan",)
TESTS = (
    "tests/linear", "tests/solver", "tests/optimizer", "tests/oracle", "tests/graph", "tests/vulkan",
    "tests/distributed", "tests/initialization", "tests/faults", "tests/slam_bridge", "tests/batch",
    "tests/online", "tests/derivatives", "tests/expressions", "tests/g2o", "tests/cli",
    "tests/types", "tests/native/test_waits.py", "tests/test_plugins.py",
)  # fmt: skip
COUNTED = Kind("--coverage", (), (), {}, TESTS)
NO_CODE = r"\s*(\}|for \(;;\) \{|struct \w+ \{)\s*"
"""Of C++: what gcc counts there is how an exception leaves, or nothing."""
MARK = re.compile(r"#\s*pragma: no cover(?! - \w)|GCOVR_EXCL_(?:LINE|START)(?! - \w)")


@dataclass
class Room:
    """What was executed in the files of one folder."""

    lines: Counter[bool] = field(default_factory=Counter)
    """Executed -> number of lines."""
    branches: Counter[bool] = field(default_factory=Counter)
    left: dict[str, list[int]] = field(default_factory=dict)
    """File -> lines that nobody executed."""
    one_way: dict[str, list[str]] = field(default_factory=dict)
    """File -> branches FROM->TO that nobody took, of lines that somebody executed."""

    def __str__(self) -> str:
        shares = [
            f"{100.0 * c[True] / max(1, c.total()):.2f} % of {c.total()}" for c in (self.lines, self.branches)
        ]
        return f"{shares[0]} lines, {shares[1]} branches"


def run_tests(workshop: Workshop, tests: list[str], keep: bool) -> None:
    """Run them, all to their end: what fails is the tests' own matter."""
    settings = workshop.folder / "coverage.ini"
    sources = "".join(f"\n    {workshop.folder / room}" for room in PYTHON_ROOMS)
    settings.write_text(
        f"[run]\nbranch = true\nparallel = true\npatch = subprocess\nsource = {sources}\n"
        f"disable_warnings = no-data-collected\ndata_file = {workshop.folder}/.coverage\n"
    )
    coverage = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={settings}"
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "-m", "not slow and not nightly"]
    for words in (
        ["run", rc, *test, *tests],
        ["combine", *["--append"] * keep, rc],
        ["json", rc, "-q", "-o", "python.json"],
    ):
        subprocess.run([*coverage, *words], cwd=workshop.folder, env=workshop.environment)
    for broken in workshop.folder.glob(".coverage.*"):  # of processes that were killed while they wrote
        broken.unlink()


def of_python(report: Path) -> dict[str, Room]:
    """What became of each room's lines and branches."""
    rooms: dict[str, Room] = defaultdict(Room)
    for file, found in json.loads(report.read_text())["files"].items():
        room = rooms[next(room for room in PYTHON_ROOMS if file.startswith(f"{room}/"))]
        total = found["summary"]
        room.lines += Counter({True: total["covered_lines"], False: total["missing_lines"]})
        room.branches += Counter({True: total["covered_branches"], False: total["missing_branches"]})
        lines = set(found["missing_lines"])
        taken = [(a, b) for a, b in found["missing_branches"] if a not in lines and b not in lines]
        if lines:
            room.left[file] = sorted(lines)
        if taken:
            room.one_way[file] = [f"{a}->{'end' if b < 0 else b}" for a, b in taken]
    return rooms


def of_native(folder: Path) -> Room:
    """As `of_python`: a line of a template counts once, whichever instance executes it."""
    words = [sys.executable, "-m", "gcovr", "--root", str(ROOT), "--object-directory", str(folder / "native")]
    words += ["--filter", f"{ROOT / NATIVE_ROOM}/", "--merge-mode-functions", "merge-use-line-min"]
    words += ["--exclude-throw-branches", "--exclude-unreachable-branches", "--gcov-ignore-parse-errors=all"]
    words += ["--gcov-suspicious-hits-threshold", "0", "--exclude-lines-by-pattern", NO_CODE]
    words += ["--json", str(folder / "native.json"), *map(str, folder.glob("native/CMakeFiles/_cpu_*.dir"))]
    subprocess.run(words, cwd=ROOT, check=True)
    room = Room()
    for found in json.loads((folder / "native.json").read_text())["files"]:
        executed: Counter[int] = Counter()
        branches: dict[int, list[int]] = {}
        for line in found["lines"]:
            number = line["line_number"]
            if line.get("gcovr/excluded"):
                continue
            executed[number] += line["count"]
            counts = [branch["count"] for branch in line["branches"]]
            known = branches.get(number, [])
            branches[number] = max(counts, known, key=lambda c: sum(map(bool, c)))
        room.lines += Counter(count > 0 for count in executed.values())
        room.branches += Counter(count > 0 for counts in branches.values() for count in counts)
        left = sorted(number for number, count in executed.items() if count == 0)
        if left:
            room.left[found["file"]] = left
    return room


def marks_without_reason() -> list[str]:
    """FILE:LINE of marks that do not say why."""
    found = []
    for room in (*PYTHON_ROOMS, NATIVE_ROOM):
        for path in sorted((ROOT / room).rglob("*.*")):
            if path.suffix in (".py", ".h", ".cpp"):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    found += [f"{path.relative_to(ROOT)}:{number}"] * bool(MARK.search(line))
    return found


def report_of(rooms: dict[str, Room], unexplained: list[str]) -> str:
    """The text of the report."""
    rows = [f"{name}: {room}" for name, room in rooms.items()]
    for room in rooms.values():
        rows += [
            f"{file}:{line}: never executed" for file, lines in sorted(room.left.items()) for line in lines
        ]
    for room in rooms.values():
        rows += [f"{file}: never taken: {', '.join(ways)}" for file, ways in sorted(room.one_way.items())]
    return "\n".join([*rows, f"marks without a reason: {', '.join(unexplained) or 'none'}", ""])


def main() -> int:
    """Run; the status is 1 where a line is left."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tests", nargs="*", help="default: those of the rooms")
    parser.add_argument("--python", action="store_true", help="Python alone")
    parser.add_argument("--keep", action="store_true", help="add to what earlier calls executed")
    arguments = parser.parse_args()
    folder = ROOT / "build" / "watch-lines"
    workshop = Workshop(folder / "copy") if arguments.python else build(COUNTED, folder)
    changed = [name for name in workshop.changed if name.startswith((*PYTHON_ROOMS, NATIVE_ROOM))]
    if changed or not arguments.keep:
        for old in (*folder.rglob("*.gcda"), *workshop.folder.glob(".coverage*")):
            old.unlink()
    if changed and arguments.keep:
        sys.exit(f"{', '.join(changed)} changed since the earlier calls: what they executed is forgotten.")
    run_tests(workshop, arguments.tests or list(TESTS), arguments.keep)
    rooms = of_python(workshop.folder / "python.json")
    if not arguments.python:
        rooms[NATIVE_ROOM] = of_native(folder)
    unexplained = marks_without_reason()
    report = report_of(rooms, unexplained)
    (folder / "report.txt").write_text(report)
    print(report, end="")
    return 1 if unexplained or any(room.left for name, room in rooms.items() if name not in REPORTED) else 0


if __name__ == "__main__":
    sys.exit(main())
