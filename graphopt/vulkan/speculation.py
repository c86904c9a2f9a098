"""Speculation: what is submitted before anybody asks for it.

It is taken where it is what somebody asks for, else waited for and discarded.

    NONE                        nothing of it is in flight
    LINEARIZED(version)         H and b at a version of the estimates
    TRIAL(version, damping)     these, and a trial from there

A call begins with it while the host still finds out whether the graph is as it was: fingerprints of a large
graph take some milliseconds, in which the device evaluates chi2, the sums that say which landmarks are in
wrong places, H and b, and the first trial. Within a call, H and b at the end of a step are computed while the
host decides whether the step is taken; these replace those at its start, which are made again where it is
not. No number and no order of sums depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from graphopt.solver.trial import Damping
from graphopt.vulkan.program import Program, Running

NOWHERE = -1
"""No version of the estimates."""


class Stage(Enum):
    """How far it has gone."""

    NONE = "nothing is in flight"
    LINEARIZED = "H and b"
    TRIAL = "a trial"


@dataclass(frozen=True)
class SpeculativeTrial:
    """A trial that has been submitted."""

    damping: Damping
    tail: Program
    program: Program
    running: Running

    def is_of(self, damping: object, tail: Program | None) -> bool:
        """It is the one that is asked for."""
        return self.damping == damping and self.tail is tail


@dataclass
class Evaluations:
    """chi2 and sums of chi2 at a version of the estimates, each taken once."""

    version: int
    chi2: Running | None = None
    sums: dict[tuple[int, int], Running] = field(default_factory=dict)
    """By group and slot."""
    is_new: bool = True
    """The call has not gone on yet: its estimates are those of this version."""

    def take_chi2(self, version: int) -> Running | None:
        """That of chi2."""
        found, self.chi2 = (self.chi2 if version == self.version else None), None
        return found

    def take_sums(self, version: int, number: int, slot: int) -> Running | None:
        """That of chi2 by the vertices of a slot."""
        return self.sums.pop((number, slot), None) if version == self.version else None

    def wait(self) -> None:
        """For all that nobody has taken."""
        for running in (self.chi2, *self.sums.values()):
            if running is not None:
                running.wait()


class Speculation:
    """The state of one solver's, and what is known about whether it pays."""

    def __init__(self) -> None:
        self.version = NOWHERE
        """Of the estimates that H and b in flight are of."""
        self.evaluations: Evaluations | None = None
        """What a call has begun with."""
        self._replacing: Running | None = None
        self._trial: SpeculativeTrial | None = None
        self.was_accepted = True
        """The last step was taken: the next one is likely to be, too."""
        self.host_reads = False
        """In this optimization somebody has asked for H or b at the start of a step that was taken."""

    @property
    def stage(self) -> Stage:
        """How far it has gone."""
        if self._trial is not None:
            return Stage.TRIAL
        return Stage.NONE if self.version == NOWHERE and self._replacing is None else Stage.LINEARIZED

    @property
    def replaces(self) -> bool:
        """H and b are not those of the linearization point any more, but of the end of a step."""
        return self._replacing is not None

    @property
    def trial(self) -> Running | None:
        """The trial in flight."""
        return None if self._trial is None else self._trial.running

    # ---------------------------------------------------------------- events

    def linearize(self, version: int, replacing: Running | None = None) -> None:
        """H and b of a version have been submitted.

        replacing: they take the place of those at a step's start.
        """
        self.version, self._replacing = version, replacing

    def settle(self) -> None:
        """H and b of the linearization point have been submitted, for somebody who asked."""
        self.version, self._replacing = NOWHERE, None

    def begin_trial(self, trial: SpeculativeTrial) -> None:
        """A trial has been submitted, from where H and b are."""
        self._trial = trial

    def take_point(self, version: int) -> bool:
        """Whether H and b of a version are those of the linearization point already; once."""
        if self.replaces:
            return False
        found, self.version = version == self.version, NOWHERE
        return found

    def take_replacing(self, version: int) -> Running | None:
        """H and b of the end of a step, where that is the version to linearize at; once."""
        running = self._replacing if version == self.version else None
        self.version, self._replacing = NOWHERE, None
        return running

    def take_trial(
        self, damping: object, tail: Program | None, seconds: dict[str, float]
    ) -> SpeculativeTrial | None:
        """The trial that is asked for, if it is the one in flight; another one is waited for and dropped."""
        if self._trial is not None and not self._trial.is_of(damping, tail):
            self.discard_trial(seconds)
        found, self._trial = self._trial, None
        return found

    def leave(self) -> None:
        """Estimates are others now than those at which H and b were computed; replaced ones stay replaced."""
        if self.replaces:
            self.version = NOWHERE

    def discard_trial(self, seconds: dict[str, float] | None = None) -> None:
        """Wait for the trial and forget it. seconds: on the device by phase, to which its own are added."""
        if self._trial is not None:
            self._trial.running.wait(seconds)
            self._trial = None

    def discard_begun(self) -> None:
        """What a call has begun with is of no use, or has been used; its evaluations are waited for."""
        if self.evaluations is not None:
            self.evaluations.wait()
        self.arrive()

    def arrive(self) -> None:
        """A trial is done, and so is what a call has begun with."""
        self.evaluations = None
        if not self.replaces:
            self.version = NOWHERE

    def discard_replacing(self, seconds: dict[str, float], current: int) -> bool:
        """Wait for H and b of a step's end, where they have replaced others: these are to be made again.

        current: version of the estimates; where it is theirs, the host is one that reads them.
        """
        if self._replacing is None:
            return False
        self.host_reads |= self.version == current
        self._replacing.wait(seconds)
        self.version, self._replacing = NOWHERE, None
        return True
