"""What functions that evaluate a residual ask of its edge type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Residual(Protocol):
    """The arguments of a residual, their sizes, and the function itself; `types.base.EdgeType` is one."""

    @property
    def name(self) -> str:
        """Class name."""
        ...

    @property
    def tag(self) -> str:
        """Tag in files."""
        ...

    @property
    def vertices(self) -> tuple[Any, ...]:
        """Vertex types."""
        ...

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Parameter types."""
        ...

    @property
    def measurement_dim(self) -> int:
        """Length of one stored measurement."""
        ...

    @property
    def residual_dim(self) -> int:
        """Length of the residual."""
        ...

    @property
    def residual(self) -> Callable[..., Any]:
        """(*vertices, *parameters, measurement), wrapped -> (..., residual_dim)."""
        ...

    @property
    def wrap_measurement(self) -> Callable[[Any], Any]:
        """Stored measurement -> what the residual sees."""
        ...

    @property
    def batch_error(self) -> str:
        """What arrays of edges raised, "" if nothing."""
        ...
