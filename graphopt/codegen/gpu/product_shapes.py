"""The two shapes of kernels that sum products over the edges of a view, whatever an edge's product is.

    tiles   one invocation per edge, a workgroup for a tile of whole destinations: vertices with few edges.
            With `solve` it ends with x_a = -H_aa^-1 y, written into the destination's packed record: the
            first half of a product with the implicit Schur complement.
    rows    a workgroup per destination: vertices with many edges. What depends on the destination only is
            computed before the loop over its edges. With `ends` it goes on to A u = y + (H_aa + D) u, and
            to d and q of conjugate gradients: the end of a product with the implicit Schur complement.

Sums are plain `real` (the direction of a conjugate gradient step needs no more), in a fixed order. What an
edge contributes is the business of an `EdgeProduct`: `packed_products`, `stored_products`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import describe_type, row_of
from graphopt.codegen.gpu.kernel import Body, GpuKernel, Interface, compose, indent
from graphopt.codegen.gpu.layout import TILE, EdgeSignature, argument_names
from graphopt.types.cache import per_type_cache

ROWS_WORKGROUP = 128
STOPPABLE = 1
"""Specialization constant; 1: return at once where `status` says that conjugate gradients have stopped."""
COMPONENTS = "xyzw"


@dataclass(frozen=True)
class Loop:
    """The loop over edges `e`."""

    before: Sequence[str]
    """Statements before it; they may use `begin`, its first edge."""
    inside: Sequence[str]
    """Statements that add edge e's outputs to `sum[k]`."""
    body: Body
    """Operations and live values of both."""


class EdgeProduct(Protocol):
    """What an edge contributes to y_a = sum of J_a' w Omega sum_t J_t x_t."""

    @property
    def name(self) -> str:
        """Of the way that it is computed, for the kernel's name."""
        ...

    @property
    def description(self) -> str:
        """Line of the kernel's header."""
        ...

    @property
    def signature(self) -> EdgeSignature:
        """The edges."""
        ...

    @property
    def slot(self) -> int:
        """a."""
        ...

    @property
    def sources(self) -> tuple[int, ...]:
        """The t."""
        ...

    @property
    def arithmetic(self) -> Arithmetic:
        """Of the kernel."""
        ...

    @property
    def sums(self) -> Sequence[str]:
        """The entries of y_a."""
        ...

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the loop reads; the packed records of slot `written` are written, too."""
        ...

    def loop(self) -> Loop:
        """All is computed inside."""
        ...

    def hoisted(self) -> Loop:
        """All edges of the loop have the same destination: what they share is computed before."""
        ...

    def stride(self, k: int) -> int:
        """Words per packed record of slot k."""
        ...

    def first_of_x(self, k: int) -> int:
        """Place of x in the packed records of slot k."""
        ...


@per_type_cache
def tiles_kernel(product: EdgeProduct, solve: bool = False) -> GpuKernel:
    """Products over tiles of whole destinations of a slot.

    solve: x_a = -inverse y into packed{slot} instead of y; `inverse` has upper triangles by columns, that of
    destination d from `dest_inverse[d]` on. `tile_ranges` (num_tiles, 4): first destination, number of
    destinations, first edge, one past the last.
    """
    count = len(product.sums)
    params = ("num_tiles", "first_tile", "ping_pong")
    interface = Interface(params if solve else (*params, "accumulate"))
    product.declare(interface, product.slot if solve else None)
    interface.add("tile_ranges", "INPUT(%, uvec4, tile_ranges)")
    interface.add("first", "INPUT(%, uint, first)")
    interface.add_places("dest_inverse" if solve else "dest_scalar")
    interface.add(*(("inverse", "LARGE_INPUT(%, inverse)") if solve else ("y", "INOUT(%, real, y)")))
    loop = product.loop()
    main = [
        *_TILE_START,
        *_zero_sums(count),
        *loop.before,
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent(loop.inside),
        "}",
        "[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) scratch[k * TILE + LANE] = sum[k];",
        "barrier();",
        *(_solve_tile(product) if solve else _STORE_TILE),
    ]
    declarations = [f"const uint OUTPUTS = {count}, TILE = {TILE};", "shared real scratch[OUTPUTS * TILE];"]
    return _compose(product, "solve" if solve else "tiles", interface, main, loop.body, TILE, declarations)


@per_type_cache
def rows_kernel(product: EdgeProduct, ends: bool = False) -> GpuKernel:
    """Products with a workgroup per destination.

    ends: y is not written, but d = u + beta d, q = y + (H_aa + D) u + beta q, and each destination's part of
    d'q. `values` has H's diagonal blocks from `dest_block[d]` on.
    """
    count = len(product.sums)
    params = ("num_destinations", "first_destination", "ping_pong")
    interface = Interface(params if ends else (*params, "accumulate"))
    product.declare(interface, None)
    interface.add("first", "INPUT(%, uint, first)")
    interface.add_places("dest_scalar")
    if ends:
        interface.add_places("dest_block")
    for name, declaration in (_END_BUFFERS if ends else {"y": "INOUT(%, real, y)"}).items():
        interface.add(name, declaration)
    loop = product.hoisted()
    main = [
        STOP,
        "const uint d = push.first_destination + WORKGROUP;",
        "if (d >= push.num_destinations) return;",
        "const uint begin = first.at[d], end = first.at[d + 1];",
        *loop.before,
        *_zero_sums(count),
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent(loop.inside),
        "}",
        *(_END_ROW if ends else [*_SUM_ROW, *_STORE_ROW]),
    ]
    declarations = [f"const uint OUTPUTS = {count};", "shared real scratch[OUTPUTS * WORKGROUP_SIZE];"]
    shape = "ends" if ends else "rows"
    return _compose(product, shape, interface, main, loop.body, ROWS_WORKGROUP, declarations)


def _compose(
    product: EdgeProduct,
    shape: str,
    interface: Interface,
    main: Sequence[str],
    body: Body,
    workgroup: int,
    declarations: Sequence[str],
) -> GpuKernel:
    """Put the kernel's text together."""
    signature, slot, sources = product.signature, product.slot, product.sources
    names = argument_names(signature.edge_type)
    listed = " + ".join(f"J_{t} x_{t}" for t in sources)
    what = {"solve": f"x_{slot} = -H^-1 y, ", "ends": "d = u + beta d, q = y + (H + D) u + beta q, "}
    slots = ", ".join(f"{t} {names[t]}" for t in sorted({slot, *sources}))
    header = [
        f"product over {'tiles' if shape in ('solve', 'tiles') else 'rows'}: {what.get(shape, '')}"
        f"y = J_{slot}' w omega ({listed}), slots: {slots}",
        product.description,
        *describe_type(signature),
    ]
    name = f"{signature.edge_type.name}.{product.name}_{shape}{slot}.{'_'.join(map(str, sources))}"
    return compose(
        f"{name}.{signature.information}.{signature.kernel}",
        interface,
        header,
        main,
        product.arithmetic,
        body,
        workgroup,
        len(product.sums),
        declarations,
        macros=[
            packed_word(product.arithmetic),
            *PRODUCT_INCLUDES,
            *(['#include "damping.glsl"'] if shape == "ends" else []),
        ],
    )


