"""A block solver for graphs with vertices and edges that are defined in Python.

It passes everything to the block solver of the other edges, on whatever device that is, and adds the parts of
the Python edges to its H and b:

    H_ij += J_i' w Omega J_j,    b_i -= J_i' w Omega e,    chi2 += rho(e' Omega e)

Their places in H are those of the placeholder edges of `lists`. Vertices with their own `oplus_impl` are
moved by it. Estimates of these edges' vertices go to the objects before Python code runs. Information
matrices of plane-to-plane GICP edges are set before each evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import Stopped
from graphopt.g2o.elements.numeric_jacobians import numeric_jacobians
from graphopt.g2o.engine.lists import EdgeList
from graphopt.g2o.engine.problem import Problem
from graphopt.optimizer.signals import UsersCode
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.added import AddedEdgesSolver
from graphopt.solver.capabilities import Capabilities, capabilities_of
from graphopt.solver.external import ExternalPlaces
from graphopt.solver.trial import Damping, DefaultTrial, Trial
from graphopt.types.robust_kernels import robust_kernel


class PythonEdgeSolver(AddedEdgesSolver):
    """Implements `BlockSolver` around another one."""

    def __init__(self, inner: Any, problem: Problem):
        self._problem = problem
        self._edges = PythonEdges(inner.structure, problem)
        super().__init__(inner, self._edges.places)
        self.capabilities = Capabilities(linear_system=capabilities_of(inner).linear_system)
        self._planes = [
            edge_list for edge_list in problem.edge_lists if edge_list.has_planes and len(edge_list.active)
        ]
        self._is_interrupted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def linearize(self) -> float:
        """H, b and robust chi2 of all edges; a device computes its part meanwhile."""
        self._set_plane_information()
        return super().linearize()

    def _added(self) -> tuple[float, np.ndarray, np.ndarray]:
        with self._users_code():
            return self._edges.linearize()

    def chi2(self) -> float:
        """Robust chi2 of all edges.

        After Ctrl-C the last one that is known, without asking the program's slow code again.
        """
        if self._is_interrupted:
            return self._chi2
        self._set_plane_information()
        return super().chi2()

    def _added_chi2(self) -> float:
        with self._users_code():
            return self._edges.chi2()

    @contextmanager
    def _users_code(self) -> Iterator[None]:
        """Around code of the program: Ctrl-C is raised there at once."""
        try:
            with UsersCode():
                yield
        except (KeyboardInterrupt, Stopped):
            self._is_interrupted = True
            raise

    def _bring_estimates(self) -> None:
        """Bring the estimates to the objects for Python code."""
        if self._edges.places.vertices:
            self._external.read_estimates()
            self._edges.give_estimates()

    def _set_plane_information(self) -> None:
        if self._planes:
            self._inner.finish()
            for edges in self._planes:
                edges.set_plane_information(self._problem.graph)
            self._inner.refresh()

    # ---------------------------------------------------------------- steps

    def trial(self, damping: Damping) -> Trial:
        """In one piece where Python only evaluates edges."""
        if self._edges.moved or self._planes:
            return DefaultTrial.trial(self, damping)
        return super().trial(damping)

    def move(self) -> Trial:
        """In one piece where Python only evaluates edges."""
        if self._edges.moved or self._planes:
            return DefaultTrial.move(self)
        return super().move()

    def update(self) -> None:
        """Move all vertices."""
        if self._edges.moved:
            self._bring_estimates()
        self._inner.update()
        for number, rows in self._edges.moved.items():
            with self._users_code():
                self._edges.move(number, rows, self._inner.dx)
            self._external.write_estimates(number, rows)


class PythonEdges:
    """The edges and vertices of a problem that are defined in Python, and their places in H and b."""

    def __init__(self, structure: Structure, problem: Problem):
        lists = {id(edge_list.edge_set): edge_list for edge_list in problem.edge_lists}
        self._structure = structure
        self.groups: list[tuple[EdgeGroup, EdgeList]] = [
            (group, lists[id(group.edge_set)]) for group in structure.external
        ]
        sets = structure.selection.vertex_sets
        self._lists = {
            sets.index(vertex_list.vertex_set): vertex_list for vertex_list in problem.vertex_lists
        }
        self.moved: dict[int, np.ndarray] = {}
        """Number of a vertex set -> rows of optimized vertices with an `oplus_impl` of their own."""
        for number, list_ in self._lists.items():
            offsets = structure.vertex_offsets[number]
            rows = np.array([row for row in list_.is_python if offsets[row] >= 0], np.int64)
            if len(rows):
                self.moved[number] = rows
        self._starts: dict[int, int] = {}
        """First scalar of a block of H -> its first number in what `linearize` returns."""
        self._first: dict[int, int] = {}
        """First scalar of a segment of b -> its first number in what `linearize` returns."""
        self.places = ExternalPlaces(self._vertices(), self._value_places(), self._b_places())

    # ---------------------------------------------------------------- places

    def _slots(self) -> Iterator[tuple[int, np.ndarray]]:
        for group, _ in self.groups:
            for slot, number in enumerate(group.vertex_sets):
                yield number, group.vertex_rows[:, slot]

    def _vertices(self) -> dict[int, np.ndarray]:
        rows: dict[int, list[np.ndarray]] = {}
        for number, some in (*self._slots(), *self.moved.items()):
            rows.setdefault(number, []).append(some)
        return {number: np.unique(np.concatenate(some)).astype(np.int64) for number, some in rows.items()}

    def _value_places(self) -> np.ndarray:
        sizes: dict[int, int] = {}
        for group, _ in self.groups:
            dims = [vertex.tangent_dim for vertex in group.edge_set.type.vertices]
            pairs = combinations_with_replacement(dims, 2)
            for column, (rows, columns) in zip(group.block_offset.T, pairs, strict=True):
                sizes.update((int(at), rows * columns) for at in np.unique(column[column >= 0]))
        return _places(sizes, self._starts)

    def _b_places(self) -> np.ndarray:
        sizes: dict[int, int] = {}
        for number, rows in self._slots():
            offsets = self._structure.vertex_offsets[number][rows]
            dim = self._structure.selection.vertex_sets[number].type.tangent_dim
            sizes.update((int(at), dim) for at in np.unique(offsets[offsets >= 0]))
        return _places(sizes, self._first)

    # ---------------------------------------------------------------- estimates

    def give_estimates(self) -> None:
        """Graph -> objects, of the vertices that Python looks at."""
        for number, rows in self.places.vertices.items():
            vertices = self._lists[number]
            for row, estimate in zip(rows.tolist(), vertices.vertex_set.estimate[rows], strict=True):
                vertex = vertices.objects[row]
                vertex._chunk.estimate[vertex._row] = estimate

    def move(self, number: int, rows: np.ndarray, dx: np.ndarray) -> None:
        """Move vertices, from where their objects are, by `oplus_impl`; objects -> graph."""
        vertices, offsets = self._lists[number], self._structure.vertex_offsets[number]
        for row in rows.tolist():
            kernels.check_stop()
            vertex, offset = vertices.objects[row], int(offsets[row])
            vertex.oplus_impl(dx[offset : offset + vertex.dimension()].copy())
            vertices.vertex_set.estimate[row] = vertex._chunk.estimate[vertex._row]

    # ---------------------------------------------------------------- evaluation

    def _pairs(self) -> Iterator[tuple[EdgeGroup, int, Any]]:
        for group, edges in self.groups:
            for place, row in enumerate(group.rows.tolist()):
                kernels.check_stop()
                yield group, place, edges.objects[row]

    def chi2(self) -> float:
        """Robust chi2 at the objects' estimates."""
        total = 0.0
        for _, _, edge in self._pairs():
            edge.compute_error()
            total += _robust(edge)[0]
        return total

    def linearize(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Robust chi2, and what the edges add to H and b at `places`, summed in the order of the edges."""
        values, b = np.zeros(len(self.places.values)), np.zeros(len(self.places.b))
        total = 0.0
        for group, place, edge in self._pairs():
            total += self._add(group, place, edge, values, b)
        return total, values, b

    def _add(self, group: EdgeGroup, place: int, edge: Any, values: np.ndarray, b: np.ndarray) -> float:
        """Add one edge; returns rho(chi2)."""
        edge.compute_error()
        edge._jacobians = None
        edge.linearize_oplus()
        if edge._jacobians is None:  # an override that leaves it to g2o
            edge._jacobians = numeric_jacobians(edge)
        chi2, weight = _robust(edge)
        weighted = weight * edge._chunk.information[edge._row]
        error = edge._chunk.error[edge._row]
        jacobians = edge._jacobians
        for slot, jacobian in enumerate(jacobians):
            offsets = self._structure.vertex_offsets[group.vertex_sets[slot]]
            offset = int(offsets[group.vertex_rows[place, slot]])
            if offset >= 0:
                first = self._first[offset]
                b[first : first + jacobian.shape[1]] -= jacobian.T @ (weighted @ error)
        for pair, (i, j) in enumerate(combinations_with_replacement(range(len(jacobians)), 2)):
            at = int(group.block_offset[place, pair])
            if at < 0:
                continue
            block = jacobians[i].T @ weighted @ jacobians[j]
            if group.block_transposed[place, pair]:
                block = block.T
            first = self._starts[at]
            values[first : first + block.size] += block.ravel(order="F")
        return chi2


def _places(sizes: dict[int, int], starts: dict[int, int]) -> np.ndarray:
    """All scalars of pieces (first scalar -> length), piece after piece; `starts`: where each begins."""
    pieces, count = [np.empty(0, np.int64)], 0
    for at, size in sorted(sizes.items()):
        starts[at] = count
        pieces.append(np.arange(at, at + size))
        count += size
    return np.concatenate(pieces)


def _robust(edge: Any) -> tuple[float, float]:
    """(rho, weight) of an edge's last error."""
    chi2 = edge.chi2()
    number, width = (0, 1.0) if edge._kernel is None else edge._kernel._for_solver()
    if not number:
        return chi2, 1.0
    value, weight = robust_kernel(number).function(chi2, width)
    return float(value), float(weight)


def needs_python(problem: Problem) -> bool:
    """Some active edge or vertex is defined in Python, or its information follows from the estimates."""
    return problem.may_need_python and (
        has_planes(problem)
        or any(edge_list.is_python and len(edge_list.active) for edge_list in problem.edge_lists)
        or any(vertex_list.is_python for vertex_list in problem.vertex_lists)
    )


def has_planes(problem: Problem) -> bool:
    """Active edges have information matrices that follow from the estimates."""
    return problem.may_need_python and any(
        edge_list.has_planes and len(edge_list.active) for edge_list in problem.edge_lists
    )
