"""Sampled images: one definition, the same in numpy and natively, with the derivatives of what it says."""

import gc

import numpy as np
import pytest

import graphopt
from graphopt import codegen
from graphopt.codegen.trace import trace_edge
from graphopt.errors import GraphError, OptionError, ShapeError, SymbolicError
from graphopt.symbolic import SampledImage, const, jacobian, sampling, symbolic_array, var

MODES = ("bilinear", "bicubic")


def sampling_program(mode):
    """(plane, u, v) -> value, derivative by u, derivative by v."""
    plane, u, v = var("plane"), var("u"), var("v")
    value = SampledImage(symbolic_array([plane]), mode)(u, v)
    rates = jacobian([value], [{u: const(1.0)}, {v: const(1.0)}])[0]
    return codegen.build_program("sampling", [plane, u, v], [value, *rates])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(7, 9), (1, 1), (1, 5), (6, 1), (2, 2), (3, 4)])
def test_native_samples_equal_the_definition(mode, shape):
    """Inside, outside, on whole numbers; an unknown plane and a coordinate that is no number give NaN."""
    rng = np.random.default_rng(0)
    picture = graphopt.Image(rng.normal(size=shape), mode)
    program = sampling_program(mode)
    inputs = np.stack(
        [np.full(400, picture.planes[0]), rng.uniform(-3, 11, 400), rng.uniform(-3, 11, 400)], axis=1
    )
    inputs[:100, 1:] = np.floor(inputs[:100, 1:])
    inputs[:4, 0] = [-1.0, 0.5, 65535.0, np.nan]
    inputs[4, 1], inputs[5, 2], inputs[6, 1] = np.nan, np.nan, np.inf
    np.testing.assert_allclose(program.run(inputs), program.interpret(inputs), rtol=1e-13, atol=1e-14)
    assert np.isnan(program.run(inputs)[:6, 0]).all() and np.isfinite(program.run(inputs)[6:]).all()
    np.testing.assert_allclose(program.run(inputs)[7:, 0], picture(*inputs[7:, 1:].T), atol=1e-14)
    assert program.operation_counts() == {f"SAMPLE{'_CUBIC' if mode == 'bicubic' else ''}": 1}


