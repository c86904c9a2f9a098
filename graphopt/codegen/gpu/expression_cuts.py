"""Which values of a product's program a view stores: schedule "expressions".

    y = J_a' w Omega sum_t J_t x_t

has values that do not depend on x. Storing none of them is schedule "matrix-free", storing what a product
reads of the Jacobians is "jacobians"; between these are all other cuts of the program. Here the cheapest is
looked for, in two programs: that of "matrix-free" (derivatives along x), and one in which all entries of
the Jacobians are values (`programs.explicit_product_program`). Where it turns out to be one of the two ends,
`ViewCut.where` says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from graphopt.codegen.assignment import Assignment
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.cuts import Balance, Reads, Split, Use, best_split, changing, split_at, use_of
from graphopt.codegen.gpu.kept_cuts import kept
from graphopt.codegen.gpu.kernel import closed_choices
from graphopt.codegen.gpu.layout import EdgeSignature
from graphopt.codegen.gpu.packed_products import Recomputed, words_of
from graphopt.codegen.gpu.product_shapes import word_dim
from graphopt.codegen.gpu.programs import explicit_product_program, product_program, vector_names
from graphopt.codegen.gpu.stored_products import StoredProduct
from graphopt.types.cache import per_type_cache

_WORD = 16  # bytes of a scattered read


@dataclass(frozen=True)
class ViewCut:
    """What a view stores for its products."""

    where: Literal["inputs", "between", "outputs"]
    """"inputs": nothing, as "matrix-free". "outputs": what "jacobians" stores."""
    explicit: bool
    """Whether the program is the one with entries of the Jacobians."""
    stored: tuple[str, ...]
    """Names of the values in that program; none unless "between"."""
    use: Use
    """What a product takes per edge."""
    without: Use
    """What it takes when nothing is stored."""


@per_type_cache
def view_cut(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    arithmetic: Arithmetic,
    balance: Balance,
    shares: bool,
) -> ViewCut:
    """The cheapest cut for products of a slot from x of `sources`.

    shares: the vertices of the slot have many edges each, so that what depends on such a vertex alone costs
    nothing per edge.
    """
    kind = signature.edge_type
    dims = [
        (slot_type.storage_dim, getattr(slot_type, "tangent_dim", 0))
        for slot_type in (*kind.vertices, *kind.parameters)
    ]
    rest = signature.num_data, kind.residual_dim, slot, sources, arithmetic, balance, shares
    programs = [program(signature, slot, sources) for program in (product_program, explicit_product_program)]
    found = kept(
        programs, (dims, rest), lambda: asdict(_find(signature, slot, sources, arithmetic, balance, shares))
    )
    uses = {name: Use(**found[name]) for name in ("use", "without")}
    return ViewCut(found["where"], found["explicit"], tuple(found["stored"]), **uses)


def _find(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    arithmetic: Arithmetic,
    balance: Balance,
    shares: bool,
) -> ViewCut:
    found: list[ViewCut] = []
    without: Use | None = None
    for explicit in (False, True):
        product = Recomputed(signature, slot, sources, arithmetic, explicit)
        reads = reads_of(product, balance, shares)
        moving = moving_values(product)
        nothing = _use(product, split_at(product.assignment, moving, ()), reads)
        without = without or nothing
        split = best_split(product.assignment, moving, reads, balance)
        where = "between" if split.stored else "inputs"
        if split.stored or not explicit:
            found.append(ViewCut(where, explicit, split.stored, _use(product, split, reads), without))
    assert without is not None
    found.append(ViewCut("inputs", False, (), without, without))
    found.append(
        ViewCut("outputs", False, (), _use_of_jacobians(signature, slot, sources, arithmetic), without)
    )
    ends = {"inputs": 0, "outputs": 1, "between": 2}  # of equals the simpler one
    return min(found, key=lambda cut: (*cut.use.cost(balance), ends[cut.where]))


def moving_values(product: Recomputed) -> set[str]:
    """Values of a product that depend on x."""
    names = vector_names(product.signature, product.sources)
    return changing(product.assignment, [name for vector in names for name in vector])


def schedule_of(cuts: Sequence[ViewCut]) -> Literal["matrix-free", "expressions", "jacobians"]:
    """The schedule that an edge group's views make up together."""
    places = {cut.where for cut in cuts}
    if places <= {"inputs"}:
        return "matrix-free"
    return "jacobians" if places == {"outputs"} else "expressions"


