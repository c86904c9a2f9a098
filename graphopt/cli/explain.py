"""`graphopt explain`: how a graph would be solved on a device, and why."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphopt import error_codes
from graphopt.cli import arguments, output
from graphopt.cli.parsers import Parser
from graphopt.errors import OptionError, SolverError

if TYPE_CHECKING:
    from graphopt.cli.measure_schedules import Measurement
    from graphopt.problem.structure import Structure
    from graphopt.vulkan.plan.choice import Plan
    from graphopt.vulkan.plan.cost import Prediction


_WAY_OUT = (
    "Use --linear-solver pcg, --schur implicit with marginalized landmarks, --precision mixed on a GPU, "
    "several devices, or a part of the graph."
)


def add_arguments(parser: Parser) -> None:
    """What the command takes."""
    parser.description = (
        "Predict seconds and memory of a run (not the first of a process), and show the compiled edge types, "
        "the schedules that the device allows with predicted times (and with --measure the real ones), and "
        "which one is taken. "
        "Of an error's code (E302): what it means and what to do."
    )
    arguments.add_input(parser, "graph file, or an error's code")
    arguments.add_solver(parser, parser, ("linear_solver", "schur", "device", "precision", "schedule"))
    parser.add_argument("--measure", action="store_true", help="also run every schedule and show its time")
    parser.add_argument(
        "--source",
        metavar="EDGE",
        nargs="?",
        const="",
        help="print the generated kernels (GLSL) instead, of all edge types or of this one",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print edge types, kernels and schedules, or the page of an error's code; return 0."""
    if re.fullmatch(r"[Ee]\d{3}", args.input) and not os.path.exists(args.input):
        code, known = args.input.upper(), sorted(error_codes.causes())
        if code not in known:
            raise OptionError(f"'{args.input}' is unknown. Known: {', '.join(known)}.")
        print(error_codes.pages(code), end="")
        return 0
    from graphopt.evaluate.plan import fastest, load_modules, structure_of
    from graphopt.io import read

    graph = read(args.input, dialect=args.dialect)
    load_modules()
    analysis, structure = fastest(lambda: structure_of(graph))
    if args.source is not None:
        from graphopt.cli.kernel_sources import sources

        print(sources(structure, args), end="")
        return 0
    document: dict[str, Any] = {"problem": _problem(structure), "edges": _edges(structure)}
    document |= _schedules(graph, structure, analysis, args)
    if args.json:
        output.print_json(document)
    else:
        _print(document)
    run = document["run"]
    if not run["fits"]:
        need = f"The run on {run['device']} takes {run['memory_bytes'] / 2**20:,.0f} MiB"
        raise SolverError(f"{need}; {run['available_bytes'] / 2**20:,.0f} MiB are available. {_WAY_OUT}")
    return 0


def _problem(structure: Structure) -> dict[str, Any]:
    return {
        "vertices": structure.num_blocks,
        "kept": structure.num_kept,
        "eliminated": structure.num_blocks - structure.num_kept,
        "dimension": structure.dim,
        "kept_dimension": structure.kept_dim,
        "blocks_of_h": len(structure.pattern.row_idx),
        "numbers_of_h": structure.values_size,
    }


def _edges(structure: Structure) -> list[dict[str, Any]]:
    """Operations and live registers of each edge group's programs after each rewrite of the compiler."""
    from graphopt.codegen import explain_rewrites
    from graphopt.types.base import working_edge_type
    from graphopt.types.robust_kernels import robust_kernel

    rows = []
    for group in structure.groups:
        edge_type = working_edge_type(group.edge_set.type)
        programs = {
            kind: [
                step._asdict()
                for step in explain_rewrites(edge_type, group.information, bool(group.kernel), kind)
            ]
            for kind in ("chi2", "linearize")
        }
        rows.append(
            {
                "edge": group.edge_set.type.tag,
                "count": len(group.rows),
                "information": group.information,
                "robust_kernel": robust_kernel(group.kernel).name if group.kernel else None,
                "programs": programs,
            }
        )
    return rows


