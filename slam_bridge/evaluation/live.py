"""What a page shows of a run that goes on: the trajectory so far, the map, the present image."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphopt.evaluate.report import trajectory_document
from graphopt.evaluate.report.live import LiveView
from graphopt.geometry import SO3
from slam_bridge.pipeline.slam import Slam
from slam_bridge.readers.sequence import opencv

_PAUSE = 0.4
"""[s] between two states."""
_MOST_POSES, _MOST_POINTS = 2000, 20000


class Watch:
    """For `run(watch=...)`: makes a state after a frame where a page is open and the last one is old."""

    def __init__(self, view: LiveView, title: str):
        self._view, self._title, self._last = view, title, -np.inf

    def __call__(self, number: int, pipeline: Slam) -> None:
        """Frame `number` of the run is done."""
        now = time.monotonic()
        if self._view.is_watched and now - self._last > _PAUSE:
            self._last = now
            self._view.show(state(pipeline, number, self._title))


@contextmanager
def watching(port: int | None, title: str) -> Iterator[Watch | None]:
    """What watches a run: the page at a port of this machine, for None nobody."""
    if port is None:
        yield None
        return
    with LiveView(port) as view:
        yield Watch(view, title)


def state(pipeline: Slam, number: int, title: str) -> dict[str, Any]:
    """The document of a page after frame `number`."""
    stamps, poses = pipeline.log.poses(pipeline.world)
    rows = np.unique(np.linspace(0, max(len(stamps) - 1, 0), min(_MOST_POSES, len(stamps))).astype(int))
    with pipeline.world.lock:
        points = pipeline.world.landmarks["position"].copy()
    points = points[:: max(1, len(points) // _MOST_POINTS)]
    camera = SO3(np.tile(pipeline.sensors.rig[0].body_T_cam[3:], (len(rows), 1)))
    curve = {
        "estimate": poses[rows, :3],
        "truth": [],
        "error_m": np.zeros(len(rows)),
        "times_s": 1e-9 * (stamps[rows] - stamps[:1]),
        "world_R_cam": np.asarray((SO3(poses[rows, 3:]) * camera).storage),
    }
    expected = "" if pipeline.num_expected is None else f" of {pipeline.num_expected}"
    status = f"frame {number + 1}{expected}: {pipeline.tracker.status.value}"
    return {
        **trajectory_document({title: curve}, title, points, middle=np.zeros(3)),
        "is_live": True,
        "state": status,
        "image": _picture(pipeline.tracker.image, pipeline.tracker.tracks.pixel),
    }


def _picture(image: np.ndarray, pixel: np.ndarray) -> str:
    """The left image with its tracks, as a data URL."""
    cv2 = opencv()
    drawn = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    for x, y in pixel.astype(int).tolist():
        cv2.circle(drawn, (x, y), 3, (80, 200, 80), 1)
    width = min(480, drawn.shape[1])
    small = cv2.resize(drawn, (width, round(drawn.shape[0] * width / drawn.shape[1])))
    return "data:image/jpeg;base64," + base64.b64encode(cv2.imencode(".jpg", small)[1].tobytes()).decode()
