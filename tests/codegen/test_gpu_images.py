"""Generated kernels of edges that sample images: every kind of kernel against dense numpy.

Samples themselves in every arithmetic; kernels of a large edge in two variants, all of them with
GRAPHOPT_TEST_ALL_KERNELS=1 (ten minutes: llvmpipe takes long to compile two-float functions).
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernel_cases import NOTHING, Case, runner_for, upper_triangles
from image_edges import brightness_edge, images, photo_edge
from test_gpu_kernels import (
    EVERYTHING,
    PRODUCT_TOLERANCE,
    TOLERANCE,
    VARIANTS,
    assert_close,
    product_arrays,
    test_chi2,
    test_linearize,
    test_pairs,
    view_arrays,
    view_params,
)

import graphopt
from graphopt.codegen.gpu import linearize_kernel, oplus_kernel, schur_diagonal_kernel
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import rows_kernel, tiles_kernel
from graphopt.codegen.gpu.schur_kernel import _residual_is_small
from graphopt.symbolic import sampling
from graphopt.types import registry

__all__ = [
    "test_chi2",
    "test_linearize",
    "test_pairs",
]  # with the fixture `problem` of this module


@pytest.fixture(params=VARIANTS, ids="-".join)
def runner(request):
    """Access and arithmetic; the validation layer has nothing to say."""
    runner = runner_for(*request.param)
    yield runner
    assert runner.device.messages == []


CHOSEN = VARIANTS if EVERYTHING else [("address", "double"), ("storage", "mixed")]


@pytest.fixture(params=CHOSEN, ids="-".join)
def problem(request):
    """Cameras and points that sample five images, with a robust kernel."""
    runner = runner_for(*request.param)
    yield Case(photo_edge(), 300, "full", 1, images=images()), runner
    assert runner.device.messages == []


@pytest.mark.parametrize("adds", [0, 1])
def test_schur_diagonal(problem, adds):
    """values -= sum of W M W' per camera, or +=."""
    schur_diagonals(*problem, adds)


@pytest.mark.parametrize("tag", ["EDGE_BEARING_SE2_XY", "EDGE_SE2_XY"])
def test_schur_diagonal_of_small_and_large_residuals(runner, tag):
    """J_a' P J_a, with P of the residual's size, where that takes fewer operations than W M W'."""
    kind = registry.edge_type(tag)
    dims = [vertex.tangent_dim for vertex in kind.vertices]
    assert _residual_is_small(*dims, kind.residual_dim) == (tag == "EDGE_BEARING_SE2_XY")
    schur_diagonals(Case(kind, 300, "full", 1), runner, 0)


def schur_diagonals(case, runner, adds):
    """The kernel's values equal numpy's."""
    _, jacobians, _, weight = case.evaluate()
    omega = weight[:, None, None] * case.information
    view = case.view(0, False)
    rng = np.random.default_rng(1)
    dim = jacobians[1].shape[-1]
    size = dim * (dim + 1) // 2
    root = rng.normal(size=(len(case.estimates[1]), dim, dim))
    inverse = root @ root.transpose(0, 2, 1)
    eliminated = case.free[1]
    offset = np.where(eliminated, 3 + size * np.arange(len(inverse)), NOTHING).astype(np.uint32)
    w = np.einsum("nia,nij,njb->nab", jacobians[0], omega, jacobians[1])
    each = (
        np.einsum("nab,nbc,ndc->nad", w, inverse[case.rows[:, 1]], w)
        * eliminated[case.rows[:, 1], None, None]
    )
    expected = np.stack([-each[case.rows[:, 0] == d].sum(axis=0) for d in view.destinations])
    kernel = schur_diagonal_kernel(case.signature, 0, 1, runner.arithmetic)
    arrays = view_arrays(case, view, runner.real) | {
        "inverse": np.concatenate([np.zeros(3), upper_triangles(inverse).ravel()]).astype(runner.real),
        "inverse_offset1": offset,
    }
    arrays["values"] = np.zeros_like(arrays["values"])
    params = {**view_params(view), "adds": adds}
    [values] = runner.run(kernel, arrays, params, view.num_tiles, ["values"])
    assert_close(values[3:], (1 - 2 * adds) * expected.ravel(), 10 * TOLERANCE[runner.arithmetic])


