"""Kernels that a software driver would compile for longer than anybody waits for them.

A software driver (Mesa's llvmpipe) turns each kernel into machine code with LLVM, which for straight-line
text in float64 takes about 2 ms of a core per operation of the text: LLVM's instruction scheduling and
register allocation, not our code generation, which takes a tenth of that. An edge on four poses along an
SE(3) spline has 15,000 operations in its equations; the eleven kernels of its slots and pairs of slots had
190 s of a core, and the CPU's own programs of the same edge 0.8 s.
"""

from __future__ import annotations

from graphopt.device import Device
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge
from graphopt.types.base import working_edge_type
from graphopt.vulkan.plan.few_edges import is_collected

SECONDS_PER_OPERATION = 2e-3
"""Of one core, of Mesa 22 with LLVM 15 on a processor of 2023; measured with kernels of 2,000 to 15,000."""
MOST_SECONDS = 60.0


def compile_seconds(structure: Structure) -> float:
    """Estimated time of a software driver for the kernels of H and b [s], of one core."""
    return SECONDS_PER_OPERATION * sum(_operations(group) for group in structure.groups)


def host_note(device: Device, structure: Structure) -> str:
    """Why the CPU linearises instead of this device; empty: nothing speaks against the device's kernels."""
    if device.info["kind"] != "cpu" or structure.external:
        return ""
    seconds = compile_seconds(structure)
    if seconds <= MOST_SECONDS:
        return ""
    largest = max(structure.groups, key=_operations).edge_set.type
    return (
        f"The CPU computes H and b: {device.name} is a software driver, which would compile the kernels of "
        f"{largest.name} and other edges for about {seconds:.0f} s. schedule='blocks' has it do so."
    )


def _operations(group: EdgeGroup) -> float:
    """In the text of the kernels of a group.

    Each kernel of a slot or of a pair of slots has the residual and about half of all Jacobians; one that
    collects what slot b adds has those of b and of the slots before it.
    """
    edge_type = working_edge_type(group.edge_set.type)
    compiled = compiled_edge(edge_type, group.information, group.kernel)
    arity = len(edge_type.vertices)
    num_kernels = arity if is_collected(group) else arity * (arity + 1) // 2
    whole = compiled.linearize.num_flops
    return compiled.chi2.num_flops + (whole if arity == 1 else num_kernels * whole / 2)
