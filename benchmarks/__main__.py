"""Run benchmarks: `python benchmarks [NAME ...] [--output FILE]`; without a name, all of them.

Each NAME adds metrics to one record (JSON), with the machine, its load, versions and commit.
`--gate BASELINE` compares them with an earlier record of the same machine and fails where one is worse.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from harness import Report, compare

NAMES = ("startup", "calls", "gradients")


def main() -> int:
    """Run the chosen benchmarks in this process, write the record, and compare it if asked."""
    parser = argparse.ArgumentParser(prog="python benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if none is given"
    )
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks.json"), help="the record")
    parser.add_argument("--gate", type=Path, metavar="BASELINE", help="an earlier record to compare with")
    parser.add_argument("--tolerance", type=float, default=0.15, help="relative change that counts as worse")
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")

    report = Report()
    if report.machine["busy"]:
        print(f"The machine is busy (load {report.machine['load']}): these numbers are not to be trusted.")
    for name in args.names or NAMES:
        importlib.import_module(name).run(report)
    report.save(args.output)
    machine = report.machine
    print(f"{args.output}: {len(report.metrics)} metrics on {machine['processor']}, {machine['cores']} cores")
    return compare(report, args.gate, args.tolerance) if args.gate is not None else 0


if __name__ == "__main__":
    sys.exit(main())
