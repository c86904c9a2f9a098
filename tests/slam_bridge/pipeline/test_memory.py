"""Localization for a long time takes no more memory than for a short one."""

from dataclasses import replace
from pathlib import Path

import pytest

from slam_bridge.pipeline import PipelineOptions, Slam, open_sequence, run
from slam_bridge.readers.calibration import read_calibration

pytest.importorskip("cv2")
STATUS = Path("/proc/self/status")


def resident():
    """Bytes of this process in memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


@pytest.mark.nightly
@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")
def test_localization_stays_flat(room):
    """Back and forth through a room: beyond 1,000 frames fewer than 400 bytes a frame."""
    sequence, options = open_sequence("euroc", room), PipelineOptions(mode="stereo", single_thread=True)
    world = run(sequence, options).world
    slam = Slam(read_calibration(room / "mav0"), replace(options, localization=True), world)
    images = [sequence.images(row) for row in range(len(sequence))]
    way = [*images, *images[-2:0:-1]]
    sizes = []
    for number in range(2501):
        slam.add_images(50_000_000 * number, *way[number % len(way)])
        if number in (1000, 2500):
            sizes.append(resident())
    assert len(slam.stop().stamps) > 2400
    assert sizes[1] - sizes[0] < 400 * 1500
