"""Every intermediate of the Vulkan solver against dense numpy: both access variants and precisions."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import VARIANTS, shared_device
from vulkan_problems import DenseProblem, make_problem, unpack

import graphopt
import graphopt.evaluate.datasets
from graphopt.device import VulkanDevice
from graphopt.device.listing import native_module
from graphopt.errors import DeviceLimitError, OptionError, SolverError
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import BlockLayout, split_segments
from graphopt.vulkan.kernels.blocks import BlockInverse
from graphopt.vulkan.kernels.damping import given
from graphopt.vulkan.kernels.schur_queue import LandmarkLists, cut_launches, gpu_pairs, gpu_pattern
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import SUBMISSION_SECONDS, Context, Launch, Program

DAMPING = 0.37

# Largest error of an intermediate, relative to its largest entry.
TOLERANCE = {
    "double": {
        "inverse": 1e-11,
        "schur": 1e-14,
        "residual": 1e-13,
        "jacobi": 1e-11,
        "product": 1e-14,
        "step": 1e-9,
    },
    "mixed": {
        "inverse": 1e-3,
        "schur": 1e-6,
        "residual": 1e-5,
        "jacobi": 1e-3,
        "product": 1e-6,
        "step": 1e-4,
    },
}

PROBLEMS = {
    "mixed dimensions": lambda: make_problem([6, 3, 6, 3, 6, 6], [3, 2] * 14, degree=4),
    "long queues": lambda: make_problem([6, 6, 3], [3] * 110, degree=3),
    "nobody sees some": lambda: make_problem([6] * 5, [3] * 30, degree=0, kept_edges=1.0),
}


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest error relative to the largest entry."""
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


@pytest.fixture(params=VARIANTS, ids="-".join)
def context(request, monkeypatch):
    """One device per variant; no validation message may be left after a test."""
    # Short chunks, so that small problems have queues that are split.
    monkeypatch.setattr("graphopt.vulkan.kernels.schur.PAIRS_PER_CHUNK", 40)
    monkeypatch.setattr("graphopt.vulkan.kernels.blocks.ITEMS_PER_CHUNK", 24)
    access, precision = request.param
    device = shared_device(access)
    yield Context(device, precision)
    assert device.messages == []


def start(context: Context, problem: DenseProblem, **options) -> DampedSystem:
    """A system with H and b on the device."""
    defaults = {"tolerance": 1e-24 if context.precision == "double" else 1e-12, "max_iterations": 200}
    configuration = Configuration(**{"linear_solver": "pcg", **defaults, **options})
    system = DampedSystem(context, problem.layout, configuration)
    system.values[:] = problem.values
    system.b[:] = problem.b
    system.upload()
    return system


@pytest.mark.parametrize("name", PROBLEMS)
def test_explicit_schur_complement(context, name):
    """H_ll^-1, S, b_schur, block-Jacobi and step equal the dense ones."""
    problem = PROBLEMS[name]()
    allowed = TOLERANCE[context.precision]
    expected, residual = problem.schur(DAMPING)
    system = start(context, problem, schur="explicit", max_iterations=1)
    assert system.solve(DAMPING)

    first = problem.layout.num_kept
    inverse = context.download(
        system.reduction.landmark_inverse.buffer, system.reduction.landmark_inverse.size
    )
    damped = problem.damped(DAMPING)
    for k, at in enumerate(system.reduction.landmark_inverse.offset):
        dim = problem.layout.dims[first + k]
        rows = np.s_[problem.layout.scalar[first + k] : problem.layout.scalar[first + k + 1]]
        block = inverse[at : at + dim * dim].reshape(dim, dim)
        assert relative_error(block, np.linalg.inv(damped[rows, rows])) < allowed["inverse"]

    schur = unpack(
        system.reduction.reduced, context.download(system.reduction.schur.buffer, system.reduction.schur.size)
    )
    assert relative_error(schur, expected) < allowed["schur"]
    assert (
        relative_error(context.download(system.iterations.pcg.r[0], problem.kept), residual)
        < allowed["residual"]
    )
    check_jacobi(context, system, expected, allowed["jacobi"])

    exact = start(context, problem, schur="explicit")
    assert exact.solve(DAMPING) and exact.outcome.stopped
    assert relative_error(exact.dx, np.linalg.solve(damped, problem.b)) < allowed["step"]


