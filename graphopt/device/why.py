"""What a machine or container lacks for Vulkan on its GPU, and the line to add (`graphopt devices --why`).

Each check looks at what the loader would look at: environment, driver manifests (ICD files), the libraries
that they name, device nodes, and the kernel's part of the driver. `root` is the folder that the system lies
in.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Manifests or folders of them that the loader takes instead of searching; the first one set counts."""
_FILTERS = ("VK_LOADER_DRIVERS_DISABLE", "VK_LOADER_DRIVERS_SELECT")
_FOLDERS = ("etc/vulkan/icd.d", "usr/local/etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d",
            "usr/share/vulkan/icd.d")  # fmt: skip
_DOCKER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics ..."
_DISPLAY = "0x03"  # PCI class


class Lack(NamedTuple):
    """One thing that is missing."""

    what: str
    found: str
    add: str
    """The line that adds it."""


@dataclass(frozen=True)
class System:
    """What the checks look at."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    load: Callable[[str], Any] = ctypes.CDLL
    """Opens a library, or raises `OSError`."""

    def files(self, pattern: str) -> list[str]:
        """Paths below the root."""
        return sorted(glob.glob(str(self.root / pattern)))

    def variable(self) -> str | None:
        """Which of `VARIABLES` is set."""
        return next((name for name in VARIABLES if name in self.environment), None)

    def manifests(self) -> list[str]:
        """What the loader reads."""
        name = self.variable()
        if name is not None:
            listed = [path for path in self.environment[name].split(os.pathsep) if path]
            return [found for path in listed for found in _in_folder(path)]
        folders = [str(self.root / folder) for folder in _FOLDERS]
        data = self.environment.get("XDG_DATA_DIRS", "").split(os.pathsep)
        home = self.environment.get("HOME", "")
        folders += [f"{folder}/vulkan/icd.d" for folder in (*data, f"{home}/.local/share") if folder]
        return [path for folder in folders for path in sorted(glob.glob(f"{folder}/*.json"))]

    def has_nvidia(self) -> bool:
        """NVIDIA's kernel module is loaded."""
        return bool(self.files("proc/driver/nvidia/version") or self.files("dev/nvidia[0-9]*"))


def _in_folder(path: str) -> list[str]:
    """The manifests of a folder, which the loader takes as well; of anything else itself."""
    return sorted(glob.glob(f"{path}/*.json")) if os.path.isdir(path) else [path]


def lacks(system: System) -> list[Lack]:
    """Everything that is missing, the first thing to mend first; empty: nothing that a check knows."""
    return [lack for check in _CHECKS for lack in check(system)]


def _loader(system: System) -> Iterator[Lack]:
    try:
        system.load("libvulkan.so.1")
    except OSError as error:
        yield Lack("loader", f"libvulkan.so.1 does not load: {error}", "apt-get install libvulkan1")


def _variables(system: System) -> Iterator[Lack]:
    name = system.variable()
    if name is not None and not system.manifests():
        yield Lack("environment", f"{name} is '{system.environment[name]}': no drivers", f"unset {name}")
    for each in _FILTERS:
        if system.environment.get(each):
            yield Lack("environment", f"{each}={system.environment[each]} hides drivers", f"unset {each}")


def _manifests(system: System) -> Iterator[Lack]:
    found, name = system.manifests(), system.variable()
    if not found and name is None:
        add = _DOCKER if system.has_nvidia() else "apt-get install mesa-vulkan-drivers"
        yield Lack("ICD file", f"no *.json in {', '.join(f'/{each}' for each in _FOLDERS)}", add)
    for path in found:
        again = f"unset {name}" if name else f"reinstall the package that owns {path}"
        if not os.path.exists(path):
            yield Lack("ICD file", f"{path} does not exist", again)
            continue
        try:
            library = str(json.loads(Path(path).read_text())["ICD"]["library_path"])
        except (OSError, ValueError, KeyError, TypeError):
            yield Lack("ICD file", f"{path} is no manifest of a driver", again)
            continue
        if "/" in library:
            library = os.path.join(os.path.dirname(path), library)
        try:
            system.load(library)
        except OSError as error:
            yield Lack("driver library", f"{path}: {error}", again)


def _nvidia(system: System) -> Iterator[Lack]:
    """In a container the driver's libraries come from the host, by capability."""
    if not system.has_nvidia():
        return
    libraries = system.files("usr/lib*/**/libGLX_nvidia.so.*") or system.files(
        "usr/lib*/*/libGLX_nvidia.so.*"
    )
    if not libraries:
        capabilities = system.environment.get("NVIDIA_DRIVER_CAPABILITIES", "not set")
        found = f"no libGLX_nvidia.so; NVIDIA_DRIVER_CAPABILITIES is {capabilities}"
        yield Lack("graphics capability", found, _DOCKER)
        return
    kernel = system.root / "proc/driver/nvidia/version"
    number = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", kernel.read_text()) if kernel.is_file() else None
    versions = {found[1] for path in libraries if (found := re.search(r"\.so\.(\d+\..*)", path))}
    if number and versions and number[1] not in versions:
        found = f"the kernel's driver is {number[1]}, the libraries are {', '.join(sorted(versions))}"
        yield Lack(
            "driver version", found, f"apt-get install libnvidia-gl-{number[1].split('.')[0]}, or reboot"
        )


def _nodes(system: System) -> Iterator[Lack]:
    nodes = (
        system.files("dev/dri/renderD*") + system.files("dev/nvidia[0-9]*") + system.files("dev/nvidiactl")
    )
    for path in nodes:
        if not os.access(path, os.R_OK | os.W_OK):
            add = "sudo usermod -aG render,video $USER (in a container: --group-add render)"
            yield Lack("permission", f"{path} cannot be opened for reading and writing", add)
    if nodes:
        return
    classes = [Path(path).read_text() for path in system.files("sys/bus/pci/devices/*/class")]
    if any(each.startswith(_DISPLAY) for each in classes):
        yield Lack("device node", "a GPU on the bus, but neither /dev/dri/renderD* nor /dev/nvidia*",
                   "docker run --device /dev/dri ..., for NVIDIA --gpus all")  # fmt: skip


def _versions(system: System) -> Iterator[Lack]:
    """Drivers that load and have no device for us, or only one that computes on the CPU."""
    from graphopt.device.listing import list_devices

    if system.root != Path("/") or dict(system.environment) != dict(os.environ):
        return
    try:
        devices = list_devices()
    except Exception:  # the other checks say why
        return
    if not devices:
        yield Lack("driver version", "no device has Vulkan 1.2", "update the GPU's driver")
    elif all(device.kind == "cpu" for device in devices):
        yield Lack(
            "GPU", "drivers for the CPU only (llvmpipe, SwiftShader)", "install the GPU's driver, if any"
        )


_CHECKS = (_loader, _variables, _manifests, _nvidia, _nodes, _versions)
