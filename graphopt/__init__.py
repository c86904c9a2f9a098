"""Graph optimization for robotics and vision: g2o's graphs, files and answers, on any CPU and GPU.

    import graphopt
    graph = graphopt.read("sphere2500.g2o")
    summary = graphopt.optimize(graph)
    graphopt.write(graph, "solved.g2o")

Names are loaded on first use, so `import graphopt` itself imports nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt import codegen, datasets, errors, geometry, graph, io, optimizer, report, solver, types
    from graphopt.codegen.gradients import check_gradients
    from graphopt.errors import GraphOptError
    from graphopt.expressions import (
        BatchFit,
        DeviceArray,
        ExpressionBatch,
        ExpressionError,
        FitStatus,
        device_function,
        evaluate_batch,
        fit_batch,
        to_device,
    )
    from graphopt.graph import (
        Edge,
        EdgeSet,
        Graph,
        Grid,
        ParameterSet,
        Vertex,
        VertexSet,
        everywhere,
        indexed,
        pairwise,
        sequential,
        unique,
    )
    from graphopt.initialization import initialize
    from graphopt.io import read, write
    from graphopt.optimizer import (
        AutoOptions,
        DoglegOptions,
        GaussNewtonOptions,
        Interrupted,
        Iteration,
        LevenbergMarquardtOptions,
        StopFlag,
        Summary,
        TerminationType,
        optimize,
    )
    from graphopt.solver.linearization import Linearization, linearize
    from graphopt.solver.marginals import compute_covariances, compute_marginals, find_singular_directions
    from graphopt.symbolic import Image
    from graphopt.symbolic.imports import from_sympy
    from graphopt.types import (
        computed_type,
        edge_type,
        group_type,
        image_type,
        parameter_type,
        robust_kernel_type,
        sum_type,
        variadic_edge_type,
        vertex_type,
    )

__version__ = "0.1.0"

_HOME = {
    "graphopt.codegen.gradients": ("check_gradients",),
    "graphopt.errors": ("GraphOptError",),
    "graphopt.expressions": (
        "BatchFit",
        "DeviceArray",
        "ExpressionBatch",
        "ExpressionError",
        "FitStatus",
        "device_function",
        "evaluate_batch",
        "fit_batch",
        "to_device",
    ),
    "graphopt.graph": (
        "Edge",
        "EdgeSet",
        "Graph",
        "Grid",
        "ParameterSet",
        "Vertex",
        "VertexSet",
        "everywhere",
        "indexed",
        "pairwise",
        "sequential",
        "unique",
    ),
    "graphopt.initialization": ("initialize",),
    "graphopt.io": ("read", "write"),
    "graphopt.optimizer": (
        "AutoOptions",
        "DoglegOptions",
        "GaussNewtonOptions",
        "Interrupted",
        "Iteration",
        "LevenbergMarquardtOptions",
        "StopFlag",
        "Summary",
        "TerminationType",
        "optimize",
    ),
    "graphopt.solver.linearization": ("Linearization", "linearize"),
    "graphopt.solver.marginals": ("compute_covariances", "compute_marginals", "find_singular_directions"),
    "graphopt.symbolic": ("Image",),
    "graphopt.symbolic.imports": ("from_sympy",),
    "graphopt.types": (
        "computed_type",
        "edge_type",
        "variadic_edge_type",
        "variadic_edge_type",
        "group_type",
        "image_type",
        "parameter_type",
        "robust_kernel_type",
        "sum_type",
        "vertex_type",
    ),
}
"""Module -> public names that it provides."""

_MODULES = (
    "codegen",
    "datasets",
    "errors",
    "geometry",
    "graph",
    "io",
    "optimizer",
    "report",
    "solver",
    "types",
)
"""Sub-packages that are loaded by naming them."""

_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AutoOptions",
    "BatchFit",
    "DeviceArray",
    "DoglegOptions",
    "Edge",
    "EdgeSet",
    "ExpressionBatch",
    "ExpressionError",
    "FitStatus",
    "GaussNewtonOptions",
    "Graph",
    "GraphOptError",
    "Grid",
    "Image",
    "Interrupted",
    "Iteration",
    "LevenbergMarquardtOptions",
    "Linearization",
    "ParameterSet",
    "StopFlag",
    "Summary",
    "TerminationType",
    "Vertex",
    "VertexSet",
    "check_gradients",
    "codegen",
    "compute_covariances",
    "compute_marginals",
    "computed_type",
    "datasets",
    "device_function",
    "edge_type",
    "errors",
    "evaluate_batch",
    "everywhere",
    "find_singular_directions",
    "fit_batch",
    "from_sympy",
    "geometry",
    "graph",
    "group_type",
    "image_type",
    "indexed",
    "initialize",
    "io",
    "linearize",
    "optimize",
    "optimizer",
    "pairwise",
    "parameter_type",
    "read",
    "report",
    "robust_kernel_type",
    "sequential",
    "solver",
    "sum_type",
    "to_device",
    "types",
    "unique",
    "variadic_edge_type",
    "vertex_type",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"graphopt.{name}")
    else:
        raise AttributeError(f"module 'graphopt' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
