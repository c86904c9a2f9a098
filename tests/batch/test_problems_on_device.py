"""`optimize_batch` on a device takes the CPU's steps and decisions, and ends where the CPU ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problem_batches import POINT, PROBLEMS, SEES, Made, pnp, triangulation, windows
from vulkan_devices import shared_device

import graphopt
from graphopt import BatchSummary, Graph, TerminationType, optimize_batch
from graphopt.batch import on_device
from graphopt.batch.plan import Envelope
from graphopt.device import DeviceLimitError
from graphopt.errors import OptionError
from graphopt.optimizer import LevenbergMarquardtOptions
from graphopt.problem.structure import Structure


@pytest.fixture(params=["address"])
def device(request, monkeypatch):
    """A device under the validation layer, which says nothing."""
    opened = shared_device(request.param)
    monkeypatch.setattr(on_device, "open_device", lambda spec: opened)
    yield opened
    assert opened.messages == []


def assert_same(found: BatchSummary, expected: BatchSummary, *, digits: int = 9) -> None:
    """The same decisions, chi2 to 1e-12 (1e-9 with fewer digits) and estimates."""
    assert found.termination.tolist() == expected.termination.tolist()
    np.testing.assert_array_equal(found.iterations, expected.iterations)
    tolerance = 10.0**-digits
    np.testing.assert_allclose(found.initial_chi2, expected.initial_chi2, rtol=tolerance * 1e-3)
    np.testing.assert_allclose(found.final_chi2, expected.final_chi2, rtol=tolerance * 1e-3)
    for tag, estimates in expected.estimates.items():
        np.testing.assert_allclose(found.estimates[tag], estimates, rtol=tolerance, atol=tolerance)


def two_views(count: int) -> Made:
    """Two cameras and 15 points, the first camera and one coordinate's worth of scale fixed by a third."""
    graph, given = windows(count)
    keep = {name: arrays.copy() for name, arrays in given.items()}
    mask = np.ones((count, 120), bool)
    mask[:, 2::4] = False  # the third camera sees nothing: it stays where it is
    return graph, {**keep, "masks": {SEES: mask}}


def space_pose_graphs(count: int) -> Made:
    """Nine poses in space along a line, with chords, Cauchy's kernel on these, in two groups of edges."""
    rng = np.random.default_rng(6)
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", range(9))
    steps = [[k, k + 1] for k in range(8)]
    chords = [[0, 4], [5, 1], [8, 2]]
    graph.add_edges("EDGE_SE3:QUAT", steps + chords)
    graph.edge_sets[0].kernel[8:] = graphopt.types.robust_kernels.robust_kernel("Cauchy").number
    starts = np.zeros((count, 9, 7))
    starts[..., 6] = 1.0
    starts[..., 0] = np.arange(9) + rng.normal(0.0, 0.1, (count, 9))
    moved = np.zeros((count, 11, 7))
    moved[..., 6] = 1.0
    moved[..., :3] = rng.normal(0.0, 0.05, (count, 11, 3))
    moved[..., 0] += np.array([b - a for a, b in steps + chords])
    moved[..., 3:6] = rng.normal(0.0, 0.02, (count, 11, 3))
    return graph, {
        "estimates": {"VERTEX_SE3:QUAT": starts},
        "measurements": {"EDGE_SE3:QUAT": moved},
        "information": {"EDGE_SE3:QUAT": rng.uniform(1.0, 50.0, (count, 11, 6))},
    }


def camera_of_nine(count: int) -> Made:
    """A camera with intrinsics sees twelve fixed points: more scalars than are eliminated together."""
    rng = np.random.default_rng(0)
    kind: Any = graphopt.types.registry.edge_type("EDGE_OBSERVATION_BAL")
    points = rng.uniform(-1.0, 1.0, (12, 3)) - [0.0, 0.0, 6.0]
    camera = np.array([[0.02, -0.03, 0.01, 0.1, -0.2, 0.1, 400.0, -1e-2, 1e-3]])
    graph = Graph()
    graph.add_vertices(kind.vertices[0], [0], camera)
    graph.add_vertices(kind.vertices[1], range(1, 13), points, fixed=True)
    pixels = kind.error((np.repeat(camera, 12, axis=0), points), (), np.zeros((12, 2)))
    graph.add_edges(kind, [[0, k + 1] for k in range(12)], pixels)
    noise = np.repeat([0.01, 0.05, 5.0, 1e-3, 1e-4], [3, 3, 1, 1, 1])
    return graph, {
        "estimates": {kind.vertices[0]: camera + noise * rng.standard_normal((count, 1, 9))},
        "measurements": {kind: pixels + 0.3 * rng.standard_normal((count, 12, 2))},
    }


