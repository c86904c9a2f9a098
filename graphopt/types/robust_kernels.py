"""Robust kernels: (chi2, width) -> (rho, weight).

chi2 = e' Omega e is replaced by rho(chi2), and the edge's part of H and b is multiplied by weight =
rho'(chi2). These are g2o's rho[0] and rho[1]; the width is its delta. They work on floats, float arrays and
symbolic scalars, and every derivative is finite at chi2 = 0. Below 0, where an information matrix is not
positive semidefinite, a kernel goes on as the straight line that touches it at 0: rho = chi2, weight 1.
(g2o's formulas have poles and logarithms of negative numbers there.)

    Huber          chi2                          below width^2, else 2 width sqrt(chi2) - width^2
    PseudoHuber    2 w^2 (sqrt(1 + chi2/w^2) - 1)
    Cauchy         w^2 log(1 + chi2/w^2)
    GemanMcClure   w chi2 / (w + chi2)
    Welsch         w^2 (1 - exp(-chi2/w^2))
    Fair           2 w^2 (a - log(1 + a)),       a = sqrt(chi2) / w
    Tukey          w^2/3 (1 - (1 - chi2/w^2)^3)  below width^2, else w^2/3
    Saturated      chi2                          below width^2, else w^2
    DCS            chi2                          below width, else 4 w^2 chi2 / (w + chi2)^2
    ScaleDelta     chi2 (g2o scales an inner kernel with it; alone it does nothing, see `scale_delta`)

A user's own: `@graphopt.robust_kernel_type` on a function of chi2 and width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import numpy as np

from graphopt.errors import OptionError, ShapeError, TypeRegistryError
from graphopt.geometry.arrays import where
from graphopt.symbolic import Expr, const, evaluate, fresh_table, jacobian, lift, var
from graphopt.types.identity import home_of, import_home

Array = Any
KernelFunction = Callable[[Array, Array], tuple[Array, Array]]


def straight_below_zero(kernel: KernelFunction) -> KernelFunction:
    """Decorator: a kernel whose rho(0) is 0 and weight there 1, continued by rho = chi2 below."""

    @wraps(kernel)
    def continued(chi2: Array, width: Array) -> tuple[Array, Array]:
        positive = np.maximum(chi2, 0.0)
        rho, weight = kernel(positive, width)
        return rho + (chi2 - positive), weight

    return continued


def huber(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Quadratic, then linear in |e|."""
    squared = width * width
    inside = chi2 <= squared
    root = np.sqrt(where(inside, 1.0, chi2))
    return where(inside, chi2, 2.0 * width * root - squared), where(inside, 1.0, width / root)


