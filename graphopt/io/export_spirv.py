"""Kernels of edge types as SPIR-V for the C library, which evaluates edges on a Vulkan device with them.

Two per edge type: `chi2` sums rho over the edges of a workgroup; `linearize` does so and leaves what each
edge adds to H and b, one row of numbers in the order of `codegen.compile_edge`, which
`shaders/gather_blocks.comp` sums by blocks. One invocation evaluates one edge:

    records        estimates in their working form, and parameters, one after the other
    rows           where the records of the edge's vertices and parameters start
    data           measurement, upper triangle of the information, width of the robust kernel
    contributions  what each edge adds
    partial        sum of rho per workgroup

rows and data are in blocks of 64 edges (`blocked` of generated.glsl). Specialization constant 1 chooses the
robust kernel, so one kernel has all of them. Numbers are float64, buffers are reached by address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphopt import codegen
from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.glsl import write
from graphopt.device import spirv
from graphopt.types import EdgeType
from graphopt.types.base import working_edge_type
from graphopt.types.robust_kernels import KERNELS, RobustKernel

GATHER = "gather_blocks.spv"
WORKGROUP = 64
_ACCESS, _PRECISION = "address", "double"


def spirv_files(edges: Mapping[str, EdgeType], kernels: Sequence[RobustKernel]) -> dict[str, bytes]:
    """File name -> SPIR-V of all kernels of edge types by exported tag. ShaderError: no compiler."""
    robust = _robust_function(kernels)
    files = {GATHER: spirv.load("gather_blocks", _ACCESS, _PRECISION)}
    for tag, edge in edges.items():
        for kind in ("chi2", "linearize"):
            name = file_name(tag, kind)
            source = kernel_source(working_edge_type(edge), kind, robust)
            files[name] = spirv.compile_generated(name, source, _ACCESS, _PRECISION)
    return files


def file_name(tag: str, kind: str) -> str:
    """Name of the file of a kernel; different tags have different ones."""
    return f"{re.sub(r'[^A-Za-z0-9_]', lambda found: f'.{ord(found[0]):x}.', tag)}.{kind}.spv"


def kernel_source(edge: EdgeType, kind: str, robust: str) -> str:
    """GLSL of a kernel; edge: between working forms; robust: text of the function of that name."""
    compiled = codegen.compile_edge(edge, "full", KERNELS[0].function)
    program = compiled.chi2 if kind == "chi2" else compiled.linearize
    groups = [*(slot_type.storage_dim for slot_type in (*edge.vertices, *edge.parameters))]
    records = [f"record{k}_{i}" for k, size in enumerate(groups) for i in range(size)]
    num_data = edge.measurement_dim + edge.residual_dim * (edge.residual_dim + 1) // 2 + 1
    data = [f"data_{i}" for i in range(num_data)]
    outputs = ["rho", *(f"out_{k}" for k in range(1, program.num_outputs))]
    assigned = assign(program, [*records, *data[:-1]], outputs, "call", data[-1])
    emitted = outputs[:1] if kind == "chi2" else outputs
    kept = assigned.keep(emitted)
    reads = _reads(kept, groups, num_data)
    text = write(kept, dict.fromkeys((*records, *data), "real"), "double")
    stores = [
        f"contributions.at[push.first_contribution + e * {len(emitted) - 1} + {k}] = {text.outputs[name]};"
        for k, name in enumerate(emitted[1:])
    ]
    inside = [*reads, *text.lines, *stores, f"sums[LANE] = {text.outputs['rho']};"]
    return _TEMPLATE.format(
        title=f"{edge.name}: {kind}".encode("ascii", "replace").decode().replace("\\", "/"),
        robust=robust,
        workgroup=WORKGROUP,
        inside="\n".join(f"    {line}" for line in inside),
    )


def _reads(kept: Assignment, groups: Sequence[int], num_data: int) -> list[str]:
    """Text that reads the used inputs of edge e."""
    used, lines = kept.inputs() | {n for s in kept.statements for n in s.names()}, []
    for k, size in enumerate(groups):
        names = [f"record{k}_{i}" for i in range(size)]
        if used.isdisjoint(names):
            continue
        lines.append(f"const uint row{k} = rows.at[blocked(e, {len(groups)}) + {64 * k}];")
        lines += [f"const double {n} = records.at[row{k} + {i}];" for i, n in enumerate(names) if n in used]
    for i in range(num_data):
        if f"data_{i}" in used:
            lines.append(f"const double data_{i} = data.at[blocked(e, {num_data}) + {64 * i}];")
    return lines


def _robust_function(kernels: Sequence[RobustKernel]) -> str:
    cases = []
    for number, kernel in enumerate(kernels):
        program = codegen.compile_robust_kernel(kernel.function)
        text = write(
            assign(program, ["chi2", "width"], ["rho", "weight"]),
            {"chi2": "real", "width": "real"},
            "double",
        )
        results = [f"found_rho = {text.outputs['rho']};", f"found_weight = {text.outputs['weight']};"]
        cases.append(
            f"  if (KERNEL == {number}) {{\n    {' '.join([*text.lines, *results])}\n    return;\n  }}"
        )
    head = "void robust(double chi2, double width, out double found_rho, out double found_weight) {"
    return "\n".join([head, *cases, "  found_rho = chi2;", "  found_weight = 1.0lf;", "}"])


_TEMPLATE = """#version 450
// {title}
// Generated by graphopt.io.export_spirv.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "generated.glsl"
#include "generated_math.glsl"
PARAMETERS(uint num_edges; uint first_contribution; uint first_partial;)
INPUT(0, double, records)
INPUT(1, uint, rows)
INPUT(2, double, data)
OUTPUT(3, double, contributions)
OUTPUT(4, double, partial)
layout(constant_id = 1) const uint KERNEL = 0;
shared double sums[{workgroup}];

{robust}

void main() {{
  const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;
  sums[LANE] = 0.0lf;
  if (e < push.num_edges) {{
{inside}
  }}
  for (uint half_size = {workgroup} / 2; half_size > 0; half_size /= 2) {{
    barrier();
    if (LANE < half_size) sums[LANE] += sums[LANE + half_size];
  }}
  if (LANE == 0 && WORKGROUP * WORKGROUP_SIZE < push.num_edges) {{
    partial.at[push.first_partial + WORKGROUP] = sums[0];
  }}
}}
"""
