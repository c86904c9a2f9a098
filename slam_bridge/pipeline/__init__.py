"""A small visual-inertial SLAM on top of `slam_bridge`: images, IMU and calibration in, a trajectory out.

    features       corners, KLT, ORB                      two_view   geometry on rays
    tracking       where each frame is                    keyframes  landmarks by stereo and by motion
    mapping        bundle adjustment, culling, IMU        places, loops  places seen before
    trajectory     poses of all frames                    system     all of it: `run`

Folders of EuRoC, TUM-VI and KITTI are read by `slam_bridge.readers`; `slam_bridge.evaluation` measures.

It is the subject of `graphopt eval euroc|tumvi|kitti`, and meant to be read. Needs OpenCV (extra `slam`).
"""

from graphopt.option_names import SEQUENCE_MODES as MODES
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.system import Pipeline, PipelineResult, run
from slam_bridge.readers.sequence import Sequence, SequenceError
from slam_bridge.readers.sequences import find_sequences, open_sequence

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
