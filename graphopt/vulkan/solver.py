"""The device-resident block solver: after the first upload a Levenberg-Marquardt trial stays on the device.

    linearize()     H and b by kernels, into the memory that `DampedSystem` solves from; nothing is waited for
    trial(damping)  damping, Schur complement, PCG, back-substitution, oplus, chi2 and the scalars that the
                    algorithm looks at: one submission, and one readback of a few numbers

What the host asks for besides (b, dx, the diagonal, the estimates) is downloaded when it is asked for. With a
factorization on the host, the reduced system or H goes there and dx comes back; the rest is the same.
`create` makes this one, or that of schedule "host".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.device import Device, open_device
from graphopt.device.protocol import Precision
from graphopt.errors import SolverError
from graphopt.graph import Graph, ParameterSet
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import Capabilities
from graphopt.solver.cpu import make_linearizer, name_of_non_finite
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, Trial
from graphopt.vulkan.cholesky import order_ahead
from graphopt.vulkan.data.array import WIDE, DeviceArray, unpack_wide
from graphopt.vulkan.data.layout import MAX_VALUES
from graphopt.vulkan.data.rows import in_record_order
from graphopt.vulkan.external import DeviceExternal
from graphopt.vulkan.host import HostLinearizedSolver
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.pcg import Reduction
from graphopt.vulkan.kernels.reduction import matrix_free_reduction
from graphopt.vulkan.kernels.sums import gather_scalars
from graphopt.vulkan.kernels.system import DampedSystem, MakeReduction
from graphopt.vulkan.operators.table import operators_of
from graphopt.vulkan.plan.choice import (
    Plan,
    check_schur,
    choose_plan,
    choose_precision,
    configuration_of,
    in_double,
    pays_in_mixed,
    whole_plan,
)
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.storage import Storage, describe_products
from graphopt.vulkan.program import (
    ACCUMULATOR_BYTES,
    Context,
    InThread,
    Program,
    Running,
)
from graphopt.vulkan.programs import CommandLists
from graphopt.vulkan.set_up import Deferred, SetUp, kind_of
from graphopt.vulkan.speculation import Evaluations

FACTORIZED_IN_DOUBLE = (
    "Computed in double: the CPU factorizes the whole H in float64, so float32 would only round it before."
)
AS_FAST_IN_DOUBLE = (
    "Computed in double: on this device an iteration of this size takes about as long in float64, and what "
    "float32 finds would be checked in float64."
)
MOST_SPECULATED_EDGES = 1 << 17
"""That are linearised before it is known whether a step is taken; with more the host's part is small."""
BRINGING_SECONDS, BRINGING_BYTES_PER_SECOND = 2e-4, 1e9
"""What bringing the estimates into the graph takes, before it was done once."""
BRINGING_SHARE = 0.02
"""Of the time that it may take during a run."""


def create(
    graph: Graph,
    structure: Structure,
    options: SolverOptions,
    *,
    device: Device | None = None,
    configuration: Configuration | None = None,
) -> BlockSolver:
    """The block solver for `options`.

    device: an open one, None: that of `options.device`. configuration: instead of what `options` say about
    the linear solver.
    """
    device = device or open_device(options.device)
    precision = choose_precision(device, options.precision)
    wanted = configuration or configuration_of(options, precision)
    check_schur(wanted, structure)
    plan = choose_plan(options.schedule, device, structure, wanted, precision)
    note = ""
    if precision == "mixed" and device.has_float64:
        if not plan.uses_float32:
            precision, note = "double", FACTORIZED_IN_DOUBLE
        elif configuration is None and not pays_in_mixed(plan, device, structure):
            precision, note = "double", AS_FAST_IN_DOUBLE
            wanted = configuration_of(options, precision)
            plan = choose_plan(options.schedule, device, structure, wanted, precision)
    if plan.schedule == "host":
        options = replace(options, precision=precision)
        solver: Any = HostLinearizedSolver(
            graph, structure, options, device=device, configuration=plan.configuration
        )
        solver.schedule_note = plan.note
    else:
        solver = ResidentBlockSolver(graph.parameter_sets, structure, device, plan, precision)
    solver.precision_note = note
    return solver


