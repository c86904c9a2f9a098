"""The device-resident block solver against the CPU's, quantity by quantity and whole runs."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from device_solvers import close, on_cpu, resident
from resident_graphs import mixed_plane, mixed_space
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt.device import VulkanDevice, open_device
from graphopt.errors import OptionError, SolverError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.solver.external import ExternalPlaces
from graphopt.solver.trial import Damping
from graphopt.vulkan.solver import ResidentBlockSolver

RESIDENT = [
    ("cholesky", "auto", "blocks"),
    ("pcg", "off", "blocks"),
    ("pcg", "explicit", "blocks"),
    ("pcg", "implicit", "blocks"),
    ("pcg", "off", "matrix-free"),
    ("pcg", "implicit", "matrix-free"),
    ("pcg", "off", "jacobians"),
    ("pcg", "implicit", "jacobians"),
]


@pytest.fixture(params=["address", "storage"])
def access(request):
    """Both access variants."""
    return request.param


def test_estimates_are_remembered_to_any_depth(access):
    """Push, update, push, update, ... and all the way back; a push makes no copy of what was pushed."""
    device, host = resident(mixed_plane(), access), on_cpu(mixed_plane())
    rng = np.random.default_rng(3)
    seen = []
    for _ in range(4):
        seen.append((device.chi2(), host.chi2()))
        for solver in (device, host):
            solver.push()
        device.dx = host.dx = 0.01 * rng.normal(size=host.dim)
        for solver in (device, host):
            solver.update()
    for solver in (device, host):
        solver.discard_top()
    for before in reversed(seen[:-1]):
        for solver in (device, host):
            solver.pop()
        assert device.chi2() == before[0] == pytest.approx(before[1], rel=1e-12)
        assert host.chi2() == before[1]


@pytest.mark.parametrize("graph", [mixed_space, bundle_adjustment])
def test_every_order_of_calls(graph, access):
    """Trials, updates, restored and discarded estimates in random orders, at every depth of the stack."""
    device, host = resident(graph(), access, "cholesky", "auto"), on_cpu(graph())
    rng, tolerance, depth = np.random.default_rng(5), 1e-9, 0
    for _ in range(60):
        call = rng.choice(["linearize", "chi2", "trial", "move", *(["pop", "discard_top"] if depth else [])])
        if call in ("linearize", "chi2"):
            assert getattr(device, call)() == pytest.approx(getattr(host, call)(), rel=tolerance)
            if call == "linearize":
                close(device.b, host.b, tolerance)
        elif call in ("pop", "discard_top"):
            depth -= 1
            getattr(device, call)(), getattr(host, call)()
        elif call == "trial":
            depth += 1
            assert device.linearize() == pytest.approx(host.linearize(), rel=tolerance)
            damping = Damping(float(10.0 ** rng.uniform(1.0, 4.0)))
            found, expected = device.trial(damping), host.trial(damping)
            assert found.solved and found.chi2 == pytest.approx(expected.chi2, rel=tolerance)
            close(device.dx, host.dx, tolerance)
        else:
            depth += 1
            device.dx = host.dx = 0.01 * rng.normal(size=host.dim)
            assert device.move().chi2 == pytest.approx(host.move().chi2, rel=tolerance)


def test_only_what_changed_is_uploaded(monkeypatch):
    """A second optimization writes the estimates that moved; new measurements, widths, parameters count."""
    from graphopt.vulkan.data.array import DeviceArray

    graph = mixed_space()
    solver = resident(graph)
    solver.refresh()
    written = []
    for name in ("write", "fill"):
        before = getattr(DeviceArray, name)

        def noted(own, *more, before=before):
            written.append(own)
            return before(own, *more)

        monkeypatch.setattr(DeviceArray, name, noted)

    def refreshed() -> int:
        written.clear()
        solver.refresh()
        return len(written)

    assert refreshed() == 0
    graph.vertex_set("VERTEX_TRACKXYZ").estimate[2] += 0.5
    assert refreshed() == 1
    graph.edge_set("EDGE_SE3:QUAT").kernel_width[3] = 0.1
    graph.edge_set("EDGE_SE3_TRACKXYZ").measurement[1] += 0.2
    views = sum(len(edges.views) for edges in solver.linearizer.edges)
    assert refreshed() == views
    graph.parameter_set("PARAMS_SE3OFFSET").values[0, 0] += 0.1
    assert refreshed() == 1
    expected = on_cpu(graph)
    assert solver.linearize() == pytest.approx(expected.linearize(), rel=1e-12)
    close(solver.b, expected.b)


def test_a_refresh_between_push_and_pop_keeps_what_was_pushed():
    """As `auto` does when it moves landmarks."""
    graph = mixed_plane()
    solver = resident(graph)
    start = solver.chi2()
    solver.finish()
    solver.push()
    graph.vertex_set("VERTEX_XY").estimate[:] += 0.3
    solver.refresh()
    assert solver.chi2() == pytest.approx(on_cpu(graph).chi2(), rel=1e-12) != start
    solver.pop()
    assert solver.chi2() == start


def test_a_repeated_optimization_reuses_the_solver(monkeypatch):
    """The same graph again: same chi2 in every iteration, by one solver."""
    made, make = [], ResidentBlockSolver.__init__

    def counted(self, *arguments, **options):
        made.append(self)
        make(self, *arguments, **options)

    monkeypatch.setattr(ResidentBlockSolver, "__init__", counted)
    graph = mixed_plane()
    estimates = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    runs = []
    for _ in range(2):
        for vertex_set, estimate in zip(graph.vertex_sets, estimates, strict=True):
            vertex_set.estimate[:] = estimate
        runs.append(optimize(graph, "lm", 3, device="vulkan", linear_solver="pcg", schur="implicit"))
    assert [i.chi2 for i in runs[0].iterations] == [i.chi2 for i in runs[1].iterations]
    assert len(made) == 1


@pytest.mark.parametrize("linear_solver,schur,schedule", [RESIDENT[0], RESIDENT[5], RESIDENT[7]])
def test_many_trials_leave_nothing_behind(linear_solver, schur, schedule):
    """Memory and recorded programs don't grow with trials, and all is free when the solver is gone."""
    device = shared_device("address")
    gc.collect()
    before = device.memory_statistics()["allocations"]
    solver = resident(mixed_plane(), "address", linear_solver, schur, schedule)

    def iterate(solver, count: int) -> None:
        for number in range(count):
            solver.linearize()
            assert solver.trial(Damping(1.0)).solved
            if number % 2:
                solver.pop()
            else:
                solver.discard_top()

    iterate(solver, 20)
    settled = device.memory_statistics()["used"], len(solver.system.programs.known)
    iterate(solver, 40)
    after = device.memory_statistics()["used"], len(solver.system.programs.known)
    assert after == settled
    del solver
    assert device.memory_statistics()["allocations"] == before


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("schedule", ["host", "blocks", "matrix-free", "jacobians"])
def test_a_graph_that_goes_takes_its_device_memory_along(schedule, precision):
    device = open_device("vulkan")
    gc.collect()
    before = device.memory_statistics()["used"]
    graph = bundle_adjustment()
    options = {"linear_solver": "pcg", "schur": "implicit", "precision": precision, "schedule": schedule}
    summary = optimize(graph, "lm", 3, device="vulkan", **options)
    assert summary.device_name == device.name and device.memory_statistics()["used"] > before
    watch = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert watch() is None  # at once: no cycle of references
        assert device.memory_statistics()["used"] == before
    finally:
        gc.enable()


