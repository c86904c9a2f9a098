"""Decisions before a block solver is made: precision, configuration, and the schedule of linearisation.

host          the CPU computes residuals, Jacobians, H and b; the device solves
blocks        kernels compute H's blocks into device memory
matrix-free   only H's diagonal blocks are stored; products compute the Jacobians anew
jacobians     beside the diagonal blocks, what products read of the Jacobians is stored
jp            as matrix-free, but products compute J x per edge first

All but the first may differ between edge sets, see `storage`, and be joined to who evaluates edges for H and
b: "blocks+scatter", or "scatter" alone, where the cost model chooses the rest. Per vertex set, the sums of
all views with these vertices as destinations come from one kernel ("merged") or from one each ("separate"),
see `merging`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphopt import pyglslang
from graphopt.device import Device
from graphopt.device.figures import device_figures
from graphopt.device.protocol import Precision
from graphopt.errors import DeviceError, OptionError
from graphopt.linear.options import Schedule, SolverOptions
from graphopt.linear.pcg import MIXED_PCG_TOLERANCE, PCG_TOLERANCE
from graphopt.linear.systems import no_schur
from graphopt.linear.table import iterates
from graphopt.option_names import EDGE_SCHEDULES, SUMMATIONS, Evaluation, Products
from graphopt.problem.structure import Structure
from graphopt.switches import is_off
from graphopt.vulkan.data.layout import MAX_VALUES, BlockLayout
from graphopt.vulkan.data.views import MANY_EDGES
from graphopt.vulkan.operators.table import EVALUATIONS
from graphopt.vulkan.plan.compile_cost import host_note
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.cost import Prediction
from graphopt.vulkan.plan.direct import is_factored
from graphopt.vulkan.plan.few_edges import is_collected
from graphopt.vulkan.plan.problem import ProblemSize, check_edges, mergeable_slots, problem_size
from graphopt.vulkan.plan.reduced import reduced_shape
from graphopt.vulkan.plan.search import cheapest, of_winners, other_summations, predict
from graphopt.vulkan.plan.storage import describe_products, join_pin, split_pin
from graphopt.vulkan.program import MAX_QUEUE_ITEMS

COMFORTABLE_SHARE = 0.6
"""Of the device's memory that a schedule may take."""


MOST_REDUCED = 6000
"""Rows of a reduced system that is factored to be solved exactly."""
MIXED_SHARE = 0.6
"""Of the time in float64 that an iteration in float32 may take: its result is checked, and made up for, in
float64."""
WEAK_FLOAT64 = 0.25
"""Of the rate in float32: below, float64 is what an iteration waits for at any size."""


def choose_precision(device: Device, asked: str) -> Precision:
    """What "auto" stands for; `DeviceError` where the device cannot do what was asked."""
    if asked == "auto":
        return "double" if device.has_float64 else "mixed"
    if asked == "mixed":
        return "double" if is_off("mixed") and device.has_float64 else "mixed"
    if not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Use precision='mixed' or 'auto'.")
    return "double"


def configuration_of(options: SolverOptions, precision: str) -> Configuration:
    """The configuration that options ask for."""
    tolerance = PCG_TOLERANCE if precision == "double" else MIXED_PCG_TOLERANCE
    return Configuration(
        options.linear_solver,
        options.schur,
        options.preconditioner,
        options.work_queues,
        tolerance=options.pcg_tolerance or tolerance,
        max_iterations=options.pcg_iterations or 0,
    )


def pays_in_mixed(plan: Plan, device: Device, structure: Structure) -> bool:
    """Whether a plan in mixed precision is expected to be faster than one in double, checks included.

    Not for small problems, whose iterations take as long as their launches, nor where a factorization in
    float64 is no slower. Software drivers are taken at their word.
    """
    figures = device_figures(device)
    if device.info["kind"] != "discrete" or plan.schedule == "host":
        return True
    if figures.float64_flops < WEAK_FLOAT64 * figures.float32_flops:
        return True
    if not plan.predictions:  # factored
        return False
    double = predict(problem_size(structure, "double"), figures, "double", {})
    fastest = [min(prediction.total for prediction in found) for found in (plan.predictions, double)]
    return fastest[0] < MIXED_SHARE * fastest[1]


def in_double(configuration: Configuration) -> Configuration:
    """The configuration of a double solver that goes on where one in mixed precision ended."""
    if configuration.tolerance != MIXED_PCG_TOLERANCE:
        return configuration
    return replace(configuration, tolerance=PCG_TOLERANCE)


