"""Whole programs of users: bundle adjustment in twenty lines, own kernels, weights, both domains in one."""

import numpy as np
import pytest

import graphopt
from graphopt import codegen, indexed, pairwise, sequential, unique
from graphopt.errors import OptionError, ShapeError, SymbolicError, TypeRegistryError
from graphopt.geometry import SE2, SE3, SO3
from graphopt.types.robust_kernels import KERNELS, num_kernels, robust_kernel

pytestmark = pytest.mark.usefixtures("own_types")


def scene(seed=0):
    """Cameras on a circle that look at points: camera storage, points, indices, pixels."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1.0, 1.0, (60, 3))
    poses = SE3.exp(np.concatenate([0.2 * rng.normal(size=(5, 3)), 0.2 * rng.normal(size=(5, 3))], axis=1))
    storage = poses.storage.copy()
    storage[:, 2] -= 6.0
    calibration = np.stack([np.full(5, 400.0), np.full(5, 0.01), np.full(5, -0.002)], axis=1)
    cameras = np.concatenate([storage, calibration], axis=1)
    camera, point = (x.ravel() for x in np.meshgrid(np.arange(5), np.arange(60), indexing="ij"))
    p = SE3(cameras[camera, :7]) * points[point]
    flat = -p[:, :2] / p[:, 2:]
    r2 = (flat**2).sum(axis=1)
    f, k1, k2 = cameras[camera, 7:].T
    return cameras, points, camera, point, (f * (1.0 + k1 * r2 + k2 * r2 * r2))[:, None] * flat


def test_bundle_adjustment_in_twenty_lines():
    """Vertex types, edge function, arrays in: exact pixels are met again from a disturbed start."""
    true_cameras, true_points, camera_index, point_index, pixels = scene()
    rng = np.random.default_rng(1)
    start = true_cameras.copy()
    start[1:, :3] += 0.02 * rng.normal(size=(4, 3))
    start[1:, 7] *= 1.01

    Camera = graphopt.group_type("Camera", cam_T_world=SE3, calibration=3)
    Point = graphopt.group_type("Point", 3)

    @graphopt.edge_type(vertices=(Camera, Point), measurement_dim=2)
    def snavely_reprojection(camera, point, pixel):
        f, k1, k2 = camera.calibration
        x, y, z = camera.cam_T_world * point
        p = -np.stack([x, y]) / z
        r2 = p @ p
        return f * (1.0 + k1 * r2 + k2 * r2**2) * p - pixel

    graph = graphopt.Graph()
    cameras = graph.add_array(Camera, start, fixed=np.arange(5) == 0)
    points = graph.add_array(Point, true_points + 0.02 * rng.normal(size=(60, 3)), marginalized=True)
    graph.add_edges(
        snavely_reprojection, (indexed(cameras, camera_index), indexed(points, point_index)), pixels
    )
    chi2 = graph.chi2()
    summary = graphopt.optimize(graph, device="cpu")

    assert snavely_reprojection.tag == "EDGE_SNAVELY_REPROJECTION" and not snavely_reprojection.is_batched
    assert summary.initial_chi2 == pytest.approx(chi2, rel=1e-10) and summary.schur != "off"
    assert summary.final_chi2 < 1e-10 * chi2
    np.testing.assert_allclose(np.linalg.norm(cameras.estimate[:, 3:7], axis=1), 1.0, atol=1e-12)


def test_oplus_of_groups_multiplies_where_it_is_told():
    """Right: x exp(d); left: exp(d) x; vectors add."""
    rng = np.random.default_rng(0)
    x, d = SE3.exp(rng.normal(size=6)), 0.3 * rng.normal(size=6)
    right, left = (graphopt.group_type(f"Pose{side}", SE3, side=side) for side in ("right", "left"))
    np.testing.assert_allclose(right.oplus(x.storage, d), (x * SE3.exp(d)).storage)
    np.testing.assert_allclose(left.oplus(x.storage, d), (SE3.exp(d) * x).storage)
    both = graphopt.group_type("Both", pose=SE3, bias=2)
    moved = both.oplus(np.array([*x.storage, 1.0, 2.0]), np.array([*d, 0.5, 0.25]))
    np.testing.assert_allclose(moved, [*(x * SE3.exp(d)).storage, 1.5, 2.25])
    assert both.tag == "VERTEX_BOTH" and both.identity == (*SE3.identity_storage, 0.0, 0.0)


def test_rounded_quaternions_of_a_file_become_unit_quaternions(tmp_path):
    """Written with six digits and read again, a product's pose is a rotation to all digits."""
    Camera = graphopt.group_type("CameraOfFile", pose=SE3, focal=1)
    file = tmp_path / "camera.g2o"
    file.write_text("VERTEX_CAMERA_OF_FILE 3 1 2 3 0.182574 0.365148 0.547723 0.730297 500\n")
    graph = graphopt.read(file)
    estimate = graph.vertex_set(Camera).estimate[0]
    assert np.linalg.norm(estimate[3:7]) == pytest.approx(1.0, abs=1e-15)
    graphopt.write(graph, tmp_path / "again.g2o")
    again = graphopt.read(tmp_path / "again.g2o").vertex_set(Camera).estimate[0]
    np.testing.assert_allclose(again, estimate, rtol=1e-14)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "one group, one number, or named parts"),
        ({"group": SE3, "bias": 3}, "one group, one number, or named parts"),
        ({"group": 3, "side": "above"}, "right, left"),
        ({"group": "SE3"}, "is no group"),
        ({"group": 0}, "1 or more"),
        ({"pose": "SE3"}, "expected a group"),
        ({"exp": 3}, "cannot be called 'exp'"),
    ],
)
def test_group_types_that_are_none(arguments, words):
    """Each mistake is named."""
    with pytest.raises(OptionError, match=words):
        graphopt.group_type("Wrong", **arguments)