def test_a_trial_is_one_submission_and_one_small_readback(monkeypatch):
    """Nothing but a submission, and no download of a vector, from linearisation to the next trial."""
    from graphopt.vulkan.program import Program

    solver = resident(bundle_adjustment(), schur="implicit", schedule="matrix-free")
    solver.linearize()
    for damping in (Damping(1.0), Damping(1.0), Damping(2.0)):
        assert solver.trial(damping).solved
        solver.discard_top()
        solver.linearize()
    programs = []
    submit = Program.submit
    monkeypatch.setattr(Program, "submit", lambda own: (programs.append(own), submit(own))[1])
    monkeypatch.setattr(type(solver.device), "download", None)
    assert solver.trial(Damping(1.0)).solved
    assert len(programs) == 1 and len(programs[0].recorded) == 1


def test_an_indefinite_system_moves_nothing(access):
    """A negative damping that makes H indefinite: not solved, nothing pushed, chi2 as before."""
    for linear_solver, schur, schedule in RESIDENT:
        solver = resident(bundle_adjustment(), access, linear_solver, schur, schedule)
        start = solver.linearize()
        assert not solver.trial(Damping(-10.0 * solver.largest_diagonal())).solved
        assert solver.chi2() == start
        assert solver.trial(Damping(1.0)).solved


@pytest.mark.parametrize(
    "linear_solver,schur", [("cholesky", "auto"), ("cholesky", "off"), ("pcg", "implicit")]
)
def test_the_host_may_add_to_h_and_b(linear_solver, schur, access):
    """As for edges whose residual only Python knows: the rest stays on the device."""
    device = resident(mixed_plane(), access, linear_solver, schur, "blocks", tolerance=1e-24)
    host = on_cpu(mixed_plane())
    rng = np.random.default_rng(0)
    for _ in range(2):
        places = device.system.layout.diagonal_scalars
        more, gradient = rng.uniform(5.0, 9.0, len(places)), rng.normal(size=len(places))
        for solver in (device, host):
            solver.linearize()
            solver.external(ExternalPlaces({}, places, np.arange(solver.dim))).add(more, -gradient)
        close(device.diagonal, host.diagonal)
        assert device.largest_diagonal() == pytest.approx(host.largest_diagonal(), rel=1e-12)
        assert device.largest_gradient() == pytest.approx(host.largest_gradient(), rel=1e-9)
        actual, expected = (solver.trial(Damping(1e-3, True, 1e-6, 1e32)) for solver in (device, host))
        assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8)
        assert actual.gain == pytest.approx(expected.gain, rel=1e-8)
    free = resident(bundle_adjustment(), schur="implicit", schedule="matrix-free")
    free.linearize()
    with pytest.raises(SolverError, match="schedule='blocks'"):
        free.values  # noqa: B018


