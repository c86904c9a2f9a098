"""The part of `graphopt explain` about schedule "expressions": what is stored of each edge set, and why."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from graphopt.cli import output

if TYPE_CHECKING:
    from graphopt.device.figures import DeviceFigures
    from graphopt.device.protocol import Precision
    from graphopt.problem.structure import Structure
    from graphopt.vulkan.plan.problem import GroupSize

MAX_LISTED = 6
"""Values of a view whose formulas are printed."""


def describe_expressions(
    structure: Structure, figures: DeviceFigures, precision: Precision
) -> list[dict[str, Any]]:
    """Per edge group and view the values that products would start from."""
    from graphopt.vulkan.plan.passes import EdgeCosts
    from graphopt.vulkan.plan.problem import problem_size
    from graphopt.vulkan.schedules.expressions import Expressions

    costs = EdgeCosts(problem_size(structure, precision), figures, precision)
    size = costs.size
    return [
        {
            "edge": g.tag,
            "schedule": Expressions.instead(costs, [group for group in size.groups if group.tag == g.tag]),
            "views": [_view(costs, g, slot) for slot in range(g.arity)] if g.arity > 1 else [],
        }
        for g in size.groups
    ]


def _view(costs: Any, g: GroupSize, slot: int) -> dict[str, Any]:
    from graphopt.codegen.gpu.expression_cuts import formulas
    from graphopt.codegen.gpu.layout import argument_names
    from graphopt.vulkan.program import arithmetic_for
    from graphopt.vulkan.schedules.expressions import Expressions

    cut = Expressions.cut(costs, g, slot)
    arithmetic = arithmetic_for(costs.precision, costs.figures.float64_flops > 0.0)
    sources = costs.sources(g, slot)
    return {
        "vertex": argument_names(g.signature.edge_type)[slot],
        "cut": cut.where,
        "stored": formulas(g.signature, slot, sources, arithmetic, cut),
        "numbers": cut.use.numbers,
        "operations": cut.use.operations,
        "operations_computed_anew": cut.without.operations,
        "bytes": cut.use.nbytes,
        "bytes_computed_anew": cut.without.nbytes,
        "scattered_reads": cut.use.gathers,
        "scattered_reads_computed_anew": cut.without.gathers,
    }


_WHAT = {
    "inputs": "nothing: as matrix-free",
    "outputs": "the Jacobians' numbers: as jacobians",
}


def print_expressions(groups: list[dict[str, Any]]) -> None:
    """A row per view, then the formulas."""
    rows = []
    for group in groups:
        for view in group["views"]:
            what = _WHAT.get(view["cut"]) or _named(view["stored"])
            numbers = [
                f"{view[f'{key}_computed_anew']} -> {view[key]}"
                for key in ("operations", "bytes", "scattered_reads")
            ]
            rows.append((group["edge"], view["vertex"], what, str(view["numbers"]), *numbers))
    if not rows:
        return
    columns = ("edge", "sums per", "expressions stores", "numbers", "operations", "bytes", "reads")
    output.print_table(columns, rows, numeric=("numbers", "operations", "bytes", "reads"))
    for group in groups:
        for view in group["views"]:
            values = {k: v for k, v in view["stored"].items() if not _is_jacobian(k)}
            for name, formula in list(values.items())[:MAX_LISTED]:
                print(f"  {group['edge']}, {view['vertex']}: {name} = {formula}")
            if len(values) > MAX_LISTED:
                print(f"  {group['edge']}, {view['vertex']}: ... and {len(values) - MAX_LISTED} others")
    for tag, other in {g["edge"]: g["schedule"] for g in groups}.items():
        if other != "expressions":
            print(f"  {tag}: schedule expressions is the same as {other} here, and not offered.")
    print("\nPer edge and product: everything computed anew -> with what expressions stores.")


def _is_jacobian(name: str) -> bool:
    return re.fullmatch(r"J\d+_\d+_\d+", name) is not None


def _named(stored: dict[str, str]) -> str:
    """weight, 9 of J_0, 3 others."""
    jacobians = Counter(name.split("_")[0][1:] for name in stored if _is_jacobian(name))
    others = [name for name in stored if not _is_jacobian(name)]
    known = [name for name in others if not re.fullmatch(r"t\d+", name)]
    parts = [*known, *(f"{count} of J_{slot}" for slot, count in sorted(jacobians.items()))]
    if len(others) > len(known):
        parts.append(f"{len(others) - len(known)} values")
    return ", ".join(parts)
