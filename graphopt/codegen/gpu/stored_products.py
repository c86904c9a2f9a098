"""Products J_a' w Omega sum_t J_t x_t from numbers that one kernel stores per edge and linearisation.

What view a stores of an edge with m residuals, in slots of dimensions d_a, d_t, is the shorter of

    factors   A = w Omega J_a and J_t    y = A' (sum of J_t x_t)    m (d_a + sum of d_t) numbers
    blocks    H_t = J_a' w Omega J_t     y = sum of H_t x_t         d_a sum of d_t numbers

without those that are constants of the type, and each number that is there twice only once: a product then
reads the fewest bytes. Each view has its own copy in its own order, in blocks of 64 edges entry by entry like
`data`: one copy for all views would save memory and stores, but products (tens of them per store) would read
it through an index and in whole sectors of 32 bytes.

x_t is read from packed records, which may hold estimates for other edges (`packed_products`) or x alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.glsl import Arithmetic, constant
from graphopt.codegen.gpu.inputs import (
    ROWS,
    declare_inputs,
    describe_type,
    edge_loads,
    load_lines,
    row_of,
)
from graphopt.codegen.gpu.kernel import Body, GpuKernel, Interface, compose, edge_body
from graphopt.codegen.gpu.layout import EDGE_BLOCK, EdgeSignature, argument_names, numbered
from graphopt.codegen.gpu.packed_products import check_product, read_words, words_of
from graphopt.codegen.gpu.product_shapes import Loop
from graphopt.codegen.gpu.programs import blocks_program, factors_program, guide_names
from graphopt.codegen.program import Program
from graphopt.types.cache import per_type_cache

STORE_WORKGROUP = 128
Entry = float | tuple[int, int]
"""A constant, or the place among an edge's stored numbers and the sign 1 or -1."""


@dataclass(frozen=True)
class StoredEntries:
    """What is stored of an edge: the outputs of a program without constants and repetitions."""

    has_factors: bool
    """Factors, or else what these are multiplied to."""
    entries: tuple[Entry, ...]
    """The outputs of a program."""
    representatives: tuple[int, ...]
    """Of each stored number the first entry that is it."""

    @property
    def count(self) -> int:
        """Stored numbers per edge."""
        return len(self.representatives)


@per_type_cache
def stored_entries(signature: EdgeSignature, slot: int, sources: tuple[int, ...]) -> StoredEntries:
    """What the view of a slot stores for products with x of the slots `sources`."""
    check_product(signature, slot, sources)
    return shorter_entries(lambda factors: _assignment(signature, slot, sources, factors))


def _assignment(signature: EdgeSignature, slot: int, sources: tuple[int, ...], factors: bool) -> Assignment:
    """The program's statements, its guides as outputs after the entries."""
    program = (factors_program if factors else blocks_program)(signature, slot, sources)
    return assign_entries(signature, program, sorted({slot, *sources}))


def assign_entries(signature: EdgeSignature, program: Program, guided: Sequence[int]) -> Assignment:
    """Statements of a program of an edge: outputs entry_0, entry_1, ..., then guides."""
    guides = guide_names(signature, guided)
    inputs = [load.name for group in edge_loads(signature, False) for load in group]
    entries = numbered("entry", program.num_outputs - len(guides))
    return assign(program, inputs, [*entries, *guides])


def shorter_entries(assignment_of: Callable[[bool], Assignment]) -> StoredEntries:
    """Of two ways to store an edge, factors or not, the one with fewer numbers."""
    both = [stored_numbers(assignment_of(has_factors), has_factors) for has_factors in (False, True)]
    return min(both, key=lambda product: product.count)


def stored_numbers(assignment: Assignment, has_factors: bool) -> StoredEntries:
    """Find constants, and numbers that are there twice."""
    negated = {s.targets[0]: s.sources[0] for s in assignment.statements if s.operation == "NEG"}
    places: dict[str, tuple[int, int]] = {}
    entries: list[Entry] = []
    representatives = []
    for number, value in enumerate(v for k, v in assignment.outputs.items() if k.startswith("entry_")):
        sign = 1
        while isinstance(value, str) and value in negated:
            value, sign = negated[value], -sign
        if not isinstance(value, str):
            entries.append(sign * value)
            continue
        if value not in places:
            places[value] = len(places), sign
            representatives.append(number)
        place, first_sign = places[value]
        entries.append((place, sign * first_sign))
    return StoredEntries(has_factors, tuple(entries), tuple(representatives))


