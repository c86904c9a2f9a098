"""Kernels of an edge type: chi2, diagonal blocks and b, off-diagonal blocks."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.codegen.assignment import assign
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import (
    Load,
    declare_inputs,
    describe_type,
    edge_loads,
    load_lines,
    prefetched_rows,
)
from graphopt.codegen.gpu.kernel import (
    Body,
    GpuKernel,
    Interface,
    compose,
    edge_body,
    indent,
)
from graphopt.codegen.gpu.layout import TILE, EdgeSignature, argument_names, numbered
from graphopt.codegen.gpu.programs import (
    chi2_program,
    guide_names,
    linearize_program,
    pair_program,
)
from graphopt.codegen.gpu.segments import (
    TILE_START,
    Total,
    tile_declarations,
    tile_sums,
)
from graphopt.codegen.gpu.shared_memory import CHI2_SUM, staged_writes, staging
from graphopt.codegen.program import Program
from graphopt.errors import OptionError
from graphopt.types.cache import per_type_cache
from graphopt.types.robust_kernels import robust_kernel

CHI2_WORKGROUP = 128
PAIR_WORKGROUP = 64


@per_type_cache
def chi2_kernel(signature: EdgeSignature, arithmetic: Arithmetic = "double") -> GpuKernel:
    """partial[first_partial + workgroup] = sum of rho over the workgroup's edges (one per invocation)."""
    program = chi2_program(signature)
    loads = edge_loads(signature, False, arithmetic)
    body = edge_statements(program, signature, ["rho"], ["rho"], loads, arithmetic)
    interface = Interface(("num_edges", "first_partial"))
    declare_inputs(interface, signature)
    interface.add("partial", "OUTPUT(%, wide, partial)")
    main = [
        "const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "wide chi2 = WIDE_ZERO;",
        "if (e < push.num_edges) {",
        *indent(load_lines(signature, loads, body.used)),
        *indent(body.lines),
        f"  chi2 = {body.outputs['rho']};",
        "}",
        "chi2 = workgroup_chi2(chi2);",
        "if (LANE == 0) partial.at[push.first_partial + WORKGROUP] = chi2;",
    ]
    header = ["chi2: sum of rho(e' omega e)", *describe_type(signature)]
    return compose(
        _name(signature, "chi2"), interface, header, main, arithmetic, body, CHI2_WORKGROUP, 1, [CHI2_SUM]
    )


@per_type_cache
def chi2_by_vertex_kernel(
    signature: EdgeSignature, slot: int, arithmetic: Arithmetic = "double"
) -> GpuKernel:
    """sums[d] = sum of rho over the edges of destination d, an accumulator; a workgroup per tile."""
    _check_slot(signature, slot)
    loads = edge_loads(signature, False, arithmetic)
    body = edge_statements(chi2_program(signature), signature, ["rho"], ["rho"], loads, arithmetic)
    interface = Interface(("num_tiles", "first_tile"))
    declare_inputs(interface, signature)
    interface.add("first", "INPUT(%, uint, first)")
    interface.add("tiles", "INPUT(%, uint, tiles)")
    interface.add("sums", "OUTPUT(%, accumulator, sums)")
    chi2 = Total("rho", True)
    main = [
        *TILE_START,
        chi2.start,
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent(load_lines(signature, loads, body.used)),
        *indent(body.lines),
        f"  {chi2.add('to_real(' + body.outputs['rho'] + ')')}",
        "}",
        *tile_sums([chi2]),
    ]
    header = [
        f"chi2 by vertex of slot {slot}, {argument_names(signature.edge_type)[slot]}",
        *describe_type(signature),
    ]
    declarations = tile_declarations(1, ["sums.at[d] = total;"], parts=True)
    name = _name(signature, f"chi2_by_vertex{slot}")
    return compose(name, interface, header, main, arithmetic, body, TILE, 1, declarations)


@per_type_cache
def linearize_kernel(
    signature: EdgeSignature,
    slot: int,
    arithmetic: Arithmetic = "double",
    parts: bool = False,
) -> GpuKernel:
    """H_aa (both triangles) into `values` and b_a into `b`, per destination of slot a; a workgroup per tile.

    parts: destinations are parts of longer ones; the sums go to `parts`, per part both triangles of H_aa by
    columns, then b_a, all of them accumulators.
    """
    _check_slot(signature, slot)
    program = linearize_program(signature, slot)
    dim = signature.edge_type.vertices[slot].tangent_dim
    totals = vertex_totals(dim)
    sums = [total.output for total in totals]
    loads = edge_loads(signature, False, arithmetic)
    body = edge_statements(program, signature, [*sums, "rho"], sums, loads, arithmetic, guided=(slot,))
    interface = Interface(("num_tiles", "first_tile", *(() if parts else ("accumulate",))))
    declare_inputs(interface, signature)
    declare_sums(interface, parts)
    main = [*TILE_START, *edge_loop(signature, loads, body, totals), *tile_sums(totals)]
    header = [
        f"linearize slot {slot}: H = {_hessian(signature)} and b = -J' w omega e of the vertex "
        f"{argument_names(signature.edge_type)[slot]}"
        f"{', parts of long sums' if parts else ''}",
        *describe_type(signature),
    ]
    name = _name(signature, f"linearize{slot}{'.parts' if parts else ''}")
    declarations = sum_declarations(dim, parts)
    return compose(name, interface, header, main, arithmetic, body, TILE, len(sums), declarations)


