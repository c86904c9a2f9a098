"""Robust kernels: g2o's, by number and by name.

An edge with error e has the squared error s = e' Omega e. A robust kernel of width delta replaces it by rho(s) in chi2,
and its derivative weights the edge in H and b:

    chi2 = sum rho(s),    H = sum w J' Omega J,    b = -sum w J' Omega e,    w = rho'(s)

g2o's DCS uses w = scale^2, which is not the derivative of its rho; it is kept, for the same answers.

Each function maps (s, delta) to (rho, w). They are written for numpy arrays and for the symbols of the compiler alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import OptionError


@dataclass(frozen=True, eq=False)
class RobustKernel:
    """One robust kernel."""

    number: int
    """What `EdgeSet.kernel` holds. 0 is no kernel."""
    name: str
    """g2o's name without the prefix RobustKernel."""
    rho: Callable[[Any, Any], tuple[Any, Any]]
    """(squared error, width) -> (rho, weight)."""


def _huber(s, delta):
    inside = s <= delta * delta
    root = np.sqrt(np.where(inside, delta * delta, s))
    return np.where(inside, s, 2.0 * root * delta - delta * delta), np.where(inside, 1.0, delta / root)


def _pseudo_huber(s, delta):
    root = np.sqrt(s / (delta * delta) + 1.0)
    return 2.0 * delta * delta * (root - 1.0), 1.0 / root


def _cauchy(s, delta):
    ratio = s / (delta * delta) + 1.0
    return delta * delta * np.log(ratio), 1.0 / ratio


def _geman_mcclure(s, delta):
    ratio = delta / (delta + s)
    return s * ratio, ratio * ratio


def _welsch(s, delta):
    weight = np.exp(-s / (delta * delta))
    return delta * delta * (1.0 - weight), weight


def _fair(s, delta):
    ratio = np.sqrt(s) / delta
    return 2.0 * delta * delta * (ratio - np.log(1.0 + ratio)), 1.0 / (1.0 + ratio)


def _tukey(s, delta):
    inside = s <= delta * delta
    rest = np.where(inside, 1.0 - s / (delta * delta), 0.0)
    return delta * delta * (1.0 - rest * rest * rest) / 3.0, rest * rest


def _saturated(s, delta):
    inside = s <= delta * delta
    return np.where(inside, s, delta * delta), np.where(inside, 1.0, 0.0)


def _dcs(s, delta):
    scale = np.minimum(2.0 * delta / (delta + s), 1.0)
    return scale * scale * s, scale * scale


def _scale_delta(s, delta):
    # g2o's RobustKernelScaleDelta scales an inner kernel; a file or a name gives it none, and then it does nothing.
    return s + 0.0 * delta, 1.0 + 0.0 * s


ROBUST_KERNELS: tuple[RobustKernel, ...] = tuple(
    RobustKernel(number, name, rho)
    for number, (name, rho) in enumerate(
        (
            ("Huber", _huber),
            ("PseudoHuber", _pseudo_huber),
            ("Cauchy", _cauchy),
            ("GemanMcClure", _geman_mcclure),
            ("Welsch", _welsch),
            ("Fair", _fair),
            ("Tukey", _tukey),
            ("Saturated", _saturated),
            ("DCS", _dcs),
            ("ScaleDelta", _scale_delta),
        ),
        start=1,
    )
)
"""All kernels; `ROBUST_KERNELS[number - 1]`."""

_NUMBERS = {kernel.name.lower(): kernel.number for kernel in ROBUST_KERNELS}


def kernel_number(kernel: str | int | None) -> int:
    """Number of a kernel given by name ("Huber", case ignored), number, or None (0)."""
    if kernel is None:
        return 0
    if isinstance(kernel, str):
        name = kernel.lower().removeprefix("robustkernel")
        if name in ("", "none"):
            return 0
        if name in _NUMBERS:
            return _NUMBERS[name]
    elif 0 <= int(kernel) <= len(ROBUST_KERNELS):
        return int(kernel)
    names = ", ".join(one.name for one in ROBUST_KERNELS)
    raise OptionError(f"There is no robust kernel {kernel!r}. Known: {names}, or None.")


def robust_kernel(number: int) -> RobustKernel:
    """The kernel with this number (1 to 10)."""
    return ROBUST_KERNELS[number - 1]
