"""Models with rigs and frames: current COLMAP opens what is written, with the optimized poses."""

import shutil

import numpy as np
import pytest

import graphopt
from graphopt import colmap, io
from graphopt.colmap import binary, text
from graphopt.colmap.rigs import add_trivial, image_poses, places_of, to_storage
from graphopt.errors import FormatError
from graphopt.geometry import SE3
from tests.colmap.test_files import make_model


@pytest.fixture(scope="module")
def pycolmap():
    """Return COLMAP's binding, if it is installed."""
    return pytest.importorskip("pycolmap")


def unit(rng, count, spread):
    """(count, 7) w x y z, t near the identity."""
    q = np.tile([1.0, 0, 0, 0], (count, 1)) + spread * rng.normal(size=(count, 4))
    return np.concatenate(
        [q / np.linalg.norm(q, axis=1, keepdims=True), spread * rng.normal(size=(count, 3))], axis=1
    )


def rig_model(num_frames=5, num_points=40, noise=0.3):
    """Two cameras on one rig, one of them alone in the last frame; pixels of known poses with noise [px]."""
    rng = np.random.default_rng(4)
    cameras = [
        colmap.ColmapCamera(1, "PINHOLE", 640, 480, np.array([500.0, 500, 320, 240])),
        colmap.ColmapCamera(2, "SIMPLE_RADIAL", 640, 480, np.array([450.0, 320, 240, 0.01])),
    ]
    calibration = np.array([0.99, 0.0, 0.14, 0.0, -0.3, 0.02, 0.01])
    calibration[:4] /= np.linalg.norm(calibration[:4])
    rigs = [colmap.ColmapRig(7, [colmap.ColmapSensor(0, 1, None), colmap.ColmapSensor(0, 2, calibration)])]
    data = [np.array([[0, 1, 10 * f + 11], [0, 2, 10 * f + 12]]) for f in range(num_frames)]
    data[-1] = data[-1][1:]
    frames = colmap.ColmapFrames(
        np.arange(3, 3 + num_frames), np.full(num_frames, 7), unit(rng, num_frames, 0.1), data
    )
    image_ids = np.concatenate([rows[:, 2] for rows in data])
    camera_ids = np.concatenate([rows[:, 1] for rows in data])
    count = len(image_ids)
    points = rng.normal(size=(num_points, 3)) * [1.5, 1.0, 0.5] + [0, 0, 7]
    images = colmap.ColmapImages(
        image_ids,
        np.tile([1.0, 0, 0, 0], (count, 1)),
        np.zeros((count, 3)),
        camera_ids,
        [f"{image_id}.png" for image_id in image_ids],
        np.arange(count + 1) * num_points,
        np.zeros((count * num_points, 2)),
        np.tile(np.arange(num_points) + 100, count),
    )
    track = np.array([(image_id, k) for k in range(num_points) for image_id in image_ids])
    colmap_points = colmap.ColmapPoints(
        np.arange(num_points) + 100,
        points,
        np.full((num_points, 3), 128, np.uint8),
        np.full(num_points, -1.0),
        np.arange(num_points + 1) * count,
        track,
    )
    model = colmap.ColmapModel(cameras, images, colmap_points, rigs=rigs, frames=frames)
    poses = image_poses(places_of(model, "model"), to_storage(frames.pose))
    images.quaternion[:], images.translation[:] = poses[:, [6, 3, 4, 5]], poses[:, :3]
    for row, camera_id in enumerate(camera_ids):
        point_cam = np.asarray(SE3(poses[row : row + 1]).act(points))
        xy = point_cam[:, :2] / point_cam[:, 2:]
        if camera_id == 2:
            xy = 450.0 * xy * (1.0 + 0.01 * (xy**2).sum(axis=1, keepdims=True))
        else:
            xy = 500.0 * xy
        pixel = xy + [320, 240] + noise * rng.normal(size=xy.shape)
        images.xy[row * num_points : (row + 1) * num_points] = pixel
    return model


def assert_same_rigs(a, b):
    """Rigs and frames are equal to the last bit."""
    assert [rig.id for rig in a.rigs] == [rig.id for rig in b.rigs]
    for rig, other in zip(a.rigs, b.rigs, strict=True):
        assert [sensor[:2] for sensor in rig.sensors] == [sensor[:2] for sensor in other.sensors]
        for x, y in zip(rig.sensors, other.sensors, strict=True):
            assert (x.pose is None) == (y.pose is None) and np.array_equal(x.pose, y.pose)
    for name in ("ids", "rig_ids", "pose"):
        assert np.array_equal(getattr(a.frames, name), getattr(b.frames, name)), name
    assert all(np.array_equal(x, y) for x, y in zip(a.frames.data, b.frames.data, strict=True))


@pytest.mark.parametrize("as_text", [False, True])
def test_every_bit_survives(as_text, tmp_path):
    """Rigs and frames are read as they were written, in both forms."""
    model = rig_model()
    colmap.write_colmap(model, tmp_path / "a", as_text)
    assert_same_rigs(colmap.read_colmap(tmp_path / "a"), model)


