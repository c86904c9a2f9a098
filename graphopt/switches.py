"""Optimizations that tests switch off: `GRAPHOPT_WITHOUT="reuse,dissection"` in the environment.

Each has a slower way that gives the same answer, which takes its place. Looked at whenever the choice is
made; `machine_code` also by `native/src/vm/program.cpp`, when a program is made.
"""

from __future__ import annotations

import os

from graphopt.errors import OptionError

SWITCHES = {
    "reuse": "the block solver of a graph's last call serves the next one",
    "speculation": "H and b along with the chi2 of a trial, devices that start before changes are looked for",
    "native_loop": "all iterations of a small system without Python between them",
    "machine_code": "programs of built-in types as compiled C++ instead of bytecode",
    "dissection": "nested dissection where it orders better than approximate minimum degree",
    "fused_kernels": "one kernel for all edges of a vertex type's sums, instead of one per view",
    "regular_places": "kernels that compute where numbers are, instead of reading it",
    "mixed": "float32 for H and its products on devices that have float64",
}
_VARIABLE = "GRAPHOPT_WITHOUT"


def is_off(name: str) -> bool:
    """Whether an optimization is switched off."""
    asked = os.environ.get(_VARIABLE)
    if not asked:
        return False
    names = {each.strip() for each in asked.split(",")}
    if unknown := sorted(names - SWITCHES.keys()):
        raise OptionError(f"{_VARIABLE} has '{unknown[0]}', expected some of {', '.join(SWITCHES)}.")
    return name in names
