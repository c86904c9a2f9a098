"""Kernels of residuals, and of computed values: sums of terms, weighted sums over neighbours on a grid.

    values       c_j = sum over the terms t of j   f(x_t1, ..., parameters_t, data_t)
    grid values  c_p = sum over k                  w_k(p) x_{p + o_k}      both of estimates, wide numbers
    forward      y_p = sum over k                  w_k(p) x_{p + o_k}      of vectors like dx
    backward     y_q += sum over (p, k) with p + o_k = q   w_k(p) x_p      or with w_k(p)^2, for blocks

One invocation per value, or place. The padded grid reaches as far beyond the borders as the offsets do; which
place each of its places stands for is in a table, so a term is one shift of an index: borders cost nothing.
"""

from __future__ import annotations

from functools import cache

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.edge import compile_errors
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import declare_inputs, describe_type, edge_loads, load_lines
from graphopt.codegen.gpu.kernel import Body, GpuKernel, Interface, compose, edge_body, indent
from graphopt.codegen.gpu.layout import EdgeSignature, float32_record_dim, numbered, record_dim
from graphopt.codegen.gpu.product_shapes import STOP, STOPPABLE
from graphopt.types.cache import per_type_cache

VALUE_WORKGROUP = 64
ADDED = 1 << 31
"""Bit of a row: the value there is a part of the sum."""
_NO_BODY = Body([], {}, 0, 0, set())
_INCLUDES = ['#include "pcg_state.glsl"', f"layout(constant_id = {STOPPABLE}) const uint STOPPABLE = 0;"]


@per_type_cache
def values_kernel(signature: EdgeSignature, arithmetic: Arithmetic) -> GpuKernel:
    """Values of the destinations of slot 0 into `values_out`.

    value_row: row of each destination, with `ADDED` where it adds to what other terms have left.
    """
    kind = signature.edge_type
    outputs = numbered("f", kind.residual_dim)
    groups = edge_loads(signature, False, arithmetic)
    loads = [load for group in groups for load in group]
    assignment: Assignment = assign(compile_errors(kind), [load.name for load in loads], outputs)
    body = edge_body(assignment, assignment.needed_by(outputs), outputs, loads, arithmetic, outputs)
    interface = Interface(("num_destinations",))
    declare_inputs(interface, signature)
    interface.add("first", "INPUT(%, uint, first)")
    _declare_values(interface, arithmetic)
    main = [
        "const uint d = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (d >= push.num_destinations) return;",
        *_totals(len(outputs), "d"),
        "for (uint e = first.at[d]; e < first.at[d + 1]; ++e) {",
        *indent(load_lines(signature, groups, body.used)),
        *indent(body.lines),
        *(f"  total_{i} = wide_sum(total_{i}, {body.outputs[name]});" for i, name in enumerate(outputs)),
        "}",
        *_store(len(outputs), arithmetic),
    ]
    header = ["values: sums of terms", *describe_type(signature)]
    return compose(
        f"{kind.name}.values", interface, header, main, arithmetic, body, VALUE_WORKGROUP, len(outputs)
    )


@per_type_cache
def residuals_kernel(signature: EdgeSignature) -> GpuKernel:
    """Residuals of edges into `residuals`, (num_edges, residual_dim) float64; edge_row: row of each."""
    kind = signature.edge_type
    outputs = numbered("f", kind.residual_dim)
    *records, data = edge_loads(signature, False, "double")
    groups = [*records, data[: kind.measurement_dim]]
    loads = [load for group in groups for load in group]
    assignment: Assignment = assign(compile_errors(kind), [load.name for load in loads], outputs)
    body = edge_body(assignment, assignment.needed_by(outputs), outputs, loads, "double", outputs)
    interface = Interface(("num_edges",))
    declare_inputs(interface, signature)
    interface.add("edge_row", "INPUT(%, uint, edge_row)")
    interface.add("residuals", "OUTPUT(%, wide, residuals)")
    main = [
        "const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (e >= push.num_edges) return;",
        *load_lines(signature, groups, body.used),
        *body.lines,
        f"const uint to = edge_row.at[e] * {len(outputs)};",
        *(f"residuals.at[to + {i}] = {body.outputs[name]};" for i, name in enumerate(outputs)),
    ]
    header = ["residuals: one invocation per edge", *describe_type(signature)]
    return compose(
        f"{kind.name}.residuals", interface, header, main, "double", body, VALUE_WORKGROUP, len(outputs)
    )


