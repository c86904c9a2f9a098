"""A run in metres of which only one camera delivers: it goes on with that one, until the others come.

A stereo or RGB-D map begins with a frame that shows metres. Where none comes for `ALONE_AFTER`, the run goes
on as one of the camera that gave most images. As soon as a frame shows metres a map in metres begins, in
which the frames before it are followed back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from slam_bridge.pipeline.inputs import Frame, Sensors
from slam_bridge.pipeline.options import PipelineOptions

ALONE_AFTER = 2_000_000_000
"""[ns] without a frame that shows metres."""
_HELD = 100
"""Frames that are held."""


class OneCamera:
    """The frames before the first that shows metres."""

    def __init__(self, sensors: Sensors, options: PipelineOptions):
        self.given = sensors, options
        self.frames: deque[Frame] = deque(maxlen=_HELD)
        self.camera: int | None = None
        """With which the run goes on alone; None: not yet."""

    @property
    def is_due(self) -> bool:
        """The run has waited long enough."""
        return self.camera is None and self.frames[-1].stamp - self.frames[0].stamp >= ALONE_AFTER

    def choose(self) -> PipelineOptions:
        """Take the camera with most images; the options of the run with it."""
        self.camera = int(np.argmax(np.bincount([frame.cameras[0] for frame in self.frames])))
        options = self.given[1]
        return replace(options, mode=options.mode.replace("stereo", "mono").replace("rgbd", "mono"))

    def sentence(self) -> str:
        """What is missing, and what follows."""
        rig, options = self.given[0].rig, self.given[1]
        start, end = (1e-9 * self.frames[k].stamp for k in (0, -1))
        seen = {frame.cameras[0] for frame in self.frames}
        gone = [str(camera) for camera in range(len(rig)) if camera not in seen]
        if options.has_depth:
            what = "no depth image came"
        elif len(seen) > 1:
            what = "no two cameras gave images of one moment"
        else:
            what = f"camera{'s' * (len(gone) > 1)} {', '.join(gone)} gave no image"
        follows = "" if options.is_inertial else "; lengths have no unit then, and poses are the camera's"
        return (
            f"{what} from {start:.3f} s to {end:.3f} s: the run goes on with camera {self.camera} "
            f"alone{follows}."
        )

    def seen_by(self, frame: Frame) -> Frame | None:
        """A frame as the one camera has it; None: it has no image then."""
        if self.camera not in frame.cameras:
            return None
        place = frame.cameras.index(self.camera)
        stamp = frame.stamp + frame.lags[place]
        return replace(frame, stamp=stamp, images=[frame.images[place]], cameras=(0,), lags=(0,))
