"""Edges that a library evaluates on the block solver's own device: what they add to H and b is found there.

    estimates -> e, J by stored numbers (the type's function) -> rho, J_i' w Omega J_j, -J_i' w Omega e

is written once, for the arrays of any `Library`; robust kernels and derivatives of oplus are the expressions
that the compiler takes. The terms are handed over once per linearization, on the device; chi2 comes to the
host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from graphopt.codegen.second_order import oplus_jacobian
from graphopt.codegen.trace import call_with_symbols
from graphopt.codegen.workspace import workspace
from graphopt.graph import Graph
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.external import CudaPart, ExternalPlaces, Terms
from graphopt.solver.segments import Segments, places_of, vertices_of
from graphopt.symbolic import Expr, as_exprs, lift, var, variables
from graphopt.symbolic.evaluate import evaluate_with
from graphopt.types.base import VertexType
from graphopt.types.outside_functions import Library, check_linearized, check_shape
from graphopt.types.robust_kernels import robust_kernel


class AddedOnDevice:
    """Groups of edges that one library evaluates on the block solver's device."""

    def __init__(self, graph: Graph, structure: Structure, groups: Sequence[EdgeGroup], inner: Any):
        """`part` is None where the device is another one; then nothing else may be asked."""
        self._library: Library = _library_of(groups[0])
        self._sets = structure.selection.vertex_sets
        self._groups = [_Group(graph, structure, group) for group in groups]
        blocks = Segments([group.blocks for group in self._groups])
        parts = Segments([group.parts for group in self._groups])
        places = ExternalPlaces(vertices_of(groups), blocks.places, parts.places)
        ordinal = self._library.ordinal()
        terms = _terms(self._groups, blocks, parts)
        self.part: CudaPart | None = (
            None if ordinal is None else inner.external(places).on_cuda(ordinal, terms)
        )
        self._numbers = sorted({number for group in groups for number in group.vertex_sets})

    def linearize(self) -> float:
        """Add what the edges have to H and b of the last `linearize`; their robust chi2."""
        assert self.part is not None
        with self._library.active():
            estimates, total, found = self._estimates(), 0.0, []
            for group in self._groups:
                chi2, terms = group.linearize(estimates)
                total = total + chi2
                found += terms
            self.part.add(self._library.numbers(self._library.concatenate(found)))
            return float(total)

    def chi2(self) -> float:
        """Robust chi2 of the edges."""
        with self._library.active():
            estimates = self._estimates()
            return float(sum(group.chi2(estimates) for group in self._groups))

    def _estimates(self) -> dict[int, Any]:
        """By vertex set (n, storage_dim)."""
        assert self.part is not None
        found = {}
        for number in self._numbers:
            numbers = self._library.of(self.part.estimates(number))
            found[number] = _stored(self._library, self._sets[number].type, numbers)
        return found


class _Group:
    """Edges of one type."""

    def __init__(self, graph: Graph, structure: Structure, group: EdgeGroup):
        self._library = library = _library_of(group)
        self._parameter_sets, self._group, self._kind = graph.parameter_sets, group, group.edge_set.type
        self.blocks, self.parts = places_of(structure, group)
        self._rows = [library.upload(np.array(rows, np.int64)) for rows in group.vertex_rows.T]
        self._turned = [library.upload(np.array(turned)[:, None]) for turned in group.block_transposed.T]
        self._known: dict[Any, tuple[bytes, Any]] = {}

    def _there(self, one_set: Any, name: str, rows: np.ndarray, slot: int = 0) -> Any:
        """Rows of a column, uploaded where they have changed."""
        digest = one_set.fingerprint(name)
        known = self._known.get((name, slot))
        if known is None or known[0] != digest:
            known = self._known[name, slot] = digest, self._library.upload(one_set.look(name)[rows])
        return known[1]

    def _arguments(self, estimates: Mapping[int, Any]) -> list[Any]:
        """(m, dim) each: estimates, parameters, and the measurement if there is one."""
        group, sets = self._group, self._parameter_sets
        moving = [estimates[k][rows] for k, rows in zip(group.vertex_sets, self._rows, strict=True)]
        given = [
            self._there(sets[number], "values", group.parameter_rows[:, slot], slot)
            for slot, number in enumerate(group.parameter_sets)
        ]
        if self._kind.measurement_dim:
            given.append(self._there(group.edge_set, "measurement", group.rows))
        return [*moving, *given]

    def _robust(self, residual: Any) -> tuple[Any, Any, Any]:
        """(m,) rho and weight (None: 1), (m, r) Omega e."""
        library, edges, rows = self._library, self._group.edge_set, self._group.rows
        weighted = library.einsum("mij,mj->mi", self._there(edges, "information", rows), residual)
        chi2 = (weighted * residual).sum(1)
        if not self._group.kernel:
            return chi2, None, weighted
        values = {"chi2": chi2, "width": self._there(edges, "kernel_width", rows)}
        rho, weight = _evaluated(library, _kernel(self._group.kernel), values)
        return rho, weight, weighted

    def chi2(self, estimates: Mapping[int, Any]) -> Any:
        """Robust chi2 of all."""
        arguments = self._arguments(estimates)
        residual = _functions(self._group).evaluate(*arguments)
        check_shape(self._kind, "residual", residual, (len(self._group.rows), self._kind.residual_dim))
        return self._robust(residual)[0].sum()

    def linearize(self, estimates: Mapping[int, Any]) -> tuple[Any, list[Any]]:
        """Robust chi2, and the terms of H, by pair of slots and by columns, and of b, by slot."""
        library, arguments = self._library, self._arguments(estimates)
        residual, by_storage = _functions(self._group).linearize(*arguments)
        check_linearized(self._kind, len(self._group.rows), residual, by_storage)
        rho, weight, weighted = self._robust(residual)
        jacobians = [
            _by_tangent(library, block, vertex, values)
            for block, vertex, values in zip(by_storage, self._kind.vertices, arguments, strict=False)
        ]
        omega = self._there(self._group.edge_set, "information", self._group.rows)
        if weight is not None:
            omega, weighted = weight[:, None, None] * omega, weight[:, None] * weighted
        right = [library.einsum("mrs,mrt->mst", omega, jacobian) for jacobian in jacobians]
        terms = []
        for ((i, j), _, _), turned in zip(self.blocks, self._turned, strict=True):
            block = library.einsum("mra,mrb->mab", jacobians[i], right[j])
            by_rows, by_columns = (one.reshape(len(block), -1) for one in (block, block.swapaxes(1, 2)))
            terms.append(library.functions["select"](turned, by_rows, by_columns).reshape(-1))
        terms += [-library.einsum("mra,mr->ma", one, weighted).reshape(-1) for one in jacobians]
        return rho.sum(), terms


