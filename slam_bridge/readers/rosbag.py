"""Bags of ROS 1 and 2 as sources of images and IMU samples. Needs rosbags (extra `ros`), not ROS.

    sensor_msgs/Image, CompressedImage    cameras, depth images (16UC1 in millimetres, 32FC1 in metres)
    sensor_msgs/Imu                       the IMU

Topics that are not named are guessed: the IMU's with most messages; cameras in the order of their names,
those with "depth" in them, or of depth's encodings, as depth. `notes` says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.events import ImageEvent, ImuEvent, LeftOut, Pairing
from slam_bridge.readers.sequence import SequenceError, opencv

if TYPE_CHECKING:
    from slam_bridge.pipeline.options import PipelineOptions
_IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
_IMU = "sensor_msgs/msg/Imu"
_CHANNELS = {
    "mono8": (np.uint8, 1), "8uc1": (np.uint8, 1), "mono16": (np.uint16, 1), "16uc1": (np.uint16, 1),
    "32fc1": (np.float32, 1), "bgr8": (np.uint8, 3), "rgb8": (np.uint8, 3), "8uc3": (np.uint8, 3),
    "bgra8": (np.uint8, 4), "rgba8": (np.uint8, 4),
}  # fmt: skip
"""Encodings of sensor_msgs/Image: type and number of channels."""
_SAME_MOMENT = 20_000_000
"""[ns] between an image and the depth image that belongs to it, at most."""


class BagSource:
    """Images and samples of one bag."""

    is_live = False
    truth: StateTable | None = None

    def __init__(
        self,
        path: str | Path,
        calibration: Calibration,
        images: list[str] | None = None,
        imu: str | None = None,
        depth: str | None = None,
    ):
        """images: topics of the cameras, as the calibration has them; imu, depth: topics. None: guessed."""
        self.name, self.calibration = Path(path).name, calibration
        self._path = Path(path)
        with self._open() as reader:
            topics = {connection.topic: connection for connection in reader.connections}
            counts = {connection.topic: connection.msgcount for connection in reader.connections}
        of = {
            kind: sorted(name for name, one in topics.items() if one.msgtype == kind)
            for kind in (*_IMAGES, _IMU)
        }
        for wanted in (*(images or ()), *((imu,) if imu else ()), *((depth,) if depth else ())):
            if wanted not in topics:
                listed = ", ".join(f"{name} ({one.msgtype})" for name, one in sorted(topics.items()))
                raise SequenceError(f"{path}: no topic {wanted}. There are: {listed or 'none'}.")
        pictures = [*of[_IMAGES[0]], *(name for name in of[_IMAGES[1]] if _raw(name) not in of[_IMAGES[0]])]
        deep = [name for name in pictures if "depth" in name.lower()]
        self.depth = depth or (deep[0] if deep else None)
        plain = [name for name in pictures if name not in deep and name != self.depth]
        assert calibration.rig is not None
        self.images = images or plain[: len(calibration.rig)]
        if not self.images:
            raise SequenceError(
                f"{path}: no topic of images; there are {', '.join(sorted(topics)) or 'none'}."
            )
        if len(self.images) > len(calibration.rig):
            raise SequenceError(
                f"{path}: {len(self.images)} topics of images, the calibration has {len(calibration.rig)} "
                f"cameras."
            )
        self.imu = imu or max(of[_IMU], key=lambda name: counts[name] or 0, default=None)
        guessed = [] if images else [f"cameras {', '.join(self.images)}"]
        guessed += [] if imu or self.imu is None else [f"IMU {self.imu}"]
        guessed += [] if depth or self.depth is None else [f"depth {self.depth}"]
        self.notes = (f"topics taken: {'; '.join(guessed)}",) if guessed else ()

    def events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        """Messages in the order of the bag; raises `SequenceError` where a mode's topic is missing."""
        count = len(self.images) if options.is_stereo else 1
        if options.is_stereo and count < 2:
            raise SequenceError(
                f"{self.name}: one topic of images ({self.images[0]}), mode {options.mode} needs two."
            )
        if options.is_inertial and self.imu is None:
            raise SequenceError(f"{self.name}: no topic of an IMU, mode {options.mode} needs one.")
        if options.has_depth and self.depth is None:
            raise SequenceError(f"{self.name}: no topic of depth images, mode {options.mode} needs one.")
        rig = self.calibration.rig
        assert rig is not None
        offsets = [round(1e9 * camera.time_offset) for camera in list(rig)[:count]]
        cameras = {name: number for number, name in enumerate(self.images[:count])}
        pairing = Pairing((*offsets, *(offsets[:1] if options.has_depth else ())), depth=options.has_depth)
        if options.has_depth and self.depth is not None:
            cameras[self.depth] = count
        wanted = {*cameras, *((self.imu,) if options.is_inertial else ())}
        left_out, latest = LeftOut(), dict[int, int]()
        with self._open() as reader:
            chosen = [one for one in reader.connections if one.topic in wanted]
            for connection, received, data in reader.messages(connections=chosen):
                message = reader.deserialize(data, connection.msgtype)
                stamp = _stamp(message, received)
                if connection.topic == self.imu:
                    gyro, acc = _vector(message.angular_velocity), _vector(message.linear_acceleration)
                    yield ImuEvent(np.array([stamp]), gyro[None], acc[None])
                    continue
                camera, where = cameras[connection.topic], f"{self.name}, {connection.topic}, {stamp} ns"
                is_new = latest.get(camera) != stamp
                image = left_out.read(camera, partial(_new, message, where, is_new))
                latest[camera] = stamp
                for frame in () if image is None else pairing.add(camera, stamp, image):
                    yield replace(_with_depth(frame, options.has_depth), faults=left_out.faults())
            for frame in pairing.rest():
                yield replace(_with_depth(frame, options.has_depth), faults=left_out.faults())

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The bag; `SequenceError` where it is none, or damaged."""
        try:
            from rosbags.highlevel import AnyReader, AnyReaderError
            from rosbags.rosbag1 import ReaderError as FirstError
            from rosbags.rosbag2 import ReaderError as SecondError
            from rosbags.typesys import Stores, get_typestore
        except ImportError as error:
            raise OptionError("bags need rosbags: pip install graphopt[ros].") from error
        path = self._path
        if path.suffix.lower() in (".db3", ".mcap") and (path.parent / "metadata.yaml").is_file():
            path = path.parent
        try:
            with AnyReader([path], default_typestore=get_typestore(Stores.LATEST)) as reader:
                yield reader
        except SequenceError:
            raise
        except (AnyReaderError, FirstError, SecondError, OSError, ValueError) as error:
            raise SequenceError(
                f"{path}: no bag that can be read, or a damaged one: {error} `rosbag reindex`, or `ros2 bag "
                "reindex`, mends one that was not closed."
            ) from error


def _raw(topic: str) -> str:
    """The topic of raw images beside one of compressed ones."""
    return topic.removesuffix("/compressed")


def _with_depth(frame: ImageEvent, has_depth: bool) -> ImageEvent:
    """The last of the images is the depth image, in metres."""
    if not has_depth:
        return frame
    *images, depth = frame.images
    if depth is not None and frame.stamps is not None and abs(frame.stamps[-1] - frame.stamp) > _SAME_MOMENT:
        depth = None
    if depth is not None and depth.dtype == np.uint16:
        depth = depth.astype(np.float32) * np.float32(1e-3)
    return ImageEvent(frame.stamp, tuple(images), depth)


def _stamp(message: Any, received: int) -> int:
    """[ns] of a message's header; of one without, when it was received."""
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec) or int(received)


