"""A small visual-inertial SLAM on top of `slam_bridge`: images, IMU and calibration in, poses and a map out.

    features       corners, KLT, ORB                      two_view   geometry on rays
    tracking       where each frame is                    keyframes  landmarks by stereo, depth and motion
    mapping        bundle adjustment, culling, IMU        places, loops  places seen before
    trajectory     poses of all frames                    session    one map: all of these
    slam           `Slam`: fed while it runs              system     `run`: a sequence through it
    inputs         what comes in, checked                 result     what comes out

Folders of EuRoC, TUM-VI and KITTI are read by `slam_bridge.readers`; `slam_bridge.evaluation` measures.

It is the subject of `graphopt eval euroc|tumvi|kitti` and `graphopt slam`. Needs OpenCV (extra `slam`).
"""

from graphopt.option_names import SEQUENCE_MODES as MODES
from slam_bridge.pipeline.latency import Latency
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.result import PipelineResult, SlamState
from slam_bridge.pipeline.slam import Slam
from slam_bridge.pipeline.sources import Source, open_source
from slam_bridge.pipeline.system import run
from slam_bridge.pipeline.tracking import Status
from slam_bridge.readers.sequence import Sequence, SequenceError
from slam_bridge.readers.sequences import find_sequences, open_sequence

__all__ = [
    "MODES",
    "Latency",
    "PipelineOptions",
    "PipelineResult",
    "Sequence",
    "SequenceError",
    "Slam",
    "SlamState",
    "Source",
    "Status",
    "find_sequences",
    "open_sequence",
    "open_source",
    "run",
]
