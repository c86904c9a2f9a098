"""Localization for a long time takes no more memory than for a short one."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.cli.main import main
from slam_bridge.pipeline import PipelineOptions, Slam, open_sequence, run

pytest.importorskip("cv2")
STATUS = Path("/proc/self/status")


def resident():
    """Bytes of this process in memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """Eight seconds of stereo outdoors, 161 small images of each camera."""
    folder = tmp_path_factory.mktemp("rendered") / "outdoors6"
    arguments = ["--like", "outdoors6", "--seconds", "8", "--image-scale", "0.4", "--supersample", "1"]
    assert main(["generate", "vi-sequence", *arguments, "-o", str(folder)]) == 0
    return folder


@pytest.mark.nightly
@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")
@pytest.mark.parametrize("frames", [1_500, 72_000])
def test_localization_stays_flat(drive, frames):
    """Back and forth for a minute and for an hour: beyond 500 frames less than 1 MB and 20 bytes a frame."""
    sequence = open_sequence("tumvi", drive)
    options = PipelineOptions(mode="stereo", single_thread=True, widest=sequence.widest)
    world = run(sequence, options).world
    slam = Slam(sequence.rig, replace(options, localization=True), world)
    images = [sequence.images(row) for row in range(len(sequence))]
    way = [*images, *images[-2:0:-1]]
    sizes = []
    for number in range(frames + 1):
        slam.add_images(50_000_000 * number, *way[number % len(way)])
        if number in (500, frames):
            gc.collect()
            sizes.append(resident())
    assert len(slam.stop().stamps) > 0.95 * frames
    assert sizes[1] - sizes[0] < 1_000_000 + 20 * frames
