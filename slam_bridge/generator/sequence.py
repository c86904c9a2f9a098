"""Rendered sequences: images, IMU, calibration and truth in the folders of EuRoC, TUM-VI or KITTI raw.

    generate_sequence("V1_02", "v102", truth="V1_02_medium/mav0", seconds=20)

writes `v102/mav0/...` whole or not at all: it is made beside and renamed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
import slam_bridge.generator.folders as folders
from graphopt.errors import OptionError
from graphopt.temporary_files import temporary_folder
from slam_bridge.cameras import Rig
from slam_bridge.generator.characters import Character, character
from slam_bridge.generator.images import ImageMaker, ImageOptions
from slam_bridge.generator.imu import SimulatedImu, simulate_imu
from slam_bridge.generator.kitti import write_kitti
from slam_bridge.generator.motions import built_in
from slam_bridge.generator.render import Renderer
from slam_bridge.generator.scene import Scene, scene_around
from slam_bridge.generator.sensors import Sensors, sensors
from slam_bridge.generator.trajectory import Trajectory
from slam_bridge.generator.truth import find_truth, read_truth

FORMATS = {"euroc": 8, "tumvi": 16, "kitti-sync": 8, "kitti-extract": 8}
"""Bits per pixel."""
_MOCAP_RATE = 120.0
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SequenceOptions:
    """What a rendered sequence is like."""

    format: str | None = None
    """one of `FORMATS`: folders and sensors; None: those of the sequence that it is like."""
    truth: str | os.PathLike[str] | None = None
    """Ground truth to move along; None: the one in $GRAPHOPT_DATA, else a built-in trajectory."""
    start: float = 0.0
    """Where to begin in the trajectory [s]."""
    seconds: float | None = None
    """How much of it; None: up to its end."""
    seed: int = 0
    """Of the scene, the noise, and the built-in trajectory."""
    place: str | None = None
    """"room", "hall", "corridor", "outdoors"; None: that of the sequence."""
    calibration: tuple[str, ...] = ()
    """Calibration files in place of the built-in numbers."""
    camera_rate: float | None = None
    """[Hz]; None: that of the sensors."""
    image_scale: float = 1.0
    """Images of this fraction of the sensor's size, with the same field of view."""
    perfect_imu: bool = False
    """No noise and no biases."""
    images: ImageOptions = field(default_factory=ImageOptions)

    def __post_init__(self) -> None:
        if self.format not in (None, *FORMATS):
            raise OptionError(f"format is {self.format!r}, expected one of {', '.join(FORMATS)}.")
        if not 0.05 <= self.image_scale <= 2.0:
            raise OptionError(f"image_scale is {self.image_scale}, expected 0.05 to 2.")
        if self.camera_rate is not None and not 0.0 < self.camera_rate <= 200.0:
            raise OptionError(f"camera_rate is {self.camera_rate} Hz, expected at most 200.")
        if self.start < 0.0 or (self.seconds is not None and not self.seconds > 0.0):
            raise OptionError(f"start is {self.start} s and seconds {self.seconds}: expected >= 0 and > 0.")


@dataclass(frozen=True, eq=False)
class Sequence:
    """A sequence before it is rendered."""

    like: Character
    trajectory: Trajectory
    scene: Scene
    sensors: Sensors
    image_stamps: np.ndarray
    """(n,) int64 [ns], of all cameras."""
    imu_stamps: np.ndarray
    """(m,) int64 [ns]."""


def plan_sequence(like: str, options: SequenceOptions) -> Sequence:
    """Trajectory, scene, sensors and stamps of a sequence."""
    known = character(like)
    kind = sensors(options.format or known.sensor, options.calibration)
    rate = options.camera_rate or kind.camera_rate
    kind = replace(kind, rig=kind.rig.scaled(options.image_scale), camera_rate=rate)
    trajectory = trajectory_like(known, kind.rig, options.truth, options.seed)
    scene = scene_around(trajectory, options.place or known.place, options.seed)
    imu_stamps = trajectory.stamps(kind.imu_rate, options.start, options.seconds)
    images = trajectory.stamps(kind.camera_rate, options.start, options.seconds)
    half = round(0.5e9 * options.images.shutter)
    images = images[(images - half >= imu_stamps[0]) & (images + half <= imu_stamps[-1])]
    if not len(images):
        raise OptionError(f"{options.seconds} s hold no image at {kind.camera_rate} Hz.")
    return Sequence(known, trajectory, scene, kind, images, imu_stamps)


