from .adjustment import bundle_adjustment, graph_of_model, solve
from .folders import read_colmap, write_colmap
from .model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints
from .options import Config, Options, PriorOptions, settings_of
from .priors import IntrinsicsPrior, PosePrior
from .problem import Problem, problem_of
from .rigs import ColmapFrames, ColmapRig, ColmapSensor
from .summary import BundleAdjustmentSummary

__all__ = [
    "BundleAdjustmentSummary",
    "ColmapCamera",
    "ColmapFrames",
    "ColmapImages",
    "ColmapModel",
    "ColmapPoints",
    "ColmapRig",
    "ColmapSensor",
    "Config",
    "IntrinsicsPrior",
    "Options",
    "PosePrior",
    "PriorOptions",
    "Problem",
    "bundle_adjustment",
    "graph_of_model",
    "problem_of",
    "read_colmap",
    "settings_of",
    "solve",
    "write_colmap",
]