def reads_of(product: Recomputed, balance: Balance, shares: bool) -> Reads:
    """Where a product's inputs come from."""
    signature, slot = product.signature, product.slot
    is_double = product.arithmetic == "double"
    dim = word_dim(product.arithmetic)
    words: dict[str, tuple[tuple[str, int], ...]] = {}
    for k, vertex in enumerate(signature.edge_type.vertices):
        if k == slot:
            continue  # neighbours have the same one
        alone = words_of(0, vertex.tangent_dim, product.arithmetic)
        first, last = vertex.storage_dim // dim, (vertex.storage_dim + vertex.tangent_dim - 1) // dim
        longer = (f"record{k}", max(last + 1 - first - alone, 0))
        for i, load in enumerate(product.loads[k]):
            own = () if i // dim >= first else ((f"word{k}_{i // dim}", 1),)
            words[load.name] = (longer, *own)
    return Reads(
        number_bytes=8 if is_double else 4,
        data=frozenset(load.name for load in product.loads[-1]),
        words=words,
        known=frozenset(load.name for load in product.loads[slot]) if shares else frozenset(),
        closed=frozenset() if is_double else frozenset(closed_choices(product.assignment, product.loads)),
        wide_flops=1.0 if is_double else balance.wide,
    )


def _use(product: Recomputed, split: Split, reads: Reads) -> Use:
    return use_of(split, reads, *_base(product.signature, product.slot, product.sources, reads.number_bytes))


def _base(signature: EdgeSignature, slot: int, sources: Sequence[int], number_bytes: int) -> tuple[int, int]:
    """Bytes of row numbers and scattered reads of x."""
    others = [t for t in sources if t != slot]
    dims = [signature.edge_type.vertices[t].tangent_dim for t in others]
    return 4 * len(others), sum(-(-dim * number_bytes // _WORD) for dim in dims)


def _use_of_jacobians(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic
) -> Use:
    holds = (False,) * signature.arity
    product = StoredProduct(signature, slot, sources, sources, holds, arithmetic)
    body = product.loop().body
    number_bytes = 8 if arithmetic == "double" else 4
    base_bytes, gathers = _base(signature, slot, sources, number_bytes)
    count = product.layout.count
    return Use(count, 0, gathers, float(body.flops), body.flops, number_bytes, base_bytes)


# -------------------------------------------------------------------- for people

_INFIX = {
    "ADD": "{} + {}",
    "SUB": "{} - {}",
    "MUL": "{} * {}",
    "NEG": "-{}",
    "FMA": "{} * {} + {}",
    "FMS": "{} * {} - {}",
    "FNMA": "-{} * {} + {}",
    "DOT2": "{} * {} + {} * {}",
    "DOT3": "{} * {} + {} * {} + {} * {}",
    "RECIP": "1 / {}",
    "LT": "{} < {}",
    "LE": "{} <= {}",
    "EQ": "{} == {}",
}


MAX_FORMULA = 72
"""Characters."""


def formulas(
    signature: EdgeSignature, slot: int, sources: tuple[int, ...], arithmetic: Arithmetic, cut: ViewCut
) -> dict[str, str]:
    """Stored values by name, and how each is computed; what is too deep becomes "..."."""
    assignment = Recomputed(signature, slot, sources, arithmetic, cut.explicit).assignment
    found = {}
    for name in cut.stored:
        texts = [formula(assignment, name, depth, cut.stored) for depth in (4, 3, 2)]
        found[name] = next(
            (text for text in texts if len(text) <= MAX_FORMULA), f"{texts[-1][: MAX_FORMULA - 4]} ..."
        )
    return found


def formula(assignment: Assignment, name: str, depth: int, named: Sequence[str] = ()) -> str:
    """How a value is computed, to this depth of operations; `named` ones and inputs stand by their names."""
    made = {t: s for s in assignment.statements for t in s.targets}

    def text(source: str | float, left: int) -> str:
        if not isinstance(source, str):
            return f"{source:g}"
        if source not in made or (source in named and source != name):
            return source
        if left == 0:
            return "..."
        statement = made[source]
        arguments = [text(each_source, left - 1) for each_source in statement.sources]
        if statement.counts is not None:
            return _sum_text(arguments, statement.counts)
        if statement.operation in _INFIX:
            return _INFIX[statement.operation].format(*map(_bracketed, arguments))
        operation = statement.operation
        if operation == "SINCOS":
            operation = ("SIN", "COS")[statement.targets.index(source)]
        return f"{operation.lower()}({', '.join(arguments)})"

    return text(name, depth)


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text and not re.fullmatch(r"\w+\([^()]*\)", text) else text


def _sum_text(arguments: Sequence[str], counts: tuple[int, int, int, int]) -> str:
    pos, neg, plus, _ = counts
    terms = []
    for k in range(pos + neg):
        pair = f"{_bracketed(arguments[2 * k])} * {_bracketed(arguments[2 * k + 1])}"
        terms.append(("+ " if k < pos else "- ") + pair)
    for k, argument in enumerate(arguments[2 * (pos + neg) :]):
        terms.append(("+ " if k < plus else "- ") + _bracketed(argument))
    return " ".join(terms).removeprefix("+ ")
