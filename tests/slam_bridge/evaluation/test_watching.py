"""Runs can be watched: on a page in a browser of this machine, in rerun, in a recording."""

import json
import re
import sys
from pathlib import Path

import pytest
from processes import page_in_browser

from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate import optional
from graphopt.evaluate.report.live import LiveView
from slam_bridge.evaluation.live import Watch, state
from slam_bridge.evaluation.rerun import RerunView
from slam_bridge.pipeline import Pipeline, PipelineOptions, open_sequence, run

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
    pipeline = Pipeline(opened, PipelineOptions(mode="stereo", single_thread=True))
    for row in range(12):
        pipeline.process(int(opened.stamps[row]), opened.images(row))
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


def test_a_run_is_recorded_for_rerun(sequence: Path, tmp_path: Path) -> None:
    """The recording opens and has images of every frame, the trajectory, the map and the camera."""
    pytest.importorskip("rerun", reason="rerun is not installed")
    out, recording = tmp_path / "out", tmp_path / "run.rrd"
    arguments = ["--modes", "stereo", "--single-thread", "--max-frames", "12", "--live", str(recording)]
    assert main(["eval", "euroc", "--root", str(sequence), *arguments, "-o", str(out)]) == 0
    content = recording.read_bytes()
    for path in (b"/world/points", b"/world/trajectory", b"/world/camera/image/tracks", b"/status"):
        assert path in content


def test_what_cannot_be_watched_is_said(
    sequence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """No rerun, several runs into one recording, no port."""
    arguments = ["eval", "euroc", "--root", str(sequence), "-o", str(tmp_path / "out"), "--modes", "stereo"]
    monkeypatch.setitem(sys.modules, "rerun", None)
    for target in ("rerun", "a.rrd"):
        assert main([*arguments, "--live", target]) == 2
        assert "pip install rerun-sdk" in capsys.readouterr().err
    with pytest.raises(OptionError, match="pip install rerun-sdk"):
        RerunView("rerun", "x")
    monkeypatch.setattr(optional, "load", lambda *_: None)
    assert main([*arguments, "--live", "a.rrd"]) == 2
    assert "records one run, these are 5. Add --runs 1" in capsys.readouterr().err
    assert main([*arguments, "--live", "70000"]) == 2
    assert "no port (1 to 65535), rerun, or FILE.rrd" in capsys.readouterr().err