@cache
def grid_values_kernel(dim: int, varies: bool, arithmetic: Arithmetic) -> GpuKernel:
    """Grid sums of records of `dim` numbers; source_row: row of each padded place, or NOTHING.

    varies: the weights are (num_terms, num_places), else (num_terms,). value_row: as in `values_kernel`.
    """
    interface = Interface(("num_places", "num_terms"))
    for name in ("padded", "source_row", "shift"):
        interface.add(name, f"INPUT(%, uint, {name})")
    interface.add("weights", "INPUT(%, wide, weights)")
    interface.add("source", "GRAPHOPT_FAR(readonly, %, wide, 3, 8, source)")
    _declare_values(interface, arithmetic)
    times = "wide_mul({}, {})" if arithmetic == "two_float" else "{} * {}"
    entries = [f"AT(source, from * {record_dim(dim)}, {i})" for i in range(dim)]
    main = [
        "const uint p = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (p >= push.num_places) return;",
        "const uint place = padded.at[p];",
        *_totals(dim, "p"),
        "for (uint k = 0; k < push.num_terms; ++k) {",
        "  const uint from = source_row.at[place + shift.at[k]];",
        "  if (from == NOTHING) continue;",
        f"  const wide w = weights.at[{_weight('p', varies)}];",
        *(
            f"  total_{i} = wide_sum(total_{i}, {times.format('w', entry)});"
            for i, entry in enumerate(entries)
        ),
        "}",
        *_store(dim, arithmetic),
    ]
    name = f"grid_values.{dim}{'.varying' if varies else ''}"
    header = [f"values: sums over a grid, of {dim} numbers each"]
    return compose(name, interface, header, main, arithmetic, _NO_BODY, VALUE_WORKGROUP, dim)


@cache
def grid_forward_kernel(dim: int, varies: bool, arithmetic: Arithmetic) -> GpuKernel:
    """y[value] = grid sums of x, or +=; source_scalar: first scalar of each padded place in x, or NOTHING."""
    interface = Interface(("num_places", "num_terms", "adds", "ping_pong"))
    for name in ("padded", "source_scalar", "shift", "value_scalar"):
        interface.add(name, f"INPUT(%, uint, {name})")
    _declare_vectors(interface)
    main = [
        STOP,
        "const uint p = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (p >= push.num_places) return;",
        "const uint to = value_scalar.at[p], place = padded.at[p];",
        "if (to == NOTHING) return;",
        *(f"real total_{i} = push.adds != 0 ? y.at[to + {i}] : ZERO;" for i in range(dim)),
        "for (uint k = 0; k < push.num_terms; ++k) {",
        "  const uint from = source_scalar.at[place + shift.at[k]];",
        "  if (from == NOTHING) continue;",
        f"  const real w = weights.at[{_weight('p', varies)}];",
        *(f"  total_{i} += w * x.at[from + {i}];" for i in range(dim)),
        "}",
        *(f"y.at[to + {i}] = total_{i};" for i in range(dim)),
    ]
    name = f"grid_forward.{dim}{'.varying' if varies else ''}"
    return _vector_kernel(name, "y = K x over a grid, or +=", interface, main, dim, arithmetic)


