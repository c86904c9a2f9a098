"""Products with H from the edges against dense numpy: all forms, shapes and arithmetics; what is stored."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from edge_products import Halves, Products, Stored
from gpu_kernel_cases import Case, runner_for
from image_edges import images, photo_edge

import graphopt
from graphopt.codegen.gpu import EdgeSignature
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import rows_kernel
from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel, stored_entries
from graphopt.errors import OptionError
from graphopt.types import registry
from graphopt.types.base import working_edge_type

TAGS = ["EDGE_OBSERVATION_BAL", "EDGE_SE3:QUAT", "EDGE_SE2_XY", "EDGE_SE3_TRACKXYZ"]
VARIANTS = [("address", "double"), ("address", "mixed"), ("storage", "double"), ("storage", "mixed")]
FORMS = {
    "recomputed": Products,
    "stored": Stored,
    "stored, all slots": partial(Stored, stores_all=True),
    "stored, one with its estimate": partial(Stored, holds_estimate=(True, False)),
    "halves": Halves,
}
CASES = [(tag, variant) for variant in (VARIANTS[0], VARIANTS[3]) for tag in TAGS]
CASES += [(TAGS[2], ("address", "two_float"))]  # drivers take seconds for two floats


@pytest.fixture(params=VARIANTS, ids="-".join)
def runner(request):
    """Access and arithmetic; the validation layer has nothing to say."""
    made = runner_for(*request.param)
    yield made
    assert made.device.messages == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("tag", "runner"), CASES, indirect=["runner"])
def test_rows_and_tiles(tag, form, runner):
    """Of the other slot's x or of both, with robust kernels and full information."""
    products = FORMS[form](Case(registry.edge_type(tag), n=300, kernel=1), runner)
    for slot in range(products.case.signature.arity):
        for sources in ((1 - slot,), (0, 1)):
            products.check_rows_and_tiles(slot, sources)


@pytest.mark.parametrize("runner", [VARIANTS[0], VARIANTS[3]], ids="-".join, indirect=True)
@pytest.mark.parametrize(
    ("form", "num_vertices"),
    [("recomputed", 3), *((form, 60) for form in (*FORMS, "stored, the other with its estimate"))],
)
def test_solve_writes_packed_records(form, num_vertices, runner):
    """Of landmarks with many edges, and of many landmarks."""
    kind = registry.edge_type("EDGE_OBSERVATION_BAL")
    make = FORMS.get(form, partial(Stored, holds_estimate=(False, True)))
    make(Case(kind, n=300, kernel=1, num_vertices=num_vertices), runner).check_solve(1, (0,))


@pytest.mark.parametrize(
    ("form", "runner"),
    [("recomputed", VARIANTS[3]), ("stored", VARIANTS[0]), ("halves", VARIANTS[0])],
    indirect=["runner"],
)
def test_images(form, runner):
    """Edges that sample images, whose kernels take drivers seconds to compile."""
    products = FORMS[form](Case(photo_edge(), 300, "full", 1, images=images()), runner)
    for slot in (0, 1):
        for sources in ((1 - slot,), (0, 1)):
            products.check_rows_and_tiles(slot, sources)
    products.check_solve(1, (0,))


@pytest.fixture
def users_types(own_types):
    """Edges of one and three vertices; constants and repetitions in Jacobians; an argument called t."""
    edge = partial(graphopt.edge_type, measurement_dim=2)

    @edge(tag="EDGE_TEST_ALONE", vertices=("VERTEX_XY",))
    def EdgeTestAlone(place, moved):
        """Something of one vertex."""
        return np.stack([place[0] * place[1], place[1]], axis=-1) - moved

    @edge(tag="EDGE_TEST_THREE", vertices=("VERTEX_SE2", "VERTEX_XY", "VERTEX_XY"))
    def EdgeTestThree(pose, second, moved, measured):
        """Something of two points and a pose's frame."""
        seen = pose.inverse().act(moved) - second * second
        return np.stack([seen[0] * seen[1], np.sin(seen[1])], axis=-1) - measured

    @edge(tag="EDGE_TEST_BEND", vertices=("VERTEX_XY", "VERTEX_XY", "VERTEX_XY"))
    def EdgeTestBend(first, second, third, measured):
        """Second difference, and something that is not linear."""
        return first - 2.0 * second + third * third - measured

    return EdgeTestAlone, EdgeTestThree, EdgeTestBend


@pytest.mark.parametrize("runner", [VARIANTS[0], VARIANTS[3]], ids="-".join, indirect=True)
@pytest.mark.parametrize("form", ["recomputed", "stored", "halves"])
def test_edges_of_one_and_three_vertices(form, users_types, runner):
    """All sources or some; of a diagonal information two points have no block in common."""
    alone, three, bend = users_types
    lots = registry.edge_type("EDGE_SE2_LOTSOFXY")
    FORMS[form](Case(alone, 300, "full", kernel=1), runner).check_rows_and_tiles(0, (0,))
    for products, asked in (
        (FORMS[form](Case(three, 300, "diagonal", kernel=2), runner), [(0, (0, 1, 2)), (2, (0, 2))]),
        (FORMS[form](Case(bend, 200, "identity"), runner), [(0, (1, 2)), (2, (0, 1)), (1, (0,))]),
        (FORMS[form](Case(lots, 200, "diagonal", kernel=3), runner), [(2, (0, 1))]),
    ):
        for slot, sources in asked:
            products.check_rows_and_tiles(slot, sources)


def test_constants_are_not_stored(users_types):
    """Of a linear edge nothing at all; zeros and repetitions never."""
    signature = Case(users_types[2], 200, "identity").signature
    # J of the first two is constant, that of the third diagonal: two numbers
    found = [stored_entries(signature, slot, at).count for slot, at in ((0, (1,)), (0, (1, 2)), (2, (0, 1)))]
    assert found == [0, 2, 2]


def test_the_shorter_form_is_stored():
    """Factors where residuals are few, blocks where they are many."""
    few = Case(registry.edge_type("EDGE_OBSERVATION_BAL"), n=4).signature
    assert stored_entries(few, 1, (0,)).has_factors and stored_entries(few, 1, (0,)).count <= 2 * (9 + 3)
    many = Case(registry.edge_type("EDGE_SE3:QUAT"), n=4).signature
    assert not stored_entries(many, 1, (0,)).has_factors and stored_entries(many, 1, (0,)).count <= 36


@pytest.mark.parametrize(("slot", "sources"), [(0, ()), (0, (2,)), (3, (0,)), (0, (1, 1))])
def test_slots_that_do_not_exist_are_refused(slot, sources):
    """Where the kernel is made."""
    signature = Case(registry.edge_type("EDGE_SE2"), n=4).signature
    for make in (
        lambda: rows_kernel(recomputed_product(signature, slot, sources, "double")),
        lambda: store_kernel(signature, slot, sources),
        lambda: StoredProduct(signature, slot, sources, (0, 1), (False, False), "double"),
    ):
        with pytest.raises(OptionError, match="expected one or several"):
            make()


@pytest.mark.parametrize("kernel", range(1, 6))
@pytest.mark.parametrize("tag", TAGS)
def test_a_robust_kernel_does_not_make_products_compute_in_float64(tag, kernel):
    """Its branches are no closed forms: what was float32 without it is float32 with it."""
    kind = working_edge_type(registry.edge_type(tag))
    plain, robust = (
        recomputed_product(EdgeSignature(kind, "identity", number), 0, (1,), "mixed")
        for number in (0, kernel)
    )
    assert len(robust.wide) == len(plain.wide)