def _functions(group: EdgeGroup) -> Any:
    assert group.edge_set.type.outside is not None
    return group.edge_set.type.outside.on_device


def _library_of(group: EdgeGroup) -> Library:
    return _functions(group).library


def by_library(groups: Sequence[EdgeGroup]) -> list[list[EdgeGroup]]:
    """Groups whose functions compute on a device, those of one library together."""
    found: dict[int, list[EdgeGroup]] = {}
    for group in groups:
        if _functions(group) is not None:
            found.setdefault(id(_library_of(group)), []).append(group)
    return list(found.values())


def _terms(groups: Sequence[_Group], blocks: Segments, parts: Segments) -> Terms:
    values, b = [], []
    for group in groups:
        of_blocks, of_parts = blocks.destinations(group.blocks), parts.destinations(group.parts)
        values += [of_blocks, np.full(len(of_parts), -1)]
        b += [np.full(len(of_blocks), -1), of_parts]
    return Terms(np.concatenate(values), np.concatenate(b))


# ---------------------------------------------------------------- expressions on a library's arrays


@cache
def _kernel(number: int) -> list[Expr]:
    """rho and weight of `chi2` and `width`."""
    with workspace():
        function = robust_kernel(number).function
        found = call_with_symbols("the robust kernel", function, [var("chi2"), var("width")])
        return [lift(one) for one in found]


@cache
def _decoding(kind: VertexType) -> tuple[list[Expr], list[Expr]]:
    """Variables for a working form, and the storage."""
    assert kind.working is not None
    with workspace():
        numbers = variables("number", kind.working.dim)
        return as_exprs(numbers), as_exprs(kind.working.decode(numbers))


def _stored(library: Library, kind: VertexType, numbers: Any) -> Any:
    """(n, storage_dim) of (n, dim) numbers in working form."""
    if kind.working is None:
        return numbers
    given, storage = _decoding(kind)
    columns = _evaluated(library, storage, _columns(given, numbers))
    return library.stack(columns)


def _by_tangent(library: Library, block: Any, kind: VertexType, values: Any) -> Any:
    """(m, r, tangent_dim) of (m, r, storage_dim) derivatives at stored numbers (m, storage_dim)."""
    given, found = oplus_jacobian(kind)
    shape = kind.storage_dim, kind.tangent_dim
    if all(one.op == "const" for one in found):
        matrix = np.array([one.value for one in found], np.float64).reshape(shape)
        is_identity = shape[0] == shape[1] and bool((matrix == np.eye(shape[0])).all())
        return block if is_identity else library.einsum("mrs,st->mrt", block, library.upload(matrix))
    columns = _evaluated(library, found, _columns(given, values))
    matrices = library.stack(columns).reshape(len(values), *shape)
    return library.einsum("mrs,mst->mrt", block, matrices)


def _columns(given: Sequence[Expr], numbers: Any) -> dict[str, Any]:
    return {str(one.value): numbers[:, k] for k, one in enumerate(given)}


def _evaluated(library: Library, roots: Sequence[Expr], values: Mapping[str, Any]) -> list[Any]:
    """Expressions of columns (n,), as such."""
    zeros = 0.0 * next(iter(values.values()))
    found = evaluate_with(library.functions, library.upload, roots, values)
    return [one + zeros if one.ndim == 0 else one for one in found]
