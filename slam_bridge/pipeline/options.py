"""Options of the pipeline, with where each number comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from graphopt.errors import OptionError
from graphopt.option_names import SEQUENCE_MODES
from slam_bridge.options import SolveOptions


@dataclass(frozen=True)
class PipelineOptions:
    """What the pipeline does, and from which numbers on. Lengths of time in seconds, of images in pixels."""

    mode: str = "stereo-inertial"
    """One of `SEQUENCE_MODES`."""
    single_thread: bool = False
    """Mapping runs after each keyframe instead of beside tracking: the same answer every time."""
    solve: SolveOptions = field(default_factory=lambda: SolveOptions(iterations=5, rounds=2))
    """Device and configuration of the bundle adjustments. Iterations: 5 + 5 in ORB-SLAM3's local BA."""
    max_features: int = 300
    """One per cell of a grid with so many cells. VINS-Fusion tracks 150 to 200, Basalt about 300."""
    quality: float = 0.01
    """A corner has at least this fraction of the strongest one's smaller eigenvalue (Shi and Tomasi)."""
    window: int = 21
    """Side of the patch that is tracked, as VINS-Fusion."""
    levels: int = 4
    """Of the image pyramid beside the image itself: patches reach window / 2 * 2^levels."""
    back_tolerance: float = 0.5
    """Tracking a point there and back may end this far from the start, as VINS-Fusion."""
    sigma: float = 0.5
    """Standard deviation of a tracked pixel: followed patches leave 0.2 to 0.4, and a track that drifts by
    more has to count as wrong."""
    detected_sigma: float = 1.0
    """... of a corner that was found in two images on its own, when places are recognised; as ORB-SLAM3."""
    min_parallax: float = 4.0
    """A landmark is made once the rays' angle is so many times their own error (sigma / focal length): its
    depth is then known to a third. ORB-SLAM3 asks for 1.1 degrees, about 9 times."""
    keyframe_parallax: float = 20.0
    """New keyframe where the mean track moved so far since the last, turns taken out, at a focal length of
    460 px; half of it in VINS-Mono, whose frames are not refined by a map."""
    keyframe_ratio: float = 0.7
    """New keyframe where fewer than this fraction of the last one's landmarks are tracked; ORB-SLAM3: 0.75
    with depth, 0.9 without."""
    keyframe_seconds: float = 0.5
    """New keyframe at the latest after this time, with an IMU: ORB-SLAM3."""
    start_seconds: float = 0.25
    """The same before the IMU is initialized: ORB-SLAM3."""
    keyframe_features: int = 60
    """New keyframe where fewer landmarks than this are tracked."""
    min_inliers: int = 12
    """A pose from fewer landmarks is not believed. ORB-SLAM3: 15 with an IMU, else 30 of 1000 features."""
    local_keyframes: int = 8
    """Free keyframes of a local bundle adjustment; the window of VINS-Mono and Basalt has 7 to 10."""
    local_fixed: int = 8
    """Held keyframes that see the same landmarks, at most."""
    inertial_keyframes: int = 8
    """The IMU is initialized from at least so many keyframes (ORB-SLAM3: 10)."""
    inertial_seconds: float = 1.5
    """... over at least this time; ORB-SLAM3: 1 s with stereo, 2 s without."""
    max_scale_deviation: float = 0.05
    """Of lengths, one standard deviation: a run with one camera and an IMU that knows them less well at its
    end is refused. At the initialization 0.1 is enough."""
    refine_seconds: tuple[float, ...] = (5.0, 15.0)
    """After the initialization everything is optimized again at these times: ORB-SLAM3."""
    lost_seconds: float = 5.0
    """An IMU bridges so long without landmarks, as in ORB-SLAM3; after it a new map begins, without an IMU at
    once. Each frame of that is looked up in the earlier one for as long."""
    loops: bool = True
    """Look for places seen before."""
    loop_gap: float = 10.0
    """A keyframe closes a loop with one that is at least this much older."""
    loop_inliers: int = 25
    """Landmarks that must agree with a loop; VINS-Fusion: 25."""
    final_ba: bool = True
    """Optimize everything at the end."""
    max_queue: int = 3
    """While so many keyframes wait for the mapping thread (ORB-SLAM3: 3), tracking waits for it if frames
    wait anyway, as those of a file. Of a live source it makes only keyframes without which it would run out
    of landmarks, and waits beyond four times as many."""
    when_busy: str = "wait"
    """What `Slam.add_images` does while `max_frames` wait: "wait" for tracking, or "drop" the oldest of
    them."""
    max_frames: int = 4
    """Frames that may wait for tracking."""
    imu_wait: float = 0.2
    """A frame waits for its IMU samples until frames so much later are there."""
    localization: bool = False
    """Only find poses in the map that was given, which stays as it is; memory does not grow with time."""
    equalize: bool = False
    """Even out the contrast of images (CLAHE), as ORB-SLAM3 does with TUM-VI's."""
    widest: float = float(np.deg2rad(80.0))
    """Rays further from a camera's axis than this are not used [rad]: vignetting."""
    depth_scale: float = 1e-3
    """Metres per unit of a depth image of whole numbers; TUM RGB-D: 1 / 5000."""
    max_depth: float = 8.0
    """Depths beyond are not used [m]; structured light and time of flight measure to 4 to 10 m."""

    def __post_init__(self) -> None:
        if self.mode not in SEQUENCE_MODES:
            raise OptionError(
                f"PipelineOptions.mode is {self.mode!r}, expected one of {', '.join(SEQUENCE_MODES)}."
            )
        if self.when_busy not in ("wait", "drop"):
            raise OptionError(f"PipelineOptions.when_busy is {self.when_busy!r}, expected 'wait' or 'drop'.")
        for option in fields(self):
            least = {"int": 1, "float": 0.0}.get(str(option.type))
            value = getattr(self, option.name)
            if least is not None and not (value >= least and value > 0.0):
                rule = "at least 1" if least else "> 0"
                raise OptionError(f"PipelineOptions.{option.name} is {value}, must be {rule}.")
        if sorted(self.refine_seconds) != list(self.refine_seconds):
            raise OptionError(f"PipelineOptions.refine_seconds is {self.refine_seconds}, must ascend.")

    @property
    def is_inertial(self) -> bool:
        """An IMU takes part."""
        return self.mode.endswith("inertial")

    @property
    def is_stereo(self) -> bool:
        """Two cameras or more take part."""
        return self.mode.startswith("stereo")

    @property
    def has_depth(self) -> bool:
        """A depth image belongs to each frame."""
        return self.mode.startswith("rgbd")

    @property
    def is_metric(self) -> bool:
        """The images alone show metres."""
        return self.is_stereo or self.has_depth
