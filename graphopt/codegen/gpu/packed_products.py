"""Products J_a' w Omega sum_t J_t x_t for conjugate gradients without H, tuned for caches.

What limits such a product on a GPU is the number of cache lines that each edge fetches from its vertices. So
a vertex's estimate and its part of x lie in one *packed record* of 16-byte words, in the type `real`:

    storage_dim numbers of the estimate, tangent_dim numbers of x, filled up to whole words

The Jacobians are computed anew in each product; `stored_products` reads them instead. The shapes of the
kernels are in `product_shapes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.glsl import Arithmetic, write
from graphopt.codegen.gpu.inputs import (
    ROWS,
    Load,
    declare_data,
    edge_loads,
    load_lines,
    record_buffer,
    row_of,
)
from graphopt.codegen.gpu.kernel import Body, Interface, body_of, closed_forms
from graphopt.codegen.gpu.layout import EdgeSignature, argument_names, numbered
from graphopt.codegen.gpu.live_order import where_needed, with_few_live
from graphopt.codegen.gpu.product_shapes import (
    COMPONENTS,
    EdgeProduct,
    Loop,
    word_dim,
)
from graphopt.codegen.gpu.programs import (
    guide_names,
    product_program,
    vector_names,
)
from graphopt.codegen.program import Program
from graphopt.errors import OptionError
from graphopt.types.cache import per_type_cache


def packed_record_dim(storage_dim: int, tangent_dim: int, arithmetic: Arithmetic) -> int:
    """Numbers of a packed record; storage_dim 0: of x alone."""
    word = word_dim(arithmetic)
    return -(-(storage_dim + tangent_dim) // word) * word


@per_type_cache
def recomputed_product(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic
) -> EdgeProduct:
    """The product of one view, the same object for the same arguments."""
    return Recomputed(signature, slot, sources, arithmetic)


def check_product(signature: EdgeSignature, slot: int, sources: Sequence[int]) -> None:
    """`OptionError` where a product of a slot from others cannot be."""
    arity = signature.arity
    if not sources or len(set(sources)) != len(sources) or not {slot, *sources} <= set(range(arity)):
        raise OptionError(
            f"{signature.edge_type.name}: product of slot {slot} from slots {sources}; expected one or "
            f"several different slots below {arity}."
        )


def words_of(storage_dim: int, tangent_dim: int, arithmetic: Arithmetic) -> int:
    """Words of a packed record."""
    return packed_record_dim(storage_dim, tangent_dim, arithmetic) // word_dim(arithmetic)


def read_words(
    name: str, k: int, stride: int, places: Mapping[str, int], arithmetic: Arithmetic
) -> list[str]:
    """Text that reads the words of record `{name}_row` of packed{k} that hold these values, and names them.

    places: place in the record by the name of a value.
    """
    dim = word_dim(arithmetic)
    lines = [
        f"const packed_word {name}_w{word} = AT(packed{k}, {name}_row * {stride}, {word});"
        for word in sorted({place // dim for place in places.values()})
    ]
    return lines + [
        f"const real {value} = {name}_w{place // dim}.{COMPONENTS[place % dim]};"
        for value, place in places.items()
    ]


class Recomputed:
    """Products with Jacobians that are computed anew; an `EdgeProduct`."""

    name = "packed"
    prefetches_rows = True
    """Loops over edges of one destination read the rows of other ends one edge ahead: they are waited for."""

    def __init__(
        self,
        signature: EdgeSignature,
        slot: int,
        sources: tuple[int, ...],
        arithmetic: Arithmetic,
    ):
        check_product(signature, slot, sources)
        self.signature, self.slot, self.sources = signature, slot, sources
        self.arithmetic: Arithmetic = arithmetic
        self.description = "Jacobians are computed anew"
        self.names = argument_names(signature.edge_type)
        self.loads = self._loads()
        program, self.sums, moving = self.function()
        inputs = [load.name for group in self.loads for load in group] + [*moving]
        whole = assign(program, inputs, [*self.sums, *guide_names(signature, ())])
        self.assignment = whole.keep(self.sums)
        self.wide = closed_forms(whole, self.loads) if arithmetic != "double" else set()
        self.kinds = dict.fromkeys(inputs, "real")

    def function(self) -> tuple[Program, Sequence[str], Sequence[str]]:
        """Program, names of its outputs, names of its last inputs."""
        vectors = [name for vector in vector_names(self.signature, self.sources) for name in vector]
        sums = numbered("y", self.signature.edge_type.vertices[self.slot].tangent_dim)
        return product_program(self.signature, self.slot, self.sources), sums, vectors

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

    def loop(self) -> Loop:
        """All is computed inside."""
        body = self.body(with_few_live(self.assignment, self._words_by_name()))
        return Loop([], where_needed(self.reads(body.used), body.lines, self.additions(body)), body)

    def hoisted(self) -> Loop:
        """What depends on the destination only is computed before."""
        before, inside = self.split()
        first, body = self.body(before), self.body(inside)
        row = f"const uint {self.names[self.slot]}_row = {row_of('begin', self.slot, self.signature)};"
        total = replace(
            body,
            flops=body.flops + first.flops,
            registers=body.registers + len(before.outputs),
            samples_images=body.samples_images or first.samples_images,
        )
        others = [k for k in range(self.signature.arity) if k != self.slot and self.prefetches_rows]
        others = [k for k in others if not body.used.isdisjoint(self.places(k))]
        adding = [line for _, line in self.additions(body)]
        ahead = [f"uint {self.names[k]}_next = {self._row_at('begin + LANE', k)};" for k in others]
        return Loop(
            [row, *self.words(self.slot, first.used | body.used), *first.lines, *ahead],
            [*self.reads(body.used, without=self.slot, ahead=others), *body.lines, *adding],
            total,
        )

    def _words_by_name(self) -> dict[str, int]:
        """Numbers of the words that hold values of records."""
        dim, arity = word_dim(self.arithmetic), self.signature.arity
        return {
            name: place // dim * arity + k for k in range(arity) for name, place in self.places(k).items()
        }

    def _row_at(self, edge: str, k: int) -> str:
        """Text of the row of slot k, of the last edge instead of one past it."""
        return row_of(f"min({edge}, end - 1)", k, self.signature)

    def first_of_x(self, k: int) -> int:
        """Place of x in the packed records of slot k."""
        return self.signature.edge_type.vertices[k].storage_dim

    def stride(self, k: int) -> int:
        """Words per packed record of slot k."""
        vertex = self.signature.edge_type.vertices[k]
        return words_of(vertex.storage_dim, vertex.tangent_dim, self.arithmetic)

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the edges are read from; a packed one that is written is not `restrict`."""
        in_float32 = self.arithmetic != "double"
        for k in range(self.signature.arity):
            qualifier = "" if k == written else "readonly"
            interface.add(f"packed{k}", f"WORDS({qualifier}, %, packed{k})")
        for k in range(self.signature.arity, self.signature.num_rows):
            name = record_buffer(self.signature, k, in_float32)
            interface.add(name, f"FAR_RECORDS(%, {'real4' if in_float32 else 'wide2'}, {name})")
        interface.add("rows", ROWS)
        if self.uses_data():
            declare_data(interface, self.signature, "data_float32" if in_float32 else "data")
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
        requested = {name: place for name, place in self.places(k).items() if name in set(used)}
        return read_words(self.names[k], k, self.stride(k), requested, self.arithmetic)

    def reads(self, used: set[str], without: int | None = None, ahead: Sequence[int] = ()) -> list[str]:
        """Text that reads the used inputs of edge e. ahead: slots whose rows are read one edge ahead."""
        lines = []
        for k in range(self.signature.arity):
            if k != without and not used.isdisjoint(self.places(k)):
                name, row = self.names[k], row_of("e", k, self.signature)
                lines += [f"const uint {name}_row = {f'{name}_next' if k in ahead else row};"]
                if k in ahead:
                    lines.append(f"{name}_next = {self._row_at('e + WORKGROUP_SIZE', k)};")
                lines += self.words(k, used)
        arity = self.signature.arity
        nothing: list[list[Load]] = [[] for _ in range(arity)]
        return [*lines, *load_lines(self.signature, [*nothing, *self.loads[arity:]], used)]

    def additions(self, body: Body) -> list[tuple[str, str]]:
        """The outputs of an edge, and the lines that add them."""
        values = [body.outputs[name] for name in self.sums]
        return [(value, f"sum[{k}] += {value};") for k, value in enumerate(values)]
