"""Drop-in for the g2o Python bindings.

    import graphopt.g2o as g2o        # instead of: import g2o  /  import g2opy as g2o

runs programs written for g2opy 2.3.0, g2o-python 0.0.12 and uoip/g2opy. `install_as("g2o")` makes a plain
`import g2o` find this module, for programs that cannot be changed. docs/g2o.md says what is different.
"""

from __future__ import annotations

import sys

from graphopt.g2o import edge_types, solvers
from graphopt.g2o.actions import Flag, HyperGraphAction, SparseOptimizerTerminateAction
from graphopt.g2o.cameras import (
    EdgeGICP,
    MotionMeasurement,
    OdomConvert,
    SBACam,
    StereoCameraParameters,
    VelocityMeasurement,
    VertexIntrinsicsEstimate,
)
from graphopt.g2o.devices import default_device, set_default_device
from graphopt.g2o.edge_types import EdgeProjectP2MCRight, VariableVectorXEdge
from graphopt.g2o.factory import Factory, FactoryTypeInfo
from graphopt.g2o.files import IoFileFilter, IoFormat, IoWrapper
from graphopt.g2o.hyper_graph import HyperGraph
from graphopt.g2o.isometries import Isometry2d, Isometry3d, TransformTraits
from graphopt.g2o.optimizable_graph import OptimizableGraph
from graphopt.g2o.parameters import (
    CameraParameters,
    Parameter,
    ParameterCamera,
    ParameterContainer,
    ParameterSE2Offset,
    ParameterSE3Offset,
    ParameterStereoCamera,
)
from graphopt.g2o.poses import SE3Quat, Sim3
from graphopt.g2o.propagator import (
    EstimatePropagator,
    EstimatePropagatorCost,
    EstimatePropagatorCostBase,
    EstimatePropagatorCostOdometry,
    HyperDijkstra,
    UniformCostFunction,
)
from graphopt.g2o.robust_kernels import (
    BaseRobustKernel,
    RobustKernel,
    RobustKernelCauchy,
    RobustKernelDCS,
    RobustKernelFactory,
    RobustKernelFair,
    RobustKernelGemanMcClure,
    RobustKernelHuber,
    RobustKernelPseudoHuber,
    RobustKernelSaturated,
    RobustKernelScaleDelta,
    RobustKernelTukey,
    RobustKernelWelsch,
)
from graphopt.g2o.rotations import AngleAxis, Quaternion, Rotation2D, Rotation2d
from graphopt.g2o.se2 import SE2
from graphopt.g2o.simulator import (
    Simulator,
    Simulator2D,
    Simulator2DConfig,
    Simulator3D,
    Simulator3DConfig,
    SimulatorConfig,
    World,
)
from graphopt.g2o.solvers import (
    BlockSolverBase,
    LinearSolver,
    OptimizationAlgorithm,
    OptimizationAlgorithmDogleg,
    OptimizationAlgorithmGaussNewton,
    OptimizationAlgorithmLevenberg,
    OptimizationAlgorithmWithHessian,
    PyBlockSolverBase,
    Solver,
)
from graphopt.g2o.sparse_block_matrix import SparseBlockMatrixX
from graphopt.g2o.sparse_optimizer import SparseOptimizer
from graphopt.g2o.statistics import G2OBatchStatistics
from graphopt.g2o.vector_vertex import VectorXVertex
from graphopt.g2o.vertex_types import (
    VertexCam,
    VertexCamBAL,
    VertexIntrinsics,
    VertexOdomDifferentialParams,
    VertexPointXY,
    VertexPointXYZ,
    VertexSCam,
    VertexSE2,
    VertexSE3,
    VertexSE3Expmap,
    VertexSim3Expmap,
)

G2O, JSON, BINARY = IoFormat.G2O, IoFormat.JSON, IoFormat.BINARY
Isometry, Affine = TransformTraits.Isometry, TransformTraits.Affine
AffineCompact, Projective = TransformTraits.AffineCompact, TransformTraits.Projective

_EDGES = {one.__name__: one for one in edge_types.EDGE_CLASSES.values()}
_EDGES |= {  # names of other bindings
    "EdgeSE2XY": _EDGES["EdgeSE2PointXY"],
    "Edge_V_V_GICP": _EDGES["EdgeVVGicp"],
    "Edge_XYZ_VSC": _EDGES["EdgeXyzVsc"],
}
globals().update(_EDGES)
globals().update(solvers.LINEAR_SOLVERS)
globals().update(solvers.BLOCK_SOLVERS)

g2opy = sys.modules[__name__]
VertexSBAPointXYZ = VertexPointXYZ
SmoothEstimatePropagator = EstimatePropagator

