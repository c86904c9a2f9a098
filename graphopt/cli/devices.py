"""`graphopt devices`: the processors that `--device` can name on this machine."""

from __future__ import annotations

import argparse
import os

from graphopt.cli import arguments, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "List the processors and GPUs that `--device` can name on this machine."
    parser.add_argument(
        "--why", action="store_true", help="what is missing for a GPU, and the line that adds it"
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the devices; return 0."""
    from graphopt.evaluate import machine

    if args.why:
        return _why(args.json)
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


def _why(as_json: bool) -> int:
    """Print what is missing; return 0."""
    from graphopt.device.why import System, lacks

    found = lacks(System(os.environ))
    if as_json:
        output.print_json({"missing": [lack._asdict() for lack in found]})
    elif found:
        output.print_table(("missing", "found", "line to add"), found)
    else:
        print("Nothing is missing.")
    return 0
