"""Errors and Jacobians of edges by the compiled programs of their types."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.cpu_kernels import kernels as native_kernels
from graphopt.types import EdgeType
from graphopt.types.cache import per_type_cache
from graphopt.types.robust_kernels import robust_kernel


@per_type_cache
def _kernels(kind: EdgeType) -> codegen.EdgeKernels:
    return codegen.compile_edge(kind, information="identity")


@per_type_cache
def evaluator(kind: EdgeType) -> Any:
    """Computes errors and chi2 of edge objects without parameters, see `kernels.EdgeEvaluator`."""
    return native_kernels.EdgeEvaluator(_kernels(kind).errors.native)


@per_type_cache
def _jacobian_program(kind: EdgeType) -> Any:
    return _kernels(kind).jacobians.native.run


def errors(kind: EdgeType, inputs: np.ndarray) -> np.ndarray:
    """(n, residual_dim) errors; `inputs` (n, k): estimates, parameters, measurement."""
    return _kernels(kind).errors.native.run(inputs)


def jacobians(kind: EdgeType, inputs: np.ndarray) -> list[np.ndarray]:
    """Per vertex (n, residual_dim, tangent_dim)."""
    flat = _jacobian_program(kind)(inputs)
    result, first = [], 0
    for vertex in kind.vertices:
        size = kind.residual_dim * vertex.tangent_dim
        result.append(flat[:, first : first + size].reshape(-1, kind.residual_dim, vertex.tangent_dim))
        first += size
    return result


@cache
def _robust_program(kernel: int) -> Any:
    return codegen.compile_robust_kernel(robust_kernel(kernel).function).native.run


def robust_chi2(kernel: int, chi2: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """(n,) rho(chi2) of the robust kernel of this number."""
    return _robust_program(kernel)(np.stack([chi2, widths], axis=1))[:, 0]


def chi2(error: np.ndarray, information: np.ndarray) -> np.ndarray:
    """(n,) e' Omega e."""
    return np.einsum("ni,nij,nj->n", error, information, error)
