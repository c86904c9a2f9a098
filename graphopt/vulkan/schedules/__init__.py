"""Ways to store H, to evaluate edges and to sum over them, each in a file of its own and found by its name.

    blocks, matrix-free, jacobians, jp                 what products of the conjugate gradients start from
    gather, scatter, collect                           who evaluates edges for H and b
    merged                                             sums of several edge sets by one kernel
    host                                               the CPU linearises, where no kernels are compiled
    lookup                                             an explicit Schur complement without a work queue

`interface` says what a schedule is. The core knows names only; `auto` takes none whose `wins` is False.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {"gather": "interface"}
"""Modules of schedules that are not called like them."""


def schedule(name: str) -> Any:
    """The class of a schedule for the products of an edge set, or of an evaluation."""
    module = _MODULES.get(name, name.replace("-", "_"))
    return import_module(f"graphopt.vulkan.schedules.{module}").SCHEDULES[name]
