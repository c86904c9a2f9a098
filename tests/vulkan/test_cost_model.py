"""The cost model: sizes from the structure, predictions, the pick, measurements, `graphopt explain`."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from long_graphs import curve_fit
from resident_graphs import mixed_plane, mixed_space
from vulkan_devices import shared_device

from graphopt import io
from graphopt.cli.main import main
from graphopt.cli.measure_schedules import measure_schedules
from graphopt.device.figures import DeviceFigures
from graphopt.errors import OptionError
from graphopt.evaluate import datasets
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.vulkan.plan.choice import choose_plan, configuration_of
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import cheapest, predict

PRODUCTS = ("blocks", "matrix-free", "jacobians")
BY_TAG = [
    a if a == b else f"EDGE_SE3:QUAT={a}, EDGE_SE3_TRACKXYZ={b}" for a, b in product(PRODUCTS, repeat=2)
]
H200 = DeviceFigures("H200", 4.0e12, 4.8e13, 3.0e13, 2.5e11, 2e-6, 3e-5)


def structure_of(graph):
    """Structure of all of a graph."""
    return Structure(graph.select())


@pytest.fixture(scope="module")
def bundle():
    """A small bundle adjustment problem."""
    return datasets.ba(cameras=6, points=80, camera="bal")


@pytest.fixture(scope="module")
def sphere():
    """A small pose graph."""
    return datasets.sphere(nodes_per_level=8, laps=4)


def test_sizes_are_those_of_the_structure(bundle):
    structure = structure_of(bundle)
    size = problem_size(structure, "double")
    columns = np.repeat(np.arange(structure.num_blocks), np.diff(structure.pattern.col_ptr))
    rows, kept = structure.pattern.row_idx, structure.num_kept
    scalars = structure.dims[rows].astype(int) * structure.dims[columns]
    coupling = (columns >= kept) & (rows != columns)
    assert size.values == structure.values_size
    assert size.coupling == scalars[coupling].sum()
    assert size.diagonal == scalars[rows == columns].sum()
    degree = np.bincount(columns[coupling] - kept, minlength=structure.num_blocks - kept)
    assert size.num_pairs == (degree * (degree + 1) / 2).sum()
    # 9 x 3 blocks: 2 (R^2 K + R K^2) operations per pair
    assert size.pair_flops == pytest.approx(size.num_pairs * 2 * (81 * 3 + 9 * 9))
    assert size.groups[0].is_eliminated == (False, True)


def test_every_schedule_is_predicted_and_sorted(bundle, sphere):
    for graph, names in [
        (
            bundle,
            {
                "explicit, blocks",
                *(f"implicit, {each_product}" for each_product in (*PRODUCTS, "jp")),
            },
        ),
        (sphere, {f"off, {each_product}" for each_product in (*PRODUCTS, "jp")}),
        (mixed_space(), {f"implicit, {name}" for name in BY_TAG} | {"explicit, blocks"}),
    ]:
        found = predict(problem_size(structure_of(graph), "double"), H200, "double")
        found = [prediction for prediction in found if "scatter" not in prediction.evaluations]
        assert names <= {prediction.name for prediction in found} and len(found) == len(
            {prediction.name for prediction in found}
        )
        totals = [prediction.total for prediction in found]
        assert totals == sorted(totals) and min(totals) > 0.0


def test_more_edges_cost_more_and_a_slower_device_takes_longer(bundle):
    size = problem_size(structure_of(bundle), "double")
    many = replace(size, groups=tuple(replace(g, num_edges=10**7) for g in size.groups))
    slow = replace(H200, bytes_per_second=1e10, gathers_per_second=1e8, float64_flops=1e10)
    for prediction in predict(size, H200, "double"):
        for other in (predict(many, H200, "double"), predict(size, slow, "double")):
            (same,) = (p for p in other if p.name == prediction.name)
            assert same.total > prediction.total


def test_expensive_edges_are_evaluated_once(bundle):
    """Gathered where residuals are cheap, once where they are not; never for the sake of a single sum."""
    size = problem_size(structure_of(bundle), "double")
    [group] = size.groups

    def picked(**more):
        return cheapest(predict(replace(size, groups=(replace(group, **more),)), H200, "double"), np.inf)

    assert picked(num_edges=10**6).evaluations == ("gather",)
    expensive = picked(num_edges=10**6, linearize_flops=20000)
    assert expensive.evaluations == ("scatter",)
    [gathered] = [
        prediction
        for prediction in predict(
            replace(size, groups=(replace(group, num_edges=10**6, linearize_flops=20000),)), H200, "double"
        )
        if f"{prediction.name}+scatter" == expensive.name
    ]
    assert gathered.seconds["linearize"] > expensive.seconds["linearize"]
    assert gathered.memory_bytes < expensive.memory_bytes
    curve = structure_of(curve_fit())
    tags = [g.edge_set.type.tag for g in curve.groups]
    for prediction in predict(problem_size(curve, "double"), H200, "double"):
        assert dict(zip(tags, prediction.evaluations, strict=True))["EDGE_TEST_CURVE"] == "gather"


def test_records_of_more_than_4_gib_are_refused(bundle, monkeypatch):
    """The cost model leaves them out; who pins them is told so."""
    structure, device = structure_of(bundle), shared_device("address")
    monkeypatch.setattr("graphopt.vulkan.operators.scatter.NEAR_BYTES", 1000)
    found = predict(problem_size(structure, "double"), H200, "double")
    assert found and all(prediction.evaluations == ("gather",) for prediction in found)
    configuration = configuration_of(SolverOptions("vulkan", "pcg"), "double")
    with pytest.raises(OptionError, match="more than the 4 GiB that kernels can count"):
        choose_plan("matrix-free+scatter", device, structure, configuration, "double")


def test_the_memory_limit_excludes_what_does_not_fit(bundle):
    found = predict(problem_size(structure_of(bundle), "double"), H200, "double")
    smallest = min(found, key=lambda prediction: prediction.memory_bytes)
    assert cheapest(found, smallest.memory_bytes) is smallest
    assert cheapest(found, 0.0) is smallest
    assert cheapest(found, np.inf) is found[0]


def test_of_many_edge_sets_one_at_a_time_is_changed():
    """Not all 81 schedules of four edge sets; the pick is at least as good as the uniform ones."""
    size = problem_size(structure_of(mixed_plane()), "double")
    found = [prediction for prediction in predict(size, H200, "double") if prediction.schur == "implicit"]
    assert len(size.tags) == 4 and 3 < len(found) < 3**4
    uniform = [prediction for prediction in found if len(set(prediction.products)) == 1]
    assert {prediction.schedule for prediction in uniform} == {*PRODUCTS, "jp"}
    tags = [g.tag for g in size.groups]
    for prediction in found:  # groups of one edge set share their choice
        assert len(set(zip(tags, prediction.products, strict=True))) == 4
    pins = {"EDGE_SE2": "jacobians", "EDGE_SE2_XY": "blocks"}
    for prediction in predict(size, H200, "double", pins):
        assert pins.items() <= dict(zip(tags, prediction.products, strict=True)).items()


def test_what_work_queues_cannot_count_is_left_out(bundle):
    """2^30 pairs, 2^31 scalars of S or H; who pins it is told so."""
    size = problem_size(structure_of(bundle), "double")

    def names(**more):
        return {prediction.name for prediction in predict(replace(size, **more), H200, "double")}

    by_gathering = {f"implicit, {each_product}" for each_product in (*PRODUCTS, "jp")}
    implicit = {f"{name}{more}" for name in by_gathering for more in ("", "+scatter")}
    explicit = {"explicit, blocks", "explicit, blocks+scatter"}
    assert names(num_pairs=2.0**30 - 1) == implicit | explicit
    assert names(num_pairs=2.0**30) == names(schur=2.0**31) == implicit
    many = replace(size.groups[0], coupling=2**31)
    assert names(groups=(many,)) == implicit - {"implicit, blocks", "implicit, blocks+scatter"}


def test_a_pin_that_cannot_be_is_refused(bundle, monkeypatch):
    """With the numbers."""
    monkeypatch.setattr("graphopt.vulkan.plan.search.MAX_QUEUE_ITEMS", 10)
    device, structure = shared_device("address"), structure_of(bundle)
    configuration = configuration_of(SolverOptions("vulkan", "pcg"), "double")
    with pytest.raises(OptionError, match=r"scalars of H and .* Use schedule='matrix-free' or 'jacobians'"):
        choose_plan("blocks", device, structure, configuration, "double")
    assert "blocks" not in choose_plan("auto", device, structure, configuration, "double").products


def test_what_the_user_pins_is_kept(bundle):
    device = shared_device("address")
    structure = structure_of(bundle)
    pinned = [
        f"{each_product}{evaluation}"
        for each_product in PRODUCTS
        for evaluation in ("", "+gather", "+scatter")
    ]
    for schur, schedule in [("explicit", "blocks"), *(("implicit", name) for name in pinned)]:
        options = SolverOptions("vulkan", "pcg", schur)
        plan = choose_plan(schedule, device, structure, configuration_of(options, "double"), "double")
        products, _, evaluation = schedule.partition("+")
        assert (plan.configuration.schur, plan.products) == (schur, (products,))
        assert plan.evaluations == (evaluation,) or not evaluation
        assert plan.schedule == products + "+scatter" * (plan.evaluations == ("scatter",))
    plan = choose_plan(
        "scatter",
        device,
        structure,
        configuration_of(SolverOptions("vulkan", "cholesky"), "double"),
        "double",
    )
    assert plan.schedule == "blocks+scatter"
    plan = choose_plan(
        "auto", device, structure, configuration_of(SolverOptions("vulkan", "pcg"), "double"), "double"
    )
    best = plan.predictions[0]
    assert (plan.configuration.schur, plan.schedule) == (best.schur, best.schedule)
    assert plan.products == best.products
    with pytest.raises(OptionError, match="matrix-free' needs products only"):
        options = SolverOptions("vulkan", "cholesky", "explicit")
        choose_plan("matrix-free", device, structure, configuration_of(options, "double"), "double")


def test_measurements_leave_the_graph_as_it_is(bundle):
    device = shared_device("address")
    structure = structure_of(bundle)
    before = [vertex_set.estimate.copy() for vertex_set in bundle.vertex_sets]
    predictions = predict(problem_size(structure, "double"), H200, "double")
    measured = measure_schedules(bundle, structure, device, "double", predictions, repetitions=1)
    assert [run.prediction for run in measured] == predictions
    for run in measured:
        assert run.seconds.keys() == run.prediction.seconds.keys()
        assert all(run.seconds[phase] > 0.0 for phase in ("linearize", "eliminate", "solve", "update"))
    for vertex_set, old in zip(bundle.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(vertex_set.estimate, old)
    assert not device.messages


@pytest.fixture
def files(tmp_path, bundle, sphere):
    """The graphs as files."""
    paths = tmp_path / "bundle.txt", tmp_path / "sphere.g2o"
    for graph, path in zip((bundle, sphere), paths, strict=True):
        io.write(graph, path)
    return [str(path) for path in paths]


def test_explain_shows_the_choice(files, bundle, capsys):
    words = ["explain", files[0], "--device", "vulkan", "--linear-solver", "pcg"]
    assert main([*words, "--measure", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["problem"]["eliminated"] == sum(
        int(vertex_set.marginalized.sum()) for vertex_set in bundle.vertex_sets
    )
    (edge,) = document["edges"]
    assert edge["edge"] == "EDGE_OBSERVATION_BAL"
    first, *_, last = edge["programs"]["linearize"]
    assert first["rule"] == "as written" and last["operations"] < first["operations"]
    (chosen,) = (schedule for schedule in document["schedules"] if schedule["chosen"])
    assert chosen["schedule"] == f"{document['schur']}, {document['schedule']}"
    assert all(schedule["measured_seconds"]["total"] > 0.0 for schedule in document["schedules"])
    assert main(words) == 0
    assert "matrix-free" in capsys.readouterr().out


def test_explain_by_edge_set(tmp_path, capsys):
    """Every combination with its times; a pin leaves those that keep it."""
    path = tmp_path / "space.g2o"
    io.write(mixed_space(), path)
    words = ["explain", str(path), "--device", "vulkan", "--linear-solver", "pcg", "--schur", "off"]
    assert main([*words, "--measure", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {schedule["schedule"] for schedule in document["schedules"]} >= {
        f"off, {schedule}" for schedule in BY_TAG
    }
    for schedule in document["schedules"]:
        assert schedule["measured_seconds"]["total"] > 0.0 and schedule["predicted_seconds"]["total"] > 0.0
    pins = ["--schedule", "EDGE_SE3:QUAT=jacobians", "--schedule", "EDGE_SE3_TRACKXYZ=blocks"]
    assert main([*words, *pins, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["edge_sets"] == {"EDGE_SE3:QUAT": "jacobians", "EDGE_SE3_TRACKXYZ": "blocks"}
    assert len(document["schedules"]) == 1 and document["schedules"][0]["chosen"]
    assert main([*words, *pins]) == 0
    text = capsys.readouterr().out
    assert "by edge set" in text and "EDGE_SE3_TRACKXYZ" in text
    assert main([*words, "--schedule", "EDGE_SE2=blocks"]) == 2
    assert "names edge type 'EDGE_SE2', of which there are no active edges" in capsys.readouterr().err


def test_explain_on_the_cpu(files, capsys):
    assert main(["explain", files[1], "--device", "cpu"]) == 0
    assert "cholesky" in capsys.readouterr().out


def test_explain_prints_sources(files, capsys):
    assert main(["explain", files[1], "--source"]) == 0
    text = capsys.readouterr().out
    for kernel in (
        "EdgeSE3.chi2",
        "EdgeSE3.linearize0",
        "EdgeSE3.pair0_1",
        "VertexSE3.oplus",
        "packed_rows1.0",
        "store0.1",
        "stored_tiles1.0",
        "EdgeSE3.moved0_1",
        "transposed_tiles1.0_1",
        "merged.linearize.EdgeSE3",
        "merged.product.EdgeSE3",
    ):
        assert kernel in text
    assert main(["explain", files[1], "--source", "EDGE_SE2"]) == 2
    assert "has no active edges of type 'EDGE_SE2'. It has: EDGE_SE3:QUAT." in capsys.readouterr().err
