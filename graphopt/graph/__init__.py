"""The graph: vertices, edges and parameters as arrays; selection, gauge, components, checks."""

from graphopt.graph.graph import Graph, UnparsedLine
from graphopt.graph.robust_kernels import ROBUST_KERNELS, RobustKernel, kernel_number, robust_kernel
from graphopt.graph.selection import EdgeSelection, Selection
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.graph.views import Edge, Vertex

__all__ = [
    "ROBUST_KERNELS",
    "Edge",
    "EdgeSelection",
    "EdgeSet",
    "Graph",
    "ParameterSet",
    "RobustKernel",
    "Selection",
    "UnparsedLine",
    "Vertex",
    "VertexSet",
    "kernel_number",
    "robust_kernel",
]
