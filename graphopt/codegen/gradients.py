"""`check_gradients`: every Jacobian of a graph beside differences of its residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.codegen.trace import trace_edge
from graphopt.graph import Graph
from graphopt.graph.residuals import arguments
from graphopt.symbolic import evaluate, fresh_table
from graphopt.types.gradients import TOLERANCE, differences, largest_of, relative_errors


@dataclass(frozen=True)
class CheckedGradient:
    """The Jacobians of one edge set."""

    tag: str
    """Of the edge type."""
    num_edges: int
    """That were looked at."""
    is_own: bool
    """The type has a Jacobian of its own; else the compiler derives it."""
    error: float
    """Largest difference in a column beside the column's size; NaN: not finite somewhere."""
    edge: int
    """Row in the edge set where that is."""
    vertex: int
    """Slot of the vertex whose block it is."""
    column: int
    """Tangent direction in that block."""

    @property
    def is_right(self) -> bool:
        """Equal up to what differences can tell."""
        return self.error <= TOLERANCE

    def __str__(self) -> str:
        kind = "own Jacobian" if self.is_own else "derived"
        text = f"{self.tag:32} {self.num_edges:7} edges  {kind:12}  error {self.error:.1e}"
        if not self.is_right:
            text += f"  WRONG: edge {self.edge}, vertex {self.vertex}, column {self.column}"
        return text


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found; prints as a table."""

    checked: list[CheckedGradient] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Every Jacobian is the derivative of its residual."""
        return all(check.is_right for check in self.checked)

    @property
    def wrong(self) -> list[CheckedGradient]:
        """Those that are not."""
        return [check for check in self.checked if not check.is_right]

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked)) if self.checked else "The graph has no edges."


def check_gradients(graph: Graph, max_edges: int = 100) -> GradientReport:
    """Compare the Jacobians that an optimization of `graph` would use with central differences.

    At most `max_edges` edges of each edge set are looked at, spread over it, at the present estimates. Where
    a residual has a kink or a jump (an angle at pi, a pixel at a border), differences tell nothing and may be
    reported as wrong; some of g2o's own Jacobians leave terms out on purpose (`EdgeType.jacobian`).
    """
    checked = []
    for edge_set in graph.edge_sets:
        if len(edge_set) and not edge_set.type.is_external:
            rows = np.unique(np.linspace(0, len(edge_set) - 1, max_edges).astype(int))
            checked.append(_check(graph, edge_set, rows))
    return GradientReport(checked)


def _check(graph: Graph, edge_set: Any, rows: np.ndarray) -> CheckedGradient:
    kind = edge_set.type
    values = arguments(graph, edge_set, rows)
    arity = len(kind.vertices)

    def error(moved: Sequence[np.ndarray]) -> np.ndarray:
        found = kind.error(tuple(moved[:arity]), tuple(moved[arity:-1]), moved[-1])
        return np.broadcast_to(found, (len(rows), kind.residual_dim))

    with np.errstate(all="ignore"):
        expected = differences(error, kind.vertices, values)
        given = _evaluated(kind, values, len(rows))
        errors = [
            relative_errors(value, right, largest_of(expected))
            for value, right in zip(given, expected, strict=True)
        ]
    worst = [np.nan_to_num(each_error, nan=np.inf) for each_error in errors]
    slot = int(np.argmax([error.max(initial=0.0) for error in worst]))
    row, column = np.unravel_index(int(np.argmax(worst[slot])), worst[slot].shape)
    largest = float(errors[slot][row, column])
    return CheckedGradient(
        kind.tag, len(rows), kind.jacobian is not None, largest, int(rows[row]), slot, int(column)
    )


def _evaluated(kind: Any, values: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """(count, residual_dim, tangent_dim) per vertex: the expressions that programs are made of."""
    with fresh_table():
        traced = trace_edge(kind)
        blocks = traced.jacobians()
        names = [str(input_.value) for input_ in traced.inputs]
        columns = np.concatenate([np.asarray(value).reshape(count, -1) for value in values], axis=1)
        known = dict(zip(names, columns.T, strict=True))
        found = evaluate([e for block in blocks for e in np.ravel(block)], known)
    flat = np.stack([np.broadcast_to(column, count) for column in found], axis=1)
    sizes = np.cumsum([np.size(block) for block in blocks])[:-1]
    return [
        part.reshape(count, *np.shape(block))
        for part, block in zip(np.split(flat, sizes, axis=1), blocks, strict=True)
    ]
