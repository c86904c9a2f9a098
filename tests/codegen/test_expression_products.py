"""Products from stored values of their programs against dense numpy; which values are stored, and why."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement
from itertools import product as product_of

import numpy as np
import pytest
from gpu_kernel_cases import Case, runner_for, upper_triangles
from image_edges import images, photo_edge
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from test_stored_products import TAGS, VARIANTS, Stored

import graphopt
from graphopt.codegen.gpu import EDGE_BLOCK
from graphopt.codegen.gpu.cuts import Balance, _Graph, best_split, split_at, use_of
from graphopt.codegen.gpu.expression_cuts import (
    MAX_FORMULA,
    ViewCut,
    formulas,
    moving_values,
    reads_of,
    schedule_of,
    view_cut,
)
from graphopt.codegen.gpu.expression_products import expression_product, store_expressions_kernel
from graphopt.codegen.gpu.max_flow import source_side
from graphopt.codegen.gpu.packed_products import Recomputed
from graphopt.codegen.gpu.stored_products import stored_rows_kernel, stored_tiles_kernel
from graphopt.types import registry

CASES = [
    *((tag, variant) for variant in VARIANTS[:2] for tag in TAGS),
    *((TAGS[2], variant) for variant in VARIANTS[2:]),  # drivers take seconds for two floats
]
BALANCES = [Balance(8.0, 64.0, 2.0), Balance(0.01, 64.0, 64.0), Balance(1.0, 1.0, 1.0)]
"""A large GPU; storing is nearly free; storing is cheap, and so are reads of estimates."""


@pytest.fixture(params=VARIANTS, ids="-".join)
def runner(request):
    made = runner_for(*request.param)
    yield made
    assert made.device.messages == []


def cut_between(signature, slot, sources, arithmetic, balance, explicit):
    """The cheapest cut of one program, wherever it is."""
    product = Recomputed(signature, slot, sources, arithmetic, explicit)
    reads = reads_of(product, balance, False)
    split = best_split(product.assignment, moving_values(product), reads, balance)
    use = use_of(split, reads)
    return ViewCut("between", explicit, split.stored, use, use)


class Cut(Stored):
    """A case whose views store values of expressions."""

    def kernels(self, view, sources, stored_sources, cut, solve=False):
        """What is stored, and the product's kernels."""
        own, arithmetic = self.case.signature, self.runner.arithmetic
        args = (sources, stored_sources, self.holds_estimate, cut, arithmetic)
        product = expression_product(own, view.slot, *args)
        if solve:
            return stored_tiles_kernel(product, True)
        return stored_tiles_kernel(product), stored_rows_kernel(product)

    def needs(self, slot, sources, cut):
        """The same, where records hold estimates that are read."""
        product = Recomputed(self.case.signature, slot, sources, self.runner.arithmetic, cut.explicit)
        rest = split_at(product.assignment, moving_values(product), cut.stored).rest.inputs()
        self.holds_estimate = tuple(
            any(load.name in rest for load in product.loads[k]) for k in range(self.case.signature.arity)
        )

    def stored_by(self, view, sources, cut):
        """What the store kernel writes for a view."""
        kernel = store_expressions_kernel(
            self.case.signature, view.slot, sources, cut, self.runner.arithmetic
        )
        num = -(-len(view.edges) // EDGE_BLOCK) * EDGE_BLOCK
        arrays = self.case.arrays(view.edges)
        arrays["stored"] = np.zeros(num * len(cut.stored), self.runner.real)
        groups = -(-len(view.edges) // kernel.workgroup_size)
        (stored,) = self.runner.run(kernel, arrays, {"num_edges": len(view.edges)}, groups, ["stored"])
        return stored

    def check(self, actual, expected, scale):
        """As where all is computed anew: some of it is, in float32."""
        assert np.abs(actual - expected).max() < (1e-10 if self.runner.real == np.float64 else 3e-4) * scale

    def check_all(self, slot, sources, stored_sources, cut):
        """Both shapes, adding and not."""
        view = self.case.view(slot, False)
        dim = self.case.type.vertices[slot].tangent_dim
        places = self.case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(dim)
        arrays = self.arrays(view)
        if cut.stored:
            arrays["stored"] = self.stored_by(view, stored_sources, cut)
        expected, scale = self.expected(view, sources)
        tiles, rows = self.kernels(view, sources, stored_sources, cut)
        for kernel, groups in [(tiles, view.num_tiles), (rows, len(view.destinations))]:
            for accumulate in (0, 1):
                (y,) = self.runner.run(kernel, arrays, self.params(view, accumulate), groups, ["y"])
                self.check(y[places], expected + accumulate, scale)


@pytest.mark.parametrize("tag,runner", CASES, indirect=["runner"])
def test_rows_and_tiles(tag, runner):
    """From values of both programs, for the sources of the cut or fewer of them."""
    products = Cut(Case(registry.edge_type(tag), n=300, kernel=1), runner, (True, True))
    signature = products.case.signature
    both = (0, 1)
    for slot in both:
        other = (1 - slot,)
        for k, (sources, stored_sources) in enumerate([(other, other), (both, both), (other, both)]):
            balance, explicit = BALANCES[k], k != 2
            cut = cut_between(signature, slot, stored_sources, runner.arithmetic, balance, explicit)
            assert cut.stored
            products.needs(slot, stored_sources, cut)
            products.check_all(slot, sources, stored_sources, cut)


def test_solve_writes_packed_records(runner):
    """x_l = -H_ll^-1 y into the records of landmarks, and nothing else."""
    case, slot = Case(registry.edge_type("EDGE_OBSERVATION_BAL"), n=300, kernel=1, num_vertices=60), 1
    for balance in BALANCES[:2]:  # with estimates in the records, and without
        cut = cut_between(case.signature, slot, (0,), runner.arithmetic, balance, True)
        products = Cut(case, runner, (True, True))
        products.needs(slot, (0,), cut)
        view = case.view(slot, False)
        expected, _ = products.expected(view, (0,))
        root = np.random.default_rng(3).normal(size=(len(view.destinations), 3, 3))
        inverse = root @ root.transpose(0, 2, 1)
        arrays = products.arrays(view) | {
            "stored": products.stored_by(view, (0,), cut),
            "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(runner.real),
            "dest_inverse": (5 + 6 * np.arange(len(view.destinations))).astype(np.uint32),
        }
        kernel = products.kernels(view, (0,), (0,), cut, solve=True)
        (packed,) = runner.run(kernel, arrays, products.params(view), view.num_tiles, ["packed1"])
        packed = packed.reshape(len(case.estimates[1]), -1)
        solved = -np.einsum("nij,nj->ni", inverse, expected)
        first = 3 if products.holds_estimate[1] else 0
        products.check(packed[view.destinations, first : first + 3], solved, np.abs(solved).max())
        untouched = products.packed(1)
        untouched[view.destinations, first : first + 3] = packed[view.destinations, first : first + 3]
        np.testing.assert_array_equal(packed, untouched)


@pytest.fixture
def bend():
    """A user's edge of three vertices."""
    start = set(registry.all_types())

    @graphopt.edge_type(
        tag="EDGE_TEST_TURN", vertices=("VERTEX_SE2", "VERTEX_XY", "VERTEX_XY"), measurement_dim=2
    )
    def EdgeTestTurn(pose, second, third, measured):
        """Something of two points and a pose's frame."""
        seen = pose.inverse().act(third) - second * second
        return np.stack([seen[0] * seen[1], np.sin(seen[1])], axis=-1) - measured

    yield EdgeTestTurn
    for kind in set(registry.all_types()) - start:
        registry.unregister(kind)


def test_a_users_edge_of_three_vertices(bend, runner):
    """All sources or some."""
    products = Cut(Case(bend, 300, "diagonal", kernel=2), runner, (True,) * 3)
    for slot, sources, stored_sources in [(0, (1, 2), (1, 2)), (1, (0,), (0, 2)), (2, (0, 1, 2), (0, 1, 2))]:
        cut = cut_between(
            products.case.signature, slot, stored_sources, runner.arithmetic, BALANCES[1], slot == 0
        )
        products.needs(slot, stored_sources, cut)
        products.check_all(slot, sources, stored_sources, cut)


@pytest.mark.parametrize("variant", [("address", "double"), ("storage", "mixed")], ids="-".join)
def test_images(variant):
    """Samples are taken when values are stored, or in the product."""
    runner = runner_for(*variant)
    products = Cut(Case(photo_edge(), 300, "full", 1, images=images()), runner, (True, True))
    samples = set()
    for balance in (Balance(0.01, 64.0, 2.0), Balance(64.0, 0.01, 1.0)):
        cut = cut_between(products.case.signature, 1, (0,), runner.arithmetic, balance, True)
        products.needs(1, (0,), cut)
        products.check_all(1, (0,), (0,), cut)
        tiles, _ = products.kernels(products.case.view(1, False), (0,), (0,), cut)
        samples.add("sample_" in tiles.source)
    assert samples == {False, True}
    assert runner.device.messages == []


# -------------------------------------------------------------------- which values


def signature_of(tag, information="identity", kernel=1):
    """Signature of a built-in type."""
    return Case(registry.edge_type(tag), n=4, information=information, kernel=kernel).signature


def test_of_observations_the_robust_weight_is_stored():
    """It is the one value that measurements and whole residuals are needed for."""
    for slot in (0, 1):
        cut = view_cut(signature_of("EDGE_OBSERVATION_BAL"), slot, (1 - slot,), "mixed", BALANCES[0], False)
        assert (cut.where, cut.stored) == ("between", ("weight",))
        assert cut.use.operations < cut.without.operations
        assert (cut.use.data, cut.without.data) == (0, 3)
        product = expression_product(
            signature_of("EDGE_OBSERVATION_BAL"), slot, (1 - slot,), (1 - slot,), (True,) * 2, cut, "mixed"
        )
        assert product.assignment.num_flops == cut.use.operations and not product.uses_data()


def test_ends_are_told():
    """Nothing to save without a robust kernel; Jacobians of few numbers."""
    plain = signature_of("EDGE_OBSERVATION_BAL", kernel=0)
    cuts = [view_cut(plain, slot, (1 - slot,), "mixed", Balance(), False) for slot in (0, 1)]
    assert [cut.where for cut in cuts] == ["inputs"] * 2 and schedule_of(cuts) == "matrix-free"
    assert cuts[0].use == cuts[0].without
    poses = signature_of("EDGE_SE2", kernel=0)  # five numbers are all that its Jacobians have
    cuts = [view_cut(poses, slot, (1 - slot,), "double", Balance(4.0, 32.0), False) for slot in (0, 1)]
    assert [cut.where for cut in cuts] == ["outputs"] * 2 and schedule_of(cuts) == "jacobians"
    between = view_cut(signature_of("EDGE_OBSERVATION_BAL"), 0, (1,), "double", Balance(), False)
    assert schedule_of([cuts[0], between]) == "expressions"


def test_no_other_cut_of_the_program_is_cheaper():
    """Against all cuts that store up to two values, by bytes, operations and reads added up."""
    signature = signature_of("EDGE_SE2_XY")
    product = Recomputed(signature, 1, (0,), "double")
    moving = moving_values(product)
    steady = [t for s in product.assignment.statements for t in s.targets if t not in moving]
    for balance in (Balance(1.0, 8.0), Balance(4.0, 64.0), Balance(0.25, 1.0)):
        reads = reads_of(product, balance, False)

        def total(stored, reads=reads, balance=balance):
            split = split_at(product.assignment, moving, stored)
            return use_of(split, reads).cost(balance)[1]

        found = _Graph(product.assignment, moving, reads).cut(balance, 1.0, 1.0)
        others = [total(pair) for pair in combinations_with_replacement(steady, 2)]
        assert total(found) <= min([*others, total(())]) + 1e-9


def test_wide_values_are_not_stored_for_wide_ones():
    """Float32 copies of what a closed form near zero is made of would lose its digits."""
    num_wide = 0
    for slot, explicit, balance in product_of((0, 1), (False, True), [*BALANCES, Balance(64.0, 1.0, 1.0)]):
        signature = signature_of("EDGE_SE3:QUAT")
        cut = cut_between(signature, slot, (1 - slot,), "mixed", balance, explicit)
        other = (1 - slot,)
        product = expression_product(signature, slot, other, other, (True, True), cut, "mixed")
        num_wide += len(product.wide)
        for statement in product.assignment.statements:
            if not product.wide.isdisjoint(statement.targets):
                assert not {*cut.stored} & {*statement.names()}
    assert num_wide > 0


def test_what_shared_vertices_decide_is_not_paid_for_per_edge():
    """Where many edges have the same destination, less is stored of what it alone decides."""
    signature = signature_of("EDGE_SE2_XY")
    balance = Balance(1.0, 1.0, 1.0)
    alone, shared = (view_cut(signature, 0, (1,), "double", balance, shares) for shares in (False, True))
    assert shared.use.flops <= alone.use.flops and shared.use.nbytes <= alone.use.nbytes
    assert shared.use != alone.use


def test_formulas_are_readable():
    """By names of the residual's arguments; short."""
    signature = signature_of("EDGE_SE3_TRACKXYZ", "full")
    cut = cut_between(signature, 1, (0,), "double", Balance(0.1, 8.0), False)
    found = formulas(signature, 1, (0,), "double", cut)
    assert tuple(found) == cut.stored
    assert any("offset_" in text and "..." not in text for text in found.values())
    assert any("pose_" in text and "..." not in text for text in found.values())
    assert all(len(text) <= MAX_FORMULA for text in found.values())


def test_minimum_cuts_equal_scipys():
    """Sums of capacities of random graphs."""
    rng = random.Random(0)
    for n in (4, 8, 20, 60):
        for _ in range(20):
            pairs = {(rng.randrange(n), rng.randrange(n)) for _ in range(4 * n)}
            edges = [(a, b, float(rng.randrange(1, 30))) for a, b in sorted(pairs) if a != b]
            side = source_side(n, edges, 0, n - 1)
            assert 0 in side and n - 1 not in side
            table = csr_matrix(
                ([int(c) for *_, c in edges], ([a for a, *_ in edges], [b for _, b, _ in edges])), (n, n)
            )
            expected = maximum_flow(table.astype(np.int32), 0, n - 1).flow_value
            assert sum(c for a, b, c in edges if a in side and b not in side) == expected


def test_cuts_are_kept_on_disk(tmp_path, monkeypatch):
    """The second process reads them; a broken file is written anew; another balance is another file."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    args = (signature_of("EDGE_SE2_XY"), 0, (1,), "mixed", Balance(2.0, 32.0, 2.0), False)
    first = view_cut.__wrapped__(*args)
    (path,) = tmp_path.rglob("*.cut")
    with monkeypatch.context() as patched:
        patched.setattr("graphopt.codegen.gpu.expression_cuts.best_split", None)  # is not called
        assert view_cut.__wrapped__(*args) == first
    path.write_text("nothing")
    assert view_cut.__wrapped__(*args) == first
    assert len(path.read_bytes()) > 20
    view_cut.__wrapped__(*args[:4], Balance(4.0, 32.0, 2.0), False)
    assert len(list(tmp_path.rglob("*.cut"))) == 2
