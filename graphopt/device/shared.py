"""Open Vulkan devices that all solvers of a process share.

Opening one takes a driver a tenth of a second, and some allow only a few dozen at a time. A device may be
used by several threads at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading

from graphopt.device.listing import find_device, validation_asked
from graphopt.device.protocol import Driver
from graphopt.device.vulkan import VulkanDevice
from graphopt.errors import GraphOptError

opened: dict[tuple, VulkanDevice] = {}
_indices: dict[tuple, int] = {}
_opening = threading.Lock()


def shared_device(which: int | str | None) -> VulkanDevice:
    """The open device of this index or name; None: the best one. The environment's settings hold."""
    with _opening:
        index = _index(which)
        masked, cache = (os.environ.get(f"GRAPHOPT_{name}", "") for name in ("MASK_FEATURES", "CACHE_DIR"))
        key = os.getpid(), index, validation_asked(), masked, cache
        device = opened.get(key)
        if device is None or device.is_lost:
            device = opened[key] = VulkanDevice(index)
        return device


def open_discrete() -> int | None:
    """Index of an open discrete GPU that computes in float64, None if there is none."""
    for (process, index, *_), device in list(opened.items()):
        if process == os.getpid() and not device.is_lost and device.has_float64:
            if device.info["kind"] == "discrete":
                return index
    return None


def _index(which: int | str | None) -> int:
    """Drivers take long to list their devices: looked up once per process."""
    key = os.getpid(), which
    if key not in _indices:
        _indices[key] = find_device(which)
    return _indices[key]


_started: set[tuple] = set()


def open_early(which: int | str | None) -> None:
    """Begin to open a device that `shared_device` will be asked for, in a thread; return at once.

    Drivers take 0.1 s and more. What goes wrong is said by `shared_device`, which tries again.
    """
    key = os.getpid(), which
    if key not in _started:
        _started.add(key)
        threading.Thread(target=_open_quietly, args=(which,), name="graphopt-open").start()


def _open_quietly(which: int | str | None) -> None:
    with contextlib.suppress(GraphOptError):
        shared_device(which)


DRIVER = Driver(shared_device)


@atexit.register
def _close() -> None:
    """Close the devices while the interpreter is whole; each keeps its pipelines for the next process."""
    opened.clear()
