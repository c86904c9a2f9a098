"""Robust kernels as objects that edges share; changing the delta of one changes it for all its edges."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.types.robust_kernels import robust_kernel


@kernels.leaf_class
class BaseRobustKernel(kernels.KernelWidth):
    """A robust kernel rho(chi2) with a width `delta`."""

    __slots__ = ()
    _number: ClassVar[int] = 0
    _delta: float
    __init__ = kernels.KernelWidth.__init__

    def delta(self) -> float:
        """Width."""
        return self._delta

    def set_delta(self, delta: float) -> None:
        """Change the width."""
        self._delta = float(delta)

    def robustify(self, e2: float, rho: Any = None) -> np.ndarray:
        """(3,) rho, its first and second derivative at chi2 `e2`; also written into an array `rho`."""
        result = self._robustify(float(e2))
        if rho is not None:
            rho[:] = result
        return result

    def _robustify(self, chi2: float) -> np.ndarray:
        function = robust_kernel(self._number).function
        value, weight = (float(number) for number in function(chi2, self._delta))
        step = 1e-6 * max(chi2, 1e-6)
        second = float(function(chi2 + step, self._delta)[1]) - float(
            function(max(chi2 - step, 0.0), self._delta)[1]
        )
        return np.array([value, weight, second / (step + min(step, chi2))])

    def _for_solver(self) -> tuple[int, float]:
        """(number of the kernel, width)."""
        return self._number, self._delta


RobustKernel = BaseRobustKernel


def _kernel_class(name: str) -> type[BaseRobustKernel]:
    number = robust_kernel(name).number
    doc = f"Robust kernel {name}; see `graphopt.types.robust_kernels` for its formula."
    members = {"__slots__": (), "_number": number, "__doc__": doc, "__module__": __name__}
    return kernels.leaf_class(type(f"RobustKernel{name}", (BaseRobustKernel,), members))


RobustKernelCauchy = _kernel_class("Cauchy")
RobustKernelDCS = _kernel_class("DCS")
RobustKernelFair = _kernel_class("Fair")
RobustKernelGemanMcClure = _kernel_class("GemanMcClure")
RobustKernelHuber = _kernel_class("Huber")
RobustKernelPseudoHuber = _kernel_class("PseudoHuber")
RobustKernelSaturated = _kernel_class("Saturated")
RobustKernelTukey = _kernel_class("Tukey")
RobustKernelWelsch = _kernel_class("Welsch")


class RobustKernelScaleDelta(BaseRobustKernel):
    """Another kernel on the error scaled by 1 / delta; without one it changes nothing."""

    __slots__ = ("_inner",)
    _number = robust_kernel("ScaleDelta").number

    def __init__(self, kernel: Any = None, delta: float = 1.0) -> None:
        if kernel is not None and not isinstance(kernel, BaseRobustKernel):
            kernel, delta = None, float(kernel)
        self._inner: BaseRobustKernel | None = kernel
        kernels.KernelWidth.__init__(self, delta)

    def kernel(self) -> BaseRobustKernel | None:
        """The inner kernel."""
        return self._inner

    def set_kernel(self, ptr: BaseRobustKernel | None) -> None:
        """Replace the inner kernel."""
        self._inner = ptr

    def _robustify(self, chi2: float) -> np.ndarray:
        if self._inner is None:
            return np.array([chi2, 1.0, 0.0])
        squared = self._delta * self._delta
        value, first, second = self._inner._robustify(chi2 / squared)
        return np.array([value * squared, first, second / squared])

    def _for_solver(self) -> tuple[int, float]:
        """The equivalent plain kernel: scaling the error scales the inner width, squared where it is not."""
        if self._inner is None:
            return 0, 1.0
        number, width = self._inner._for_solver()
        is_squared = robust_kernel(number).name in ("GemanMcClure", "DCS")  # their width compares with chi2
        return number, width * (self._delta**2 if is_squared else self._delta)


KERNEL_CLASSES: dict[int, type[BaseRobustKernel]] = {
    kernel._number: kernel
    for kernel in (
        RobustKernelCauchy,
        RobustKernelDCS,
        RobustKernelFair,
        RobustKernelGemanMcClure,
        RobustKernelHuber,
        RobustKernelPseudoHuber,
        RobustKernelSaturated,
        RobustKernelScaleDelta,
        RobustKernelTukey,
        RobustKernelWelsch,
    )
}
"""Number -> class."""


class RobustKernelFactory:
    """Robust kernels by name."""

    @staticmethod
    def instance() -> RobustKernelFactory:
        """The factory."""
        return RobustKernelFactory()

    def known_kernels(self) -> list[str]:
        """Names."""
        return sorted(robust_kernel(number).name for number in KERNEL_CLASSES)

    def fill_known_kernels(self) -> list[str]:
        """Names, as older bindings call it."""
        return self.known_kernels()

    def construct(self, name: str) -> BaseRobustKernel | None:
        """A new kernel of this name, None if it is unknown."""
        try:
            return KERNEL_CLASSES[robust_kernel(name).number]()
        except (KeyError, OptionError):
            return None
