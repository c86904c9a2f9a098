"""One pass over the edges before a plan: how many blocks of H they have, and which kept vertices meet.

Kept vertices meet where they share a landmark or an edge. A sample of the landmarks will do for what is asked
of them (`reduced`, the cost to form S), so that a plan takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure

SAMPLED_EDGES = 32
"""Per kept vertex, about."""


@dataclass(frozen=True, eq=False)
class Couplings:
    """What is known of a structure; edges that share a block of H count as if each had one."""

    pairs: dict[EdgeGroup, tuple[list[int], list[int]]]
    """Per pair of slots (0, 1), (0, 2), ..., (1, 2), ... how many edges have both vertices optimized, and how
    many of them an eliminated one."""
    meetings: np.ndarray
    """(num, 2) int64: place, kept block. Sampled landmarks have the first places, then edges."""
    stride: int
    """From one landmark that was looked at to the next; 0: none is eliminated, and meetings are not known."""
    degree: np.ndarray
    """(num_sampled,) int64: kept neighbours of each of these, once per edge."""


_known: WeakKeyDictionary[Structure, Couplings] = WeakKeyDictionary()


def couplings_of(structure: Structure) -> Couplings:
    """Found once per structure."""
    if structure not in _known:
        _known[structure] = _found(structure)
    return _known[structure]


def _found(structure: Structure) -> Couplings:
    num_kept, num_gone = structure.num_kept, structure.num_blocks - structure.num_kept
    stride = max(1, structure.num_edges // (SAMPLED_EDGES * num_kept)) if structure.has_schur else 0
    pairs, found, offset = {}, [np.zeros((0, 2), np.int64)], 0
    for group in (*structure.groups, *structure.external):
        tables = [structure.vertex_blocks[number] for number in group.vertex_sets]
        *counts, meetings = kernels.couplings(group.vertex_rows, tables, num_kept, num_gone, stride)
        pairs[group] = counts[0], counts[1]
        meetings = meetings.astype(np.int64)
        meetings[meetings[:, 0] > num_gone // max(stride, 1), 0] += offset
        offset += len(group.rows)
        found.append(meetings)
    all_meetings = np.concatenate(found)
    num_sampled = -(-num_gone // max(stride, 1))
    degree = np.bincount(all_meetings[:, 0], minlength=num_sampled)[:num_sampled]
    return Couplings(pairs, all_meetings, stride, degree)