def test_both_domains_in_one_problem():
    """A field on a grid, poses in a chain, priors, and one edge set by indices between them."""
    Height = graphopt.group_type("Height", 1)
    Pose = graphopt.group_type("Pose", SE2)

    @graphopt.edge_type(vertices=(Height, Height))
    def smooth(a, b):
        return 10.0 * (b - a)

    @graphopt.edge_type(vertices=(Pose, Pose), measurement_dim=3, wrap_measurement=SE2)
    def odometry(a, b, motion):
        return motion.between(a.between(b)).log()

    @graphopt.edge_type(vertices=(Pose, Height), measurement_dim=1)
    def sounding(pose, height, depth):
        return height[0] + 0.1 * pose.translation[0] - depth

    @graphopt.edge_type(vertices=(Pose,), measurement_dim=3, wrap_measurement=SE2)
    def anchor(pose, at):
        return at.between(pose).log()

    graph = graphopt.Graph()
    field = graph.add_grid(Height, (4, 5))
    poses = graph.add_array(Pose, np.zeros((4, 3)))
    for step in ((0, 1), (1, 0)):
        graph.add_stencil(smooth, field, [(0, 0), step])
    graph.add_edges(odometry, pairwise(poses), [1.0, 0.0, 0.1], information=1e6 * np.eye(3))
    graph.add_edges(
        sounding, (sequential(poses), indexed(field, [[0, 0], [1, 2], [2, 3], [3, 4]])), np.arange(4.0)
    )
    graph.add_edges(anchor, (unique(poses),), [0.0, 0.0, 0.0], information=1e6 * np.eye(3))
    summary = graphopt.optimize(graph)
    assert summary.termination.is_usable and summary.final_chi2 < 0.5 * summary.initial_chi2
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
    np.testing.assert_allclose(poses.estimate[:, 2], 0.1 * np.arange(4), atol=1e-2)


