"""Every name of the drop-in: those of g2opy 2.3.0, g2o-python 0.0.12 and uoip/g2opy, and few of ours.

The classes of edges and solvers are made at run time, from the registry of edge types and from tables; here
each that the bindings have is named. Edge types that they do not have (inertial ones, those that users
register) are reached through `Factory` and by loading files.
"""

from __future__ import annotations

from graphopt.g2o.actions import Flag, HyperGraphAction, SparseOptimizerTerminateAction
from graphopt.g2o.contrib import SmoothEstimatePropagator
from graphopt.g2o.elements.edge_types import EDGE_CLASSES, EdgeProjectP2MCRight, VariableVectorXEdge
from graphopt.g2o.elements.parameters import (
    CameraParameters,
    Parameter,
    ParameterCamera,
    ParameterContainer,
    ParameterSE2Offset,
    ParameterSE3Offset,
    ParameterStereoCamera,
)
from graphopt.g2o.elements.robust_kernels import (
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
from graphopt.g2o.elements.vector_vertex import VectorXVertex
from graphopt.g2o.elements.vertex_types import (
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
from graphopt.g2o.engine.devices import default_device, set_default_device
from graphopt.g2o.engine.interrupts import on_interrupt, set_on_interrupt
from graphopt.g2o.engine.solvers import (
    BLOCK_SOLVERS,
    LINEAR_SOLVERS,
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
from graphopt.g2o.engine.sparse_block_matrix import SparseBlockMatrixX
from graphopt.g2o.engine.statistics import G2OBatchStatistics
from graphopt.g2o.factory import Factory, FactoryTypeInfo
from graphopt.g2o.files import IoFileFilter, IoFormat, IoWrapper
from graphopt.g2o.hyper_graph import HyperGraph
from graphopt.g2o.optimizable_graph import OptimizableGraph
from graphopt.g2o.propagator import (
    EstimatePropagator,
    EstimatePropagatorCost,
    EstimatePropagatorCostBase,
    EstimatePropagatorCostOdometry,
    HyperDijkstra,
    UniformCostFunction,
)
from graphopt.g2o.simulator import (
    Simulator,
    Simulator2D,
    Simulator2DConfig,
    Simulator3D,
    Simulator3DConfig,
    SimulatorConfig,
    World,
)
from graphopt.g2o.sparse_optimizer import SparseOptimizer
from graphopt.g2o.values.cameras import (
    EdgeGICP,
    MotionMeasurement,
    OdomConvert,
    SBACam,
    StereoCameraParameters,
    VelocityMeasurement,
    VertexIntrinsicsEstimate,
)
from graphopt.g2o.values.isometries import Isometry2d, Isometry3d, TransformTraits
from graphopt.g2o.values.poses import SE3Quat, Sim3
from graphopt.g2o.values.rotations import AngleAxis, Quaternion, Rotation2D, Rotation2d
from graphopt.g2o.values.se2 import SE2

G2O, JSON, BINARY = IoFormat.G2O, IoFormat.JSON, IoFormat.BINARY
Isometry, Affine = TransformTraits.Isometry, TransformTraits.Affine
AffineCompact, Projective = TransformTraits.AffineCompact, TransformTraits.Projective

_EDGES = {edge_class.__name__: edge_class for edge_class in EDGE_CLASSES.values()}
EdgeInverseSim3ProjectXYZ = _EDGES["EdgeInverseSim3ProjectXYZ"]
EdgeObservationBAL = _EDGES["EdgeObservationBAL"]
EdgePointXY = _EDGES["EdgePointXY"]
EdgePointXYZ = _EDGES["EdgePointXYZ"]
EdgeProjectP2MC = _EDGES["EdgeProjectP2MC"]
EdgeProjectP2SC = _EDGES["EdgeProjectP2SC"]
EdgeProjectPSI2UV = _EDGES["EdgeProjectPSI2UV"]
EdgeProjectXYZ2UV = _EDGES["EdgeProjectXYZ2UV"]
EdgeProjectXYZ2UVU = _EDGES["EdgeProjectXYZ2UVU"]
EdgeSBACam = _EDGES["EdgeSBACam"]
EdgeSBAScale = _EDGES["EdgeSBAScale"]
EdgeSE2 = _EDGES["EdgeSE2"]
EdgeSE2LotsOfXY = _EDGES["EdgeSE2LotsOfXY"]
EdgeSE2OdomDifferentialCalib = _EDGES["EdgeSE2OdomDifferentialCalib"]
EdgeSE2Offset = _EDGES["EdgeSE2Offset"]
EdgeSE2PointXY = _EDGES["EdgeSE2PointXY"]
EdgeSE2PointXYBearing = _EDGES["EdgeSE2PointXYBearing"]
EdgeSE2PointXYCalib = _EDGES["EdgeSE2PointXYCalib"]
EdgeSE2PointXYOffset = _EDGES["EdgeSE2PointXYOffset"]
EdgeSE2Prior = _EDGES["EdgeSE2Prior"]
EdgeSE2SensorCalib = _EDGES["EdgeSE2SensorCalib"]
EdgeSE2TwoPointsXY = _EDGES["EdgeSE2TwoPointsXY"]
EdgeSE2XYPrior = _EDGES["EdgeSE2XYPrior"]
EdgeSE3 = _EDGES["EdgeSE3"]
EdgeSE3Expmap = _EDGES["EdgeSE3Expmap"]
EdgeSE3LotsOfXYZ = _EDGES["EdgeSE3LotsOfXYZ"]
EdgeSE3Offset = _EDGES["EdgeSE3Offset"]
EdgeSE3PointXYZ = _EDGES["EdgeSE3PointXYZ"]
EdgeSE3PointXYZDepth = _EDGES["EdgeSE3PointXYZDepth"]
EdgeSE3PointXYZDisparity = _EDGES["EdgeSE3PointXYZDisparity"]
EdgeSE3Prior = _EDGES["EdgeSE3Prior"]
EdgeSE3ProjectXYZ = _EDGES["EdgeSE3ProjectXYZ"]
EdgeSE3ProjectXYZOnlyPose = _EDGES["EdgeSE3ProjectXYZOnlyPose"]
EdgeSE3XYZ = _EDGES["EdgeSE3XYZ"]
EdgeSE3XYZPrior = _EDGES["EdgeSE3XYZPrior"]
EdgeSim3 = _EDGES["EdgeSim3"]
EdgeSim3ProjectXYZ = _EDGES["EdgeSim3ProjectXYZ"]
EdgeStereoSE3ProjectXYZ = _EDGES["EdgeStereoSE3ProjectXYZ"]
EdgeStereoSE3ProjectXYZOnlyPose = _EDGES["EdgeStereoSE3ProjectXYZOnlyPose"]
EdgeVVGicp = _EDGES["EdgeVVGicp"]
EdgeXYPrior = _EDGES["EdgeXYPrior"]
EdgeXYZPrior = _EDGES["EdgeXYZPrior"]
EdgeXyzVsc = _EDGES["EdgeXyzVsc"]

# names of other bindings
EdgeSE2XY = EdgeSE2PointXY
Edge_V_V_GICP = EdgeVVGicp
Edge_XYZ_VSC = EdgeXyzVsc
VertexSBAPointXYZ = VertexPointXYZ

LinearSolverCSparseSE2 = LINEAR_SOLVERS["LinearSolverCSparseSE2"]
LinearSolverCSparseSE3 = LINEAR_SOLVERS["LinearSolverCSparseSE3"]
LinearSolverCSparseSim3 = LINEAR_SOLVERS["LinearSolverCSparseSim3"]
LinearSolverCSparseX = LINEAR_SOLVERS["LinearSolverCSparseX"]
LinearSolverCholmodSE2 = LINEAR_SOLVERS["LinearSolverCholmodSE2"]
LinearSolverCholmodSE3 = LINEAR_SOLVERS["LinearSolverCholmodSE3"]
LinearSolverCholmodSim3 = LINEAR_SOLVERS["LinearSolverCholmodSim3"]
LinearSolverCholmodX = LINEAR_SOLVERS["LinearSolverCholmodX"]
LinearSolverDenseSE2 = LINEAR_SOLVERS["LinearSolverDenseSE2"]
LinearSolverDenseSE3 = LINEAR_SOLVERS["LinearSolverDenseSE3"]
LinearSolverDenseSim3 = LINEAR_SOLVERS["LinearSolverDenseSim3"]
LinearSolverDenseX = LINEAR_SOLVERS["LinearSolverDenseX"]
LinearSolverEigenSE2 = LINEAR_SOLVERS["LinearSolverEigenSE2"]
LinearSolverEigenSE3 = LINEAR_SOLVERS["LinearSolverEigenSE3"]
LinearSolverEigenSim3 = LINEAR_SOLVERS["LinearSolverEigenSim3"]
LinearSolverEigenX = LINEAR_SOLVERS["LinearSolverEigenX"]
LinearSolverPCGSE2 = LINEAR_SOLVERS["LinearSolverPCGSE2"]
LinearSolverPCGSE3 = LINEAR_SOLVERS["LinearSolverPCGSE3"]
LinearSolverPCGSim3 = LINEAR_SOLVERS["LinearSolverPCGSim3"]
LinearSolverPCGX = LINEAR_SOLVERS["LinearSolverPCGX"]

BlockSolverSE2 = BLOCK_SOLVERS["BlockSolverSE2"]
BlockSolverSE3 = BLOCK_SOLVERS["BlockSolverSE3"]
BlockSolverSim3 = BLOCK_SOLVERS["BlockSolverSim3"]
BlockSolverX = BLOCK_SOLVERS["BlockSolverX"]

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
    "on_interrupt",
    "set_default_device",
    "set_on_interrupt",
]