def _schedules(graph: Any, structure: Structure, analysis: float, args: argparse.Namespace) -> dict[str, Any]:
    """What the cost model says on the device, and with --measure what the device says."""
    from graphopt.cli.measure_schedules import measure_schedules
    from graphopt.device import open_device
    from graphopt.errors import DeviceError
    from graphopt.linear.options import SolverOptions
    from graphopt.solver.auto_device import choose_device
    from graphopt.vulkan.plan.choice import choose_plan, choose_precision, configuration_of, device_memory
    from graphopt.vulkan.plan.storage import names_of

    if args.device == "cpu":
        return _on_the_cpu(graph, structure, analysis, args)
    try:
        device = open_device("vulkan" if args.device == "auto" else args.device)
    except DeviceError:
        if args.device != "auto":
            raise
        return _on_the_cpu(graph, structure, analysis, args)
    options = SolverOptions(device.spec, args.linear_solver, args.schur, args.precision, args.schedule)
    precision = choose_precision(device, options.precision)
    configuration = configuration_of(options, precision)
    plan = choose_plan(options.schedule, device, structure, configuration, precision)
    measured: list[Measurement] = []
    if args.measure and device.submits_whole_programs:
        candidates = [*plan.predictions, *plan.others]
        measured = measure_schedules(graph, structure, device, precision, candidates)
    if args.device == "auto" and choose_device(structure, replace(options, device="auto")) == "cpu":
        run = _on_the_cpu(graph, structure, analysis, args)["run"]
    else:
        taken = _taken(plan) if plan.predictions else None
        run = _run_on_a_device(taken, analysis, device_memory(device))
    return {
        "run": run,
        "device": device.spec,
        "device_name": device.name,
        "precision": precision,
        "linear_solver": plan.configuration.linear_solver,
        "schur": plan.configuration.schur,
        "schedule": plan.schedule,
        "edge_sets": {
            group.edge_set.type.tag: name
            for group, name in zip(structure.groups, names_of(plan.products, plan.evaluations), strict=False)
        },
        "sums": _sums(plan, measured),
        "orders": _orders(structure),
        "schedules": _rows(plan, measured),
    }


def _orders(structure: Structure) -> list[dict[str, Any]]:
    """Views with destinations of more edges than a workgroup takes: the order of these edges."""
    from graphopt.codegen.gpu.layout import argument_names
    from graphopt.vulkan.data.order import edge_order

    orders = []
    for group in structure.groups:
        names = argument_names(group.edge_set.type)
        for slot in range(len(group.vertex_sets)):
            chosen = edge_order(structure, group, slot)
            if chosen is not None:
                by = "as in the graph" if chosen.other is None else f"by {names[chosen.other]}"
                orders.append(
                    {
                        "edge": group.edge_set.type.tag,
                        "slot": names[slot],
                        "order": by,
                        "moves_per_edge": {"graph": chosen.moves, "sorted": chosen.sorted_moves},
                    }
                )
    return orders


def _rows(plan: Plan, measured: list[Measurement]) -> list[dict[str, Any]]:
    times = {id(schedule.prediction): schedule for schedule in measured}
    rows = []
    for prediction in plan.predictions:
        row: dict[str, Any] = {
            "schedule": prediction.name,
            "sums": prediction.summation,
            "chosen": prediction is _taken(plan),
            "predicted_seconds": {**prediction.seconds, "setup": prediction.setup, "total": prediction.total},
            "memory_bytes": prediction.memory_bytes,
        }
        if id(prediction) in times:
            measurement = times[id(prediction)]
            row["measured_seconds"] = {**measurement.seconds, "total": measurement.total}
        rows.append(row)
    return rows


def _taken(plan: Plan) -> Prediction:
    """The prediction of what is taken."""
    taken = plan.configuration.schur, plan.products, plan.evaluations
    return next(
        prediction
        for prediction in plan.predictions
        if (prediction.schur, prediction.products, prediction.evaluations) == taken
    )


def _sums(plan: Plan, measured: list[Measurement]) -> list[dict[str, Any]]:
    """Vertex sets that several views sum to, and what an iteration takes merged and separately."""
    times = {id(schedule.prediction): schedule.total for schedule in measured}
    sums = []
    for place, choice in enumerate(_taken(plan).merging if plan.predictions else ()):
        both = {choice.name: _taken(plan), plan.others[place].merging[place].name: plan.others[place]}
        sums.append(
            {
                "vertices": choice.tag,
                "views": choice.num_views,
                "chosen": choice.name,
                "predicted_seconds": {name: prediction.total for name, prediction in both.items()},
                "measured_seconds": {
                    name: times[id(prediction)]
                    for name, prediction in both.items()
                    if id(prediction) in times
                },
            }
        )
    return sums


def _on_the_cpu(
    graph: Any, structure: Structure, analysis: float, args: argparse.Namespace
) -> dict[str, Any]:
    from graphopt.evaluate.machine import describe_cpu
    from graphopt.evaluate.plan import plan
    from graphopt.linear.options import SolverOptions

    found = plan(graph, structure, analysis, SolverOptions("cpu", args.linear_solver, args.schur))
    return {
        "run": found.to_dict(),
        "device": "cpu",
        "device_name": describe_cpu()["name"],
        "precision": "double",
        "linear_solver": found.linear_solver,
        "schur": found.schur,
        "schedule": "blocks",
        "edge_sets": {},
        "sums": [],
        "orders": [],
        "schedules": [],
    }