@pytest.mark.parametrize("mode", MODES)
def test_samples_at_pixels_are_the_pixels(mode):
    """image(column, row) == pixels[row, column]; outside it is the border's pixel."""
    pixels = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    picture = graphopt.Image(pixels, mode)
    rows, columns = np.mgrid[:5, :8]
    np.testing.assert_allclose(picture(columns, rows), pixels, atol=1e-7)
    assert picture(-4.0, 2.0) == pytest.approx(pixels[2, 0]) and picture(9.0, 7.0) == pixels[4, 7]


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_are_those_of_the_value(mode):
    """Central differences inside of cells; zero across the border, as the value is constant there."""
    rng = np.random.default_rng(2)
    picture = graphopt.Image(rng.normal(size=(9, 11)), mode)
    u, v = np.floor(rng.uniform(-3, 13, 300)) + 0.5, np.floor(rng.uniform(-3, 11, 300)) + 0.3
    inputs = np.stack([np.full(300, picture.planes[0]), u, v], axis=1)
    value, by_u, by_v = sampling_program(mode).run(inputs).T
    h = 1e-6
    np.testing.assert_allclose(by_u, (picture(u + h, v) - picture(u - h, v)) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(by_v, (picture(u, v + h) - picture(u, v - h)) / (2 * h), atol=1e-8)
    outside = (u < 0) | (u > 10)
    assert outside.any() and (by_u[outside] == 0.0).all()
    np.testing.assert_allclose(value, picture(u, v), atol=1e-14)


def test_bicubic_keeps_a_plane_and_is_smooth():
    """Catmull and Rom's cubic reproduces linear functions; its derivative has no jump at pixels."""
    rows, columns = np.mgrid[:8, :8].astype(float)
    ramp = graphopt.Image(2.0 * columns - 3.0 * rows, "bicubic")
    assert ramp(3.3, 4.6) == pytest.approx(2.0 * 3.3 - 3.0 * 4.6, abs=1e-6)
    rough = graphopt.Image(np.random.default_rng(3).normal(size=(8, 8)), "bicubic")
    near = np.array([[rough.planes[0], 4.0 - 1e-9, 3.2], [rough.planes[0], 4.0 + 1e-9, 3.2]])
    before, after = sampling_program("bicubic").run(near)
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_channels_come_as_the_last_axis():
    """(height, width, channels) -> (..., channels), and the pixels are live."""
    pixels = np.random.default_rng(4).normal(size=(4, 5, 3)).astype(np.float32)
    picture = graphopt.Image(pixels)
    assert (picture.height, picture.width, picture.channels) == (4, 5, 3)
    np.testing.assert_allclose(picture(np.array([1.0, 2.0]), 3.0), pixels[3, 1:3])
    picture.pixels[3, 1] = 7.0
    np.testing.assert_allclose(picture(1.0, 3.0), [7.0, 7.0, 7.0])
    with pytest.raises(ShapeError, match="3 channels"):
        picture.pixels = np.zeros((4, 5))


def test_handles_are_used_again():
    """An image that nobody has any more gives its handle back."""
    number = graphopt.Image(np.zeros((2, 2))).planes[0]
    gc.collect()
    assert sampling.plane(number) is None
    again = graphopt.Image(np.ones((2, 2)))
    assert again.planes[0] <= number and again(0.0, 0.0) == 1.0


@pytest.mark.parametrize(
    "pixels", [np.zeros(3), np.zeros((0, 4)), np.array([["a"]]), np.array([[np.nan]]), np.array([[1e300]])]
)
def test_what_is_no_image(pixels):
    """Shape, emptiness, text, NaN and numbers beyond float32 are refused."""
    with pytest.raises(ShapeError, match="image"):
        graphopt.Image(pixels)


def test_unknown_interpolation():
    """The known ones are named."""
    with pytest.raises(OptionError, match="bilinear, bicubic"):
        graphopt.Image(np.zeros((2, 2)), "nearest")


# --- in a graph ---------------------------------------------------------------------------------------------
def scene(x, y):
    """A smooth picture."""
    return 50.0 * np.sin(x / 5.0) * np.cos(y / 6.0) + 30.0 * np.cos(x / 9.0 + y / 7.0)


@pytest.fixture
def registration(own_types):
    """Two pictures that differ by a shift, and an edge that compares them: sampled by parameter."""
    target = graphopt.image_type(tag="IMAGE_OF_TEST")

    @graphopt.vertex_type(tangent_dim=2)
    def Shift(x, d):
        return x + d

    @graphopt.edge_type(vertices=(Shift,), parameters=(target,), measurement_dim=3)
    def Brightness(shift, image, z):
        x, y, brightness = z
        return image(x + shift[0], y + shift[1]) - brightness

    rows, columns = np.mgrid[5:30:2, 5:30:2].astype(float)
    z = np.stack([columns, rows, scene(columns, rows)], axis=-1).reshape(-1, 3)
    full_rows, full_columns = np.mgrid[:40, :40].astype(float)
    pictures = [scene(full_columns - a, full_rows - b) for a, b in ((1.3, -0.7), (-0.4, 2.1))]
    return Shift, Brightness, target, z, pictures


def test_a_shift_is_found_and_follows_the_image(registration):
    """The same compiled edge serves another picture, of another size, and pixels written in place."""
    Shift, Brightness, _, z, pictures = registration
    graph = graphopt.Graph()
    shift = graph.add_array(Shift, np.zeros((1, 2)))
    picture = graphopt.Image(pictures[0])
    graph.add_edges(Brightness, (graphopt.unique(shift),), z, parameters=picture)
    chi2 = graph.chi2()
    summary = graphopt.optimize(graph, method="lm")
    assert summary.initial_chi2 == pytest.approx(chi2, rel=1e-12)
    np.testing.assert_allclose(shift.estimate[0], [1.3, -0.7], atol=0.05)
    graph.set_image(int(graph.parameter_sets[0].ids[0]), graphopt.Image(np.pad(pictures[1], (0, 7), "edge")))
    gc.collect()
    graphopt.optimize(graph, method="lm")
    np.testing.assert_allclose(shift.estimate[0], [-0.4, 2.1], atol=0.05)
    graph.parameter_sets[0].images[0].pixels[:40, :40] = pictures[0]
    graphopt.optimize(graph, method="lm")
    np.testing.assert_allclose(shift.estimate[0], [1.3, -0.7], atol=0.05)


def test_every_edge_may_have_another_image(registration):
    """Two shifts in one edge set, each with its own picture."""
    Shift, Brightness, target, z, pictures = registration
    graph = graphopt.Graph()
    shifts = graph.add_array(Shift, np.zeros((2, 2)))
    graph.add_parameters(target, [10, 20], [graphopt.Image(picture) for picture in pictures])
    which = np.repeat([0, 1], len(z))
    graph.add_edges(
        Brightness,
        (graphopt.indexed(shifts, which),),
        np.tile(z, (2, 1)),
        parameters=np.where(which == 0, 10, 20),
    )
    copied = graph.copy()
    graphopt.optimize(graph, method="lm")
    np.testing.assert_allclose(shifts.estimate, [[1.3, -0.7], [-0.4, 2.1]], atol=0.05)
    assert copied.chi2() > 1000.0 * graph.chi2()


def test_a_captured_image(registration):
    """An image that the function closes over needs no parameter; its handle is a constant of the program."""
    Shift, _, _, z, pictures = registration
    picture = graphopt.Image(pictures[0])

    @graphopt.edge_type(vertices=(Shift,), measurement_dim=3)
    def Captured(shift, z):
        return picture(z[0] + shift[0], z[1] + shift[1]) - z[2]

    graph = graphopt.Graph()
    shift = graph.add_array(Shift, np.zeros((1, 2)))
    graph.add_edges(Captured, (graphopt.unique(shift),), z)
    graphopt.optimize(graph, method="lm")
    np.testing.assert_allclose(shift.estimate[0], [1.3, -0.7], atol=0.05)
    program = codegen.compile_edge(Captured).chi2
    assert codegen.sampled_planes(program) == set(picture.planes)


def test_images_of_the_wrong_kind_are_refused(registration):
    """Numbers, a wrong number of channels, an unknown parameter, and a file."""
    _, _, target, _, _ = registration
    graph = graphopt.Graph()
    with pytest.raises(GraphError, match=r"graphopt\.Image"):
        graph.add_parameters(target, [0], [1.0])
    with pytest.raises(ShapeError, match="channels=3"):
        graph.add_parameters(target, [0], graphopt.Image(np.zeros((2, 2, 3))))
    with pytest.raises(GraphError, match="no parameter 5"):
        graph.set_image(5, graphopt.Image(np.zeros((2, 2))))
    with pytest.raises(GraphError, match=r"\.g2o"):
        target.file.encode(np.zeros((1, 1)))


def test_second_derivatives_name_the_way_out(registration):
    """A residual of an image's gradient is refused with a sentence."""
    u, v = var("u"), var("v")
    value = SampledImage(symbolic_array([const(0.0)]))(u, v)
    by_u = jacobian([value], [{u: const(1.0)}])[0]
    with pytest.raises(SymbolicError, match="channels of an image"):
        jacobian(by_u, [{v: const(1.0)}])


def test_the_trace_has_one_sample_per_channel(registration):
    """Value and both derivatives come from one instruction."""
    _, Brightness, _, _, _ = registration
    program = codegen.compile_edge(Brightness, "identity").linearize
    assert program.operation_counts()["SAMPLE"] == 1
    assert len(trace_edge(Brightness).residual) == 1


def test_planes_may_change_while_another_thread_samples():
    """Samples are of one of the pictures that were there, or NaN; nothing is read after it is released."""
    import threading

    program, stop = sampling_program("bilinear"), threading.Event()
    picture = graphopt.Image(np.ones((4, 4)))
    inputs = np.tile([picture.planes[0], 1.5, 2.5], (640, 1))
    seen: set[float] = set()

    def sample() -> None:
        while not stop.is_set():
            seen.update(np.unique(program.run(inputs)[:, 0]).tolist())

    thread = threading.Thread(target=sample)
    thread.start()
    for step in range(300):
        picture.pixels = np.full((2 + step % 7, 3), 1.0 + step % 3)
        for _ in range(3):
            graphopt.Image(np.zeros((50, 50)))  # dropped at once
    stop.set()
    thread.join()
    assert seen <= {1.0, 2.0, 3.0} and seen
