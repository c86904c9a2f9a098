"""The scale of a slow walk, which accelerations hardly show, is found within the usual iterations."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from slam_bridge.generator import generate_problem
from slam_bridge.problems.scale import scale_deviation


@pytest.mark.parametrize("seed", range(3))
def test_scale_of_a_slow_walk_with_one_camera(seed):
    """3 % off at the start; default rounds end where many iterations end, to half a deviation."""
    sizes = {"keyframes": 60, "landmarks": 1500, "observations": 9000}
    world = generate_problem("MH02", **sizes, sensor="euroc", start="truth", mismatches=0.0, seed=seed).map
    world.observations["right"][:] = np.nan
    world.transform([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.97])
    lengths, deviation = [], 0.0
    for iterations, rounds in ((10, 2), (200, 2)):
        options = sb.SolveOptions(device="cpu", iterations=iterations, rounds=rounds)
        mine = world.snapshot()
        result = sb.full_inertial_ba(mine, options=options)
        way = result.keyframes.world_T_body[:, :3]
        lengths.append(np.linalg.norm(way - way.mean(axis=0)))
        deviation = scale_deviation(result)
    assert abs(np.log(lengths[0] / lengths[1])) < 0.5 * deviation
