"""What `optimize` was asked for, checked before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeVar
from weakref import ref

from graphopt.errors import OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.algorithm import Algorithm
from graphopt.optimizer.certificate import Certifier
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.run import Callback
from graphopt.optimizer.signals import Settable

R = TypeVar("R", bound="Request")


@dataclass(frozen=True)
class Request:
    """Options of `optimize`, described there."""

    method: str = "auto"
    max_iterations: int | None = None
    options: StopRules | None = None
    fix: str | list[int] = "auto"
    level: int = 0
    vertices: Any = None
    edges: Any = None
    time_limit: float | None = None
    callback: Callback | None = None
    stop: Settable | None = None
    on_interrupt: str = "raise"
    throw: bool = False
    verbose: bool = False
    solver: SolverOptions = field(default_factory=SolverOptions)

    def algorithm(
        self, changed: Callable[[StopRules], StopRules] | None = None
    ) -> tuple[StopRules, Algorithm]:
        """The rules, `changed` where that is given, and the algorithm of the method's name."""
        row = METHODS.row(self.method)
        rules = row.options() if self.options is None else self.options
        if type(rules) is not row.options:
            raise OptionError(
                f"method '{self.method}' takes {row.options.__name__}, got options of type "
                f"{type(rules).__name__}."
            )
        if self.max_iterations is not None:
            rules = replace(rules, max_iterations=self.max_iterations)
        if changed is not None:
            rules = changed(rules)
        return rules, row.make(rules)

    def certifier(self, graph: Graph) -> Certifier:
        """Of the run; objects that may belong to other threads or hold other things stay out of it."""
        return Certifier(ref(graph), (self.level, self.vertices, self.edges), self.solver)

    def check_time_limit(self) -> None:
        """`OptionError` for a limit that is no number > 0."""
        limit = self.time_limit
        if limit is not None and not (isinstance(limit, Real) and limit > 0.0):
            raise OptionError(f"time_limit is {limit!r}, must be a number > 0 of seconds.")

    def select(self, graph: Graph) -> Selection:
        """The part of the graph that takes part."""
        return graph.select(self.level, self.vertices, self.edges)

    @property
    def takes_level(self) -> bool:
        """A level of the graph takes part, not some vertices or edges."""
        return self.vertices is None and self.edges is None


def check_graph(graph: Any, callback: Any, may_be_none: bool = False) -> None:
    """`OptionError` for what is no graph, or no callback. may_be_none: another rank has the graph."""
    if callback is not None and not callable(callback):
        raise OptionError(f"callback is {callback!r}, expected a function of an Iteration.")
    if isinstance(graph, (str, bytes, os.PathLike)):
        raise OptionError(
            f"graph is {graph!r}, expected a graphopt.Graph: graphopt.read({graph!r}) reads one."
        )
    if graph is None and not may_be_none:
        raise OptionError("graph is None, expected a graphopt.Graph.")
