"""How fast a factorization goes on a device and on the CPU, for cost models.

    device   operations / (share of the measured rate) + panels * (a chain of 32 pivots + its dispatches)
    CPU      operations / (rate of a core * cores) + panels * what its threads wait for each other
             + the way of the matrix there and of x back

Measured on an H200 and 16 cores of its host: the chain with 441 to 4,000
dense rows, 25 us for 32 columns with both solves and three dispatches, the share with 4,000 (trailing updates
alone), the CPU's rate with spheres of 2,500 (10), 10,000 (21) and 100,000 poses (16 GFLOP/s per core), its
waiting from trials of ladybug-49.
"""

from __future__ import annotations

from graphopt.device.figures import DeviceFigures

DEVICE_SHARE = 0.4
"""Of the multiply-add rate, in tiles."""
PANEL_SECONDS = 1.2e-5
"""32 pivots one after the other, which every row below waits for, with the columns before them."""
STEP_SECONDS = 3e-6
"""32 rows of a triangular solve, likewise."""
PANEL = 32
CORE_FLOPS = 1.5e10
"""A core's rate on fronts, without waiting for others."""
CORE_PANEL_SECONDS = 2e-5
"""64 columns of a front that all threads share: three times they wait for each other."""
CORE_PANEL = 64
TRANSFER_BYTES = 8e9
ROUND_TRIP = 2e-4
"""One more submission and the wait for it."""


def panel_seconds(figures: DeviceFigures) -> float:
    """What 32 columns add to the longest chain of a factorization with one solve, beside its operations."""
    return PANEL_SECONDS + 2.0 * STEP_SECONDS + 3.0 * figures.dispatch_seconds


def cpu_panels_seconds(columns: float) -> float:
    """What so many columns, one after the other, add on the CPU beside their operations."""
    return CORE_PANEL_SECONDS * columns / CORE_PANEL


def device_rate(figures: DeviceFigures) -> float:
    """Operations per second of a factorization on the device, in float64 where it has it."""
    return DEVICE_SHARE * figures.flops("double" if figures.float64_flops else "mixed")
