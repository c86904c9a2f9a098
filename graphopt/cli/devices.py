"""`graphopt devices`: the processors that `--device` can name on this machine."""

from __future__ import annotations

import argparse

from graphopt.cli import output


def run(args: argparse.Namespace) -> int:
    """Print the devices; return 0."""
    from graphopt.evaluate import machine

    found, why_none = machine.accelerators()
    devices = [machine.describe_cpu(), *found]
    if args.json:
        output.print_json({"devices": devices})
        return 0
    rows = [(entry["device"], entry["name"], entry["detail"]) for entry in devices]
    output.print_table(("--device", "name", "detail"), rows)
    if why_none:
        print(f"\n{why_none}")
    return 0
