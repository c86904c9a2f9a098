"""The examples as modules, and what their tests share: `from examples_modules import nist`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"

from graphopt.types import registry  # noqa: E402

_before = set(registry.all_types())

import bundle_fusion  # noqa: E402
import command  # noqa: E402
import cotangent_smoothing  # noqa: E402
import curve_fitting  # noqa: E402
import deconvolution  # noqa: E402
import embedded_deformation  # noqa: E402
import face_fitting  # noqa: E402
import image_warping  # noqa: E402
import images  # noqa: E402
import intrinsic_images  # noqa: E402
import mesh_deformation  # noqa: E402
import meshes  # noqa: E402
import nist  # noqa: E402
import nonrigid_alignment  # noqa: E402
import numpy as np  # noqa: E402
import optical_flow  # noqa: E402
import poisson_editing  # noqa: E402
import pose_graph  # noqa: E402
import procrustes  # noqa: E402
import pytest  # noqa: E402
import shape_and_shading  # noqa: E402
import shape_from_shading  # noqa: E402
import snavely  # noqa: E402
import sympy_residual  # noqa: E402
import volumetric_deformation  # noqa: E402

__all__ = [
    "bundle_fusion",
    "command",
    "cotangent_smoothing",
    "curve_fitting",
    "deconvolution",
    "embedded_deformation",
    "face_fitting",
    "image_warping",
    "images",
    "intrinsic_images",
    "mesh_deformation",
    "meshes",
    "nist",
    "nonrigid_alignment",
    "optical_flow",
    "own_types",
    "poisson_editing",
    "pose_graph",
    "procrustes",
    "shape_and_shading",
    "shape_from_shading",
    "snavely",
    "sympy_residual",
    "to_be_gained",
    "volumetric_deformation",
]


def forget_types_since(known):
    """Unregister the types that are not in `known`, so that other tests do not meet them; they still work."""
    for kind in set(registry.all_types()) - set(known):
        registry.unregister(kind)


forget_types_since(_before)


@pytest.fixture(scope="module", autouse=True)
def own_types():
    """Types that the tests of a module register are gone after it."""
    known = set(registry.all_types())
    yield
    forget_types_since(known)


def to_be_gained(residual, x):
    """Share of the sum of squares that a Gauss-Newton step from x would still take away, without the library.

    The Jacobian comes from central differences of `residual` (x (n,) -> (m,)).
    """
    step = 1e-6
    columns = [
        residual(x + step * direction) - residual(x - step * direction) for direction in np.eye(len(x))
    ]
    jacobian = np.stack(columns, axis=1) / (2.0 * step)
    error = residual(x)
    gradient, normal = jacobian.T @ error, jacobian.T @ jacobian
    damped = normal + 1e-12 * normal.diagonal().max() * np.eye(len(x))
    return gradient @ np.linalg.solve(damped, gradient) / (error @ error)
