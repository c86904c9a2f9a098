"""Run benchmarks: `python -m benchmarks [NAME ...] [--output FOLDER]`; without a name, all of them."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.harness import Report

NAMES = ("startup", "reading", "pose_graphs", "bundle_adjustment")


def main() -> int:
    """Run the chosen benchmarks in this process and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if none is given"
    )
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"), help="folder of the record")
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")

    report = Report()
    if report.machine["busy"]:
        print(f"The machine is busy (load {report.machine['load']}): these numbers are not to be trusted.")
    for name in args.names or NAMES:
        importlib.import_module(f"benchmarks.{name}").run(report)
    path = args.output / "record.json"
    report.save(path)
    machine = report.machine
    print(f"{path}: {len(report.metrics)} metrics on {machine['processor']}, {machine['cores']} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
