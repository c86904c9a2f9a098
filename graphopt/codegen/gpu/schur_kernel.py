"""The diagonal blocks of a Schur complement from the edges, for block-Jacobi where H_pl is not stored.

    S_aa = H_aa + D - sum over edges of W M W',   W = J_a' w Omega J_b,   M = (H_bb + D)^-1

or, of fewer operations where residuals have few numbers, W M W' = J_a' P J_a, P = w Omega J_b M J_b' Omega w.

Exact where no two edges join the same two vertices; of those that do, the products of their two W are left
out. Each edge's part is smaller than its part of H_aa, so the result is positive definite in any case.
"""

from __future__ import annotations

from graphopt.codegen.edge import dot
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.edge_kernels import (
    _check_slot,
    _name,
    edge_loop,
    edge_statements,
    hessian_names,
    place_table,
    store_part,
)
from graphopt.codegen.gpu.inputs import Load, declare_inputs, describe_type, edge_loads
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, compose
from graphopt.codegen.gpu.layout import TILE, EdgeSignature, argument_names
from graphopt.codegen.gpu.programs import SymbolicEdge, compile_program
from graphopt.codegen.gpu.segments import TILE_START, Total, tile_declarations, tile_sums
from graphopt.codegen.program import Program
from graphopt.symbolic import Expr, var
from graphopt.types.cache import per_type_cache


def inverse_names(dim: int) -> list[str]:
    """Names of M's entries, the upper triangle by columns."""
    return [f"M_{i}_{j}" for j in range(dim) for i in range(j + 1)]


def schur_diagonal_program(signature: EdgeSignature, slot: int, other: int) -> Program:
    """-> upper triangle of W M W' by columns, guides. Inputs end with M's upper triangle."""
    dim = signature.edge_type.vertices[other].tangent_dim

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        left = edge.columns(slot)
        right = edge.products(edge.columns(other))
        m = [[var(f"M_{min(i, j)}_{max(i, j)}") for j in range(dim)] for i in range(dim)]
        if _residual_is_small(len(left), dim, len(left[0])):
            rows = [list(row) for row in zip(*right, strict=True)]
            upper = _sandwich(rows, m)
            m = [[upper[max(i, j)][min(i, j)] for j in range(len(rows))] for i in range(len(rows))]
            outer = left
        else:
            outer = [[dot(column, product) for product in right] for column in left]
        return [entry for column in _sandwich(outer, m) for entry in column]

    kind = f"schur{slot}_{other}"
    return compile_program(signature, kind, outputs, inverse_names(dim), guided=(slot, other))


def _residual_is_small(dim: int, other_dim: int, residual_dim: int) -> bool:
    """Whether J_a' P J_a takes fewer multiplications than W M W'."""

    def sandwich(size: int, inner: int) -> int:
        return size * inner * inner + inner * size * (size + 1) // 2

    direct = dim * other_dim * residual_dim + sandwich(dim, other_dim)
    return sandwich(residual_dim, other_dim) + sandwich(dim, residual_dim) < direct


def _sandwich(rows: list[list[Expr]], inner: list[list[Expr]]) -> list[list[Expr]]:
    """Columns of the upper triangle of R C R' with a symmetric C."""
    scaled = [[dot(row, column) for column in inner] for row in rows]
    return [[dot(scaled[i], rows[j]) for i in range(j + 1)] for j in range(len(rows))]


@per_type_cache
def schur_diagonal_kernel(
    signature: EdgeSignature,
    slot: int,
    other: int,
    arithmetic: Arithmetic = "double",
    parts: bool = False,
    whole: bool = False,
) -> GpuKernel:
    """values[dest_block] -= sum of W M W' per destination of slot a; one workgroup per tile. adds: +=.

    `inverse_offset{set}` has, by row of the other slot's vertex set, where M's upper triangle begins in
    `inverse`, by columns (whole: the block with both triangles), or NOTHING:
    that vertex is not eliminated, and the edge has no part. parts: destinations are parts of longer ones; the
    sums go to `parts`, per part both triangles by columns, as accumulators.
    """
    _check_slot(signature, slot)
    _check_slot(signature, other)
    program = schur_diagonal_program(signature, slot, other)
    dims = [signature.edge_type.vertices[k].tangent_dim for k in (slot, other)]
    sums = hessian_names(dims[0])
    totals = [Total(name, False) for name in sums]
    loads = edge_loads(signature, False, arithmetic)
    inputs = inverse_names(dims[1])
    extra = [Load(name, "real", "") for name in inputs]
    body = edge_statements(program, signature, sums, sums, [*loads, extra], arithmetic, guided=(slot, other))
    interface = Interface(("num_tiles", "first_tile", *(() if parts else ("adds",))))
    declare_inputs(interface, signature)
    offset = f"inverse_offset{signature.set_of_slot(other)}"
    interface.add_places(offset)
    interface.add("inverse", "LARGE_INPUT(%, inverse)")
    for name in ("first", "tiles"):
        interface.add(name, f"INPUT(%, uint, {name})")
    if not parts:
        interface.add_places("dest_block")
    if parts:
        interface.add("parts", "OUTPUT(%, accumulator, parts)")
    else:
        interface.add("values", "INPUT_OUTPUT_LARGE(%, values)")
    names = argument_names(signature.edge_type)
    gather = [f"const uint M_place = {offset}_of({names[other]}_row);", "if (M_place == NOTHING) continue;"]
    upper = [(i, j) for j in range(dims[1]) for i in range(j + 1)]
    places = [i + dims[1] * j if whole else i + j * (j + 1) // 2 for i, j in upper]
    gather += [
        f"const real {name} = AT(inverse, M_place, {place});"
        for name, place in zip(inputs, places, strict=True)
    ]
    subtract = [
        "const uint i = PLACE[o] & 255, j = PLACE[o] >> 8, block = dest_block_of(d);",
        f"const uint upper = i + {dims[0]} * j, lower = j + {dims[0]} * i;",
        "const real entry = AT(values, block, upper) + (push.adds != 0 ? total : -total);",
        "AT(values, block, upper) = entry;",
        "if (i != j) AT(values, block, lower) = entry;",
    ]
    main = [
        *TILE_START,
        *edge_loop(signature, loads, body, totals, gather, [names[other]]),
        *tile_sums(totals),
    ]
    header = [
        f"Schur diagonal: S_{slot}{slot} -= W M W', W = J_{slot}' w omega J_{other}, M: inverse of "
        f"{names[other]}'s block",
        *describe_type(signature),
    ]
    store = store_part(dims[0], with_b=False) if parts else subtract
    declarations = [place_table(dims[0]), *tile_declarations(len(sums), store, parts)]
    name = _name(signature, f"schur{slot}_{other}{'.parts' if parts else ''}")
    return compose(name, interface, header, main, arithmetic, body, TILE, len(sums), declarations)