@per_type_cache
def store_kernel(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic = "double"
) -> GpuKernel:
    """`stored` of the edges of a view, one per invocation: BLOCKED(stored, e, k, count)."""
    layout = stored_entries(signature, slot, sources)
    loads = edge_loads(signature, False, arithmetic)
    assignment = _assignment(signature, slot, sources, layout.has_factors)
    wide = assignment.needed_by(guide_names(signature, sorted({slot, *sources})))
    requested = [f"entry_{number}" for number in layout.representatives]
    inputs = [load for group in loads for load in group]
    body = edge_body(assignment, wide, requested, inputs, arithmetic)
    listed = ", ".join(f"J_{t}" for t in sources)
    what = (
        f"w omega J_{slot}, {listed}"
        if layout.has_factors
        else ", ".join(f"J_{slot}' w omega J_{t}" for t in sources)
    )
    header = f"store slot {slot}: {layout.count} numbers of {what}"
    name = f"store{slot}.{'_'.join(map(str, sources))}"
    return compose_store(
        signature, name, header, body, [body.outputs[number] for number in requested], arithmetic
    )


def compose_store(
    signature: EdgeSignature,
    name: str,
    header: str,
    body: Body,
    numbers: Sequence[str],
    arithmetic: Arithmetic,
) -> GpuKernel:
    """The kernel that stores these numbers of each edge: BLOCKED(stored, e, k, count)."""
    interface = Interface(("num_edges",))
    declare_inputs(interface, signature)
    interface.add("stored", "LARGE_OUTPUT(%, stored)")
    main = [
        "const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (e >= push.num_edges) return;",
        *load_lines(signature, edge_loads(signature, False, arithmetic), body.used),
        *body.lines,
        first_entry(len(numbers)),
        *(f"AT(stored, first_entry, {k * EDGE_BLOCK}) = {number};" for k, number in enumerate(numbers)),
    ]
    return compose(
        f"{signature.edge_type.name}.{name}.{signature.information}.{signature.kernel}",
        interface,
        [header, *describe_type(signature)],
        main,
        arithmetic,
        body,
        STORE_WORKGROUP,
        len(numbers),
    )


def first_entry(count: int) -> str:
    """Statement that finds an edge's first stored number; the others follow at multiples of EDGE_BLOCK."""
    return f"const uint first_entry = (e >> 6) * {EDGE_BLOCK * count} + (e & 63);"


def stored_lines(count: int, names: Mapping[int, str]) -> list[str]:
    """Text that reads some of an edge's `count` stored numbers, by their places."""
    if not names:
        return []
    reads = [f"const real {name} = AT(stored, first_entry, {k * EDGE_BLOCK});" for k, name in names.items()]
    return [first_entry(count), *reads]


