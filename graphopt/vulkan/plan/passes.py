"""Passes over edges in the cost model: what they move, compute and gather."""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.vulkan.plan.problem import GroupSize, ProblemSize

EFFICIENCY = 0.6
"""Of bandwidth and arithmetic that whole kernels reach."""
STREAM_EFFICIENCY = 0.9
"""Of bandwidth where a kernel reads one long array, measured on an H200."""
REUSE = 2.0
"""Of the same record by neighbouring edges, measured on an H200."""
PRODUCT_FLOPS: dict[Precision, float] = {"mixed": 3.0, "double": 9.0}
"""Per operation of the residual; divisions, roots and functions of float64 are many instructions."""
WORD = 16  # bytes of a scattered read


@dataclass(frozen=True)
class PassCost:
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
    """What passes over the edges of a problem cost on a device."""

    size: ProblemSize
    figures: DeviceFigures
    precision: Precision

    def sources(self, g: GroupSize, slot: int) -> tuple[int, ...]:
        """Slots whose x the products of a view read."""
        return tuple(range(g.arity)) if self.size.names_a_vertex_twice else tuple(g.others(slot))

    def words_of_x(self, g: GroupSize, slot: int) -> int:
        """Scattered reads of the x of other slots per edge."""
        real = bytes_of(self.precision)
        return sum(-(-g.tangent_dims[t] * real // WORD) for t in g.others(slot))

    def anew(self, g: GroupSize, slot: int) -> PassCost:
        """One product over a view's edges that computes the Jacobians anew."""
        flops = PRODUCT_FLOPS[self.precision] * g.chi2_flops
        return edge_pass(g, flops, skip=slot, more_words=self.words_of_x(g, slot))


def edge_pass(
    g: GroupSize, flops_per_edge: float, skip: int | None = None, more_bytes: float = 0.0, more_words: int = 0
) -> PassCost:
    """A pass over the edges of a view; records of the slot that it is sorted by are read once."""
    words = sum(w for slot, w in enumerate(g.record_words) if slot != skip) + g.pixel_words + more_words
    return PassCost(
        nbytes=g.num_edges * g.edge_bytes + more_bytes,
        flops=g.num_edges * flops_per_edge,
        gathers=float(g.num_edges * words),
    )
