"""A generated kernel, and the parts that all of them have: header, buffers, loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphopt.codegen.assignment import Assignment
from graphopt.codegen.glsl import Arithmetic, Text, write
from graphopt.codegen.gpu.inputs import Load
from graphopt.codegen.gpu.interface import Interface

PUSH_CONSTANT_BYTES = 128
"""What Vulkan guarantees."""


@dataclass(frozen=True)
class GpuKernel:
    """GLSL of one kernel and how to call it."""

    name: str
    source: str
    """GLSL; includes common.glsl, generated*.glsl and, to sample images, sampling.glsl."""
    arithmetic: Arithmetic
    buffers: tuple[str, ...]
    """Names in binding order."""
    params: tuple[str, ...]
    """Names of the push constants, unsigned 32-bit integers."""
    constants: Mapping[int, int]
    """Specialization constants and their values; 0 is the workgroup size."""
    flops: int
    """Operations per edge (oplus: per vertex); a multiply-add counts 2, a transcendental function 1."""
    registers: int
    """Values alive at the same time, at most, in the order of the text; constants not counted."""
    num_outputs: int
    """Numbers that an edge (oplus: a vertex) contributes."""
    far: frozenset[str] = frozenset()
    """Buffers that are reached with 64 bits: only these may take 4 GiB and more."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Buffers of places, and the specialization constants that say that they are regular."""

    @property
    def has_table(self) -> bool:
        """Whether, of buffers reached by address, the addresses are too many for push constants.

        They are then in a table, which is another buffer; recorders see to it.
        """
        return table_is_needed(len(self.buffers), len(self.params))

    @property
    def workgroup_size(self) -> int:
        """Invocations of a workgroup."""
        return self.constants[0]

    @property
    def precision(self) -> str:
        """Type of H, b and dx: "double" or "mixed"."""
        return "double" if self.arithmetic == "double" else "mixed"


def table_is_needed(num_buffers: int, num_params: int) -> bool:
    """Whether addresses and parameters exceed the push constants that every device has."""
    return 8 * num_buffers + 4 * num_params > PUSH_CONSTANT_BYTES


@dataclass(frozen=True)
class Body:
    """Statements of a function inside a kernel."""

    lines: list[str]
    outputs: dict[str, str]
    flops: int
    registers: int
    used: set[str]
    samples_images: bool = False


def edge_body(
    assignment: Assignment,
    wide: set[str],
    requested: Sequence[str],
    loads: Sequence[Load],
    arithmetic: Arithmetic,
    wide_outputs: Sequence[str] = (),
) -> Body:
    """Statements for the requested outputs; the values in `wide` are computed in wide numbers."""
    kept = assignment.keep(requested)
    kinds = {load.name: load.kind for load in loads}
    text = write(kept, kinds, arithmetic, wide, dict.fromkeys(wide_outputs, "wide"))
    return body_of(kept, text)


def body_of(function: Assignment, text: Text) -> Body:
    """An assignment and its text."""
    sizes = function.num_flops, function.num_live
    return Body(text.lines, text.outputs, *sizes, function.inputs(), function.samples_images)


def closed_forms(assignment: Assignment, groups: Sequence[Sequence[Load]]) -> set[str]:
    """Values of a product that are computed in wide numbers even from float32 copies.

    These are what a `select` chooses between where it depends on more than one vertex: closed forms near
    their singularity, (t - sin t) / t^3 and their derivatives, lose all digits of a float32. Those of one
    vertex (the exponential of its rotation) stay float32: their errors are multiplied by the angle again.
    """
    return assignment.cone(closed_choices(assignment, groups))


def closed_choices(assignment: Assignment, groups: Sequence[Sequence[Load]]) -> set[str]:
    """What a `select` chooses between where it depends on more than one vertex, see `closed_forms`.

    Not where the kernel width decides: a robust kernel's branches are no closed forms near a singularity.
    """
    owner = {load.name: k for k, group in enumerate(groups) for load in group}
    owners: dict[str, frozenset[int]] = {name: frozenset({k}) for name, k in owner.items()}
    of_width, found = {"width"}, set[str]()
    for statement in assignment.statements:
        names = statement.names()
        of_sources = [owners.get(name, frozenset()) for name in names]
        owners.update(dict.fromkeys(statement.targets, frozenset().union(*of_sources)))
        if not of_width.isdisjoint(names):
            of_width.update(statement.targets)
        if statement.operation == "SELECT" and statement.sources[0] not in of_width:
            found.update(name for name in statement.sources[1:] if isinstance(name, str))
    return {name for name in found if len(owners.get(name, ())) > 1}


def compose(
    name: str,
    interface: Interface,
    header: Sequence[str],
    main: Sequence[str],
    arithmetic: Arithmetic,
    body: Body,
    workgroup_size: int,
    num_outputs: int,
    declarations: Sequence[str] = (),
    macros: Sequence[str] = (),
) -> GpuKernel:
    """Put a kernel's text together; one that samples images gets the buffers of their planes."""
    if body.samples_images:
        interface.add("planes", "RECORDS(%, uvec4, planes)")
        interface.add("pixels", "INPUT(%, float, pixels)")
    comment = [
        *header,
        f"{body.flops} operations, at most {body.registers} values alive; arithmetic: {arithmetic}",
        "Generated by graphopt.codegen.gpu.",
    ]
    parts = [
        "#version 450",
        *(f"// {_plain(line)}" for line in comment),
        "#extension GL_GOOGLE_include_directive : require",
        f"#define NUM_BUFFERS {len(interface.buffers)}",
        *(
            ["#define GRAPHOPT_TABLE"]
            if table_is_needed(len(interface.buffers), len(interface.params))
            else []
        ),
        *(["#define GRAPHOPT_TWO_FLOAT"] if arithmetic == "two_float" else []),
        '#include "common.glsl"',
        '#include "generated.glsl"',
        '#include "generated_math.glsl"',
        *macros,
        interface.text(),
        *(['#include "sampling.glsl"'] if body.samples_images else []),
        *declarations,
        "",
        "void main() {",
        *(f"  {line}" if line else "" for line in main),
        "}",
        "",
    ]
    return GpuKernel(
        name,
        "\n".join(parts),
        arithmetic,
        tuple(interface.buffers),
        interface.params,
        {0: workgroup_size},
        body.flops,
        body.registers,
        num_outputs,
        interface.far,
        dict(interface.places),
    )


def _plain(text: str) -> str:
    """Text of a comment: a user's names may hold anything, a backslash at the end would join lines."""
    return text.translate({10: " ", 13: " ", 92: "/"}).encode("ascii", "replace").decode()


def indent(lines: Iterable[str], by: int = 1) -> list[str]:
    """Lines moved to the right."""
    return [f"{'  ' * by}{line}" for line in lines]
