"""What the views of an edge group store in schedule "expressions", on a device.

The cut of a view (`codegen.gpu.expression_cuts`) depends on how many operations the device does in the time
of a byte and of a scattered read: powers of two, so that a figure measured a little differently makes the
same kernels.
"""

from __future__ import annotations

from math import log2

from graphopt.codegen.gpu import EdgeSignature
from graphopt.codegen.gpu.cuts import Balance
from graphopt.codegen.gpu.expression_cuts import ViewCut, view_cut
from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.solver.vulkan.edge_views import MANY_EDGES
from graphopt.solver.vulkan.generated import arithmetic_for

EFFICIENCY = 0.6
"""Of bandwidth and arithmetic that whole kernels reach."""
STREAM_EFFICIENCY = 0.9
"""Of bandwidth where a kernel reads one long array, measured on an H200."""
REUSE = 2.0
"""Of the same record by neighbouring edges, measured on an H200."""
_TWO_FLOAT_FLOPS = 16.0
"""Operations in float32 of one with two floats."""


def balance_of(figures: DeviceFigures, precision: Precision) -> Balance:
    """What a device does in the time of one operation of a precision's products."""
    flops = EFFICIENCY * figures.flops(precision)
    wide = figures.float32_flops / figures.float64_flops if figures.float64_flops else _TWO_FLOAT_FLOPS
    return Balance(
        byte=_power_of_two(flops / (STREAM_EFFICIENCY * figures.bytes_per_second)),
        gather=_power_of_two(flops / (REUSE * figures.gathers_per_second)),
        wide=_power_of_two(max(wide, 1.0)),
    )


def _power_of_two(value: float) -> float:
    return 2.0 ** round(log2(value))


def shared_slots(structure: Structure, group: EdgeGroup) -> tuple[bool, ...]:
    """Per slot whether its vertices have so many edges each that products take a workgroup per vertex."""
    counts = [int((structure.vertex_blocks[number] >= 0).sum()) for number in group.vertex_sets]
    return tuple(len(group.rows) >= MANY_EDGES * max(count, 1) for count in counts)


def cut_of(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    shares: bool,
    figures: DeviceFigures,
    precision: Precision,
) -> ViewCut:
    """What the view of a slot stores for products from x of `sources`; shares: `shared_slots`."""
    arithmetic = arithmetic_for(precision, figures.float64_flops > 0.0)
    return view_cut(signature, slot, sources, arithmetic, balance_of(figures, precision), shares)
