"""Several trials of Levenberg-Marquardt in one submission: the device goes on alone, the host reads a log.

    trial 0      damping, factorization, step, estimates 0 -> 1, chi2;     decide
    trial k      unless over:   H and b at estimates k, unless trial k - 1 was rejected
                 unless over:   the same, estimates k -> k + 1;            decide
    decide       accepted or not, lambda, whether to go on, a line of the log       (shaders/decide.comp)
    rejected:    estimates k + 1 <- k, and H stays

A step that a device has taken ahead counts only if the host asks for it: with the damping that its own rule
has found from the numbers in the log, at the estimates from which the device has taken it. Else it is
forgotten. So there is one rule, the algorithm's; the device's guess of it costs time where it is wrong, never
a digit. Every step has its estimates in a version of their own, until the next chain: a run may end, or look
at them, between any two.

Where: conditional commands (what is over is skipped, not run), float64 (lambda), Cholesky on the device from
a stored H. With conjugate gradients, whose rules hang on the solve before, a submission holds one trial; so
it does where a callback looks at the graph, in the first call of a structure, and where trials take long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any

import numpy as np

from graphopt.solver.trial import Damping, Forecast, Trial
from graphopt.solver.vulkan.data.array import DeviceArray
from graphopt.solver.vulkan.program import Command, Context, Launch, Program

MOST = 1
"""Trials in one submission, 1, 2 or 4; 1: no chains. Each has a version of the estimates, twice.

1 until a device is measured on which more win; see docs/performance.md, Trips to the device.
"""
LONGEST_TRIAL = 2e-3
"""Seconds on the device: of longer ones a trip to the host, 0.1 ms, is a small part."""
MOST_BYTES = 1 << 26
"""Of the versions."""
_LINE, _STATE = 20, 24
"""Words, as in decide.comp."""
_IS_OVER, _KEEPS_H, _IS_REJECTED, _NIELSEN, _TRIALS, _MAX_TRIALS, _ITERATIONS = range(7)
_NUMBERS = 8
_DOUBLE, _MIXED = Struct("=4I2d4dd"), Struct("=4I2d8ff")
"""A line: is one, accepted, solved, source, lambda, chi2, gain, step size, largest entries; rule."""


@dataclass(frozen=True)
class Line:
    """A trial in the log."""

    damping: float
    rule: float
    """The same as kernels have read it, maybe float32."""
    trial: Trial
    accepted: bool
    source: int
    """Of the chain's versions, that from which it was made."""
    largest: tuple[float, float]
    """Entries of H's diagonal and of b there."""


@dataclass
class Chain:
    """Trials that have run, of which the host has asked for some."""

    start: int
    """The version of which the first of `versions` is a copy."""
    versions: list[int]
    damping: Damping
    lines: list[Line]
    taken: int = 0
    """How many the host has asked for."""

    @property
    def next(self) -> Line | None:
        """What the host may ask for."""
        return self.lines[self.taken] if self.taken < len(self.lines) else None

    def version_of(self, source: int) -> int:
        """Where the estimates of a source are."""
        return self.versions[source] if source else self.start

    def take(self, damping: Damping, real: np.dtype, current: int) -> tuple[int, Line] | None:
        """The next trial and its target, if it is the one that is asked for."""
        line = self.next
        if line is None or self.version_of(line.source) != current:
            return None
        alike = replace(damping, value=0.0, accuracy=None, worth=0.0)
        own = replace(self.damping, value=0.0, accuracy=None, worth=0.0)
        if alike != own or line.damping != damping.value or line.rule != float(real.type(damping.value)):
            return None
        self.taken += 1
        return self.versions[self.taken], line

    @property
    def linearized(self) -> int:
        """The version of which the device has H."""
        return self.version_of(self.lines[-1].source)


