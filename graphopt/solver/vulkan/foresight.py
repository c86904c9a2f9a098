"""What a solver on a device does with chains of trials: when it makes one, and whose H it holds after it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from graphopt.solver.trial import Damping, Forecast
from graphopt.solver.vulkan import chain as chains
from graphopt.solver.vulkan.chain import Chain, ChainBuffers, Line
from graphopt.solver.vulkan.data.estimates import DeviceEstimates
from graphopt.solver.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.solver.vulkan.kernels.system import DampedSystem
from graphopt.solver.vulkan.program import Context, Program

RecordMove = Callable[[Program, int, int], None]
"""Of (program, source, target): versions of the estimates."""


class Foresight:
    """The chains of one solver; see `chain`."""

    def __init__(
        self,
        context: Context,
        linearizer: DeviceLinearizer,
        system: DampedSystem,
        scalars: object,
    ):
        """scalars: buffer of gain and step size."""
        self._context, self._linearizer, self._system = context, linearizer, system
        self._estimates: DeviceEstimates = linearizer.estimates
        self._scalars = scalars
        self._buffers: ChainBuffers | None = None
        self._sets: list[list[int]] = []
        self._chain: Chain | None = None
        self._largest: tuple[float, float] | None = None
        self._forecast: Forecast | None = None
        self._num_trials = self._num_before = 0
        self._seconds = 0.0
        """Of the last trial on the device."""

    # ---------------------------------------------------------------- what is likely

    def expect(self, forecast: Forecast | None) -> None:
        """What the next trial is part of; None: nothing is known about it."""
        self._forecast = forecast

    def start_call(self) -> None:
        """An optimization begins."""
        self._num_before, self._num_trials = self._num_trials, 0
        self._forecast = None

    def note_trial(self, seconds: float) -> None:
        """A trial by itself has taken so long on the device."""
        self._num_trials += 1
        self._seconds = seconds

    def count(self) -> int:
        """Trials to submit now, 1 where no chain can be or none pays."""
        wanted = chains.trials_at_once(self._num_before - self._num_trials)
        if self._forecast is None or wanted == 1 or self._seconds > chains.LONGEST_TRIAL:
            return 1
        return wanted if self._can() else 1

    def _can(self) -> bool:
        context, storage = self._context, self._linearizer.storage
        able = context.has_conditions and context.device.has_float64 and storage.is_whole
        size = 2 * (chains.MOST + 1) * self._estimates.bytes_of_version
        able = able and self._system.factorization is not None and size <= chains.MOST_BYTES
        able = able and self._estimates.held == self._estimates.current
        return able and self._free_set() is not None

    def _free_set(self) -> list[int] | None:
        """Versions that nobody may go back to."""
        if not self._sets:
            self._sets = [self._estimates.reserve(chains.MOST + 1) for _ in range(2)]
        taken = self._estimates.taken
        return next((own for own in self._sets if taken.isdisjoint(own)), None)

    # ---------------------------------------------------------------- running

    def prepare(self, damping: Damping, count: int) -> list[int]:
        """Before a chain is run: its versions."""
        versions = self._free_set()
        assert versions is not None and self._forecast is not None
        if self._buffers is None:
            self._buffers = ChainBuffers(self._context)
        self._buffers.set(damping, self._forecast)
        return versions[: count + 1]

    def arrive(self, damping: Damping, versions: list[int]) -> None:
        """A chain has run."""
        assert self._buffers is not None
        lines = self._buffers.lines(len(versions) - 1)
        self._chain = Chain(self._estimates.current, versions, damping, lines)
        self._estimates.overwritten(versions)

    def record_copy(self, program: Program, source: int, target: int) -> None:
        """A version of the estimates into another one."""
        before, after = self._estimates.version(source), self._estimates.version(target)
        for number in self._estimates.moving:
            before[number].record_copy(program, after[number])

    def record(self, program: Program, *versions: int, kind: str, record_tail: RecordMove) -> None:
        """The whole chain. kind: of program that makes the damping. record_tail: the end of a trial."""
        own, system = self._buffers, self._system
        assert own is not None and system.factorization is not None
        own.record_start(program)
        found = (
            self._linearizer.total,
            self._scalars,
            system.largest,
            system.factorization.solver.status,
            system.equations.status,
        )
        for number, (source, target) in enumerate(pairwise(versions)):
            if number:
                own.record_linearize(program, self._linearization(source))
            tail = Program(self._context)
            record_tail(tail, source, target)
            trial = self._trial(kind, tail, is_here=number > 0)
            if number:
                own.record_unless_over(program, trial)
            else:  # no condition: a device may have read the flag before the new state is there
                program.commands.extend(trial)
            own.record_decision(program, number, found, system.rule)
            if number + 2 < len(versions):
                self._record_return(program, source, target)
        own.log.record_download(program)

    def _linearization(self, version: int) -> list[tuple[str, object]]:
        program, equations = Program(self._context), self._system.equations
        self._linearizer.record_linearize(program.phase("linearize"), version, equations.values, equations.b)
        self._system.record_diagonal(program)
        return program.commands

    def _trial(self, kind: str, tail: Program, *, is_here: bool) -> list[tuple[str, object]]:
        program = Program(self._context)
        self._system.record_factorized(program, kind, tail, is_here=is_here)
        return program.commands

    def _record_return(self, program: Program, source: int, target: int) -> None:
        assert self._buffers is not None
        before, after = self._estimates.version(source), self._estimates.version(target)
        program.step(
            [
                self._buffers.copy_if_rejected(one, other)
                for number in self._estimates.moving
                for one, other in zip(before[number].buffers, after[number].buffers, strict=True)
            ]
        )

    # ---------------------------------------------------------------- what has run

    def take(self, damping: Damping) -> tuple[int, Line] | None:
        """The version and numbers of the trial that is asked for, if it has run."""
        chain, found = self._chain, None
        if chain is not None and self._estimates.held == self._estimates.current:
            found = chain.take(damping, self._context.real, self._estimates.current)
        if found is not None:
            self._num_trials += 1
            self._largest = found[1].largest
        return found

    def take_linearized(self) -> bool:
        """The next trial of the chain was made from H and b at the current estimates."""
        line = None if self._chain is None else self._chain.next
        if self._chain is None or line is None:
            return False
        if self._chain.version_of(line.source) != self._estimates.current:
            return False
        self._largest = line.largest
        return True

    @property
    def largest(self) -> tuple[float, float] | None:
        """Entries of H's diagonal and of b where the solver is linearised; None: they are the device's."""
        return self._largest

    def forget(self) -> None:
        """The device has other H and b now."""
        self._chain = self._largest = None

    def leave(self) -> tuple[bool, bool]:
        """Forget what has run and was not asked for: whether H, and whether dx, are not the host's."""
        chain, self._chain = self._chain, None
        if chain is None or chain.next is None:
            return False, False
        return chain.linearized != self._estimates.held, True