def check_schur(configuration: Configuration, structure: Structure) -> None:
    """`OptionError` where elimination is asked for and there is nothing to eliminate."""
    if configuration.schur in ("explicit", "implicit") and not structure.has_schur:
        raise OptionError(no_schur(configuration.schur, structure))


@dataclass(frozen=True)
class Plan:
    """How a problem is solved on a device."""

    configuration: Configuration
    """Without "auto"."""
    schedule: str
    """"host", or what is stored of H, in words."""
    products: tuple[Products, ...] = ()
    """Per edge group, unless the schedule is "host"."""
    evaluations: tuple[Evaluation, ...] = ()
    """Likewise: who evaluates the edges for H and b."""
    merged: frozenset[int] = frozenset()
    """Numbers of the vertex sets whose sums come from one kernel."""
    predictions: tuple[Prediction, ...] = ()
    """Of all schedules that were compared, the fastest first; none where nothing was left to choose."""
    others: tuple[Prediction, ...] = ()
    """The one that is taken, with another choice of what is merged for one vertex set each."""
    note: str = ""
    """Why the CPU linearises although nobody asked for it."""

    @property
    def uses_float32(self) -> bool:
        """In mixed precision the device does more with H than to compute it."""
        return iterates(self.configuration.linear_solver) or self.configuration.schur != "off"


def choose_plan(
    asked: Schedule,
    device: Device,
    structure: Structure,
    configuration: Configuration,
    precision: Precision,
) -> Plan:
    """What "auto" stands for in schedule and configuration. The one place that decides.

    Factorizations need blocks, and there linearisation takes little of the time: views are merged where the
    user says so, edges evaluated once where that is faster to set up (`few_edges`). With conjugate gradients
    the cost model picks, among what was asked for, unless it finds that a factorization of S is faster
    (`direct`): then S is stored, and iterated with as long as that is faster still (`DampedSystem`). Where
    a schedule without blocks is asked for, "auto" are conjugate gradients.
    """
    check_edges(structure)
    both, summations = [split_pin(pin) for pin in _pins(asked, structure)], summation_pins(asked, structure)
    pins, evaluations = [choice for choice, _ in both], [choice for _, choice in both]
    merged = frozenset(number for number, summation in summations.items() if summation == "merged")
    if structure.external and set(pins) - {"auto", "blocks", "host"}:
        raise _needs_whole(asked, structure)
    if set(pins) - {"auto", "blocks", "host"}:
        configuration = configuration.with_products()
    eliminates = structure.has_schur and configuration.schur != "off"
    linear_solver = configuration.choose_linear_solver(structure.kept_dim if eliminates else None)
    needs_blocks = replace(configuration, linear_solver=linear_solver).needs_blocks
    if needs_blocks:
        schur = "explicit" if eliminates else "off"
    else:
        schur = configuration.schur if eliminates else "off"
    is_chosen = configuration.is_chosen or configuration.linear_solver == "auto"
    resolved = replace(configuration, linear_solver=linear_solver, schur=schur, is_chosen=is_chosen)
    if asked == "auto" and (not device.submits_whole_programs or not pyglslang.is_available()):
        asked = "host"  # a submission per step there is slow; without a compiler there are no kernels
    note = host_note(device, structure) if asked == "auto" else ""
    if note:
        asked = "host"
    if structure.external and asked != "host":
        asked, pins = ("blocks", ["blocks"] * len(pins)) if _works_here(structure) else ("host", [])
    if asked == "host":
        return Plan(_for_host(resolved, structure, eliminates), "host", note=note)
    if needs_blocks:
        if set(pins) - {"auto", "blocks"}:
            raise _needs_products(asked, resolved)
        return _factored(resolved, structure, evaluations, merged)
    size = problem_size(structure, precision)
    if configuration.schur == "off":
        size = replace(size, num_pairs=0.0)
    by_tag = _pins_by_tag(size, pins, evaluations, summations)
    possible = predict(size, device_figures(device), precision, by_tag)
    found = [
        prediction
        for prediction in possible
        if prediction.schur == "off" or configuration.schur in ("auto", prediction.schur)
    ]
    if not found:
        raise _impossible(asked, pins, evaluations, resolved, size)
    limit = COMFORTABLE_SHARE * device_memory(device)
    if eliminates and configuration.may_factor and not set(pins) - {"auto", "blocks"}:
        software, shape = device.info["kind"] == "cpu", reduced_shape(structure)
        figures = device_figures(device)
        if is_factored(found, shape, size, figures, precision, software=software, memory_limit=limit):
            return _factored(replace(resolved, schur="explicit"), structure, evaluations, merged)
    best = cheapest(of_winners(found, size, by_tag) or found, limit)
    others = other_summations(size, device_figures(device), precision, best)
    taken = best.schedule, best.products, best.evaluations, best.merged
    return Plan(replace(resolved, schur=best.schur), *taken, tuple(found), tuple(others))


