"""Arrays of all problems of a batch in the form that the native and the device's loop work on."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.batch.problems import ProblemArrays
from graphopt.batch.resident import Resident, on_host
from graphopt.graph import Selection
from graphopt.problem.structure import EdgeGroup, Structure, information_variant


def structure_of(selection: Selection | Structure, problems: ProblemArrays) -> Structure:
    """The structure of all problems: what one's information matrices need, all have.

    selection: or the structure of the graph alone, which stays as it is; information may be others by now.
    """
    if isinstance(selection, Structure):
        structure = copy(selection)
        structure.groups = [
            replace(group, information=information_variant(group.edge_set, group.rows))
            for group in selection.groups
        ]
    else:
        structure = Structure(selection)
    numbers = {id(edge_set): number for number, edge_set in enumerate(problems.graph.edge_sets)}
    for k, group in enumerate(structure.groups):
        kind = problems.information_kind(numbers[id(group.edge_set)], group.rows)
        if kind is not None:
            structure.groups[k] = replace(group, information=kind)
    return structure


class BatchArrays:
    """Start and result of all problems, and their measurements."""

    def __init__(self, structure: Structure, problems: ProblemArrays):
        self.structure, self.problems = structure, problems
        graph = problems.graph
        numbers = {id(vertex_set): number for number, vertex_set in enumerate(graph.vertex_sets)}
        self._vertex_numbers = [numbers[id(each)] for each in structure.selection.vertex_sets]
        edges = {id(edge_set): number for number, edge_set in enumerate(graph.edge_sets)}
        self._edge_numbers = [edges[id(group.edge_set)] for group in structure.groups]
        self.starts = [self._start(k) for k in range(len(self._vertex_numbers))]
        """Per vertex set (B, n, dim) in the form that steps are taken in; (1, n, dim) where all share it."""
        self.decoded: dict[int, Any] = {}
        """By vertex set (B, n, storage_dim) results as the graph stores them, where a device makes them: for
        CUDA, or on the host."""

    @cached_property
    def working(self) -> list[np.ndarray]:
        """Per vertex set what steps change, at first the start; of sets that are not optimized the start."""
        found = []
        for number, start in enumerate(self.starts):
            if self.is_free(number):
                start = np.array(np.broadcast_to(start, (self.problems.count, *start.shape[1:])), order="C")
            found.append(start)
        return found

    def is_free(self, number: int) -> bool:
        """Some vertex of the set is optimized."""
        return self.structure.num_free[number] > 0

    def stored_start(self, number: int) -> np.ndarray:
        """(B, n, storage_dim) as the graph stores it; (1, n, storage_dim) where all share it."""
        vertex_set = self.structure.selection.vertex_sets[number]
        return self.problems.estimates.get(self._vertex_numbers[number], vertex_set.look("estimate")[None])

    def _start(self, number: int) -> np.ndarray:
        given, form = self.stored_start(number), self.structure.selection.vertex_sets[number].type.working
        if form is None:
            return np.ascontiguousarray(given)
        return np.ascontiguousarray(form.encode(given.reshape(-1, given.shape[2]))).reshape(
            *given.shape[:2], -1
        )

    def masks(self) -> list[np.ndarray] | None:
        """Per group (B, m) bool who takes part, (1, m) where all do; None: all edges of all groups."""
        given = self.problems.masks
        if not given:
            return None
        masks = []
        for group, number in zip(self.structure.groups, self._edge_numbers, strict=True):
            mask = given.get(number)
            masks.append(np.ones((1, len(group.rows)), bool) if mask is None else _of_group(group, mask))
        return masks

    def data(self, masks: list[np.ndarray] | None, *, of_all: bool = False) -> list[tuple]:
        """(number, measurement, information, kernel width, mask) of groups.

        of_all: also of those whose numbers are the graph's in all problems.
        """
        problems, found = self.problems, []
        for k, (group, number) in enumerate(zip(self.structure.groups, self._edge_numbers, strict=True)):
            given = problems.measurements, problems.information, problems.kernel_widths
            if not of_all and masks is None and not any(number in arrays for arrays in given):
                continue
            edge_set = group.edge_set
            measurement, information, width = (
                _of_group(group, arrays[number] if number in arrays else edge_set.look(name)[None])
                for arrays, name in zip(given, ("measurement", "information", "kernel_width"), strict=True)
            )
            packed = _packed(information, group.information)
            found.append((k, measurement, packed, width, None if masks is None else masks[k]))
        return found

    def unobserved(self, masks: list[np.ndarray]) -> np.ndarray | None:
        """(B, dim) bool: scalars of optimized vertices without an edge; None if there are none."""
        structure = self.structure
        seen = np.zeros((self.problems.count, structure.num_blocks), bool)
        for group, mask in zip(structure.groups, masks, strict=True):
            for slot, number in enumerate(group.vertex_sets):
                blocks = structure.vertex_blocks[number][group.vertex_rows[:, slot]]
                edges = np.flatnonzero(blocks >= 0)
                if len(edges):
                    incidence = np.zeros((len(edges), structure.num_blocks), np.float32)
                    incidence[np.arange(len(edges)), blocks[edges]] = 1.0
                    seen |= mask[:, edges].astype(np.float32) @ incidence > 0.0
        if seen.all():
            return None
        return np.ascontiguousarray(np.repeat(~seen, structure.dims, axis=1))

    def results(self) -> dict[str, np.ndarray]:
        """Tag -> (B, n, storage_dim) estimates of all vertices of the graph."""
        problems, graph = self.problems, self.problems.graph
        found = {}
        working = dict(zip(self._vertex_numbers, range(len(self.starts)), strict=True))
        for number, vertex_set in enumerate(graph.vertex_sets):
            start = problems.estimates.get(number, vertex_set.look("estimate")[None])
            shape = (problems.count, *start.shape[1:])
            k = working.get(number)
            if k in self.decoded:
                found[vertex_set.type.tag] = self.decoded[k]
            elif k is None or not self.is_free(k) or len(self.working[k]) == 1:
                found[vertex_set.type.tag] = np.broadcast_to(start, shape)
            else:
                found[vertex_set.type.tag] = self._decoded(k, start, shape)
        return found

    def _decoded(self, number: int, start: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Estimates in the form of the graph; those that have not moved keep their digits."""
        form, array = self.structure.selection.vertex_sets[number].type.working, self.working[number]
        if form is None:
            return array
        result = form.decode(array.reshape(-1, array.shape[2])).reshape(shape)
        stays = np.ones(array.shape[:2], bool)
        for now, before in zip(np.moveaxis(array, 2, 0), np.moveaxis(self.starts[number], 2, 0), strict=True):
            stays &= now == before
        np.copyto(result, start, where=stays[..., None])
        return result


def _of_group(group: EdgeGroup, array: Any) -> Any:
    """(B, m, ...) of all edges of a set -> of those in the group."""
    rows = group.chosen_rows
    if isinstance(array, Resident):
        if rows is None:
            return array
        array = on_host(array)
    return np.ascontiguousarray(array if rows is None else array[:, rows])


def _packed(information: np.ndarray, kind: str) -> np.ndarray:
    """(B, m, r, r) matrices or (B, m, r) diagonals as the programs take them."""
    count, num = information.shape[:2]
    if kind == "identity":
        return np.zeros((1, num, 0))
    if information.ndim == 3:
        return information
    dim = information.shape[-1]
    return codegen.pack_information(information.reshape(-1, dim, dim), kind).reshape(count, num, -1)