def trajectory_like(
    known: Character, rig: Rig, truth: str | os.PathLike[str] | None = None, seed: int = 0
) -> Trajectory:
    """Along the given ground truth, else one in $GRAPHOPT_DATA, else the built-in one of that character."""
    path = truth if truth is not None else find_truth(known)
    return built_in(known, rig, seed) if path is None else read_truth(path)


def generate_sequence(
    like: str,
    output: str | os.PathLike[str],
    options: SequenceOptions | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Sequence:
    """Render a sequence into a new folder; `changes` are fields of `SequenceOptions`.

    progress(done, all) is called after each stamp. Raises `OptionError` where the folder has content.
    """
    options = replace(options or SequenceOptions(), **changes)
    target = Path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} exists and is not empty. Name a new folder, or remove it first.")
    planned = plan_sequence(like, options)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target) as partial:
        _write(planned, partial, options, progress)
        partial.chmod(0o755)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    return planned


def _write(planned: Sequence, folder: Path, options: SequenceOptions, progress: Progress | None) -> None:
    kind, trajectory = planned.sensors, planned.trajectory
    layout = options.format or planned.like.sensor
    motion = trajectory.at(planned.imu_stamps)
    noise = None if options.perfect_imu else kind.noise
    imu = simulate_imu(motion, noise, np.random.default_rng([options.seed, 3]))
    names = [f"{stamp}.png" for stamp in planned.image_stamps.tolist()]
    if layout.startswith("kitti"):
        names = [f"{row:010d}.png" for row in range(len(names))]
        is_rectified = layout == "kitti-sync"
        places = write_kitti(folder, kind.rig, motion, imu, planned.image_stamps, is_rectified)
    else:
        _write_asl(planned, folder, options, layout, imu)
        places = folders.write_image_lists(folder / "mav0", kind.rig.names, planned.image_stamps)
    folders.write_provenance(folder, _provenance(planned, options))
    makers = []
    for k, (place, camera) in enumerate(zip(places, kind.rig, strict=True)):
        renderer = Renderer(camera, planned.scene, options.images.supersample)
        makers.append((place, ImageMaker(renderer, trajectory, options.images, [options.seed, 4, k])))
    with ThreadPoolExecutor(len(makers)) as pool:  # numpy lets go of the interpreter: one core per camera
        for done, (name, stamp) in enumerate(zip(names, planned.image_stamps.tolist(), strict=True), 1):
            written = [
                pool.submit(_write_image, place / name, maker, stamp, FORMATS[layout])
                for place, maker in makers
            ]
            for image in written:
                image.result()
            if progress is not None:
                progress(done, len(names))


def _write_asl(
    planned: Sequence, folder: Path, options: SequenceOptions, layout: str, imu: SimulatedImu
) -> None:
    """All but the images of a sequence in EuRoC's or TUM-VI's form."""
    kind, trajectory = planned.sensors, planned.trajectory
    if layout == "euroc":
        folders.write_euroc(folder, kind, trajectory.at(planned.imu_stamps), imu)
    else:
        seconds = (planned.imu_stamps[-1] - planned.imu_stamps[0]) * 1e-9
        mocap = trajectory.at(trajectory.stamps(_MOCAP_RATE, options.start, seconds - 0.01))
        folders.write_tumvi(folder, kind, mocap, imu)


def _write_image(path: Path, maker: ImageMaker, stamp: int, bits: int) -> None:
    path.write_bytes(folders.png(maker.image(stamp), bits))


def _provenance(planned: Sequence, options: SequenceOptions) -> dict[str, Any]:
    plain = {name: value for name, value in vars(options).items() if name != "images"}
    return {
        "generator": f"graphopt {graphopt.__version__}, generate vi-sequence",
        "like": planned.like.name,
        "trajectory": planned.trajectory.source,
        "path_length_m": planned.trajectory.length,
        "options": {
            **plain,
            "truth": None if options.truth is None else str(options.truth),
            **vars(options.images),
        },
        "scene": planned.scene.describe(),
    }