_EVALUATION_OF_PIN: dict[str, Evaluation] = {name: name for name in EVALUATIONS}


def _pins_by_tag(
    size: ProblemSize, pins: list[str], evaluations: list[str], summations: dict[int, str]
) -> dict[str, str]:
    """What was asked for, by tag of edges and vertices."""
    by_tag = {
        group.tag: join_pin(*pin)
        for group, *pin in zip(size.groups, pins, evaluations, strict=True)
        if set(pin) != {"auto"}
    }
    return by_tag | {size.vertex_tags[number]: summation for number, summation in summations.items()}


def _works_here(structure: Structure) -> bool:
    """Some edges are evaluated on a GPU, by kernels or by a library."""
    outside = [group.edge_set.type.outside for group in structure.external]
    libraries = [one.on_device.library for one in outside if one is not None and one.on_device is not None]
    return len(structure.groups) > 0 or any(library.ordinal() is not None for library in libraries)


def _factored(
    resolved: Configuration, structure: Structure, evaluations: list[str], merged: frozenset[int]
) -> Plan:
    """With a factorization, now or later: all blocks are stored."""
    chosen: tuple[Evaluation, ...] = tuple(
        _EVALUATION_OF_PIN.get(evaluation, "collect" if is_collected(group) else "gather")
        for evaluation, group in zip(evaluations, structure.groups, strict=True)
    )
    tags = [group.edge_set.type.tag for group in structure.groups]
    whole: tuple[Products, ...] = ("blocks",) * len(tags)
    return Plan(resolved, describe_products(tags, whole, chosen), whole, chosen, merged)


def whole_plan(plan: Plan, structure: Structure) -> Plan:
    """The plan that solves exactly where another one may iterate; all blocks are stored, edges gathered.

    A reduced system is factored where nobody asked for conjugate gradients and it is small.
    """
    chosen, count = plan.configuration, len(structure.groups)
    products: tuple[Products, ...] = ("blocks",) * count
    evaluations: tuple[Evaluation, ...] = ("gather",) * count
    of_any_schur = replace(chosen, schur="auto") if chosen.schur == "implicit" else chosen
    if iterates(chosen.linear_solver) and of_any_schur.may_factor:
        schur = "off" if chosen.schur == "off" else "explicit"
        if schur == "off" or structure.kept_dim <= MOST_REDUCED:
            chosen = replace(chosen, linear_solver="cholesky", schur=schur)
    return Plan(chosen, "blocks", products, evaluations)


def _for_host(resolved: Configuration, structure: Structure, eliminates: bool) -> Configuration:
    if not iterates(resolved.linear_solver):
        return resolved
    num_kept = structure.num_kept if eliminates else structure.num_blocks
    layout = BlockLayout.of(structure.pattern, num_kept)
    return resolved.resolve(layout)


def _pins(asked: Schedule, structure: Structure) -> list[str]:
    """What was asked for each edge group; `OptionError` where a tag is none of the graph's."""
    tags = [group.edge_set.type.tag for group in structure.groups]
    if isinstance(asked, str):
        return [asked] * len(tags)
    vertex_tags = _vertex_tags(structure)
    by_tag = dict(asked)
    for tag, name in by_tag.items():
        if tag not in tags and tag not in vertex_tags:
            raise OptionError(
                f"schedule names edge type '{tag}', of which there are no active edges. This graph has "
                f"{', '.join(dict.fromkeys(tags))}, and vertices {', '.join(vertex_tags)}."
            )
        known = EDGE_SCHEDULES if tag in tags else SUMMATIONS
        if name not in known:
            kind = "edge" if tag in tags else "vertex"
            raise OptionError(
                f"schedule of {kind} type '{tag}' is '{name}', expected one of {', '.join(known)}."
            )
    return [by_tag.get(tag, "auto") for tag in tags]


