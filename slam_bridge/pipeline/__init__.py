"""A small visual-inertial SLAM on top of `slam_bridge`: images, IMU and calibration in, a trajectory out.

    sequences      folders of EuRoC, TUM-VI, KITTI        features   corners, KLT, ORB
    two_view       geometry on rays                       keyframes  landmarks by stereo and by motion
    tracking       where each frame is                    mapping    bundle adjustment, culling, IMU
    places, loops  places seen before                     system     all of it: `run`
    evaluate       one entry of `graphopt eval`

It is the subject of `graphopt eval euroc|tumvi|kitti`, and meant to be read. Needs OpenCV (extra `slam`).
"""

from slam_bridge.pipeline.options import MODES, PipelineOptions
from slam_bridge.pipeline.sequences import Sequence, SequenceError, find_sequences, open_sequence
from slam_bridge.pipeline.system import Pipeline, PipelineResult, run

__all__ = [
    "MODES",
    "Pipeline",
    "PipelineOptions",
    "PipelineResult",
    "Sequence",
    "SequenceError",
    "find_sequences",
    "open_sequence",
    "run",
]
