"""Two ways to run the same functions: interpreted at once, compiled kernels as soon as they are built.

    tiered = TieredKernel(device, interpreted=..., kernels=..., compiled=...)
    tiered.active                # what to record submissions with
    if tiered.advance(): ...     # between submissions: the compiled kernels took over, record anew

GRAPHOPT_TIER=interpreter never compiles, =compiled never interprets, =auto (the default) does both. Kernels
that this device has built before (`BuiltKernels`), in this process or with the cache on disk in another one,
are there within milliseconds; who uses this class asks first. So only in a program's very first run does the
moment of the change, and with it the last digits of the results, depend on how long the compiler takes.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from graphopt import disk_cache
from graphopt.errors import OptionError

Tier = Literal["interpreter", "compiled"]
Choice = Literal["interpreter", "compiled", "auto"]
CHOICES: tuple[Choice, ...] = ("interpreter", "compiled", "auto")
MAX_BUILDERS = max(4, (os.cpu_count() or 4) // 2)
"""Kernels that are built at the same time."""
T = TypeVar("T")
_built: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # device -> names of sets of kernels


def tier_choice() -> Choice:
    """What GRAPHOPT_TIER says."""
    asked = os.environ.get("GRAPHOPT_TIER", "") or "auto"
    for choice in CHOICES:
        if asked == choice:
            return choice
    raise OptionError(f"GRAPHOPT_TIER is '{asked}', expected {', '.join(CHOICES)}.")


class BuiltKernels:
    """Which sets of kernels a device has built, in this process and, by files in the cache folder, before."""

    def __init__(self, device: Any, fingerprint: bytes):
        """fingerprint: of everything that determines the kernels; the device and its driver are added."""
        self._device = device
        digest = hashlib.sha256(fingerprint)
        digest.update(repr([device.info.get(k) for k in ("name", "driver", "driver_info")]).encode())
        self._name = digest.hexdigest()[:40]

    def are_there(self) -> bool:
        """Whether building them again only means to read them."""
        known = _built.setdefault(self._device, set())
        if self._name not in known and disk_cache.load(f"kernels/{self._name}") is None:
            return False
        known.add(self._name)  # asking the cache folder takes 0.4 ms
        return True

    def note(self) -> None:
        """They are built now."""
        if self._name in _built.get(self._device, set()):
            return
        _built.setdefault(self._device, set()).add(self._name)
        self._device.save_pipeline_cache()
        disk_cache.store(f"kernels/{self._name}", b"")


def build_kernels(device: Any, kernels: Iterable[Any], constants: Mapping[int, int] | None = None) -> None:
    """Build `GpuKernel`s: some at a time, and the first ones while the text of the others is made.

    GLSL compilers and drivers run without Python's lock. The first error is raised, once no builder works.
    """
    with ThreadPoolExecutor(MAX_BUILDERS, "graphopt-kernel") as builders:
        tasks = []
        for kernel in kernels:
            if not threading.main_thread().is_alive():  # the process ends
                return
            tasks.append(builders.submit(device.generated, kernel, constants))
        for task in tasks:
            task.result()


class TieredKernel(Generic[T]):
    """Starts with the interpreter; a thread builds the kernels that replace it."""

    def __init__(
        self,
        device: Any,
        *,
        interpreted: Callable[[], T],
        kernels: Callable[[], Iterable[Any]],
        compiled: Callable[[], T],
        constants: Mapping[int, int] | None = None,
        choice: Choice | None = None,
        built: BuiltKernels | None = None,
    ):
        """interpreted, compiled: make what `active` is; called in the caller's thread.

        kernels: the `GpuKernel`s to build, with these specialization constants; called in the thread. A
        device builds each once, whoever else asks for it meanwhile. built: is noted when all
        are there. choice: None: that of GRAPHOPT_TIER.
        """
        self._device, self._constants = device, constants
        self._make_compiled = compiled
        self._set = built
        self._start = time.perf_counter()
        self._error: BaseException | None = None
        self._built = threading.Event()
        self.seconds: dict[Tier, float] = {}
        """From the start until each tier was ready."""
        self.choice: Choice = choice or tier_choice()
        self.tier: Tier = "compiled" if self.choice == "compiled" else "interpreter"
        self._thread: threading.Thread | None = None
        if self.tier == "compiled":
            self._build(kernels)
            self.active: T = self._take_compiled()
            return
        if self.choice == "auto":
            # not a daemon: a driver must not be left in the middle of a kernel when the process ends
            self._thread = threading.Thread(target=self._build, args=(kernels,), name="graphopt-kernels")
        self.active = interpreted()
        self.seconds["interpreter"] = time.perf_counter() - self._start
        if self._thread is not None:
            self._thread.start()

    @property
    def generation(self) -> int:
        """0, and 1 from the change to compiled kernels on: a key for recorded programs."""
        return int(self.tier == "compiled")

    def advance(self) -> bool:
        """Call between submissions: True where the compiled kernels have just replaced the interpreter.

        An error of the thread is raised here, once it has happened, and again whenever this is called.
        """
        if self.tier == "compiled" or not self._built.is_set():
            return False
        self.active = self._take_compiled()
        self.tier = "compiled"
        return True

    def wait(self) -> None:
        """Wait until the thread has ended, so that `advance` takes the compiled kernels or raises."""
        if self._thread is not None:
            self._thread.join()

    def _take_compiled(self) -> T:
        if self._error is not None:
            raise self._error
        return self._make_compiled()

    def _build(self, kernels: Callable[[], Iterable[Any]]) -> None:
        try:
            build_kernels(self._device, kernels(), self._constants)
            if self._set is not None:
                self._set.note()
        except Exception as error:  # raised in the caller's thread by `advance`
            self._error = error
        self.seconds["compiled"] = time.perf_counter() - self._start
        self._built.set()
