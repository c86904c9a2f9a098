"""Products in two halves: schedule "jp".

    t = w Omega sum_t J_t x_t     per edge, in the order of one view; `moved`, edge after edge
    y_a = sum of J_a' t           per vertex of slot a, over the view of that slot

Each half computes the Jacobians that it needs anew. All slots with the same sources share t: of n vertices
per edge, a whole product takes n + 1 passes over the edges that do half the work, instead of n. A view in
another order than t finds an edge's t by `edge_place`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import describe_type
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, compose
from graphopt.codegen.gpu.layout import EdgeSignature, numbered
from graphopt.codegen.gpu.packed_products import Recomputed
from graphopt.codegen.gpu.product_shapes import PRODUCT_INCLUDES, STOP, packed_word
from graphopt.codegen.gpu.programs import moved_names, moved_program, transposed_program, vector_names
from graphopt.codegen.program import Program
from graphopt.types.cache import per_type_cache

MOVED_WORKGROUP = 128


@per_type_cache
def moved_kernel(signature: EdgeSignature, sources: tuple[int, ...], arithmetic: Arithmetic) -> GpuKernel:
    """t of the edges of a view, one per invocation; x and estimates from packed records."""
    product = _Moved(signature, sources[0], sources, arithmetic)
    interface = Interface(("num_edges", "ping_pong"))
    product.declare(interface, None)
    interface.add("moved", "LARGE_OUTPUT(%, moved)")
    body = product.body(product.assignment)
    count = len(product.sums)
    main = [
        STOP,
        "const uint e = WORKGROUP * WORKGROUP_SIZE + LANE;",
        "if (e >= push.num_edges) return;",
        *product.reads(body.used),
        *body.lines,
        *(f"AT(moved, e * {count}, {k}) = {body.outputs[name]};" for k, name in enumerate(product.sums)),
    ]
    listed = " + ".join(f"J_{t} x_{t}" for t in sources)
    header = [f"t = w omega ({listed}) per edge", *describe_type(signature)]
    name = f"{signature.edge_type.name}.moved{'_'.join(map(str, sources))}"
    return compose(
        f"{name}.{signature.information}.{signature.kernel}",
        interface,
        header,
        main,
        arithmetic,
        body,
        MOVED_WORKGROUP,
        count,
        macros=[packed_word(arithmetic), *PRODUCT_INCLUDES],
    )


@per_type_cache
def transposed_product(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], is_ordered: bool, arithmetic: Arithmetic
) -> TransposedProduct:
    """The second half for a slot, the same object for the same arguments; sources: of t.

    is_ordered: t is in the order of this view.
    """
    return TransposedProduct(signature, slot, sources, is_ordered, arithmetic)


class _Moved(Recomputed):
    """The first half."""

    def function(self) -> tuple[Program, Sequence[str], Sequence[str]]:
        """Program, names of its outputs, names of its last inputs."""
        vectors = [name for vector in vector_names(self.signature, self.sources) for name in vector]
        sums = numbered("t", self.signature.edge_type.residual_dim)
        return moved_program(self.signature, self.sources), sums, vectors


class TransposedProduct(Recomputed):
    """The second half, an `EdgeProduct`."""

    name = "transposed"
    prefetches_rows = False

    def __init__(
        self,
        signature: EdgeSignature,
        slot: int,
        sources: tuple[int, ...],
        is_ordered: bool,
        arithmetic: Arithmetic,
    ):
        super().__init__(signature, slot, sources, arithmetic)
        self._is_ordered = is_ordered
        self.description = "J x, weighted, is read; Jacobians of this slot are computed anew"

    def function(self) -> tuple[Program, Sequence[str], Sequence[str]]:
        """Program, names of its outputs, names of its last inputs."""
        sums = numbered("y", self.signature.edge_type.vertices[self.slot].tangent_dim)
        return transposed_program(self.signature, self.slot), sums, moved_names(self.signature)

    def places(self, k: int) -> dict[str, int]:
        """Place in the packed record of slot k, by the name of a value: estimates only."""
        return {load.name: i for i, load in enumerate(self.loads[k])}

    def declare(self, interface: Interface, written: int | None) -> None:
        """Buffers that the edges are read from; a packed one that is written is not `restrict`."""
        super().declare(interface, written)
        interface.add("moved", "LARGE_INPUT(%, moved)")
        if not self._is_ordered:
            interface.add("edge_place", "INPUT(%, uint, edge_place)")

    def reads(self, used: set[str], without: int | None = None, ahead: Sequence[int] = ()) -> list[str]:
        """Text that reads the used inputs of edge e."""
        names = moved_names(self.signature)
        place = "e" if self._is_ordered else "edge_place.at[e]"
        return [
            *super().reads(used, without),
            f"const uint first_moved = {place} * {len(names)};",
            *(
                f"const real {name} = AT(moved, first_moved, {k});"
                for k, name in enumerate(names)
                if name in used
            ),
        ]
