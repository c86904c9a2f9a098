"""A call's first work on the device, done while the host still finds out whether the graph is as it was.

Fingerprints of a large graph take the host some milliseconds; meanwhile the device can do what the call will
ask for if nothing but estimates has changed: chi2, the sums that say which landmarks are in wrong places, H
and b, and the first trial. Each is taken when it is asked for at the same version of the estimates, with the
same damping; what is not is waited for and forgotten. It changes no number and no order of sums.

Within a call, H and b at the end of a step are computed while the host still finds out whether the step is
taken (`Beyond`). They take the place of those at its start, which are made again where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphopt.solver.trial import Damping
from graphopt.vulkan.program import Program, Running


@dataclass
class Ahead:
    """What has been submitted at a version of the estimates."""

    version: int
    is_new: bool = True
    """The call has not gone on yet: its estimates are those of this version."""
    chi2: Running | None = None
    sums: dict[tuple[int, int], Running] = field(default_factory=dict)
    """By group and slot."""
    is_linearized: bool = False
    """H and b are those of this version, or on their way."""

    def take_chi2(self, version: int) -> Running | None:
        """That of chi2, once."""
        found, self.chi2 = (self.chi2 if version == self.version else None), None
        return found

    def take_sums(self, version: int, number: int, slot: int) -> Running | None:
        """That of chi2 by the vertices of a slot, once."""
        return self.sums.pop((number, slot), None) if version == self.version else None

    def take_linearized(self, version: int) -> bool:
        """Whether H and b are of a version; they are asked for once."""
        found, self.is_linearized = self.is_linearized and version == self.version, False
        return found

    def wait(self) -> None:
        """For all that nobody has taken."""
        for running in (self.chi2, *self.sums.values()):
            if running is not None:
                running.wait()


@dataclass(frozen=True)
class TrialAhead:
    """A trial that has been submitted."""

    damping: Damping
    tail: Program
    kind: str
    """Of program that makes the damping."""
    program: Program
    running: Running

    def is_of(self, damping: object, tail: Program | None) -> bool:
        """It is the one that is asked for."""
        return self.damping == damping and self.tail is tail


@dataclass
class Beyond:
    """H and b at the end of a trial's step."""

    version: int
    """Of the estimates there; -1: others have taken their place."""
    running: Running
