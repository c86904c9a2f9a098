"""Names that options take, each set once: the library checks with them, the command line lists them.

Where names have rows of a table (`plugins.Table`), what stands beside a name is where its row is: a new row
takes one file and one line here. Nothing is imported here, so that `graphopt --help` answers at once.
"""

from __future__ import annotations

from typing import Literal, get_args

METHODS = {
    "auto": "graphopt.strategies.auto:METHOD",
    "lm": "graphopt.optimizer.levenberg_marquardt:METHOD",
    "gn": "graphopt.optimizer.gauss_newton:METHOD",
    "dogleg": "graphopt.optimizer.dogleg:METHOD",
}
"""Optimization algorithms -> row of `optimizer.methods`."""
LINEAR_SOLVERS = {
    "cholesky": "graphopt.linear.cholesky:SPARSE",
    "dense": "graphopt.linear.cholesky:DENSE",
    "pcg": "graphopt.linear.pcg:PCG",
}
"""What "auto" may be -> row of `linear.table`."""
Elimination = Literal["explicit", "implicit", "off"]
SCHUR_CHOICES = ("auto", *get_args(Elimination))
WORK_QUEUES = ("auto", "cpu", "gpu", "lookup")
PRECISIONS = ("auto", "double", "mixed")
PRECONDITIONERS = ("schur_jacobi", "jacobi")
"""Block-Jacobi of S, of H_pp."""
OLD_NAMES = {"hschur": "schur_jacobi", "hpp": "jacobi"}
"""Names of before that options still take."""
Products = Literal["blocks", "matrix-free", "jacobians", "jp"]
"""What is stored of H for products, see `vulkan.plan.storage`."""
PRODUCTS: tuple[Products, ...] = get_args(Products)
Evaluation = Literal["gather", "scatter", "collect"]
"""Who evaluates residual and Jacobians for H and b: each view of a slot for itself, or one kernel for all."""
EVALUATIONS: tuple[Evaluation, ...] = get_args(Evaluation)
EDGE_SCHEDULES = (
    "auto",
    *PRODUCTS,
    *EVALUATIONS,
    *(f"{product}+{evaluation}" for product in PRODUCTS for evaluation in EVALUATIONS),
)
"""Of one edge set."""
SCHEDULES = (*EDGE_SCHEDULES, "host")
SUMMATIONS = ("auto", "merged", "separate")
"""Of one vertex set."""
DEVICES = {
    "cpu": "graphopt.solver.cpu:DEVICE",
    "vulkan": "graphopt.vulkan:DEVICE",
    "kompute": "graphopt.vulkan:KOMPUTE",
}
"""Devices that optimize -> row of `solver.devices`."""
DRIVERS = {
    "vulkan": "graphopt.device.shared:DRIVER",
    "kompute": "graphopt.device.kompute:DRIVER",
}
"""What the GPU's block solver runs on -> row of `graphopt.device.DRIVERS`."""
ROBUST_METHODS = {"graduated": "graphopt.strategies.graduated:optimize_graduated"}
"""What finds edges that may be wrong -> row of `optimizer.optimize`."""
ROBUST = ("kernels", *ROBUST_METHODS)
COMPUTED = ("auto", "inline", "materialize")
"""What is done with computed values."""
FOLDER_FORMATS = {
    "colmap": "graphopt.colmap.folders:BINARY",
    "colmap_text": "graphopt.colmap.folders:TEXT",
}
"""Formats that are a folder, not a file -> row of `io.FORMATS`; the first is what a folder is written as."""
PARTITIONS = ("auto", "slabs", "metis")
TRANSPORTS = ("auto", "host", "pages")
RANKS = ("auto", "all")
INITIALIZATIONS = ("odometry", "spanning-tree", "chordal")
ROBUST_KERNELS = (
    "Huber",
    "PseudoHuber",
    "Cauchy",
    "GemanMcClure",
    "Welsch",
    "Fair",
    "Tukey",
    "Saturated",
    "DCS",
    "ScaleDelta",
)
"""g2o's, in the order of their numbers, from 1 on."""
Alignment = Literal["none", "se3", "sim3", "yaw"]
ALIGNMENTS: tuple[Alignment, ...] = ("se3", "sim3", "yaw", "none")
DELTA_UNITS = ("frames", "m", "s")
SEQUENCE_MODES = ("stereo-inertial", "mono-inertial", "rgbd-inertial", "stereo", "mono", "rgbd")
"""Sensors that the pipeline of `slam_bridge` takes."""