def linked_points(count: int, num: int) -> Made:
    """Points in the plane, the first fixed, each linked to all others: rows of the factor are full."""
    rng = np.random.default_rng(7)
    graph = Graph()
    graph.add_vertices("VERTEX_XY", range(num), fixed=np.arange(num) == 0)
    pairs = np.stack(np.triu_indices(num, 1), axis=1)
    graph.add_edges("EDGE_POINTXY", pairs)
    return graph, {
        "estimates": {"VERTEX_XY": rng.normal(0.0, 3.0, (count, num, 2))},
        "measurements": {"EDGE_POINTXY": rng.normal(0.0, 3.0, (count, len(pairs), 2))},
        "information": {"EDGE_POINTXY": rng.uniform(1.0, 50.0, (count, len(pairs), 2))},
    }


def far_off() -> Made:
    """Curves whose start is so far off that some steps are rejected."""
    graph, given = PROBLEMS["a user's residual"]()
    start = np.tile([-5.0, 3.0, 5.0], (4, 1, 1))
    return graph, {**given, "estimates": {"VERTEX_BATCH_CURVE": start}}


SLOW = pytest.mark.slow
CASES: list[Any] = [
    ("a user's residual", PROBLEMS["a user's residual"], "lm"),
    ("a user's residual, from far off", far_off, "lm"),
    ("triangulation", lambda: triangulation(5), "gn"),
    ("a camera of nine", lambda: camera_of_nine(3), "gn"),
    ("8 points by 32 invocations", lambda: linked_points(3, 8), "gn"),
    ("20 points by 128 invocations", lambda: linked_points(2, 20), "gn"),
    *(
        pytest.param(name, make, method, marks=SLOW)
        for name, make in (
            ("PnP", lambda: pnp(5, 101)),
            ("PnP, Cauchy", lambda: pnp(3, 23, "Cauchy")),
            ("two views", lambda: two_views(3)),
            ("windows", lambda: windows(3)),
            ("SE2", PROBLEMS["pose graphs"]),
            ("SE3", lambda: space_pose_graphs(3)),
        )
        for method in ("lm", "gn")
    ),
    pytest.param("a user's residual", PROBLEMS["a user's residual"], "dogleg", marks=SLOW),
    pytest.param("SE2", PROBLEMS["pose graphs"], "dogleg", marks=SLOW),
]


@pytest.mark.parametrize(("name", "make", "method"), CASES)
def test_problems_end_as_on_the_cpu(device, name, make, method) -> None:
    """Iterations, terminations, chi2 to 1e-12 and estimates to 1e-9."""
    graph, given = make()
    expected = optimize_batch(graph, method=method, device="cpu", **given)
    found = optimize_batch(graph, method=method, device="vulkan", **given)
    assert found.device == device.spec
    assert_same(found, expected)


def test_masks_and_a_failure_among_good_problems(device) -> None:
    """What a problem lacks is not looked at; one with NaN fails alone and is named."""
    graph, given = triangulation(5)
    mask = np.ones((5, 4), bool)
    mask[1, 2], mask[3, 0] = False, False
    given["measurements"][SEES][1, 2] = np.nan
    given["measurements"][SEES][4, 3] = np.nan
    expected = optimize_batch(graph, method="gn", device="cpu", masks={SEES: mask}, **given)
    found = optimize_batch(graph, method="gn", device="vulkan", masks={SEES: mask}, **given)
    assert found.is_usable.tolist() == [True, True, True, True, False]
    assert "vertices 0, 4" in found.message(4)
    assert_same(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["address", "storage"], indirect=True)
@pytest.mark.parametrize("method", ["lm", "gn"])
def test_vertices_without_edges_stay(device, method) -> None:
    """Of a window that does not see a point that point stays; covariances are those of the CPU."""
    graph, given = windows(2)
    mask = np.ones((2, 120), bool)
    mask[1, :4] = False
    options = {"method": method, "masks": {SEES: mask}, "covariances": [2, 10], **given}
    expected = optimize_batch(graph, device="cpu", **options)
    found = optimize_batch(graph, device="vulkan", **options)
    assert_same(found, expected)
    np.testing.assert_array_equal(found.vertex(10)[1], given["estimates"][POINT][1, 0])
    for id_ in (2, 10):
        np.testing.assert_allclose(found.covariances[id_], expected.covariances[id_], rtol=1e-6)


@pytest.mark.slow
def test_pairs_of_floats_end_there_too(device) -> None:
    """precision "mixed" computes in pairs of float32: chi2 to 1e-9."""
    graph, given = triangulation(3)
    expected = optimize_batch(graph, device="cpu", **given)
    found = optimize_batch(graph, device="vulkan", precision="mixed", **given)
    np.testing.assert_allclose(found.final_chi2, expected.final_chi2, rtol=1e-9)
    np.testing.assert_allclose(found.vertex(0), expected.vertex(0), atol=1e-9)


