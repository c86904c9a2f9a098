"""Lists of contributions, and the kernel that sums them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import VARIANTS, shared_device

from graphopt.errors import DeviceError
from graphopt.vulkan.program import Context, Program
from graphopt.vulkan.schedules.gather import GatherList, OutputLayout, gather_lists
from graphopt.vulkan.schedules.interpreted import Gather, Interpreter

DIMS = (3, 2, 3)
NUM_OUTPUTS = 1 + 6 + 6 + 9 + 3 + 6 + 6 + 8


class Problem:
    """Edges between two vertices of dimension 3 and one of dimension 2; some vertices are not optimized."""

    def __init__(self, num_edges: int, num_vertices: int, seed: int):
        rng = np.random.default_rng(seed)
        dims = rng.permutation(np.array([2] * num_vertices + [3] * num_vertices))
        first = np.concatenate([[0], np.cumsum(dims)])
        self.dim = int(first[-1])
        groups = [np.flatnonzero(dims == dim) for dim in (3, 2)]
        # one vertex has most edges; some edges have the same vertex at both ends
        skewed = (rng.random(num_edges) ** 4 * num_vertices).astype(int)
        other = skewed + rng.integers(0, num_vertices - skewed)
        flip = rng.random(num_edges) < 0.5
        ends = np.where(flip[:, None], np.stack([other, skewed], 1), np.stack([skewed, other], 1))
        vertex = np.stack(
            [
                groups[0][ends[:, 0]],
                groups[1][rng.integers(0, num_vertices, num_edges)],
                groups[0][ends[:, 1]],
            ],
            axis=1,
        )
        optimized = rng.random(2 * num_vertices) < 0.85
        free = optimized[vertex]
        self.scalar = np.where(free, first[vertex], -1)
        self.layout = OutputLayout(DIMS)
        self.place: dict[tuple[int, int], int] = {}
        self.size = 0
        pairs = self.layout.pairs()
        self.offset = np.full((num_edges, len(pairs)), -1)
        self.transposed = np.zeros((num_edges, len(pairs)), bool)
        self.on_diagonal = np.stack([(vertex[:, a] == vertex[:, b]) & (a != b) for a, b in pairs], axis=1)
        for e in range(num_edges):
            for p, (a, b) in enumerate(pairs):
                if not (free[e, a] and free[e, b]):
                    continue
                low, high = sorted((int(vertex[e, a]), int(vertex[e, b])))
                if (low, high) not in self.place:
                    self.place[low, high] = self.size
                    self.size += int(dims[low] * dims[high])
                self.offset[e, p] = self.place[low, high]
                self.transposed[e, p] = vertex[e, a] > vertex[e, b]
        self.contributions = rng.normal(size=(num_edges, NUM_OUTPUTS))

    def lists(self, chunk: int) -> list[GatherList]:
        """For chunks of so many edges."""
        return gather_lists(DIMS, self.scalar, self.offset, self.transposed, self.on_diagonal, chunk)

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """values and b by adding edge after edge."""
        values, b = np.zeros(self.size), np.zeros(self.dim)
        for e, numbers in enumerate(self.contributions):
            for p, (i, j) in enumerate(self.layout.pairs()):
                if self.offset[e, p] >= 0:
                    rows, columns = DIMS[i], DIMS[j]
                    block = self._block(numbers, i, j)
                    block = block.T if self.transposed[e, p] else block
                    block = block + block.T if self.on_diagonal[e, p] else block
                    at = self.offset[e, p]
                    values[at : at + rows * columns] += block.T.ravel()
            at = NUM_OUTPUTS - sum(DIMS)
            for a, dim in enumerate(DIMS):
                if self.scalar[e, a] >= 0:
                    b[self.scalar[e, a] : self.scalar[e, a] + dim] += numbers[at : at + dim]
                at += dim
        return values, b

    def _block(self, numbers: np.ndarray, i: int, j: int) -> np.ndarray:
        at = 1
        for pair in self.layout.pairs():
            rows, columns = DIMS[pair[0]], DIMS[pair[1]]
            length = rows * (rows + 1) // 2 if pair[0] == pair[1] else rows * columns
            if pair == (i, j):
                break
            at += length
        part = numbers[at : at + length]
        if i != j:
            return part.reshape(columns, rows).T
        block = np.zeros((rows, rows))
        k = 0
        for column in range(rows):
            for row in range(column + 1):
                block[row, column] = block[column, row] = part[k]
                k += 1
        return block


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
@pytest.mark.parametrize("wide", [False, True], ids=["real", "wide"])
def test_sums_of_contributions(variant, wide):
    """Rows written by anything, in the type of H or in wide numbers, are added up chunk after chunk."""
    access, precision = variant
    problem = Problem(700, 12, seed=1)
    chunk = 256
    own = Interpreter(Context(shared_device(access), precision))
    context, device = own.context, own.context.device
    lists = problem.lists(chunk)
    assert {list_.lanes for list_ in lists} == {1, 8, 64}
    rows = np.random.default_rng(2).permutation(NUM_OUTPUTS)
    gather = Gather(own, lists, rows, chunk, wide=wide)
    values, b = (device.upload(np.zeros(n, context.real)) for n in (problem.size, problem.dim))
    for number in range(3):
        part = problem.contributions[number * chunk : (number + 1) * chunk]
        table = np.zeros((NUM_OUTPUTS, chunk), np.float64 if wide else context.real)
        table[rows, : len(part)] = part.T
        program = Program(context)
        for step in gather.steps(number, device.upload(table), {"values": values, "b": b}):
            program.step(step)
        program.run()
    expected = problem.expected()
    tolerance = 1e-13 if precision == "double" else 1e-5
    for actual, wanted in zip((values, b), expected, strict=True):
        np.testing.assert_allclose(
            context.download(actual, len(wanted)), wanted, atol=tolerance * np.abs(wanted).max()
        )
    assert device.messages == []


def test_every_contribution_is_listed_once():
    """Each edge is in one list per optimized vertex and optimized pair, each target in one list per chunk."""
    problem = Problem(300, 9, seed=3)
    lists = problem.lists(64)
    pairs = problem.layout.pairs()
    off_diagonal = [p for p, (a, b) in enumerate(pairs) if a != b]
    is_stored = problem.offset[:, off_diagonal] >= 0
    expected = np.count_nonzero(problem.scalar >= 0) + np.count_nonzero(is_stored)
    expected += np.count_nonzero(is_stored & problem.on_diagonal[:, off_diagonal])  # and their transposes
    assert sum(len(list_.items) for list_ in lists) == expected
    seen = set()
    for list_ in lists:
        assert list_.chunk_first[-1] == len(list_.first) - 1 == len(list_.targets["values"][0])
        chunks = np.repeat(np.arange(len(list_.chunk_first) - 1), np.diff(list_.chunk_first))
        for target in zip(chunks.tolist(), list_.targets["values"][0].tolist(), strict=True):
            assert (target, list_.is_second) not in seen
            seen.add((target, list_.is_second))


def test_what_does_not_fit_an_item_is_refused():
    """Items number the edges of a chunk with 20 bits."""
    zero = np.zeros((1, 1))
    with pytest.raises(DeviceError, match="cpu"):
        gather_lists((3,), zero, zero, zero > 0, zero > 0, 1 << 21)
