"""The page of a graph opens from a file in headless Chromium, draws, and knows its vertices."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from processes import page_in_browser

import graphopt
from graphopt.cli.main import main
from graphopt.errors import GraphError
from graphopt.evaluate.report import thumbnails
from graphopt.evaluate.report.viewer import graph_page
from graphopt.evaluate.results import Results


def dump(page: Path, folder: Path, script: str) -> dict:
    """What a script that is appended to the page leaves as JSON in its title."""
    probe = f"<script>{{ {script} }}</script></body>"
    copy = folder / "probed.html"
    copy.write_text(page.read_text().replace("</body>", probe))
    text = page_in_browser(copy.as_uri(), folder, 20_000)
    found = re.search(r"<title>(.*?)</title>", text)
    assert found is not None
    return json.loads(found.group(1).replace("&lt;", "<").replace("&amp;", "&"))


DRAWN = """
paint();
const pixels = new Uint8Array(4 * canvas.width * canvas.height);
gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
let filled = 0;
for (let k = 3; k < pixels.length; k += 4) if (pixels[k]) filled++;
viewer.select(ids.indexOf(7));
document.title = JSON.stringify({ ...viewer.counts, filled, error: gl.getError(),
  found: document.getElementById("found").textContent });
"""


def test_a_pose_graph_is_drawn(tmp_path: Path) -> None:
    graph = graphopt.datasets.sphere(nodes_per_level=12, laps=8)
    graphopt.write(graph, tmp_path / "sphere.g2o")
    assert main(["view", str(tmp_path / "sphere.g2o"), "-o", str(tmp_path / "page.html")]) == 0
    found = dump(tmp_path / "page.html", tmp_path, DRAWN)
    assert found["poses"] == graph.num_vertices and found["edges"] == graph.num_edges
    assert found["filled"] > 500 and found["error"] == 0
    assert found["found"].startswith("vertex 7: pose")
    place = [float(word) for word in found["found"].splitlines()[1].split()[1:]]
    middle = np.median(np.asarray(graph.vertex_sets[0].estimate)[:, :3], axis=0)
    np.testing.assert_allclose(place, graph.vertex(7).estimate[:3] - middle, rtol=1e-4, atol=1e-3)


def test_two_hundred_thousand_points_are_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", [7, 8], [[0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 1]])
    graph.add_vertices("VERTEX_TRACKXYZ", np.arange(10, 200_010), rng.normal(0, 5, (200_000, 3)))
    graph.add_edges("EDGE_SE3:QUAT", [(7, 8)], [[1, 0, 0, 0, 0, 0, 1]])
    page = tmp_path / "many.html"
    page.write_text(graph_page(graph, "many"))
    found = dump(page, tmp_path, DRAWN)
    assert found["points"] == 200_000 and found["filled"] > 10_000 and found["error"] == 0


def test_colours_before_and_time(tmp_path: Path) -> None:
    before = graphopt.datasets.manhattan(nodes=80, seed=2)
    after = before.copy()
    graphopt.optimize(after)
    page = tmp_path / "page.html"
    page.write_text(graph_page(after, "x", before=before, times={k: 0.5 * k for k in range(80)}))
    found = dump(
        page,
        tmp_path,
        """
document.getElementById("by-chi2").click(); document.getElementById("show-before").click();
document.getElementById("until").value = 11; until.oninput(); paint();
document.title = JSON.stringify({ now: document.getElementById("now").textContent, error: gl.getError(),
  hidden: document.getElementById("legend").hidden, edges: edgesUntil(11) });
