"""Runs can be watched on a page in a browser of this machine."""

import json
import re
from pathlib import Path

import pytest
from processes import page_in_browser

from graphopt.cli.main import main
from graphopt.evaluate.report.live import LiveView
from slam_bridge.evaluation.live import Watch, state
from slam_bridge.pipeline import PipelineOptions, Slam, open_sequence, run

pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def sequence(tmp_path_factory):
    """A second and a half of stereo images, small ones."""
    folder = tmp_path_factory.mktemp("rendered") / "V1_01"
    arguments = ["--like", "V1_01", "--seconds", "1.5", "--image-scale", "0.3", "--supersample", "1"]
    assert main(["generate", "vi-sequence", *arguments, "-o", str(folder)]) == 0
    return folder


def test_a_browser_follows_a_run(sequence: Path, tmp_path: Path) -> None:
    """Headless Chromium opens the page, asks for the state, and draws it: poses, points, the image."""
    opened = open_sequence("euroc", sequence)
    pipeline = Slam(opened.rig, PipelineOptions(mode="stereo", single_thread=True))
    pipeline.num_expected = len(opened)
    for row in range(12):
        pipeline.add_images(int(opened.stamps[row]), *opened.images(row))
    with LiveView() as view:
        shown = state(pipeline, 11, "a run")
        view.show(shown)
        text = page_in_browser(view.address, tmp_path, 4_000)
    assert re.search(r'id="state">frame 12 of 31: tracking<', text)
    assert re.search(r'id="num-poses">12<', text)
    assert f'id="num-points">{len(pipeline.world.landmarks):,}<' in text
    assert 'src="data:image/jpeg;base64,' in text
    assert not shown["image"].startswith("http")


def test_a_watcher_makes_states_only_while_somebody_looks(sequence: Path) -> None:
    """Nobody asks: nothing is made."""
    opened = open_sequence("euroc", sequence).first(4)
    with LiveView() as view:
        run(opened, PipelineOptions(mode="stereo", single_thread=True), Watch(view, "x"))
        assert view.answer("/state")[0] == 204
        run(opened, PipelineOptions(mode="stereo", single_thread=True), Watch(view, "x"))
        status, kind, content = view.answer("/state")
    assert (status, kind) == (200, "application/json") and json.loads(content)["num_poses"] >= 1


@pytest.mark.parametrize("target", ["70000", "0", "localhost"])
def test_what_is_no_port_is_refused(target: str, capsys: pytest.CaptureFixture) -> None:
    """Before anything is looked for."""
    assert main(["eval", "euroc", "--root", "nowhere", "--modes", "stereo", "--live", target]) == 2
    assert "is no port (1 to 65535)" in capsys.readouterr().err
