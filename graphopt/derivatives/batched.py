"""The optima of a batch of small problems on a device, a workgroup each, as a function of the batch's arrays.

`OptimumProblem` of copies of the graph solves all problems as one; this takes `optimize_batch`'s loop and
Newton's steps of each problem, and for the derivatives one kernel that factorizes the exact Hessian of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphopt.batch.adjoint import DeviceAdjoint
from graphopt.batch.arrays import BatchArrays, structure_of
from graphopt.batch.on_device import open_for_batch, plan_for
from graphopt.batch.optimize import Batch
from graphopt.batch.plan import KernelKind, Requested
from graphopt.batch.problems import ProblemArrays
from graphopt.batch.resident import Resident, Sharing, on_host
from graphopt.batch.result import BatchSummary
from graphopt.derivatives.equations import DAMPING, GROWTH, HostEquations, refuse_what_has_none
from graphopt.derivatives.inputs import Input, resolve
from graphopt.derivatives.refine import NEAR, REACHED, ROUNDING, STEPS, TINY, Doubts, at_kink
from graphopt.derivatives.settings import GradientSettings, Solved
from graphopt.device.cuda_arrays import CudaArray
from graphopt.errors import DeviceError, GradientError
from graphopt.graph import Graph
from graphopt.graph.behind import num_images
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.request import Request
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.option_names import METHODS
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.auto_device import device_for_batch
from graphopt.solver.configurations import configured
from graphopt.solver.cpu import CpuBlockSolver

_OF_RUN = ("method", "max_iterations", "options", "fix", "level", "time_limit", "stop", "on_interrupt")
_OF_SOLVER = ("device", "linear_solver", "precision")
_ARGUMENTS = {
    "measurement": "measurements",
    "information": "information",
    "kernel_width": "kernel_widths",
    "values": "parameters",
}
"""Column -> field of `ProblemArrays`."""
RESIDENT = ("measurement", "values")
"""Columns that kernels read as CUDA has them."""


@dataclass(eq=False)
class BatchOptimum:
    """As `OptimumProblem`, of arrays (count * rows, ...) of all problems."""

    graph: Graph
    """What the problems have in common."""
    count: int
    inputs: list[Input]
    settings: GradientSettings
    options: Mapping[str, Any]
    """Of `optimize`."""
    solver: SolverOptions
    """Its device is the one that computes."""
    structure: Structure
    fixed: list[int] = field(default_factory=list)
    """Vertices that hold the gauge."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        count: int,
        names: Sequence[str],
        settings: GradientSettings,
        options: Mapping[str, Any],
    ) -> BatchOptimum | None:
        """None where a device's workgroups do not solve this.

        Which is: other methods and options than a batch's, gradients by the start or by fixed vertices,
        problems that are too large, edges that sample images, no device with float64.
        """
        known = {*_OF_RUN, *_OF_SOLVER, "look_behind"}
        if settings.gradient != "implicit" or settings.warm_start or not known.issuperset(options):
            return None
        solver = configured(SolverOptions(**{key: options[key] for key in _OF_SOLVER if key in options}))
        inputs = resolve(graph, names)
        takes_inputs = all(one.column in _ARGUMENTS for one in inputs)
        if (
            solver.precision == "mixed"
            or options.get("method", "auto") not in {*METHODS} - {"auto"}
            or not takes_inputs
        ):
            return None
        if any(vertex_set.holds_components for vertex_set in graph.vertex_sets):
            return None
        refuse_what_has_none(graph)
        selection, fixed = fix_gauge(graph, graph.select(options.get("level", 0)), options.get("fix", "auto"))
        if options.get("look_behind", True) and num_images(selection.edges):
            return None
        structure = Structure(selection)
        edges = sum(len(group.rows) for group in structure.groups)
        if solver.device == "auto":
            solver = replace(solver, device=device_for_batch(solver, count, edges))
        if solver.device == "cpu" or edges == 0 or structure.dim == 0:
            return None
        found = cls(graph, count, inputs, settings, options, solver, structure, fixed)
        return found if found._fits() else None

    def _fits(self) -> bool:
        """A workgroup of the device can hold a problem."""
        try:
            device = open_for_batch(self.solver.device, self.solver)
            if not device.has_float64:
                return False
            plan_for(device, *self._of_adjoint(self.structure))  # other methods take as much memory
        except DeviceError:  # of the whole graph of copies another device may be capable
            return False
        return True

    def _of_adjoint(self, structure: Structure) -> tuple[Structure, KernelKind, Requested]:
        """Arguments of `plan_for`, with the columns that gradients are wanted of.

        Information is full where they are wanted of it.
        """
        sets = self.graph.parameter_sets
        requested = tuple(
            tuple(
                column
                for column in _ARGUMENTS
                if any(
                    one.column == column
                    and (one.rows is group.edge_set or one.rows in [sets[k] for k in group.parameter_sets])
                    for one in self.inputs
                )
            )
            for group in structure.groups
        )
        full = copy(structure)
        full.groups = [
            replace(group, information="full") if "information" in columns else group
            for group, columns in zip(structure.groups, requested, strict=True)
        ]
        return full, ("adjoint", "double"), requested

    @property
    def tags(self) -> list[str]:
        """Names of the outputs: tags of the vertex sets."""
        return [vertex_set.type.tag for vertex_set in self.graph.vertex_sets]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the outputs."""
        found = [vertex_set.look("estimate").shape for vertex_set in self.graph.vertex_sets]
        return [(self.count * rows, dim) for rows, dim in found]

    def _arrays(self, values: Sequence[np.ndarray]) -> ProblemArrays:
        given: dict[str, dict[int, np.ndarray]] = {name: {} for name in _ARGUMENTS.values()}
        for one, value in zip(self.inputs, values, strict=True):
            sets = self.graph.parameter_sets if one.column == "values" else self.graph.edge_sets
            number = next(k for k, each in enumerate(sets) if each is one.rows)
            given[_ARGUMENTS[one.column]][number] = self._checked(one, value)
        return ProblemArrays(self.graph, self.count, estimates={}, masks={}, **given)

    def _checked(self, one: Input, value: Any) -> Any:
        if not isinstance(value, Resident):
            return one.checked_batch(value, self.count)
        if one.column not in RESIDENT:
            return one.checked_batch(value.host(), self.count)
        return value.reshape(self.count, *one.shape)

    def sharing(self, ordinal: int) -> Sharing | None:
        """What takes and makes arrays of a CUDA device; None: they have to come to the host."""
        return Sharing.of(open_for_batch(self.solver.device, self.solver), ordinal)

    def solve(self, values: Sequence[Any], sharing: Sharing | None = None) -> Solved:
        """Optimize with these inputs, in the order of their names.

        values: arrays, or `Resident` ones of finite numbers. sharing: estimates become arrays of CUDA's,
        where all problems go at once.
        """
        start = time.perf_counter()
        options, get = self.options, self.options.get
        rules, algorithm = Request(options["method"], get("max_iterations"), get("options")).algorithm()
        Request(time_limit=get("time_limit")).check_time_limit()
        signals = StopSignals(
            get("stop"), get("time_limit"), start, on_interrupt=get("on_interrupt", "raise")
        )
        problems = self._arrays(values)
        newton = self._newton_options(), STEPS
        with self.graph.held_still():
            batch = Batch(problems, self.structure, self.solver, self.fixed, [], newton, sharing)
            found = batch.run(options["method"], rules, algorithm, signals, start)
        summary = self._summary(found)
        if signals.reason is TerminationType.USER_INTERRUPT:
            signals.raise_if_interrupted(summary)
        estimates = tuple(
            array
            if isinstance(array := found.estimates[tag], CudaArray)
            else np.ascontiguousarray(array).reshape(shape)
            for tag, shape in zip(self.tags, self.shapes, strict=True)
        )
        return Solved(estimates, summary, self._doubts(problems, batch.refined))

    def _newton_options(self) -> np.ndarray:
        damping = DAMPING if self.settings.singular == "damp" else 0.0
        return np.array([damping, NEAR, REACHED, 1.0 + ROUNDING, TINY, GROWTH, np.inf])

    def _summary(self, found: BatchSummary) -> Summary:
        """Of all problems; `message` counts how they ended."""
        ends = found.endings
        bad = [end for end in ends if not end.is_usable]
        ended = bad[0] if bad else TerminationType.CONVERGENCE
        if not bad and TerminationType.NO_CONVERGENCE in ends:
            ended = TerminationType.NO_CONVERGENCE
        selection = self.structure.selection
        vertices = sum(len(vertex_set) for vertex_set in selection.vertex_sets)
        edges = sum(len(group.rows) for group in self.structure.groups)
        summary = Summary(self.count * vertices, self.count * edges, found.method, ended)
        summary.initial_chi2, summary.final_chi2 = map(
            float, (found.initial_chi2.sum(), found.final_chi2.sum())
        )
        summary.linear_solver, summary.device, summary.precision = found.linear_solver, found.device, "double"
        summary.factorized_on, summary.schedule = "device", "problems"
        summary.fixed_by_gauge, summary.message = self.fixed, found.brief_report()
        seconds = found.seconds
        summary.seconds |= {
            "prepare": seconds["prepare"],
            "solve": seconds["optimize"],
            "other": seconds["total"] - seconds["prepare"] - seconds["optimize"],
            "total": seconds["total"],
        }
        return summary

    def _doubts(self, problems: ProblemArrays, refined: Any) -> Doubts:
        kinks = 0
        ended = refined.left <= NEAR  # others were not evaluated at their end
        for number, squared in refined.squared.items():
            group = self.structure.groups[number]
            edges = self.graph.edge_sets
            own = next(k for k, each in enumerate(edges) if each is group.edge_set)
            widths = problems.kernel_widths.get(own, edges[own].look("kernel_width")[None])[:, group.rows]
            kinks += int(np.count_nonzero(at_kink(group.kernel, squared, widths)[ended]))
        return Doubts(float(refined.left.max()), float(refined.growth.max()), kinks)

    def vjp(
        self,
        values: Sequence[Any],
        estimates: Sequence[Any],
        doubts: Doubts,
        cotangents: Sequence[Any],
        sharing: Sharing | None = None,
    ) -> list[Any]:
        """See `OptimumProblem.vjp`; arguments may be `Resident`.

        sharing: derivatives become arrays of CUDA's where they are what one group of edges has found.
        """
        problems = self._arrays(values)
        structure = structure_of(self.structure, problems)
        structure, _, requested = self._of_adjoint(structure)
        arrays = BatchArrays(structure, problems)
        adjoint = DeviceAdjoint(arrays, self.solver.device, self.solver, requested)
        stored, pulled = self._vertices(arrays, estimates, cotangents)
        shapes = self._results(structure, requested)
        if any(self._part_of_one(one, structure, shapes) is None for one in self.inputs):
            sharing = None
        with self.graph.held_still():
            growth, results = adjoint.run(stored, pulled, self._newton_options(), shapes, sharing)
        worst = int(np.argmax(growth))
        self.settings.tell(doubts, lambda: self._why_not_definite(problems, estimates, worst))
        if not np.isfinite(growth[worst]):
            raise GradientError(self._why_not_definite(problems, estimates, worst))
        found = [self._gradient(one, structure, results) for one in self.inputs]
        return [
            array if isinstance(array, CudaArray) else array.reshape(-1, *one.shape[1:])
            for array, one in zip(found, self.inputs, strict=True)
        ]

    def _vertices(
        self,
        arrays: BatchArrays,
        estimates: Sequence[Any],
        cotangents: Sequence[Any],
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        """By vertex set that is optimized (B, n, storage_dim) estimates and cotangents."""
        stored, pulled = {}, {}
        for number, vertex_set in enumerate(self.structure.selection.vertex_sets):
            if not arrays.is_free(number):
                continue
            k = next(k for k, each in enumerate(self.graph.vertex_sets) if each is vertex_set)
            shape = (self.count, len(vertex_set), vertex_set.type.storage_dim)
            given = cotangents[k]
            stored[number] = _shaped(estimates[k], shape)
            pulled[number] = np.zeros(shape) if given is None else _shaped(given, shape)
        return stored, pulled

    def _results(
        self, structure: Structure, requested: Sequence[Sequence[str]]
    ) -> dict[tuple[int, str], tuple[int, ...]]:
        """By group and column the shape (B, m, ...) of the derivatives by its edges' numbers."""
        found = {}
        for number, (group, columns) in enumerate(zip(structure.groups, requested, strict=True)):
            kind = group.edge_set.type
            shapes = {
                "measurement": (kind.measurement_dim,),
                "information": (kind.residual_dim, kind.residual_dim),
                "kernel_width": (),
                "values": (sum(parameter.storage_dim for parameter in kind.parameters),),
            }
            for column in columns:
                found[number, column] = (self.count, len(group.rows), *shapes[column])
        return found

    def _gradient(
        self, one: Input, structure: Structure, results: Mapping[tuple[int, str], np.ndarray]
    ) -> np.ndarray:
        """(B, rows, ...): what the groups with rows of the input have found."""
        if one.column == "values":
            return self._of_parameters(one, structure, results)
        whole = self._part_of_one(one, structure, results)
        if whole is not None:
            return results[whole]
        found = np.zeros((self.count, *one.shape))
        for number, column in results:
            if column == one.column and structure.groups[number].edge_set is one.rows:
                found[:, structure.groups[number].rows] = results[number, column]
        return found

    def _part_of_one(
        self, one: Input, structure: Structure, results: Iterable[tuple[int, str]]
    ) -> tuple[int, str] | None:
        """Group and column that are all of an input's derivative, if one is."""
        parts = [
            (number, column)
            for number, column in results
            if column == one.column and structure.groups[number].edge_set is one.rows
        ]
        is_all = len(parts) == 1 and structure.groups[parts[0][0]].chosen_rows is None
        return parts[0] if is_all else None

    def _of_parameters(
        self, one: Input, structure: Structure, results: Mapping[tuple[int, str], np.ndarray]
    ) -> np.ndarray:
        """Sums over the edges that share a parameter."""
        found = np.zeros((self.count, *one.shape))
        sets = self.graph.parameter_sets
        for (number, column), array in results.items():
            if column != "values":
                continue
            group, first = structure.groups[number], 0
            for slot, k in enumerate(group.parameter_sets):
                last = first + sets[k].type.storage_dim
                if sets[k] is one.rows:
                    by_row, parts = found.swapaxes(0, 1), array[..., first:last].swapaxes(0, 1)
                    np.add.at(by_row, group.parameter_rows[:, slot], parts)
                first = last
        return found

    def _why_not_definite(self, problems: ProblemArrays, estimates: Sequence[Any], problem: int) -> str:
        """A sentence about the Hessian of one problem."""
        graph = problems.graph_of(problem)
        for vertex_set, array in zip(graph.vertex_sets, estimates, strict=True):
            shape = self.count, *vertex_set.estimate.shape
            vertex_set.estimate[...] = on_host(_shaped(array, shape))[problem]
        selection = graph.select(self.options.get("level", 0))
        selection, _ = fix_gauge(graph, selection, self.options.get("fix", "auto"))
        solver = CpuBlockSolver(graph, Structure(selection), SolverOptions(device="cpu"))
        equations = HostEquations(graph, solver)
        equations.linearize()
        return f"Problem {problem}: {equations.why_not_definite()}"


def _shaped(array: Any, shape: tuple[int, ...]) -> Any:
    """An array of the host, or `Resident`, in this shape."""
    if isinstance(array, Resident):
        return array.reshape(*shape)
    return np.ascontiguousarray(array, np.float64).reshape(shape)
