"""The graph: vertices, edges and parameters as arrays; selection, gauge, components, checks."""

from graphopt.graph.graph import Graph
from graphopt.graph.selection import EdgeSelection, Selection
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.graph.store import UnparsedLine
from graphopt.graph.views import Edge, Vertex

__all__ = [
    "Edge",
    "EdgeSelection",
    "EdgeSet",
    "Graph",
    "ParameterSet",
    "Selection",
    "UnparsedLine",
    "Vertex",
    "VertexSet",
]
