"""`graphopt devices`: the processors that `--device` can name on this machine."""

from __future__ import annotations

import argparse

from graphopt.cli import arguments, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "List the processors and GPUs that `--device` can name on this machine."
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the devices; return 0."""
    from graphopt.evaluate import machine

    gpus, why_none = machine.accelerators()
    devices = [machine.describe_cpu(), *gpus]
    if args.json:
        output.print_json({"devices": devices})
        return 0
    rows = [(entry["device"], entry["name"], entry["detail"]) for entry in devices]
    output.print_table(("--device", "name", "detail"), rows)
    if why_none:
        print(f"\n{why_none}")
    return 0