def check_jacobi(context, system, matrix, tolerance):
    """The preconditioner is the inverse of the diagonal blocks of a dense matrix."""
    layout = system.layout
    jacobi = context.download(system.reduction.jacobi.buffer, system.reduction.jacobi.size)
    for k, at in enumerate(system.reduction.jacobi.offset):
        dim = layout.dims[k]
        rows = np.s_[layout.scalar[k] : layout.scalar[k + 1]]
        block = jacobi[at : at + dim * dim].reshape(dim, dim)
        assert relative_error(block, np.linalg.inv(matrix[rows, rows])) < tolerance


@pytest.mark.parametrize("name", PROBLEMS)
def test_implicit_schur_complement(context, name):
    """Without S: its block diagonal, b_schur, a product with it, and the step."""
    problem = PROBLEMS[name]()
    allowed = TOLERANCE[context.precision]
    expected, residual = problem.schur(DAMPING)
    system = start(context, problem, schur="implicit", max_iterations=1)
    assert system.solve(DAMPING)
    assert (
        relative_error(context.download(system.iterations.pcg.r[0], problem.kept), residual)
        < allowed["residual"]
    )
    check_jacobi(context, system, expected, allowed["jacobi"])
    # One iteration from d = J r leaves q = S d behind.
    jacobi = np.zeros_like(expected)
    for k in range(problem.layout.num_kept):
        rows = np.s_[problem.layout.scalar[k] : problem.layout.scalar[k + 1]]
        jacobi[rows, rows] = np.linalg.inv(expected[rows, rows])
    product = context.download(system.iterations.pcg.q, problem.kept)
    assert relative_error(product, expected @ jacobi @ residual) < 100 * allowed["product"]

    exact = start(context, problem, schur="implicit")
    assert exact.solve(DAMPING)
    assert relative_error(exact.dx, np.linalg.solve(problem.damped(DAMPING), problem.b)) < allowed["step"]


@pytest.mark.parametrize(
    "options",
    [
        {"schur": "implicit", "preconditioner": "jacobi"},
        {"schur": "off"},
        {"schur": "explicit", "linear_solver": "cholesky"},
        {"schur": "explicit", "linear_solver": "dense"},
        {"schur": "off", "linear_solver": "cholesky"},
    ],
    ids=lambda o: "-".join(o.values()),
)
def test_other_configurations_reach_the_same_step(context, options):
    """Weaker preconditioner, no elimination, host Cholesky; one lambda and a vector of damping."""
    problem = PROBLEMS["mixed dimensions"]()
    system = start(context, problem, **options)
    if options.get("preconditioner") == "jacobi":
        assert system.solve(DAMPING)
        check_jacobi(context, system, problem.damped(DAMPING), TOLERANCE[context.precision]["jacobi"])
    vector = np.random.default_rng(1).uniform(0.1, 2.0, problem.layout.dim)
    for damping in (DAMPING, vector, 5.0, 0.0):
        system.reset()
        assert system.solve(damping)
        expected = np.linalg.solve(problem.damped(damping), problem.b)
        assert relative_error(system.dx, expected) < TOLERANCE[context.precision]["step"]
    assert np.array_equal(system.values, problem.values), "H is never changed"


def test_whole_product(context):
    """Multiply is H times a vector, from the upper triangle alone."""
    problem = PROBLEMS["mixed dimensions"]()
    system = start(context, problem, schur="explicit")
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=problem.layout.dim)
        error = relative_error(system.multiply(x), problem.matrix @ x)
        assert error < 10 * TOLERANCE[context.precision]["product"]


