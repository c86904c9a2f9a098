"""Kernels of a vertex type: oplus."""

from __future__ import annotations

from typing import Any

from graphopt.codegen.assignment import assign
from graphopt.codegen.edge import compile_vertex
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import Load
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, compose, edge_body, indent
from graphopt.codegen.gpu.layout import float32_record_dim, numbered, record_dim
from graphopt.types.cache import per_type_cache

OPLUS_WORKGROUP = 64


@per_type_cache
def oplus_kernel(vertex_type: Any, arithmetic: Arithmetic = "double") -> GpuKernel:
    """estimate_out = oplus(estimate_in, dx) for all rows; one invocation per row, fixed rows are copied.

    estimate_out may be estimate_in. In mixed arithmetic it is computed in wide numbers, and float32_out gets
    the float32 copy.
    """
    dim, tangent_dim = vertex_type.storage_dim, vertex_type.tangent_dim
    is_mixed = arithmetic != "double"
    stride, float32_stride = record_dim(dim), float32_record_dim(dim)
    estimate, delta, moved = numbered("x", dim), numbered("delta", tangent_dim), numbered("moved", dim)
    loads = [
        *(Load(name, "wide", f"AT(estimate_in, row * {stride}, {i})") for i, name in enumerate(estimate)),
        *(Load(name, "real", f"dx.at[first + {i}]") for i, name in enumerate(delta)),
    ]
    assignment = assign(compile_vertex(vertex_type), [load.name for load in loads], moved)
    body = edge_body(assignment, assignment.needed_by(moved), moved, loads, arithmetic, moved)
    interface = Interface(("num_rows",))
    interface.add("estimate_in", "GRAPHOPT_FAR(readonly, %, wide, 3, 8, estimate_in)")
    interface.add("estimate_out", "GRAPHOPT_FAR(writeonly, %, wide, 3, 8, estimate_out)")
    if is_mixed:
        interface.add("float32_out", "LARGE_OUTPUT(%, float32_out)")
    interface.add("dx", "INPUT(%, real, dx)")
    interface.add("offset", "INPUT(%, uint, offset)")
    write_out = [f"AT(estimate_out, row * {stride}, {i}) = out_{i};" for i in range(dim)]
    write_float32 = [f"AT(float32_out, row * {float32_stride}, {i}) = to_real(out_{i});" for i in range(dim)]
    main = [
        "const uint row = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (row >= push.num_rows) return;",
        *(f"const wide {load.name} = {load.expression};" for load in loads[:dim]),
        *(f"wide out_{i} = x_{i};" for i in range(dim)),
        "const uint first = offset.at[row];",
        "if (first != NOTHING) {",
        *indent(
            f"const real {load.name} = {load.expression};" for load in loads[dim:] if load.name in body.used
        ),
        *indent(body.lines),
        *(f"  out_{i} = {body.outputs[name]};" for i, name in enumerate(moved)),
        "}",
        *write_out,
        *(write_float32 if is_mixed else []),
    ]
    header = [
        "oplus: moved = x boxplus delta",
        f"{vertex_type.name}: {dim} numbers, {tangent_dim} tangent",
    ]
    name = f"{vertex_type.name}.oplus"
    return compose(name, interface, header, main, arithmetic, body, OPLUS_WORKGROUP, dim)