def test_a_non_finite_error_is_named():
    """As the CPU does."""
    graph = mixed_plane()
    graph.edge_set("EDGE_SE2_XY").measurement[3, 0] = np.nan
    expected = optimize(graph, "lm", 2, device="cpu")
    actual = optimize(graph, "lm", 2, device="vulkan", schedule="blocks")
    assert actual.termination is expected.termination
    assert actual.message == expected.message and "EDGE_SE2_XY" in actual.message


def test_long_work_is_cut_into_several_submissions(monkeypatch):
    """With a small budget a trial takes many programs, and gives the same bits."""
    trials = []
    for budget in (None, 1e-9):
        if budget is not None:
            monkeypatch.setattr("graphopt.vulkan.program.SUBMISSION_SECONDS", budget)
        solver = resident(bundle_adjustment(), schur="implicit", schedule="matrix-free")
        solver.linearize()
        trial = solver.trial(Damping(1.0))
        trials.append((trial.chi2, trial.gain, solver.dx.tobytes()))
    assert trials[0] == trials[1]


def test_numbers_past_4_gib_are_reached_with_64_bits(monkeypatch):
    """Kernels of large stored numbers are those for large buffers, though H itself is small."""
    from graphopt.vulkan.program import LARGE

    graph = bundle_adjustment()
    options = {"linear_solver": "pcg", "schur": "implicit", "schedule": "jacobians", "device": "vulkan"}
    usual = optimize(graph.copy(), "lm", 3, **options)
    made, make = [], VulkanDevice.start_generated

    def noted(device, kernel, constants):
        made.append((kernel.buffers, constants.get(LARGE, 0)))
        return make(device, kernel, constants)

    size = min(view.nbytes for view in stored_views(graph))
    monkeypatch.setattr("graphopt.vulkan.program.LARGE_BYTES", size)
    monkeypatch.setattr(VulkanDevice, "start_generated", noted)
    large = optimize(graph, "lm", 3, **options)
    assert [iteration.chi2 for iteration in large.iterations] == [
        iteration.chi2 for iteration in usual.iterations
    ]
    with_stored = [is_large for buffers, is_large in made if "stored" in buffers]
    assert with_stored and all(with_stored)


def stored_views(graph):
    """What schedule "jacobians" stores for the views of a graph."""
    solver = resident(graph, schedule="jacobians", schur="implicit")
    solver.linearize()
    return [array for edges in solver.linearizer.edges for array in edges.schedule.stored.values()]


def test_schedules_that_cannot_work_are_refused():
    """With the way out."""
    with pytest.raises(OptionError, match="schedule='blocks'"):
        optimize(bundle_adjustment(), "lm", 1, device="vulkan", schedule="matrix-free", schur="explicit")
    with pytest.raises(OptionError, match="expected one of auto, blocks"):
        SolverOptions(schedule="both")


@pytest.mark.parametrize("schedule", ["matrix-free", "jacobians", "jp", "matrix-free+scatter"])
def test_a_schedule_without_blocks_alone_says_enough(schedule):
    """Solver and elimination that nobody named are those that need products only, whatever the size."""
    summary = optimize(bundle_adjustment(), "lm", 3, device="vulkan", schedule=schedule)
    assert (summary.linear_solver, summary.schur) == ("pcg", "implicit")
    assert summary.schedule == schedule
    expected = optimize(bundle_adjustment(), "lm", 3, device="cpu", linear_solver="pcg", schur="implicit")
    assert summary.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)
    with pytest.raises(OptionError, match="needs products only, but linear_solver 'cholesky'"):
        optimize(bundle_adjustment(), "lm", 3, device="vulkan", schedule=schedule, linear_solver="cholesky")


def test_the_summary_says_which_schedule():
    """`describe` names it, with the memory that it takes."""
    solver = resident(bundle_adjustment(), schur="implicit", schedule="matrix-free")
    facts = solver.describe()
    assert (facts["schedule"], facts["linear_solver"], facts["schur"]) == ("matrix-free", "pcg", "implicit")
    assert facts["memory_bytes"] > solver.structure.nbytes
