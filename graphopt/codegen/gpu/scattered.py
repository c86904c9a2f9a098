"""Kernels of evaluation "scatter": an edge is evaluated once, and sums over vertices read what that left.

`evaluate_kernel` computes residual and Jacobians of every edge and leaves one record of numbers per edge, in
the order of the primary view. H_aa, b_a and H_ab then come from kernels of the same shapes as those of
`edge_kernels`, which read records instead of evaluating edges. A record holds the shorter of

    factors   J_t for all slots t, w Omega, w Omega e     H_ab = J_a' (w Omega) J_b,  b_a = -J_a' (w Omega e)
    sums      H_aa and b_a of all slots, H_ab             as they are

without what is a constant of the type, and each number that is there twice only once. Records are words of
four numbers: a view that is not the primary one reads them through an index, and then whole words count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.cache import Definition, cached
from graphopt.codegen.edge import dot
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.edge_kernels import (
    compose_pairs,
    declare_sums,
    hessian_names,
    pair_names,
    sum_declarations,
    vertex_totals,
)
from graphopt.codegen.gpu.inputs import Load, declare_inputs, describe_type, edge_loads, load_lines
from graphopt.codegen.gpu.kernel import Body, GpuKernel, Interface, compose, edge_body, indent
from graphopt.codegen.gpu.layout import TILE, EdgeSignature, argument_names, numbered
from graphopt.codegen.gpu.product_shapes import COMPONENTS
from graphopt.codegen.gpu.programs import (
    SymbolicEdge,
    compile_program,
    guide_names,
    pair_sums,
    vertex_sums,
)
from graphopt.codegen.gpu.segments import TILE_START, tile_sums
from graphopt.codegen.gpu.stored_products import (
    Entry,
    StoredEntries,
    assign_entries,
    shorter_entries,
    stored_numbers,
)
from graphopt.codegen.program import Program
from graphopt.codegen.workspace import workspace
from graphopt.symbolic import Expr, const, make, var
from graphopt.types.cache import per_type_cache

EVALUATE_WORKGROUP = 128
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Scattered:
    """Which sums are requested of the edges of a group."""

    signature: EdgeSignature
    slots: tuple[int, ...]
    """Slots with optimized vertices."""
    pairs: Pairs
    """Slots of the off-diagonal blocks that are stored."""
    has_sums: bool = False
    """Records hold sums in any case, and begin at a word that a launch says: kernels share a buffer."""

    def record_dim(self) -> int:
        """Numbers of a record, filled up to whole words."""
        return -(-record_layout(self).count // 4) * 4

    @property
    def guided(self) -> tuple[int, ...]:
        """Slots whose Jacobians the records need."""
        return tuple(sorted({*self.slots, *(slot for pair in self.pairs for slot in pair)}))


@per_type_cache
def record_layout(own: Scattered) -> StoredEntries:
    """What a record holds: the outputs of `record_program`, the shorter of both kinds."""
    if own.has_sums:
        return stored_numbers(_assignment(own, False), False)
    return shorter_entries(lambda has_factors: _assignment(own, has_factors))


def record_program(own: Scattered, has_factors: bool) -> Program:
    """-> what a record is made of, guides.

    Factors: J_t by rows per slot, upper triangle of w Omega by columns, w Omega e. Sums: upper triangle of
    H_aa by columns and b_a per slot, H_ab by columns.
    """
    what = "factors" if has_factors else "sums"
    pairs = "" if has_factors else "".join(f".{a}_{b}" for a, b in own.pairs)
    name = f"record_{what}{'_'.join(map(str, own.slots))}{pairs}"
    outputs = _factors if has_factors else _sums
    return compile_program(own.signature, name, lambda edge: outputs(edge, own), guided=own.guided)


def _factors(edge: SymbolicEdge, own: Scattered) -> list[Expr]:
    num = range(len(edge.residual))
    information = edge.information.matrix
    weights = [make("mul", edge.weight, information[i][j]) for j in num for i in range(j + 1)]
    jacobians = [x for t in own.slots for x in edge.jacobians[t].ravel()]
    return [*jacobians, *weights, *edge.weighted]


def _sums(edge: SymbolicEdge, own: Scattered) -> list[Expr]:
    found: list[Expr] = []
    for t in own.slots:
        left = edge.columns(t)
        found += vertex_sums(left, edge.products(left), edge.weighted)
    for a, b in own.pairs:
        found += pair_sums(edge.columns(a), edge.products(edge.columns(b)))
    return found


def _assignment(own: Scattered, has_factors: bool) -> Assignment:
    return assign_entries(own.signature, record_program(own, has_factors), own.guided)


@per_type_cache
def evaluate_kernel(own: Scattered, arithmetic: Arithmetic = "double") -> GpuKernel:
    """`numbers`: the records of num_edges edges, one per invocation."""
    layout, signature = record_layout(own), own.signature
    loads = edge_loads(signature, False, arithmetic)
    assignment = _assignment(own, layout.has_factors)
    wide = assignment.needed_by(guide_names(signature, own.guided))
    requested = [f"entry_{number}" for number in layout.representatives]
    inputs = [load for group in loads for load in group]
    body = edge_body(assignment, wide, requested, inputs, arithmetic)
    interface = Interface(("num_edges", "first_word") if own.has_sums else ("num_edges",))
    declare_inputs(interface, signature)
    interface.add("numbers", "WORDS(writeonly, %, numbers)")
    first = "push.first_word + " if own.has_sums else ""
    values = [body.outputs[name] for name in requested]
    values += ["ZERO"] * (-len(values) % 4)
    words = [", ".join(values[k : k + 4]) for k in range(0, len(values), 4)]
    place = f"{first}e * {len(words)}"
    main = [
        "const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (e >= push.num_edges) return;",
        *load_lines(signature, loads, body.used),
        *body.lines,
        *(f"AT(numbers, {place}, {k}) = packed_word({word});" for k, word in enumerate(words)),
    ]
    what = "J, w omega, w omega e" if layout.has_factors else "H and b"
    listed = ", ".join(argument_names(signature.edge_type)[t] for t in own.slots)
    header = [f"evaluate: {layout.count} numbers of {what} by {listed}", *describe_type(signature)]
    return compose(
        _name(own, "evaluate"),
        interface,
        header,
        main,
        arithmetic,
        body,
        EVALUATE_WORKGROUP,
        layout.count,
        macros=_macros(arithmetic),
    )


@per_type_cache
def scattered_linearize_kernel(
    own: Scattered, slot: int, arithmetic: Arithmetic = "double", parts: bool = False
) -> GpuKernel:
    """`linearize_kernel` from records: H_aa and b_a per destination.

    place: record of each edge of the view.
    """
    dim = own.signature.edge_type.vertices[slot].tangent_dim
    totals = vertex_totals(dim)
    body, reads = _from_records(own, (slot,), [total.output for total in totals], arithmetic)
    interface = Interface(("num_tiles", "first_tile", *(() if parts else ("accumulate",))))
    interface.add("numbers", "WORDS(readonly, %, numbers)")
    interface.add("place", "INPUT(%, uint, place)")
    declare_sums(interface, parts)
    main = [
        *TILE_START,
        *(total.start for total in totals),
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        f"  const uint record = place.at[e] * {own.record_dim() // 4};",
        *indent(reads),
        *indent(body.lines),
        *indent(total.add(body.outputs[total.output]) for total in totals),
        "}",
        *tile_sums(totals),
    ]
    header = [
        f"linearize slot {slot} from records: H = J' w omega J and b = -J' w omega e of the vertex "
        f"{argument_names(own.signature.edge_type)[slot]}{', parts of long sums' if parts else ''}",
        *describe_type(own.signature),
    ]
    name = _name(own, f"scattered{slot}{'.parts' if parts else ''}")
    declarations, macros = sum_declarations(dim, parts), _macros(arithmetic)
    return compose(
        name, interface, header, main, arithmetic, body, TILE, len(totals), declarations, macros=macros
    )


@per_type_cache
def scattered_pair_kernel(own: Scattered, a: int, b: int, arithmetic: Arithmetic = "double") -> GpuKernel:
    """`pair_kernel` from records."""
    vertices = own.signature.edge_type.vertices
    rows, cols = vertices[a].tangent_dim, vertices[b].tangent_dim
    body, reads = _from_records(own, (a, b), pair_names(rows, cols), arithmetic)
    interface = Interface(("num_blocks", "accumulate"))
    interface.add("numbers", "WORDS(readonly, %, numbers)")
    names = argument_names(own.signature.edge_type)
    header = [
        f"pair {a}, {b} from records: H = J_a' w omega J_b of {names[a]} and {names[b]}, {rows} x {cols}",
        *describe_type(own.signature),
    ]
    reads = [f"const uint record = e * {own.record_dim() // 4};", *reads]
    name, shape = _name(own, f"scattered{a}_{b}"), (rows, cols)
    return compose_pairs(name, interface, header, reads, body, shape, arithmetic, _macros(arithmetic))


def scattered_kernels(signature: EdgeSignature, arithmetic: Arithmetic) -> list[GpuKernel]:
    """Those of a type whose vertices are all optimized and whose blocks are stored."""
    slots = tuple(range(signature.arity))
    pairs = tuple((a, b) for a in slots for b in slots if a < b)
    own = Scattered(signature, slots, pairs)
    sums = [scattered_linearize_kernel(own, slot, arithmetic) for slot in slots]
    return [
        evaluate_kernel(own, arithmetic),
        *sums,
        *(scattered_pair_kernel(own, *pair, arithmetic) for pair in pairs),
    ]


def _from_records(
    own: Scattered, slots: tuple[int, ...], outputs: Sequence[str], arithmetic: Arithmetic
) -> tuple[Body, list[str]]:
    """Statements for H_aa and b_a of one slot or H_ab of two, and the reads of what they use of a record."""
    layout = record_layout(own)
    names = numbered("number", layout.count)
    program = _sums_program(own, slots)
    loads = [
        Load(
            name,
            "real",
            f"numbers_w{k // 4}.{COMPONENTS[k % 4]}",
            f"const packed_word numbers_w{k // 4} = AT(numbers, record, {k // 4});",
        )
        for k, name in enumerate(names)
    ]
    body = edge_body(assign(program, names, outputs), set(), outputs, loads, arithmetic)
    used = [load for load in loads if load.name in body.used]
    reads = [*dict.fromkeys(load.needs for load in used)]
    return body, reads + [f"const real {load.name} = {load.expression};" for load in used]


def _sums_program(own: Scattered, slots: tuple[int, ...]) -> Program:
    """Numbers of a record -> upper triangle of H_aa by columns and b_a, or H_ab by columns."""
    layout = record_layout(own)
    with workspace():
        numbers = [var(name) for name in numbered("number", layout.count)]
        entries = [_expression(entry, numbers) for entry in layout.entries]
        outputs = _by_factors(own, slots, entries) if layout.has_factors else _taken(own, slots, entries)
        kernel = f"{own.signature.information}.{own.signature.kernel}"
        name = f"{own.signature.edge_type.name}.gpu.scattered{'_'.join(map(str, slots))}.{kernel}"
        return cached(name, numbers, Definition(outputs), lambda: outputs)


def _expression(entry: Entry, numbers: Sequence[Expr]) -> Expr:
    if not isinstance(entry, tuple):
        return const(entry)
    place, sign = entry
    return numbers[place] if sign > 0 else make("neg", numbers[place])


def _by_factors(own: Scattered, slots: tuple[int, ...], entries: Sequence[Expr]) -> list[Expr]:
    num = own.signature.edge_type.residual_dim
    at, columns = 0, {}
    for t in own.slots:
        dim = own.signature.edge_type.vertices[t].tangent_dim
        columns[t] = [[entries[at + i * dim + j] for i in range(num)] for j in range(dim)]
        at += num * dim
    place = {(i, j): at + j * (j + 1) // 2 + i for j in range(num) for i in range(j + 1)}
    matrix = [[entries[place[min(i, j), max(i, j)]] for j in range(num)] for i in range(num)]
    right = [[dot(row, column) for row in matrix] for column in columns[slots[-1]]]
    if len(slots) == 1:
        return vertex_sums(columns[slots[0]], right, entries[len(entries) - num :])
    return pair_sums(columns[slots[0]], right)


def _taken(own: Scattered, slots: tuple[int, ...], entries: Sequence[Expr]) -> list[Expr]:
    dims = [vertex.tangent_dim for vertex in own.signature.edge_type.vertices]
    at = 0
    for t in own.slots:
        count = len(hessian_names(dims[t])) + dims[t]
        if slots == (t,):
            return list(entries[at : at + count])
        at += count
    for a, b in own.pairs:
        if slots == (a, b):
            return list(entries[at : at + dims[a] * dims[b]])
        at += dims[a] * dims[b]
    raise AssertionError(f"the records have no sums of slots {slots}")


def _macros(arithmetic: Arithmetic) -> list[str]:
    word, shift = ("dvec4", 5) if arithmetic == "double" else ("vec4", 4)
    return [f"#define packed_word {word}", f"#define WORD_SHIFT {shift}", '#include "words.glsl"']


def _name(own: Scattered, kind: str) -> str:
    slots = "_".join(map(str, own.slots))
    return (
        f"{own.signature.edge_type.name}.{kind}.of{slots}.{own.signature.information}.{own.signature.kernel}"
    )