@cache
def grid_backward_kernel(width: int, varies: bool, squared: bool, arithmetic: Arithmetic) -> GpuKernel:
    """y[source] += transposed grid sums of x, of `width` numbers each; squared: with squared weights.

    The padded places that stand for place q are stands[first_stand[q]] to stands[first_stand[q + 1]].
    value_of: where the value at a padded place begins in x, or NOTHING; place_of: which value it is.
    """
    interface = Interface(("num_places", "num_padded", "num_terms", "ping_pong"))
    for name in ("first_stand", "stands", "value_of", "place_of", "shift", "source_scalar"):
        interface.add(name, f"INPUT(%, uint, {name})")
    _declare_vectors(interface)
    main = [
        STOP,
        "const uint q = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (q >= push.num_places) return;",
        "const uint to = source_scalar.at[q];",
        "if (to == NOTHING) return;",
        *(f"real total_{i} = y.at[to + {i}];" for i in range(width)),
        "for (uint s = first_stand.at[q]; s < first_stand.at[q + 1]; ++s) {",
        "  for (uint k = 0; k < push.num_terms; ++k) {",
        "    const uint place = stands.at[s] - shift.at[k];  // wraps round past the ends",
        "    const uint from = place < push.num_padded ? value_of.at[place] : NOTHING;",
        "    if (from == NOTHING) continue;",
        *(["    const uint p = place_of.at[place];"] if varies else []),
        f"    real w = weights.at[{_weight('p', varies)}];",
        *(["    w *= w;"] if squared else []),
        *(f"    total_{i} += w * x.at[from + {i}];" for i in range(width)),
        "  }",
        "}",
        *(f"y.at[to + {i}] = total_{i};" for i in range(width)),
    ]
    name = f"grid_backward.{width}{'.varying' if varies else ''}{'.squared' if squared else ''}"
    return _vector_kernel(name, "y += K' x over a grid", interface, main, width, arithmetic)


def _vector_kernel(
    name: str, about: str, interface: Interface, main: list[str], width: int, arithmetic: Arithmetic
) -> GpuKernel:
    return compose(
        name, interface, [about], main, arithmetic, _NO_BODY, VALUE_WORKGROUP, width, macros=_INCLUDES
    )


def _declare_vectors(interface: Interface) -> None:
    interface.add("weights", "INPUT(%, real, weights)")
    interface.add("status", "INPUT(%, uint, status)")
    interface.add("x", "GRAPHOPT_BUFFER(readonly, %, real, x)")
    interface.add("y", "GRAPHOPT_BUFFER(, %, real, y)")  # may be the buffer of x, at other places


def _weight(place: str, varies: bool) -> str:
    return f"k * push.num_places + {place}" if varies else "k"


def _declare_values(interface: Interface, arithmetic: Arithmetic) -> None:
    interface.add("value_row", "INPUT(%, uint, value_row)")
    interface.add("values_out", "GRAPHOPT_FAR(, %, wide, 3, 8, values_out)")
    if arithmetic != "double":
        interface.add("float32_out", "LARGE_OUTPUT(%, float32_out)")


def _totals(dim: int, number: str) -> list[str]:
    return [
        f"const bool adds = (value_row.at[{number}] & {ADDED}u) != 0;",
        f"const uint row = value_row.at[{number}] & {ADDED - 1}u;",
        *(f"wide total_{i} = WIDE_ZERO;" for i in range(dim)),
        "if (adds) {",
        *(f"  total_{i} = AT(values_out, row * {record_dim(dim)}, {i});" for i in range(dim)),
        "}",
    ]


def _store(dim: int, arithmetic: Arithmetic) -> list[str]:
    wide = [f"AT(values_out, row * {record_dim(dim)}, {i}) = total_{i};" for i in range(dim)]
    in_float32 = [
        f"AT(float32_out, row * {float32_record_dim(dim)}, {i}) = to_real(total_{i});" for i in range(dim)
    ]
    return [*wide, *([] if arithmetic == "double" else in_float32)]