# --- robust kernels -----------------------------------------------------------------------------------------
def test_own_kernel_from_rho_alone():
    """The derived weight is d rho / d chi2; compiled and in numpy; g2o's Cauchy is met exactly."""

    @graphopt.robust_kernel_type
    def own_cauchy(chi2, width):
        return width**2 * np.log(1.0 + chi2 / width**2)

    chi2, width = np.linspace(0.0, 9.0, 50), np.full(50, 1.3)
    expected = np.stack(robust_kernel("Cauchy").function(chi2, width))
    np.testing.assert_allclose(np.stack(own_cauchy.function(chi2, width)), expected, rtol=1e-12)
    program = codegen.compile_robust_kernel(own_cauchy.function)
    np.testing.assert_allclose(program.run(np.stack([chi2, width], axis=1)).T, expected, rtol=1e-12)
    assert robust_kernel("own_cauchy") is own_cauchy and own_cauchy.number == num_kernels() - 1


def test_own_kernel_in_an_optimization():
    """An outlier is let go by a truncated kernel; each edge set has its own kernel and width."""

    @graphopt.robust_kernel_type
    def truncated(chi2, width):
        inside = chi2 < width
        return np.where(inside, chi2, width), np.where(inside, 1.0, 0.0)

    Value = graphopt.group_type("Value", 1)

    @graphopt.edge_type(vertices=(Value,), measurement_dim=2)
    def weighted(x, measured):
        value, weight = measured
        return weight * (x[0] - value)

    graph = graphopt.Graph()
    x = graph.add_array(Value, [[0.9]])
    data = np.array([[1.0, 1.0], [1.2, 1.0], [50.0, 1.0]])
    graph.add_edges(weighted, (unique(x),), data, kernel=truncated, kernel_width=2.0)
    graph.add_edges(weighted, (unique(x),), [[1.3, 2.0]], kernel="Huber", kernel_width=10.0)
    graphopt.optimize(graph, method="lm")
    assert x.estimate[0, 0] == pytest.approx((1.0 + 1.2 + 4 * 1.3) / 6.0, rel=1e-9)
    graph.set_robust_kernel(truncated, 1e9)
    assert graph.edge(weighted, 0).kernel == "truncated"
    graphopt.optimize(graph, method="lm")
    assert x.estimate[0, 0] == pytest.approx((1.0 + 1.2 + 50.0 + 4 * 1.3) / 7.0, rel=1e-9)
    assert not graph.check() or all(f.kind != "unknown-kernel" for f in graph.check())


def test_kernels_that_are_none():
    """Wrong shape, a name of g2o's, an exception, a branch."""

    def huber(chi2, width):
        return chi2

    def pair(chi2, width):
        return np.zeros(3)

    def broken(chi2):
        return chi2

    with pytest.raises(TypeRegistryError, match="kernel of g2o"):
        graphopt.robust_kernel_type(huber)
    with pytest.raises(ShapeError, match="rho or"):
        graphopt.robust_kernel_type(pair)
    with pytest.raises(ShapeError, match="cannot be called"):
        graphopt.robust_kernel_type(broken)

    def branching(chi2, width):
        return (chi2, 1.0) if chi2 < width else (width, 0.0)

    with pytest.raises(SymbolicError, match="if chi2 < width"):
        codegen.compile_robust_kernel(graphopt.robust_kernel_type(branching).function)
    with pytest.raises(OptionError, match="robust_kernel_type defines one"):
        robust_kernel("no_such_kernel")
    assert len(KERNELS) == 11


