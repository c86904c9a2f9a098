"""Schedule "matrix-free": nothing is stored but H's diagonal blocks, products compute the Jacobians anew.

The least memory, and the fastest where the device computes a Jacobian in the time of reading it: the large
bundle adjustments of the benchmark.
"""

from __future__ import annotations

from graphopt.vulkan.operators.interface import EdgeSchedule


class MatrixFree(EdgeSchedule):
    """As the interface has it."""