class ResidentBlockSolver:
    """Implements `BlockSolver`; see the module's header."""

    capabilities = Capabilities(linearizes_trials=True, speculates=True, rebinds=True, second_order=True)

    def __init__(
        self,
        parameter_sets: list[ParameterSet],
        structure: Structure,
        device: Device,
        plan: Plan,
        precision: Precision,
        linearizer: DeviceLinearizer | None = None,
    ):
        """plan: of all but the linearizer, which is a prepared one where it is given.

        parameter_sets: the graph's. The graph itself must not be kept alive by its solver.
        """
        self.structure, self.dim, self.device = structure, structure.dim, device
        self._plan, configuration, merged = plan, plan.configuration, plan.merged
        self._parameter_sets = parameter_sets
        self._context = context = Context(device, precision)
        num_kept = structure.num_blocks if configuration.schur == "off" else structure.num_kept
        storage = (
            Storage.of(structure, num_kept, plan.products, plan.evaluations)
            if linearizer is None
            else linearizer.storage
        )
        resolved = configuration.resolve(storage.layout)
        if storage.is_whole and resolved.schur == "off":
            order_ahead(context, storage.layout, resolved.linear_solver, is_chosen=resolved.is_chosen)
        tags = [group.edge_set.type.tag for group in structure.groups]
        self.schedule = describe_products(tags, plan.products, storage.evaluations)
        self.linearizer = linearizer or DeviceLinearizer(
            context,
            in_record_order(structure),
            storage,
            operators_of(storage.products, storage.evaluations),
            merged,
        )
        self._estimates = self.linearizer.estimates
        kind = kind_of(context, structure, storage, configuration, merged, self.linearizer.is_exact)
        set_up = SetUp(context, structure, kind)
        prepare = partial(self.linearizer.prepare, starts_kernels=not set_up.has_kernels)
        self._prepared: InThread[None] | Deferred[None] = set_up.start(
            "graphopt-views", prepare if linearizer is None else _nothing
        )
        reduction = self._reduction_maker(storage, self._prepared)
        self.system = DampedSystem(
            context, storage.layout, configuration, reduction, host_writes=False, set_up=set_up
        )
        self._scalars = DeviceArray(context, 2, WIDE, is_mapped=False)  # gain, step size
        self._programs: dict[Hashable, Program] = {}
        self._commands = CommandLists(context)
        """Of the programs of a kind."""
        for lists in (self._commands, self.system.programs.parts):
            lists.buffers_of = self._estimates.buffers_of
        self._known_chi2: dict[int, float] = {}
        self._double: ResidentBlockSolver | None = None
        self._exact: ResidentBlockSolver | None = None
        self.precision_note = ""
        """Why the precision is not the one that was asked for."""
        self._linearizing: tuple[Running, ...] = ()
        self._brought = time.perf_counter()
        self._bringing_seconds = BRINGING_SECONDS + self._estimates.nbytes / BRINGING_BYTES_PER_SECOND
        self._speculation = self.system.speculation
        self._sums_back: dict[tuple[int, int], Any] = {}
        """Of chi2 by vertex, where a call begins with them, by group and slot."""
        self._changes = False
        """The last `refresh` has found more than estimates to be new."""
        self.linearizes_trials = False
        """A step that is taken is likely to be followed by another one."""
        self._has_largest, self._is_asked = False, True
        """The largest entries of H and b come with them; somebody has asked for those before."""

    def _reduction_maker(
        self, storage: Storage, prepared: InThread[None] | Deferred[None]
    ) -> MakeReduction | None:
        """What makes the reduction from the equations, in a thread; None: the system itself."""
        if storage.is_whole:
            return None
        return partial(_reduction_from_edges, prepared, self.linearizer, self._plan.configuration)

    @property
    def precision(self) -> str:
        """Of H and the steps: "double" or "mixed"."""
        return self._context.precision

    def in_double(self) -> ResidentBlockSolver | None:
        """The same at the same estimates in float64.

        It shares the edges and estimates and is kept.
        """
        if self.precision == "double" or not self.device.has_float64:
            return None
        if self._double is not None:
            return self._double
        self._prepared.result()
        shared = self.linearizer.in_context(Context(self.device, "double"))
        plan = replace(self._plan, configuration=in_double(self._plan.configuration))
        twin = ResidentBlockSolver(self._parameter_sets, self.structure, self.device, plan, "double", shared)
        twin._known_chi2 = self._known_chi2
        self._double = twin
        return twin

    def in_second_order(self) -> ResidentBlockSolver | None:
        """The same at the same estimates, with the Hessian of chi2 / 2 for H; all of its blocks are stored.

        It shares the edges and estimates and is kept. None: in float32, or as `DeviceLinearizer.exact` says.
        """
        if self._exact is None and self.precision == "double":
            self._prepared.result()
            self._exact = self._made_exact()
        return self._exact

    def _made_exact(self) -> ResidentBlockSolver | None:
        structure = self.structure
        if structure.values_size >= MAX_VALUES:
            return None
        plan = whole_plan(self._plan, structure)
        num_kept = structure.num_blocks if plan.configuration.schur == "off" else structure.num_kept
        storage = Storage.of(structure, num_kept, plan.products, plan.evaluations)
        linearizer = self.linearizer.exact(storage, operators_of(plan.products, plan.evaluations))
        if linearizer is None or num_kept != self.linearizer.storage.layout.num_kept:
            return None
        twin = ResidentBlockSolver(self._parameter_sets, structure, self.device, plan, "double", linearizer)
        twin._known_chi2 = self._known_chi2
        return twin

    # ---------------------------------------------------------------- vectors

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side, downloaded when first asked for; one that is assigned is solved with."""
        self._relinearize_if_replaced()
        return self.system.b

    @b.setter
    def b(self, right: np.ndarray) -> None:
        self.wait_linearized()
        self.system.b = right

    @property
    def values(self) -> np.ndarray:
        """(values_size,) H, downloaded when first asked for; `SolverError` where it is not stored."""
        if not self.linearizer.storage.is_whole:
            raise SolverError(
                f"schedule '{self.schedule}' does not store all blocks of H. Use schedule='blocks'."
            )
        self._relinearize_if_replaced()
        return self.system.values

    @property
    def dx(self) -> np.ndarray:
        """(dim,) step, downloaded when first asked for."""
        return self.system.step.host

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self.system.step.host = step

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H, downloaded when first asked for."""
        self._relinearize_if_replaced()
        return self.system.diagonal

    def largest_diagonal(self) -> float:
        """Largest absolute entry of H's diagonal."""
        self._find_largest()
        return self.system.largest_entries()[0]

    def largest_gradient(self) -> float:
        """Largest absolute entry of b."""
        self._find_largest()
        return self.system.largest_entries()[1]

    # ---------------------------------------------------------------- evaluation

    def chi2(self) -> float:
        """Robustified chi2 at the estimates."""
        self._advance()
        current = self._estimates.current
        if current not in self._known_chi2:
            begun = self._speculation.evaluations
            evaluated = None if begun is None else begun.take_chi2(current)
            if evaluated is None:
                self._speculation.discard_trial(self.system.device_seconds)  # it brings chi2 the same way
                running = self._program("chi2", self._record_chi2, (current,)).submit()
                if isinstance(self._prepared, Deferred):
                    self._prepared.result()  # while the device evaluates the edges
                running.wait(self.system.device_seconds)
            else:
                evaluated.wait(self.system.device_seconds)
            self._known_chi2[current] = self.linearizer.chi2
        return self._known_chi2[current]

    def chi2_by_vertex(self, group: EdgeGroup, slot: int) -> np.ndarray | None:
        """chi2 of a group's edges by the vertices of a slot, see `BlockSolver`."""
        self._advance()
        number, current = self.structure.groups.index(group), self._estimates.current
        if slot not in self.linearizer.edges[number].views:
            self._prepared.result()
        views = self.linearizer.edges[number].views
        if slot not in views:
            self.finish()
            return None
        view = views[slot].view
        begun = self._speculation.evaluations
        evaluated = None if begun is None else begun.take_sums(current, number, slot)
        if evaluated is None:
            sums = self.system.scratch(view.num_destinations * ACCUMULATOR_BYTES)
            self._run(("sums", number, slot, sums), self._record_sums, (current,), number, slot, sums)
            words = self.device.download(sums, WIDE, view.num_destinations)
        else:
            evaluated.wait(self.system.device_seconds)
            words = self._sums_back[number, slot].array(WIDE, 0, view.num_destinations)
        found = unpack_wide(words, self.precision == "double")
        return found if view.long is None else found[np.argsort(view.blocks)]

    def _record_sums(self, program: Program, version: int, number: int, slot: int, sums: Any) -> None:
        self.linearizer.record_chi2_by_vertex(program.phase("linearize"), version, number, slot, sums)

    def linearize(self) -> float:
        """H and b at the estimates; returns the robustified chi2. They are being computed when it returns."""
        chi2 = self.chi2()
        if self._speculation.take_point(self._estimates.current):
            return chi2
        self._prepared.result()
        self.wait_linearized()
        self._bring_now_and_then()
        self._estimates.hold()
        running = self._speculation.take_replacing(self._estimates.held)
        if running is None:
            self._submit_linearize()
        else:
            self._note_linearizing(running)
            self._has_largest = False
            if self._is_asked:
                self._submit_largest()
            self._is_asked = False
        return chi2

    def linearize_apart(self) -> None:
        """H and b at the estimates, which the graph need not have, with the damping of before."""
        self.wait_linearized()
        self._estimates.hold()
        program = self._program("equations", self._record_equations, (self._estimates.held,))
        self._note_linearizing(program.submit())
        self._has_largest = False

    def _submit_linearize(self) -> None:
        """At the version that is held."""
        program = self._program("linearize", self._record_linearize, (self._estimates.held,))
        self._note_linearizing(program.submit())

    def _note_linearizing(self, *running: Running) -> None:
        self._linearizing = running
        self._speculation.settle()
        self._has_largest = True
        self.system.note_linearized(0 if self.linearizer.storage.is_whole else self._estimates.held)

    def _submit_largest(self) -> None:
        """The largest entries alone."""
        self._linearizing = *self._linearizing, self._program("largest", self._record_largest, ()).submit()
        self._has_largest = True

    def _find_largest(self) -> None:
        """The largest entries of H and b at the version that is held are on the host."""
        self._is_asked = True
        if not self._has_largest:
            self._relinearize_if_replaced()
        if not self._has_largest:
            self._submit_largest()
        self.wait_linearized()

    def _record_chi2(self, program: Program, version: int) -> None:
        self.linearizer.record_chi2(program.phase("linearize"), version)

    def _record_equations(self, program: Program, version: int) -> None:
        """H and b."""
        equations = self.system.equations
        self.linearizer.record_linearize(program.phase("linearize"), version, equations.values, equations.b)

    def _record_linearize(self, program: Program, version: int) -> None:
        self._record_equations(program, version)
        self.system.record_diagonal(program)

    def _record_speculative(self, program: Program, version: int) -> None:
        """The largest entries on the host stay those of before."""
        self._record_equations(program, version)
        self.system.record_diagonal(program, finds_largest=False)

    def _record_largest(self, program: Program) -> None:
        self.system.record_diagonal(program.phase("linearize"), keeps=False)

    def wait_linearized(self) -> None:
        """H, b and H's diagonal are there."""
        if self._linearizing:
            self.system.prepare_meanwhile()
            for running in self._linearizing:
                running.wait(self.system.device_seconds)
            self._linearizing = ()

    # ---------------------------------------------------------------- speculation, before a call has looked

    def begin(self, looks: list[tuple[EdgeGroup, int]]) -> None:
        """Take the graph's estimates, and start chi2, chi2 of these groups by the vertices of slots, H and b.

        For a call that is likely to find nothing else changed, before it has looked: `refresh` does, and
        forgets all that where it was wrong. Not after a call where it was.
        """
        if getattr(self.device, "is_lost", False):
            return
        self.forget_begun()
        ready = self._prepared.done() and self.system.is_prepared and not self._advance()
        if not ready or self._changes or self.structure.external:
            return
        self.wait_linearized()
        if self._estimates.refresh():
            self._known_chi2.clear()
        current = self._estimates.current
        begun = self._speculation.evaluations = Evaluations(current)
        if current not in self._known_chi2:
            begun.chi2 = self._program("chi2", self._record_chi2, (current,)).submit()
        for group, slot in looks:
            number = self.structure.groups.index(group)
            if slot in self.linearizer.edges[number].views:
                key = "sums ahead", number, slot
                program = self._program(key, self._record_sums_ahead, (current,), number, slot)
                begun.sums[number, slot] = program.submit()
        self._estimates.hold()
        self._submit_linearize()
        self._speculation.linearize(current)

    def _record_sums_ahead(self, program: Program, version: int, number: int, slot: int) -> None:
        """With their way to the host: scratch is others' by the time they are asked for."""
        nbytes = self.linearizer.edges[number].views[slot].view.num_destinations * ACCUMULATOR_BYTES
        if (number, slot) not in self._sums_back:
            self._sums_back[number, slot] = self.device.allocate(nbytes, "readback")
        sums = self.system.scratch(nbytes)
        self._record_sums(program, version, number, slot, sums)
        program.copy(sums, self._sums_back[number, slot], nbytes)

    def begin_trial(self, first_damping: Callable[[float], Damping | None]) -> None:
        """After `begin`: start the first trial, with the damping that is likely at this chi2; None: not."""
        if self._speculation.evaluations is None:
            return
        chi2 = self.chi2()
        damping = first_damping(chi2) if np.isfinite(chi2) else None
        if damping is not None:
            self.system.reset()
            self.system.begin(damping, self.prepare_move()[1])

    def forget_begun(self) -> None:
        """What `begin` has begun is of no use, or has been used."""
        self._speculation.discard_begun()
        self._speculation.discard_trial(self.system.device_seconds)

    # ---------------------------------------------------------------- speculation, before a step is taken

    def _speculate(self, target: int) -> Program | None:
        """While the device works on a trial: let it linearise at its end; the next trial's tail."""
        if not (self.linearizes_trials and self._speculation.was_accepted and self._may_speculate):
            return None
        program = self._program("speculative", self._record_speculative, (target,))
        self._speculation.linearize(target, program.submit())
        free = self._estimates.free_after(target)
        return None if free is None else self._program("trial", self._record_tail, (target, free))

    @property
    def _may_speculate(self) -> bool:
        """Nobody else moves the estimates or looks back, and a linearisation in vain costs little."""
        if self._speculation.host_reads:
            return False
        return self.precision == "double" and self.structure.num_edges <= MOST_SPECULATED_EDGES

    def _relinearize_if_replaced(self) -> None:
        """H and b are those of the linearization point, where a step has not been taken."""
        if self._speculation.discard_replacing(self.system.device_seconds, self._estimates.current):
            self._submit_linearize()

    # ---------------------------------------------------------------- steps

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        self._relinearize_if_replaced()
        return self.system.solve(damping)

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update and chi2 in one submission."""
        start, before = time.perf_counter(), dict(self.system.device_seconds)
        self._relinearize_if_replaced()
        target, tail = self.prepare_move()
        if not self.system.solve(damping, tail, partial(self._speculate, target)):
            return Trial(False, seconds=self._split(start, before))
        moved, is_coarse = self.arrive(target), self.system.is_coarse(damping)
        return replace(moved, seconds=self._split(start, before), is_coarse=is_coarse)

    def prepare_move(self) -> tuple[int, Program]:
        """Before a trial: the version that `arrive` is told, and the program that follows a solution."""
        self._advance()
        source, target = self._estimates.current, self._estimates.free_version()
        return target, self._program("trial", self._record_tail, (source, target))

    def arrive(self, target: int) -> Trial:
        """After the program of `prepare_move` has run."""
        self._arrive(target)
        gain, step_size = unpack_wide(self._scalars.downloaded.copy(), self.precision == "double").tolist()
        return Trial(True, self._known_chi2[target], gain, step_size)

    def move(self) -> Trial:
        """Push, update by dx, and chi2 there, in one submission."""
        start, before = time.perf_counter(), dict(self.system.device_seconds)
        self._advance()
        self._speculation.leave()
        source, target = self._estimates.current, self._estimates.free_version()
        self._run("move", self._record_move, (source, target))
        self._arrive(target)
        return Trial(True, self._known_chi2[target], seconds=self._split(start, before))

    def update(self) -> None:
        """Estimates <- estimates oplus dx."""
        self._advance()
        self._speculation.leave()
        source, target = self._estimates.current, self._estimates.free_version()
        self.forget_begun()
        self._run("update", self._record_oplus, (source, target))
        self._known_chi2.pop(target, None)
        self._estimates.arrive(target, in_double=self.precision == "double")

    def _record_tail(self, program: Program, source: int, target: int) -> None:
        """What follows the solution of a trial: dx' (D dx + b) and the largest |dx_i| beside the move."""
        context, equations, dim = self._context, self.system.equations, self.dim
        groups = context.vector_groups(dim)
        partial_sums = context.accumulators(2 * groups)
        buffers = (equations.dx, equations.damping, equations.b, partial_sums)
        program.phase("update").launch(context.launch("step_scalars", buffers, (dim, groups), groups))
        self._record_oplus(program, source, target)
        gather = gather_scalars(context, partial_sums, groups, self._scalars.buffer, sums=True)
        program.phase("linearize").launch(gather)
        self._record_chi2(program, target)
        self._scalars.record_download(program)

    def _record_move(self, program: Program, source: int, target: int) -> None:
        self._record_oplus(program, source, target)
        self._record_chi2(program, target)

    def _record_oplus(self, program: Program, source: int, target: int) -> None:
        self.linearizer.record_oplus(program.phase("update"), self.system.equations.dx, source, target)

    def _arrive(self, target: int) -> None:
        self._speculation.arrive()
        self._estimates.push()
        self._estimates.arrive(target, in_double=self.precision == "double")
        self._known_chi2[target] = self.linearizer.chi2

    def _split(self, start: float, before: dict[str, float]) -> dict[str, float]:
        """Seconds since `start` by part, as the device's timestamps divide them."""
        on_device = {
            name: self.system.device_seconds[name] - before[name] for name in ("update", "linearize")
        }
        return {"solve": max(time.perf_counter() - start - sum(on_device.values()), 0.0), **on_device}

    def push(self) -> None:
        """Remember the estimates."""
        self._estimates.push()

    def pop(self) -> None:
        """Return to the last push."""
        self._speculation.was_accepted = False
        self._estimates.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._speculation.was_accepted = True
        self._estimates.discard_top()

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """For edges that are evaluated elsewhere, see `solver.external`."""
        self.linearizes_trials = False
        return DeviceExternal(self.system, self._estimates, places)

    def solve_again(self, right: np.ndarray) -> np.ndarray | None:
        """x (dim,) of (H + D) x = right with the factor of the last `solve`; None: there is none for that."""
        return self.system.solve_again(right)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector, on the device."""
        self._relinearize_if_replaced()
        return self.system.multiply(vector)

    # ---------------------------------------------------------------- the graph

    def rebind(self, graph: Graph) -> None:
        """Go on with the numbers of another graph of an equal structure, after `Structure.rebind`."""
        self._prepared.result()
        self._parameter_sets, self._double, self._exact = graph.parameter_sets, None, None
        self.forget_begun()
        self.linearizer.rebind(self.structure)
        self.refresh()

    def refresh(self) -> None:
        """Take what has changed in the graph; the stop rule of PCG starts anew."""
        self._prepared.result()  # data of views that are being made would be missed
        self._speculation.leave()
        self._speculation.was_accepted, self._speculation.host_reads = True, False
        moved = self._take_estimates()
        self._changes = self.linearizer.refresh()
        if moved or self._changes:
            self._known_chi2.clear()
        if self._changes:
            self.forget_begun()
        self.system.reset()

    def _take_estimates(self) -> bool:
        """Take the graph's estimates, unless `begin` has just done that; False: they are here already."""
        begun = self._speculation.evaluations
        if begun is None or not begun.is_new:
            self.forget_begun()
            return self._estimates.refresh()
        begun.is_new = False
        if self.device.memory_scheme != "staged":
            self._wait_for_programs(begun)  # what is new is written in place
        return False

    def _wait_for_programs(self, begun: Evaluations) -> None:
        """Nothing that was begun runs any more; what it has found stays."""
        for running in (begun.chi2, *begun.sums.values(), *self._linearizing, self._speculation.trial):
            if running is not None:
                running.wait()

    def take(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's estimates of some rows of a vertex set; what was remembered stays."""
        self._advance()
        self._speculation.leave()
        self.forget_begun()
        self._estimates.leave_remembered()
        self._estimates.take(number, rows)
        self._known_chi2.pop(self._estimates.current, None)

    def finish(self) -> None:
        """Bring the estimates into the graph; of a lost device those that were brought last stay there."""
        if not getattr(self.device, "is_lost", False):
            start = time.perf_counter()
            self._estimates.finish()
            self._brought = time.perf_counter()
            self._bringing_seconds = self._brought - start

    def _bring_now_and_then(self) -> None:
        """Bring the estimates into the graph where that takes little of the time: a device may get lost."""
        if time.perf_counter() - self._brought > self._bringing_seconds / BRINGING_SHARE:
            self.finish()

    def first_non_finite(self) -> str | None:
        """Name the first edge whose error or Jacobian is not finite; found by the CPU."""
        self._estimates.finish()
        working = [WorkingEstimates(vertex_set) for vertex_set in self.structure.selection.vertex_sets]
        return name_of_non_finite(*make_linearizer(self._parameter_sets, self.structure, working))

    def describe(self) -> dict[str, Any]:
        """What solves what, where."""
        return {
            **self.system.describe(),
            "schedule": self.schedule,
            "precision_note": self.precision_note,
            "memory_bytes": self.structure.nbytes + self.device.memory_statistics()["used"],
        }

    # ---------------------------------------------------------------- programs

    def _advance(self) -> bool:
        """Take larger images, where there are any; what was recorded is old then."""
        if not self.linearizer.advance():
            return False
        self.forget_begun()
        self._programs.clear()
        self._commands.forget()
        self._double = self._exact = None
        self.system.programs.forget()
        return True

    def _program(
        self, kind: Hashable, record: Callable[..., None], versions: tuple[int, ...], *arguments: Any
    ) -> Program:
        """The program that record(program, *versions, *arguments) makes, recorded at its first use.

        Those of one kind differ by the estimates' buffers alone: what to launch is found out once.
        """
        key = kind, versions
        if key not in self._programs:
            commands = self._commands.of(kind, versions, record, *versions, *arguments)
            self._programs[key] = Program(self._context).extend(commands)
        return self._programs[key]

    def _run(
        self, kind: Hashable, record: Callable[..., None], versions: tuple[int, ...], *arguments: Any
    ) -> None:
        self._program(kind, record, versions, *arguments).run(self.system.device_seconds)


def _nothing() -> None:
    """A prepared linearizer is ready."""


def _reduction_from_edges(
    views: InThread[None] | Deferred[None],
    linearizer: DeviceLinearizer,
    configuration: Configuration,
    equations: Equations,
) -> Reduction:
    """Products from the edges, once their views are there."""
    views.result()
    return matrix_free_reduction(equations, linearizer, linearizer.structure, configuration)
