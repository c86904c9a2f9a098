"""Sparse and dense Cholesky factorisation on a Vulkan device: see `factor.DeviceCholesky`."""

from graphopt.solver.vulkan.cholesky.analysis import Analysis, analyse
from graphopt.solver.vulkan.cholesky.factor import DeviceCholesky

__all__ = ["Analysis", "DeviceCholesky", "analyse"]
