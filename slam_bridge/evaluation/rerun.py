"""A run in the rerun viewer, or in a recording that it opens: `--live rerun`, `--live FILE.rrd`.

    world/trajectory    the poses so far           world/points    the map
    world/camera        the present pose, with the image and its tracks below it

Needs rerun (`pip install rerun-sdk`, 0.23 and later). The viewer runs on this machine.
"""

from __future__ import annotations

from types import TracebackType

import numpy as np

from graphopt.errors import OptionError
from graphopt.evaluate import optional
from slam_bridge.pipeline.slam import Slam
from slam_bridge.pipeline.two_view import camera_pose

VIEWER = "rerun"
_EVERY = 5
"""Frames between two states of trajectory and map; the image comes with each frame."""


class RerunView:
    """For `run(watch=...)`: logs a run to the viewer, or to a file; closed at the end of its `with`."""

    def __init__(self, target: str, title: str):
        """target: "rerun" for the viewer, else the recording's file. Raises `OptionError` without rerun."""
        self._rr = optional.load("rerun", "rerun-sdk")
        self._stream = self._rr.RecordingStream(title)
        try:
            self._stream.spawn() if target == VIEWER else self._stream.save(target)
        except (OSError, RuntimeError) as error:
            raise OptionError(f"--live {target}: {error}") from error

    def __call__(self, number: int, pipeline: Slam) -> None:
        """Frame `number` of the run is done."""
        tracker, camera = pipeline.tracker, pipeline.sensors.rig[0]
        stream, rr = self._stream, self._rr
        stream.set_time("sequence", duration=pipeline.seconds)
        stream.log("status", rr.TextLog(tracker.status.value))
        stream.log("world/camera/image", rr.Image(tracker.image, color_model="L").compress())
        stream.log("world/camera/image/tracks", rr.Points2D(tracker.tracks.pixel, radii=2.0))
        if number % _EVERY or not tracker.has_pose:
            return
        _, poses = pipeline.log.poses(pipeline.world)
        with pipeline.world.lock:
            points = pipeline.world.landmarks["position"].copy()
        stream.log("world/points", rr.Points3D(points))
        stream.log("world/trajectory", rr.LineStrips3D([poses[:, :3]]))
        world_T_cam = np.asarray(camera_pose(poses[-1], camera).storage)
        stream.log("world/camera", rr.Transform3D(translation=world_T_cam[:3], quaternion=world_T_cam[3:]))
        height, width = tracker.image.shape
        focal, centre = camera.intrinsics[:2], camera.intrinsics[2:4]
        stream.log(
            "world/camera/image",
            rr.Pinhole(width=width, height=height, focal_length=focal, principal_point=centre),
        )

    def __enter__(self) -> RerunView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()
        self._stream.disconnect()
