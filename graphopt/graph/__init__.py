"""The graph: vertices, edges and parameters as arrays; selection, gauge, components, checks."""

from graphopt.graph.access import Access, indexed, pairwise, sequential, unique
from graphopt.graph.domains import GridEdges
from graphopt.graph.graph import Graph
from graphopt.graph.grids import Grid
from graphopt.graph.selection import EdgeSelection, Selection
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.graph.stencils import everywhere
from graphopt.graph.store import UnparsedLine
from graphopt.graph.views import Edge, Vertex

__all__ = [
    "Access",
    "Edge",
    "EdgeSelection",
    "EdgeSet",
    "Graph",
    "Grid",
    "GridEdges",
    "ParameterSet",
    "Selection",
    "UnparsedLine",
    "Vertex",
    "VertexSet",
    "everywhere",
    "indexed",
    "pairwise",
    "sequential",
    "unique",
]
