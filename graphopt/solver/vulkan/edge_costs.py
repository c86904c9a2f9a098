"""Passes over edges in the cost model: what they move, compute and gather, by what a group stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.codegen.gpu.expression_cuts import ViewCut, schedule_of
from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.solver.vulkan.sizes import GroupSize, ProblemSize
from graphopt.solver.vulkan.storage import Products
from graphopt.solver.vulkan.view_cuts import EFFICIENCY, REUSE, STREAM_EFFICIENCY, cut_of

PRODUCT_FLOPS: dict[Precision, float] = {"mixed": 3.0, "double": 9.0}
"""Per operation of the residual; divisions, roots and functions of float64 are many instructions."""
_WORD = 16  # bytes of a scattered read


@dataclass(frozen=True)
class Pass:
    """Work between two barriers."""

    nbytes: float = 0.0
    flops: float = 0.0
    gathers: float = 0.0
    dispatches: int = 1
    efficiency: float = EFFICIENCY
    """Of arithmetic."""
    bandwidth: float = EFFICIENCY
    """Share of it that is reached."""

    def seconds(self, figures: DeviceFigures, precision: Precision) -> float:
        """Predicted time on a device."""
        rate = figures.flops(precision)
        return (
            max(
                self.nbytes / (self.bandwidth * figures.bytes_per_second),
                self.flops / (self.efficiency * rate) if rate else 0.0,
                self.gathers / (REUSE * figures.gathers_per_second),
            )
            + self.dispatches * figures.dispatch_seconds
        )


def bytes_of(precision: Precision) -> int:
    """Of a number of H."""
    return 8 if precision == "double" else 4


@dataclass(frozen=True)
class EdgeCosts:
    """Passes over the edges of a problem on a device."""

    size: ProblemSize
    figures: DeviceFigures
    precision: Precision

    def cut(self, g: GroupSize, slot: int) -> ViewCut:
        """What the view of a slot stores in schedule "expressions"; it has to read x of some slot."""
        sources, shares = self.sources(g, slot), g.is_shared[slot]
        return cut_of(g.signature, slot, sources, shares, self.figures, self.precision)

    def sources(self, g: GroupSize, slot: int) -> tuple[int, ...]:
        """Slots whose x the products of a view read."""
        return tuple(range(g.arity)) if self.size.names_a_vertex_twice else tuple(g.others(slot))

    def cuts(self, g: GroupSize) -> list[ViewCut]:
        """Of all slots; none where an edge has one vertex."""
        return [self.cut(g, slot) for slot in range(g.arity)] if g.arity > 1 else []

    def expressions_of(self, tag: str) -> Products:
        """What schedule "expressions" is for an edge set: another one where all cuts are at an end."""
        return schedule_of([cut for g in self.size.groups if g.tag == tag for cut in self.cuts(g)])

    def stored(self, g: GroupSize, slot: int, products: Products) -> int:
        """Numbers that a view stores of an edge for its products."""
        if products == "jacobians":
            return g.stored_dim(slot)
        if products == "expressions" and g.arity > 1:
            return self.cut(g, slot).use.numbers if self.cut(g, slot).where != "inputs" else 0
        return 0

    def all_stored(self, products: Sequence[Products], schur: str) -> float:
        """Numbers of all groups, those of vectors t included."""
        total = 0
        for g, one in zip(self.size.groups, products, strict=True):
            numbers = sum(self.stored(g, slot, one) for slot in range(g.arity))
            if one == "jp":
                numbers += g.residual_dim * self.num_moved(g, products, schur)
            total += g.num_edges * numbers
        return float(total)

    def num_moved(self, g: GroupSize, everybody: Sequence[Products], schur: str) -> int:
        """How many vectors t = w Omega J x schedule "jp" computes in a product: see `moved_vectors`."""
        kept = [_num_kept(one, schur) for one in self.size.groups]
        shares = set(everybody) == {"jp"} and max(kept) > 1
        own = _num_kept(g, schur)
        of_kept = 1 if shares and own else own if g.arity > 1 else 0
        return of_kept + (1 if 0 < own < g.arity else 0)

    def first_halves(self, everybody: Sequence[Products], schur: str) -> list[Pass]:
        """J x per edge, of all groups with schedule "jp"."""
        real, passes = bytes_of(self.precision), []
        for g, one in zip(self.size.groups, everybody, strict=True):
            if one == "jp":
                moved = float(g.num_edges * real * g.residual_dim)
                words = sum(-(-dim * real // _WORD) for dim in g.tangent_dims[1:])
                half = edge_pass(g, self._half_flops(g), skip=0, more_bytes=moved, more_words=words)
                passes += self.num_moved(g, everybody, schur) * [half]
        return passes

    def _half_flops(self, g: GroupSize) -> float:
        return 0.5 * PRODUCT_FLOPS[self.precision] * g.chi2_flops

    def product(self, g: GroupSize, slot: int, products: Products) -> Pass:
        """One product over a view's edges, "jp": its second half; products: not "blocks"."""
        if products == "jp":
            read = float(g.num_edges * (bytes_of(self.precision) * g.residual_dim + 4))
            return edge_pass(g, self._half_flops(g), skip=slot, more_bytes=read)
        if products == "expressions":
            products = _END[self.cut(g, slot).where] if g.arity > 1 else "matrix-free"
        real = bytes_of(self.precision)
        words = sum(-(-g.tangent_dims[t] * real // _WORD) for t in g.others(slot))
        anew = edge_pass(g, PRODUCT_FLOPS[self.precision] * g.chi2_flops, skip=slot, more_words=words)
        if products == "matrix-free":
            return anew
        if products == "expressions":
            return self._from_expressions(g, anew, self.cut(g, slot))
        numbers = g.stored_dim(slot)
        return Pass(
            nbytes=float(g.num_edges * (real * numbers + 4 * (g.arity - 1))),
            flops=2.0 * g.num_edges * numbers,
            gathers=float(g.num_edges * words),
            bandwidth=STREAM_EFFICIENCY,
        )

    def _from_expressions(self, g: GroupSize, anew: Pass, cut: ViewCut) -> Pass:
        """What is different from a product that computes all anew."""
        use, without = cut.use, cut.without
        stored = g.num_edges * use.number_bytes * use.numbers
        nbytes = anew.nbytes + stored - g.num_edges * use.number_bytes * (without.data - use.data)
        return Pass(
            nbytes=float(nbytes),
            flops=anew.flops * use.flops / max(without.flops, 1.0),
            gathers=max(anew.gathers - g.num_edges * (without.gathers - use.gathers), 0.0),
            bandwidth=STREAM_EFFICIENCY if 2 * stored > nbytes else EFFICIENCY,
        )


def _num_kept(g: GroupSize, schur: str) -> int:
    """Slots that Schur does not eliminate."""
    return g.arity - sum(g.is_eliminated) if schur == "implicit" else g.arity


_END: dict[str, Products] = {"inputs": "matrix-free", "between": "expressions", "outputs": "jacobians"}


def edge_pass(
    g: GroupSize, flops_per_edge: float, skip: int | None = None, more_bytes: float = 0.0, more_words: int = 0
) -> Pass:
    """A pass over the edges of a view; records of the slot that it is sorted by are read once."""
    words = sum(w for slot, w in enumerate(g.record_words) if slot != skip) + g.pixel_words + more_words
    return Pass(
        nbytes=g.num_edges * g.edge_bytes + more_bytes,
        flops=g.num_edges * flops_per_edge,
        gathers=float(g.num_edges * words),
    )
