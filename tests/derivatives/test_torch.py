"""`graphopt.torch.solve` against torch's own check, and what it refuses."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import graphopt
import graphopt.torch
from graphopt.errors import GradientError, OptionError, ShapeError, UnknownIdError

EDGE = "EDGE_SE2"


def measured(graph):
    return torch.tensor(graph.edge_set(EDGE).measurement.copy(), requires_grad=True)


def information(logarithms):
    return torch.diag(torch.exp(logarithms))


def estimates(graph, measurement, logarithms, **options):
    inputs = {f"{EDGE}.measurement": measurement, f"{EDGE}.information": information(logarithms)}
    return graphopt.torch.solve(graph, inputs, **options)["VERTEX_SE2"]


def test_gradcheck(pose_graph):
    """By measurements, and by one information that all edges share."""
    logarithms = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def function(measurement, logarithms):
        return estimates(pose_graph, measurement, logarithms)

    assert torch.autograd.gradcheck(function, (measured(pose_graph), logarithms), eps=1e-5, atol=1e-7)


def test_the_graph_stays_as_it_is(pose_graph):
    """Estimates and inputs; with warm_start the optimum is left in it."""
    before = pose_graph.vertex_set("VERTEX_SE2").estimate.copy()
    moved = measured(pose_graph).detach() + 0.1
    found = estimates(pose_graph, moved, torch.zeros(3, dtype=torch.float64))
    assert (pose_graph.vertex_set("VERTEX_SE2").estimate == before).all()
    assert (pose_graph.edge_set(EDGE).measurement != moved.numpy()).all()
    estimates(pose_graph, moved, torch.zeros(3, dtype=torch.float64), warm_start=True)
    np.testing.assert_allclose(pose_graph.vertex_set("VERTEX_SE2").estimate, found, atol=1e-9)


def test_backward_after_another_solve(pose_graph):
    """What was solved in between does not matter."""
    first, second = measured(pose_graph), measured(pose_graph)
    zero = torch.zeros(3, dtype=torch.float64)
    alone = estimates(pose_graph, first, zero)
    (alone**2).sum().backward()
    together = estimates(pose_graph, second, zero)
    estimates(pose_graph, second.detach() * 1.3, zero)
    (together**2).sum().backward()
    np.testing.assert_allclose(second.grad, first.grad, rtol=1e-9)


def test_a_batch_is_its_problems(pose_graph):
    """Estimates and gradients, of inputs with and without a dimension for the batch."""
    base = measured(pose_graph).detach()
    batch = torch.stack([base, base + 0.1, base * 1.1]).requires_grad_()
    shared = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    found = estimates(pose_graph, batch, shared)
    (found**2).sum().backward()
    of_batch, of_shared = batch.grad.clone(), shared.grad.clone()
    batch.grad = shared.grad = None
    single = [estimates(pose_graph, batch[k], shared) for k in range(3)]
    sum((one**2).sum() for one in single).backward()
    np.testing.assert_allclose(found.detach(), torch.stack(single).detach(), atol=1e-12)
    np.testing.assert_allclose(of_batch, batch.grad, atol=1e-9)
    np.testing.assert_allclose(of_shared, shared.grad, atol=1e-9)


def test_truncated_converges_to_implicit(pose_graph):
    """Each of the last Gauss-Newton iterations adds a term."""

    def gradient(**options):
        logarithms = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        (estimates(pose_graph, measured(pose_graph), logarithms, **options) ** 2).sum().backward()
        return logarithms.grad.numpy()

    exact = gradient()
    errors = [np.abs(gradient(gradient="truncated", steps=k) - exact).max() for k in (1, 4, 30)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-9


def test_truncated_is_backpropagation_through_iterations(pose_graph):
    """Of two Gauss-Newton iterations at the optimum, unrolled by central differences."""
    optimum = graphopt.torch.solve(pose_graph, {f"{EDGE}.measurement": measured(pose_graph)})["VERTEX_SE2"]
    step = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def unrolled(h):
        graph = pose_graph.copy()
        graph.vertex_set("VERTEX_SE2").estimate = optimum.detach().numpy()
        graph.edge_set(EDGE).measurement += h * step.numpy()
        graphopt.optimize(graph, "gn", 2)
        return (graph.vertex_set("VERTEX_SE2").estimate ** 2).sum()

    measurement = measured(pose_graph)
    inputs = {f"{EDGE}.measurement": measurement}
    found = graphopt.torch.solve(pose_graph, inputs, gradient="truncated", steps=2)["VERTEX_SE2"]
    (found**2).sum().backward()
    h = 1e-5
    expected = (unrolled(h) - unrolled(-h)) / (2 * h)
    assert float((measurement.grad * step).sum()) == pytest.approx(expected, rel=1e-6)


def test_dtype_and_unused_inputs(pose_graph):
    """Gradients have their input's dtype; outputs nobody uses cost nothing."""
    single = measured(pose_graph).detach().float().requires_grad_()
    solution = graphopt.torch.solve(pose_graph, {f"{EDGE}.measurement": single})
    assert solution["VERTEX_SE2"].dtype == torch.float64
    solution["VERTEX_SE2"].sum().backward()
    assert single.grad.dtype == torch.float32
    assert solution.summary.is_usable and not solution.doubts.sentences