@dataclass(eq=False)
class ChainBuffers:
    """What decides, in device memory."""

    context: Context
    state: DeviceArray = field(init=False)
    log: DeviceArray = field(init=False)

    def __post_init__(self) -> None:
        self.state = DeviceArray(self.context, _STATE, np.uint32)
        self.log = DeviceArray(self.context, MOST * _LINE, np.uint32, is_mapped=False)

    def set(self, damping: Damping, forecast: Forecast) -> None:
        """Before a run: where the algorithm is, and its rule."""
        state = self.state.staging
        state[:] = 0
        state[_NIELSEN] = forecast.rule == "nielsen"
        state[_TRIALS : _ITERATIONS + 1] = forecast.trial, forecast.max_trials, forecast.iterations
        numbers = (
            forecast.chi2,
            damping.value,
            forecast.nu,
            forecast.function_tolerance,
            forecast.step_tolerance,
            forecast.lower,
            forecast.upper,
        )
        words = np.array(numbers, np.float64).view(np.uint32)
        state[_NUMBERS : _NUMBERS + len(words)] = words
        self.state.commit()

    def lines(self, count: int) -> list[Line]:
        """The trials that have run."""
        words = self.log.downloaded[: count * _LINE].tobytes()
        form = _DOUBLE if self.context.precision == "double" else _MIXED
        found = (form.unpack_from(words, 4 * _LINE * number) for number in range(count))
        return [_line(*numbers) for numbers in found if numbers[0]]

    # ---------------------------------------------------------------- recording

    def record_start(self, program: Program) -> None:
        """Bring the state."""
        self.state.record_upload(program)
        program.barrier()

    def record_decision(self, program: Program, number: int, found: tuple[Any, ...], rule: Any) -> None:
        """After trial `number`. found: chi2, gain and step size, largest entries, and both statuses."""
        buffers = (self.state.buffer, *found, rule, self.log.buffer)
        constants = {0: 32, 1: int(self.context.precision != "double")}
        program.barrier().step(
            [self.context.launch("decide", buffers, (number,), 1, constants, precision="double")]
        )

    def copy_if_rejected(self, source: Any, target: Any) -> Launch:
        """Estimates of a step that was taken back are those it was made from."""
        return self._words(source, target, {})

    def record_linearize(self, program: Program, commands: list[Command]) -> None:
        """H and b, unless those that are here are to stay: commands that write, too, only then."""
        with program.unless(self.state.buffer, _KEEPS_H):
            for name, argument in commands:
                if name == "fill":
                    program.launch(self._words(argument[0], argument[0], {1: 1}))
                else:
                    program.commands.append((name, argument))
        program.barrier()

    def _words(self, source: Any, target: Any, constants: dict[int, int]) -> Launch:
        count = source.size // 4
        groups = self.context.vector_groups(count)
        buffers, params = (self.state.buffer, source, target), (count, groups, _IS_REJECTED)
        return self.context.launch("copy_where", buffers, params, groups, constants)

    def record_unless_over(self, program: Program, commands: list[Command]) -> None:
        """A trial, skipped where the trials before were the last ones."""
        with program.unless(self.state.buffer, _IS_OVER):
            program.commands.extend(commands)
        program.barrier()


def _line(_: int, accepted: int, solved: int, source: int, damping: float, chi2: float, *rest: float) -> Line:
    """Of what `_DOUBLE` or `_MIXED` has found; of the latter each sum is two float32."""
    *sums, rule = rest
    if len(sums) > 4:
        sums = [first + second for first, second in zip(sums[::2], sums[1::2], strict=True)]
    gain, step_size, diagonal, gradient = sums
    trial = Trial(True, chi2, gain, step_size) if solved else Trial(False)
    return Line(damping, rule, trial, bool(accepted), source, (diagonal, gradient))


def trials_at_once(left: int) -> int:
    """How many to submit where so many are expected: skipping one that is not needed takes time, too."""
    return max((count for count in (1, 2, 4) if count <= min(left, MOST)), default=1)