@pytest.mark.parametrize("work_queues", ["gpu", "lookup"])
@pytest.mark.parametrize("kept", [[6], [6, 3, 3, 9]])
def test_work_queues_of_the_gpu(context, work_queues, kept):
    """The GPU finds the CPU's pattern and pairs in the same order: S has the same bits."""
    problem = make_problem((40 // len(kept)) * kept, [3] * 90, degree=5, kept_edges=0.02, seed=7)
    host = start(context, problem, schur="explicit", work_queues="cpu", max_iterations=1)
    other = start(context, problem, schur="explicit", work_queues=work_queues, max_iterations=1)
    assert host.solve(DAMPING) and other.solve(DAMPING)
    for name in ("col_ptr", "row_idx"):
        np.testing.assert_array_equal(
            getattr(host.reduction.reduced, name), getattr(other.reduction.reduced, name)
        )
    expected = context.download(host.reduction.schur.buffer, host.reduction.schur.size)
    actual = context.download(other.reduction.schur.buffer, other.reduction.schur.size)
    if work_queues == "gpu":
        assert np.array_equal(actual, expected)
    assert relative_error(actual, expected) < TOLERANCE[context.precision]["schur"]
    with pytest.raises(DeviceLimitError, match="one dimension"):
        start(context, PROBLEMS["mixed dimensions"](), schur="explicit", work_queues=work_queues).solve(1.0)


def test_two_runs_are_bitwise_equal(context):
    """Same input, same device: the same bits, also from a second object and after other work."""
    problem = PROBLEMS["mixed dimensions"]()
    for schur in ("explicit", "implicit", "off"):
        system = start(context, problem, schur=schur)
        steps = []
        for damping in (DAMPING, 3.0, DAMPING):
            system.reset()
            assert system.solve(damping)
            steps.append(system.dx.copy())
        other = start(context, problem, schur=schur)
        assert other.solve(DAMPING)
        assert np.array_equal(steps[0], steps[2]) and np.array_equal(steps[0], other.dx)
        assert not np.array_equal(steps[0], steps[1])


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 6, 7, 9, 11, 15])
def test_inverse_of_blocks_of_any_size(dim):
    """Up to 15 x 15, on blocks with condition number 1e6."""
    context = Context(shared_device("address"), "double")
    rng = np.random.default_rng(dim)
    blocks = []
    for _ in range(40):
        q, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
        blocks.append(q @ np.diag(np.logspace(-3, 3, dim)) @ q.T)
    values = context.device.upload(np.concatenate([block.ravel() for block in blocks]))
    dims = np.full(40, dim, np.int32)
    inverse = BlockInverse(context, dims, np.arange(40) * dim * dim, np.arange(40) * dim)
    status = context.device.upload(np.zeros(8, np.uint32))
    Program(context).step(inverse.launches(values, None, status)).run()
    result = context.download(inverse.buffer, inverse.size).reshape(40, dim, dim)
    for actual, block in zip(result, blocks, strict=True):
        assert relative_error(actual @ block, np.eye(dim)) < 1e-8
    assert not context.device.download(status, np.uint32, 8).any()