def vertex_totals(dim: int) -> list[Total]:
    """Sums of a vertex: H_aa, and b_a, which is small where large contributions cancel."""
    hessian = [Total(name, False) for name in hessian_names(dim)]
    return hessian + [Total(name, True) for name in numbered("b", dim)]


def declare_sums(interface: Interface, parts: bool) -> None:
    """Buffers of tiles of destinations, and where their H_aa and b_a go."""
    interface.add("first", "INPUT(%, uint, first)")
    interface.add("tiles", "INPUT(%, uint, tiles)")
    if parts:
        interface.add("parts", "OUTPUT(%, accumulator, parts)")
    else:
        interface.add_places("dest_block")
        interface.add_places("dest_scalar")
        interface.add("values", "INPUT_OUTPUT_LARGE(%, values)")
        interface.add("b", "INOUT(%, real, b)")


def sum_declarations(dim: int, parts: bool) -> list[str]:
    """Text of the function that adds up `vertex_totals` over a tile, and what it needs."""
    store = store_part(dim, with_b=True) if parts else store_block(dim)
    return [place_table(dim), *tile_declarations(len(vertex_totals(dim)), store, parts)]


@per_type_cache
def pair_kernel(signature: EdgeSignature, a: int, b: int, arithmetic: Arithmetic = "double") -> GpuKernel:
    """H_ab into `values`: one invocation per block, its edges in order."""
    _check_slot(signature, a)
    _check_slot(signature, b)
    if a == b:
        raise OptionError(f"pair_kernel: slots {a} and {b} are one; its block is made by linearize_kernel.")
    program = pair_program(signature, a, b)
    rows, cols = (signature.edge_type.vertices[k].tangent_dim for k in (a, b))
    sums = pair_names(rows, cols)
    loads = edge_loads(signature, False, arithmetic)
    body = edge_statements(program, signature, sums, sums, loads, arithmetic, guided=(a, b))
    interface = Interface(("num_blocks", "accumulate"))
    declare_inputs(interface, signature)
    names = argument_names(signature.edge_type)
    header = [
        f"pair {a}, {b}: H = {_hessian(signature)} of {names[a]} and {names[b]}, {rows} x {cols}",
        *describe_type(signature),
    ]
    reads = load_lines(signature, loads, body.used)
    return compose_pairs(
        _name(signature, f"pair{a}_{b}"), interface, header, reads, body, (rows, cols), arithmetic
    )


def compose_pairs(
    name: str,
    interface: Interface,
    header: Sequence[str],
    reads: Sequence[str],
    body: Body,
    shape: tuple[int, int],
    arithmetic: Arithmetic,
    macros: Sequence[str] = (),
) -> GpuKernel:
    """A kernel over pair lists; reads: text that reads what the body uses of edge e."""
    rows, cols = shape
    interface.add("pair_first", "INPUT(%, uint, pair_first)")
    interface.add("pair_edge", "INPUT(%, uint, pair_edge)")
    interface.add("pair_block", "INPUT(%, uint, pair_block)")
    interface.add("values", "INPUT_OUTPUT_LARGE(%, values)")
    totals = [Total(name, False) for name in pair_names(rows, cols)]
    plain = [total.add(body.outputs[total.output]) for total in totals]
    transposed = [
        totals[j + cols * i].add(body.outputs[f"H_{i}_{j}"]) for j in range(cols) for i in range(rows)
    ]
    main = [
        "const uint first_block = WORKGROUP * WORKGROUP_SIZE, block = first_block + LANE;",
        *(total.start for total in totals),
        "if (block < push.num_blocks) {",
        "  for (uint p = pair_first.at[block]; p < pair_first.at[block + 1]; ++p) {",
        "    const uint e = pair_edge.at[p] & 0x7fffffffu;",
        *indent(reads, 2),
        *indent(body.lines, 2),
        "    if (e == pair_edge.at[p]) {",
        *indent(plain, 3),
        "    } else {  // the block holds the transpose",
        *indent(transposed, 3),
        "    }",
        "  }",
        "}",
        *staged_writes([total.value for total in totals]),
    ]
    return compose(
        name,
        interface,
        header,
        main,
        arithmetic,
        body,
        PAIR_WORKGROUP,
        len(totals),
        staging(len(totals)),
        macros,
    )


