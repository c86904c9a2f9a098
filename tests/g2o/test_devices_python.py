"""Python-defined vertices and edges on a Vulkan device: kernels evaluate the rest, as g2opy does."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, estimates, isometry, optimizer_of, ring
from test_g2o_devices import on_device  # noqa: F401 - a fixture

import graphopt.g2o as ours
from graphopt.g2o.engine.devices import default_device
from graphopt.linear.options import SolverOptions


def mixed_graph(g2o, linear: str = "Eigen"):
    """A ring of poses with edges of both kinds: numeric and own Jacobians, a vertex that Python moves."""

    class Length(g2o.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.resize(1)

        def compute_error(self):
            distance = np.linalg.norm(self.vertex(0).estimate().translation())
            self.error = np.array([distance - self.measurement()[0]])

    class Scale(g2o.VectorXVertex):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.set_estimate(np.array([1.0]))

        def oplus_impl(self, update):
            self.set_estimate(self.estimate() * np.exp(update))

    class Step(g2o.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(3)
            self.resize(3)

        def compute_error(self):
            first, second = (self.vertex(i).estimate().translation() for i in (0, 1))
            self.error = second - first - self.vertex(2).estimate()[0] * np.array(self.measurement())

    class Prior(g2o.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.resize(1)

        def compute_error(self):
            self.error = np.array([self.vertex(0).estimate()[0] - self.measurement()[0]])

        def linearize_oplus(self):
            self.set_jacobian(0, np.array([[self.vertex(0).estimate()[0]]]))

    def add(edge, vertices, measurement, kernel=None):
        for slot, vertex in enumerate(vertices):
            edge.set_vertex(slot, vertex)
        edge.set_measurement(np.array(measurement))
        edge.set_information(np.eye(edge.dimension()))  # g2opy leaves it uninitialised
        if kernel is not None:
            edge.set_robust_kernel(kernel)
        optimizer.add_edge(edge)
        edges.append(edge)

    optimizer, edges = ring(g2o, linear=linear), []
    scale = Scale()
    scale.set_id(100)
    optimizer.add_vertex(scale)
    at = {i: np.array([np.cos(2 * np.pi * i / 8), np.sin(2 * np.pi * i / 8), 0.0]) for i in range(8)}
    for i in (5, 2, 7):
        add(Length(), [optimizer.vertex(i)], [1.1], g2o.RobustKernelHuber(0.05))
    for i, j in ((6, 1), (0, 3), (4, 5)):
        vertices = [optimizer.vertex(i), optimizer.vertex(j), scale]
        add(Step(), vertices, at[j] - at[i], g2o.RobustKernelCauchy(0.5))
    add(Prior(), [scale], [1.2])
    return optimizer, edges


def results(optimizer, edges, iterations: int = 6):
    """Numbers to compare."""
    optimizer.initialize_optimization()
    count = optimizer.optimize(iterations)
    return [
        count,
        optimizer.active_chi2(),
        optimizer.active_robust_chi2(),
        [edge.chi2() for edge in edges],
        estimates(optimizer),
    ]


@pytest.mark.oracle
@pytest.mark.parametrize("linear", ["Eigen", "PCG"])
def test_mixed_graph(on_device, linear):  # noqa: F811
    """Device, CPU and g2opy agree; the device wrote the blocks of H itself."""
    summaries = []

    def script():
        optimizer, edges = mixed_graph(ours, linear)
        found = results(optimizer, edges)
        summaries.append(optimizer.summary)
        return [*found, optimizer.vertex(100).hessian(), optimizer.vertex(5).hessian()]

    on_cpu, actual = on_device(script)
    assert summaries[1].schedule == "blocks" and summaries[1].device.startswith("vulkan:")
    assert_same(actual, on_cpu, rtol=1e-6, atol=1e-6)
    import g2opy

    assert_same(actual[:5], results(*mixed_graph(g2opy)), rtol=1e-4, atol=1e-4)
    assert abs(actual[4][100][0] - 1.0) > 0.01  # Python moved it


def pairs_of_poses(g2o):
    """Python evaluates edges between built-in vertices, which the device moves in its trials."""

    class Apart(g2o.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.resize(2)

        def compute_error(self):
            first, second = (self.vertex(i).estimate().translation() for i in range(2))
            distance = np.linalg.norm(second - first)
            self.error = 3.0 * np.arctan(4.0 * (distance - self.measurement()))

    optimizer = optimizer_of(g2o, size="SE3")
    for i in range(6):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_fixed(i == 0)
        vertex.set_estimate(isometry(g2o, [1.3 * i, 0.2 * (-1) ** i, 0.1 * i], [0.1 * i, 0.0, 0.2]))
        optimizer.add_vertex(vertex)
    edges = []
    for i in range(5):
        edge = g2o.EdgeSE3()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(i + 1))
        edge.set_measurement(isometry(g2o, [1.0, 0.0, 0.0], [0.1, 0.0, 0.0]))
        optimizer.add_edge(edge)
        edges.append(edge)
    for i, j in ((0, 2), (1, 4), (5, 2)):
        edge = Apart()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(j))
        edge.set_measurement(np.array([1.0]))
        edge.set_information(np.eye(1))
        optimizer.add_edge(edge)
        edges.append(edge)
    return optimizer, edges


def test_rejected_trials(on_device):  # noqa: F811
    """A trial that raises chi2 is taken back, on the device and for Python; H starts from zero each time."""
    summaries = []

    def script():
        optimizer, edges = pairs_of_poses(ours)
        found = results(optimizer, edges, 3)
        summaries.append(optimizer.summary)
        return found

    on_cpu, actual = on_device(script)
    assert summaries[1].schedule == "blocks"
    trials = [[iteration.trials for iteration in summary.iterations] for summary in summaries]
    assert max(trials[0]) > 1
    assert trials[0] == trials[1]
    assert_same(actual, on_cpu, rtol=1e-4, atol=1e-5)


def test_again_with_other_estimates(on_device):  # noqa: F811
    """The block solver is kept between two optimizations, and takes estimates that a program set."""

    def script():
        optimizer, edges = mixed_graph(ours)
        first = results(optimizer, edges, 2)
        optimizer.vertex(3).set_estimate(isometry(ours, [-0.7, 0.7, 0.1], [0.0, 0.0, 2.4]))
        optimizer.vertex(100).set_estimate([0.8])
        return [first, results(optimizer, edges, 3)]

    on_cpu, actual = on_device(script)
    assert_same(actual, on_cpu, rtol=1e-4, atol=1e-5)


def test_error_in_python(on_device):  # noqa: F811
    """An exception in `compute_error` reaches the caller; the estimates are those before the trial."""

    def script():
        optimizer, edges = pairs_of_poses(ours)
        calls, original = [], type(edges[-1]).compute_error

        def failing(self):
            calls.append(self)
            if len(calls) > 60:  # beyond the numeric Jacobians of the first linearization
                raise ZeroDivisionError("in the user's code")
            return original(self)

        type(edges[-1]).compute_error = failing
        optimizer.initialize_optimization()
        with pytest.raises(ZeroDivisionError, match="user's code"):
            optimizer.optimize(5)
        type(edges[-1]).compute_error = original
        return results(optimizer, edges, 3)

    on_cpu, actual = on_device(script)
    assert_same(actual, on_cpu, rtol=1e-4, atol=1e-5)


def test_only_their_vertices_are_downloaded(on_device, monkeypatch):  # noqa: F811
    """While it iterates, the device is asked for the estimates of six vertices only.

    The copies of all estimates that are made now and then, in case the device gets lost, are left out.
    """
    from graphopt.vulkan import solver as resident
    from graphopt.vulkan.data.estimates import DeviceEstimates

    monkeypatch.setattr(resident, "BRINGING_SECONDS", np.inf)
    whole, rows = [], []
    download, receive = DeviceEstimates.download, DeviceEstimates.receive
    monkeypatch.setattr(DeviceEstimates, "download", lambda self: (whole.append(1), download(self))[1])

    def noted(self, number, which, numbers):
        rows.append(which.tolist())
        receive(self, number, which, numbers)

    monkeypatch.setattr(DeviceEstimates, "receive", noted)

    def script():
        optimizer, edges = pairs_of_poses(ours)
        return results(optimizer, edges, 4)

    on_device(script)
    assert len(whole) == 1  # at the end
    assert rows and all(row == [0, 1, 2, 4, 5] for row in rows)


def test_mixed_precision(on_device, monkeypatch):  # noqa: F811
    """Contributions are rounded to H's float32; the minimum is the same."""
    monkeypatch.setattr(
        "graphopt.g2o.engine.devices.solver_options",
        lambda linear_solver, on_host: SolverOptions(
            default_device(),
            linear_solver,
            precision="mixed" if default_device() == "vulkan" else "auto",
            schedule="host" if on_host else "auto",
        ),
    )

    def script():
        return results(*mixed_graph(ours), 30)

    on_cpu, actual = on_device(script)
    assert_same(actual[1:], on_cpu[1:], rtol=1e-4, atol=1e-4)


def test_only_python_edges(on_device):  # noqa: F811
    """Without an edge that kernels know, the CPU linearises and the device solves."""
    from test_python_elements import line_fit

    summaries = []

    def script():
        optimizer, _, edges = line_fit(ours)
        found = results(optimizer, edges, 3)
        summaries.append(optimizer.summary)
        return found

    on_cpu, actual = on_device(script)
    assert [summary.schedule for summary in summaries] == ["host", "host"]
    assert_same(actual, on_cpu, rtol=1e-6, atol=1e-6)