def _zero_sums(count: int) -> list[str]:
    return [f"real sum[{count}];", f"[[unroll]] for (uint k = 0; k < {count}; ++k) sum[k] = ZERO;"]


def word_dim(arithmetic: Arithmetic) -> int:
    """Numbers of a word of 16 bytes."""
    return 2 if arithmetic == "double" else 4


def packed_word(arithmetic: Arithmetic) -> str:
    """Macro: the type of a word of a packed record."""
    return f"#define packed_word {'dvec2' if arithmetic == 'double' else 'vec4'}"


PRODUCT_INCLUDES = [
    '#include "words.glsl"',
    '#include "pcg_state.glsl"',
    '#include "pcg_recurrence.glsl"',
    f"layout(constant_id = {STOPPABLE}) const uint STOPPABLE = 0;",
]

STOP = "if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;"

_TILE_START = [
    STOP,
    "const uint tile = push.first_tile + WORKGROUP;",
    "if (tile >= push.num_tiles) return;",
    "const uvec4 range = tile_ranges.at[tile];  // first destination, number; first edge, one past the last",
    "const uint first_destination = range.x, num_here = range.y, begin = range.z, end = range.w;",
]

_STORE_TILE = """\
for (uint s = LANE; s < num_here * OUTPUTS; s += WORKGROUP_SIZE) {
  const uint d = first_destination + s / OUTPUTS, o = s % OUTPUTS;
  const uint last = min(first.at[d + 1] - begin, TILE);
  real total = ZERO;
  for (uint i = first.at[d] - begin; i < last; ++i) total += scratch[o * TILE + i];
  const uint place = dest_scalar_of(d) + o;
  y.at[place] = push.accumulate != 0 ? y.at[place] + total : total;
}""".splitlines()