def edge_statements(
    program: Program,
    signature: EdgeSignature,
    outputs: Sequence[str],
    requested: Sequence[str],
    loads: Sequence[Sequence[Load]],
    arithmetic: Arithmetic,
    guided: Sequence[int] = (),
) -> Body:
    """Statements for the requested ones of the program's outputs, which the guides of these slots follow."""
    guides = guide_names(signature, guided)
    all_inputs = [load for group in loads for load in group]
    assignment = assign(program, [load.name for load in all_inputs], [*outputs, *guides])
    wide = assignment.needed_by([*guides, *(["rho"] if "rho" in outputs else [])])
    return edge_body(
        assignment, wide, requested, all_inputs, arithmetic, ["rho"] if "rho" in requested else []
    )


def edge_loop(
    signature: EdgeSignature,
    loads: Sequence[Sequence[Load]],
    body: Body,
    totals: Sequence[Total],
    more: Sequence[str] = (),
    rows_read: Sequence[str] = (),
) -> list[str]:
    """Loop over the invocation's edges of the tile, which adds up the totals."""
    reads = load_lines(signature, loads, body.used, rows_read)
    ahead, reads = prefetched_rows(reads)
    inside = [
        *reads,
        *more,
        *body.lines,
        *(total.add(body.outputs[total.output]) for total in totals),
    ]
    return [
        *(total.start for total in totals),
        *ahead,
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent(inside),
        "}",
    ]


def hessian_names(dim: int) -> list[str]:
    """Upper triangle of a diagonal block by columns."""
    return [f"H_{i}_{j}" for j in range(dim) for i in range(j + 1)]


def pair_names(rows: int, cols: int) -> list[str]:
    """An off-diagonal block by columns."""
    return [f"H_{i}_{j}" for j in range(cols) for i in range(rows)]


def place_table(dim: int) -> str:
    """Constant table: output -> row + 256 * column of the block."""
    entries = [i + 256 * j for j in range(dim) for i in range(j + 1)]
    return f"const uint PLACE[{len(entries)}] = uint[]({', '.join(f'{e}u' for e in entries)});"


def store_block(dim: int) -> list[str]:
    """Write one sum into both triangles of a diagonal block, or into b."""
    num = dim * (dim + 1) // 2
    return [
        f"if (o >= {num}) {{",
        f"  const uint place = dest_scalar_of(d) + o - {num};",
        "  b.at[place] = push.accumulate != 0 ? b.at[place] + total : total;",
        "} else {",
        "  const uint i = PLACE[o] & 255, j = PLACE[o] >> 8, block = dest_block_of(d);",
        f"  const uint upper = i + {dim} * j, lower = j + {dim} * i;",
        "  const real entry = push.accumulate != 0 ? AT(values, block, upper) + total : total;",
        "  AT(values, block, upper) = entry;",
        "  if (i != j) AT(values, block, lower) = entry;",
        "}",
    ]


def store_part(dim: int, with_b: bool) -> list[str]:
    """Write one sum, an accumulator, into both triangles of a part's diagonal block, or into its b."""
    num, size = dim * (dim + 1) // 2, dim * dim
    stride = size + dim if with_b else size
    lines = [
        f"const uint first_entry = d * {stride}, i = PLACE[o] & 255, j = PLACE[o] >> 8;",
        f"parts.at[first_entry + i + {dim} * j] = total;",
        f"if (i != j) parts.at[first_entry + j + {dim} * i] = total;",
    ]
    if not with_b:
        return lines
    b = f"parts.at[d * {stride} + {size} + o - {num}] = total;"
    return [f"if (o >= {num}) {{", f"  {b}", "} else {", *indent(lines), "}"]


def _check_slot(signature: EdgeSignature, slot: int) -> None:
    if not 0 <= slot < signature.arity:
        raise OptionError(
            f"{signature.edge_type.name}: slot {slot} does not exist, there are {signature.arity}."
        )


def _hessian(signature: EdgeSignature) -> str:
    return "d2 (rho / 2)" if signature.is_exact else "J' w omega J"


def _name(signature: EdgeSignature, kind: str) -> str:
    kernel = f".{robust_kernel(signature.kernel).name}" if signature.kernel else ""
    exact = ".exact" if signature.is_exact else ""
    return f"{signature.edge_type.name}.{kind}.{signature.information}{kernel}{exact}"