def _vertex_tags(structure: Structure) -> list[str]:
    return [vertex_set.type.tag for vertex_set in structure.selection.vertex_sets]


def summation_pins(asked: Schedule, structure: Structure) -> dict[int, str]:
    """What is pinned, by number of the vertex set: "merged" or "separate".

    `OptionError` where there is nothing to merge.
    """
    every = "separate" if is_off("fused_kernels") else "auto"
    if isinstance(asked, str) and every == "auto":
        return {}
    by_tag = {} if isinstance(asked, str) else dict(asked)
    pins = {}
    for number, tag in enumerate(_vertex_tags(structure)):
        pin = by_tag.get(tag, every)
        if pin == "auto":
            continue
        count = sum(
            mergeable_slots(structure, group)[slot]
            for group in structure.groups
            for slot, own in enumerate(group.vertex_sets)
            if own == number
        )
        if pin == "merged" and count < 2:
            raise OptionError(
                f"schedule of '{tag}' is 'merged', but {count} slots of edge types can be summed together: "
                f"it takes two whose vertices of this type have fewer than {MANY_EDGES} edges. Leave it out."
            )
        pins[number] = pin
    return pins


def _needs_products(asked: Schedule, configuration: Configuration) -> OptionError:
    """Blocks are needed, and something else was asked for."""
    return OptionError(
        f"schedule '{_words(asked)}' needs products only, but linear_solver '{configuration.linear_solver}' "
        f"with schur '{configuration.schur}' needs the blocks of H. Use linear_solver='pcg' and "
        "schur='implicit' or 'off', or schedule='blocks'."
    )


def _needs_whole(asked: Schedule, structure: Structure) -> OptionError:
    """Somebody adds to H, so all of its blocks must be stored, and something else was asked for."""
    kinds = ", ".join(sorted({group.edge_set.type.name for group in structure.external}))
    return OptionError(
        f"schedule '{_words(asked)}' does not store all blocks of H, but {kinds} edges are evaluated "
        "elsewhere and added to it. Use schedule='blocks' or 'host'."
    )


def _impossible(
    asked: Schedule,
    pins: list[str],
    evaluations: list[str],
    configuration: Configuration,
    size: ProblemSize,
) -> OptionError:
    """Why no schedule is what was asked for."""
    for g, evaluation in zip(size.groups, evaluations, strict=True):
        if evaluation == "auto":
            continue
        row = EVALUATIONS[_EVALUATION_OF_PIN[evaluation]]
        if "blocks" not in pins and row.writes_alone:
            return OptionError(
                f"schedule '{_words(asked)}': '{evaluation}' writes blocks of H, which are not stored for "
                f"the edges {g.tag}. Use 'blocks+{evaluation}', or 'gather'."
            )
        if not row.is_possible(g, "matrix-free", 8):
            return OptionError(
                f"schedule '{_words(asked)}' stores a record for each of {g.num_edges} edges {g.tag}, more "
                "than the 4 GiB that kernels can count. Use 'gather'."
            )
    if configuration.schur == "explicit" and set(pins) - {"auto", "blocks"}:
        return _needs_products(asked, configuration)
    if size.names_a_vertex_twice and "blocks" in pins and len(set(pins)) > 1:
        return OptionError(
            f"schedule '{_words(asked)}' stores blocks of H for some edges only, but an edge names one "
            "vertex twice. Use schedule='blocks' for all edge types or for none."
        )
    return OptionError(
        f"schedule '{_words(asked)}' with schur '{configuration.schur}' stores more of H or of its Schur "
        f"complement than work queues can count ({size.values} scalars of H and {size.schur:.0f} of S, "
        f"{size.num_pairs:.0f} pairs of observations; at most {MAX_VALUES - 1} and {MAX_QUEUE_ITEMS - 1}). "
        "Use schedule='matrix-free' or 'jacobians' with schur='implicit' or 'off'."
    )


def _words(asked: Schedule) -> str:
    return (
        asked if isinstance(asked, str) else ", ".join(f"{tag}={name}" for tag, name in dict(asked).items())
    )


def device_memory(device: Device) -> float:
    """Bytes of the device's largest local heap."""
    return float(max((heap["size"] for heap in device.info["heaps"] if heap["device_local"]), default=0))
