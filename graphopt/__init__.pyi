from . import codegen, distributed, errors, evaluate, geometry, graph, io, online, optimizer, solver, types
from .batch import BatchSummary, optimize_batch
from .codegen.gradients import check_gradients
from .device.cuda_arrays import empty
from .errors import GraphOptError
from .evaluate import datasets, report
from .expressions import (
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
from .graph import (
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
from .io import read, write
from .linear import register_linear_solver
from .linear.options import SolverOptions
from .online import Online, OnlineReport
from .optimizer import (
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
    register_algorithm,
)
from .solver.devices import register_block_solver
from .solver.edge_errors import edge_errors
from .solver.linearization import Linearization, linearize
from .solver.marginals import compute_covariances, compute_marginals, find_singular_directions
from .strategies.initialization import initialize
from .symbolic import Image
from .symbolic.imports import from_sympy
from .types import (
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

__all__ = [
    "AutoOptions",
    "BatchFit",
    "BatchSummary",
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
    "Online",
    "OnlineReport",
    "ParameterSet",
    "SolverOptions",
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
    "distributed",
    "edge_errors",
    "edge_type",
    "empty",
    "errors",
    "evaluate",
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
    "online",
    "optimize",
    "optimize_batch",
    "optimizer",
    "pairwise",
    "parameter_type",
    "read",
    "register_algorithm",
    "register_block_solver",
    "register_linear_solver",
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

__version__: str
