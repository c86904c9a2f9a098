"""`Simulator2D` and `Simulator3D`: a robot in a world of landmarks, and the graph of its measurements.

The robot goes through a square (cube) of `world_size` [m] around the origin in steps of about 1 m, turns at
random, and turns back at the border. Poses get ids after the landmarks; the first pose is fixed;
measurements have the standard deviations of g2o's simulator. The estimates are the truth moved by what the
odometry accumulates. Random numbers come from numpy: a seed gives another world than in g2o.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from graphopt.g2o.elements.edge_types import EDGE_CLASSES
from graphopt.g2o.elements.parameters import ParameterCamera, ParameterSE3Offset
from graphopt.g2o.elements.vertex_types import VertexPointXY, VertexPointXYZ, VertexSE2, VertexSE3
from graphopt.g2o.optimizable_graph import OptimizableGraph
from graphopt.g2o.values.isometries import Isometry3d
from graphopt.g2o.values.rotations import AngleAxis
from graphopt.g2o.values.se2 import SE2

_EDGES = {edge_class.__name__: edge_class for edge_class in EDGE_CLASSES.values()}
_RANGE = 5.0  # of the landmark sensors [m]
_FIELD = np.pi / 2  # half angle of view of the landmark sensors [rad]


class SimulatorConfig:
    """What there is in the world and on the robot."""

    def __init__(self) -> None:
        self.world_size = 25.0
        self.nlandmarks = 0
        self.sim_steps = 100
        self.has_odom = False
        self.has_pose_sensor = False
        self.has_point_sensor = False
        self.has_compass = False
        self.has_gps = False


class Simulator2DConfig(SimulatorConfig):
    """The world of a planar robot. Segments are not simulated: `setup` warns of `has_segment_sensor`."""

    def __init__(self) -> None:
        super().__init__()
        self.has_point_bearing_sensor = False
        self.has_segment_sensor = False
        self.nsegments = 0
        self.segment_grid_size = 50
        self.min_segment_length, self.max_segment_length = 0.5, 3.0


class Simulator3DConfig(SimulatorConfig):
    """The world of a robot in space."""

    def __init__(self) -> None:
        super().__init__()
        self.has_point_depth_sensor = False
        self.has_point_disparity_sensor = False


class World:
    """Holds the graph."""

    def __init__(self, graph: OptimizableGraph) -> None:
        self._graph = graph

    def graph(self) -> OptimizableGraph:
        """The graph."""
        return self._graph


class Simulator:
    """Common part of both simulators: `setup()`, then `simulate()`, then `graph()`."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self._graph = OptimizableGraph()
        self._random = np.random.default_rng(0)

    def seed(self, seed: int) -> None:
        """Seed of the random numbers."""
        self._random = np.random.default_rng(seed)

    def graph(self) -> OptimizableGraph:
        """The graph of the simulation."""
        return self._graph

    def world(self) -> World:
        """The world."""
        return World(self._graph)

    def _noise(self, information: np.ndarray) -> np.ndarray:
        return self._random.normal(size=len(information)) / np.sqrt(information)

    def _edge(
        self,
        name: str,
        vertices: list[Any],
        measurement: Any,
        information: np.ndarray,
        parameter: int | None = None,
    ) -> None:
        edge = _EDGES[name]()
        for i, vertex in enumerate(vertices):
            edge.set_vertex(i, vertex)
        edge.set_measurement(measurement)
        edge.set_information(np.diag(information))
        if parameter is not None:
            edge.set_parameter_id(0, parameter)
        self._graph.add_edge(edge)

    def setup(self) -> None:
        """Create the landmarks."""
        if getattr(self.config, "has_segment_sensor", False):
            warnings.warn("The simulator has no segments: has_segment_sensor adds nothing.", stacklevel=2)
        self._graph.clear()
        half = 0.5 * self.config.world_size
        self._landmarks = self._random.uniform(-half, half, (self.config.nlandmarks, self._dim))
        self._seen: dict[int, Any] = {}
        self._setup_parameters()

    _dim: int

    def _setup_parameters(self) -> None:
        """Parameters that the sensors need."""

    def _landmark(self, number: int, guess: np.ndarray) -> Any:
        """The vertex of a landmark, added at its first sight."""
        if number not in self._seen:
            vertex = (VertexPointXY if self._dim == 2 else VertexPointXYZ)()
            vertex.set_id(number)
            vertex.set_estimate(guess)
            self._graph.add_vertex(vertex)
            self._seen[number] = vertex
        return self._seen[number]

    def simulate(self) -> None:
        """Move the robot and sense."""
        truth, estimate = self._origin(), self._origin()
        previous = None
        poses: list[tuple[Any, Any]] = []
        for step in range(self.config.sim_steps + 1):
            if step:
                motion = self._motion(truth)
                truth = truth * motion
                measured = motion * self._perturbation(self._odometry_information)
                estimate = estimate * measured
            vertex = self._pose_vertex(self.config.nlandmarks + step, estimate, fixed=step == 0)
            if step and self.config.has_odom:
                self._edge(f"Edge{self._group}", [previous, vertex], measured, self._odometry_information)
            self._sense_pose(vertex, truth, step)
            if self.config.has_pose_sensor:
                self._sense_poses(vertex, truth, poses)
            self._sense_landmarks(vertex, truth, estimate)
            poses.append((vertex, truth))
            previous = vertex

    # filled in by the two simulators
    _group: str
    _odometry_information: np.ndarray
    _pose_information: np.ndarray

    def _origin(self) -> Any: ...
    def _motion(self, truth: Any) -> Any: ...
    def _perturbation(self, information: np.ndarray) -> Any: ...
    def _sense_pose(self, vertex: Any, truth: Any, step: int) -> None: ...
    def _sense_landmarks(self, vertex: Any, truth: Any, estimate: Any) -> None: ...

    def _sense_poses(self, vertex: Any, truth: Any, poses: list[tuple[Any, Any]]) -> None:
        """Relative poses of earlier poses within 2 m, but the last."""
        for other, other_truth in poses[:-1]:
            relative = other_truth.inverse() * truth
            if float(np.linalg.norm(relative.translation())) < 2.0:
                measured = relative * self._perturbation(self._pose_information)
                self._edge(f"Edge{self._group}", [other, vertex], measured, self._pose_information)

    def _pose_vertex(self, id: int, estimate: Any, fixed: bool) -> Any:
        vertex = (VertexSE2 if self._dim == 2 else VertexSE3)()
        vertex.set_id(id)
        vertex.set_estimate(estimate)
        vertex.set_fixed(fixed)
        self._graph.add_vertex(vertex)
        return vertex

    def _visible(self, truth: Any) -> list[tuple[int, np.ndarray]]:
        """(number, position in the robot's frame) of landmarks in the field of view."""
        inverse = truth.inverse()
        visible = []
        for number, position in enumerate(self._landmarks):
            local = inverse * position
            if np.linalg.norm(local) < _RANGE and abs(np.arctan2(local[1], local[0])) < _FIELD:
                visible.append((number, local))
        return visible


