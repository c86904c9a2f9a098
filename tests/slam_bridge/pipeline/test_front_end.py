"""Corners are spread over the image and followed exactly; descriptors do not care how a camera is turned."""

import os
import subprocess
import sys

import numpy as np
import pytest

from slam_bridge.pipeline.features import Corners, Detector, descriptors, follow, matched, nearest
from slam_bridge.pipeline.keyframes import needs_keyframe
from slam_bridge.pipeline.options import PipelineOptions

cv2 = pytest.importorskip("cv2")
OPTIONS = PipelineOptions()


def texture(seed=0, size=(240, 320)):
    """Smooth noise, which has corners everywhere."""
    noise = np.random.default_rng(seed).uniform(0.0, 255.0, size).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 2.0)
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return (255.0 * smooth).astype(np.uint8)


def test_corners_are_spread_and_keep_away_from_tracks():
    """One per cell at most, none near a track, none where the image may not be used."""
    image = texture()
    usable = np.ones(image.shape, bool)
    usable[:, 250:] = False
    detector = Detector(image.shape, usable, OPTIONS)
    occupied = np.array([[100.0, 100.0], [50.0, 200.0]])
    found = detector.detect(Corners.of(image), occupied)
    cells = found // detector.cell
    assert len(np.unique(cells, axis=0)) == len(found) > 0.5 * OPTIONS.max_features
    assert found[:, 0].max() < 250
    distance = np.linalg.norm(found[:, None] - occupied[None], axis=2)
    assert distance.min() >= 0.5 * detector.cell


def test_a_grey_image_has_no_corners():
    """Nothing is found where there is nothing to see."""
    image = np.full((240, 320), 128, np.uint8)
    detector = Detector(image.shape, np.ones(image.shape, bool), OPTIONS)
    assert len(detector.detect(Corners.of(image), np.zeros((0, 2)))) == 0


def test_tracks_follow_a_shift_and_wrong_ones_are_left_out():
    """A shift of (7.5, -4.25) pixels comes back to a tenth of a pixel; what left the image is not found."""
    image = texture()
    motion = np.array([[1.0, 0.0, 7.5], [0.0, 1.0, -4.25]])
    moved = cv2.warpAffine(image, motion, image.shape[::-1], flags=cv2.INTER_CUBIC, borderValue=0)
    pixel = Detector(image.shape, np.ones(image.shape, bool), OPTIONS).detect(
        Corners.of(image), np.zeros((0, 2))
    )
    there, found = follow(image, moved, pixel, pixel.copy(), OPTIONS)
    inside = ((pixel > 25) & (pixel < np.array(image.shape[::-1]) - 25)).all(axis=1)
    assert found[inside].mean() > 0.95
    error = np.linalg.norm((there - pixel - [7.5, -4.25])[found & inside], axis=1)
    assert np.median(error) < 0.1
    gone = (pixel > np.array([311.5, 243.25])).any(axis=1)
    assert gone.any() and not found[gone].any()
    _, found = follow(image, texture(seed=9), pixel, pixel.copy(), OPTIONS)
    assert found.mean() < 0.1


def test_nearest_descriptors():
    """Bits that differ to the two nearest ones, and which they are."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (count, 32), np.uint8) for count in (7, 9))
    table = np.unpackbits(a[:, None] ^ b[None], axis=2).sum(axis=2)
    bits, rows = nearest(a, b, 2)
    np.testing.assert_array_equal(bits, np.sort(table, axis=1)[:, :2])
    np.testing.assert_array_equal(np.take_along_axis(table, rows, axis=1), bits)


@pytest.mark.parametrize("angle", [0.0, 35.0, 180.0])
def test_descriptors_are_matched_in_a_turned_image(angle):
    """The same corners in an image turned about its centre find each other."""
    image = texture(size=(300, 300))
    turn = cv2.getRotationMatrix2D((149.5, 149.5), angle, 1.0)
    turned = cv2.warpAffine(image, turn, image.shape[::-1], flags=cv2.INTER_CUBIC)
    rng = np.random.default_rng(3)
    pixel = np.rint(rng.uniform(100.0, 200.0, (60, 2)))
    there = pixel @ turn[:, :2].T + turn[:, 2]
    first, rows_first = descriptors(image, pixel)
    second, rows_second = descriptors(turned, there)
    pairs = matched(first, second)
    right = rows_first[pairs[:, 0]] == rows_second[pairs[:, 1]]
    assert len(pairs) > 30
    assert right.mean() > 0.95


def test_descriptors_wake_no_thread_of_blas():
    """OpenBLAS's threads compute for a tenth of a second after each product that they share."""
    program = """
import time, cv2, numpy as np
from slam_bridge.pipeline.features import descriptors
cv2.setNumThreads(1)
rng = np.random.default_rng(0)
image, pixel = rng.integers(0, 256, (480, 752), np.uint8), rng.uniform(40.0, 440.0, (1500, 2))
before = time.process_time() - time.thread_time()
for _ in range(5):
    descriptors(image, pixel)
    time.sleep(0.1)
print(time.process_time() - time.thread_time() - before)
"""
    environment = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert float(found.stdout.split()[-1]) < 0.02


def test_keyframes_are_asked_for_by_loss_of_landmarks_and_by_parallax():
    """Enough landmarks at rest need none; each reason alone is enough."""
    assert not needs_keyframe(OPTIONS, 200, 210, 0.01)
    assert needs_keyframe(OPTIONS, OPTIONS.keyframe_features - 1, OPTIONS.keyframe_features, 0.0)
    assert needs_keyframe(OPTIONS, 140, 210, 0.0)
    assert needs_keyframe(OPTIONS, 200, 210, 1.1 * OPTIONS.keyframe_parallax / 460.0)
