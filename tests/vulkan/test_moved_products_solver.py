"""Schedule "jp" on the device, as a part of whole solvers, against the CPU."""

from __future__ import annotations

from dataclasses import replace

from device_solvers import resident
from resident_graphs import mixed_space
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.device.figures import DeviceFigures
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.operators.jp import Jp
from graphopt.vulkan.plan.passes import EdgeCosts
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict

LARGE_GPU = DeviceFigures("large", 4.0e12, 4.8e13, 3.0e13, 2.5e11, 2e-6, 3e-5)


# -------------------------------------------------------------------- jp


def moved_vectors(solver):
    """Sources of each t that a solver has computed."""
    halves = [edges.schedule for edges in solver.linearizer.edges if isinstance(edges.schedule, Jp)]
    return sorted(tuple(sorted(sources)) for half in halves for sources in half.moved)


def test_slots_share_the_first_half_where_they_can():
    """A pose graph computes J x once; with a stored block beside it, once per slot; landmarks need both."""
    for graph, schur, schedule, expected in [
        (pose_graph, "off", "jp", [(0, 1)]),
        (bundle_adjustment, "implicit", "jp", [(0,), (1,)]),
        (mixed_space, "off", {"EDGE_SE3:QUAT": "jp", "EDGE_SE3_TRACKXYZ": "blocks"}, [(0,), (1,)]),
        (mixed_space, "off", "jp", [(0, 1), (0, 1)]),
    ]:
        solver = resident(graph(), "address", "pcg", schur, schedule)
        solver.linearize()
        assert solver.trial(Damping(0.3)).solved
        assert moved_vectors(solver) == expected
        size = problem_size(solver.structure, "double")
        costs, products = EdgeCosts(size, LARGE_GPU, "double"), solver.linearizer.storage.products
        number = sum(
            Jp.num_moved(costs, g, products, schur)
            for g, product in zip(size.groups, products, strict=True)
            if product == "jp"
        )
        assert number == len(expected)


def test_edges_of_many_vertices_cost_less_in_halves():
    """n + 1 halves instead of n whole products: less for four vertices, more for two."""
    few, many = problem_size(Structure(pose_graph().select()), "double"), None
    (group,) = few.groups
    more = {"record_words": (2,) * 4, "tangent_dims": (3,) * 4, "is_eliminated": (False,) * 4}
    more |= {"num_destinations": (40,) * 4, "vertex_sets": (0,) * 4, "may_merge": (False,) * 4}
    many = replace(few, groups=(replace(group, num_edges=10**7, **more),))
    pins = {"EDGE_SE2": "matrix-free"}, {"EDGE_SE2": "jp"}
    slow = replace(LARGE_GPU, float64_flops=1e11)
    anew, halves = (predict(many, slow, "double", pin)[0] for pin in pins)
    assert halves.seconds["solve"] < 0.7 * anew.seconds["solve"]
    two = replace(few, groups=(replace(group, num_edges=10**7),))
    anew, halves = (predict(two, LARGE_GPU, "mixed", pin)[0] for pin in pins)
    assert halves.seconds["solve"] > anew.seconds["solve"]
