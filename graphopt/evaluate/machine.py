"""What a measurement has to say about where it was made: processor, memory, devices, drivers, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "pycolmap", "pyceres", "gtsam", "g2opy", "opencv-python-headless")


def describe() -> dict[str, Any]:
    """The machine, its devices, and the versions of graphopt and of what it is compared with."""
    import graphopt

    devices, why_none = accelerators()
    return {
        "graphopt": graphopt.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "memory_bytes": _memory(),
        "devices": [describe_cpu(), *devices],
        "devices_note": why_none,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


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


def accelerators() -> tuple[list[dict[str, Any]], str]:
    """Devices of the device layer with `device`, `name` and `detail`; or why there are none."""
    from graphopt.device import list_devices
    from graphopt.errors import DeviceError

    try:
        devices = [entry.describe() for entry in list_devices()]
    except DeviceError as error:
        return [], str(error)
    return devices, "" if devices else "No Vulkan 1.2 device was found; graphopt optimizes on the CPU only."


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def commit() -> str:
    """The commit of the source tree that runs, or the version of what is installed."""
    import graphopt

    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass
    return f"graphopt {graphopt.__version__}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
