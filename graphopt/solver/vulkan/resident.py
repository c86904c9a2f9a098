"""The device-resident block solver: after the first upload a Levenberg-Marquardt trial stays on the device.

    linearize()     H and b by kernels, into the memory that `VulkanSystem` solves from; nothing is waited for
    trial(damping)  damping, Schur complement, PCG, back-substitution, oplus, chi2 and the scalars that the
                    algorithm looks at: one submission, and one readback of a few numbers

What the host asks for besides (b, dx, the diagonal, the estimates) is downloaded when it is asked for. With a
factorization on the host, the reduced system or H goes there and dx comes back; the rest is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.device.kompute import KomputeDevice
from graphopt.errors import SolverError
from graphopt.graph import ParameterSet
from graphopt.solver.cpu import make_linearizer, name_of_non_finite
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.structure import Structure
from graphopt.solver.trial import Damping, Trial
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.context import VECTOR_WORKGROUP, Context, Launch, gather_scalars
from graphopt.solver.vulkan.equations import Equations
from graphopt.solver.vulkan.external import DeviceExternal
from graphopt.solver.vulkan.linearization import DeviceLinearizer
from graphopt.solver.vulkan.reduction import Reduction
from graphopt.solver.vulkan.schedule import in_double
from graphopt.solver.vulkan.sequence import Running, Sequence
from graphopt.solver.vulkan.storage import Evaluation, Products, Storage, describe_products
from graphopt.solver.vulkan.system import Tail, VulkanSystem
from graphopt.solver.vulkan.tiered import make_device_linearizer
from graphopt.solver.vulkan.transfer import WIDE_BYTES, unpack_wide
from graphopt.solver.working import WorkingEstimates

WORDS = np.dtype(np.float64)
BRINGING_SECONDS, BRINGING_BYTES_PER_SECOND = 2e-4, 1e9
"""What bringing the estimates into the graph takes, at most."""
BRINGING_SHARE = 0.02
"""Of the time that it may take during a run."""
_NO_TAIL = Tail("solve only", lambda sequence: None)


class ResidentBlockSolver:
    """Implements `BlockSolver`; see the module's header."""

    def __init__(
        self,
        parameter_sets: list[ParameterSet],
        structure: Structure,
        device: VulkanDevice | KomputeDevice,
        configuration: Configuration,
        precision: Any,
        products: tuple[Products, ...],
        merged: frozenset[int] = frozenset(),
        linearizer: DeviceLinearizer | None = None,
        evaluations: tuple[Evaluation, ...] = (),
    ):
        """configuration: without "auto". products: per group of the structure. linearizer: a prepared one.

        merged: numbers of the vertex sets whose sums come from one launch, see `merging`. evaluations: per
        group, none: "gather".
        parameter_sets: the graph's. The graph itself must not be kept alive by its solver.
        """
        self.structure = structure
        self.dim = structure.dim
        self.device = device
        self._configuration = configuration
        self._merged = merged
        self._parameter_sets = parameter_sets
        context = Context(device, precision)
        num_kept = structure.num_blocks if configuration.schur == "off" else structure.num_kept
        storage = (
            Storage.of(structure, num_kept, products, evaluations)
            if linearizer is None
            else linearizer.storage
        )
        tags = [group.edge_set.type.tag for group in structure.groups]
        self.schedule = describe_products(tags, products, storage.evaluations)
        layout = storage.layout
        context.note_size(layout.values_size * context.real.itemsize)
        self._linearizer = linearizer or make_device_linearizer(context, structure, storage, merged)
        self._estimates = self._linearizer.estimates
        with_thread = ThreadPoolExecutor(1, "graphopt-views")
        self._prepared: Future[None] = with_thread.submit(
            self._linearizer.prepare if linearizer is None else lambda: None
        )
        with_thread.shutdown(wait=False)
        self.system = VulkanSystem(
            device,
            layout,
            configuration,
            precision,
            resident=True,
            make_reduction=None if storage.is_whole else self._from_edges(),
        )
        self._context = self.system.context
        self._scalars = context.accumulators(2)  # gain, step size
        self._readback = device.allocate(WIDE_BYTES * 3, "readback")
        self._programs: dict[Any, Sequence] = {}
        self._known_chi2: dict[int, float] = {}
        self._double: ResidentBlockSolver | None = None
        self.precision_note = ""
        """Why the precision is not the one that was asked for."""
        self._linearizing: Running | None = None
        self._brought = time.perf_counter()

    def _from_edges(self) -> Callable[[Equations], Reduction]:
        """What makes the reduction, without a reference to this object: no cycle keeps its memory."""
        from graphopt.solver.vulkan.matrix_free import matrix_free_reduction

        prepared, linearizer, structure = self._prepared, self._linearizer, self.structure
        configuration, estimates = self._configuration, self._estimates

        def make(equations: Equations) -> Reduction:
            prepared.result()
            held = lambda: estimates.held  # noqa: E731
            return matrix_free_reduction(equations, linearizer, structure, configuration, held)

        return make

    @property
    def precision(self) -> str:
        """Of H and the steps: "double" or "mixed"."""
        return self._context.precision

    def in_double(self) -> ResidentBlockSolver | None:
        """The same at the same estimates in float64.

        It shares the edges and estimates and is kept; a new one each time where the interpreter runs.
        """
        if self.precision == "double" or not self.device.has_float64:
            return None
        if self._double is not None:
            return self._double
        self._prepared.result()
        context = Context(self.device, "double")
        context.note_size(self.system.layout.values_size * context.real.itemsize)
        shared = self._linearizer.in_context(context)
        if shared is None:
            self.finish()
        configuration = in_double(self._configuration)
        storage = self._linearizer.storage
        twin = ResidentBlockSolver(
            self._parameter_sets,
            self.structure,
            self.device,
            configuration,
            "double",
            storage.products,
            self._merged,
            shared,
            storage.evaluations,
        )
        if shared is not None:
            twin._known_chi2 = self._known_chi2
            self._double = twin
        return twin

    # ---------------------------------------------------------------- vectors

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side, downloaded when first asked for."""
        return self.system.b

    @property
    def values(self) -> np.ndarray:
        """(values_size,) H, downloaded when first asked for; `SolverError` where it is not stored."""
        if not self._linearizer.storage.is_whole:
            raise SolverError(
                f"schedule '{self.schedule}' does not store all blocks of H. Use schedule='blocks'."
            )
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
        assert self.system.diagonal is not None
        return self.system.diagonal.host

    def largest_diagonal(self) -> float:
        """Largest absolute entry of H's diagonal."""
        self._wait_linearized()
        return self.system.largest_entries()[0]

    def largest_gradient(self) -> float:
        """Largest absolute entry of b."""
        self._wait_linearized()
        return self.system.largest_entries()[1]

    # ---------------------------------------------------------------- evaluation

    def chi2(self) -> float:
        """Robustified chi2 at the estimates."""
        self._advance()
        current = self._estimates.current
        if current not in self._known_chi2:
            self._run(("chi2", current), self._record_chi2)
            self._known_chi2[current] = self._read_chi2()
        return self._known_chi2[current]

    def _record_chi2(self) -> Sequence:
        sequence = Sequence(self._context).begin("linearize")
        self._linearizer.record_chi2(sequence, self._estimates.current)
        self._record_readback(sequence)
        return sequence.end()

    def linearize(self) -> float:
        """H and b at the estimates; returns the robustified chi2. They are being computed when it returns."""
        chi2 = self.chi2()
        self._prepared.result()
        self._wait_linearized()
        self._bring_now_and_then()
        self._estimates.hold()
        if not self._linearizer.storage.is_whole:
            self.system.point = self._estimates.held
        key = "linearize", self._estimates.current
        if key not in self._programs:
            self._programs[key] = self._record_linearize()
        self._linearizing = self._programs[key].submit()
        self.system.note_linearized()
        return chi2

    def _bring_now_and_then(self) -> None:
        """Bring the estimates into the graph where that takes little of the time: a device may get lost."""
        cost = BRINGING_SECONDS + self._estimates.nbytes / BRINGING_BYTES_PER_SECOND
        if time.perf_counter() - self._brought > cost / BRINGING_SHARE:
            self.finish()

    def _record_linearize(self) -> Sequence:
        sequence = Sequence(self._context).begin("linearize")
        own, linearizer = self.system.equations, self._linearizer
        linearizer.record_linearize(sequence, self._estimates.current, own.values, own.b)
        self.system.record_diagonal(sequence)
        return sequence.end()

    def _wait_linearized(self) -> None:
        if self._linearizing is not None:
            self._linearizing.wait(self.system.device_seconds)
            self._linearizing = None

    # ---------------------------------------------------------------- steps

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        return self.system.solve(damping, _NO_TAIL)

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update and chi2 in one submission."""
        start = time.perf_counter()
        before = dict(self.system.device_seconds)
        self._advance()
        source, target = self._estimates.current, self._estimates.free_version()
        key = "move", source, target, self._linearizer.generation
        tail = Tail(key, lambda sequence: self._record_trial(sequence, source, target))
        solved = self.system.solve(damping, tail)
        if not solved:
            return Trial(False, seconds=self._split(start, before))
        self._arrive(target)
        gain, step_size = self._read_scalars()
        is_coarse = self.system.is_coarse(damping)
        return Trial(True, self._known_chi2[target], gain, step_size, self._split(start, before), is_coarse)

    def move(self) -> Trial:
        """Push, update by dx, and chi2 there, in one submission."""
        start = time.perf_counter()
        before = dict(self.system.device_seconds)
        self._advance()
        source, target = self._estimates.current, self._estimates.free_version()

        def record() -> Sequence:
            sequence = Sequence(self._context)
            self._record_move(sequence, source, target)
            self._record_readback(sequence)
            return sequence.end()

        self._run(("move", source, target), record)
        self._arrive(target)
        return Trial(True, self._known_chi2[target], seconds=self._split(start, before))

    def _arrive(self, target: int) -> None:
        self._estimates.push()
        self._estimates.arrive(target, in_double=self.precision == "double")
        self._known_chi2[target] = self._read_chi2()

    def _split(self, start: float, before: dict[str, float]) -> dict[str, float]:
        """Seconds since `start` by part, as the device's timestamps divide them."""
        own = {name: self.system.device_seconds[name] - before[name] for name in ("update", "linearize")}
        return {"solve": max(time.perf_counter() - start - sum(own.values()), 0.0), **own}

    def _record_move(self, sequence: Sequence, source: int, target: int) -> None:
        sequence.begin("update")
        self._linearizer.record_oplus(sequence, self.system.equations.dx, source, target)
        sequence.begin("linearize")
        self._linearizer.record_chi2(sequence, target)

    def _record_trial(self, sequence: Sequence, source: int, target: int) -> None:
        """What follows the solution of a trial."""
        context, own = self._context, self.system.equations
        groups = context.vector_groups(self.dim)
        partial = context.accumulators(2 * groups)
        kernel = context.shader("step_scalars", 4, 2, {0: VECTOR_WORKGROUP})
        buffers = (own.dx, own.damping, own.b, partial)
        sequence.step([Launch(kernel, buffers, (self.dim, groups), groups)])
        sequence.step([gather_scalars(context, partial, groups, self._scalars, sums=True)])
        sequence.copy(self._scalars, self._readback, 2 * WIDE_BYTES)
        self._record_move(sequence, source, target)
        self._record_readback(sequence)

    def update(self) -> None:
        """Estimates <- estimates oplus dx."""
        self._advance()
        source, target = self._estimates.current, self._estimates.free_version()

        def record() -> Sequence:
            sequence = Sequence(self._context).begin("update")
            self._linearizer.record_oplus(sequence, self.system.equations.dx, source, target)
            return sequence.end()

        self._run(("update", source, target), record)
        self._known_chi2.pop(target, None)
        self._estimates.arrive(target, in_double=self.precision == "double")

    def push(self) -> None:
        """Remember the estimates."""
        self._estimates.push()

    def pop(self) -> None:
        """Return to the last push."""
        self._estimates.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._estimates.discard_top()

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """For edges that are evaluated elsewhere, see `solver.external`."""
        return DeviceExternal(self.system, self._estimates, places)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector, on the device."""
        return self.system.multiply(vector)

    # ---------------------------------------------------------------- the graph

    def refresh(self) -> None:
        """Take what has changed in the graph; the stop rule of PCG starts anew."""
        self._prepared.result()  # data of views that are being made would be missed
        if self._linearizer.refresh():
            self._known_chi2.clear()
        self.system.reset()

    def finish(self) -> None:
        """Bring the estimates into the graph; of a lost device those that were brought last stay there."""
        if not getattr(self.device, "is_lost", False):
            self._estimates.finish()
            self._brought = time.perf_counter()

    def first_non_finite(self) -> str | None:
        """Name the first edge whose error is not finite; found by the CPU."""
        self._estimates.finish()
        working = [WorkingEstimates(one) for one in self.structure.selection.vertex_sets]
        return name_of_non_finite(*make_linearizer(self._parameter_sets, self.structure, working))

    def describe(self) -> dict[str, Any]:
        """What solves what, where."""
        statistics = self.device.memory_statistics()
        configuration = self.system.configuration
        return {
            "linear_solver": configuration.linear_solver,
            "factorized_on": self.system.factorized_on,
            "schur": configuration.schur,
            "schedule": self.schedule,
            "device": self.device.spec,
            "device_name": self.device.name,
            "precision": self.precision,
            "precision_note": self.precision_note,
            "tier": self._linearizer.tier,
            "tier_seconds": self._linearizer.tier_seconds,
            "memory_bytes": self.structure.nbytes + statistics["used"],
            "seconds": self.system.overlap(),
        }

    # ---------------------------------------------------------------- helpers

    def _advance(self) -> None:
        """Take compiled kernels that have become ready or larger images; what was recorded is old then."""
        if self._linearizer.advance():
            self._programs.clear()
            self._double = None
            self.system.forget_programs()

    def _run(self, key: Any, record: Any) -> None:
        if key not in self._programs:
            self._programs[key] = record()
        self._programs[key].run(self.system.device_seconds)

    def _record_readback(self, sequence: Sequence) -> None:
        sequence.copy(self._linearizer.total, self._readback, WIDE_BYTES, 0, 2 * WIDE_BYTES)

    def _read_chi2(self) -> float:
        words = self._readback.array(WORDS, 2 * WIDE_BYTES, 1)
        return self._linearizer.chi2_of(words.copy())

    def _read_scalars(self) -> list[float]:
        """Gain and step size."""
        words = self._readback.array(WORDS, 0, 2).copy()
        return unpack_wide(words, self._context.precision == "double").tolist()