# --- functions of one edge ----------------------------------------------------------------------------------
def test_functions_of_one_edge_and_of_batches_are_told_apart():
    """Both give the chi2 of each edge evaluated alone."""
    Place = graphopt.group_type("Place", 3)

    @graphopt.edge_type(vertices=(Place, Place), measurement_dim=1)
    def alone(a, b, distance):
        x, y, z = b - a
        return np.sqrt(x * x + y * y + z * z) - distance

    @graphopt.edge_type(vertices=(Place, Place), measurement_dim=1)
    def together(a, b, distance):
        return np.sqrt(np.sum((b - a) ** 2, axis=-1)) - distance

    assert not alone.is_batched and together.is_batched
    graph = graphopt.Graph()
    places = graph.add_array(Place, np.random.default_rng(0).normal(size=(7, 3)))
    graph.add_edges(alone, pairwise(places), np.arange(6.0))
    graph.add_edges(together, pairwise(places), np.arange(6.0))
    lengths = np.linalg.norm(np.diff(places.estimate, axis=0), axis=1)
    assert graph.chi2() == pytest.approx(2.0 * np.sum((lengths - np.arange(6.0)) ** 2), rel=1e-12)
    np.testing.assert_allclose(
        [e.error()[0] for e in graph.edges()][:6], lengths - np.arange(6.0), rtol=1e-12
    )


def test_an_error_on_arrays_is_not_lost():
    """What shapes do not cause refuses the definition; the rest is shown where symbols fail too."""
    Place = graphopt.group_type("Place", 3)
    with pytest.raises(ShapeError, match=r"arrays of edges NameError: .*no_such_name(?s:.*)_programs.py"):

        @graphopt.edge_type(vertices=(Place, Place))
        def misspelt(a, b):
            return b - a if a.ndim == 1 else b - no_such_name  # noqa: F821

    @graphopt.edge_type(vertices=(Place, Place))
    def branches(a, b):
        return b - a if a[0] > 0.0 else a - b

    assert not branches.is_batched
    graph = graphopt.Graph()
    places = graph.add_array(Place, np.ones((2, 3)))
    graph.add_edges(branches, pairwise(places))
    with pytest.raises(SymbolicError, match=r"symbols(?s:.*)of edges it raised ValueError: .*truth"):
        graph.chi2()


def test_no_measurement_and_parameters():
    """measurement_dim=0 takes none; weights may be parameters that all edges share."""
    Value = graphopt.group_type("Value", 2)

    @graphopt.parameter_type(storage_dim=2)
    def weights(storage):
        return storage

    @graphopt.edge_type(vertices=(Value,), parameters=(weights,))
    def shrink(x, w):
        return w * (x - 1.0)

    graph = graphopt.Graph()
    x = graph.add_array(Value, np.zeros((3, 2)))
    graph.add_parameters(weights, [7], [[2.0, 3.0]])
    graph.add_edges(shrink, (sequential(x),), parameters=[7])
    assert (weights.tag, shrink.tag, shrink.measurement_dim) == ("PARAMS_WEIGHTS", "EDGE_SHRINK", 0)
    assert graph.chi2() == pytest.approx(3 * 13.0)
    graphopt.optimize(graph, method="gn")
    np.testing.assert_allclose(x.estimate, 1.0)


def test_rotations_average():
    """SO3 in a residual: the mean of rotations close to each other."""
    Rotation = graphopt.group_type("Rotation", SO3, side="left")

    @graphopt.edge_type(vertices=(Rotation,), measurement_dim=4, wrap_measurement=SO3)
    def seen(rotation, measured):
        return (rotation * measured.inverse()).log()

    tangents = 0.1 * np.random.default_rng(0).normal(size=(20, 3))
    graph = graphopt.Graph()
    mean = graph.add_array(Rotation, [SO3.exp(np.array([0.5, 0.5, 0.5])).storage])
    graph.add_edges(seen, (unique(mean),), SO3.exp(tangents).storage)
    graphopt.optimize(graph)
    residuals = (SO3(mean.estimate[0]) * SO3(SO3.exp(tangents).storage).inverse()).log()
    np.testing.assert_allclose(residuals.sum(axis=0), 0.0, atol=1e-6)
