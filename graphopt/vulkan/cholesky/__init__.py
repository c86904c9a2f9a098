"""Sparse and dense Cholesky factorisation on a Vulkan device: see `factor.DeviceCholesky`."""

from graphopt.vulkan.cholesky.analysis import Analysis, analyse
from graphopt.vulkan.cholesky.choice import (
    expected_seconds,
    factorization_on_device,
    is_faster_from_host,
    is_faster_on_device,
    order_ahead,
)
from graphopt.vulkan.cholesky.factor import DeviceCholesky
from graphopt.vulkan.cholesky.trial import TrialFactorization

__all__ = [
    "Analysis",
    "DeviceCholesky",
    "TrialFactorization",
    "analyse",
    "expected_seconds",
    "factorization_on_device",
    "is_faster_from_host",
    "is_faster_on_device",
    "order_ahead",
]