@pytest.mark.parametrize("dim", [1, 3, 6, 9])
@pytest.mark.parametrize("share", [0.25, 4.0], ids=["below", "above"])
def test_pivots_are_those_that_the_cpu_takes(context, dim, share):
    """A pivot below epsilon of its diagonal entry is none, above it is one; a spare block takes its place."""
    epsilon = float(np.finfo(context.real).eps)
    rng = np.random.default_rng(dim)
    blocks, spare = [], []
    for number in range(70):
        diagonal = rng.uniform(0.5, 2.0, dim)
        block = np.diag(diagonal)
        if number % 3 == 1:  # the last pivot is share * epsilon * diagonal
            block[-1, -1] = 1.0
            if dim > 1:
                block[0, 0] = block[0, -1] = block[-1, 0] = 1.0
            block[-1, -1] = 1.0 + 4 * epsilon if share > 1.0 else (1.0 if dim > 1 else -1.0)
        blocks.append(block)
        spare.append(np.diag(rng.uniform(1.0, 2.0, dim)))
    on_device = [
        np.concatenate([block.ravel() for block in of]).astype(context.real) for of in (blocks, spare)
    ]
    values, others = (context.device.upload(values) for values in on_device)
    zeros = context.device.upload(given(np.zeros(70 * dim)).astype(context.real))
    offsets = np.arange(70) * dim * dim
    inverse = BlockInverse(context, np.full(70, dim, np.int32), offsets, np.arange(70) * dim, offsets)
    fails = share < 1.0
    for with_spare in (False, True):
        status = context.device.upload(np.zeros(8, np.uint32))
        launches = inverse.launches(values, zeros, status, spare=others if with_spare else None)
        Program(context).step(launches).run()
        assert bool(context.device.download(status, np.uint32, 8)[4]) is (fails and not with_spare)
        if fails and not with_spare:
            continue
        result = context.download(inverse.buffer, inverse.size).reshape(70, dim, dim)
        for number, actual in enumerate(result):
            used = spare[number] if fails and number % 3 == 1 else blocks[number]
            if number % 3 != 1 or fails:
                assert relative_error(actual @ used, np.eye(dim)) < 1e-5


@pytest.mark.parametrize("schur", ["explicit", "implicit"])
def test_a_preconditioner_that_rounding_has_left_indefinite_does_not_end_the_step(schur, monkeypatch):
    """Diagonal blocks of S that are no good give way to those of H_pp."""
    problem = make_problem([6] * 4, [3] * 20, degree=3)
    context = Context(shared_device("address"), "double")
    expected = np.linalg.solve(problem.damped(DAMPING), problem.b)
    launches = BlockInverse.launches
    spoiled = []

    def spoil(self, values, damping, status, **options):
        if options.get("spare") is None:
            return launches(self, values, damping, status, **options)
        spoiled.append(context.device.upload(np.full(problem.matrix.size, -1.0)))
        return launches(self, spoiled[-1], damping, status, **options)

    monkeypatch.setattr(BlockInverse, "launches", spoil)
    system = start(context, problem, schur=schur)
    assert system.solve(DAMPING) and spoiled
    assert relative_error(system.dx, expected) < 1e-8


def test_landmark_with_more_blocks_than_a_pass_takes():
    """Shared memory holds 1024 products; a landmark seen by 1,100 vertices takes several passes."""
    problem = make_problem([1] * 1100, [1, 1], degree=1100, kept_edges=0.0)
    system = start(Context(shared_device("address"), "double"), problem, schur="implicit", tolerance=1e-22)
    assert system.solve(1.0)
    assert relative_error(system.dx, np.linalg.solve(problem.damped(1.0), problem.b)) < 1e-8


@pytest.mark.parametrize("options", [{"schur": "explicit"}, {"schur": "implicit"}, {"schur": "off"}])
@pytest.mark.parametrize("landmark", [False, True])
def test_indefinite_systems_are_noticed(options, landmark):
    """A negative diagonal block makes solve return False; enough damping repairs it."""
    problem = make_problem([6] * 3, [3] * 12, degree=2)
    block = problem.layout.num_blocks - 1 if landmark else 0
    problem.values[problem.layout.diagonal_offset[block]] = -50.0
    system = start(Context(shared_device("address"), "double"), problem, **options)
    assert not system.solve(0.1)
    assert system.solve(200.0)


def test_stop_rule_counts_iterations_like_the_reference():
    """Relative tolerance and iteration limit follow g2o's rule to the iteration."""
    problem = make_problem([6] * 30, [], kept_edges=0.2, seed=3)
    context = Context(shared_device("address"), "double")
    system = start(context, problem, schur="off", tolerance=1e-6, max_iterations=0)
    for damping in (0.01, 0.02, 0.5):
        expected, iterations = reference_pcg(problem, damping, 1e-6)
        assert system.solve(damping)
        assert system.outcome.iterations == iterations
        assert relative_error(system.dx, expected) < 1e-10
    limited = start(context, problem, schur="off", tolerance=1e-6, max_iterations=3)
    assert limited.solve(0.01) and limited.outcome.iterations == 3


