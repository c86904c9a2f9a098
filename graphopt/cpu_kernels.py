"""The compiled CPU module that fits this processor.

`kernels` is `_cpu_v4` (AVX-512), `_cpu_v3` (AVX2, FMA) or `_cpu_baseline`, the best one that the processor
runs. The environment variable GRAPHOPT_ISA (baseline, v3, v4) overrides the choice; GRAPHOPT_NUM_THREADS (1
or more) is the number of threads, else as many as cores that the process may use, by its affinity and its
container's limit (`cpu.max`).
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from graphopt.errors import OptionError

_REQUIRED_FLAGS = {
    "v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "baseline": set(),
}


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def _check_threads() -> None:
    """`OptionError` where GRAPHOPT_NUM_THREADS is no number of threads; the module would take all cores."""
    asked = os.environ.get("GRAPHOPT_NUM_THREADS")
    if asked and not (asked.isascii() and asked.isdigit() and int(asked) >= 1):
        raise OptionError(
            f"GRAPHOPT_NUM_THREADS is '{asked}', expected a whole number of at least 1. Unset it to use all "
            "cores of this process."
        )


def load_kernels() -> tuple[str, ModuleType]:
    """Name of the instruction set and its module; `ImportError` says what is missing."""
    _check_threads()
    asked = os.environ.get("GRAPHOPT_ISA")
    if asked is not None and asked not in _REQUIRED_FLAGS:
        raise OptionError(f"GRAPHOPT_ISA is '{asked}', expected one of {', '.join(_REQUIRED_FLAGS)}.")
    flags = _processor_flags()
    for name, required in _REQUIRED_FLAGS.items():
        if asked is not None and name != asked:
            continue
        if not required <= flags:
            continue
        try:
            return name, importlib.import_module(f"graphopt._cpu_{name}")
        except ModuleNotFoundError as error:
            if error.name != f"graphopt._cpu_{name}":
                raise
        except ImportError as error:  # the module is there and does not load
            raise ImportError(
                f"graphopt's CPU module _cpu_{name} cannot be loaded: {error}. It was built for another "
                "system, or a library that it was linked with is gone. Install a wheel: pip install "
                "--force-reinstall graphopt; or build it here: pip install --no-binary graphopt graphopt."
            ) from error
    requested = f"GRAPHOPT_ISA={asked}" if asked else "this processor"
    raise ImportError(
        f"graphopt has no CPU module for {requested}. In a source tree build them with tools/dev_build.sh; "
        "elsewhere install it anew: pip install --force-reinstall graphopt."
    )


isa, kernels = load_kernels()
