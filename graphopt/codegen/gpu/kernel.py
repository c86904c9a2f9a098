"""A generated kernel, and the parts that all of them have: header, buffers, loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphopt.codegen.assignment import Assignment
from graphopt.codegen.glsl import Arithmetic, write
from graphopt.codegen.gpu.layout import (
    EdgeSignature,
    argument_names,
    narrow_record_dim,
    numbered,
    record_dim,
)
from graphopt.codegen.edge import information_dim
from graphopt.codegen.program import Program

PUSH_CONSTANT_BYTES = 128
"""What Vulkan guarantees."""


@dataclass(frozen=True)
class GpuKernel:
    """GLSL of one kernel and how to call it."""

    name: str
    source: str
    """GLSL; includes common.glsl and generated*.glsl."""
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
class Load:
    """An input of a function: where its value is read."""

    name: str
    kind: str
    """"wide" or "real"."""
    expression: str


@dataclass
class Interface:
    """Buffers and push constants while a kernel is written."""

    params: tuple[str, ...]
    buffers: dict[str, str] = field(default_factory=dict)
    """Name -> declaration macro with its type, without the slot."""

    def add(self, name: str, declaration: str) -> None:
        """Declare a buffer: `INPUT(%, uint, rows)`, where % stands for the slot."""
        self.buffers[name] = declaration

    def text(self) -> str:
        """Declarations, in order."""
        lines = [f"PARAMETERS({' '.join(f'uint {name};' for name in self.params)})"]
        lines += [line.replace("%", str(slot)) for slot, line in enumerate(self.buffers.values())]
        return "\n".join(lines)


def edge_loads(signature: EdgeSignature, narrow: bool) -> list[list[Load]]:
    """Inputs of an edge's program in its order: one list per vertex, parameter, and for the data.

    narrow: read the float32 copies.
    """
    kind = signature.edge_type
    names = argument_names(kind)
    number_kind = "real" if narrow else "wide"
    groups: list[list[Load]] = []
    dim_of = narrow_record_dim if narrow else record_dim
    for k, (name, one) in enumerate(zip(names, [*kind.vertices, *kind.parameters], strict=False)):
        buffer = record_buffer(signature, k, narrow)
        stride = dim_of(one.storage_dim)
        groups.append(
            [
                Load(entry, number_kind, f"{buffer}.at[{name}_row * {stride} + {i}]")
                for i, entry in enumerate(numbered(name, one.storage_dim))
            ]
        )
    data = numbered(names[-1], kind.measurement_dim)
    data = [*data, *numbered("omega", information_dim(kind.residual_dim, signature.information))]
    data = [*data, *(["width"] if signature.kernel else [])]
    buffer = "data_narrow" if narrow else "data"
    expression = f"{buffer}.at[blocked(e, %, {signature.num_data})]"
    groups.append([Load(x, number_kind, expression.replace("%", str(i))) for i, x in enumerate(data)])
    return groups


def record_buffer(signature: EdgeSignature, k: int, narrow: bool) -> str:
    """Buffer of vertex slot or parameter slot k, counted together; slots of one type share the first one's."""
    if k < signature.arity:
        return f"{'narrow' if narrow else 'estimate'}{signature.set_of_slot(k)}"
    number = signature.set_of_parameter(k - signature.arity)
    return f"{'parameter_narrow' if narrow else 'parameter'}{number}"


def declare_inputs(interface: Interface, signature: EdgeSignature, narrow: bool) -> None:
    """Buffers that `edge_loads` reads."""
    for k in range(signature.num_rows):
        name = record_buffer(signature, k, narrow)
        interface.add(name, f"INPUT(%, {'real' if narrow else 'wide'}, {name})")
    interface.add("rows", "INPUT(%, uint, rows)")
    if narrow:
        interface.add("data_narrow", "INPUT(%, real, data_narrow)")
    else:
        interface.add("data", "INPUT(%, wide, data)")


def load_lines(
    signature: EdgeSignature, groups: Sequence[Sequence[Load]], used: set[str], keep_rows: Iterable[str] = ()
) -> list[str]:
    """Text that reads the used inputs of edge `e`; `keep_rows`: names whose row is read in any case."""
    lines = []
    names = argument_names(signature.edge_type)
    rows = set(keep_rows)
    for k, group in enumerate(groups):
        wanted = [load for load in group if load.name in used]
        if k < signature.num_rows and (wanted or names[k] in rows):
            lines.append(f"const uint {names[k]}_row = rows.at[blocked(e, {k}, {signature.num_rows})];")
        lines += [f"const {load.kind} {load.name} = {load.expression};" for load in wanted]
    return lines


@dataclass(frozen=True)
class Body:
    """Statements of a function inside a kernel."""

    lines: list[str]
    outputs: dict[str, str]
    flops: int
    registers: int
    used: set[str]


def edge_body(
    assignment: Assignment,
    guides: Sequence[str],
    wanted: Sequence[str],
    loads: Sequence[Load],
    arithmetic: Arithmetic,
    wide_outputs: Sequence[str] = (),
) -> Body:
    """Statements for the wanted outputs; what the guides need is computed in wide numbers."""
    wide = assignment.needed_by(guides)
    kept = assignment.keep(wanted)
    kinds = {load.name: load.kind for load in loads}
    text = write(kept, kinds, arithmetic, wide, dict.fromkeys(wide_outputs, "wide"))
    return Body(text.lines, text.outputs, kept.num_flops, kept.num_live, kept.inputs())


def describe_type(program: Program, signature: EdgeSignature) -> list[str]:
    """Header lines about the edge type."""
    from graphopt.types.robust_kernels import KERNELS

    kind = signature.edge_type
    names = argument_names(kind)
    vertices = [
        f"{name}: {v.name}, {v.storage_dim} numbers, {v.tangent_dim} tangent"
        for name, v in zip(names, kind.vertices, strict=False)
    ]
    parameters = [
        f"{name}: {p.name}, {p.storage_dim} numbers"
        for name, p in zip(names[signature.arity :], kind.parameters, strict=False)
    ]
    tag = getattr(kind, "tag", "")
    return [
        f"{kind.name}{f' ({tag})' if tag else ''}: residual e of {kind.residual_dim}",
        *(f"  {line}" for line in (*vertices, *parameters)),
        f"  {names[-1]}: measurement, {kind.measurement_dim} numbers",
        f"  omega: information, {signature.information}; robust kernel: {KERNELS[signature.kernel].name}",
    ]


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
) -> GpuKernel:
    """Put a kernel's text together."""
    comment = [
        *header,
        f"{body.flops} operations, at most {body.registers} values alive; arithmetic: {arithmetic}",
        "Generated by graphopt.codegen.gpu.",
    ]
    parts = [
        "#version 450",
        *(f"// {line}" for line in comment),
        "#extension GL_GOOGLE_include_directive : require",
        f"#define NUM_BUFFERS {len(interface.buffers)}",
        *(["#define GRAPHOPT_TABLE"] if table_is_needed(len(interface.buffers), len(interface.params)) else []),
        *(["#define GRAPHOPT_TWO_FLOAT"] if arithmetic == "two_float" else []),
        '#include "common.glsl"',
        '#include "generated.glsl"',
        '#include "generated_math.glsl"',
        interface.text(),
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
    )


def indent(lines: Iterable[str], by: int = 1) -> list[str]:
    """Lines moved to the right."""
    return [f"{'  ' * by}{line}" for line in lines]