def reference_pcg(problem, damping, tolerance):
    """Algorithm 5 of the thesis in numpy; returns x, iterations."""
    matrix = problem.damped(damping)
    jacobi = np.zeros_like(matrix)
    for k in range(problem.layout.num_blocks):
        rows = np.s_[problem.layout.scalar[k] : problem.layout.scalar[k + 1]]
        jacobi[rows, rows] = np.linalg.inv(matrix[rows, rows])
    x, r = np.zeros(len(problem.b)), problem.b.copy()
    d = jacobi @ r
    dn = r @ d
    threshold = tolerance * dn
    iterations = 0
    while dn > threshold and iterations < len(x):
        q = matrix @ d
        alpha = dn / (d @ q)
        x, r = x + alpha * d, r - alpha * q
        s = jacobi @ r
        dn, before = r @ s, dn
        d = s + dn / before * d
        iterations += 1
    return x, iterations


def test_long_work_is_cut_into_several_submissions(monkeypatch):
    """With a small budget the Schur complement and PCG take many programs, and give the same bits."""
    problem = PROBLEMS["mixed dimensions"]()
    systems = []
    context = Context(shared_device("address"), "double")
    for budget in (1e9, 2e4):  # bytes, on a device of any speed
        seconds = budget * SUBMISSION_SECONDS / context.submission_bytes
        monkeypatch.setattr("graphopt.vulkan.program.SUBMISSION_SECONDS", seconds)
        systems.append(start(Context(context.device, "double"), problem, schur="explicit"))
        assert systems[-1].solve(DAMPING)
    of_trial = [
        [program for (name, *_), program in system.programs.known.items() if name[0] == "trial"]
        for system in systems
    ]
    assert [len(programs) for programs in of_trial] == [1, 1]
    whole, cut = (len(programs[0].recorded) for programs in of_trial)
    assert whole == 1 and cut > 3
    assert any(name[0] == "more" for name, *_ in systems[1].programs.known)
    assert np.array_equal(systems[0].dx, systems[1].dx)


@pytest.mark.parametrize("schur", ["explicit", "implicit"])
def test_blocks_with_addresses_of_their_own_give_the_same_step(context, monkeypatch, schur):
    """The way to H and S beyond 4 GiB, taken for small ones."""
    problem = PROBLEMS["mixed dimensions"]()
    steps = []
    for limit in (1 << 32, 0):
        monkeypatch.setattr("graphopt.vulkan.program.LARGE_BYTES", limit)
        system = start(context, problem, schur=schur)
        assert system.solve(DAMPING)
        steps.append(system.dx.copy())
    assert relative_error(steps[0], steps[1]) < 1e-2 * TOLERANCE[context.precision]["step"]


def test_memory_schemes_give_the_same_bits():
    """One buffer, two buffers with copies, and writing through the bar."""
    problem = PROBLEMS["mixed dimensions"]()
    steps = []
    for scheme in ("single", "staged", "rebar"):
        device = VulkanDevice(validation=True, memory_scheme=scheme)
        system = start(Context(device, "double"), problem, schur="implicit")
        assert system.solve(DAMPING)
        steps.append(system.dx)
        assert device.messages == []
    assert np.array_equal(steps[0], steps[1]) and np.array_equal(steps[0], steps[2])


def test_a_thousand_solves_leave_nothing_behind():
    """Memory does not grow with solves, and is free when the system is gone."""
    device = shared_device("address")
    problem = make_problem([6] * 3, [3] * 5, degree=2)
    before = device.memory_statistics()["allocations"]
    system = start(Context(device, "double"), problem, schur="implicit")
    assert system.solve(1.0)
    settled = device.memory_statistics()["used"]
    for _ in range(1000):
        assert system.solve(1.0)
    assert device.memory_statistics()["used"] == settled
    del system
    assert device.memory_statistics()["allocations"] == before


