"""Generated kernels on a device against dense numpy, for every edge type."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from graphopt.codegen import compile_vertex
from graphopt.codegen.gpu import (
    chi2_kernel,
    linearize_kernel,
    narrow_record_dim,
    oplus_kernel,
    pair_kernel,
    product_kernel,
    record_dim,
)
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType

sys.path.insert(0, str(Path(__file__).parent))
from gpu_kernel_cases import NOTHING, Case, Runner, packed
from vulkan_devices import shared_device

EDGES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]
VERTICES = [kind for kind in BUILTIN_TYPES if isinstance(kind, VertexType)]
TOLERANCE = {"double": 1e-11, "mixed": 2e-5}
VARIANTS = [(a, p) for a in ("address", "storage") for p in ("double", "mixed")]


@pytest.fixture(params=VARIANTS, ids="-".join)
def runner(request):
    access, arithmetic = request.param
    device = shared_device(access)
    yield Runner(device, arithmetic)
    assert device.messages == []


def close(actual, expected, tolerance, scale=None):
    """Errors relative to the largest entry."""
    scale = np.abs(expected).max() if scale is None else scale
    error = np.abs(actual - expected).max() / max(scale, 1e-300)
    assert error < tolerance, error


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.name)
def test_edge(kind, runner):
    case = Case(kind, kernel=1)
    error, jacobians, rho, weight = case.evaluate()
    sig, real = case.signature, runner.real
    tol = TOLERANCE[runner.arithmetic]
    omega = weight[:, None, None] * case.information
    for slot in range(sig.arity):
        primary = slot == 0
        view = case.view(slot, primary)
        arrays = case.arrays(view.edges)
        k = case.type.vertices[slot].tangent_dim
        nd = len(view.destinations)
        groups = view.num_tiles + (view.num_fixed_tiles if primary else 0)
        arrays |= {
            "first": view.first, "tiles": view.tiles,
            "dest_block": (k * k * np.arange(nd)).astype(np.uint32),
            "dest_scalar": case.offsets[slot][view.destinations],
            "values": np.zeros(k * k * nd, real), "b": np.zeros(case.dim, real),
            "partial": np.zeros(groups + 5), "x": case.x.astype(real), "y": np.zeros(case.dim, real),
        }
        params = {
            "num_tiles": view.num_tiles, "first_tile": 0, "accumulate": 0, "num_destinations": nd,
            "num_edges": len(view.edges), "first_partial": 5,
        }
        kernel = linearize_kernel(sig, slot, primary, runner.arithmetic)
        values, b, partial = runner.run(kernel, arrays, params, groups, ["values", "b", "partial"]) if primary else [*runner.run(kernel, arrays, params, groups, ["values", "b"]), None]
        J = jacobians[slot]
        H = np.einsum("nia,nij,njb->nab", J, omega, J)
        g = -np.einsum("nia,nij,nj->na", J, omega, error)
        gabs = np.einsum("nia,nij,nj->na", abs(J), abs(omega), abs(error))
        expected_H = np.zeros((nd, k, k)); expected_b = np.zeros(case.dim); scale_b = np.zeros(case.dim)
        for d, v in enumerate(view.destinations):
            mine = case.rows[:, slot] == v
            expected_H[d] = H[mine].sum(0)
            at = case.offsets[slot][v]
            expected_b[at:at + k] = g[mine].sum(0)
            scale_b[at:at+k] = gabs[mine].sum(0)
        close(values, expected_H.ravel(), tol)
        close(b, expected_b, tol, scale_b.max())
        if primary:
            close(partial.sum(), rho.sum(), 1e-13)
        sources = tuple(range(sig.arity))
        kernel = product_kernel(sig, slot, sources, runner.arithmetic)
        [y] = runner.run(kernel, arrays, params, view.num_tiles, ["y"])
        u = np.zeros((case.n, sig.edge_type.residual_dim))
        for t in sources:
            off = case.offsets[t][case.rows[:, t]]
            xs = np.stack([np.where(off == NOTHING, 0.0, case.x[np.where(off == NOTHING, 0, off) + i]) for i in range(case.type.vertices[t].tangent_dim)], -1)
            u += np.einsum("nia,na->ni", jacobians[t], xs)
        ye = np.einsum("nia,nij,nj->na", J, omega, u)
        expected_y = np.zeros(case.dim)
        for v in view.destinations:
            at = case.offsets[slot][v]
            expected_y[at:at + k] = ye[case.rows[:, slot] == v].sum(0)
        close(y, expected_y, tol)
