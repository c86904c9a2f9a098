"""Start-up: `import graphopt`, `graphopt --help`, and the bare interpreter that both contain; reading a file.

sphere2500.g2o is read beside g2opy's `SparseOptimizer.load`, file cache warm.
"""

from __future__ import annotations

import subprocess
import sys

import g2opy
from harness import Report, median_seconds, milliseconds, print_table, unpacked

import graphopt

REPEATS = 9
COMMANDS = {
    "interpreter": [sys.executable, "-c", "pass"],
    "import_graphopt": [sys.executable, "-c", "import graphopt"],
    "graph_and_optimizer": [sys.executable, "-c", "import graphopt; graphopt.Graph; graphopt.optimize"],
    "help": [sys.executable, "-m", "graphopt", "--help"],
}


def run(report: Report) -> None:
    """Measure fresh processes and both readers, add the metrics, print the tables."""
    rows = []
    for name, command in COMMANDS.items():
        seconds = median_seconds(
            lambda command=command: subprocess.run(command, check=True, capture_output=True), REPEATS
        )
        report.add(f"startup.{name}", seconds, "s")
        rows.append([name, milliseconds(seconds)])
    print_table("fresh processes", ["command", "time"], rows)
    path = unpacked("posegraph/sphere2500.g2o.xz")
    readers = {
        "graphopt": lambda: graphopt.io.read(path),
        "g2opy": lambda: g2opy.SparseOptimizer().load(str(path)),
    }
    rows = []
    for name, read in readers.items():
        seconds = median_seconds(read, REPEATS)
        report.add(f"reading.sphere2500.{name}", seconds, "s")
        rows.append([name, milliseconds(seconds)])
    print_table("reading sphere2500.g2o", ["reader", "time"], rows)
