"""Products J_a' w Omega sum_t J_t x_t for conjugate gradients without H, tuned for caches.

What limits such a product on a GPU is the number of cache lines that each edge fetches from its vertices. So
a vertex's estimate and its part of x lie in one *packed record* of 16-byte words, in the type `real`:

    storage_dim numbers of the estimate, tangent_dim numbers of x, filled up to a multiple of four

and two shapes of kernels read them:

    tiles   one invocation per edge, a workgroup for a tile of whole destinations: vertices with few edges.
            With `solve` it ends with x_a = -H_aa^-1 y, written into the destination's packed record: the
            first half of a product with the implicit Schur complement.
    rows    a workgroup per destination: vertices with many edges. What depends on the destination only is
            computed before the loop over its edges.

Sums are plain `real` (the direction of a conjugate gradient step needs no more), in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.glsl import Arithmetic, write
from graphopt.codegen.gpu.inputs import Load, describe_type, edge_loads, load_lines, record_buffer
from graphopt.codegen.gpu.kernel import Body, GpuKernel, Interface, body_of, closed_forms, compose, indent
from graphopt.codegen.gpu.layout import TILE, EdgeSignature, argument_names, numbered
from graphopt.codegen.gpu.programs import product_program, vector_names
from graphopt.errors import OptionError

ROWS_WORKGROUP = 128
STOPPABLE = 1
"""Specialization constant; 1: return at once where `status` says that conjugate gradients have stopped."""
_COMPONENTS = "xyzw"


def packed_record_dim(storage_dim: int, tangent_dim: int) -> int:
    """Numbers of a packed record."""
    return -(-(storage_dim + tangent_dim) // 4) * 4


@cache
def packed_tiles_kernel(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    arithmetic: Arithmetic,
    solve: bool = False,
) -> GpuKernel:
    """Products over tiles of whole destinations of a slot; x_t from packed records of the slots `sources`.

    solve: x_a = -inverse y into packed{slot} instead of y; `inverse` has blocks by columns, that of
    destination d from `dest_inverse[d]` on. `tile_ranges` (num_tiles, 4): first destination, number of
    destinations, first edge, one past the last.
    """
    parts = _Parts(signature, slot, sources, arithmetic)
    count = len(parts.sums)
    params = ("num_tiles", "first_tile", "parity")
    interface = Interface(params if solve else (*params, "accumulate"))
    parts.declare(interface, written=slot if solve else None)
    interface.add("tile_ranges", "INPUT(%, uvec4, tile_ranges)")
    for name in ("first", "dest_inverse" if solve else "dest_scalar"):
        interface.add(name, f"INPUT(%, uint, {name})")
    interface.add(*(("inverse", "INPUT(%, real, inverse)") if solve else ("y", "INOUT(%, real, y)")))
    body = parts.body(parts.assignment)
    main = [
        *_TILE_START,
        *_zero_sums(count),
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent([*parts.reads(body.used), *body.lines, *parts.additions(body)]),
        "}",
        "[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) scratch[k * TILE + LANE] = sum[k];",
        "barrier();",
        *(_solve_tile(parts) if solve else _STORE_TILE),
    ]
    declarations = [f"const uint OUTPUTS = {count}, TILE = {TILE};", "shared real scratch[OUTPUTS * TILE];"]
    kind = "solve" if solve else "tiles"
    return parts.compose(kind, interface, main, body, TILE, declarations)


@cache
def packed_rows_kernel(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic
) -> GpuKernel:
    """Products with a workgroup per destination."""
    parts = _Parts(signature, slot, sources, arithmetic)
    count = len(parts.sums)
    interface = Interface(("num_destinations", "first_destination", "parity", "accumulate"))
    parts.declare(interface, written=None)
    interface.add("first", "INPUT(%, uint, first)")
    interface.add("dest_scalar", "INPUT(%, uint, dest_scalar)")
    interface.add("y", "INOUT(%, real, y)")
    before, inside = parts.split()
    hoisted, body = parts.body(before), parts.body(inside)
    row = f"{parts.names[slot]}_row"
    own = parts.words(slot, hoisted.used | body.used)
    main = [
        _STOP,
        "const uint d = push.first_destination + WORKGROUP;",
        "if (d >= push.num_destinations) return;",
        "const uint begin = first.at[d], end = first.at[d + 1];",
        f"const uint {row} = rows.at[blocked(begin, {slot}, {signature.num_rows})];",
        *own,
        *hoisted.lines,
        *_zero_sums(count),
        "for (uint e = begin + LANE; e < end; e += WORKGROUP_SIZE) {",
        *indent([*parts.reads(body.used, without=slot), *body.lines, *parts.additions(body)]),
        "}",
        *_STORE_ROW,
    ]
    declarations = [f"const uint OUTPUTS = {count};", "shared real scratch[OUTPUTS * WORKGROUP_SIZE];"]
    total = replace(
        body,
        flops=body.flops + hoisted.flops,
        registers=body.registers + len(before.outputs),
        samples_images=body.samples_images or hoisted.samples_images,
    )
    return parts.compose("rows", interface, main, total, ROWS_WORKGROUP, declarations)


class _Parts:
    """What the kernels of one product share."""

    def __init__(self, signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic):
        arity = signature.arity
        if not sources or len(set(sources)) != len(sources) or not {slot, *sources} <= set(range(arity)):
            raise OptionError(
                f"{signature.edge_type.name}: product of slot {slot} from slots {sources}; expected one or "
                f"several different slots below {arity}."
            )
        self.signature, self.slot, self.sources = signature, slot, sources
        self.arithmetic: Arithmetic = arithmetic
        self.names = argument_names(signature.edge_type)
        self.sums = numbered("y", signature.edge_type.vertices[slot].tangent_dim)
        self.program = product_program(signature, slot, sources)
        self.loads = self._loads()
        vectors = [name for vector in vector_names(signature, sources) for name in vector]
        inputs = [load.name for group in self.loads for load in group] + vectors
        guides = [*numbered("e", signature.edge_type.residual_dim), "weight"]
        whole = assign(self.program, inputs, [*self.sums, *guides])
        self.assignment = whole.keep(self.sums)
        self.wide = closed_forms(whole, self.loads) if arithmetic != "double" else set()
        self.kinds = dict.fromkeys(inputs, "real")

    def _loads(self) -> list[list[Load]]:
        """Inputs per vertex, parameter and data; those of vertices in words of their packed records."""
        groups = edge_loads(self.signature, self.arithmetic != "double", self.arithmetic)
        for k in range(self.signature.arity):
            groups[k] = [replace(load, expression="", needs="") for load in groups[k]]
        return [[replace(load, kind="real") for load in group] for group in groups]

    def places(self, k: int) -> dict[str, int]:
        """Place in the packed record of slot k, by the name of a value."""
        vertex = self.signature.edge_type.vertices[k]
        places = {load.name: i for i, load in enumerate(self.loads[k])}
        if k in self.sources:
            places.update({f"x{k}_{i}": vertex.storage_dim + i for i in range(vertex.tangent_dim)})
        return places

    def stride(self, k: int) -> int:
        """Words of 16 bytes (32 in double) per packed record of slot k."""
        vertex = self.signature.edge_type.vertices[k]
        return packed_record_dim(vertex.storage_dim, vertex.tangent_dim) // 4

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the edges are read from; a packed one that is written is not `restrict`."""
        narrow = self.arithmetic != "double"
        for k in range(self.signature.arity):
            qualifier = "" if k == written else "readonly"
            interface.add(f"packed{k}", f"WORDS({qualifier}, %, packed{k})")
        for k in range(self.signature.arity, self.signature.num_rows):
            name = record_buffer(self.signature, k, narrow)
            interface.add(name, f"RECORDS(%, {'real4' if narrow else 'wide2'}, {name})")
        interface.add("rows", "INPUT(%, uint, rows)")
        if self.uses_data():
            name = "data_narrow" if narrow else "data"
            interface.add(name, f"INPUT(%, real, {name})")
        interface.add("status", "INPUT(%, uint, status)")

    def uses_data(self) -> bool:
        """Whether measurement, information or width are read."""
        used = self.assignment.inputs()
        return any(load.name in used for load in self.loads[-1])

    def split(self) -> tuple[Assignment, Assignment]:
        """What depends on the destination's estimate only, and the rest."""
        known = {load.name for load in self.loads[self.slot]}
        before, inside = [], []
        for statement in self.assignment.statements:
            if set(statement.names()) <= known:
                known.update(statement.targets)
                before.append(statement)
            else:
                inside.append(statement)
        rest = replace(self.assignment, statements=tuple(inside))
        produced = {t for s in before for t in s.targets}
        outputs = {name: name for name in sorted(produced & rest.inputs())}
        return Assignment(tuple(before), outputs), rest

    def body(self, assignment: Assignment) -> Body:
        """Statements of a part, in `real` but for closed forms."""
        text = write(
            assignment, self.kinds, self.arithmetic, self.wide, dict.fromkeys(assignment.outputs, "real")
        )
        for statement in assignment.statements:
            boolean = statement.operation in ("LT", "LE", "EQ", "AND", "OR", "NOT")
            kind = "bool" if boolean else "wide" if self.wide & set(statement.targets) else "real"
            self.kinds.update(dict.fromkeys(statement.targets, kind))
        return body_of(assignment, text)

    def words(self, k: int, used: Iterable[str]) -> list[str]:
        """Text that reads the words of slot k's record that hold used values."""
        wanted = {name: place for name, place in self.places(k).items() if name in set(used)}
        lines = []
        for word in sorted({place // 4 for place in wanted.values()}):
            name = f"{self.names[k]}_w{word}"
            lines.append(
                f"const packed_word {name} = packed{k}.at[{self.names[k]}_row * {self.stride(k)} + {word}];"
            )
        lines += [
            f"const real {name} = {self.names[k]}_w{place // 4}.{_COMPONENTS[place % 4]};"
            for name, place in wanted.items()
        ]
        return lines

    def reads(self, used: set[str], without: int | None = None) -> list[str]:
        """Text that reads the used inputs of edge e."""
        lines = []
        for k in range(self.signature.arity):
            if k != without and not used.isdisjoint(self.places(k)):
                row = f"rows.at[blocked(e, {k}, {self.signature.num_rows})]"
                lines += [f"const uint {self.names[k]}_row = {row};", *self.words(k, used)]
        arity = self.signature.arity
        nothing: list[list[Load]] = [[] for _ in range(arity)]
        return [*lines, *load_lines(self.signature, [*nothing, *self.loads[arity:]], used)]

    def additions(self, body: Body) -> list[str]:
        """Add the outputs of an edge."""
        return [f"sum[{k}] += {body.outputs[name]};" for k, name in enumerate(self.sums)]

    def compose(
        self,
        kind: str,
        interface: Interface,
        main: Sequence[str],
        body: Body,
        workgroup: int,
        declarations: Sequence[str],
    ) -> GpuKernel:
        """Put the kernel's text together."""
        listed = " + ".join(f"J_{t} x_{t}" for t in self.sources)
        what = f"x_{self.slot} = -H^-1 y, " if kind == "solve" else ""
        slots = ", ".join(f"{t} {self.names[t]}" for t in sorted({self.slot, *self.sources}))
        header = [
            f"product over {'tiles' if kind == 'solve' else kind}: {what}"
            f"y = J_{self.slot}' w omega ({listed}), slots: {slots}",
            *describe_type(self.signature),
        ]
        name = f"{self.signature.edge_type.name}.packed_{kind}{self.slot}.{'_'.join(map(str, self.sources))}"
        packed_word = f"#define packed_word {'dvec4' if self.arithmetic == 'double' else 'vec4'}"
        return compose(
            f"{name}.{self.signature.information}.{self.signature.kernel}",
            interface,
            header,
            main,
            self.arithmetic,
            body,
            workgroup,
            len(self.sums),
            declarations,
            macros=[packed_word, *_INCLUDES],
        )


def _zero_sums(count: int) -> list[str]:
    return [f"real sum[{count}];", f"[[unroll]] for (uint k = 0; k < {count}; ++k) sum[k] = ZERO;"]


_INCLUDES = [
    '#include "words.glsl"',
    '#include "pcg_state.glsl"',
    f"layout(constant_id = {STOPPABLE}) const uint STOPPABLE = 0;",
]

_STOP = "if (STOPPABLE != 0 && status.at[STOPPED + push.parity] != 0) return;"

_TILE_START = [
    _STOP,
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
  const uint place = dest_scalar.at[d] + o;
  y.at[place] = push.accumulate != 0 ? y.at[place] + total : total;
}""".splitlines()


def _solve_tile(parts: _Parts) -> list[str]:
    """One invocation per destination: its sum, times the inverse of its block, into its packed record."""
    slot, signature = parts.slot, parts.signature
    vertex = signature.edge_type.vertices[slot]
    outputs = range(vertex.tangent_dim)
    solve = [
        f"const real solved_{i} = "
        + " + ".join(f"inverse.at[block + {i + vertex.tangent_dim * j}] * total_{j}" for j in outputs)
        + ";"
        for i in outputs
    ]
    write_x = []
    for i in outputs:
        word, component = divmod(vertex.storage_dim + i, 4)
        write_x.append(f"packed{slot}.at[record + {word}].{_COMPONENTS[component]} = -solved_{i};")
    first_row = f"rows.at[blocked(first.at[d], {slot}, {signature.num_rows})]"
    return [
        "if (LANE >= num_here) return;",
        "const uint d = first_destination + LANE;",
        "const uint last = min(first.at[d + 1] - begin, TILE), block = dest_inverse.at[d];",
        f"real {', '.join(f'total_{i} = ZERO' for i in outputs)};",
        "for (uint i = first.at[d] - begin; i < last; ++i) {",
        *(f"  total_{i} += scratch[{i} * TILE + i];" for i in outputs),
        "}",
        *solve,
        f"const uint record = {first_row} * {parts.stride(slot)};",
        *write_x,
    ]


_STORE_ROW = """\
[[unroll]] for (uint k = 0; k < OUTPUTS; ++k) scratch[k * WORKGROUP_SIZE + LANE] = sum[k];
for (uint half_size = WORKGROUP_SIZE / 2; half_size > 0; half_size >>= 1) {
  barrier();
  for (uint s = LANE; s < OUTPUTS * half_size; s += WORKGROUP_SIZE) {
    const uint place = s / half_size * WORKGROUP_SIZE + s % half_size;
    scratch[place] += scratch[place + half_size];
  }
}
barrier();
if (LANE < OUTPUTS) {
  const real total = scratch[LANE * WORKGROUP_SIZE];
  const uint place = dest_scalar.at[d] + LANE;
  y.at[place] = push.accumulate != 0 ? y.at[place] + total : total;
}""".splitlines()