def test_queues_that_cannot_be_counted_are_refused(monkeypatch):
    """A queue of 2^30 items is an error that names the way out, not a wrong answer."""
    monkeypatch.setattr("graphopt.vulkan.program.MAX_QUEUE_ITEMS", 20)
    problem = make_problem([6] * 3, [3] * 12, degree=2)
    system = start(Context(shared_device("address"), "double"), problem, schur="explicit")
    with pytest.raises(DeviceLimitError, match="implicit"):
        system.solve(1.0)


def test_layouts_that_cannot_be_solved_are_refused():
    """Neighbouring landmarks, missing diagonal blocks and blocks larger than 15 are errors."""
    two = np.array([1, 1], np.int32)
    with pytest.raises(SolverError, match="independent set"):
        BlockLayout(two, np.array([0, 1, 3]), np.array([0, 0, 1], np.int32), 0)
    with pytest.raises(SolverError, match="diagonal block"):
        BlockLayout(two, np.array([0, 1, 2]), np.array([0, 0], np.int32), 2)
    with pytest.raises(DeviceLimitError, match="1 to 15"):
        BlockLayout(np.array([16], np.int32), np.array([0, 1]), np.array([0], np.int32), 1)


def test_segments_are_split_evenly_and_completely():
    """Chunks cover every item once, none is longer than the limit, order is kept."""
    pointer = np.array([0, 0, 7, 7, 1000, 1001])
    segment, begin, end = split_segments(pointer, 64)
    assert (np.diff(segment) >= 0).all() and (end - begin).max() <= 64 and (end - begin).min() >= 1
    for s in range(5):
        mine = segment == s
        covered = np.concatenate(
            [[pointer[s]], *[np.r_[b:e] for b, e in zip(begin[mine], end[mine], strict=True)]]
        )
        assert np.array_equal(covered[1:], np.r_[pointer[s] : pointer[s + 1]])


def test_pairs_with_a_vertex_that_sees_all_landmarks(context):
    """As shared intrinsics do: the queue is the CPU's, of lists that take a workgroup several rounds."""
    rng = np.random.default_rng(4)
    num_kept, num_landmarks = 7, 500
    columns = [np.arange(k + 1) for k in range(num_kept)]
    for landmark in range(num_landmarks):
        seen = np.flatnonzero(rng.random(num_kept - 1) < 0.4) + 1
        columns.append(np.append(np.append(0, seen), num_kept + landmark))
    col_ptr = np.cumsum([0, *map(len, columns)])
    dims = np.full(num_kept + num_landmarks, 3, np.int32)
    layout = BlockLayout(dims, col_ptr, np.concatenate(columns).astype(np.int32), num_kept)
    inverse_offset = 9 * np.arange(num_landmarks)
    expected_ptr, *expected = native_module().schur_queue(
        1,
        layout.landmark_items,
        layout.item_row,
        layout.block_offset[layout.items],
        inverse_offset,
        np.zeros(num_landmarks, np.uint8),
        layout.kept().col_ptr,
        layout.kept().row_idx,
    )[2:]
    lists = LandmarkLists(context, layout, inverse_offset)
    reduced = gpu_pattern(context, layout, lists)
    pair_ptr, pairs = gpu_pairs(context, lists, reduced)
    assert np.array_equal(pair_ptr, expected_ptr) and pair_ptr[-1] > 500
    for found, wanted in zip(pairs, expected, strict=True):
        assert np.array_equal(context.device.download(found, np.uint32, len(wanted)), wanted)


