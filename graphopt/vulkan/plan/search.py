"""The schedules that a problem allows, with their costs, and the cheapest one.

All combinations of the edge sets' schedules up to `MAX_COMBINATIONS`; of more, the uniform ones and what is
found from the best of these by changing one edge set at a time. Who evaluates the edges for H and b only
changes the linearisation, edge set by edge set, so that choice is made for each by itself. The space is that
of Thallo (Mara et al. 2021), with the Schur complement as a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.option_names import Evaluation, Products
from graphopt.vulkan.data.layout import MAX_VALUES
from graphopt.vulkan.operators.table import EVALUATIONS, PRODUCTS
from graphopt.vulkan.plan.cost import Elimination, Prediction, predict_one
from graphopt.vulkan.plan.passes import EdgeCosts, bytes_of
from graphopt.vulkan.plan.problem import GroupSize, ProblemSize
from graphopt.vulkan.plan.storage import describe_products, split_pin
from graphopt.vulkan.program import MAX_QUEUE_ITEMS

MAX_COMBINATIONS = 27
"""Of the edge sets' schedules that are all compared; of more, those that differ in one edge set at a time."""
WORTH = 0.95
"""Time that a schedule may take at most to be taken before one with less memory, as a share of that one's."""


def predict(
    size: ProblemSize, figures: DeviceFigures, precision: Precision, pins: Mapping[str, str] | None = None
) -> list[Prediction]:
    """The schedules that a problem allows, the cheapest first. pins: by tag of some edge and vertex sets.

    All of them, or where several edge sets make too many, the uniform ones and what is found from the best of
    these by changing one edge set at a time. Left out is what the solver's work queues cannot count.
    """
    pins = pins or {}
    costs = EdgeCosts(size, figures, precision)
    found = [
        other
        for prediction in _by_gathering(costs, pins)
        for other in _with_evaluations(costs, prediction, pins)
    ]
    return sorted(found, key=lambda prediction: prediction.total)


def _by_gathering(costs: EdgeCosts, pins: Mapping[str, str]) -> list[Prediction]:
    """Without a choice of who evaluates."""
    asked = [split_pin(pins.get(tag, "auto"))[0] for tag in costs.size.tags]
    choices: list[list[Products]] = [
        [products for products in PRODUCTS if pin in ("auto", products)] for pin in asked
    ]
    return _of_choices(costs, choices, pins)


def _of_choices(
    costs: EdgeCosts, choices: Sequence[Sequence[Products]], pins: Mapping[str, str]
) -> list[Prediction]:
    """choices: by tag."""
    size = costs.size
    if not size.eliminates:
        return _of_elimination(costs, "off", choices, pins)
    found = _of_elimination(costs, "implicit", choices, pins)
    whole: tuple[Products, ...] = ("blocks",) * len(size.groups)
    if all("blocks" in choice for choice in choices) and is_countable(size, "explicit", whole):
        found.append(predict_one(costs, "explicit", whole, pins))
    return found


def other_summations(
    size: ProblemSize, figures: DeviceFigures, precision: Precision, prediction: Prediction
) -> list[Prediction]:
    """The same schedule with another choice of what is merged for one vertex set each."""
    costs, own = (
        EdgeCosts(size, figures, precision),
        {sum_choice.tag: sum_choice.name for sum_choice in prediction.merging},
    )
    others = [
        predict_one(costs, prediction.schur, prediction.products, {**own, sum_choice.tag: other})
        for sum_choice in prediction.merging
        for other in ["separate" if sum_choice.is_merged else "merged"]
    ]
    return [_evaluated(costs, other, prediction.evaluations) for other in others]


def cheapest(predictions: Sequence[Prediction], memory_limit: float) -> Prediction:
    """The schedule predicted to be fastest of those that fit; that with the least memory if none does.

    Memory is a cost: one that takes more of it than another must be faster by as much as `WORTH` says.
    """
    fitting = [prediction for prediction in predictions if prediction.memory_bytes <= memory_limit]
    if not fitting:
        return min(predictions, key=lambda prediction: prediction.memory_bytes)
    fastest = min(prediction.total for prediction in fitting)
    return min(
        (prediction for prediction in fitting if WORTH * prediction.total <= fastest),
        key=lambda prediction: (prediction.memory_bytes, prediction.total),
    )


def of_winners(
    predictions: Sequence[Prediction], size: ProblemSize, pins: Mapping[str, str]
) -> list[Prediction]:
    """Those without schedules that win nowhere, but where the user names them."""
    asked = [split_pin(pins.get(g.tag, "auto")) for g in size.groups]
    return [
        prediction
        for prediction in predictions
        if all(
            (stored in pinned or PRODUCTS[stored].wins)
            and (evaluation in pinned or EVALUATIONS[evaluation].wins)
            for stored, evaluation, pinned in zip(
                prediction.products, prediction.evaluations, asked, strict=True
            )
        )
    ]


def is_countable(size: ProblemSize, schur: Elimination, products: Sequence[Products]) -> bool:
    """The solver can count the scalars of H and S that are stored, and the items of its work queues."""
    stored = [g for g, each_product in zip(size.groups, products, strict=True) if each_product == "blocks"]
    values = size.diagonal + sum(g.kept_off_diagonal + g.coupling for g in stored)
    items = 2 * sum(g.num_blocks for g in stored)
    if schur == "explicit":
        values, items = max(values, size.schur), max(items, size.num_pairs)
    return values < MAX_VALUES and items < MAX_QUEUE_ITEMS


