"""Schedule "expressions": per edge and view, some values of the product's program are stored.

Which ones, says the cheapest cut through the program (`codegen.gpu.expression_cuts`), which depends on how
many operations the device does in the time of a byte and of a scattered read. Those are powers of two: a
figure measured a little differently makes the same kernels. Of robust bundle adjustment it is the weight of
the kernel; on an H200 that is worth about as much as it costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from typing import Any

from graphopt.codegen.gpu import EdgeSignature, GpuKernel
from graphopt.codegen.gpu.cuts import Balance
from graphopt.codegen.gpu.expression_cuts import ViewCut, schedule_of, view_cut
from graphopt.codegen.gpu.expression_products import (
    ExpressionProduct,
    expression_product,
    store_expressions_kernel,
)
from graphopt.codegen.gpu.product_shapes import EdgeProduct
from graphopt.device.figures import DeviceFigures, device_figures
from graphopt.device.protocol import Precision
from graphopt.option_names import Products
from graphopt.vulkan.plan.passes import (
    EFFICIENCY,
    REUSE,
    STREAM_EFFICIENCY,
    EdgeCosts,
    Pass,
)
from graphopt.vulkan.plan.problem import GroupSize, shared_slots
from graphopt.vulkan.program import arithmetic_for
from graphopt.vulkan.schedules import schedule
from graphopt.vulkan.schedules.jacobians import Jacobians

_TWO_FLOAT_FLOPS = 16.0
"""Operations in float32 of one with two floats."""
_AT_AN_END: dict[str, Products] = {"inputs": "matrix-free", "outputs": "jacobians"}


def balance_of(figures: DeviceFigures, precision: Precision) -> Balance:
    """What a device does in the time of one operation of a precision's products."""
    flops = EFFICIENCY * figures.flops(precision)
    wide = figures.float32_flops / figures.float64_flops if figures.float64_flops else _TWO_FLOAT_FLOPS
    return Balance(
        byte=_power_of_two(flops / (STREAM_EFFICIENCY * figures.bytes_per_second)),
        gather=_power_of_two(flops / (REUSE * figures.gathers_per_second)),
        wide=_power_of_two(max(wide, 1.0)),
    )


def _power_of_two(value: float) -> float:
    return 2.0 ** round(log2(value))


def cut_of(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    shares: bool,
    figures: DeviceFigures,
    precision: Precision,
) -> ViewCut:
    """What the view of a slot stores for products from x of `sources`; shares: `shared_slots`."""
    arithmetic = arithmetic_for(precision, figures.float64_flops > 0.0)
    return view_cut(signature, slot, sources, arithmetic, balance_of(figures, precision), shares)


class Expressions(Jacobians):
    """Where the cut of a view is at the end of its program, the view stores Jacobians."""

    name: Products = "expressions"

    def reserve(self) -> None:
        """Find the cuts first."""
        edges, context = self.edges, self.context
        shares, figures = shared_slots(edges.structure, edges.group), device_figures(context.device)
        self._cuts = {
            slot: cut_of(edges.signature, slot, sources, shares[slot], figures, context.precision)
            for slot, sources in self.sources.items()
        }
        super().reserve()

    def _cut(self, slot: int) -> ViewCut | None:
        """None: Jacobians."""
        cut = self._cuts[slot]
        return None if cut.where == "outputs" else cut

    def count(self, slot: int) -> int:
        """Numbers per edge."""
        cut = self._cut(slot)
        return super().count(slot) if cut is None else len(cut.stored)

    def kernel(self, slot: int) -> GpuKernel:
        """What stores them."""
        cut = self._cut(slot)
        if cut is None:
            return super().kernel(slot)
        own = self.edges.views[slot].signature, slot, self.sources[slot]
        return store_expressions_kernel(*own, cut, self.context.arithmetic)

    def reads_estimate(self, slot: int) -> bool:
        """What is computed anew may."""
        holds = (True,) * self.edges.signature.arity
        products = [self.product(own, sources, holds) for own, sources in self.sources.items()]
        return any(
            isinstance(each_product, ExpressionProduct) and each_product.reads_estimate(slot)
            for each_product in products
        )

    def product(self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]) -> EdgeProduct:
        """Starts from the stored values."""
        cut = self._cut(slot)
        if cut is None:
            return super().product(slot, sources, holds_estimate)
        own = (self.edges.signature, slot, sources, self.sources[slot], holds_estimate, cut)
        return expression_product(*own, self.context.arithmetic)

    # ---------------------------------------------------------------- what it costs

    @classmethod
    def cut(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> ViewCut:
        """Of a view; it has to read x of some slot."""
        own = (g.signature, slot, costs.sources(g, slot), g.is_shared[slot])
        return cut_of(*own, costs.figures, costs.precision)

    @classmethod
    def instead(cls, costs: EdgeCosts, groups: Iterable[GroupSize]) -> Products:
        """Another one where all cuts are at an end."""
        return schedule_of(
            [cls.cut(costs, g, slot) for g in groups if g.arity > 1 for slot in range(g.arity)]
        )

    @classmethod
    def stored_numbers(cls, costs: EdgeCosts, g: GroupSize, slot: int, *more: Any) -> int:
        """Those of the cut."""
        if g.arity == 1:
            return 0
        cut = cls.cut(costs, g, slot)
        return cut.use.numbers if cut.where != "inputs" else 0

    @classmethod
    def product_pass(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> Pass:
        """What is different from a product that computes all anew."""
        anew = costs.anew(g, slot)
        if g.arity == 1:
            return anew
        cut = cls.cut(costs, g, slot)
        if cut.where in _AT_AN_END:
            return schedule(_AT_AN_END[cut.where]).product_pass(costs, g, slot)
        use, without = cut.use, cut.without
        stored = g.num_edges * use.number_bytes * use.numbers
        nbytes = anew.nbytes + stored - g.num_edges * use.number_bytes * (without.data - use.data)
        return Pass(
            nbytes=float(nbytes),
            flops=anew.flops * use.flops / max(without.flops, 1.0),
            gathers=max(anew.gathers - g.num_edges * (without.gathers - use.gathers), 0.0),
            bandwidth=STREAM_EFFICIENCY if 2 * stored > nbytes else EFFICIENCY,
        )

    @classmethod
    def live_values(cls, g: GroupSize) -> int:
        """As those that compute all anew."""
        return g.chi2_values


SCHEDULES = {"expressions": Expressions}
