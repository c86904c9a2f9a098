"""Kernels of device functions: one invocation per row, or per target of sums by an index.

rows          result[i] = f(a[row of i], b[row of i], ...)
sum           partial[j, g] = sum over the rows i of workgroup g of f_j(i); batch_fold adds up the groups
indexed sum   result[t] = sum over k in [first[t], first[t + 1]) of f(row order[k]): no atomics, fixed order
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.codegen.assignment import assign
from graphopt.codegen.gpu.inputs import Load
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, compose, edge_body, indent
from graphopt.codegen.gpu.layout import numbered
from graphopt.codegen.program import Program

WORKGROUP = 64
ROW = {"sequential": "i", "indexed": "rows_{}.at[i]", "unique": "0"}
"""Access -> the row that invocation i reads."""


def function_kernel(
    program: Program, arguments: Sequence[tuple[str, str, int]], result: str, double: bool
) -> GpuKernel:
    """Kernel of a program; arguments: (name, access, numbers per row) in the order of its inputs."""
    outputs = numbered("result", program.num_outputs)
    loads = [
        Load(f"{name}_{k}", "real", f"{name}.at[{ROW[access].format(name)} * {dim} + {k}]")
        for name, access, dim in arguments
        for k in range(dim)
    ]
    assignment = assign(program, [load.name for load in loads], outputs)
    arithmetic = "double" if double else "two_float"
    body = edge_body(assignment, set(), outputs, loads, arithmetic)
    interface = Interface(("num_rows", "num_groups"))
    for name, access, _ in arguments:
        interface.add(name, f"INPUT(%, real, {name})")
        if access == "indexed":
            interface.add(f"rows_{name}", f"INPUT(%, uint, rows_{name})")
    if result == "indexed sum":
        interface.add("first", "INPUT(%, uint, first)")
        interface.add("order", "INPUT(%, uint, order)")
    interface.add("values", "OUTPUT(%, real, values)")
    values = [body.outputs[name] for name in outputs]
    read = [f"const real {load.name} = {load.expression};" for load in loads if load.name in body.used]
    main = _MAIN[result]([*read, *body.lines], values)
    header = [
        f"{program.name}: {result} of {', '.join(f'{name} ({access})' for name, access, _ in arguments)}"
    ]
    macros = ['#include "reduce.glsl"'] if result == "sum" else []
    return compose(
        program.name, interface, header, main, arithmetic, body, WORKGROUP, len(outputs), macros=macros
    )


def _rows(lines: list[str], values: list[str]) -> list[str]:
    return [
        "const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (i >= push.num_rows) return;",
        *lines,
        *(f"values.at[i * {len(values)} + {j}] = {value};" for j, value in enumerate(values)),
    ]


def _sum(lines: list[str], values: list[str]) -> list[str]:
    count = len(values)
    return [
        f"accumulator total[{count}];",
        f"for (uint j = 0; j < {count}; ++j) total[j] = sum_zero();",
        "const uint own = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (own < push.num_rows) {",
        "  const uint i = own;",
        *indent(lines),
        *(f"  total[{j}] = sum_of({value});" for j, value in enumerate(values)),
        "}",
        f"for (uint j = 0; j < {count}; ++j) {{",
        "  const accumulator s = workgroup_sum(total[j]);",
        "  if (LANE == 0) values.at[j * push.num_groups + WORKGROUP] = value(s);",
        "}",
    ]


def _indexed_sum(lines: list[str], values: list[str]) -> list[str]:
    count = len(values)
    return [
        "const uint t = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (t >= push.num_rows) return;",
        f"accumulator total[{count}];",
        f"for (uint j = 0; j < {count}; ++j) total[j] = sum_zero();",
        "for (uint k = first.at[t]; k < first.at[t + 1]; ++k) {",
        "  const uint i = order.at[k];",
        *indent(lines),
        *(f"  total[{j}] = add(total[{j}], {value});" for j, value in enumerate(values)),
        "}",
        f"for (uint j = 0; j < {count}; ++j) values.at[t * {count} + j] = value(total[j]);",
    ]


_MAIN = {"rows": _rows, "sum": _sum, "indexed sum": _indexed_sum}