def _solve_tile(product: EdgeProduct) -> list[str]:
    """One invocation per destination: its sum, times the inverse of its block, into its packed record."""
    slot, signature = product.slot, product.signature
    outputs = range(signature.edge_type.vertices[slot].tangent_dim)
    first_row = row_of("first.at[d]", slot, signature)
    return [
        "if (LANE >= num_here) return;",
        "const uint d = first_destination + LANE;",
        "const uint last = min(first.at[d + 1] - begin, TILE), block = dest_inverse_of(d);",
        f"real {', '.join(f'total_{i} = ZERO' for i in outputs)};",
        "for (uint i = first.at[d] - begin; i < last; ++i) {",
        *(f"  total_{i} += scratch[{i} * TILE + i];" for i in outputs),
        "}",
        *solve_destination(product, f"{first_row} * {product.stride(slot)}", f"packed{slot}"),
    ]


def upper_place(i: int, j: int) -> int:
    """Place of an entry of a symmetric block of which the upper triangle is stored by columns."""
    return min(i, j) + max(i, j) * (max(i, j) + 1) // 2


def solve_destination(product: EdgeProduct, record: str, records: str) -> list[str]:
    """Text that writes -inverse (total_0, total_1, ...) as x into the packed record of a destination.

    record: expression of its first word in the buffer `records`.
    """
    dim = len(product.sums)
    solve = [
        f"const real solved_{i} = "
        + " + ".join(f"AT(inverse, block, {upper_place(i, j)}) * total_{j}" for j in range(dim))
        + ";"
        for i in range(dim)
    ]
    write_x = []
    for i in range(dim):
        word, component = divmod(product.first_of_x(product.slot) + i, word_dim(product.arithmetic))
        write_x.append(f"AT({records}, record, {word}).{COMPONENTS[component]} = -solved_{i};")
    return [*solve, f"const uint record = {record};", *write_x]


_SUM_ROW = """\
[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) scratch[k * WORKGROUP_SIZE + LANE] = sum[k];
for (uint half_size = WORKGROUP_SIZE / 2; half_size > 0; half_size >>= 1) {
  barrier();
  for (uint s = LANE; s < OUTPUTS * half_size; s += WORKGROUP_SIZE) {
    const uint place = s / half_size * WORKGROUP_SIZE + s % half_size;
    scratch[place] += scratch[place + half_size];
  }
}
barrier();""".splitlines()

_STORE_ROW = """\
if (LANE < OUTPUTS) {
  const real total = scratch[LANE * WORKGROUP_SIZE];
  const uint place = dest_scalar_of(d) + LANE;
  y.at[place] = push.accumulate != 0 ? y.at[place] + total : total;
}""".splitlines()

_END_BUFFERS = {
    "values": "LARGE_INPUT(%, values)",
    "damping": "INPUT(%, real, damping) DAMPING_OF(damping_of, damping)",
    "pcg_u": "INPUT(%, real, pcg_u)",
    "pcg_d": "INOUT(%, real, pcg_d)",
    "pcg_q": "INOUT(%, real, pcg_q)",
    "pcg_scalars": "INPUT(%, real, pcg_scalars)",
    "pcg_dots": "OUTPUT(%, accumulator, pcg_dots)",
}
"""What the end of a product inside the conjugate gradients reads and writes."""

_END_ROW = [
    "const uint segment = dest_scalar_of(d), block = dest_block_of(d);",
    "accumulator rest = sum_zero();  // of a row of (H_aa + D) u",
    "real u_i = ZERO, d_i = ZERO, q_i = ZERO;",
    "const real beta = pcg_scalars.at[BETA];",
    "if (LANE < OUTPUTS) {  // before it is waited for",
    "  u_i = pcg_u.at[segment + LANE];",
    "  d_i = pcg_d.at[segment + LANE];",
    "  q_i = pcg_q.at[segment + LANE];",
    "  [[unroll]] for (uint c = 0; c < OUTPUTS; ++c) {",
    "    rest = add_product(rest, AT(values, block, LANE + OUTPUTS * c), pcg_u.at[segment + c]);",
    "  }",
    "  rest = add_product(rest, damping_of(segment + LANE), u_i);",
    "}",
    *_SUM_ROW,
    "if (LANE < OUTPUTS) {",
    "  d_i = pcg_follow(u_i, beta, d_i);",
    "  q_i = pcg_follow(value(add(rest, scratch[LANE * WORKGROUP_SIZE])), beta, q_i);",
    "  pcg_d.at[segment + LANE] = d_i;",
    "  pcg_q.at[segment + LANE] = q_i;",
    "  scratch[LANE * WORKGROUP_SIZE] = d_i * q_i;",
    "}",
    "barrier();",
    "if (LANE != 0) return;",
    "accumulator dot = sum_zero();",
    "for (uint k = 0; k < OUTPUTS; ++k) dot = add(dot, scratch[k * WORKGROUP_SIZE]);",
    "pcg_dots.at[d] = dot;",
]
