"""Where samples and images come from: folders, bags, video files, webcams; each feeds a `Slam`.

    source = open_source("run.bag", calibration="camchain.yaml")
    result = run(source, PipelineOptions(mode="stereo-inertial"))

What a source gives stands in `readers.events`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphopt.errors import OptionError
from slam_bridge.readers.calibration import Calibration, read_calibration
from slam_bridge.readers.events import ImageEvent, ImuEvent, Pairing, Source
from slam_bridge.readers.folders import FolderSource, folder_kind
from slam_bridge.readers.rosbag import BagSource
from slam_bridge.readers.sequence import SequenceError
from slam_bridge.readers.video import VideoSource, WebcamSource

__all__ = ["ImageEvent", "ImuEvent", "Pairing", "Source", "open_source"]

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")
BAGS = (".bag", ".db3", ".mcap")


def open_source(
    place: str | Path,
    calibration: str | Path | None = None,
    imu: str | Path | None = None,
    topics: dict[str, Any] | None = None,
    start: int = 0,
) -> Source:
    """The source that a path is.

    A folder of EuRoC, TUM-VI, KITTI or TUM RGB-D, a bag, a video, or the number of a webcam ("0").
    calibration: a file of Kalibr, OpenVINS, ORB-SLAM3, where the source has none. imu: EuRoC's data.csv, for
    a video. topics: of a bag, see `BagSource`. start [ns]: of a video's first frame in the IMU's time. Raises
    `SequenceError` for what is none of these.
    """
    known = None if calibration is None else read_calibration(calibration)
    path = Path(place)
    if str(place).isdigit() and not path.exists():
        return WebcamSource(int(str(place)), _needed(known, "a webcam"))
    if not path.exists():
        raise SequenceError(f"{path}: no such file or folder.")
    if path.suffix.lower() in BAGS or (path.is_dir() and (path / "metadata.yaml").is_file()):
        return BagSource(path, _needed(known, f"the bag {path}"), **(topics or {}))
    if topics:
        raise OptionError(f"{path}: topics are of bags, this is none.")
    if path.suffix.lower() in VIDEOS:
        return VideoSource(path, _needed(known, f"the video {path}"), imu, start)
    if path.is_dir() and (kind := folder_kind(path)):
        return FolderSource(kind, path, calibration)
    raise SequenceError(
        f"{path}: no source of images. Known are folders of EuRoC, TUM-VI, KITTI and TUM RGB-D, ROS bags "
        f"({', '.join(BAGS)}, or a folder with metadata.yaml), videos ({', '.join(VIDEOS)}), and numbers "
        f"of webcams."
    )


def _needed(calibration: Calibration | None, what: str) -> Calibration:
    if calibration is None or calibration.rig is None:
        raise SequenceError(f"{what} has no calibration of its cameras: name a file with --calibration.")
    return calibration