def test_held_components_do_not_move(pose_graph):
    """The optimum among what may move: central differences."""
    pose_graph.set_fixed([0])
    pose_graph.hold([2, 4], [0, 2])
    measurement = measured(pose_graph)

    def function(measurement):
        return graphopt.torch.solve(pose_graph, {f"{EDGE}.measurement": measurement})["VERTEX_SE2"]

    assert torch.autograd.gradcheck(function, (measurement,), eps=1e-5, atol=1e-7)
    start = torch.tensor(pose_graph.vertex_set("VERTEX_SE2").estimate.copy())
    with pytest.raises(GradientError, match="hold single components"):
        graphopt.torch.solve(pose_graph, {"VERTEX_SE2.estimate": start})


def test_a_singular_hessian_is_refused_by_name(pose_graph):
    """The vertices that can move are named; damping is for losses that do not change with them."""
    measurement = measured(pose_graph)
    inputs = {f"{EDGE}.measurement": measurement}
    found = graphopt.torch.solve(pose_graph, inputs, fix="none")["VERTEX_SE2"]
    with pytest.raises(GradientError, match="3 directions move vertex"):
        found.sum().backward()

    def distance(fix, **options):
        poses = graphopt.torch.solve(pose_graph, inputs, fix=fix, **options)["VERTEX_SE2"]
        measurement.grad = None
        ((poses[5, :2] - poses[0, :2]) ** 2).sum().backward()
        return measurement.grad.numpy()

    np.testing.assert_allclose(distance("none", singular="damp"), distance("auto"), atol=1e-5)


def test_an_end_before_the_optimum_is_refused(pose_graph):
    """One iteration from far away."""
    pose_graph.vertex_set("VERTEX_SE2").estimate += [[0, 0, 0], *[[3, -2, 1.0]] * 5]
    measurement = measured(pose_graph)
    inputs = {f"{EDGE}.measurement": measurement}
    solution = graphopt.torch.solve(pose_graph, inputs, method="lm", max_iterations=1)
    assert solution.doubts.sentences
    with pytest.raises(GradientError):
        solution["VERTEX_SE2"].sum().backward()