class Simulator2D(Simulator):
    """A planar robot with odometry, pose, point, bearing, GPS and compass sensors."""

    _dim = 2
    _group = "SE2"
    _odometry_information = np.array([500.0, 500.0, 5000.0])
    _pose_information = np.array([500.0, 500.0, 5000.0])

    def __init__(self, config: Simulator2DConfig | None = None) -> None:
        super().__init__(Simulator2DConfig() if config is None else config)

    def _origin(self) -> SE2:
        return SE2()

    def _motion(self, truth: SE2) -> SE2:
        turn = float(self._random.choice([0.0, 0.0, np.pi / 2, -np.pi / 2]))
        moved = truth * SE2(1.0, 0.0, turn)
        if np.abs(moved.translation()).max() > 0.5 * self.config.world_size:
            return SE2(0.0, 0.0, np.pi / 2)
        return SE2(1.0, 0.0, turn)

    def _perturbation(self, information: np.ndarray) -> SE2:
        return SE2(*self._noise(information))

    def _sense_pose(self, vertex: Any, truth: SE2, step: int) -> None:
        if step and self.config.has_gps:
            information = np.array([100.0, 100.0, 1000.0])
            self._edge("EdgeSE2Prior", [vertex], truth * self._perturbation(information), information)

    def _sense_landmarks(self, vertex: Any, truth: SE2, estimate: SE2) -> None:
        for number, local in self._visible(truth):
            information = np.array([1000.0, 1000.0])
            measured = local + self._noise(information)
            if self.config.has_point_sensor or self.config.has_point_bearing_sensor:
                landmark = self._landmark(number, estimate * measured)
            if self.config.has_point_sensor:
                self._edge("EdgeSE2PointXY", [vertex, landmark], measured, information)
            if self.config.has_point_bearing_sensor:
                precision = np.array([1000.0 * 180.0 / np.pi])
                bearing = float(np.arctan2(local[1], local[0]) + self._noise(precision)[0])
                self._edge("EdgeSE2PointXYBearing", [vertex, landmark], bearing, precision)