def _vector(message: Any) -> np.ndarray:
    return np.array([message.x, message.y, message.z])


def _new(message: Any, where: str, is_new: bool) -> np.ndarray:
    if not is_new:
        raise SequenceError(f"{where}: with a stamp that was there already.")
    return decoded(message, where)


def decoded(message: Any, where: str) -> np.ndarray:
    """Pixels of a sensor_msgs/Image or CompressedImage; colours as OpenCV has them."""
    cv2 = opencv()
    if not hasattr(message, "encoding"):
        image = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_UNCHANGED)
        if image is None:
            raise SequenceError(f"{where}: a compressed image ({message.format}) that OpenCV does not read.")
        return image
    encoding = str(message.encoding).lower()
    if encoding not in _CHANNELS:
        raise SequenceError(f"{where}: encoding {message.encoding}, expected one of {', '.join(_CHANNELS)}.")
    kind, channels = _CHANNELS[encoding]
    dtype = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    height, width, step = int(message.height), int(message.width), int(message.step)
    row = width * channels * dtype.itemsize
    data = np.asarray(message.data, np.uint8)
    if step < row or len(data) < height * step:
        raise SequenceError(
            f"{where}: {len(data)} bytes with {step} per row, expected {height} rows of {row} bytes or more."
        )
    pixels = np.ascontiguousarray(data[: height * step].reshape(height, step)[:, :row]).view(dtype)
    pixels = pixels.astype(kind).reshape((height, width, channels) if channels > 1 else (height, width))
    if encoding.startswith("rgb"):
        pixels = pixels[:, :, [2, 1, 0, *range(3, channels)]]
    return np.ascontiguousarray(pixels)
