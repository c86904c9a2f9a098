"""The numbers of (H + D) dx = b in device memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphopt.solver.vulkan.data.array import DeviceArray
from graphopt.solver.vulkan.data.layout import BlockLayout
from graphopt.solver.vulkan.program import Context


@dataclass(frozen=True, eq=False)
class Equations:
    """Buffers of one system; the damping D is a vector of its own, H is never changed."""

    context: Context
    layout: BlockLayout
    values: Any
    """Blocks of H; of a matrix-free product the diagonal ones only."""
    b: Any
    damping: Any
    dx: Any
    state: DeviceArray
    """8 uint32, see pcg_state.glsl."""

    @property
    def status(self) -> Any:
        """Buffer of the state."""
        return self.state.buffer
