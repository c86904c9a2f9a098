"""Reading sphere2500.g2o: ours against g2opy's `SparseOptimizer.load`, file cache warm."""

from __future__ import annotations

import g2opy
import problems
from harness import Report, median_seconds, milliseconds, print_table

import graphopt

REPEATS = 15


def run(report: Report) -> None:
    """Measure both, add the metrics, print a table."""
    path = problems.unpacked("posegraph/sphere2500.g2o.xz")
    ours = median_seconds(lambda: graphopt.io.read(path), REPEATS)
    theirs = median_seconds(lambda: g2opy.SparseOptimizer().load(str(path)), REPEATS)
    report.add("reading.sphere2500.graphopt", ours, "s")
    report.add("reading.sphere2500.g2opy", theirs, "s")
    rows = [["graphopt", milliseconds(ours)], ["g2opy", milliseconds(theirs)]]
    print_table("reading sphere2500.g2o", ["reader", "time"], rows)