def test_lists_of_landmarks_by_all_threads():
    """Each kept vertex has its landmarks ascending, with their blocks; arrays that do not fit are refused."""
    rng = np.random.default_rng(8)
    num_kept, num_landmarks = 11, 40_000
    seen = rng.random((num_landmarks, num_kept)) < 0.3
    landmark, row = np.nonzero(seen)
    counts = seen.sum(axis=1)
    col_ptr = np.concatenate([np.arange(num_kept + 1), num_kept + np.cumsum(counts + 1)])
    row_idx = np.insert(row, np.cumsum(counts), num_kept + np.arange(num_landmarks))
    row_idx = np.concatenate([np.arange(num_kept), row_idx]).astype(np.int32)
    offset = 9 * np.arange(len(row_idx) + 1)
    found = native_module().landmark_lists(num_kept, col_ptr, row_idx, offset)
    stored = np.flatnonzero(row_idx < num_kept)[num_kept:]
    order = np.lexsort((landmark, row))
    starts = np.searchsorted(row[order], np.arange(num_kept + 1))
    for got, expected in zip(
        found, (starts, landmark[order], offset[stored][order], row, landmark), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="do not fit"):
        native_module().landmark_lists(num_kept, col_ptr, row_idx[1:], offset)


@pytest.mark.parametrize("work_queues", ["gpu", "lookup"])
def test_walks_through_long_lists_are_cut(monkeypatch, work_queues):
    """Kernels that build a work queue, or do without, take several submissions under a small budget."""
    problem = make_problem([6] * 8, [3] * 30, degree=4)
    context = Context(shared_device("address"), "double")
    steps, launches = [], []
    for budget in (1e9, 2e4):
        seconds = budget * SUBMISSION_SECONDS / context.submission_bytes
        monkeypatch.setattr("graphopt.vulkan.program.SUBMISSION_SECONDS", seconds)
        cut = Context(context.device, "double")
        system = start(cut, problem, schur="explicit", work_queues=work_queues)
        assert system.solve(DAMPING)
        steps.append(system.dx.copy())
        lists = LandmarkLists(cut, problem.layout, system.reduction.landmark_inverse.offset)
        walk = lists.walk_steps(system.reduction.reduced)
        launches.append(cut_launches(cut, Launch(None, (), (0, 0), 0), walk, 1))
    assert np.array_equal(*steps)
    assert len(launches[0]) == 1 < len(launches[1])
    assert [launch.params[0] for launch in launches[1][1:]] == [
        launch.params[1] for launch in launches[1][:-1]
    ]
    assert launches[1][-1].params[1] == len(walk)


@pytest.mark.parametrize("scheme", ["single", "staged", "rebar"])
@pytest.mark.parametrize("num_blocks", [0, 1, 7, 8])
def test_blocks_are_filled_in_pieces(monkeypatch, scheme, num_blocks):
    """What `DeviceArray.fill` has written arrives, through staging pieces of three blocks too."""
    device = VulkanDevice(validation=True, memory_scheme=scheme)
    monkeypatch.setattr(device.runtime, "MAX_STAGED", 3 * 64)
    expected = np.random.default_rng(0).integers(256, size=(8, 64), dtype=np.uint8)
    array = DeviceArray(Context(device, "double"), 8 * 64, np.uint8)
    array.write(np.zeros(8 * 64, np.uint8))

    def write(first, out):
        out[:] = expected[first : first + len(out) // 64].reshape(-1)

    array.fill(64, num_blocks, write)
    found = device.download(array.buffer, np.uint8, 8 * 64).reshape(8, 64)
    np.testing.assert_array_equal(found[:num_blocks], expected[:num_blocks])
    assert not found[num_blocks:].any()
    assert device.messages == []


@pytest.mark.parametrize("work_queues", ["cpu", "gpu", "lookup"])
def test_users_choose_who_finds_pairs(work_queues):
    """The same end by `optimize`; where there are no pairs to find, an error says so."""
    shared_device("address")
    graph = graphopt.datasets.ba(cameras=5, points=40, camera="bal")
    expected = graphopt.optimize(graph.copy(), "lm", 5, device="cpu").final_chi2
    options = {"device": "vulkan", "linear_solver": "pcg", "precision": "double"}
    found = graphopt.optimize(graph, "lm", 5, schur="explicit", work_queues=work_queues, **options)
    assert found.final_chi2 == pytest.approx(expected, rel=1e-6)
    with pytest.raises(OptionError, match="explicit Schur complement"):
        graphopt.optimize(graph, schur="implicit", work_queues=work_queues, **options)
