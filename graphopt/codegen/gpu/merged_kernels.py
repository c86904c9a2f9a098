"""Kernels over several edge sets that sum to the same vertices, see `merged_tiles`: one dispatch, one write.

chi2        of all edge sets: every workgroup belongs to one of them
linearize   H's diagonal blocks and b of the vertices
product     y of the vertices, or x = -H^-1 y, whatever the products of the views are
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.edge_kernels import (
    CHI2_WORKGROUP,
    declare_sums,
    edge_statements,
    place_table,
    store_block,
    vertex_totals,
)
from graphopt.codegen.gpu.inputs import declare_inputs, edge_loads, load_lines
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, compose
from graphopt.codegen.gpu.layout import TILE, EdgeSignature
from graphopt.codegen.gpu.merged_tiles import ADD_EDGES, TILE_OF_VIEWS, Views, over_lanes
from graphopt.codegen.gpu.product_shapes import (
    PRODUCT_INCLUDES,
    STOP,
    EdgeProduct,
    packed_word,
    solve_destination,
)
from graphopt.codegen.gpu.programs import chi2_program, linearize_program
from graphopt.codegen.gpu.segments import tile_declarations, tile_sums
from graphopt.codegen.gpu.shared_memory import CHI2_SUM
from graphopt.errors import OptionError
from graphopt.types.cache import per_type_cache

Member = tuple[EdgeSignature, int]
"""A view: its edges and the slot of its destinations."""


@per_type_cache
def merged_chi2_kernel(signatures: tuple[EdgeSignature, ...], arithmetic: Arithmetic) -> GpuKernel:
    """Parts of the sum of rho over the edges of each edge set; a workgroup has edges of one of them.

    `sets` (num_sets + 1, 3): first workgroup of each edge set, number of its edges, first of its parts.
    """
    interface = Interface(("num_groups",))
    views = Views(signatures, interface)
    for signature in signatures:
        loads = edge_loads(signature, False, arithmetic)
        body = edge_statements(chi2_program(signature), signature, ["rho"], ["rho"], loads, arithmetic)
        own = Interface(())
        declare_inputs(own, signature)
        lines = [*load_lines(signature, loads, body.used), *body.lines, f"chi2 = {body.outputs['rho']};"]
        views.add(None, own.buffers, lines, body)
    interface.add("sets", "INPUT(%, uint, sets)")
    interface.add("partial", "OUTPUT(%, wide, partial)")
    calls = []
    for k in range(len(signatures)):
        condition = f"if (WORKGROUP < sets.at[{3 * k + 3}]) " if k < len(signatures) - 1 else ""
        calls.append(f"{'else ' if k else ''}{condition}{{")
        calls.append(f"  const uint own = WORKGROUP - sets.at[{3 * k}], e = own * WORKGROUP_SIZE + LANE;")
        calls.append(f"  place = sets.at[{3 * k + 2}] + own;")
        calls.append(f"  if (e < sets.at[{3 * k + 1}]) add_edge{k}(e);")
        calls.append("}")
    main = [
        "if (WORKGROUP >= push.num_groups) return;",
        "uint place;",
        *calls,
        "chi2 = workgroup_chi2(chi2);",
        "if (LANE == 0) partial.at[place] = chi2;",
    ]
    header = ["chi2 of several edge sets: sum of rho(e' omega e)", *views.header]
    declarations = ["wide chi2 = WIDE_ZERO;", *views.functions(), CHI2_SUM]
    name = "merged.chi2." + "+".join(map(_name, signatures))
    return compose(name, interface, header, main, arithmetic, views.body, CHI2_WORKGROUP, 1, declarations)


@per_type_cache
def merged_linearize_kernel(members: tuple[Member, ...], arithmetic: Arithmetic) -> GpuKernel:
    """H_aa (both triangles) into `values` and b_a into `b`, per destination of these views."""
    dim = _dim_of(members)
    totals = vertex_totals(dim)
    sums = [total.output for total in totals]
    interface = Interface(("num_tiles", "first_tile", "accumulate"))
    views = Views([signature for signature, _ in members], interface)
    for signature, slot in members:
        loads = edge_loads(signature, False, arithmetic)
        program = linearize_program(signature, slot)
        body = edge_statements(program, signature, [*sums, "rho"], sums, loads, arithmetic, guided=(slot,))
        own = Interface(())
        declare_inputs(own, signature)
        adding = [total.add(body.outputs[total.output]) for total in totals]
        views.add(slot, own.buffers, [*load_lines(signature, loads, body.used), *body.lines, *adding], body)
    declare_sums(interface, parts=False)
    header = [f"linearize {len(members)} views: H = J' w omega J and b = -J' w omega e", *views.header]
    over = over_lanes("mine = add(mine, scratch[c * COLUMN + i]);", " + part", "parts")
    declarations = [
        place_table(dim),
        *(total.start for total in totals),
        *views.functions(),
        *views.choice(),
        *tile_declarations(len(sums), store_block(dim), tile="", over=over),
    ]
    main = [*TILE_OF_VIEWS, ADD_EDGES, *tile_sums(totals)]
    return compose(
        "merged.linearize." + _names(members),
        interface,
        header,
        main,
        arithmetic,
        views.body,
        TILE,
        len(sums),
        declarations,
    )


@per_type_cache
def merged_product_kernel(products: tuple[EdgeProduct, ...], solve: bool = False) -> GpuKernel:
    """Products of several views with the same destinations, as `product_shapes.tiles_kernel` has them.

    solve: `dest_row` has the row of each destination's packed record.
    """
    members = tuple((product.signature, product.slot) for product in products)
    dim = _dim_of(members)
    params = ("num_tiles", "first_tile", "ping_pong")
    interface = Interface(params if solve else (*params, "accumulate"))
    views = Views([product.signature for product in products], interface)
    for product in products:
        own, loop = Interface(()), product.loop()
        product.declare(own, product.slot if solve else None)
        views.add(product.slot, own.buffers, [*loop.before, *loop.inside], loop.body)
    for name in ("tiles", "first"):
        interface.add(name, f"INPUT(%, uint, {name})")
    for name in ("dest_inverse", "dest_row") if solve else ("dest_scalar",):
        interface.add_places(name)
    interface.add(*(("inverse", "LARGE_INPUT(%, inverse)") if solve else ("y", "INOUT(%, real, y)")))
    main = [
        STOP,
        *TILE_OF_VIEWS,
        "[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) sum[k] = ZERO;",
        ADD_EDGES,
        "[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) scratch[k * TILE + LANE] = sum[k];",
        "barrier();",
        *(_solve(products[0], views) if solve else _STORE),
    ]
    declarations = [
        f"const uint OUTPUTS = {dim}, TILE = {TILE};",
        "shared real scratch[OUTPUTS * TILE];",
        "real sum[OUTPUTS];",
        *views.functions(),
        *views.choice(),
    ]
    what = "x = -H^-1 y, " if solve else ""
    header = [f"product of {len(products)} views: {what}y = sum of J' w omega (sum of J x)"]
    header += [f"view {k}: {_description(product)}" for k, product in enumerate(products)]
    names = "+".join(
        f"{_name(product.signature)}.{product.name}{product.slot}.{'_'.join(map(str, product.sources))}"
        for product in products
    )
    return compose(
        f"merged.{'solve' if solve else 'product'}.{names}",
        interface,
        [*header, *views.header],
        main,
        products[0].arithmetic,
        views.body,
        TILE,
        dim,
        declarations,
        macros=[packed_word(products[0].arithmetic), *PRODUCT_INCLUDES],
    )


_STORE = [
    "for (uint s = LANE; s < num_here * OUTPUTS; s += WORKGROUP_SIZE) {",
    "  const uint d = first_destination + s / OUTPUTS, o = s % OUTPUTS;",
    "  real total = ZERO;",
    *(f"  {line}" for line in over_lanes("total += scratch[o * TILE + i];", "", "1")),
    "  const uint place = dest_scalar_of(d) + o;",
    "  y.at[place] = push.accumulate != 0 ? y.at[place] + total : total;",
    "}",
]


def _solve(first: EdgeProduct, views: Views) -> list[str]:
    """One invocation per destination: its sum, times the inverse of its block, into its packed record."""
    count = len(first.sums)
    adding = " ".join(f"total_{i} += scratch[{i} * TILE + i];" for i in range(count))
    records = views.name(0, f"packed{first.slot}")
    return [
        "if (LANE >= num_here) return;",
        "const uint d = first_destination + LANE, block = dest_inverse_of(d);",
        f"real {', '.join(f'total_{i} = ZERO' for i in range(count))};",
        *over_lanes(f"{{ {adding} }}", "", "1"),
        *solve_destination(first, f"dest_row_of(d) * {first.stride(first.slot)}", records),
    ]


def _description(product: EdgeProduct) -> str:
    return f"sum over slots {', '.join(map(str, product.sources))}; {product.description}"


def _dim_of(members: Sequence[Member]) -> int:
    """Tangent dimension of the destinations; `OptionError` where it is not one."""
    kinds = [signature.edge_type.vertices[slot] for signature, slot in members]
    if len({(kind.name, kind.tangent_dim) for kind in kinds}) != 1:
        listed = ", ".join(kind.name for kind in kinds)
        raise OptionError(f"One kernel sums to vertices of one type, got {listed or 'none'}.")
    return kinds[0].tangent_dim


def _names(members: Sequence[Member]) -> str:
    return "+".join(f"{_name(signature)}.{slot}" for signature, slot in members)


def _name(signature: EdgeSignature) -> str:
    return f"{signature.edge_type.name}.{signature.information}.{signature.kernel}"