@pytest.mark.oracle
@pytest.mark.parametrize("as_text", [False, True])
def test_pycolmap_opens_an_optimized_rig(as_text, pycolmap, tmp_path):
    """Poses of images, frames and points in pycolmap are those of the optimized graph."""
    colmap.write_colmap(rig_model(), tmp_path / "in")
    graph = io.read(tmp_path / "in")
    assert len(graph.vertex_set("VERTEX_SE3:EXPMAP")) == 5  # frames, not the nine images
    before = graph.chi2()
    rng = np.random.default_rng(1)
    poses = graph.vertex_set("VERTEX_SE3:EXPMAP").estimate
    poses[:] = np.asarray((SE3.exp(0.01 * rng.normal(size=(5, 6))) * SE3(poses)).storage)
    assert graph.chi2() > 10.0 * before
    graphopt.optimize(graph, max_iterations=30, device="cpu")
    assert graph.chi2() < before
    out = tmp_path / "out"
    io.write(graph, out, "colmap_text" if as_text else None)
    theirs = pycolmap.Reconstruction(str(out))
    ours = colmap.read_colmap(out)
    assert theirs.is_valid() if hasattr(theirs, "is_valid") else True
    assert (theirs.num_rigs(), theirs.num_frames(), theirs.num_images()) == (1, 5, 9)
    for row, image_id in enumerate(ours.images.ids.tolist()):
        pose = theirs.image(image_id).cam_from_world()
        np.testing.assert_allclose(pose.translation, ours.images.translation[row], atol=1e-12)
        w, x, y, z = ours.images.quaternion[row]
        np.testing.assert_allclose(np.abs(pose.rotation.quat @ [x, y, z, w]), 1.0, atol=1e-12)
    for id, estimate in zip(
        *(getattr(graph.vertex_set("VERTEX_SE3:EXPMAP"), n) for n in ("ids", "estimate")), strict=True
    ):
        frame = theirs.frame(theirs.image(int(ours.images.ids[id])).frame_id)
        np.testing.assert_allclose(frame.rig_from_world.translation, estimate[:3], atol=1e-12)
    theirs.update_point_3d_errors()
    for row, point_id in enumerate(ours.points.ids.tolist()):
        assert theirs.point3D(point_id).error == pytest.approx(ours.points.error[row], rel=1e-6)


@pytest.mark.oracle
def test_models_of_old_colmap_open_too(pycolmap, tmp_path):
    """A model without rigs gets one rig per camera and one frame per image; pycolmap has the new poses."""
    colmap.write_colmap(rig_model(), tmp_path / "in")
    for name in ("rigs.bin", "frames.bin"):
        (tmp_path / "in" / name).unlink()
    graph = io.read(tmp_path / "in")
    assert len(graph.vertex_set("VERTEX_SE3:EXPMAP")) == 9
    graph.vertex_set("VERTEX_SE3:EXPMAP").estimate[4] = [1, 2, 3, 0.5, 0.5, 0.5, 0.5]
    io.write(graph, tmp_path / "out")
    theirs = pycolmap.Reconstruction(str(tmp_path / "out"))
    image_id = int(colmap.read_colmap(tmp_path / "in").images.ids[4])
    np.testing.assert_allclose(theirs.image(image_id).cam_from_world().translation, [1, 2, 3], atol=1e-14)


@pytest.mark.oracle
def test_what_pycolmap_writes_is_read(pycolmap, tmp_path):
    """pycolmap's own files, binary and text, give the same model."""
    model = rig_model()
    colmap.write_colmap(model, tmp_path / "ours")
    theirs = pycolmap.Reconstruction(str(tmp_path / "ours"))
    for name, write in (("bin", theirs.write_binary), ("txt", theirs.write_text)):
        folder = tmp_path / name
        folder.mkdir()
        write(str(folder))
        again = colmap.read_colmap(folder)
        assert again.warnings == []
        np.testing.assert_allclose(
            again.frames.pose[np.argsort(again.frames.ids)], model.frames.pose, atol=1e-12
        )
        assert io.read(folder).chi2() == pytest.approx(io.read(tmp_path / "ours").chi2(), rel=1e-9)


def test_no_stale_file_stays(tmp_path):
    """Rigs and frames of another model in the folder are replaced; parts in another form are refused."""
    colmap.write_colmap(rig_model(), tmp_path / "a")
    graph_folder = tmp_path / "old"
    colmap.write_colmap(make_model(), graph_folder)
    for name in ("rigs.bin", "frames.bin"):
        (graph_folder / name).unlink()
    graph = io.read(graph_folder)
    io.write(graph, tmp_path / "a")
    written = colmap.read_colmap(tmp_path / "a")
    assert written.warnings == [] and len(written.frames.ids) == len(make_model().images.ids)
    (tmp_path / "a" / "frames.txt").write_text("")
    with pytest.raises(FormatError, match=r"holds frames.txt already"):
        io.write(graph, tmp_path / "a")
    with pytest.raises(FormatError, match=r"holds frames.txt already"):
        io.check_writable(tmp_path / "a")