""",
    )
    assert found == {"now": "5.00 s", "error": 0, "hidden": False, "edges": found["edges"]}
    ends = after.edge_sets[0].vertices
    assert found["edges"] == int((ends.max(axis=1) < 11).sum())


@pytest.mark.parametrize("kind", ["bal", "expmap"])
def test_frusta_of_cameras_show_where_they_look(tmp_path: Path, kind: str) -> None:
    """The far corners of a frustum lie on the side of the points that its camera sees, z ahead or behind."""
    if kind == "bal":
        graph = graphopt.datasets.ba(cameras=5, points=60)
    else:
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_SE3:EXPMAP", range(5), [[-k, 0, 0, 0, 0, 0, 1] for k in range(5)])
        points = np.random.default_rng(0).uniform([-3, -3, 8], [6, 3, 10], (60, 3))
        graph.add_vertices("VERTEX_XYZ", range(100, 160), points)
        pairs = [(100 + k, c) for k in range(60) for c in range(5)]
        graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[500, 320, 240, 0]])
        graph.add_edges("EDGE_PROJECT_XYZ2UV:EXPMAP", pairs, np.zeros((300, 2)), parameters=[[0]] * 300)
    page = tmp_path / "page.html"
    page.write_text(graph_page(graph, "x"))
    found = dump(
        page,
        tmp_path,
        """
const corners = frusta(after, batches.cameras), ahead = [];
batches.cameras.forEach((camera, number) => {
  const to = [0, 0, 0], middle = [0, 0, 0], seen = [];
  for (let e = 0; e < lines.length / 2; e++) for (const [a, b] of [[0, 1], [1, 0]])
    if (lines[2 * e + a] === camera) seen.push(lines[2 * e + b]);
  for (let axis = 0; axis < 3; axis++) {
    for (const k of seen) to[axis] += after[3 * k + axis] - after[3 * camera + axis];
    for (let side = 0; side < 4; side++)
      middle[axis] += corners[48 * number + 12 * side + 3 + axis] - after[3 * camera + axis];
  }
  ahead.push(to[0] * middle[0] + to[1] * middle[1] + to[2] * middle[2]);
});
const shown = document.getElementById("show-frusta").checked;
document.title = JSON.stringify({ ahead, error: gl.getError(), shown });
""",
    )
    assert len(found["ahead"]) == 5 and min(found["ahead"]) > 0.0
    assert found["error"] == 0 and found["shown"]


def test_a_sequence_shows_its_cameras_and_the_points_of_its_map(tmp_path: Path) -> None:
    """From the results of an evaluation; poses on the slider, points of the map beside them."""
    count = 40
    line = np.stack([np.arange(count) * 0.1, np.zeros(count), np.zeros(count)], axis=1)
    curve = {
        "times_s": (0.05 * np.arange(count)).tolist(),
        "estimate": line.tolist(),
        "truth": line.tolist(),
        "error_m": np.full(count, 0.01).tolist(),
        "world_R_cam": np.tile([0.0, 0.0, 0.0, 1.0], (count, 1)).tolist(),
    }
    (tmp_path / "maps").mkdir()
    np.save(tmp_path / "maps" / "a.npy", np.random.default_rng(0).uniform(-1, 5, (500, 3)).astype(np.float32))
    entry = {"curve": curve, "points_file": "maps/a.npy"}
    Results("euroc", {}, "graphopt eval", "now", {}, {"a": entry}).save(tmp_path)
    assert main(["view", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    script = """
until.value = 11; until.oninput(); paint();
document.title = JSON.stringify({ ...viewer.counts, cameras: batches.cameras.length, error: gl.getError(),
  now: document.getElementById("now").textContent });
