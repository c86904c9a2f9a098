"""What it costs to sum views with the same destinations by one kernel, or by one launch each.

one launch each    of all but the first one the sums are read and written again, and a dispatch is waited for
one kernel         every sum is written once, by one dispatch, but

                   - a tile's edges belong to all views, so that a group of 32 invocations goes through the
                     text of more than one: of V views in a tile of TILE edges, (TILE / 32 + V - 1) times
                     rather than TILE / 32; the others wait, so that memory is kept less busy, too
                   - all edges are evaluated with the registers of the view that needs most; a
                     multiprocessor hides latencies with fewer invocations where that is more than
                     FREE_REGISTERS

Software drivers run the text of all views for each edge, and their dispatches are short beside it: there
nothing is merged that is not pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphopt.codegen.gpu import TILE
from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.option_names import Products
from graphopt.vulkan.operators.table import PRODUCTS
from graphopt.vulkan.plan.passes import EdgeCosts, PassCost, bytes_of, edge_pass
from graphopt.vulkan.plan.problem import MAX_VIEWS, GroupSize

SIMD = 32
"""Invocations that run one text together."""
STALL = 0.6
"""Of what divergence costs in operations, what it costs in bandwidth; measured on an H200."""
FREE_REGISTERS = 128
"""32-bit registers of an invocation: so many leave room for 512 of them, which hide what memory takes."""


@dataclass(frozen=True)
class ViewWork:
    """A launch over a view's edges, without what its sums cost to write."""

    work: PassCost
    vertex_set: int
    """Of the destinations."""
    may_merge: bool
    sum_bytes: float
    """Of all sums."""
    registers: float
    """Values alive at the same time, of 32 bits."""


@dataclass(frozen=True)
class MergeChoice:
    """A vertex set whose sums may come from one kernel."""

    vertex_set: int
    tag: str
    num_views: int
    separate_seconds: float
    """Per iteration, linearisation and products."""
    merged_seconds: float
    is_merged: bool

    @property
    def name(self) -> str:
        """What is chosen, as the user pins it."""
        return "merged" if self.is_merged else "separate"


def linearized_views(costs: EdgeCosts) -> list[ViewWork]:
    """The launches of the linearisation over views: diagonal blocks and b."""
    real = bytes_of(costs.precision)
    return [
        _view(g, slot, edge_pass(g, float(g.linearize_flops), skip=slot), real, d * (d + 1), values)
        for g in costs.size.groups
        for slot, d in enumerate(g.tangent_dims)
        for values in [g.linearize_values]
    ]


def product_views(costs: EdgeCosts, products: Sequence[Products]) -> list[ViewWork]:
    """The launches of a product over views, of edge sets without stored blocks."""
    real = bytes_of(costs.precision)
    return [
        _view(g, slot, own.product_pass(costs, g, slot), real, d, own.live_values(g))
        for g, own in zip(costs.size.groups, [PRODUCTS[name] for name in products], strict=True)
        for slot, d in enumerate(g.tangent_dims)
        if not own.stores_blocks and costs.sources(g, slot)
    ]


def _view(g: GroupSize, slot: int, work: PassCost, real: int, num_sums: int, num_values: int) -> ViewWork:
    """num_sums: numbers per destination. num_values: alive at the same time."""
    num = g.num_destinations[slot]
    registers = real / 4.0 * (num_values + num_sums)
    return ViewWork(work, g.vertex_sets[slot], g.may_merge[slot], float(real * num_sums * num), registers)


def passes_of(views: Sequence[ViewWork], merged: frozenset[int], figures: DeviceFigures) -> list[PassCost]:
    """The launches over these views, where those of some vertex sets are merged."""
    passes = []
    for number in dict.fromkeys(view.vertex_set for view in views):
        own = [view for view in views if view.vertex_set == number]
        together = [view for view in own if view.may_merge] if number in merged else []
        units = [together[at : at + MAX_VIEWS] for at in range(0, len(together), MAX_VIEWS)]
        units += [[view] for view in own if view not in together]
        for place, unit in enumerate(units):
            again = 2.0 * max(view.sum_bytes for view in unit) if place else 0.0
            single = _together(unit, figures)
            passes.append(replace(single, nbytes=single.nbytes + again))
    return passes


def _together(unit: Sequence[ViewWork], figures: DeviceFigures) -> PassCost:
    """One launch over several views."""
    if len(unit) == 1:
        return unit[0].work
    groups = TILE / SIMD
    divergence = len(unit) if figures.runs_all_branches else (groups + len(unit) - 1) / groups
    slowest = _slowdown(max(view.registers for view in unit))
    slower = [slowest / _slowdown(view.registers) for view in unit]
    works = [view.work for view in unit]
    stall = 1.0 + STALL * (divergence - 1.0)
    return replace(
        works[0],
        nbytes=stall * sum(k * each_work.nbytes for k, each_work in zip(slower, works, strict=True)),
        flops=divergence * sum(k * each_work.flops for k, each_work in zip(slower, works, strict=True)),
        gathers=stall * sum(k * each_work.gathers for k, each_work in zip(slower, works, strict=True)),
        dispatches=1,
        bandwidth=min(each_work.bandwidth for each_work in works),
    )


def _slowdown(registers: float) -> float:
    return max(1.0, registers / FREE_REGISTERS)


def merge_choices(
    phases: Iterable[tuple[Sequence[ViewWork], int]],
    tags: Sequence[str],
    pins: Mapping[str, str],
    figures: DeviceFigures,
    precision: Precision,
) -> list[MergeChoice]:
    """The vertex sets with several views that may be merged, and the faster of both ways.

    phases: views, and how often an iteration goes over them. tags: of all vertex sets. pins: by tag, "merged"
    or "separate".
    """
    phases = list(phases)
    counts: dict[int, int] = {}
    for views, _ in phases:
        for number in {view.vertex_set for view in views}:
            found = sum(view.may_merge for view in views if view.vertex_set == number)
            counts[number] = max(found, counts.get(number, 0))
    choices = []
    for number, count in sorted(counts.items()):
        if count < 2:
            continue

        def seconds(merged: frozenset[int], number: int = number) -> float:
            own = [([view for view in views if view.vertex_set == number], times) for views, times in phases]
            return sum(
                times * sum(pass_.seconds(figures, precision) for pass_ in passes_of(views, merged, figures))
                for views, times in own
            )

        separate, merged = seconds(frozenset()), seconds(frozenset([number]))
        pin = pins.get(tags[number], "auto")
        pays = merged < separate and not figures.runs_all_branches
        is_merged = pays if pin == "auto" else pin == "merged"
        choices.append(MergeChoice(number, tags[number], count, separate, merged, is_merged))
    return choices


def merged_sets(choices: Iterable[MergeChoice]) -> frozenset[int]:
    """Numbers of the vertex sets that are merged."""
    return frozenset(choice.vertex_set for choice in choices if choice.is_merged)