@straight_below_zero
def pseudo_huber(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Smooth variant of Huber."""
    squared = width * width
    root = np.sqrt(1.0 + chi2 / squared)
    return 2.0 * squared * (root - 1.0), 1.0 / root


@straight_below_zero
def cauchy(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Logarithm."""
    squared = width * width
    ratio = 1.0 + chi2 / squared
    return squared * np.log(ratio), 1.0 / ratio


@straight_below_zero
def geman_mcclure(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Bounded by the width; note that the width is not squared."""
    share = width / (width + chi2)
    return chi2 * share, share * share


@straight_below_zero
def welsch(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Bounded by the squared width."""
    squared = width * width
    weight = np.exp(-chi2 / squared)
    return squared * (1.0 - weight), weight


@straight_below_zero
def fair(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Quadratic, then almost linear in |e|."""
    zero = chi2 <= 0.0
    ratio = where(zero, 0.0, np.sqrt(where(zero, 1.0, chi2))) / width
    return 2.0 * width * width * (ratio - np.log(1.0 + ratio)), 1.0 / (1.0 + ratio)


@straight_below_zero
def tukey(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Bounded, with weight zero beyond the width."""
    squared = width * width
    rest = where(chi2 <= squared, 1.0 - chi2 / squared, 0.0)
    return squared * (1.0 - rest * rest * rest) / 3.0, rest * rest


def saturated(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Quadratic, then constant."""
    squared = width * width
    inside = chi2 <= squared
    return where(inside, chi2, squared), where(inside, 1.0, 0.0)


@straight_below_zero
def dcs(chi2: Array, width: Array) -> tuple[Array, Array]:
    """Dynamic covariance scaling (Agarwal et al., ICRA 2013); the weight is negative where chi2 > width."""
    total = width + chi2
    share = 2.0 * width / total
    inside = share >= 1.0
    outside_weight = 4.0 * width * width * (width - chi2) / (total * total * total)
    return where(inside, chi2, share * share * chi2), where(inside, 1.0, outside_weight)


def identity(chi2: Array, width: Array) -> tuple[Array, Array]:
    """No robustification."""
    return 1.0 * chi2, 0.0 * chi2 + 1.0


def scale_delta(inner: KernelFunction, inner_width: float) -> KernelFunction:
    """Kernel that applies another one to chi2 / width^2: g2o's ScaleDelta with an inner kernel."""

    def scaled(chi2: Array, width: Array) -> tuple[Array, Array]:
        squared = width * width
        rho, weight = inner(chi2 / squared, inner_width)
        return squared * rho, weight

    return scaled


@dataclass(frozen=True)
class RobustKernel:
    """A robust kernel with its number in `EdgeSet.kernel`."""

    number: int
    name: str
    """Name in g2o's factory; the class is `RobustKernel` + name."""
    function: KernelFunction
    home: str = ""
    """Of a user's kernel "module:qualified name" of its definition."""

    def __copy__(self) -> RobustKernel:
        return self

    def __deepcopy__(self, memo: object) -> RobustKernel:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return find_kernel, (self.name, self.home)


KERNELS: tuple[RobustKernel, ...] = tuple(
    RobustKernel(number, name, function)
    for number, (name, function) in enumerate(
        (
            ("None", identity),
            ("Huber", huber),
            ("PseudoHuber", pseudo_huber),
            ("Cauchy", cauchy),
            ("GemanMcClure", geman_mcclure),
            ("Welsch", welsch),
            ("Fair", fair),
            ("Tukey", tukey),
            ("Saturated", saturated),
            ("DCS", dcs),
            ("ScaleDelta", identity),
        )
    )
)
"""g2o's kernels; KERNELS[i].number == i, 0 is none."""

_known = list(KERNELS)
_BY_NAME = {kernel.name.lower(): kernel for kernel in KERNELS}


def num_kernels() -> int:
    """Kernels that there are, g2o's and users': numbers are smaller than this."""
    return len(_known)


def robust_kernel_type(function: Callable[[Array, Array], Any]) -> RobustKernel:
    """Decorator: make a robust kernel of `function(chi2, width)` and return it.

    The function returns rho, from which the weight is derived, or (rho, weight). Use the result, or the
    function's name, where edges take a kernel. Defining a name again makes a new kernel; edges that have the
    old one keep it.
    """
    name = function.__name__
    key = _key(name)
    if any(key == kernel.name.lower() for kernel in KERNELS):
        raise TypeRegistryError(f"robust kernel {name!r}: that is a kernel of g2o. Choose another name.")
    try:
        with np.errstate(all="ignore"):
            result = function(np.float64(2.0), np.float64(1.5))
    except Exception as error:
        raise ShapeError(
            f"robust kernel {name!r} cannot be called with (chi2, width): {type(error).__name__}: {error}."
        ) from error
    is_pair = isinstance(result, (tuple, list))
    if np.shape(result) != ((2,) if is_pair else ()):
        raise ShapeError(f"robust kernel {name!r} returned {result!r}, expected rho or (rho, weight).")
    taken = function if is_pair else _with_weight(function)
    kernel = RobustKernel(len(_known), name, taken, home_of(function))
    _known.append(kernel)
    _BY_NAME[key] = kernel
    return kernel


def _with_weight(rho: Callable[[Array, Array], Array]) -> KernelFunction:
    """(rho, weight) with weight = d rho / d chi2, on symbols and on numbers."""

    def on_symbols(chi2: Expr, width: Expr) -> tuple[Expr, Expr]:
        value = lift(rho(chi2, width))
        return value, jacobian([value], [{chi2: const(1.0)}])[0][0]

    @cache
    def traced() -> list[Expr]:
        with fresh_table():
            return list(on_symbols(var("chi2"), var("width")))

    @wraps(rho)
    def function(chi2: Array, width: Array) -> tuple[Array, Array]:
        if isinstance(chi2, Expr):
            return on_symbols(chi2, lift(width))
        value, weight = evaluate(traced(), {"chi2": np.asarray(chi2), "width": np.asarray(width)})
        shape = np.broadcast_shapes(np.shape(chi2), np.shape(width))
        return np.broadcast_to(value, shape)[()], np.broadcast_to(weight, shape)[()]

    return function


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").removeprefix("robustkernel")


def find_kernel(name: str, home: str = "") -> RobustKernel:
    """The kernel that a pickle names; the module that defines it is imported where it is not there yet."""
    if _key(name) not in _BY_NAME and home:
        import_home(home)
    return robust_kernel(name)


def robust_kernel(name: str | int | RobustKernel | None) -> RobustKernel:
    """Kernel of a name (any case, `Huber`, `RobustKernelHuber`, `pseudo_huber`), a number, or None."""
    if isinstance(name, RobustKernel):
        return name
    if name is None:
        return KERNELS[0]
    if isinstance(name, str):
        if _key(name) in _BY_NAME:
            return _BY_NAME[_key(name)]
    elif 0 <= int(name) < len(_known):
        return _known[int(name)]
    raise OptionError(
        f"robust kernel {name!r} is unknown. Known: {', '.join(f'{k.name} ({k.number})' for k in _known)}. "
        "graphopt.robust_kernel_type defines one."
    )