__all__ = [
    "BINARY",
    "G2O",
    "JSON",
    "SE2",
    "Affine",
    "AffineCompact",
    "AngleAxis",
    "BaseRobustKernel",
    "BlockSolverBase",
    "BlockSolverSE2",
    "BlockSolverSE3",
    "BlockSolverSim3",
    "BlockSolverX",
    "CameraParameters",
    "EdgeGICP",
    "EdgeInverseSim3ProjectXYZ",
    "EdgeObservationBAL",
    "EdgePointXY",
    "EdgePointXYZ",
    "EdgeProjectP2MC",
    "EdgeProjectP2MCRight",
    "EdgeProjectP2SC",
    "EdgeProjectPSI2UV",
    "EdgeProjectXYZ2UV",
    "EdgeProjectXYZ2UVU",
    "EdgeSBACam",
    "EdgeSBAScale",
    "EdgeSE2",
    "EdgeSE2LotsOfXY",
    "EdgeSE2OdomDifferentialCalib",
    "EdgeSE2Offset",
    "EdgeSE2PointXY",
    "EdgeSE2PointXYBearing",
    "EdgeSE2PointXYCalib",
    "EdgeSE2PointXYOffset",
    "EdgeSE2Prior",
    "EdgeSE2SensorCalib",
    "EdgeSE2TwoPointsXY",
    "EdgeSE2XY",
    "EdgeSE2XYPrior",
    "EdgeSE3",
    "EdgeSE3Expmap",
    "EdgeSE3LotsOfXYZ",
    "EdgeSE3Offset",
    "EdgeSE3PointXYZ",
    "EdgeSE3PointXYZDepth",
    "EdgeSE3PointXYZDisparity",
    "EdgeSE3Prior",
    "EdgeSE3ProjectXYZ",
    "EdgeSE3ProjectXYZOnlyPose",
    "EdgeSE3XYZ",
    "EdgeSE3XYZPrior",
    "EdgeSim3",
    "EdgeSim3ProjectXYZ",
    "EdgeStereoSE3ProjectXYZ",
    "EdgeStereoSE3ProjectXYZOnlyPose",
    "EdgeVVGicp",
    "EdgeXYPrior",
    "EdgeXYZPrior",
    "EdgeXyzVsc",
    "Edge_V_V_GICP",
    "Edge_XYZ_VSC",
    "EstimatePropagator",
    "EstimatePropagatorCost",
    "EstimatePropagatorCostBase",
    "EstimatePropagatorCostOdometry",
    "Factory",
    "FactoryTypeInfo",
    "Flag",
    "G2OBatchStatistics",
    "HyperDijkstra",
    "HyperGraph",
    "HyperGraphAction",
    "IoFileFilter",
    "IoFormat",
    "IoWrapper",
    "Isometry",
    "Isometry2d",
    "Isometry3d",
    "LinearSolver",
    "LinearSolverCSparseSE2",
    "LinearSolverCSparseSE3",
    "LinearSolverCSparseSim3",
    "LinearSolverCSparseX",
    "LinearSolverCholmodSE2",
    "LinearSolverCholmodSE3",
    "LinearSolverCholmodSim3",
    "LinearSolverCholmodX",
    "LinearSolverDenseSE2",
    "LinearSolverDenseSE3",
    "LinearSolverDenseSim3",
    "LinearSolverDenseX",
    "LinearSolverEigenSE2",
    "LinearSolverEigenSE3",
    "LinearSolverEigenSim3",
    "LinearSolverEigenX",
    "LinearSolverPCGSE2",
    "LinearSolverPCGSE3",
    "LinearSolverPCGSim3",
    "LinearSolverPCGX",
    "MotionMeasurement",
    "OdomConvert",
    "OptimizableGraph",
    "OptimizationAlgorithm",
    "OptimizationAlgorithmDogleg",
    "OptimizationAlgorithmGaussNewton",
    "OptimizationAlgorithmLevenberg",
    "OptimizationAlgorithmWithHessian",
    "Parameter",
    "ParameterCamera",
    "ParameterContainer",
    "ParameterSE2Offset",
    "ParameterSE3Offset",
    "ParameterStereoCamera",
    "Projective",
    "PyBlockSolverBase",
    "Quaternion",
    "RobustKernel",
    "RobustKernelCauchy",
    "RobustKernelDCS",
    "RobustKernelFactory",
    "RobustKernelFair",
    "RobustKernelGemanMcClure",
    "RobustKernelHuber",
    "RobustKernelPseudoHuber",
    "RobustKernelSaturated",
    "RobustKernelScaleDelta",
    "RobustKernelTukey",
    "RobustKernelWelsch",
    "Rotation2D",
    "Rotation2d",
    "SBACam",
    "SE3Quat",
    "Sim3",
    "Simulator",
    "Simulator2D",
    "Simulator2DConfig",
    "Simulator3D",
    "Simulator3DConfig",
    "SimulatorConfig",
    "SmoothEstimatePropagator",
    "Solver",
    "SparseBlockMatrixX",
    "SparseOptimizer",
    "SparseOptimizerTerminateAction",
    "StereoCameraParameters",
    "TransformTraits",
    "UniformCostFunction",
    "VariableVectorXEdge",
    "VectorXVertex",
    "VelocityMeasurement",
    "VertexCam",
    "VertexCamBAL",
    "VertexIntrinsics",
    "VertexIntrinsicsEstimate",
    "VertexOdomDifferentialParams",
    "VertexPointXY",
    "VertexPointXYZ",
    "VertexSBAPointXYZ",
    "VertexSCam",
    "VertexSE2",
    "VertexSE3",
    "VertexSE3Expmap",
    "VertexSim3Expmap",
    "World",
    "default_device",
    "install_as",
    "set_default_device",
]


def install_as(name: str = "g2o") -> None:
    """Let `import <name>` find this module from now on: `install_as("g2o")`, `install_as("g2opy")`.

    So do `import <name>.g2opy` and `from <name> import g2opy`, the extension module inside the bindings.
    """
    sys.modules[name] = sys.modules[f"{name}.g2opy"] = sys.modules[__name__]
