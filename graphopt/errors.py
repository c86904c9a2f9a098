"""Errors that graphopt raises on purpose. Each says what, where, what was expected and the way out."""

from __future__ import annotations

from graphopt.error_codes import cause_of, with_code, without_code


class GraphOptError(Exception):
    """Root of every error this package raises on purpose.

    Its text ends with the command that explains its `code`.
    """

    @property
    def code(self) -> str:
        """Code of the cause, such as "E302"; `graphopt explain E302` prints what it means and the way out."""
        cause = cause_of(type(self), without_code(self._message()))
        assert cause is not None, "GraphOptError itself has a cause"
        return cause.code

    def _message(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()

    def __str__(self) -> str:
        text = without_code(self._message())
        return with_code(text, self.code) if text else text


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


class TypeRegistryError(GraphOptError, KeyError):
    """A vertex, edge or parameter type is unknown or defined twice."""


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
