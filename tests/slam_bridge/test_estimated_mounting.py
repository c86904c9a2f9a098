"""Mounting and time offset of rectified pairs and RGB-D cameras come out as the pixels were made with."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import CAMERA, disturb, rotation_errors, simulated_map

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3

OPTIONS = sb.SolveOptions(device="cpu", iterations=100, kernel=None, confidence=0.999999, rounds=1)
MOVED = SE3.exp(np.array([0.02, -0.01, 0.015, 0.005, -0.004, 0.003]))
TIMES = 0.2 * np.arange(20)


def seen_by(kind: str) -> sb.Map:
    """Exact observations by a rectified pair, or by a camera that measures depth."""
    world, _ = simulated_map(np.random.default_rng(5), times=TIMES, count=200)
    if kind == "rgbd":
        table = world.observations
        disparity = table["pixel"][:, 0] - table["right"]
        table["depth"][:] = CAMERA.intrinsics[0] * CAMERA.baseline / disparity
        table["depth_sigma"][:], table["right"][:] = 0.01, np.nan
    return world


@pytest.mark.parametrize("kind", ["stereo", "rgbd"])
def test_the_mounting_is_that_of_every_number_of_an_observation(kind):
    """Right columns and depths are seen from the mounting that is estimated, too."""
    world = seen_by(kind)
    disturb(world, np.random.default_rng(6), fixed=world.keyframes.ids[:1])
    wrong = np.asarray((SE3(CAMERA.body_T_cam) * MOVED).storage)
    world.rig = world.rig.with_camera(0, body_T_cam=wrong)
    result = sb.full_inertial_ba(world, options=OPTIONS, estimate="extrinsics")
    mounting = result.extra["calibration"][0][0]
    assert sum(result.chi2.values()) < 0.5
    np.testing.assert_allclose(mounting[:3], CAMERA.body_T_cam[:3], atol=2e-3)
    assert rotation_errors(mounting[None], CAMERA.body_T_cam[None])[0] < 1e-3


def test_a_pair_shows_its_time_offset():
    """Both columns move with the pixel's velocity."""
    world = seen_by("stereo")
    table = world.observations
    flow = np.random.default_rng(7).normal(scale=100.0, size=table["flow"].shape)
    table["flow"][:] = flow
    table["pixel"][:] += 0.004 * flow
    table["right"][:] += 0.004 * flow[:, 0]
    result = sb.full_inertial_ba(world, options=OPTIONS, estimate=("time_offset",))
    assert result.extra["calibration"][0][2] == pytest.approx(0.004, abs=1e-5)
    assert sum(result.chi2.values()) < 0.5


def test_what_nothing_shows_is_refused():
    """Intrinsics that pixels were rectified with; a time offset of pixels whose velocity is unknown."""
    world = seen_by("stereo")
    with pytest.raises(OptionError, match="whose intrinsics cannot be estimated"):
        sb.full_inertial_ba(world, options=OPTIONS, estimate=("extrinsics", "intrinsics"))
    with pytest.raises(OptionError, match="no observation has the velocity of its pixel"):
        sb.full_inertial_ba(world, options=OPTIONS, estimate=("time_offset",))