def test_what_one_vertex_decides_is_sampled_once(own_types):
    """A captured image at the destination's own place is read before the loop over its edges."""
    picture = images()[-1]

    @graphopt.edge_type(vertices=("VERTEX_XY", "VERTEX_XY"))
    def EdgeOwnBrightness(first, second):
        return (picture(first[0], first[1])[..., 0] * second[0])[..., None]

    kernel = rows_kernel(recomputed_product(Case(EdgeOwnBrightness, 4).signature, 0, (1,), "double"))
    assert kernel.source.index("sample_bicubic(") < kernel.source.index("for (uint e = begin")
    assert kernel.buffers[-2:] == ("planes", "pixels")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_borders_and_handles(interpolation, runner):
    """On pixels, at the border, outside; NaN for handles that name no plane; large ones are exact."""
    numbers = np.arange(60000, 60004)
    rng = np.random.default_rng(2)
    planes = {int(k): rng.normal(size=(5, 7)).astype(np.float32) for k in numbers}
    case = Case(brightness_edge(interpolation), 160, "identity", num_vertices=160, images=images())
    case.free[0][:] = True
    case.dim, case.x = 320, np.ones(320)
    case.offsets[0][:] = 2 * np.arange(160)
    case.rows[:, 0] = np.arange(160)
    case.estimates[0][:] = rng.integers(-2, 9, (160, 2)) + rng.choice([0.0, 0.0, 0.25, 0.5], (160, 2))
    case.estimates[0][:3] = [[6.0, 4.0], [0.0, 0.0], [3.0, np.nan]]
    handles = [*numbers, 60000.5, -1.0, 65535.0]
    case.parameters[0] = np.array(handles)[:, None]
    case.parameter_rows[:, 0] = rng.choice(len(handles), 160, p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.05, 0.05])
    case.parameter_rows[:3] = 1
    sampling.PLANES.update(planes)  # as after 60,000 images
    try:
        error, [jacobian], _, _ = case.evaluate()
        case.images = [type("Planes", (), {"planes": planes})]
        view = case.view(0, False)
        arrays, vectors = view_arrays(case, view, runner.real), product_arrays(case, view, runner)
    finally:
        for number in planes:
            del sampling.PLANES[number]
    kernel = linearize_kernel(case.signature, 0, runner.arithmetic)
    values, b = runner.run(kernel, arrays, view_params(view), view.num_tiles, ["values", "b"])
    hessian = np.einsum("nia,nib->nab", jacobian, jacobian)
    missing = ~np.isin(case.parameter_rows[:, 0], range(4)) | np.isnan(case.estimates[0]).any(axis=1)
    assert 10 < missing.sum() < 60
    values = values[3:].reshape(-1, 2, 2)
    assert np.isnan(values[missing]).any(axis=(1, 2)).all()
    assert_close(values[~missing], hessian[~missing], TOLERANCE[runner.arithmetic])
    gradient = -np.einsum("nia,ni->na", jacobian, error)
    assert_close(b.reshape(-1, 2)[~missing], gradient[~missing], TOLERANCE[runner.arithmetic])
    kernel = tiles_kernel(recomputed_product(case.signature, 0, (0,), runner.arithmetic))
    [y] = runner.run(kernel, vectors, view_params(view), view.num_tiles, ["y"])
    expected = np.einsum("nab,b->na", hessian, np.ones(2))
    assert_close(y.reshape(-1, 2)[~missing], expected[~missing], PRODUCT_TOLERANCE[runner.arithmetic])


def test_only_kernels_that_sample_have_images():
    """Their buffers are bound where pixels are read, nowhere else."""
    case = Case(photo_edge(), 4, images=images())
    assert "pixels" in linearize_kernel(case.signature, 0).buffers
    assert "pixels" not in oplus_kernel(case.type.vertices[0]).buffers