@dataclass(frozen=True)
class StoredProduct:
    """A product of slot a that reads what its view has stored; an `EdgeProduct`."""

    signature: EdgeSignature
    slot: int
    sources: tuple[int, ...]
    """Slots whose x takes part."""
    stored_sources: tuple[int, ...]
    """Slots that the view has stored numbers for: these and maybe others."""
    holds_estimate: tuple[bool, ...]
    """Per slot: packed records hold the estimate before x."""
    arithmetic: Arithmetic

    name = "stored"

    def __post_init__(self) -> None:
        check_product(self.signature, self.slot, self.sources)

    @property
    def sums(self) -> Sequence[str]:
        """The entries of y_a."""
        return numbered("y", self._dim(self.slot))

    @property
    def layout(self) -> StoredEntries:
        """What is stored."""
        return stored_entries(self.signature, self.slot, self.stored_sources)

    @property
    def description(self) -> str:
        """Line of the kernel's header."""
        kind = "factors" if self.layout.has_factors else "blocks"
        return f"from {self.layout.count} stored numbers per edge, {kind}"

    def _dim(self, k: int) -> int:
        return self.signature.edge_type.vertices[k].tangent_dim

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the edges are read from; a packed one that is written is not `restrict`."""
        for k in sorted({*self.sources, *(() if written is None else (written,))}):
            qualifier = "" if k == written else "readonly"
            interface.add(f"packed{k}", f"WORDS({qualifier}, %, packed{k})")
        interface.add("rows", ROWS)
        if self.layout.count:
            interface.add("stored", "LARGE_INPUT(%, stored)")
        interface.add("status", "INPUT(%, uint, status)")

    def hoisted(self) -> Loop:
        """Nothing is known before an edge is."""
        return self.loop()

    def loop(self) -> Loop:
        """Read x and what is stored, multiply, add."""
        terms = _factors(self) if self.layout.has_factors else _blocks(self)
        used = terms.used
        names = argument_names(self.signature.edge_type)
        lines = []
        for t in self.sources:
            requested = {
                f"x{t}_{j}": self.first_of_x(t) + j for j in range(self._dim(t)) if f"x{t}_{j}" in used
            }
            if requested:
                lines.append(f"const uint {names[t]}_row = {row_of('e', t, self.signature)};")
                lines += read_words(names[t], t, self.stride(t), requested, self.arithmetic)
        count = self.layout.count
        lines += stored_lines(count, {k: f"entry_{k}" for k in range(count) if f"entry_{k}" in used})
        add = [f"sum[{k}] += {terms.outputs[name]};" for k, name in enumerate(self.sums)]
        return Loop([], [*lines, *terms.lines, *add], terms)

    def first_of_x(self, k: int) -> int:
        """Place of x in the packed records of slot k."""
        return self.signature.edge_type.vertices[k].storage_dim if self.holds_estimate[k] else 0

    def stride(self, k: int) -> int:
        """Words per packed record of slot k."""
        return words_of(self.first_of_x(k), self._dim(k), self.arithmetic)


def _blocks(product: StoredProduct) -> Body:
    """y = sum of H_t x_t."""
    rows = len(product.sums)
    terms: list[list[tuple[Entry, str]]] = [[] for _ in range(rows)]
    entries = iter(product.layout.entries)
    for t in product.stored_sources:
        for i in range(rows):
            for j in range(product._dim(t)):
                entry = next(entries)
                if t in product.sources:
                    terms[i].append((entry, f"x{t}_{j}"))
    sums = dict(zip(product.sums, terms, strict=True))
    return _body(sums, {}, product.arithmetic)


def _factors(product: StoredProduct) -> Body:
    """y = A' u with u = sum of J_t x_t."""
    num, dim = product.signature.edge_type.residual_dim, len(product.sums)
    entries = iter(product.layout.entries)
    left = [[next(entries) for _ in range(dim)] for _ in range(num)]
    moved: list[list[tuple[Entry, str]]] = [[] for _ in range(num)]
    for t in product.stored_sources:
        for i in range(num):
            for j in range(product._dim(t)):
                entry = next(entries)
                if t in product.sources:
                    moved[i].append((entry, f"x{t}_{j}"))
    inner = {f"moved_{i}": value for i, value in enumerate(moved)}
    outer = {name: [(left[i][k], f"moved_{i}") for i in range(num)] for k, name in enumerate(product.sums)}
    return _body(outer, inner, product.arithmetic)


def _body(
    outer: dict[str, list[tuple[Entry, str]]],
    inner: dict[str, list[tuple[Entry, str]]],
    arithmetic: Arithmetic,
) -> Body:
    """Statements that define the sums of products `inner`, then `outer`."""
    lines, used, flops = [], set[str](), 0
    for name, terms in [*inner.items(), *outer.items()]:
        nonzero = [(entry, x) for entry, x in terms if entry != 0.0]
        flops += 2 * len(nonzero)
        used.update(x for _, x in nonzero)
        used.update(f"entry_{entry[0]}" for entry, _ in nonzero if isinstance(entry, tuple))
        lines.append(f"const real {name} = {_sum([_term(*term, arithmetic) for term in nonzero])};")
    return Body(lines, {name: name for name in outer}, flops, len(used) + len(outer), used)


def _term(entry: Entry, x: str, arithmetic: Arithmetic) -> str:
    """Product with its sign: "+ a * x" or "- a * x"."""
    if isinstance(entry, tuple):
        return f"{'-' if entry[1] < 0 else '+'} entry_{entry[0]} * {x}"
    size = "" if abs(entry) == 1.0 else f"{constant(abs(entry), arithmetic)} * "
    return f"{'-' if entry < 0 else '+'} {size}{x}"


def _sum(terms: Sequence[str]) -> str:
    if not terms:
        return "ZERO"
    text = " ".join(terms)
    return text.removeprefix("+ ")