"""
    found = dump(tmp_path / "page.html", tmp_path, script)
    expected = {"poses": count, "points": 500, "edges": count - 1, "cameras": count, "error": 0}
    assert found == {**expected, "now": "0.50 s"}


def test_pages_hold_what_they_need(tmp_path: Path) -> None:
    graph = graphopt.datasets.ba(cameras=3, points=20)
    page = graph_page(graph, "a </script> b")
    assert page.count("</script>") == 2 and "http" not in page
    other = graphopt.datasets.ba(cameras=4, points=20)
    with pytest.raises(GraphError, match="other vertices"):
        graph_page(graph, "x", before=other)


def test_typos(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["view", str(tmp_path / "none.g2o"), "-o", str(tmp_path / "x.html")]) == 2
    assert main(["view", str(tmp_path), "-o", str(tmp_path / "x.txt")]) == 2
    assert "must end in .html" in capsys.readouterr().err


def test_frusta_hold_the_images_that_were_taken_there(tmp_path: Path) -> None:
    """Seen along the camera's axis, the frustum's far side shows the image the right way up and round."""
    curve = {
        "times_s": [0.0, 1.0],
        "estimate": [[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]],
        "truth": [],
        "error_m": [0.0, 0.0],
        "world_R_cam": [[-0.5, 0.5, -0.5, 0.5]] * 2,  # looks along x, y of the world to its left, z up
    }
    image = np.zeros((30, 40, 3), np.uint8)
    image[:15, :20], image[:15, 20:], image[15:] = [255, 0, 0], [0, 255, 0], [0, 0, 255]
    atlas = np.zeros((30, 80, 3), np.uint8)
    atlas[:, :40] = image
    (tmp_path / "maps").mkdir()
    pictures = pytest.importorskip("PIL.Image")
    pictures.fromarray(atlas).save(tmp_path / "maps" / "a.jpg", quality=95)
    layout = {"rows": [0], "columns": 2, "width": 40, "height": 30}
    (tmp_path / "maps" / "a.json").write_text(json.dumps(layout))
    Results(
        "euroc", {}, "graphopt eval", "now", {}, {"a": {"curve": curve, "images_file": "maps/a.jpg"}}
    ).save(tmp_path)
    assert main(["view", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    assert "http" not in (tmp_path / "page.html").read_text()
    script = """
const colours_at = () => {
  const matrix = cameraMatrix(), shown = corner(after, 0, 30 / 40);
  const mixed = (u, v) => [0, 1, 2].map((k) =>
    (1 - v) * ((1 - u) * shown[0][k] + u * shown[1][k]) + v * ((1 - u) * shown[3][k] + u * shown[2][k]));
  return [[0.2, 0.4], [0.8, 0.4], [0.4, 0.8]].map(([u, v]) => {
    const p = [...mixed(u, v), 1];
    const along = (r) => p.reduce((sum, one, k) => sum + one * matrix[4 * k + r], 0);
    const [x, y] = [along(0) / along(3), along(1) / along(3)], pixel = new Uint8Array(4);
    const at = [(x + 1) * canvas.width / 2, (y + 1) * canvas.height / 2];
    gl.readPixels(...at, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    return [...pixel];
  });
};
ready.then(() => {
  Object.assign(look, { centre: corner(after, 0, 0.75)[2], distance: 2, turn: Math.PI, tilt: 0 });
  for (const name of ["show-poses", "show-edges"]) document.getElementById(name).checked = false;
  paint();
  const right = corner(after, 0, 0.75)[0][1] > corner(after, 0, 0.75)[1][1];
  document.title = JSON.stringify({ colours: colours_at(), right, error: gl.getError() });
});
"""
    found = dump(tmp_path / "page.html", tmp_path, script)
    assert found["error"] == 0 and found["right"]
    for colour, channel in zip(found["colours"], range(3), strict=True):
        assert int(np.argmax(colour[:3])) == channel and colour[channel] > 200, found


def test_images_of_a_page_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frusta are at most 150 per trajectory; what does not fit into the page's images is left out."""
    assert [len(thumbnails.frustum_rows(count)) for count in (0, 1, 150, 151, 40_000)] == [0, 1, 150, 76, 150]
    files = {name: tmp_path / f"{name}.jpg" for name in ("a", "b", "c")}
    for path in files.values():
        path.write_bytes(b"x" * 100)
        path.with_suffix(".json").write_text('{"rows": [0], "columns": 1, "width": 1, "height": 1}')
    monkeypatch.setattr(thumbnails, "MAX_BYTES", 250)
    assert list(thumbnails.embedded({**files, "gone": tmp_path / "gone.jpg"})) == ["a", "b"]
