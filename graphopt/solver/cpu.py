"""The block solver on the CPU: the bytecode interpreter linearises, native linear algebra solves.

The Linearizer refers to the graph's estimate arrays, or for types with a working form to arrays of that form,
which `finish` brings back; adding or removing vertices while an optimization runs is not possible.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.cpu_kernels import isa, kernels
from graphopt.errors import DeviceError, GraphError
from graphopt.graph import Graph, ParameterSet
from graphopt.graph.sets import VertexSet
from graphopt.linear import SparseCholesky
from graphopt.linear.options import SolverOptions
from graphopt.linear.pcg import PCG_TOLERANCE
from graphopt.linear.systems import choose_system
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.solver.capabilities import Capabilities
from graphopt.solver.devices import Device
from graphopt.solver.external import ExternalPart, ExternalPlaces, HostExternal
from graphopt.solver.trial import Damping, HostVectors, Trial
from graphopt.types.base import working_edge_type
from graphopt.types.cache import per_type_cache
from graphopt.types.robust_kernels import robust_kernel

_MACHINE = platform.machine()
SMALL_DIM = 60
"""Scalars of dx up to which `CpuBlockSolver.native_loop` iterates without Python: it does not look
ahead."""
_MOST_SPECULATIVE = 1 << 23  # numbers of a second H: 64 MiB


@per_type_cache
def compiled_edge(edge_type: Any, information: str, kernel: int) -> codegen.EdgeKernels:
    """Programs of an edge type, compiled once per process."""
    function = robust_kernel(kernel).function if kernel else None
    return codegen.compile_edge(edge_type, information=information, robust=function)


@per_type_cache
def compiled_vertex(vertex_type: Any) -> codegen.Program:
    """Program of a vertex type's oplus, compiled once per process."""
    return codegen.compile_vertex(vertex_type)


