"""Options of `optimize` over ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from graphopt.linear.options import SolverChanges, SolverOptions
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.request import Request
from graphopt.optimizer.run import Callback
from graphopt.optimizer.signals import Settable


@dataclass(frozen=True)
class RankOptions:
    """How ranks work together."""

    partition: str = "auto"
    """Who gets what: "slabs", "metis", or "auto", see `distributed.partition`."""
    transport: str = "auto"
    """How rows that GPUs share get from one to the others in each conjugate gradient iteration: "host",
    "pages" or "auto" (`distributed.transport`). Same results."""
    checkpoint: str | None = None
    """A file that gets the estimates after every `every` iterations, whole or not at all."""
    every: int = 10
    resume: str | None = None
    """A checkpoint to start from, made with any number of ranks."""
    ranks: str = "auto"
    """"auto": as many as are expected to be fastest, one where S is better factorized; "all": all."""


@dataclass(frozen=True)
class RankRequest(RankOptions, Request):
    """Options of `optimize`."""

    @classmethod
    def of(cls, method: str, max_iterations: int | None, changes: RankChanges) -> RankRequest:
        """From keywords."""
        given: dict[str, Any] = dict(changes)
        solver = {name: given.pop(name) for name in names_of(SolverOptions) if name in given}
        return cls(method=method, max_iterations=max_iterations, solver=SolverOptions(**solver), **given)


def names_of(kind: Any) -> list[str]:
    """Fields of a dataclass that are further keywords of `optimize`."""
    others = ("method", "max_iterations", "solver")
    return [each.name for each in fields(kind) if each.name not in others]


class RankChanges(SolverChanges, total=False):
    """Fields of `Request`, `SolverOptions` and `RankOptions` as keywords of `optimize`."""

    options: StopRules | None
    fix: str | list[int]
    level: int
    vertices: Any
    edges: Any
    time_limit: float | None
    callback: Callback | None
    stop: Settable | None
    on_interrupt: str
    throw: bool
    verbose: bool
    partition: str
    transport: str
    checkpoint: str | None
    every: int
    resume: str | None
    ranks: str


def distributed_rules(rules: StopRules) -> StopRules:
    """The rules without what looks at the whole graph at once."""
    if isinstance(rules, AutoOptions):
        return replace(rules, relax_above=np.inf, contest=False, reseat_gain=np.inf, patience=np.inf)
    return rules
