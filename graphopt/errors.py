"""Errors that graphopt raises on purpose. Each says what, where, what was expected and the way out."""

from __future__ import annotations


class GraphOptError(Exception):
    """Root of every error this package raises on purpose."""


class OptionError(GraphOptError, ValueError):
    """An option has a value that cannot work."""


class UnknownOptionError(OptionError, TypeError):
    """A function has no option of this name."""


class PluginError(OptionError):
    """Something that another package, or the program, adds to this one is broken."""


class ShapeError(GraphOptError, ValueError):
    """An array has the wrong shape or type."""


class GraphError(GraphOptError, ValueError):
    """The graph is inconsistent: an edge names a missing vertex, an id is used twice, ..."""


class UnknownIdError(GraphError, KeyError):
    """No vertex, edge or parameter has this id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TypeRegistryError(GraphOptError, KeyError):
    """A vertex, edge or parameter type is unknown or defined twice."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class FormatError(GraphOptError, ValueError):
    """A file does not follow its format. The message starts with `path:line:`."""


class SymbolicError(GraphOptError, TypeError):
    """A residual function does something that cannot be compiled."""


class SolverError(GraphOptError, RuntimeError):
    """The optimizer or a linear solver failed."""


class GradientError(SolverError):
    """The derivative of an optimum does not exist, or cannot be trusted."""


class HostMemoryError(GraphOptError, MemoryError):
    """The host has too little memory. The message says what it was needed for."""


class DeviceError(GraphOptError, RuntimeError):
    """A device is missing, lost, or lacks what was asked of it."""


class DeviceLimitError(DeviceError):
    """The problem is larger than the kernels of a device count or reach; the CPU has no such limit."""


class Stopped(GraphOptError):
    """A long native call ended early because it was asked to; its result is not usable. Stays inside."""