class HostEquations(HostVectors):
    """H, b, chi2 and the estimates on the host, by the native Linearizer.

    The part of a `BlockSolver` that does not solve: `solve`, `multiply` and `describe` are the subclass's.
    """

    capabilities = Capabilities(snapshot=True, narrow=True)
    linearizes_trials = False
    """`chi2` finds H and b as well, in arrays of their own, for a `linearize` that follows: one pass over
    the edges instead of two. Not after a trial that was taken back, until one was not."""
    _is_hopeful = True
    _speculative: tuple[np.ndarray, np.ndarray] | None = None
    """H's blocks and b, of the last `chi2` that was speculative, or before it."""
    _speculative_chi2: float | None = None
    """chi2 that belongs to `_speculative`, where that is at the present estimates and data."""
    _is_begun = False
    """It belongs to `values` and `b` instead, see `begin`."""

    def __init__(self, graph: Graph, structure: Structure, values: np.ndarray, b: np.ndarray):
        """values, b: where H's blocks (see `structure`) and the right-hand side (dim,) go."""
        self.structure = structure
        self.dim = structure.dim
        self.values = values
        """H's blocks, see `structure`; what they hold before `linearize` means nothing."""
        self._b = b
        self._dx = np.zeros(self.dim)
        self._estimates = [WorkingEstimates(vertex_set) for vertex_set in structure.selection.vertex_sets]
        self.linearizer, self._groups = make_linearizer(graph.parameter_sets, structure, self._estimates)
        self._diagonal = structure.pattern.diagonal_indices()

    def rebind(self, graph: Graph) -> None:
        """Go on with the numbers of another graph of an equal structure, after `Structure.rebind`."""
        self._is_hopeful, self._speculative_chi2 = True, None
        self._estimates = [WorkingEstimates(one) for one in self.structure.selection.vertex_sets]
        self.linearizer, self._groups = make_linearizer(graph.parameter_sets, self.structure, self._estimates)

    def refresh(self) -> None:
        """Take the graph's present estimates, measurements, information and kernel widths."""
        self._is_hopeful = True  # every optimization takes the same way
        self.take_all_estimates()
        self.take_edge_data()

    def take_all_estimates(self) -> None:
        """Take the graph's present estimates."""
        self._speculative_chi2 = None
        for working in self._estimates:
            working.read()

    def take_edge_data(self, known: dict[int, tuple[np.ndarray, np.ndarray]] | None = None) -> None:
        """Take the graph's present measurements, information and kernel widths; the estimates stay.

        known: measurements and packed information by group, which have not changed since; what is missing
        there is added.
        """
        self._speculative_chi2 = None
        for number, group in self._groups:
            if known is None:
                self.linearizer.set_edge_data(number, *edge_data(group))
                continue
            if number not in known:
                known[number] = edge_data(group)[:2]
            self.linearizer.set_edge_data(number, *known[number], edge_widths(group))

    def set_weights(self, number: int, weight: np.ndarray, kernel_width: float) -> None:
        """The information of a group's edges becomes weight (m,) times the identity, in the solver only."""
        self._speculative_chi2 = None
        self.linearizer.set_weights(number, weight, kernel_width)

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """For edges that are evaluated elsewhere, see `solver.external`."""
        return HostExternal(self, places)

    def take_estimates(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's estimates of some rows of a vertex set."""
        self._speculative_chi2 = None
        self._estimates[number].read(rows)

    @property
    def estimates(self) -> Sequence[WorkingEstimates]:
        """The present estimates by vertex set, in the form that steps are taken in."""
        return self._estimates

    def present(self, vertex_set: VertexSet) -> np.ndarray:
        """The present estimates of a vertex set, in the form that steps are taken in; only to look at."""
        found = self.structure.selection.vertex_sets.index(vertex_set)
        return self._estimates[found].array

    def snapshot(self) -> list[np.ndarray]:
        """Copies of all estimates, in the form that steps are taken in."""
        return [working.array.copy() for working in self._estimates]

    def restore(self, estimates: list[np.ndarray]) -> None:
        """Set the estimates to what `snapshot` gave; the stack of `push` stays."""
        self._speculative_chi2 = None
        for working, estimate in zip(self._estimates, estimates, strict=True):
            working.array[:] = estimate

    @contextmanager
    def changing_equations(self) -> Iterator[None]:
        """Within it `values` and `b` may be changed, after `linearize`."""
        yield

    def choose_edges(self, masks: list[np.ndarray]) -> None:
        """Let only some edges take part, per group of the structure a mask of its rows; then `refresh`."""
        self._speculative_chi2 = None
        self.linearizer.choose_edges(masks)

    # ---------------------------------------------------------------- BlockSolver

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H."""
        return self.values[self._diagonal]

    def linearize(self) -> float:
        """H, b and the robustified chi2."""
        chi2, self._speculative_chi2 = self._speculative_chi2, None
        if chi2 is None:
            return self.linearizer.linearize(self.values, self._b)
        if self._speculative is not None and not self._is_begun:
            found, self._speculative = self._speculative, (self.values, self._b)
            self.values, self._b = found
        return chi2

    def begin(self) -> float:
        """chi2 at the estimates, with H and b for the `linearize` that follows."""
        self._speculative_chi2, self._is_begun = None, True
        chi2 = self._speculative_chi2 = self.linearizer.linearize(self.values, self._b)
        return chi2

    def chi2(self) -> float:
        """Robustified chi2 at the estimates."""
        self._speculative_chi2, self._is_begun = None, False
        arrays = self._speculative_arrays()
        if arrays is None:
            return self.linearizer.chi2()
        chi2 = self._speculative_chi2 = self.linearizer.linearize(*arrays)
        return chi2

    def _speculative_arrays(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Where H and b of the next chi2 go; None: it does not linearize trials."""
        if not (self.linearizes_trials and self._is_hopeful):
            return None
        if self.dim <= SMALL_DIM or len(self.values) > _MOST_SPECULATIVE:
            return None
        if self._speculative is None:
            self._speculative = kernels.kept_array(len(self.values)), np.empty_like(self._b)
        return self._speculative

    def update(self) -> None:
        """Estimates <- estimates oplus dx."""
        self._speculative_chi2 = None
        self.linearizer.oplus(self._dx)

    def push(self) -> None:
        """Remember the estimates."""
        self.linearizer.push()

    def pop(self) -> None:
        """Return to the last push."""
        self._speculative_chi2, self._is_hopeful = None, False
        self.linearizer.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._is_hopeful = True
        self.linearizer.discard_top()

    def first_non_finite(self) -> str | None:
        """Name the first edge whose error or Jacobian is not finite."""
        return name_of_non_finite(self.linearizer, self._groups)

    def finish(self) -> None:
        """Bring the estimates that changed into the graph."""
        for working in self._estimates:
            working.write()

    def edge_chi2(self, group: EdgeGroup) -> np.ndarray:
        """(m,) chi2 of a group's edges without robust kernels."""
        for number, known in self._groups:
            if known is group:
                return self.linearizer.edge_chi2(number)
        raise GraphError(f"This block solver has no such group of {group.edge_set.type.tag}.")


class CpuBlockSolver(HostEquations):
    """Implements `BlockSolver` with the native modules.

    A class derived from it that changes estimates between its methods has `capabilities` of its own.
    """

    capabilities = Capabilities(
        snapshot=True,
        narrow=True,
        begins_linearized=True,
        linearizes_trials=True,
        native_loop=True,
        linear_system=True,
        rebinds=True,
        may_move=True,
    )

    def __init__(self, graph: Graph, structure: Structure, options: SolverOptions):
        if options.precision == "mixed":
            raise DeviceError(
                "precision 'mixed' is for GPUs; the CPU computes in double. Use precision='auto'."
            )
        if options.schedule not in ("auto", "host"):
            raise DeviceError(f"schedule '{options.schedule_words}' is for GPUs. Use schedule='auto'.")
        values = kernels.kept_array(structure.values_size)
        super().__init__(graph, structure, values, np.zeros(structure.dim))
        self._damping = np.zeros(self.dim)
        self.linear_system = choose_system(structure, options)
        self._pcg_tolerance = options.pcg_tolerance or PCG_TOLERANCE
        self._product: Any = None
        self._description: dict[str, object] = {}
        self._bind()

    def _bind(self) -> None:
        """Make what refers to the linearizer."""
        direct = self.linear_system.direct
        self._trials: Any = None if direct is None else kernels.Trials(self.linearizer, *direct)
        self._loops: dict[bool, Any] = {}
        """See `native_loop`."""

    def rebind(self, graph: Graph) -> None:
        """Go on with the numbers of another graph; conjugate gradients start anew."""
        super().rebind(graph)
        self._bind()
        if self.linear_system.pcg is not None:
            self.linear_system.pcg.reset()

    def refresh(self) -> None:
        """Take the graph's present numbers; conjugate gradients start anew."""
        super().refresh()
        if self.linear_system.pcg is not None:
            self.linear_system.pcg.reset()

    def native_loop(self, with_product: bool) -> Any:
        """A `kernels.SmallLoop` over these arrays, None for what has to be driven from Python.

        A system of a few vertices is linearized and solved in microseconds, less than Python needs between
        the two: g2o's algorithms run as a whole, with the same numbers. It is kept for the next time.
        with_product: the algorithm multiplies by H.
        """
        direct = self.linear_system.direct
        if self.dim > SMALL_DIM or direct is None or direct[0] is not None:
            return None
        if with_product not in self._loops:
            product = self._symmetric_product() if with_product else None
            arrays = self.values, self._b, self._dx, self._diagonal
            self._loops[with_product] = kernels.SmallLoop(self.linearizer, direct[1], product, *arrays)
        return self._loops[with_product]

    @contextmanager
    def timing_parts(self, seconds: dict[str, float]) -> Iterator[None]:
        """Trials go part by part within it, and `LinearSystem.timing` adds up their seconds."""
        trials, self._trials = self._trials, None
        try:
            with self.linear_system.timing(seconds):
                yield
        finally:
            self._trials = trials

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        if isinstance(damping, np.ndarray):
            self._damping[:] = damping
        elif damping == 0.0:
            return self.linear_system.solve(self.values, None, self._b, self._dx)
        else:
            self._damping.fill(damping)
        return self.linear_system.solve(self.values, self._damping, self._b, self._dx)

    def solve_again(self, b: np.ndarray) -> np.ndarray:
        """x (dim,) of (H + D) x = b with the factor of the last `solve`."""
        x = np.empty(self.dim)
        self.linear_system.solve_again(np.ascontiguousarray(b), x)
        return x

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update and chi2.

        In one call where a factorization solves; conjugate gradients as exactly as the damping asks for.
        """
        if self._trials is not None:
            return self._native_trial(damping)
        pcg = self.linear_system.pcg
        if pcg is None or damping.accuracy is None:
            return super().trial(damping)
        share = max(damping.accuracy**2, self._pcg_tolerance)
        pcg.set_early_stop(share, damping.worth)
        try:
            found = super().trial(damping)
        finally:
            pcg.set_early_stop(0.0, 0.0)
        return replace(found, is_coarse=found.solved and share > self._pcg_tolerance)

    def _native_trial(self, damping: Damping) -> Trial:
        shift = damping.of(self.diagonal) if damping.scaled else damping.value
        arrays = self._speculative_arrays()
        found = self._trials.run(self.values, shift, self._b, self._dx, arrays)
        solved, chi2, gain, size, solving, updating, linearizing = found
        if not solved:
            return Trial(False, seconds={"solve": solving})
        self._speculative_chi2, self._is_begun = chi2 if arrays is not None else None, False
        seconds = {"solve": solving, "update": updating, "linearize": linearizing}
        return Trial(True, chi2, gain, size, seconds)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector."""
        return self.product(self.values, vector)

    def product(self, values: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """A vector times the symmetric matrix that other values of H's blocks are."""
        return self._symmetric_product().multiply(values, np.ascontiguousarray(vector))

    def _symmetric_product(self) -> Any:
        if self._product is None:
            self._product = kernels.SymmetricProduct(self.structure.pattern)
        return self._product

    def describe(self) -> dict[str, object]:
        """What solves what, where."""
        device_name = f"{_MACHINE} {isa}, {kernels.num_threads()} threads"
        if self._description.get("device_name") != device_name:
            self._description = self._described(device_name)
        return self._description

    def _described(self, device_name: str) -> dict[str, object]:
        own = self.values.nbytes + 3 * self._b.nbytes + self.structure.nbytes
        own += sum(array.nbytes for array in self._speculative or ())
        own += sum(working.nbytes for working in self._estimates)
        return {
            "linear_solver": self.linear_system.linear_solver,
            "factorized_on": "" if self.linear_system.pcg is not None else "cpu",
            "schur": self.linear_system.schur,
            "device": "cpu",
            "device_name": device_name,
            "precision": "double",
            "memory_bytes": own + self.linear_system.memory_bytes,
        }


def make_linearizer(
    parameter_sets: Sequence[ParameterSet],
    structure: Structure,
    estimates: Sequence[WorkingEstimates],
    groups: Sequence[EdgeGroup] | None = None,
    add_group: Callable[[Any, EdgeGroup], int] | None = None,
) -> tuple[Any, list[tuple[int, EdgeGroup]]]:
    """The native Linearizer of a structure, or of some of its groups, and each group's number in it.

    estimates: one per vertex set; vertex sets without a working form, and parameter sets, keep the graph's
    numbers. add_group: adds a group with other programs (`derivatives.equations`).
    """
    linearizer = kernels.Linearizer()
    for number, working in enumerate(estimates):
        program = compiled_vertex(working.type).native
        linearizer.add_vertex_set(working.array, program, structure.vertex_offsets[number])
    for parameter_set in parameter_sets:
        linearizer.add_parameter_set(parameter_set.values)
    requested = structure.groups if groups is None else groups
    add = add_group or _add_group
    numbered = [(add(linearizer, group), group) for group in requested]
    linearizer.prepare(structure.values_size, structure.dim)
    return linearizer, numbered


def _add_group(linearizer: Any, group: EdgeGroup) -> int:
    edge_type = working_edge_type(group.edge_set.type)
    compiled = compiled_edge(edge_type, group.information, group.kernel)
    programs = compiled.chi2, compiled.linearize, compiled.kernel
    return add_programs(linearizer, group, programs, edge_data(group))


def add_programs(
    linearizer: Any,
    group: EdgeGroup,
    programs: tuple[codegen.Program, codegen.Program, codegen.Program | None],
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> int:
    """Add a group with its programs (chi2, linearize, robust kernel) and its data; returns its number."""
    return linearizer.add_edge_group(
        *(None if program is None else program.native for program in programs),
        list(group.vertex_sets),
        group.vertex_rows,
        list(group.parameter_sets),
        group.parameter_rows,
        *data,
        group.block_offset,
        group.block_transposed,
    )


def name_of_non_finite(linearizer: Any, groups: list[tuple[int, EdgeGroup]]) -> str | None:
    """Name the first edge whose error or Jacobian is not finite.

    groups: (number in the linearizer, group).
    """
    found = linearizer.first_non_finite()
    if found is None:
        return None
    number, index = found
    group = next(group for index, group in groups if index == number)
    row = int(group.rows[index])
    ids = group.edge_set.look("vertices")[row].tolist()
    joins = "between vertices" if len(ids) > 1 else "of vertex"
    edge = f"{group.edge_set.type.tag} {joins} {', '.join(map(str, ids))}"
    if not np.isfinite(linearizer.edge_chi2(number)[index]):
        return f"The error of {edge} (row {row} of its edge set) is not finite."
    return (
        f"The Jacobian of {edge} (row {row} of its edge set) is not finite although its error is: a function "
        "has no derivative there, such as the square root at 0. Start elsewhere, or keep it away from there."
    )


def edge_widths(group: EdgeGroup) -> np.ndarray:
    """Kernel widths of all edges of a group."""
    rows = group.chosen_rows
    width = group.edge_set.look("kernel_width")
    return np.ascontiguousarray(width if rows is None else np.take(width, rows, axis=0))


def edge_data(group: EdgeGroup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measurements, packed information and kernel widths of a group."""
    edge_set, rows = group.edge_set, group.chosen_rows

    def taken(column: np.ndarray) -> np.ndarray:
        return column if rows is None else np.take(column, rows, axis=0)

    measurement = np.ascontiguousarray(taken(edge_set.look("measurement")))
    if group.information == "identity":
        information = np.zeros((len(measurement), 0))
    else:
        information = codegen.pack_information(taken(edge_set.look("information")), group.information)
    return measurement, information, edge_widths(group)


DEVICE = Device(CpuBlockSolver, lambda pattern, device: SparseCholesky(pattern))