def test_frames_decide_where_images_are_outdated(tmp_path):
    """As in COLMAP, the poses of frames are taken; the report says that images has others."""
    model = rig_model()
    model.images.translation[2] += 1.0
    colmap.write_colmap(model, tmp_path / "a")
    graph, report = io.read_with_report(tmp_path / "a")
    assert any("1 images have other poses" in warning for warning in report.warnings)
    expected = io.read(write_new(rig_model(), tmp_path / "b")).chi2()
    assert graph.chi2() == pytest.approx(expected, rel=1e-12)


def write_new(model, folder):
    """Write and return the folder."""
    colmap.write_colmap(model, folder)
    return folder


def test_removed_frames_are_left_out(tmp_path):
    """A vertex that is removed takes the images of its frame with it, and the frame."""
    graph = io.read(write_new(rig_model(), tmp_path / "a"))
    graph.remove_vertices([0])
    warnings = io.write(graph, tmp_path / "b")
    again = colmap.read_colmap(tmp_path / "b")
    assert "2 images were removed from the graph and are left out" in warnings
    assert again.frames.ids.tolist() == [4, 5, 6, 7] and 11 not in again.images.ids


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: m.frames.rig_ids.__setitem__(0, 9), "frame 3 names rig 9, which does not exist"),
        (lambda m: m.frames.ids.__setitem__(1, 3), "frame id 3 is used twice"),
        (lambda m: m.rigs[0].sensors.pop(), "rig 7 has no camera 2"),
        (lambda m: m.frames.pose.__setitem__((0, slice(0, 4)), 0.0), "frame 3: the pose"),
        (lambda m: m.frames.data.__setitem__(0, m.frames.data[0][:1]), "image 12 is in no frame"),
        (lambda m: m.frames.data.__setitem__(1, m.frames.data[0]), "image 11 is in two frames"),
        (lambda m: m.frames.data[0].__setitem__((0, 1), 2), "image 11 was taken by camera 1, not 2"),
    ],
)
def test_inconsistent_rigs_are_refused(damage, message, tmp_path):
    """The error names frame, rig and image."""
    model = rig_model()
    damage(model)
    colmap.write_colmap(model, tmp_path / "a")
    with pytest.raises(FormatError, match=message):
        io.read(tmp_path / "a")


def test_a_sensor_without_pose_cannot_be_optimized(tmp_path):
    """Where a rig does not say where its camera is, the error names both."""
    model = rig_model()
    model.rigs[0].sensors[1] = colmap.ColmapSensor(0, 2, None)
    colmap.write_colmap(model, tmp_path / "a")
    with pytest.raises(FormatError, match="camera 2 has no pose in rig 7"):
        io.read(tmp_path / "a")


def test_damaged_binary_files(tmp_path):
    """A file that ends early says so, with the place."""
    folder = write_new(rig_model(), tmp_path / "a")
    for name in ("rigs.bin", "frames.bin"):
        data = (folder / name).read_bytes()
        shutil.copytree(folder, tmp_path / "b", dirs_exist_ok=True)
        (tmp_path / "b" / name).write_bytes(data[:-3])
        with pytest.raises(FormatError, match=rf"{name}: ends in the middle of .*, at byte \d+"):
            io.read(tmp_path / "b")
        (tmp_path / "b" / name).write_bytes(data + b"xx")
        with pytest.raises(FormatError, match=rf"{name}: 2 bytes follow the last entry"):
            io.read(tmp_path / "b")


def test_formats_of_an_imu(tmp_path):
    """A rig may have sensors that take no images; they stay."""
    model = make_model()
    add_trivial(model)
    model.rigs[0].sensors.append(colmap.ColmapSensor(1, 99, None))
    model.frames.data[0] = np.concatenate([model.frames.data[0], [[1, 99, 5]]])
    for form in (binary, text):
        rigs = form.parse_rigs(form.format_rigs(model.rigs), "rigs")
        frames = form.parse_frames(form.format_frames(model.frames), "frames")
        assert rigs[0].sensors[1][:2] == (1, 99) and frames.data[0].tolist()[1] == [1, 99, 5]


def test_places_beyond_the_largest_double(tmp_path):
    """Finite numbers whose product is none are refused by name, when read or when written."""
    model = rig_model()
    pose = model.rigs[0].sensors[1].pose.copy()
    pose[4:] = 1.7e308
    model.rigs[0].sensors[1] = colmap.ColmapSensor(0, 2, pose)
    colmap.write_colmap(model, tmp_path / "a")
    with pytest.raises(FormatError, match="camera 2 of rig 7 stands beyond"):
        io.read(tmp_path / "a")
    graph = io.read(write_new(rig_model(), tmp_path / "b"))
    graph.vertex_set("VERTEX_SE3:EXPMAP").estimate[0, :3] = 1.7e308
    with pytest.raises(FormatError, match="image 12 stands beyond"):
        io.write(graph, tmp_path / "c")
    assert not (tmp_path / "c").exists()
