"""Start-up: `import graphopt`, `graphopt --help`, and the bare interpreter that both contain."""

from __future__ import annotations

import subprocess
import sys

from harness import Report, median_seconds, milliseconds, print_table

REPEATS = 9
COMMANDS = {
    "interpreter": [sys.executable, "-c", "pass"],
    "import_graphopt": [sys.executable, "-c", "import graphopt"],
    "graph_and_optimizer": [sys.executable, "-c", "import graphopt; graphopt.Graph; graphopt.optimize"],
    "help": [sys.executable, "-m", "graphopt", "--help"],
}


def run(report: Report) -> None:
    """Measure fresh processes, add the metrics, print a table."""
    rows = []
    for name, command in COMMANDS.items():
        seconds = median_seconds(
            lambda command=command: subprocess.run(command, check=True, capture_output=True), REPEATS
        )
        report.add(f"startup.{name}", seconds, "s")
        rows.append([name, milliseconds(seconds)])
    print_table("fresh processes", ["command", "time"], rows)
