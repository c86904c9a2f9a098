"""How fast a factorization goes on a device and on the CPU, for cost models.

    device   operations / (share of the measured rate) + panels * (a chain of 32 pivots + its dispatches)
    CPU      operations / (rate of a core * cores) + the way of the matrix there and of x back

Measured on an H200: the share with 16,002 dense rows (`benchmarks/device_cholesky.py`), the chain from what a
trial of ladybug-49 with its 441 dense rows takes beside linearisation and elimination.
"""

from __future__ import annotations

from graphopt.device.figures import DeviceFigures

DEVICE_SHARE = 0.35
"""Of the multiply-add rate, in tiles."""
PANEL_SECONDS = 3.5e-5
"""32 pivots one after the other, which every row below waits for, with the columns before them."""
STEP_SECONDS = 1.2e-5
"""32 rows of a triangular solve, likewise."""
PANEL = 32
CORE_FLOPS = 1.5e10
"""A core's rate on fronts, without waiting for others."""
TRANSFER_BYTES = 8e9
ROUND_TRIP = 1e-4


def panel_seconds(figures: DeviceFigures) -> float:
    """What 32 columns add to the longest chain of a factorization with one solve, beside its operations."""
    return PANEL_SECONDS + 2.0 * STEP_SECONDS + 3.0 * figures.dispatch_seconds


def device_rate(figures: DeviceFigures) -> float:
    """Operations per second of a factorization on the device, in float64 where it has it."""
    return DEVICE_SHARE * figures.flops("double" if figures.float64_flops else "mixed")
