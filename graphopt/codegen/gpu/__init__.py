"""Compute kernels generated from edge and vertex types.

layout          records, blocked edge arrays, EdgeSignature
programs        what the kernels evaluate per edge
inputs          where an edge's numbers are read
interface       buffers and push constants of a kernel
kernel          GpuKernel; header, statements
segments        sums over tiles of edges
shared_memory   sum of chi2, writes of whole blocks
edge_kernels    chi2, linearize, pair
product_shapes  sums of products over tiles or rows of edges
packed_products products that compute Jacobians anew
stored_products products that read what one kernel has stored
merged_tiles    what kernels over several edge sets have in common
merged_kernels  chi2, linearize and products of several edge sets
moved_products  products in two halves, J x first
live_order      statements in an order with few live values (kept_orders: on disk)
scattered       records of edges that are evaluated once, and the sums that read them
schur_kernel    diagonal blocks of a Schur complement
vertex_kernels  oplus
problem_kernel  whole small problems, one per workgroup

A device compiles a kernel with `device.generated(kernel)`.
"""

from graphopt.codegen.gpu.edge_kernels import (
    chi2_by_vertex_kernel,
    chi2_kernel,
    linearize_kernel,
    pair_kernel,
)
from graphopt.codegen.gpu.kernel import GpuKernel
from graphopt.codegen.gpu.layout import EDGE_BLOCK, TILE, EdgeSignature, float32_record_dim, record_dim
from graphopt.codegen.gpu.schur_kernel import schur_diagonal_kernel
from graphopt.codegen.gpu.vertex_kernels import oplus_kernel

__all__ = [
    "EDGE_BLOCK",
    "TILE",
    "EdgeSignature",
    "GpuKernel",
    "chi2_by_vertex_kernel",
    "chi2_kernel",
    "float32_record_dim",
    "linearize_kernel",
    "oplus_kernel",
    "pair_kernel",
    "record_dim",
    "schur_diagonal_kernel",
]
