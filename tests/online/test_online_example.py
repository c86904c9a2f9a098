"""The examples: a pose graph fed from a file, a visual-inertial window."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import online_pose_graph
import online_visual_inertial

from graphopt import optimize, write
from graphopt.evaluate.datasets import manhattan, sphere


@pytest.mark.parametrize("graph", [manhattan(nodes=120, seed=3), sphere(nodes_per_level=8, laps=6)])
def test_the_answer_is_that_of_batch(graph, tmp_path):
    """Pose by pose from a file chi2 ends where optimizing the whole graph does."""
    write(graph, tmp_path / "graph.g2o")
    online = online_pose_graph.main(["--data", str(tmp_path / "graph.g2o")])
    ids = graph.vertex_sets[0].ids
    graph.set_fixed([int(ids.min())])
    assert online.chi2 == pytest.approx(optimize(graph).final_chi2, rel=1e-5)


def test_a_wrong_loop_is_taken_back():
    """chi2 is that from before the trial, to the bit."""
    online = online_pose_graph.feed(manhattan(nodes=60, seed=3))
    before = online.chi2
    edge = "EDGE_SE2", [[0, 59]], [[50.0, 50.0, 1.0]]
    assert not online_pose_graph.try_loop(online, edge, most=5.0)
    assert online.chi2 == before


@pytest.mark.parametrize("disparity", [6.0, 2.0, 1.0])
def test_a_visual_inertial_window_follows_the_flight(capsys, monkeypatch, disparity):
    """Centimetres from the truth after 30 keyframes, of which the window keeps 6 with their landmarks.

    Those that begin with a disparity of 1 px, which the noise moves behind the camera or to 1e8 m, stay.
    """
    monkeypatch.setattr(online_visual_inertial, "LEAST_DISPARITY", disparity)
    assert online_visual_inertial.main(["--keyframes", "30", "--lag", "5"]) < 0.04
    left = int(capsys.readouterr().out.split()[0])
    assert left < 4 * 7 + 6 * 40
