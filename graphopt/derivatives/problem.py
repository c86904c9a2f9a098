"""The optimum of a graph as a function of some of its arrays, and vector-Jacobian products of it.

    x*(inputs) = argmin chi2(x, inputs)

`solve` optimizes, then refines by Newton's steps (`refine`). `vjp` needs inputs and optimum only, whoever
computed it when: one exact linearization, one factorization, one pass over the edges. Right after `solve` the
factor of the last step takes the place of the factorization, by iterative refinement. The graph is a template
that is left as it was found.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.derivatives.adjoint import AdjointPass, pulled_back
from graphopt.derivatives.equations import (
    DeviceEquations,
    ExactEquations,
    HostEquations,
    refuse_what_has_none,
)
from graphopt.derivatives.inputs import Input, holding, numbers_with, resolve
from graphopt.derivatives.refine import Doubts, refine
from graphopt.derivatives.settings import GradientSettings, Solved
from graphopt.errors import GradientError, OptionError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.optimize import optimize
from graphopt.problem.gauge import fix_gauge
from graphopt.solver.capabilities import capabilities_of
from graphopt.solver.configurations import configured
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.reuse import last_use, on_forget, prepared_solver

_SELECTING = ("level", "vertices", "edges")
_SOLVER_FIELDS = tuple(SolverOptions.__dataclass_fields__)
_COLUMNS = (
    ("fixed", "marginalized", "held"),
    ("measurement", "information", "kernel", "kernel_width", "level"),
    ("values",),
)
"""Of vertex, edge and parameter sets what an optimum depends on, estimates aside."""


@dataclass(frozen=True, eq=False)
class _End:
    """Where a solve has ended."""

    equations: weakref.ref[ExactEquations]
    """With the factor of the last Newton step, while nobody has taken the solver since."""
    use: object
    """See `last_use`."""
    graph: tuple[object, ...]
    """See `OptimumProblem._state_of_graph`."""
    values: tuple[np.ndarray, ...]
    estimates: tuple[np.ndarray, ...]


@dataclass(eq=False)
class OptimumProblem:
    """A graph, the arrays that are inputs, and how it is solved."""

    graph: Graph
    names: Sequence[str]
    """See `inputs`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `optimize`."""
    settings: GradientSettings = field(default_factory=GradientSettings)

    _end: _End | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.options.get("robust", "kernels") != "kernels":
            raise OptionError(
                f"robust is {self.options['robust']!r}, which chooses edges in jumps: the optimum has no "
                "derivative. Use robust kernels (kernel='Cauchy'), or remove the outliers first."
            )
        refuse_what_has_none(self.graph)
        self.inputs: list[Input] = resolve(self.graph, self.names)
        for one in self.inputs:
            if one.column == "estimate" and one.rows.holds_components:
                raise GradientError(
                    f"{one.name}: vertices hold single components (Graph.hold), whose start values are not "
                    "differentiated. Fix whole vertices, or leave this input out."
                )

    @property
    def tags(self) -> list[str]:
        """Names of the outputs: tags of the vertex sets."""
        return [vertex_set.type.tag for vertex_set in self.graph.vertex_sets]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the outputs."""
        return [vertex_set.look("estimate").shape for vertex_set in self.graph.vertex_sets]

    def solve(self, values: Sequence[np.ndarray]) -> Solved:
        """Optimize with these inputs, in the order of `names`."""
        given = {one: one.checked(value) for one, value in zip(self.inputs, values, strict=True)}
        sets = self.graph.vertex_sets
        after = [vertex_set.look("estimate").copy() for vertex_set in sets]
        try:
            with holding(given, {}):
                summary = optimize(self.graph, **self.options)
                equations = self._exact_equations()
                doubts = refine(equations, self.settings.singular == "damp")
                equations.solver.finish()
                estimates = tuple(vertex_set.look("estimate").copy() for vertex_set in sets)
            if self.settings.warm_start:
                after = list(estimates)
        finally:
            for vertex_set, estimate in zip(sets, after, strict=True):
                vertex_set.estimate = estimate
        use = last_use(self.graph)
        self._end = _End(weakref.ref(equations), use, self._state_of_graph(), tuple(values), estimates)
        return Solved(estimates, summary, doubts)

    def vjp(
        self,
        values: Sequence[np.ndarray],
        estimates: Sequence[np.ndarray],
        doubts: Doubts,
        cotangents: Sequence[np.ndarray | None],
    ) -> list[np.ndarray]:
        """Cotangents of the inputs, of those of the estimates (None: zero); all other arguments of `solve`.

        Raises `GradientError` where they cannot be trusted, see `on_doubt`.
        """
        sets = self.graph.vertex_sets
        pulled = {
            rows: np.asarray(array, np.float64)
            for rows, array in zip(sets, cotangents, strict=True)
            if array is not None
        }
        optimum = {rows: np.asarray(array, np.float64) for rows, array in zip(sets, estimates, strict=True)}
        last = None if doubts.sentences else self._last_equations(values, estimates)
        given = {
            one: one.checked(value) if last is None else np.asarray(value, np.float64)
            for one, value in zip(self.inputs, values, strict=True)
        }
        held = {one: array for one, array in given.items() if one.column != "estimate"}
        numbers = numbers_with(held, optimum)
        lambda_ = None
        if last is not None:
            with nullcontext() if isinstance(last, DeviceEquations) else holding(held, optimum):
                last.linearize_again()
                lambda_ = last.solve_nearby(pulled_back(last.structure, pulled, numbers))
        if last is None or lambda_ is None:
            with holding(held, optimum):
                last = self._exact_equations()
                lambda_ = self._multipliers(last, doubts, pulled_back(last.structure, pulled, numbers))
        found = AdjointPass(self.graph, last.structure, lambda_, numbers).gradients(self.inputs, pulled)
        return [found[one] for one in self.inputs]

    def _last_equations(
        self, values: Sequence[np.ndarray], estimates: Sequence[np.ndarray]
    ) -> ExactEquations | None:
        """Those of the last `solve` with their factor, if it was of these and nothing has changed since."""
        end = self._end
        if end is None or end.use is not last_use(self.graph) or self.settings.gradient != "implicit":
            return None
        pairs = zip((*end.values, *end.estimates), (*values, *estimates), strict=True)
        is_same = all(now is then or np.array_equal(now, then) for then, now in pairs)
        return end.equations() if is_same and end.graph == self._state_of_graph() else None

    def _state_of_graph(self) -> tuple[object, ...]:
        """Another one where anything is new that the optimum depends on, inputs and estimates aside."""
        given = {(one.rows, one.column) for one in self.inputs}
        graph, fingerprints = self.graph, []
        for sets, columns in zip(
            (graph.vertex_sets, graph.edge_sets, graph.parameter_sets), _COLUMNS, strict=True
        ):
            fingerprints += [
                one.fingerprint(column)
                for one in sets
                for column in columns
                if one.has(column) and (one, column) not in given
            ]
        return graph.version, *fingerprints

    def _multipliers(self, equations: ExactEquations, doubts: Doubts, v: np.ndarray) -> np.ndarray:
        """lambda of K lambda = v."""
        if isinstance(equations, HostEquations) and self.settings.gradient == "truncated":
            lambda_ = self._truncated(equations, v)
            self.settings.tell(doubts, equations.why_not_definite)
            return lambda_
        equations.linearize()
        self.settings.tell(doubts, equations.why_not_definite)
        found = equations.factorize(v, self.settings.singular == "damp")
        if found is None:
            raise GradientError(equations.why_not_definite())
        return found

    def _truncated(self, equations: HostEquations, v: np.ndarray) -> np.ndarray:
        """inv(H) sum_i (I - K inv(H))^i v with Gauss-Newton's H, i < steps."""
        solver = equations.solver
        equations.linearize()
        exact = solver.values.copy()
        solver.refresh()
        solver.linearize()
        rest, total = v, np.zeros(len(v))
        for step in range(self.settings.steps):
            moved = equations.factorize(rest, self.settings.singular == "damp") if step == 0 else None
            if step == 0 and moved is None:
                raise GradientError(f"Gauss-Newton's H is not definite. {equations.why_not_definite()}")
            moved = equations.solve_again(rest) if moved is None else moved
            total = total + moved
            rest = rest - equations.product(exact, moved)
        return total

    def _exact_equations(self) -> ExactEquations:
        """Of the graph as it is now."""
        options = self.options
        chosen = {name: options[name] for name in _SELECTING if name in options}
        selection = self.graph.select(**chosen)
        selection, _ = fix_gauge(self.graph, selection, options.get("fix", "auto"))
        asked = SolverOptions(**{name: options[name] for name in _SOLVER_FIELDS if name in options})
        asked = configured(asked)
        solver = prepared_solver(self.graph, selection, asked, {"analyze": 0.0, "prepare": 0.0})
        known = _equations.get(self.graph)
        if capabilities_of(solver).second_order and self.settings.gradient == "implicit":
            double: Any = solver.in_double() or solver
            exact = double.in_second_order()
            if exact is not None:
                return self._kept(known, exact, DeviceEquations)
        if not isinstance(solver, CpuBlockSolver):
            if isinstance(known, HostEquations) and known.structure is solver.structure:
                known.solver.refresh()
                known.refresh()
                return known
            plain = replace(asked, device="cpu", precision="auto", schedule="auto", work_queues="auto")
            solver = CpuBlockSolver(self.graph, solver.structure, plain)
        return self._kept(known, solver, HostEquations)

    def _kept(self, known: Any, solver: Any, kind: type[Any]) -> Any:
        """The last ones with the present numbers, if they are this solver's."""
        if isinstance(known, kind) and known.solver is solver:
            known.refresh()
            return known
        made = _equations[self.graph] = kind(self.graph, solver)
        return made


_equations: WeakKeyDictionary[Graph, ExactEquations] = WeakKeyDictionary()
"""The last ones of each graph."""


def _forget(graph: Graph) -> None:
    _equations.pop(graph, None)


on_forget(_forget)
