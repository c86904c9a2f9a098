"""`graphopt devices`: the processors that `--device` can name on this machine."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from graphopt.cli import output


def run(args: argparse.Namespace) -> int:
    """Print the devices; return 0."""
    devices = [describe_cpu(), *_accelerators()]
    if args.json:
        output.print_json({"devices": devices})
        return 0
    rows = [(entry["device"], entry["name"], entry["detail"]) for entry in devices]
    output.print_table(("--device", "name", "detail"), rows)
    if not _has_vulkan_layer():
        print("\nThis build of graphopt has no Vulkan layer; it optimizes on the CPU only.")
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


def _has_vulkan_layer() -> bool:
    import graphopt.device

    return hasattr(graphopt.device, "list_devices")


def _accelerators() -> list[dict[str, Any]]:
    """Devices of the device layer, each with at least `device`, `name` and `detail`."""
    import graphopt.device

    list_devices = getattr(graphopt.device, "list_devices", None)
    return [dict(entry) for entry in list_devices()] if list_devices else []
