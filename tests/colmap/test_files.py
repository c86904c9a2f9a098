"""COLMAP models: text and binary hold the same, optimization's results go back, everything else stays."""

import shutil

import numpy as np
import pytest

from graphopt import colmap, io
from graphopt.colmap import binary, text
from graphopt.colmap.model import ColmapCamera, ColmapImages, ColmapModel, ColmapPoints
from graphopt.errors import FormatError
from graphopt.geometry import CAMERA_MODELS, SE3
from graphopt.io import extra_types

ALL_MODELS = {
    "SIMPLE_PINHOLE": [500, 320, 240],
    "PINHOLE": [500, 510, 320, 240],
    "SIMPLE_RADIAL": [500, 320, 240, 0.05],
    "RADIAL": [500, 320, 240, 0.05, -0.01],
    "OPENCV": [500, 510, 320, 240, 0.05, -0.01, 0.002, -0.003],
    "OPENCV_FISHEYE": [500, 510, 320, 240, 0.05, -0.01, 0.002, -0.003],
}


def make_model(seed=1):
    """Make six images, one of each camera model, that all see four of five points."""
    rng = np.random.default_rng(seed)
    cameras = [
        ColmapCamera(10 + k, name, 640, 480, np.array(p, float))
        for k, (name, p) in enumerate(ALL_MODELS.items())
    ]
    num_images, num_points = len(cameras), 5
    quaternion = np.tile([1.0, 0, 0, 0], (num_images, 1)) + rng.normal(0, 0.1, (num_images, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    point_ids = np.array([100, 7, 8, 9, 2**40])
    seen = [[(image + 3, 1 + slot) for image in range(num_images)] for slot in range(4)]
    seen.append([(3, 5), (4, 5)])
    keypoint_ids = np.tile(np.array([-1, *point_ids]), num_images)
    keypoint_ids[np.arange(2, num_images) * 6 + 5] = -1
    return ColmapModel(
        cameras,
        ColmapImages(
            np.arange(3, 3 + num_images),
            quaternion,
            rng.normal(size=(num_images, 3)),
            np.array([camera.id for camera in cameras]),
            [f"folder {k}/ü.jpg" for k in range(num_images)],
            np.arange(num_images + 1) * 6,
            rng.uniform(0, 640, (num_images * 6, 2)),
            keypoint_ids,
        ),
        ColmapPoints(
            point_ids,
            rng.normal(size=(num_points, 3)) + np.array([0, 0, 9]),
            rng.integers(0, 256, (num_points, 3)).astype(np.uint8),
            np.full(num_points, 0.25),
            np.cumsum([0] + [len(track) for track in seen]),
            np.array([element for track in seen for element in track]),
        ),
    )


def assert_equal(a, b, skip=()):
    """Both models hold the same, to the last bit."""
    assert [(c.id, c.model, c.width, c.height, c.params.tolist()) for c in a.cameras] == [
        (c.id, c.model, c.width, c.height, c.params.tolist()) for c in b.cameras
    ]
    assert a.images.names == b.images.names
    for part in ("images", "points"):
        for name, value in vars(getattr(a, part)).items():
            if name != "names" and name not in skip:
                assert np.array_equal(value, getattr(getattr(b, part), name)), name


@pytest.mark.parametrize("form", [text, binary])
def test_every_bit_survives(form):
    """Formatting and parsing give the same model, in both forms."""
    model = make_model()
    again = ColmapModel(
        form.parse_cameras(form.format_cameras(model.cameras), "c"),
        form.parse_images(form.format_images(model.images), "i"),
        form.parse_points(form.format_points(model.points), "p"),
    )
    again.check("model")
    assert_equal(again, model)


def test_optimized_estimates_go_back(tmp_path):
    """The written model has changed poses, points and intrinsics, and all that was not in the graph."""
    colmap.write_colmap(make_model(), tmp_path / "in")
    graph = io.read(tmp_path / "in")
    graph.vertex_set("VERTEX_SE3:EXPMAP").estimate[2] = [1, 2, 3, 0.5, 0.5, 0.5, 0.5]
    graph.vertex_set("VERTEX_TRACKXYZ").estimate[1] = [4, 5, 6]
    graph.vertex_set("VERTEX_CAMERA_PINHOLE").estimate[0, 0] = 555
    chi2 = graph.chi2()
    for name, format in (("out", None), ("out_text", "colmap_text")):
        assert io.write(graph, tmp_path / name, format) == []
        again = colmap.read_colmap(tmp_path / name)
        expected = make_model()
        expected.images.quaternion[2] = 0.5
        expected.images.translation[2] = [1, 2, 3]
        expected.points.xyz[1] = [4, 5, 6]
        expected.cameras[1].params[0] = 555
        assert_equal(again, expected, skip=("error", "quaternion"))
        np.testing.assert_allclose(again.images.quaternion, expected.images.quaternion, rtol=1e-14)
        assert io.read(tmp_path / name).chi2() == pytest.approx(chi2, rel=1e-12)


def test_point_errors_are_those_of_the_estimates(tmp_path):
    """The written error of a point is the mean distance [px] of its observations, computed here by hand."""
    model = make_model()
    colmap.write_colmap(model, tmp_path / "in")
    graph = io.read(tmp_path / "in")
    graph.vertex_set(extra_types.POINT_TAG).estimate += 1e-9  # else the errors that were read stay
    io.write(graph, tmp_path / "out", "colmap")
    again = colmap.read_colmap(tmp_path / "out")
    q, t = model.images.quaternion[0], model.images.translation[0]
    distances = []
    for image_id, keypoint in model.points.track[-2:]:
        row = image_id - 3
        q, t = model.images.quaternion[row], model.images.translation[row]
        x, y, z = SE3(np.array([*t, *q[1:], q[0]])) * model.points.xyz[-1]
        params = model.cameras[row].params
        fx, fy, cx, cy = params if len(params) == 4 else (params[0], *params)
        pixel = np.array([fx * x / z + cx, fy * y / z + cy])
        distances.append(np.linalg.norm(pixel - model.images.xy[row * 6 + keypoint]))
    assert again.points.error[-1] == pytest.approx(np.mean(distances))


@pytest.mark.parametrize("as_text", [False, True])
def test_what_was_not_changed_keeps_its_bytes(tmp_path, as_text):
    """As graphs, with rigs; of one point that moved only its place and error are new."""
    made = pytest.importorskip("tests.colmap.test_adjustment").scene(seed=2, cameras_per_rig=3)
    colmap.bundle_adjustment(made, colmap.Options(refine_sensor_from_rig=False), device="cpu")
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (made.write_text if as_text else made.write_binary)(source)
    graph, form = io.read(source), "colmap_text" if as_text else "colmap"
    io.write(graph, target, form)
    for path in source.iterdir():
        assert (target / path.name).read_bytes() == path.read_bytes(), path.name
    graph.vertex_set(extra_types.POINT_TAG).estimate[5] += 0.1
    io.write(graph, target, form)
    before, after = (colmap.read_colmap(folder).points for folder in (source, target))
    for name in ("xyz", "error"):
        changed = (getattr(before, name) != getattr(after, name)).reshape(len(before.ids), -1).any(axis=1)
        assert np.flatnonzero(changed).tolist() == [5]


def test_removed_parts_are_left_out(tmp_path):
    """What was removed from the graph is missing in the model, and that is said."""
    colmap.write_colmap(make_model(), tmp_path / "in")
    graph = io.read(tmp_path / "in")
    graph.remove_vertices([0, 6 + 6 + 1])  # the first image and the second point
    graph.remove_edges("EDGE_PROJECT_RADIAL", [0])
    warnings = io.write(graph, tmp_path / "out", "colmap")
    assert len(warnings) == 3
    again = colmap.read_colmap(tmp_path / "out")
    assert again.images.ids.tolist() == [4, 5, 6, 7, 8]
    assert again.points.ids.tolist() == [100, 8, 9, 2**40]
    assert 7 not in again.images.point_ids
    assert io.read(tmp_path / "out").chi2() == pytest.approx(graph.chi2(), rel=1e-12)


def test_real_models(shared_data, tmp_path):
    """Real models give COLMAP's own mean errors and write back the same in both forms."""
    folders = {"gtsfm_crane_mast_8": 1.113, "gtsfm_lund_door_12": 0.355, "gtsfm_astrovision_4": 0.0}
    for name, mean_error in folders.items():
        model = colmap.read_colmap(shared_data / "colmap" / name)
        graph, report = io.read_with_report(shared_data / "colmap" / name)
        assert report.warnings == [] and graph.num_edges == len(model.points.track)
        io.write(graph, tmp_path / name, "colmap")
        again = colmap.read_colmap(tmp_path / name)
        assert_equal(again, model, skip=("error",))
        assert again.points.error.mean() == pytest.approx(mean_error, abs=0.01)
        shutil.rmtree(tmp_path / name)


@pytest.mark.parametrize("name", extra_types.COLMAP_MODELS)
def test_all_camera_models(tmp_path, name):
    """Each is read, written as text and binary, and a graph of it goes through a .g2o file."""
    model = make_model()
    rng = np.random.default_rng(3)
    count = CAMERA_MODELS[name].num_params
    params = rng.uniform(0.001, 0.01, count)
    for row, parameter in enumerate(CAMERA_MODELS[name].parameter_names):
        params[row] = {"f": 500.0, "fx": 500.0, "fy": 510.0, "cx": 320.0, "cy": 240.0}.get(
            parameter, params[row]
        )
    if name in ("EUCM", "FOV", "EQUIRECTANGULAR"):
        params[-2:] = {"EUCM": [0.6, 1.1], "FOV": [240.0, 0.6], "EQUIRECTANGULAR": [640.0, 480.0]}[name]
    model.cameras[0] = ColmapCamera(10, name, 640, 480, params)
    for as_text in (True, False):
        colmap.write_colmap(model, tmp_path / f"m{as_text}", as_text=as_text)
        assert_equal(colmap.read_colmap(tmp_path / f"m{as_text}"), model)
    graph = io.read(tmp_path / "mTrue")
    io.write(graph, tmp_path / "a.g2o")
    assert io.read(tmp_path / "a.g2o").chi2() == pytest.approx(graph.chi2(), rel=1e-12)


def test_wrong_models(tmp_path):
    """References to what is not there, double ids and impossible counts are refused."""

    def broken(change):
        model = make_model()
        change(model)
        with pytest.raises(FormatError) as error:
            model.check("m")
        return str(error.value)

    assert "names camera 99" in broken(lambda m: m.images.camera_ids.__setitem__(0, 99))
    assert "names image 77" in broken(lambda m: m.points.track.__setitem__((0, 0), 77))
    assert "names keypoint 6 of image 3, which has 6" in broken(
        lambda m: m.points.track.__setitem__((0, 1), 6)
    )
    assert "point id 7 is used twice" in broken(lambda m: m.points.ids.__setitem__(0, 7))
    assert "quaternion of length 0" in broken(lambda m: m.images.quaternion.__setitem__(0, 0.0))
    assert "not finite" in broken(lambda m: m.points.xyz.__setitem__((0, 0), np.inf))
    huge = (10**12).to_bytes(8, "little")
    for parse in (binary.parse_cameras, binary.parse_images, binary.parse_points):
        with pytest.raises(FormatError, match=r"1000000000000 .* cannot stand in the remaining 100 bytes"):
            parse(huge + bytes(100), "f.bin")
    with pytest.raises(FormatError, match=r"c.txt:1: PINHOLE: got 3 parameters, expected 4"):
        text.parse_cameras(b"1 PINHOLE 640 480 1 2 3\n", "c.txt")
    with pytest.raises(FormatError, match=r"i.txt:3: got 2 numbers, expected a multiple of 3"):
        text.parse_images(b"# c\n1 1 0 0 0 0 0 0 1 a.jpg\n1 2\n", "i.txt")
    with pytest.raises(FormatError, match=r"p.txt:1: got 9 numbers"):
        text.parse_points(b"1 0 0 0 1 2 3 0.5 7\n", "p.txt")


def test_folders(tmp_path):
    """One of its files stands for a model; a folder without one, and text beside binary, are refused."""
    colmap.write_colmap(make_model(), tmp_path / "m")
    assert io.detect_format(tmp_path / "m" / "images.bin") == "colmap"
    assert io.read(tmp_path / "m" / "points3D.bin").num_edges == len(make_model().points.track)
    with pytest.raises(FormatError, match=r"holds cameras.bin already"):
        colmap.write_colmap(make_model(), tmp_path / "m", as_text=True)
    with pytest.raises(FormatError, match=r"no cameras\.bin"):
        io.read(tmp_path)


@pytest.mark.parametrize("name", extra_types.CAMERA_VERTEX)
def test_intrinsics_move_without_the_principal_point(name):
    """The update of the intrinsics changes all but cx and cy, one number per component of the step."""
    kind = extra_types.CAMERA_VERTEX[name]
    start = np.arange(1.0, kind.storage_dim + 1)
    moved = np.asarray(kind.oplus(start, np.full(kind.tangent_dim, 0.5))) - start
    assert sorted(moved) == [0.0, 0.0] + [0.5] * kind.tangent_dim
    single = name in ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "LIBMV")
    assert moved[[1, 2] if single else [2, 3]].tolist() == [0, 0]


def test_tracks_are_read_by_image_ids_in_any_order():
    """Rows, pixels and counts; a track that names what is not there is told."""
    rng = np.random.default_rng(2)
    num_images, num_points = 9, 12_000
    ids = rng.permutation(10**12 * np.arange(num_images) + 5)
    start = np.cumsum([0, *rng.integers(0, 6, num_images)])
    start[-1] += 1
    lengths = rng.integers(0, 8, num_points)
    row = rng.choice(np.flatnonzero(np.diff(start)), lengths.sum())
    number = rng.integers(0, np.diff(start)[row])
    images = ColmapImages(
        ids, np.ones((num_images, 4)), np.ones((num_images, 3)), ids, [""] * num_images, start,
        rng.normal(size=(start[-1], 2)), np.zeros(start[-1], np.int64),
    )  # fmt: skip
    track = np.stack([ids[row], number], axis=1)
    nothing = np.empty((num_points, 3), np.uint8), np.empty(num_points)
    points = ColmapPoints(
        np.arange(num_points), np.ones((num_points, 3)), *nothing, np.cumsum([0, *lengths]), track
    )
    found = ColmapModel([], images, points).observations()
    np.testing.assert_array_equal(found.image_row, row)
    np.testing.assert_array_equal(found.point_row, np.repeat(np.arange(num_points), lengths))
    np.testing.assert_array_equal(found.pixel, images.xy[start[row] + number])
    np.testing.assert_array_equal(found.image_count, np.bincount(row, minlength=num_images))
    np.testing.assert_array_equal(found.track_length, lengths)
    track[40_000, 1] = 77
    with pytest.raises(FormatError, match=f"keypoint 77 of image {track[40_000, 0]}, which does not exist"):
        ColmapModel([], images, points).observations()


def test_a_folder_of_which_nothing_changes_is_not_written_anew(tmp_path):
    """It may be of another writer, with other digits, and without rigs and frames."""
    colmap.write_colmap(make_model(), tmp_path, as_text=True)
    for name in ("rigs.txt", "frames.txt"):
        (tmp_path / name).unlink()
    cameras = (tmp_path / "cameras.txt").read_text().replace(" 500 ", " 500.000 ")
    (tmp_path / "cameras.txt").write_text(cameras)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    constant = dict.fromkeys(("refine_focal_length", "refine_extra_params", "refine_rig_from_world"), False)
    options = colmap.Options(refine_points3D=False, **constant)
    summary = colmap.bundle_adjustment(tmp_path, options, device="cpu")
    assert summary.is_solution_usable()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    colmap.bundle_adjustment(tmp_path, colmap.Options(**constant), device="cpu")
    assert (tmp_path / "frames.txt").exists() and " 500.000 " not in (tmp_path / "cameras.txt").read_text()
