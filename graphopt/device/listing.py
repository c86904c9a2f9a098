"""Which Vulkan devices there are, and finding one by index or name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphopt.device.errors import DeviceError


def native_module() -> Any:
    """`graphopt._vulkan`, or an error that says how to get it."""
    try:
        from graphopt import _vulkan
    except ImportError as error:
        raise DeviceError(
            "graphopt was built without Vulkan. Install its headers (Debian: apt-get install libvulkan-dev) "
            "and reinstall graphopt, or use device='cpu'."
        ) from error
    return _vulkan


@dataclass(frozen=True)
class DeviceInfo:
    """What `graphopt devices` shows about one device."""

    index: int
    name: str
    driver: str
    kind: str
    """discrete, integrated, virtual, cpu or other."""
    memory_bytes: int
    """Size of the largest device-local heap."""
    subgroup_sizes: tuple[int, int]
    """Smallest and largest."""
    features: Mapping[str, Any]
    """Everything the runtime knows: features, limits, heaps."""

    def notes(self) -> list[str]:
        """Which features are missing and what is slower or off because of it."""
        missing = []
        if not self.features["float64"]:
            missing.append("no shaderFloat64: precision is mixed (float32 with two-float sums)")
        if not self.features["buffer_address"]:
            limit = self.features["max_storage_range"] / 2**20
            missing.append(f"no bufferDeviceAddress: storage buffers of at most {limit:.0f} MiB each")
        if not self.features["subgroup_size_control"]:
            missing.append("no subgroupSizeControl: the driver chooses the subgroup size")
        if self.kind == "cpu":
            missing.append("a software driver: for tests, slower than device='cpu'")
        return missing

    def describe(self) -> dict[str, Any]:
        """The same as plain data: `device` is what `--device` takes, `detail` one line about it."""
        smallest, largest = self.subgroup_sizes
        subgroups = f"subgroups of {smallest}" + (f" to {largest}" if largest != smallest else "")
        parts = [self.kind, f"{self.memory_bytes / 2**30:.1f} GiB", subgroups, self.driver, *self.notes()]
        return {
            "device": f"vulkan:{self.index}",
            "name": self.name,
            "detail": "; ".join(parts),
            "driver": self.driver,
            "kind": self.kind,
            "memory_bytes": self.memory_bytes,
            "subgroup_sizes": list(self.subgroup_sizes),
            "notes": self.notes(),
            "features": dict(self.features),
        }


def validation_asked() -> bool:
    """Whether GRAPHOPT_VALIDATION=1 asks for the validation layer."""
    return os.environ.get("GRAPHOPT_VALIDATION", "") not in ("", "0")


_num_listed: dict[tuple[int, bool], int] = {}
"""Devices of the last list, by process and validation: to list them takes a driver a fifth of a second."""


def list_devices() -> list[DeviceInfo]:
    """Every device with Vulkan 1.2, in the driver's order. Empty where there is a loader but no driver."""
    infos = []
    for index, info in enumerate(native_module().list_devices(validation_asked())):
        local = [heap["size"] for heap in info["heaps"] if heap["device_local"]]
        infos.append(
            DeviceInfo(
                index=index,
                name=info["name"],
                driver=f"{info['driver']} {info['driver_info']}".strip(),
                kind=info["kind"],
                memory_bytes=max(local, default=0),
                subgroup_sizes=(info["min_subgroup_size"], info["max_subgroup_size"]),
                features=info,
            )
        )
    _num_listed[os.getpid(), validation_asked()] = len(infos)
    return infos


def find_device(which: int | str | None) -> int:
    """Index of a device given by index, part of its name, or None: the first GPU, else the first."""
    if isinstance(which, int) and 0 <= which < _num_listed.get((os.getpid(), validation_asked()), 0):
        return which
    devices = list_devices()
    if not devices:
        raise DeviceError("No Vulkan 1.2 device was found. Install the GPU's driver, or use device='cpu'.")
    if which is None:
        order = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
        return min(devices, key=lambda d: (order[d.kind], d.index)).index
    if isinstance(which, int) or which.isdigit():
        if not 0 <= int(which) < len(devices):
            raise DeviceError(
                f"Vulkan device {which} does not exist: there are {len(devices)}. {_table(devices)}"
            )
        return int(which)
    hits = [d for d in devices if which.lower() in d.name.lower()]
    if len(hits) != 1:
        raise DeviceError(f"'{which}' names {len(hits)} Vulkan devices, expected 1. {_table(devices)}")
    return hits[0].index


def _table(devices: Iterable[DeviceInfo]) -> str:
    return "Present: " + "; ".join(f"{d.index}: {d.name}" for d in devices) + "."
