"""Products that read values of one vertex alone, computed once per vertex and linearisation.

A landmark's sum computes for each of its edges the sine, the root and the quotients of the camera's rotation,
which depend on the camera only: of BAL's observation they are most of the time of the operations. Where such
functions are in the part of a product's program that depends on the estimate of one vertex other than the
destination, the values that the rest reads of that part are stored per vertex; what a few multiplications
make of them is computed anew. Only where many edges share a vertex: `schedules.matrix_free` knows.
`staged_products` makes these products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graphopt.codegen.assignment import Assignment
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.cuts import changing, split_at, wide_values
from graphopt.codegen.gpu.inputs import edge_loads, record_buffer, row_of
from graphopt.codegen.gpu.kernel import GpuKernel, Interface, closed_choices, compose, edge_body
from graphopt.codegen.gpu.layout import EdgeSignature, argument_names
from graphopt.codegen.gpu.packed_products import COMPONENTS, Recomputed

VALUES_WORKGROUP = 64
MOST_VALUES = 8
"""Per vertex and product: each costs every edge a read from somewhere."""
_FREE = frozenset(
    "ADD SUB MUL NEG FMA FMS FNMA FNMS DOT2 DOT3 SUM ABS MIN MAX SELECT LT LE EQ AND OR NOT".split()
)
"""Operations that are not worth a stored value; those with truth values could not be stored."""


class WithVertexValues(Recomputed):
    """An `EdgeProduct` that reads stored values of the slots `sharing`, if there are any worth it."""

    name = "values"

    def __init__(
        self,
        signature: EdgeSignature,
        slot: int,
        sources: tuple[int, ...],
        arithmetic: Arithmetic,
        sharing: tuple[int, ...],
    ):
        """sharing: slots other than `slot` whose vertices have many edges each."""
        super().__init__(signature, slot, sources, arithmetic)
        self.sharing = sharing
        self.whole = self.assignment
        """With all that is stored."""
        closed = closed_choices(self.assignment, self.loads) if arithmetic != "double" else set[str]()
        self.values: dict[int, tuple[str, ...]] = {}
        """Names of the stored values, by slot."""
        for k in sharing:
            moving = changing(self.assignment, self._inputs() - {load.name for load in self.loads[k]})
            stored = worth_storing(self.assignment, moving)
            if stored:
                split = split_at(self.assignment, moving, stored)
                self.values[k], self.assignment = split.stored, split.rest
                self.kinds.update(dict.fromkeys(split.stored, "real"))
        self.wide = wide_values(self.assignment, closed)
        count = sum(map(len, self.values.values()))
        self.description = f"Jacobians are computed anew, with {count} stored values of vertices"

    def _inputs(self) -> set[str]:
        return self.assignment.inputs()

    def declare(self, interface: Interface, written: int | None) -> None:
        """Also the buffers of the values."""
        super().declare(interface, written)
        for k in self.values:
            interface.add(f"values{k}", f"WORDS(readonly, %, values{k})")

    def _record_lines(self, k: int, used: set[str]) -> list[str]:
        """Also the values."""
        lines = super()._record_lines(k, used)
        wanted = {one: place for place, one in enumerate(self.values.get(k, ())) if one in used}
        if not wanted:
            return lines
        name, words = self.names[k], words_of(len(self.values[k]))
        row = [] if lines else [f"const uint {name}_row = {row_of('e', k, self.signature)};"]
        return [
            *lines,
            *row,
            *(
                f"const packed_word {name}_s{word} = AT(values{k}, {name}_row * {words}, {word});"
                for word in sorted({place // 4 for place in wanted.values()})
            ),
            *(
                f"const real {value} = {name}_s{place // 4}.{COMPONENTS[place % 4]};"
                for value, place in wanted.items()
            ),
        ]


def words_of(count: int) -> int:
    """Words of four numbers per vertex."""
    return -(-count // 4)


def worth_storing(assignment: Assignment, moving: set[str]) -> tuple[str, ...]:
    """Values that do not move, without which no function of numbers at rest is left; none: there is none."""
    inside = split_at(assignment, moving, ()).rest
    at_rest = [one for one in inside.statements if moving.isdisjoint(one.targets)]
    dear: set[str] = set()
    """Values that a function is needed for, and that are not functions of other stored ones only."""
    for one in at_rest:
        if one.operation not in _FREE or not dear.isdisjoint(one.names()):
            dear.update(one.targets)
    if all(one.operation in _FREE for one in at_rest):
        return ()
    stored: set[str] = set()
    needed = {name for one in inside.statements if not moving.isdisjoint(one.targets) for name in one.names()}
    for one in reversed(at_rest):
        wanted = needed.intersection(one.targets)
        if not wanted:
            continue
        is_cheap = one.operation in _FREE and _is_read(one.names(), dear, needed)
        if wanted & dear and not is_cheap:
            stored |= wanted
        else:
            needed.update(one.names())
    return tuple(sorted(stored)) if len(stored) <= MOST_VALUES else ()


def _is_read(names: Sequence[str], dear: set[str], needed: set[str]) -> bool:
    """All values of these names that are not at hand are stored in any case."""
    return all(name in needed for name in names if name in dear)


@cache
def vertex_values_kernel(product: WithVertexValues, k: int) -> GpuKernel:
    """`values` of slot k's vertices for a product with stored values, one vertex per invocation."""
    signature, arithmetic, stored = product.signature, product.arithmetic, product.values[k]
    function = Assignment(product.whole.statements, {name: name for name in stored})
    loads = edge_loads(signature, False, arithmetic)[k]
    body = edge_body(function, function.cone(stored), stored, loads, arithmetic)
    name, stride = argument_names(signature.edge_type)[k], 4 * words_of(len(stored))
    interface = Interface(("num_rows",))
    buffer = record_buffer(signature, k, False)
    interface.add(buffer, f"FAR_RECORDS(%, wide2, {buffer})")
    interface.add("values", "LARGE_OUTPUT(%, values)")
    wanted = [load for load in loads if load.name in body.used]
    main = [
        f"const uint {name}_row = WORKGROUP * WORKGROUP_SIZE + LANE;",
        f"if ({name}_row >= push.num_rows) return;",
        *dict.fromkeys(load.needs for load in wanted if load.needs),
        *(f"const {load.kind} {load.name} = {load.expression};" for load in wanted),
        *body.lines,
        *(
            f"AT(values, {name}_row * {stride}, {place}) = {body.outputs[one]};"
            for place, one in enumerate(stored)
        ),
    ]
    header = [f"{len(stored)} values of slot {k}, {name}, for products over slot {product.slot}"]
    own = f"values{product.slot}.{'_'.join(map(str, product.sources))}.{k}"
    return compose(
        f"{signature.edge_type.name}.{own}.{signature.information}.{signature.kernel}",
        interface,
        header,
        main,
        arithmetic,
        body,
        VALUES_WORKGROUP,
        len(stored),
    )
