"""Records of eliminated vertices by their neighbours: other places, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

import graphopt
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.reproduce.graphs import with_other_ids
from graphopt.solver.trial import Damping
from graphopt.vulkan.data import rows
from graphopt.vulkan.data.estimates import RecordSet
from graphopt.vulkan.data.rows import in_record_order
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Context
from graphopt.vulkan.solver import create


@pytest.fixture
def always(monkeypatch):
    """Whatever the sizes and the graph's order are."""
    monkeypatch.setattr(rows, "CACHED_BYTES", -1)
    monkeypatch.setattr(rows, "NEAR", -1.0)


def mixed_up():
    """Points in any order."""
    return with_other_ids(bundle_adjustment(num_points=300), 7)


def points_of(structure):
    """Number of the vertex set of points."""
    sets = enumerate(structure.selection.vertex_sets)
    return next(number for number, vertex_set in sets if vertex_set.type.role == "point")


def test_points_with_the_same_cameras_follow_each_other(always):
    """Rows by lowest, then highest row of their cameras; edges, blocks and their order as before."""
    structure = Structure(mixed_up().select())
    ordered, number = in_record_order(structure), points_of(structure)
    (group,), (own,) = structure.groups, ordered.groups
    slot, order = group.vertex_sets.index(number), ordered.row_orders[number]
    assert sorted(order.tolist()) == list(range(len(order)))
    assert np.array_equal(order[own.vertex_rows[:, slot]], group.vertex_rows[:, slot])
    assert np.array_equal(own.vertex_rows[:, 1 - slot], group.vertex_rows[:, 1 - slot])
    assert np.array_equal(ordered.vertex_blocks[number], structure.vertex_blocks[number][order])
    assert ordered.sorted_edges(own, slot) is structure.sorted_edges(group, slot)
    keys = []
    for row in range(len(order)):
        cameras = own.vertex_rows[own.vertex_rows[:, slot] == row, 1 - slot]
        keys.append((cameras.min(), cameras.max()))
    assert keys == sorted(keys)


def test_small_sets_and_ordered_ones_stay(monkeypatch):
    """Records that a cache holds, and points that lie in such an order already."""
    structure = Structure(mixed_up().select())
    assert in_record_order(structure) is structure
    monkeypatch.setattr(rows, "CACHED_BYTES", -1)
    ordered = in_record_order(structure)
    assert in_record_order(ordered).row_orders is ordered.row_orders


@pytest.mark.parametrize("schur", ["implicit", "explicit"])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_estimates_have_the_same_bits(always, monkeypatch, schur, precision):
    """Of a run, of one on another graph of the same structure, and after estimates have changed."""
    options = {"device": "vulkan", "precision": precision, "linear_solver": "pcg", "schur": schur}
    found = []
    for cached in (-1, 1 << 40):
        monkeypatch.setattr(rows, "CACHED_BYTES", cached)
        graph = mixed_up()
        for solved in (graph, graph.copy(), graph):
            graphopt.optimize(solved, max_iterations=2, **options)
            found.append([vertex_set.estimate.copy() for vertex_set in solved.vertex_sets])
            graph.vertex_sets[0].estimate[3] += 1e-3
    for ordered, plain in zip(found[:3], found[3:], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ordered, plain, strict=True))


def test_single_rows_and_sums_are_those_of_the_graph(always):
    """Rows that the host moves, and chi2 by point."""
    graph = mixed_up()
    structure = Structure(graph.select())
    options = SolverOptions("vulkan", "pcg", "implicit", "double")
    configuration = Configuration("pcg", "implicit")
    solver = create(graph, structure, options, device=shared_device("address"), configuration=configuration)
    assert solver.linearizer.structure is not structure
    solver.linearize()
    number, moved = points_of(structure), np.array([5, 2, 17])
    points = structure.selection.vertex_sets[number]
    points.estimate[moved] += 0.01
    solver.take(number, moved)
    assert solver.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    (group,) = structure.groups
    slot = group.vertex_sets.index(number)
    sums, edges = solver.chi2_by_vertex(group, slot), structure.sorted_edges(group, slot)
    single = graph.edge_sets[0].chi2()[edges.order]
    assert np.allclose(sums, np.add.reduceat(single, edges.first[:-1]), rtol=1e-11)
    solver.trial(Damping(1e-3, True, 1e-6, 1e32))
    solver.finish()
    assert graph.chi2() == pytest.approx(solver.chi2(), rel=1e-12)


class Memory:
    """Where another library's numbers are."""

    def __init__(self, device, numbers):
        self.buffer, self.offset = device.upload(numbers), 0
        self.numbers, self.shape = numbers, numbers.shape

    def strides(self):
        """In numbers."""
        return tuple(stride // 8 for stride in self.numbers.strides)


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_numbers_of_other_libraries_come_and_go_by_rows_of_the_graph(precision):
    """Both ways, from the device's memory and to it."""
    device = shared_device("address")
    order = np.random.default_rng(1).permutation(50).astype(np.uint32)
    numbers = np.random.default_rng(2).normal(size=(50, 3))
    context = Context(device, precision)
    written, taken = (RecordSet(context, 50, 3, order) for _ in range(2))
    written.write(numbers, b"1")
    taken.take(context, Memory(device, numbers), b"1")
    for records in (written, taken):
        assert np.array_equal(records.unpack(records.wide.read()), numbers[order])
        if records.narrow is not None:
            narrow = records.narrow.read().reshape(50, -1)[:, :3]
            assert np.array_equal(narrow, numbers[order].astype(np.float32))
        memory = Memory(device, np.zeros((50, 3)))
        device.submit(records.packing(memory)).wait()
        assert np.array_equal(device.download(memory.buffer, np.float64, 150).reshape(50, 3), numbers)
