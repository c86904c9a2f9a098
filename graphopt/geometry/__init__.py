"""Groups and cameras, written once for float arrays and for symbolic scalars."""

from graphopt.geometry.arrays import (
    components,
    concatenate,
    cross,
    dot,
    matrix,
    matvec,
    norm,
    normalize_angle,
    safe_sqrt,
    scale,
    skew,
    stack,
)
from graphopt.geometry.cameras import CAMERA_MODELS, CameraModel, camera_model
from graphopt.geometry.group import LieGroup
from graphopt.geometry.product import ProductGroup, VectorGroup, product_group, vector_group
from graphopt.geometry.se2 import SE2
from graphopt.geometry.se3 import SE3
from graphopt.geometry.se3_matrix import SE3Matrix
from graphopt.geometry.sim3 import Sim3
from graphopt.geometry.so2 import SO2
from graphopt.geometry.so3 import SO3

GROUPS = (SO2, SE2, SO3, SE3, Sim3)

__all__ = [
    "CAMERA_MODELS",
    "GROUPS",
    "SE2",
    "SE3",
    "SO2",
    "SO3",
    "CameraModel",
    "LieGroup",
    "ProductGroup",
    "SE3Matrix",
    "Sim3",
    "VectorGroup",
    "camera_model",
    "components",
    "concatenate",
    "cross",
    "dot",
    "matrix",
    "matvec",
    "norm",
    "normalize_angle",
    "product_group",
    "safe_sqrt",
    "scale",
    "skew",
    "stack",
    "vector_group",
]
