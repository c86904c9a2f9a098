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

_EDGES = """
EdgeInverseSim3ProjectXYZ EdgeObservationBAL EdgePointXY EdgePointXYZ EdgeProjectP2MC
EdgeProjectP2SC EdgeProjectPSI2UV EdgeProjectXYZ2UV EdgeProjectXYZ2UVU EdgeSBACam EdgeSBAScale
EdgeSE2 EdgeSE2LotsOfXY EdgeSE2OdomDifferentialCalib EdgeSE2Offset EdgeSE2PointXY
EdgeSE2PointXYBearing EdgeSE2PointXYCalib EdgeSE2PointXYOffset EdgeSE2Prior EdgeSE2SensorCalib
EdgeSE2TwoPointsXY EdgeSE2XYPrior EdgeSE3 EdgeSE3Expmap EdgeSE3LotsOfXYZ EdgeSE3Offset
EdgeSE3PointXYZ EdgeSE3PointXYZDepth EdgeSE3PointXYZDisparity EdgeSE3Prior EdgeSE3ProjectXYZ
EdgeSE3ProjectXYZOnlyPose EdgeSE3XYZ EdgeSE3XYZPrior EdgeSim3 EdgeSim3ProjectXYZ
EdgeStereoSE3ProjectXYZ EdgeStereoSE3ProjectXYZOnlyPose EdgeVVGicp EdgeXYPrior EdgeXYZPrior
EdgeXyzVsc
"""
"""Those of the bindings; stubs with all members are written by tools/g2o_stubs.py."""
_made = {edge_class.__name__: edge_class for edge_class in EDGE_CLASSES.values()}
globals().update({name: _made[name] for name in _EDGES.split()}, **LINEAR_SOLVERS, **BLOCK_SOLVERS)

# names of other bindings
EdgeSE2XY = _made["EdgeSE2PointXY"]
Edge_V_V_GICP = _made["EdgeVVGicp"]
Edge_XYZ_VSC = _made["EdgeXyzVsc"]
VertexSBAPointXYZ = VertexPointXYZ

_TABLES = ("annotations", "EDGE_CLASSES", "LINEAR_SOLVERS", "BLOCK_SOLVERS")
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    name for name in globals() if not name.startswith("_") and name not in _TABLES
]