def _run_on_a_device(taken: Prediction | None, analysis: float, room: float) -> dict[str, Any]:
    """Seconds and memory of the schedule that is taken; None where the host assembles H."""
    from graphopt.evaluate.plan import Run

    if taken is None:
        return Run("vulkan", None, None, None, int(room)).to_dict()
    setup, memory = analysis + taken.setup, int(taken.memory_bytes)
    return Run("vulkan", setup, taken.total, memory, int(room)).to_dict()


def _print(document: dict[str, Any]) -> None:
    problem = document["problem"]
    output.print_facts(
        [
            ("vertices", f"{problem['vertices']} free, {problem['eliminated']} eliminated by Schur"),
            ("dimension", f"{problem['dimension']}, {problem['kept_dimension']} kept"),
            ("H", f"{problem['blocks_of_h']} blocks, {problem['numbers_of_h']} numbers"),
        ]
    )
    print()
    _print_edges(document["edges"])
    print()
    output.print_facts(
        [
            ("device", f"{document['device']}: {document['device_name']}"),
            (
                "solves with",
                f"{document['linear_solver']}, schur {document['schur']}, {document['precision']}",
            ),
            ("schedule", document["schedule"] if _is_uniform(document) else "by edge set"),
            ("expected", _expected(document["run"])),
        ]
    )
    if not _is_uniform(document):
        output.print_facts([(f"  {tag}", name) for tag, name in document["edge_sets"].items()])
    for order in document["orders"]:
        moves = order["moves_per_edge"]
        words = f"{order['order']}; {moves['graph']:.2f} moves of 64 bytes per edge as in the graph, "
        words += f"{moves['sorted']:.2f} sorted"
        output.print_facts([(f"  {order['edge']} per {order['slot']}", words)])
    if document["sums"]:
        output.print_facts([(f"  {total['vertices']}", _sum_words(total)) for total in document["sums"]])
    if document["schedules"]:
        print()
        _print_schedules(document["schedules"])


def _expected(run: dict[str, Any]) -> str:
    """Seconds and memory of a run."""
    from graphopt.evaluate.plan import TYPICAL

    if run["seconds"] is None:
        return f"not predicted on {run['device']}, where H is solved as a whole; --device cpu predicts"
    words = f"on {run['device']}: {output.seconds(run['setup'])} set-up, "
    words += f"{output.seconds(run['iteration'])} per iteration, "
    words += (
        f"{output.seconds(run['seconds'])} with {TYPICAL} iterations; {run['memory_bytes'] / 2**20:,.0f} MiB"
    )
    room = run["available_bytes"]
    return words if room is None else f"{words} of {room / 2**20:,.0f} that are available"


def _sum_words(total: dict[str, Any]) -> str:
    """The views of a vertex set, and times of an iteration either way."""
    words = [f"{total['views']} sums of edges, {total['chosen']}"]
    for kind in ("predicted", "measured"):
        times = [f"{name} {1e3 * seconds:.3f}" for name, seconds in total[f"{kind}_seconds"].items()]
        words += [f"{kind} {', '.join(times)} ms"] if times else []
    return "; ".join(words)


def _is_uniform(document: dict[str, Any]) -> bool:
    return len(set(document["edge_sets"].values())) <= 1


def _print_edges(edges: list[dict[str, Any]]) -> None:
    """The rewrites that changed something, per program."""
    rows = []
    for edge in edges:
        kernel = f", {edge['robust_kernel']}" if edge["robust_kernel"] else ""
        name, count = f"{edge['edge']} ({edge['information']}{kernel})", str(edge["count"])
        for kind, steps in edge["programs"].items():
            program = kind
            for before, step in zip([None, *steps], steps, strict=False):
                if before is None or any(
                    step[key] != before[key] for key in ("operations", "live_registers")
                ):
                    numbers = (str(step["operations"]), str(step["live_registers"]))
                    rows.append((name, count, program, step["rule"], *numbers))
                    name = count = program = ""
    columns = ("edge", "count", "program", "after", "operations", "live registers")
    output.print_table(columns, rows, numeric=("count", "operations", "live registers"))


def _print_schedules(schedules: list[dict[str, Any]]) -> None:
    """Times per iteration of Levenberg-Marquardt with 20 conjugate gradient iterations."""
    phases = ("linearize", "eliminate", "solve", "update", "total")
    rows = []
    for schedule in schedules:
        mark = "*" if schedule["chosen"] else ""
        for kind in ("predicted", "measured"):
            seconds = schedule.get(f"{kind}_seconds")
            if seconds is not None:
                times = [f"{1e3 * seconds[phase]:.3f}" for phase in phases]
                memory = f"{schedule['memory_bytes'] / 2**20:.0f}" if kind == "predicted" else ""
                rows.append((mark, schedule["schedule"], kind, *times, memory))
    columns = ("", "schedule", "ms", *phases, "MiB")
    output.print_table(columns, rows, numeric=(*phases, "MiB"))
    print(
        "\nTimes of one Levenberg-Marquardt iteration with 20 iterations of conjugate gradients; * is taken."
    )
