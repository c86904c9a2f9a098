"""`graphopt devices`: the processors that `--device` can name on this machine."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from graphopt.cli import output


def run(args: argparse.Namespace) -> int:
    """Print the devices; return 0."""
    accelerators, why_none = _accelerators()
    devices = [describe_cpu(), *accelerators]
    if args.json:
        output.print_json({"devices": devices})
        return 0
    rows = [(entry["device"], entry["name"], entry["detail"]) for entry in devices]
    output.print_table(("--device", "name", "detail"), rows)
    if why_none:
        print(f"\n{why_none}")
    return 0


def describe_cpu() -> dict[str, Any]:
    """Name the processor, the cores that this process may use, and the instruction set that was chosen."""
    from graphopt import cpu_kernels

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = cpu_kernels.kernels.num_threads()
    detail = f"{cores} cores, {threads} threads, code for {cpu_kernels.isa}"
    return {
        "device": "cpu",
        "name": _cpu_name(),
        "cores": cores,
        "threads": threads,
        "instruction_set": cpu_kernels.isa,
        "detail": detail,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _accelerators() -> tuple[list[dict[str, Any]], str]:
    """Devices of the device layer with `device`, `name` and `detail`; or why there are none."""
    from graphopt.device import list_devices
    from graphopt.errors import DeviceError

    try:
        found = [entry.describe() for entry in list_devices()]
    except DeviceError as error:
        return [], str(error)
    return found, "" if found else "No Vulkan 1.2 device was found; graphopt optimizes on the CPU only."
