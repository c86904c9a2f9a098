"""Options of `optimize` over ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphopt.linear.options import SolverChanges
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.request import Request


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


class RankChanges(SolverChanges, total=False):
    """Fields of `SolverOptions` and `RankOptions` as keywords of `optimize`."""

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
