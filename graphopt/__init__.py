"""Graph optimization for robotics and vision: g2o's graphs, files and answers, on any CPU and GPU.

    graph = graphopt.read("sphere2500.g2o")
    summary = graphopt.optimize(graph)
    graphopt.write(graph, "optimized.g2o")

Names are imported when they are first used, so that `import graphopt` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Graph": "graphopt.graph",
    "Summary": "graphopt.optimizer.summary",
    "TerminationType": "graphopt.optimizer.summary",
    "StopFlag": "graphopt.optimizer.signals",
    "GraphOptError": "graphopt.errors",
    "optimize": "graphopt.optimizer.optimize",
    "compute_marginals": "graphopt.optimizer.marginals",
    "initialize": "graphopt.initialization",
    "read": "graphopt.io",
    "write": "graphopt.io",
    "vertex_type": "graphopt.types",
    "edge_type": "graphopt.types",
    "parameter_type": "graphopt.types",
}
_MODULES = ("datasets", "errors", "geometry", "io", "optimizer", "report", "solver", "types")

__all__ = [
    "Graph",
    "GraphOptError",
    "StopFlag",
    "Summary",
    "TerminationType",
    "__version__",
    "compute_marginals",
    "datasets",
    "edge_type",
    "errors",
    "geometry",
    "initialize",
    "io",
    "optimize",
    "optimizer",
    "parameter_type",
    "read",
    "report",
    "solver",
    "types",
    "vertex_type",
    "write",
]

if TYPE_CHECKING:
    from graphopt import datasets, errors, geometry, io, optimizer, report, solver, types
    from graphopt.errors import GraphOptError
    from graphopt.graph import Graph
    from graphopt.initialization import initialize
    from graphopt.io import read, write
    from graphopt.optimizer.marginals import compute_marginals
    from graphopt.optimizer.optimize import optimize
    from graphopt.optimizer.signals import StopFlag
    from graphopt.optimizer.summary import Summary, TerminationType
    from graphopt.types import edge_type, parameter_type, vertex_type


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"graphopt.{name}")
    else:
        raise AttributeError(f"module 'graphopt' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
