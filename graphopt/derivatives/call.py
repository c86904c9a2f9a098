"""What the functions of `graphopt.torch` and `graphopt.jax` share: shapes of inputs, batches, problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.derivatives.batch import copies, ids_of_copies
from graphopt.derivatives.batched import BatchOptimum
from graphopt.derivatives.inputs import resolve
from graphopt.derivatives.problem import OptimumProblem
from graphopt.derivatives.settings import GradientSettings
from graphopt.errors import OptionError, ShapeError
from graphopt.graph import Graph
from graphopt.problem.gauge import fix_gauge

SETTINGS = tuple(GradientSettings.__dataclass_fields__)


@dataclass(frozen=True)
class Call:
    """One call of `solve`: the problem, and how arrays of its caller become those of its graph."""

    problem: OptimumProblem | BatchOptimum
    batch: int | None
    """Number of problems; None: one, without a dimension for it."""
    broadcast: tuple[tuple[int, ...], ...]
    """By input the shape to broadcast to."""
    reshape: tuple[tuple[int, ...], ...]
    """By input the shape that the graph has."""

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """By vertex set, as the caller sees it."""
        shapes = self.problem.shapes
        if self.batch is None:
            return shapes
        return [(self.batch, rows // self.batch, dim) for rows, dim in shapes]


def call_of(graph: Graph, shapes: Mapping[str, Sequence[int]], options: Mapping[str, Any]) -> Call:
    """The call for inputs of these shapes: the arrays', shorter ones that broadcast, or with a batch.

    Raises `ShapeError` for a shape that is neither, `OptionError` for names or options that there are not.
    """
    if not isinstance(graph, Graph):
        raise OptionError(f"graph is {graph!r}, expected a graphopt.Graph.")
    if not shapes:
        raise OptionError("inputs is empty: name an array of the graph, such as 'EDGE_SE2.measurement'.")
    inputs = resolve(graph, list(shapes))
    batches = {int(shapes[one.name][0]) for one in inputs if len(shapes[one.name]) == len(one.shape) + 1}
    if len(batches) > 1:
        raise ShapeError(f"inputs have batches of {sorted(batches)} problems, expected one size.")
    batch = batches.pop() if batches else None
    broadcast, reshape = [], []
    for one in inputs:
        given, whole = tuple(shapes[one.name]), one.shape
        full = whole if batch is None else (batch, *whole)
        if len(given) > len(full) or any(
            have not in (1, want) for have, want in zip(given[::-1], full[::-1], strict=False)
        ):
            more = "" if batch is None else f", or {full} of a batch"
            raise ShapeError(f"{one.name} has shape {given}, expected {whole}{more}, or less to broadcast.")
        broadcast.append(full)
        reshape.append(whole if batch is None else (batch * whole[0], *whole[1:]))
    own = {name: value for name, value in options.items() if name in SETTINGS}
    others = {name: value for name, value in options.items() if name not in SETTINGS}
    settings = GradientSettings(**own)
    of = graph
    if batch is not None:
        problems = BatchOptimum.of(graph, batch, list(shapes), settings, others)
        if problems is not None:
            return Call(problems, batch, tuple(broadcast), tuple(reshape))
        of, others = copies(graph, batch), _options_of_copies(graph, batch, others)
    problem = OptimumProblem(of, list(shapes), others, settings)
    return Call(problem, batch, tuple(broadcast), tuple(reshape))


def _options_of_copies(graph: Graph, count: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options for copies: each holds the vertices that the graph itself would."""
    for name in ("vertices", "edges"):
        if options.get(name) is not None:
            raise OptionError(
                f"{name} chooses a part of one graph. Leave the others out of the graph of a batch."
            )
    selection = graph.select(options.get("level", 0))
    _, held = fix_gauge(graph, selection, options.get("fix", "auto"))
    return {**options, "fix": ids_of_copies(graph, held, count) if held else "none"}