def _of_elimination(
    costs: EdgeCosts,
    schur: Elimination,
    choices: Sequence[Sequence[Products]],
    pins: Mapping[str, str],
) -> list[Prediction]:
    """Schedules without a stored S. choices: by tag. pins: of vertex sets."""
    size = costs.size
    known: dict[tuple[Products, ...], Prediction] = {}

    def add(by_tag: Sequence[Products]) -> None:
        chosen: dict[str, Products] = dict(zip(size.tags, by_tag, strict=True))
        products: tuple[Products, ...] = tuple(chosen[g.tag] for g in size.groups)
        if products not in known and _is_allowed(size, schur, products):
            known[products] = predict_one(costs, schur, products, pins)

    if prod(map(len, choices)) <= MAX_COMBINATIONS:
        for by_tag in product(*choices):
            add(by_tag)
        return list(known.values())
    for each_product in PRODUCTS:
        add([each_product if each_product in own else own[-1] for own in choices])
    for place, own in enumerate(choices):
        best = min(known.values(), key=lambda prediction: prediction.total, default=None)
        chosen: dict[str, Products] = {}
        if best is not None:
            chosen.update(zip((g.tag for g in size.groups), best.products, strict=True))
        others: list[Products] = [
            chosen.get(tag, choice[-1]) for tag, choice in zip(size.tags, choices, strict=True)
        ]
        for own_choice in own:
            add([*others[:place], own_choice, *others[place + 1 :]])
    return list(known.values())


def _is_allowed(size: ProblemSize, schur: Elimination, products: Sequence[Products]) -> bool:
    mixes = "blocks" in products and len(set(products)) > 1
    return is_countable(size, schur, products) and not (mixes and size.names_a_vertex_twice)


def _with_evaluations(costs: EdgeCosts, prediction: Prediction, pins: Mapping[str, str]) -> list[Prediction]:
    """A prediction for "gather", and the same with what is cheaper per edge set."""
    allowed = [
        _allowed(costs, g, stored, pins)
        for g, stored in zip(costs.size.groups, prediction.products, strict=True)
    ]
    if not all(allowed):
        return []
    return [_evaluated(costs, prediction, chosen) for chosen in _combined(costs, prediction, allowed)]


def _allowed(
    costs: EdgeCosts, g: GroupSize, stored: Products, pins: Mapping[str, str]
) -> tuple[Evaluation, ...]:
    """Evaluations of a group: for a single sum only "gather", unless the user says so."""
    real, pin = bytes_of(costs.precision), split_pin(pins.get(g.tag, "auto"))[1]
    possible: list[Evaluation] = [
        evaluation for evaluation in EVALUATIONS if EVALUATIONS[evaluation].is_possible(g, stored, real)
    ]
    if pin != "auto":
        return tuple(evaluation for evaluation in possible if evaluation == pin)
    predicted: tuple[Evaluation, ...] = tuple(
        evaluation for evaluation in possible if EVALUATIONS[evaluation].is_predicted
    )
    return predicted if g.arity > 1 else predicted[:1]


def _combined(
    costs: EdgeCosts, prediction: Prediction, allowed: Sequence[tuple[Evaluation, ...]]
) -> list[tuple[Evaluation, ...]]:
    """The first ones that are allowed; of one edge set the other as well, of several what is cheaper."""
    first: tuple[Evaluation, ...] = tuple(names[0] for names in allowed)
    last: tuple[Evaluation, ...] = tuple(names[-1] for names in allowed)
    if len(costs.size.tags) == 1:
        return list(dict.fromkeys([first, last]))
    groups = list(zip(costs.size.groups, prediction.products, allowed, strict=True))
    gains: dict[str, float] = dict.fromkeys(costs.size.tags, 0.0)
    for g, stored, choice in groups:
        gains[g.tag] += _seconds(costs, g, stored, choice[0]) - _seconds(costs, g, stored, choice[-1])
    other: tuple[Evaluation, ...] = tuple(
        group[-1] if gains[g.tag] > 0.0 else group[0] for g, _, group in groups
    )
    return list(dict.fromkeys([first, other]))


def _seconds(costs: EdgeCosts, g: GroupSize, stored: Products, evaluation: Evaluation) -> float:
    """Of the linearisation of a group."""
    passes = EVALUATIONS[evaluation].passes(g, stored, bytes_of(costs.precision))
    return sum(pass_.seconds(costs.figures, costs.precision) for pass_ in passes)


def _evaluated(costs: EdgeCosts, prediction: Prediction, evaluations: tuple[Evaluation, ...]) -> Prediction:
    """A prediction for "gather" with these evaluations."""
    size, real = costs.size, bytes_of(costs.precision)
    more, memory = 0.0, 0.0
    for g, stored, evaluation in zip(size.groups, prediction.products, evaluations, strict=True):
        more += _seconds(costs, g, stored, evaluation) - _seconds(costs, g, stored, "gather")
        memory += EVALUATIONS[evaluation].memory(g, stored, real)
    return replace(
        prediction,
        evaluations=evaluations,
        schedule=describe_products([g.tag for g in size.groups], prediction.products, evaluations),
        seconds={**prediction.seconds, "linearize": prediction.seconds["linearize"] + more},
        memory_bytes=prediction.memory_bytes + memory,
    )