def test_a_kink_is_refused():
    """An edge whose chi2 is Huber's width squared: left and right derivative differ."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_POINT_XY", [0], [0.0, 0.0])
    graph.add_edges("EDGE_PRIOR_XY", [[0]] * 3, [[0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    edges = graph.edge_set("EDGE_PRIOR_XY")
    edges.kernel[2], edges.kernel_width[2] = 1, 2.0  # it pulls with 2 at distance 2: x = 1
    measurement = torch.tensor(edges.measurement.copy(), requires_grad=True)
    solution = graphopt.torch.solve(graph, {"EDGE_PRIOR_XY.measurement": measurement})
    tag = graph.vertex_sets[0].type.tag
    np.testing.assert_allclose(solution[tag].detach(), [[1.0, 0.0]], atol=1e-9)
    with pytest.raises(GradientError, match="1 edges are at a kink"):
        solution[tag].sum().backward()
    edges.kernel_width[2] = 2.1
    solution = graphopt.torch.solve(graph, {"EDGE_PRIOR_XY.measurement": measurement})
    solution[tag][0, 0].backward()
    np.testing.assert_allclose(measurement.grad[:, 0], 1 / 3)


def test_a_doubt_may_be_a_warning(pose_graph):
    """on_doubt="warn"."""
    pose_graph.vertex_set("VERTEX_SE2").estimate[1:] += [0.2, -0.1, 0.1]
    measurement = measured(pose_graph)
    inputs = {f"{EDGE}.measurement": measurement}
    options = {"method": "lm", "max_iterations": 1, "on_doubt": "warn"}
    solution = graphopt.torch.solve(pose_graph, inputs, **options)
    assert solution.doubts.left > 1e-6
    with pytest.warns(UserWarning, match="has not ended at an optimum"):
        solution["VERTEX_SE2"].sum().backward()


def test_wrong_inputs_are_named(pose_graph):
    """Names, columns, shapes, kinds."""
    good = measured(pose_graph)
    for inputs, error, words in (
        ({"EDGE_SE3:QUAT.measurement": good}, UnknownIdError, "EDGE_SE3:QUAT"),
        ({"EDGE_SE2.kernel": good}, OptionError, "TAG.COLUMN"),
        ({"EDGE_SE2.measurement": good.to(torch.complex128)}, ShapeError, "complex128"),
        ({"EDGE_SE2.measurement": good[:3]}, ShapeError, r"\(3, 3\), expected \(7, 3\)"),
        ({"EDGE_SE2.measurement": good.detach().numpy()}, OptionError, "torch tensor"),
        ({"EDGE_SE2.information": torch.ones(3, 3, dtype=torch.float64).triu()}, Exception, "symmetric"),
        ({}, OptionError, "empty"),
    ):
        with pytest.raises(error, match=words):
            graphopt.torch.solve(pose_graph, inputs)
    with pytest.raises(OptionError, match="gradient"):
        graphopt.torch.solve(pose_graph, {"EDGE_SE2.measurement": good}, gradient="unrolled")
    with pytest.raises(OptionError, match="robust"):
        graphopt.torch.solve(pose_graph, {"EDGE_SE2.measurement": good}, robust="graduated")


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("jax", "jax")])
def test_without_the_package_the_error_says_what_to_install(module, package):
    """`import graphopt` itself needs neither."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\nimport graphopt\n"
        f"try:\n    import graphopt.{module}\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'graphopt[{package}]'" in done.stdout


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch, which looks at all tensors
def test_within_torch_compile(pose_graph):
    """A compiled training loop learns as one that is not; torch refuses a graph of the whole."""

    def trained(compiled):
        torch.manual_seed(0)
        network = torch.nn.Linear(3, 3, dtype=torch.float64)
        start = measured(pose_graph).detach()

        def loss():
            found = graphopt.torch.solve(pose_graph, {f"{EDGE}.measurement": start + 0.1 * network(start)})
            return (found["VERTEX_SE2"] ** 2).sum()

        optimizer = torch.optim.SGD(network.parameters(), 1e-2)
        step = torch.compile(loss, backend="eager") if compiled else loss
        for _ in range(3):
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
        return network.weight.detach().numpy(), loss

    (found, loss), (expected, _) = trained(True), trained(False)
    np.testing.assert_array_equal(found, expected)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        torch.compile(loss, backend="eager", fullgraph=True)()
