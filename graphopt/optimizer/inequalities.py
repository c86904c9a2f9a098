"""Optimizations with inequalities, c(x) >= 0, by the method of multipliers.

    x_k = argmin chi2(x) + sum rho_i max(0, m_i - c_i(x))^2          one optimization by any method and device
    m_i <- max(0, m_i - c_i(x_k))                                    multiplier of chi2: z_i = 2 rho_i m_i

Each minimisation starts where the last one ended and is one of an ordinary graph (`problem.augmented`), so
block solvers, devices and bounds are as without inequalities. Near the end m_i changes by
theta_i = s_i / (s_i + rho_i) of its last change, where s_i is how stiff chi2 is along c_i; rho_i grows until
a round gains `_GAIN`.

References: Powell 1969; Hestenes 1969; Rockafellar, SIAM J. Control 12 (1974); Nocedal and Wright, Numerical
Optimization, 17.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.optimizer.ending import chi2_within
from graphopt.optimizer.kkt import ActiveInequality, KktConditions
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.request import R
from graphopt.optimizer.summary import Iteration, Summary, TerminationType
from graphopt.problem.augmented import Augmented, Terms, augmented

_MOST_ROUNDS = 60
_MET = 1e-9  # violation and slack beside a multiplier, relative to the root mean square of the inequalities
_GAIN = 30.0  # by which a round lowers the error of multipliers, once rho is found
_MOST_GROWTH, _MOST = 30.0, 1e10  # of rho in one round, and in all
_SLOWEST = 0.999  # theta, of which more is not told from 1
_PATIENCE = 8  # rounds in a row in which neither rho grows nor what multipliers lack becomes half
_EXACT = 1e-9  # chi2 per residual at the start below which its size says nothing
_TIGHT, _COARSE = 1e-14, 1e-8  # relative decrease of chi2 that ends a round, near the end and at the start
_SHARE = 1e-4  # of the square of what multipliers lack, for that decrease
_ENDS = (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT, TerminationType.NO_CONVERGENCE)
_TAKES_EVERY_STEP = ("gn",)
_INFEASIBLE = "The largest violation is {:.3g}, of {} row {} (vertices {})."


def has_inequalities(graph: Graph) -> bool:
    """There are edges of a type with `inequality`."""
    return any(edge_set.type.inequality and len(edge_set) for edge_set in graph.edge_sets)


@dataclass
class _Numbers:
    """Numbers of all inequalities that take part, (k,) each."""

    shift: np.ndarray
    """m."""
    penalty: np.ndarray
    """rho."""
    largest: np.ndarray
    """That rho may have."""
    scale: np.ndarray
    """Root mean square of the inequalities of one type and component at the start."""
    change: np.ndarray
    """Of m in the last round; NaN before the first."""


class Multipliers:
    """The rounds of one optimization."""

    def __init__(self, graph: Graph, request: R, inner: Callable[[Graph, R], Summary]):
        """inner: optimizes a graph without inequalities."""
        if graph.has_computed():
            raise OptionError(
                "Inequalities in a graph with computed values (Graph.add_computed) are not supported."
            )
        self._graph, self._request, self._inner = graph, request, inner
        self._start = time.perf_counter()
        self._problem: Augmented = augmented(graph)
        self._edges = _mapped(graph, self._problem, request.edges)
        self._rules, _ = request.algorithm()
        if request.method in _TAKES_EVERY_STEP:
            raise OptionError(
                f"method '{request.method}' takes every step, also where chi2 rises, and does not converge "
                "with inequalities. Use 'auto', 'lm' or 'dogleg'."
            )
        self._selection: Selection = request.select(graph)
        chosen = replace(request, edges=self._edges).select(self._problem.graph)
        rows = {id(edges.edge_set): edges.rows for edges in chosen.edges}
        self._parts: list[tuple[Terms, np.ndarray]] = [
            (terms, rows[id(terms.made)]) for terms in self._problem.terms if id(terms.made) in rows
        ]
        """The terms that take part, with their rows."""

    def run(self) -> Summary:
        """Optimize; the summary is of all rounds together."""
        numbers = self._at_start()
        total: Summary | None = None
        lacking, stalled = 1.0, 0
        initial_chi2 = self._chi2()
        for _ in range(_MOST_ROUNDS):
            self._write(numbers)
            summary = self._inner(self._problem.graph, self._round(lacking, total))
            total = summary if total is None else _joined(total, summary)
            values = self._values()
            change = np.maximum(numbers.shift - values, 0.0) - numbers.shift
            before, lacking = lacking, float(np.max(np.abs(change) / numbers.scale, initial=0.0))
            is_minimum = summary.termination is not TerminationType.NO_CONVERGENCE
            grew = _advance(numbers, change, may_grow=is_minimum)
            stalled = stalled + 1 if not grew and lacking > 0.5 * before else 0
            if lacking <= _MET or stalled >= _PATIENCE or summary.termination not in _ENDS:
                break
        assert total is not None
        total.initial_chi2, total.final_chi2 = initial_chi2, self._chi2()
        self._conclude(total, 2.0 * numbers.penalty * numbers.shift, values, lacking)
        return total

    def _at_start(self) -> _Numbers:
        values, scales = self._by_part(), []
        for array in values:
            scale = np.sqrt(np.mean(np.square(array), axis=0))
            scales.append(np.broadcast_to(np.where(scale > 0.0, scale, 1.0), array.shape).ravel())
        scale = np.concatenate([*scales, np.empty(0)])
        chi2 = self._chi2()
        count = sum(len(edges.rows) * edges.edge_set.type.residual_dim for edges in self._selection.edges)
        penalty = max(chi2, _EXACT * max(count, 1)) / scale**2
        return _Numbers(np.zeros(len(scale)), penalty, _MOST * penalty, scale, np.full(len(scale), np.nan))

    def _chi2(self) -> float:
        return chi2_within(self._graph, self._selection.edges, np.inf)

    def _by_part(self) -> list[np.ndarray]:
        return [terms.values(self._graph)[rows] for terms, rows in self._parts]

    def _values(self) -> np.ndarray:
        return np.concatenate([*(array.ravel() for array in self._by_part()), np.empty(0)])

    def _write(self, numbers: _Numbers) -> None:
        at = 0
        for terms, rows in self._parts:
            shape = len(rows), terms.source.type.residual_dim
            here = slice(at, at + shape[0] * shape[1])
            at = here.stop
            whole = np.zeros((len(terms.source), shape[1])), np.ones((len(terms.source), shape[1]))
            whole[0][rows], whole[1][rows] = (
                numbers.shift[here].reshape(shape),
                numbers.penalty[here].reshape(shape),
            )
            terms.set(*whole)

    def _round(self, lacking: float, total: Summary | None) -> Any:
        """What one round is asked for, where the last one left multipliers `lacking` (relative)."""
        request, first = self._request, 0 if total is None else len(total.iterations)
        left = request.time_limit
        if left is not None:
            left = max(left - (time.perf_counter() - self._start), 1e-9)
        return replace(
            request,
            max_iterations=None,
            options=_tightened(self._rules, lacking),
            edges=self._edges,
            time_limit=left,
            callback=_renumbered(request.callback, first),
            wants_kkt=True,
        )

    def _conclude(self, total: Summary, multipliers: np.ndarray, values: np.ndarray, lacking: float) -> None:
        """KKT conditions, and whether the inequalities hold."""
        kkt = total.kkt or KktConditions(float("nan"), float("nan"))
        at, active = 0, []
        worst = (0.0, "", 0, "")
        for terms, rows in self._parts:
            dim = terms.source.type.residual_dim
            here = slice(at, at + len(rows) * dim)
            at = here.stop
            for index in np.flatnonzero(multipliers[here] > 0.0).tolist():
                row, component = int(rows[index // dim]), index % dim
                found = float(values[here][index]), float(multipliers[here][index])
                active.append(ActiveInequality(terms.source.type.tag, row, component, *found))
            if (
                len(rows)
                and (lowest := int(np.argmin(values[here]))) >= 0
                and -values[here][lowest] > worst[0]
            ):
                row = int(rows[lowest // dim])
                ids = ", ".join(map(str, terms.source.look("vertices")[row].tolist()))
                worst = (float(-values[here][lowest]), terms.source.type.tag, row, ids)
        products = multipliers * np.abs(values)
        total.kkt = replace(
            kkt,
            violation=worst[0],
            complementarity=float(products.max(initial=0.0)),
            inequalities=tuple(active),
        )
        if lacking > _MET and total.termination in _ENDS:
            total.termination = TerminationType.INFEASIBLE
            total.message = f"{total.message} {_INFEASIBLE.format(*worst)}".strip()


def _advance(numbers: _Numbers, change: np.ndarray, may_grow: bool) -> bool:
    """New m, and rho where m converges too slowly; multipliers stay what they are. Whether rho has grown.

    may_grow: the round has reached its minimum, so that changes of m mean something.
    """
    before = np.abs(numbers.change)
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = np.minimum(np.abs(change) / before, _SLOWEST)
        growth = np.clip(_GAIN * theta / (1.0 - theta), 1.0, _MOST_GROWTH)
    is_known = may_grow & np.isfinite(growth) & (before > 0.0) & (np.abs(change) > _MET * numbers.scale)
    growth = np.where(is_known, np.minimum(growth, numbers.largest / numbers.penalty), 1.0)
    numbers.shift = (numbers.shift + change) / growth
    numbers.penalty = numbers.penalty * growth
    numbers.change = change / growth
    return bool((growth > 1.0).any())


def _tightened(rules: StopRules, lacking: float) -> StopRules:
    """As exact as multipliers need it, and without the strategies that look for other minima."""
    tolerance = float(np.clip(_SHARE * lacking**2, _TIGHT, _COARSE))
    if isinstance(rules, AutoOptions):
        rules = replace(rules, relax_above=np.inf, reseat_gain=np.inf, contest=False)
    return replace(rules, function_tolerance=tolerance)


def _renumbered(
    callback: Callable[[Iteration], object] | None, first: int
) -> Callable[[Iteration], object] | None:
    """The user's callback, which gets iterations of all rounds in one count."""
    if callback is None or not first:
        return callback

    def called(iteration: Iteration) -> object:
        return callback(iteration._replace(iteration=first + iteration.iteration))

    called.looks_at_graph = getattr(callback, "looks_at_graph", True)  # type: ignore[attr-defined]
    return called


def _joined(total: Summary, summary: Summary) -> Summary:
    """The summary of a further round, with the iterations and seconds of those before."""
    first = len(total.iterations)
    renumbered = [each._replace(iteration=first + each.iteration) for each in summary.iterations]
    summary.iterations = [*total.iterations, *renumbered]
    for name, seconds in total.seconds.items():
        summary.seconds[name] = summary.seconds.get(name, 0.0) + seconds
    said = total.message if total.message not in summary.message else ""
    summary.message = f"{said} {summary.message}".strip()
    return summary


def _mapped(graph: Graph, problem: Augmented, edges: Any) -> Any:
    """The option `edges` for the graph with terms."""
    if edges is None:
        return None
    if isinstance(edges, dict):
        sets = (
            (each if isinstance(each, EdgeSet) else graph.edge_set(each), rows)
            for each, rows in edges.items()
        )
        return {problem.shared[id(edge_set)]: rows for edge_set, rows in sets}
    rows_of: dict[EdgeSet, list[int]] = {}
    for edge in edges:
        rows_of.setdefault(problem.shared[id(edge._edge_set)], []).append(edge.row)
    return rows_of
