"""Products that start from stored values of their program: schedule "expressions".

One kernel stores per edge and linearisation the values that `expression_cuts` has chosen, computed in wide
numbers, in blocks of 64 edges like `stored_products`; the product's kernel reads them, and of estimates,
measurements and parameters only what is left to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphopt.codegen.assignment import Assignment
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.cuts import split_at, wide_values
from graphopt.codegen.gpu.expression_cuts import ViewCut, moving_values
from graphopt.codegen.gpu.inputs import ROWS, edge_loads, numbers_of_edges, record_buffer
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, closed_choices, edge_body
from graphopt.codegen.gpu.layout import EdgeSignature
from graphopt.codegen.gpu.packed_products import Recomputed, check_product, words_of
from graphopt.codegen.gpu.product_shapes import Loop
from graphopt.codegen.gpu.stored_products import compose_store, stored_lines
from graphopt.types.cache import per_type_cache


@per_type_cache
def store_expressions_kernel(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], cut: ViewCut, arithmetic: Arithmetic
) -> GpuKernel:
    """`stored` of the edges of a view, one per invocation; sources: as of `view_cut`."""
    whole = Recomputed(signature, slot, sources, arithmetic, cut.explicit).assignment
    function = Assignment(whole.statements, {name: name for name in cut.stored})
    loads = [load for group in edge_loads(signature, False, arithmetic) for load in group]
    body = edge_body(function, function.cone(cut.stored), cut.stored, loads, arithmetic)
    header = f"store slot {slot}: {len(cut.stored)} values of the product"
    name = f"store_expressions{slot}.{'_'.join(map(str, sources))}"
    return compose_store(
        signature, name, header, body, [body.outputs[number] for number in cut.stored], arithmetic
    )


@per_type_cache
def expression_product(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    stored_sources: tuple[int, ...],
    holds_estimate: tuple[bool, ...],
    cut: ViewCut,
    arithmetic: Arithmetic,
) -> ExpressionProduct:
    """The product of a slot from x of `sources`, the same object for the same arguments.

    stored_sources: of the cut, these and maybe others. holds_estimate: per slot, packed records hold the
    estimate before x.
    """
    return ExpressionProduct(signature, slot, sources, stored_sources, holds_estimate, cut, arithmetic)


class ExpressionProduct(Recomputed):
    """An `EdgeProduct` that reads stored values."""

    name = "expressions"

    def __init__(
        self,
        signature: EdgeSignature,
        slot: int,
        sources: tuple[int, ...],
        stored_sources: tuple[int, ...],
        holds_estimate: tuple[bool, ...],
        cut: ViewCut,
        arithmetic: Arithmetic,
    ):
        check_product(signature, slot, sources)
        super().__init__(signature, slot, stored_sources, arithmetic, cut.explicit)
        closed = closed_choices(self.assignment, self.loads) if arithmetic != "double" else set[str]()
        self.assignment = split_at(self.assignment, moving_values(self), cut.stored).rest
        self.wide = wide_values(self.assignment, closed)
        self.kinds.update(dict.fromkeys(cut.stored, "real"))
        self.sources = sources
        self._stored = cut.stored
        self._holds_estimate = holds_estimate
        self._absent = [t for t in stored_sources if t not in sources]
        self.description = f"from {len(cut.stored)} stored values per edge"

    def places(self, k: int) -> dict[str, int]:
        """Place in the packed record of slot k, by the name of a value."""
        places = super().places(k)
        if self._holds_estimate[k]:
            return places
        first = self.signature.edge_type.vertices[k].storage_dim
        return {name: place - first for name, place in places.items() if place >= first}

    def first_of_x(self, k: int) -> int:
        """Place of x in the packed records of slot k."""
        return super().first_of_x(k) if self._holds_estimate[k] else 0

    def stride(self, k: int) -> int:
        """Words per packed record of slot k."""
        tangent_dim = self.signature.edge_type.vertices[k].tangent_dim
        return words_of(self.first_of_x(k), tangent_dim, self.arithmetic)

    def reads_estimate(self, k: int) -> bool:
        """Whether estimates of slot k are read."""
        used = self.assignment.inputs()
        return any(load.name in used for load in self.loads[k])

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the edges are read from; a packed one that is written is not `restrict`."""
        used = self.assignment.inputs()
        for k in range(self.signature.arity):
            if k == written or not used.isdisjoint(self.places(k)):
                qualifier = "" if k == written else "readonly"
                interface.add(f"packed{k}", f"WORDS({qualifier}, %, packed{k})")
        narrow = self.arithmetic != "double"
        for k in range(self.signature.arity, self.signature.num_rows):
            if any(load.name in used for load in self.loads[k]):
                name = record_buffer(self.signature, k, narrow)
                interface.add(name, f"FAR_RECORDS(%, {'real4' if narrow else 'wide2'}, {name})")
        interface.add("rows", ROWS)
        if self.uses_data():
            name = "data_narrow" if narrow else "data"
            interface.add(name, numbers_of_edges(name))
        if self._stored:
            interface.add("stored", "LARGE_INPUT(%, stored)")
        interface.add("status", "INPUT(%, uint, status)")

    def loop(self) -> Loop:
        """All is computed inside."""
        loop = super().loop()
        return Loop([*self._zeros(), *loop.before], loop.inside, loop.body)

    def hoisted(self) -> Loop:
        """What depends on the destination only is computed before."""
        loop = super().hoisted()
        return Loop([*self._zeros(), *loop.before], loop.inside, loop.body)

    def reads(self, used: set[str], without: int | None = None, ahead: Sequence[int] = ()) -> list[str]:
        """Text that reads the used inputs of edge e."""
        names = {k: name for k, name in enumerate(self._stored) if name in used}
        return [*super().reads(used, without, ahead), *stored_lines(len(self._stored), names)]

    def _zeros(self) -> Iterable[str]:
        """x that takes no part in this product, though its program has it."""
        dims = {t: self.signature.edge_type.vertices[t].tangent_dim for t in self._absent}
        return [f"const real x{t}_{i} = ZERO;" for t, dim in dims.items() for i in range(dim)]
