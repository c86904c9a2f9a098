"""Visual-inertial sequences and problems with known truth: trajectories, scenes, images, tracks, IMU."""

from slam_bridge.generator.characters import CHARACTERS, Character, character
from slam_bridge.generator.images import ImageMaker, ImageOptions
from slam_bridge.generator.imu import SimulatedImu, perfect_imu, simulate_imu
from slam_bridge.generator.motions import built_in
from slam_bridge.generator.problem import ProblemOptions, generate_problem
from slam_bridge.generator.render import Renderer, View
from slam_bridge.generator.scene import Box, Face, Scene, scene_around
from slam_bridge.generator.sensors import Sensors, sensors
from slam_bridge.generator.sequence import SequenceOptions, generate_sequence, plan_sequence, trajectory_like
from slam_bridge.generator.texture import Texture, fallen_leaves
from slam_bridge.generator.trajectory import Motion, Trajectory, TrajectoryError
from slam_bridge.generator.truth import find_truth, read_truth

__all__ = [
    "CHARACTERS",
    "Box",
    "Character",
    "Face",
    "ImageMaker",
    "ImageOptions",
    "Motion",
    "ProblemOptions",
    "Renderer",
    "Scene",
    "Sensors",
    "SequenceOptions",
    "SimulatedImu",
    "Texture",
    "Trajectory",
    "TrajectoryError",
    "View",
    "built_in",
    "character",
    "fallen_leaves",
    "find_truth",
    "generate_problem",
    "generate_sequence",
    "perfect_imu",
    "plan_sequence",
    "read_truth",
    "scene_around",
    "sensors",
    "simulate_imu",
    "trajectory_like",
]