class Simulator3D(Simulator):
    """A robot in space with odometry, pose, point, depth, disparity and GPS sensors."""

    _dim = 3
    _group = "SE3"
    _odometry_information = np.array([100.0, 100.0, 100.0, 1e4, 1e4, 1e4])
    _pose_information = _odometry_information

    def __init__(self, config: Simulator3DConfig | None = None) -> None:
        super().__init__(Simulator3DConfig() if config is None else config)

    def _setup_parameters(self) -> None:
        offset = ParameterSE3Offset()
        offset.set_id(0)
        self._graph.add_parameter(offset)
        camera = ParameterCamera()
        camera.set_id(1)
        # the camera looks along the robot's x axis
        camera.set_offset(
            Isometry3d(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]), np.zeros((3, 1)))
        )
        camera.set_kcam(500.0, 500.0, 320.0, 240.0)
        self._graph.add_parameter(camera)

    def _origin(self) -> Isometry3d:
        return Isometry3d()

    def _motion(self, truth: Isometry3d) -> Isometry3d:
        forward = np.array([[1.0], [0.0], [0.0]])
        if np.abs(truth * forward[:, 0]).max() > 0.5 * self.config.world_size:
            return Isometry3d(AngleAxis(np.pi / 2, [0.0, 0.0, 1.0]).matrix(), np.zeros((3, 1)))
        axis = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]][int(self._random.integers(2))]
        turn = float(self._random.choice([0.0, 0.0, np.pi / 4, -np.pi / 4]))
        return Isometry3d(AngleAxis(turn, axis).matrix(), forward)

    def _perturbation(self, information: np.ndarray) -> Isometry3d:
        delta = self._noise(information)
        storage = VertexSE3._type.oplus(np.array(VertexSE3._type.identity), delta)
        return Isometry3d._from_storage(storage.tolist())

    def _sense_pose(self, vertex: Any, truth: Isometry3d, step: int) -> None:
        if step and self.config.has_gps:
            information = np.array([1000.0, 1000.0, 10.0, 1000.0, 1000.0, 1000.0])
            self._edge("EdgeSE3Prior", [vertex], truth * self._perturbation(information), information, 0)

    def _sense_landmarks(self, vertex: Any, truth: Isometry3d, estimate: Isometry3d) -> None:
        config = self.config
        if not (
            config.has_point_sensor or config.has_point_depth_sensor or config.has_point_disparity_sensor
        ):
            return
        for number, local in self._visible(truth):
            information = np.array([1000.0, 1000.0, 10.0])
            measured = local + self._noise(information)
            landmark = self._landmark(number, estimate * measured)
            if config.has_point_sensor:
                self._edge("EdgeSE3PointXYZ", [vertex, landmark], measured, information, 0)
            # in the camera's frame: right, down, forward
            camera = np.array([-local[1], -local[2], local[0]])
            if camera[2] < 0.5 or (np.abs(500.0 * camera[:2]) > camera[2] * np.array([320.0, 240.0])).any():
                continue
            pixel = 500.0 * camera[:2] / camera[2] + [320.0, 240.0]
            if config.has_point_depth_sensor:
                precision = np.array([1.0, 1.0, 1.0])
                depth = np.array([*pixel, camera[2]]) + self._noise(precision)
                self._edge("EdgeSE3PointXYZDepth", [vertex, landmark], depth, precision, 1)
            if config.has_point_disparity_sensor:
                precision = np.array([1000.0, 1000.0, 1000.0])
                disparity = np.array([*pixel, 1.0 / camera[2]]) + self._noise(precision)
                self._edge("EdgeSE3PointXYZDisparity", [vertex, landmark], disparity, precision, 1)
