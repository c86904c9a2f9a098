"""Vertex, edge and parameter types: one residual function each, one file per g2o domain."""

from graphopt.types import (
    bal,
    four_dof,
    icp,
    inertial,
    marginal,
    registry,
    robust_kernels,
    sba,
    sim3,
    slam2d,
    slam3d,
    visual_inertial,
)
from graphopt.types.base import AnyEdgeType, EdgeType, ParameterType, VariadicEdgeType, VertexType, unwrapped
from graphopt.types.computed import ComputedVertexType, computed_type, sum_type
from graphopt.types.decorators import edge_type, parameter_type, vertex_type
from graphopt.types.files import EdgeFile, VertexFile
from graphopt.types.groups import group_type
from graphopt.types.images import ImageFormat, image_type
from graphopt.types.robust_kernels import robust_kernel_type
from graphopt.types.variadic import variadic_edge_type

BUILTIN_TYPES = tuple(registry.all_types())
"""The types that this package defines; the registry has those of other packages and users as well."""

__all__ = [
    "BUILTIN_TYPES",
    "AnyEdgeType",
    "ComputedVertexType",
    "EdgeFile",
    "EdgeType",
    "ImageFormat",
    "ParameterType",
    "VariadicEdgeType",
    "VertexFile",
    "VertexType",
    "bal",
    "computed_type",
    "edge_type",
    "four_dof",
    "group_type",
    "icp",
    "image_type",
    "inertial",
    "marginal",
    "parameter_type",
    "registry",
    "robust_kernel_type",
    "robust_kernels",
    "sba",
    "sim3",
    "slam2d",
    "slam3d",
    "sum_type",
    "unwrapped",
    "variadic_edge_type",
    "vertex_type",
    "visual_inertial",
]
