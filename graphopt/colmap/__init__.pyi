from .adjustment import Options, adjust, bundle_adjustment, graph_of_model, options_of, settings_of
from .folders import read_colmap, write_colmap
from .model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints
from .rigs import ColmapFrames, ColmapRig, ColmapSensor

__all__ = [
    "ColmapCamera",
    "ColmapFrames",
    "ColmapImages",
    "ColmapModel",
    "ColmapPoints",
    "ColmapRig",
    "ColmapSensor",
    "Options",
    "adjust",
    "bundle_adjustment",
    "graph_of_model",
    "options_of",
    "read_colmap",
    "settings_of",
    "write_colmap",
]