def test_problems_go_in_parts(device, monkeypatch) -> None:
    """Parts of a batch, and submissions of one iteration, change no digit."""
    graph, given = triangulation(5)
    whole = optimize_batch(graph, method="gn", device="vulkan", **given)
    monkeypatch.setattr(on_device, "PART_BYTES", 200)
    monkeypatch.setattr(on_device, "_EVALUATIONS", {"cpu": 1})
    parts = optimize_batch(graph, method="gn", device="vulkan", **given)
    np.testing.assert_array_equal(parts.final_chi2, whole.final_chi2)
    np.testing.assert_array_equal(parts.iterations, whole.iterations)
    np.testing.assert_array_equal(parts.vertex(0), whole.vertex(0))


def test_damping_is_loosened_once_per_decrease_across_submissions(device, monkeypatch) -> None:
    """Runs whose first steps are tiny go on, and end where chi2 has not fallen since; as on the CPU."""
    states = []
    collect = on_device._Call.collect
    monkeypatch.setattr(
        on_device._Call, "collect", lambda *given: states.append(collect(*given)) or states[-1]
    )
    graph, given = far_off()
    rules = LevenbergMarquardtOptions(max_iterations=50, function_tolerance=1e-8, initial_lambda=1e8)
    expected = optimize_batch(graph, options=rules, device="cpu", **given)
    for evaluations in (2e6, 1):  # one submission, and one of each iteration
        monkeypatch.setattr(on_device, "_EVALUATIONS", {"cpu": evaluations})
        assert_same(optimize_batch(graph, options=rules, device="vulkan", **given), expected)
    whole, steps = states
    np.testing.assert_array_equal(steps, whole)
    at_last_end, chi2 = whole[:, 6], whole[:, 1]
    assert np.isfinite(at_last_end).all() and (at_last_end > chi2).any() and (at_last_end == chi2).any()


def test_what_does_not_fit_is_refused_or_left_to_the_cpu(device, monkeypatch) -> None:
    """The error names the limit; "auto" takes the CPU and says why."""
    graph, given = windows(2)
    monkeypatch.setitem(device.info, "max_shared_memory", 4096)
    with pytest.raises(DeviceLimitError, match=r"102 scalars needs \d+ bytes.*has 4096"):
        optimize_batch(graph, device="vulkan", **given)
    monkeypatch.setattr("graphopt.batch.optimize.device_for_batch", lambda *_: "vulkan:0")
    found = optimize_batch(graph, device="auto", **given)
    assert found.device == "cpu" and "102 scalars" in found.why_not_device
    assert found.converged.all()
    with pytest.raises(OptionError, match="'pcg' is not for"):
        optimize_batch(graph, device="vulkan", linear_solver="pcg", **given)


def test_a_flag_that_is_set_leaves_all_at_their_start(device) -> None:
    """Nothing is begun, and the termination says why."""
    graph, given = triangulation(3)
    stop = graphopt.StopFlag(True)
    found = optimize_batch(graph, method="gn", device="vulkan", stop=stop, **given)
    assert set(found.termination.tolist()) == {TerminationType.USER_STOP}
    assert np.isnan(found.final_chi2).all()
    np.testing.assert_array_equal(found.vertex(0), [graph.vertex(0).estimate] * 3)


def test_the_envelope_has_every_entry_of_the_factor() -> None:
    """Cholesky's factor of a random matrix with H's blocks is zero outside."""
    graph, _ = windows(1)
    structure = Structure(graph.select(0))
    envelope = Envelope.of(structure)
    rng = np.random.default_rng(0)
    n = envelope.dim
    jacobian = np.zeros((4 * n, n))
    pattern = structure.pattern
    row = 0
    columns = np.repeat(np.arange(structure.num_blocks), np.diff(pattern.col_ptr))
    for i, j in zip(pattern.row_idx.tolist(), columns.tolist(), strict=True):
        for block in (i, j):
            start = envelope.blocks[block]
            jacobian[row, start : start + structure.dims[block]] = rng.normal(size=structure.dims[block])
        row += 1
    factor = np.linalg.cholesky(jacobian.T @ jacobian + np.eye(n))
    outside = np.arange(n)[None, :] < envelope.first[:-1, None]
    assert np.abs(np.tril(factor)[outside]).max(initial=0.0) == 0.0
    assert envelope.num_entries <= 30 * 6 + 12 * 90 + 12 * 13 // 2 + n  # points first, then two cameras
