"""`Online`: a graph that grows, and is kept solved.

    chi2(x) = sum of e' W Omega e,    b = -J' W Omega e at x,    x <- x oplus (L L')^-1 b

L L' is the factor of H, renewed where the graph changes and where H has changed. What a step would miss is
known from those before it; while that is a small part of chi2 vertices do not move, and where they are
follows from the factor (native/src/online/session.h). |L^-1 b|^2 is the decrease that a step predicts.
Reference: Kaess et al., iSAM2: Incremental smoothing and mapping using the Bayes tree, IJRR 2012.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceError, GraphError, OptionError, UnknownIdError
from graphopt.graph import Graph
from graphopt.graph.bounds import constraints_of
from graphopt.host_memory import memory_for
from graphopt.online.additions import CheckedEdges, Edges, Vertices, as_edges, as_vertices
from graphopt.online.changes import NO_IDS, Changes, checked_changes
from graphopt.online.frames import world_of_body
from graphopt.online.kinds import EdgeRows, Kinds
from graphopt.online.report import OnlineReport, Snapshot
from graphopt.optimizer.optimize import optimize
from graphopt.option_names import ROBUST
from graphopt.problem.gauge import choose_gauge
from graphopt.suggestions import knowing_options, knows_its_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ABSOLUTE = 1e-9
"""Predicted decrease that is rounding, whatever chi2 is."""
_CUT = 0.03
"""Share of the tolerated decrease that the steps which are left out may have together."""
_FULL_CHECK = 200
"""Updates after which the gradient of all vertices is looked at, not only near what changed."""


_REVIEW_GROWTH = 2
"""Closures, times those at the last review, at which all of them are judged anew."""
_FIRST_REVIEW = 16
"""Closures at the first review."""
_ANY_KERNEL = 1
"""Of an edge that may be wrong: only its width counts."""


def _too_large() -> str:
    return (
        "an Online needs more than the system gives; it is as it was before the call. A lag, or "
        "update(marginalize=...), bounds what it needs; dropped snapshots give memory back."
    )


class Online:
    """A least-squares problem over a graph to which vertices and edges are added while it is solved.

    graph: what it begins with; it is copied. Of each part that nothing holds one vertex is fixed, as
    `Graph.optimize` does. Parts that are added later have to be determined by their edges or by `fix`.
    tolerance: predicted decrease that an update may leave, relative to chi2.
    max_iterations: steps of an update at most; what is left goes on in the next one.
    lag: vertices to which no edge has been added for so many updates are marginalized; None: never.
    robust: "graduated": edges with a robust kernel may be wrong, as those with `Edges.closure`, and so may
    edges of `graph` between ids that are no neighbours, if none has a kernel. "kernels": as they are.
    device: "cpu".

    Two calls at the same time take turns. The same sequence of calls gives the same bits, for any number of
    threads, as long as no budget ends an update.
    """

    @knows_its_options
    def __init__(
        self,
        graph: Graph | None = None,
        *,
        device: str = "cpu",
        tolerance: float = 5e-4,
        max_iterations: int = 10,
        lag: int | None = None,
        robust: str = "kernels",
    ):
        if device not in ("cpu", "auto"):
            raise DeviceError(f"device is '{device}': Online computes on the CPU. Use device='cpu'.")
        if not 0.0 < tolerance < 1.0:
            raise OptionError(f"tolerance is {tolerance}, expected a number between 0 and 1, such as 5e-4.")
        if max_iterations < 1:
            raise OptionError(f"max_iterations is {max_iterations}, expected 1 or more.")
        if lag is not None and lag < 1:
            raise OptionError(f"lag is {lag}, expected 1 update or more, or None.")
        if robust not in ROBUST:
            raise OptionError(f"robust is {robust!r}, expected one of {', '.join(ROBUST)}.")
        self._options = {
            "tolerance": tolerance,
            "max_iterations": max_iterations,
            "lag": lag,
            "robust": robust,
        }
        self._kernels_are_bounds = robust == "graduated"
        self._lag = lag
        self._session = kernels.OnlineSession()
        self._kinds = Kinds(self._session)
        self._budget: float | None = -1.0  # of the session; none yet
        self._set_budget(None)
        self._updates = 0
        self._closures, self._next_review = 0, _FIRST_REVIEW
        self._ages: dict[int, int] = {}
        """With a lag: update in which each free vertex got its last edge, oldest first."""
        if graph is not None:
            self._take(graph)

    # ---------------------------------------------------------------- updates

    @knowing_options(Changes.__annotations__)
    @memory_for(_too_large)
    def update(
        self,
        vertices: Vertices | Iterable[Any] | None = None,
        edges: Edges | Iterable[Any] | None = None,
        *,
        budget: float | None = None,
        **changes: Unpack[Changes],
    ) -> OnlineReport:
        """Change the graph and bring the estimates up to date: all of it, or nothing.

        vertices, edges: to add, `Vertices` and `Edges` or tuples of their fields, one or several.
        budget: seconds into which steps have to fit; an update that changes nothing takes one, however long
        it is. Without it, and without a lag, all closures are judged at once whenever their number has
        doubled, see `batch`.
        changes: what else changes, see `Changes`: remove, replace, switch_off, switch_on, trust (edges); fix,
        free, remove_vertices, marginalize (vertices).

        Raises `GraphError` for an unknown id or handle, numbers that are not finite, and directions that no
        edge determines, which are named by the vertices that can move. Then nothing has changed, to the bit.
        """
        new_vertices = [one.checked() for one in as_vertices(vertices)]
        new_edges = [one.checked(self._kernels_are_bounds) for one in as_edges(edges)]
        self._set_budget(budget)
        ids = checked_changes(changes) if changes else {}
        old = self._left_behind(new_edges, ids.get("marginalize", NO_IDS)) if self._lag is not None else []
        if old:
            ids["marginalize"] = np.concatenate([ids.get("marginalize", NO_IDS), np.array(old, np.int64)])
        kinds = self._kinds
        parts = [kinds.rows(one) for one in new_edges]
        try:
            numbers, firsts = self._session.update(
                [
                    (kinds.vertex_kind(kind), own, kinds.encode(kind, estimates), fixed)
                    for kind, own, estimates, fixed in new_vertices
                ],
                [rows for part in parts for _, rows in part],
                ids,
                [self._replacement(handle, what) for handle, what in changes.get("replace", ())],
            )
        except kernels.OnlineRefused as error:
            raise GraphError(str(error)) from None
        self._note(new_vertices, new_edges, ids)
        report = OnlineReport.of(numbers, _handles(parts, firsts), tuple(old))
        is_due = self._closures >= self._next_review and budget is None and self._lag is None
        return self._reviewed(report) if is_due else report

    @memory_for(_too_large)
    def batch(self) -> OnlineReport:
        """The exact answer: Gauss-Newton from the present estimates until nothing is left to gain.

        Closures are judged anew before, all at once, as `optimize(robust="graduated")` does; not where
        marginalized vertices have left priors, which it does not know.
        """
        self._set_budget(None)
        judged = None if self._session.priors() else self._judged()
        with self._transaction():
            if judged is not None:
                self._decide(*judged)
            found = self._session.commit(True)
        return OnlineReport.of(found, (), ())

    def add_parameters(self, parameter_type: Any, ids: Any, values: Any) -> None:
        """Add parameters that edges refer to, as `Graph.add_parameters` does; not part of an update."""
        self._kinds.add_parameters(parameter_type, ids, values)

    # ---------------------------------------------------------------- answers

    @memory_for(_too_large)
    def estimate(self, ids: Any) -> np.ndarray:
        """(n, storage_dim) estimates of vertices of one type, or (storage_dim,) of one id.

        Raises `UnknownIdError` for an id that is not there.
        """
        wanted = np.atleast_1d(np.asarray(ids, np.int64))
        if len(wanted) == 0:
            return np.empty((0, 0))
        number = self._kind_of(int(wanted[0]))
        try:
            working = self._session.estimates(number, wanted)
        except kernels.OnlineRefused as error:
            raise UnknownIdError(str(error)) from None
        found = self._kinds.decode(self._kinds.vertex_types[number], working)
        return found[0] if np.ndim(ids) == 0 else found

    @memory_for(_too_large)
    def estimates(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Per tag of a vertex type ids (n,) and estimates (n, storage_dim) of all vertices."""
        found = {}
        for kind, (ids, working, _) in zip(self._kinds.vertex_types, self._session.vertices(), strict=True):
            found[kind.tag] = (ids, self._kinds.decode(kind, working))
        return found

    @memory_for(_too_large)
    def marginals(self, ids: Any = None, *, others: Any = None, relinearize: bool = True) -> Any:
        """Covariances in the tangent space, each vertex's rows in the order of its oplus.

        ids: one id or several: the joint covariance (d, d) of these vertices. With `others` the
        cross-covariance between `ids` (rows) and `others` (columns). None: all vertices, per tag of their
        type ids (n,) and diagonal blocks (n, d, d).
        relinearize: at the present estimates, as batch gives them; False: of the factor as it is, at
        estimates of up to some updates before.

        Covariances are conditional on the fixed vertices. Raises `GraphError` for one of them.
        """
        session = self._session
        try:
            if ids is None:
                return {
                    kind.tag: self._all_marginals(number, relinearize)
                    for number, kind in enumerate(self._kinds.vertex_types)
                }
            rows = np.atleast_1d(np.asarray(ids, np.int64))
            columns = rows if others is None else np.atleast_1d(np.asarray(others, np.int64))
            found = np.asarray(session.covariance(rows, columns, relinearize))
            left = self._basis(rows)
            right = left if others is None else self._basis(columns)
            return found if left is None and right is None else _product(left, found, right)
        except kernels.OnlineRefused as error:
            raise GraphError(str(error)) from None

    def outliers(self) -> tuple[np.ndarray, np.ndarray]:
        """Closures that are taken for outliers, without weight: handles (n,), how far out they are (n,).

        That is chi2 of the edge at the present estimates over the bound above which it is an outlier. Later
        edges may bring it back; `update(trust=...)` does so for good.
        """
        return self._session.outliers()

    @property
    @memory_for(_too_large)
    def chi2(self) -> float:
        """Robustified chi2 at the present estimates, evaluated."""
        return self._session.chi2

    @property
    def num_edges(self) -> int:
        """Edges, with those that are switched off and priors of marginalized vertices."""
        return self._session.num_edges

    @property
    def memory_bytes(self) -> int:
        """Memory of the factor and of what snapshots keep."""
        return self._session.memory_bytes

    def __len__(self) -> int:
        """Number of vertices."""
        return self._session.num_vertices

    def __contains__(self, vertex_id: int) -> bool:
        return self._session.has_vertex(vertex_id)

    def __repr__(self) -> str:
        return f"Online({len(self)} vertices, {self.num_edges} edges, chi2 {self.chi2:.6g})"

    @memory_for(_too_large)
    def graph(self) -> Graph:
        """A graph of the same vertices, edges that count, and parameters; without priors."""
        if self._session.priors():
            raise GraphError("Marginalized vertices left priors, which no edge of a graph expresses.")
        return self._graph(self._session.edges(), False)

    def _graph(self, parts: list[Any], with_closures: bool) -> Graph:
        """A graph of the session's edges; with_closures: also outliers, with kernels for bounds."""
        found = self._kinds.parameters.copy()
        for kind, (ids, working, fixed) in zip(
            self._kinds.vertex_types, self._session.vertices(), strict=True
        ):
            found.add_vertices(kind, ids, self._kinds.decode(kind, working), fixed=fixed.astype(bool))
        for number, (_, vertices, parameters, data, off, _, bounds, outlier) in enumerate(parts):
            kind, _, kernel = self._kinds.edge_kinds[number]
            measurement, information, width = self._kinds.unpacked(number, data)
            on = (off == 0) & (with_closures | (outlier == 0))
            kernels = np.full(len(off), kernel)
            if with_closures:
                kernels[bounds > 0.0] = _ANY_KERNEL
                width = np.where(bounds > 0.0, np.sqrt(bounds), width)
            own = self._kinds.parameter_ids(kind, parameters[on])
            found.add_edges(
                kind,
                vertices[on],
                measurement[on],
                information[on],
                kernel=kernels[on],
                kernel_width=width[on],
                parameters=own,
            )
        return found

    def _reviewed(self, report: OnlineReport) -> OnlineReport:
        """All closures judged at once, if one of them is an outlier."""
        self._next_review = _REVIEW_GROWTH * self._closures
        before = self.outliers()[0]
        if not len(before):
            return report
        found = self.batch()
        after = self.outliers()[0]
        return dataclasses.replace(
            found,
            handles=report.handles,
            outliers=np.union1d(np.setdiff1d(after, before), np.intersect1d(after, report.outliers)),
            restored=np.union1d(np.setdiff1d(before, after), np.setdiff1d(report.restored, after)),
        )

    def _judged(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, Graph] | None:
        """Closures judged at once: handles, bounds, outliers, the graph at the end; None: there are none."""
        parts = self._session.edges()
        if not any((bounds > 0.0).any() for *_, bounds, _ in parts):
            return None
        graph = self._graph(parts, True)
        handles: dict[str, list[np.ndarray]] = {}
        bound_of = {}
        for number, (own, _, _, _, off, _, bounds, _) in enumerate(parts):
            handles.setdefault(self._kinds.edge_kinds[number][0].tag, []).append(own[off == 0])
            bound_of |= dict(zip(own[bounds > 0.0].tolist(), bounds[bounds > 0.0].tolist(), strict=True))
        rows = {tag: np.concatenate(own) for tag, own in handles.items()}
        left_out = [rows[tag][row] for tag, row in optimize(graph, robust="graduated").outliers]
        closures = np.array(list(bound_of), np.int64)
        return closures, np.array(list(bound_of.values())), np.isin(closures, left_out), graph

    def _decide(self, handles: np.ndarray, bounds: np.ndarray, outliers: np.ndarray, graph: Graph) -> None:
        self._session.decide(handles, bounds, outliers)
        for vertex_set in graph.vertex_sets:
            ids = np.array(vertex_set.ids, np.int64)
            estimates = self._kinds.encode(vertex_set.type, np.asarray(vertex_set.estimate))
            self._session.set_estimates(self._kinds.vertex_kind(vertex_set.type), ids, estimates)

    # ---------------------------------------------------------------- versions

    def snapshot(self) -> Snapshot:
        """The present state, in constant time; `restore` returns to it, as often as one likes."""
        ages = None if self._lag is None else dict(self._ages)
        reviews = (self._closures, self._next_review)
        return Snapshot(self._session, self._session.snapshot(), ages, reviews)

    def restore(self, snapshot: Snapshot) -> None:
        """Take back all updates since the snapshot, to the bit. Later snapshots are gone.

        Takes as long as writing back what has changed.
        """
        if snapshot._session is not self._session:
            raise GraphError("This snapshot was taken of another Online.")
        try:
            self._session.restore(snapshot._number)
        except kernels.OnlineRefused as error:
            raise GraphError(str(error)) from None
        self._closures, self._next_review = snapshot._reviews
        if snapshot._ages is not None:
            self._ages = dict(snapshot._ages)

    def __getstate__(self) -> dict[str, Any]:
        """Vertices, edges with their handles, and priors; the factor is made again."""
        session, kinds = self._session, self._kinds
        return {
            "options": self._options,
            "parameters": kinds.parameters,
            "vertex_types": kinds.vertex_types,
            "edge_kinds": kinds.edge_kinds,
            "vertices": session.vertices(),
            "edges": session.edges(),
            "priors": session.priors(),
            "next_handle": session.next_handle,
            "updates": self._updates,
            "ages": self._ages,
            "reviews": (self._closures, self._next_review),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(None, **state["options"])
        session, kinds = self._session, self._kinds
        for parameter_set in state["parameters"].parameter_sets:
            self.add_parameters(parameter_set.type, parameter_set.ids, parameter_set.values)
        session.begin()
        for kind, (ids, working, fixed) in zip(state["vertex_types"], state["vertices"], strict=True):
            session.add_vertices(kinds.vertex_kind(kind), ids, working, fixed.astype(bool))
        for key, (handles, vertices, parameters, data, off, _, bounds, outlier) in zip(
            state["edge_kinds"], state["edges"], strict=True
        ):
            session.put_edges(handles, kinds.edge_kind(*key), vertices, parameters, data)
            session.decide(handles, bounds, outlier != 0)
            session.switch_edges(handles[off != 0], True)
        for handle, ids, origin, H, b, constant, off in state["priors"]:
            session.put_prior(handle, ids, origin, H, b, constant)
            if off:
                session.switch_edges(np.array([handle]), True)
        session.next_handle = state["next_handle"]
        session.set(self._options["tolerance"], _ABSOLUTE, _CUT, 0, _FULL_CHECK, 0.0)
        self._budget = -1.0
        session.commit(False)
        self._updates, self._ages = state["updates"], state["ages"]
        self._closures, self._next_review = state["reviews"]

    # ---------------------------------------------------------------- inside

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Changes of the session, which an error takes back; what the session refuses is a `GraphError`."""
        self._session.begin()
        try:
            yield
        except BaseException as error:
            self._session.abort()
            if isinstance(error, kernels.OnlineRefused):
                raise GraphError(str(error)) from None
            raise

    def _set_budget(self, budget: float | None) -> None:
        if budget is not None and not (isinstance(budget, Real) and budget > 0.0):
            raise OptionError(f"budget is {budget!r}, expected seconds above 0, or None.")
        if budget != self._budget:
            tolerance, most = self._options["tolerance"], self._options["max_iterations"]
            self._session.set(tolerance, _ABSOLUTE, _CUT, most, _FULL_CHECK, budget or 0.0)
            self._budget = budget

    def _kind_of(self, vertex_id: int) -> int:
        try:
            return self._session.kind_of(vertex_id)
        except kernels.OnlineRefused as error:
            raise UnknownIdError(str(error)) from None

    def _all_marginals(self, number: int, relinearize: bool) -> tuple[np.ndarray, np.ndarray]:
        kind = self._kinds.vertex_types[number]
        ids, blocks = self._session.all_covariances(number, relinearize)
        basis = world_of_body(kind, self.estimate(ids)) if len(ids) else None
        return ids, blocks if basis is None else basis @ blocks @ basis.transpose(0, 2, 1)

    def _basis(self, ids: np.ndarray) -> np.ndarray | None:
        """The tangents of these vertices in those that a session computes with; None: the same."""
        kinds = [self._kinds.vertex_types[self._kind_of(int(id_))] for id_ in ids]
        blocks = [world_of_body(kind, self.estimate([id_])) for kind, id_ in zip(kinds, ids, strict=True)]
        if all(block is None for block in blocks):
            return None
        dims = [kind.tangent_dim for kind in kinds]
        basis = np.eye(sum(dims))
        for first, dim, block in zip(np.cumsum([0, *dims[:-1]]), dims, blocks, strict=True):
            if block is not None:
                basis[first : first + dim, first : first + dim] = block[0]
        return basis

    def _replacement(self, handle: int, changes: dict[str, Any]) -> tuple[int, EdgeRows]:
        """Handle and rows of an edge as it is to be."""
        unknown = set(changes) - {"measurement", "information", "kernel", "kernel_width"}
        if unknown:
            raise OptionError(
                f"replace: {', '.join(sorted(unknown))} cannot be replaced; expected measurement, "
                "information, kernel or kernel_width."
            )
        try:
            number, vertices, parameters, data = self._session.edge(handle)
        except kernels.OnlineRefused as error:
            raise GraphError(str(error)) from None
        if number < 0:
            raise GraphError(
                f"Edge {handle} is the prior of marginalized vertices; it can be removed or switched off, "
                "not replaced."
            )
        kind, _, kernel = self._kinds.edge_kinds[number]
        measurement, information, width = self._kinds.unpacked(number, data[None])
        changed = Edges(
            kind,
            vertices[None],
            changes.get("measurement", measurement),
            changes.get("information", information),
            changes.get("kernel", kernel),
            changes.get("kernel_width", width),
            self._kinds.parameter_ids(kind, parameters[None]),
            closure=self._closures > 0 and "information" in changes,  # which must not be indefinite then
        ).checked()
        ((_, rows),) = self._kinds.rows(changed)
        return handle, rows

    def _take(self, graph: Graph) -> None:
        _require_supported(graph)
        for parameter_set in graph.parameter_sets:
            self.add_parameters(parameter_set.type, parameter_set.ids, parameter_set.values)
        gauge = {}
        if any(len(edge_set) for edge_set in graph.edge_sets):
            for number, row in choose_gauge(graph, selection := graph.select()):
                gauge.setdefault(id(selection.vertex_sets[number]), []).append(row)
        has_kernels = any(edge_set.look("kernel").any() for edge_set in graph.edge_sets)
        if self._kernels_are_bounds:  # all decisions at once need more than one after the other
            graph = graph.copy()
            optimize(graph, robust="graduated")
        vertices, edges = [], []
        for vertex_set in graph.vertex_sets:
            fixed = np.array(vertex_set.fixed)
            fixed[gauge.get(id(vertex_set), [])] = True
            vertices.append(Vertices(vertex_set.type, vertex_set.ids, vertex_set.estimate, fixed))
        for edge_set in graph.edge_sets:
            own = np.flatnonzero(edge_set.level == 0)
            ids = edge_set.vertices[own]
            is_closure = (
                self._kernels_are_bounds and not has_kernels and ids.max(axis=1) - ids.min(axis=1) > 1
            )
            edges.append(
                Edges(
                    edge_set.type,
                    ids,
                    edge_set.measurement[own],
                    edge_set.information[own],
                    edge_set.kernel[own],
                    edge_set.kernel_width[own],
                    edge_set.parameters[own] if edge_set.type.parameters else None,
                    is_closure,
                )
            )
        self.update(vertices, edges)

    def _note(self, vertices: list[Any], edges: list[CheckedEdges], ids: dict[str, np.ndarray]) -> None:
        """Count an update that was made."""
        self._updates += 1
        if self._lag is not None:
            gone = [ids[name] for name in ("marginalize", "remove_vertices") if name in ids]
            self._note_ages(vertices, edges, gone)
        for one in edges:
            self._closures += 0 if one.bounds is None else int((one.bounds > 0.0).sum())

    def _left_behind(self, edges: list[CheckedEdges], marginalized: np.ndarray) -> list[int]:
        """Ids of the vertices that the lag marginalizes in this update, beside `marginalized`."""
        seen = {id_ for one in edges for id_ in one.vertices.ravel().tolist()}
        seen.update(marginalized.tolist())
        found = []
        for id_, age in self._ages.items():
            if age > self._updates - (self._lag or 0):
                break
            if id_ not in seen:
                found.append(id_)
        return found

    def _note_ages(self, vertices: list[Any], edges: list[CheckedEdges], gone: list[np.ndarray]) -> None:
        for ids in gone:
            for id_ in ids.tolist():
                self._ages.pop(id_, None)
        for _, ids, _, fixed in vertices:
            for id_, is_fixed in zip(ids.tolist(), fixed.tolist(), strict=True):
                if not is_fixed:
                    self._ages[id_] = self._updates
        for one in edges:
            for id_ in one.vertices.ravel().tolist():
                if self._ages.pop(id_, None) is not None:
                    self._ages[id_] = self._updates


def _require_supported(graph: Graph) -> None:
    constraints = constraints_of(graph)
    if constraints is not None:
        raise GraphError(f"Online does not keep to {constraints}: remove them, or use graphopt.optimize.")
    if any(vertex_set.holds_components for vertex_set in graph.vertex_sets):
        raise GraphError(
            "Online does not hold single components of vertices (`Graph.hold`): fix the vertices, or add "
            "edges that hold them."
        )


def _handles(parts: list[list[tuple[Any, EdgeRows]]], firsts: list[int]) -> tuple[np.ndarray, ...]:
    """Handles of the edges of each entry, from the first one of each of its parts."""
    found, numbers = [], iter(firsts)
    for part in parts:
        if len(part) == 1:
            first = next(numbers)
            found.append(np.arange(first, first + len(part[0][1][1])))
            continue
        handles = np.empty(sum(len(rows[1]) for _, rows in part), np.int64)
        for own, rows in part:
            first = next(numbers)
            handles[own] = np.arange(first, first + len(rows[1]))
        found.append(handles)
    return tuple(found)


def _product(left: np.ndarray | None, middle: np.ndarray, right: np.ndarray | None) -> np.ndarray:
    found = middle if left is None else left @ middle
    return found if right is None else found @ right.T
