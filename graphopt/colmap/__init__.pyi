from .adjustment import bundle_adjustment, graph_of_model, solve
from .bounds import Bounds
from .covariances import ModelCovariance, covariance
from .folders import read_colmap, write_colmap
from .global_refinement import AS_GLOMAP, RefineSummary, refine
from .model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints
from .options import Config, Options, PriorOptions, settings_of
from .priors import IntrinsicsPrior, PosePrior
from .problem import Problem, problem_of
from .residuals import Intrinsics, Residual, View, residual
from .rigs import ColmapFrames, ColmapRig, ColmapSensor
from .summary import BundleAdjustmentSummary

__all__ = [
    "AS_GLOMAP",
    "Bounds",
    "BundleAdjustmentSummary",
    "ColmapCamera",
    "ColmapFrames",
    "ColmapImages",
    "ColmapModel",
    "ColmapPoints",
    "ColmapRig",
    "ColmapSensor",
    "Config",
    "Intrinsics",
    "IntrinsicsPrior",
    "ModelCovariance",
    "Options",
    "PosePrior",
    "PriorOptions",
    "Problem",
    "RefineSummary",
    "Residual",
    "View",
    "bundle_adjustment",
    "covariance",
    "graph_of_model",
    "problem_of",
    "read_colmap",
    "refine",
    "residual",
    "settings_of",
    "solve",
    "write_colmap",
]
