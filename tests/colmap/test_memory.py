"""pycolmap's memory is read as pycolmap says it, in one pass or one by one, and nothing else is touched."""

import copy
from typing import Any

import numpy as np
import pytest

import graphopt.colmap
from graphopt.colmap import memory
from graphopt.errors import FormatError, OptionError
from tests.colmap.test_adjustment import scene

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


@pytest.fixture(params=["one pass", "one by one"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "one by one":
        monkeypatch.setattr(memory, "layout", lambda: None)
    return request.param


def test_this_pycolmap_is_read_in_one_pass() -> None:
    assert memory.layout() is not None


def test_the_order_of_a_config_is_read_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ids in pycolmap's order; what has no memory there is no crash."""
    config = pycolmap.BundleAdjustmentConfig()
    for image in (70, 3, 500, 12, 4):
        config.add_image(image)
    config.add_constant_point(2**40)
    images, variable, constant = memory.order_in_config(config)
    assert set(images.tolist()) == config.images and len(variable) == 0 and constant.tolist() == [2**40]
    assert memory.order_in_config(None) is None
    with pytest.raises(OSError):
        memory._peek(8, 1)
    monkeypatch.setattr(memory, "_config", lambda config, is_held: 8)
    memory._config_layout.cache_clear()
    assert memory.order_in_config(config) is None
    monkeypatch.undo()
    memory._config_layout.cache_clear()


@pytest.mark.parametrize("cameras", [1, 2])
def test_numbers_are_pycolmaps(way: str, cameras: int) -> None:
    made = scene(seed=61, cameras_per_rig=cameras)
    made.delete_point3D(sorted(made.points3D)[7])
    model = memory.Scene(made).model
    assert model.points.ids.tolist() == sorted(made.points3D)
    for id_, xyz in zip(model.points.ids.tolist(), model.points.xyz, strict=True):
        np.testing.assert_array_equal(xyz, made.points3D[id_].xyz)
    expected = {
        (image, keypoint.point3D_id): keypoint.xy
        for image, value in made.images.items()
        for keypoint in value.points2D
        if keypoint.has_point3D()
    }
    image_row, point_row, pixel = model.observations()[:3]
    assert len(pixel) == len(expected)
    for row in range(len(pixel)):
        key = int(model.images.ids[image_row[row]]), int(model.points.ids[point_row[row]])
        np.testing.assert_array_equal(pixel[row], expected[key])


def test_what_is_constant_keeps_its_digits(way: str, tmp_path: Any) -> None:
    """Nothing refined: the files are the same, byte for byte."""
    made = scene(seed=62, cameras_per_rig=2)
    made.update_point_3d_errors()
    folders = []
    for name in ("before", "after"):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        made.write_binary(folders[-1])
        options = graphopt.colmap.Options(
            refine_focal_length=False,
            refine_extra_params=False,
            refine_rig_from_world=False,
            refine_sensor_from_rig=False,
            refine_points3D=False,
        )
        graphopt.colmap.bundle_adjustment(made, options, device="cpu")
    for file in sorted(folders[0].iterdir()):
        assert file.read_bytes() == (folders[1] / file.name).read_bytes(), file.name


def test_text_of_colmap_keeps_its_bytes(tmp_path: Any) -> None:
    """What pycolmap writes as text is written the same after it was read, comments and digits included."""
    made = scene(seed=63, cameras_per_rig=2)
    made.update_point_3d_errors()
    folders = [tmp_path / name for name in ("before", "after")]
    folders[0].mkdir()
    made.write_text(folders[0])
    graphopt.colmap.write_colmap(graphopt.colmap.read_colmap(folders[0]), folders[1], as_text=True)
    for file in sorted(folders[0].iterdir()):
        assert file.read_bytes() == (folders[1] / file.name).read_bytes(), file.name


def test_both_ways_have_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    made = scene(seed=63)
    first, second = copy.deepcopy(made), copy.deepcopy(made)
    graphopt.colmap.bundle_adjustment(first, device="cpu")
    monkeypatch.setattr(memory, "layout", lambda: None)
    graphopt.colmap.bundle_adjustment(second, device="cpu")
    for point in made.points3D:
        np.testing.assert_array_equal(first.points3D[point].xyz, second.points3D[point].xyz)


def test_points_that_changed_meanwhile_are_refused() -> None:
    made = scene(seed=64)
    taken = memory.Scene(made)
    refined = copy.deepcopy(taken.model)
    refined.points.xyz += 1.0
    made.delete_point3D(next(iter(made.points3D)))
    with pytest.raises((FormatError, RuntimeError), match="changed while"):
        taken.put(refined)


def test_keypoints_that_lost_their_point_by_hand_have_none() -> None:
    """pycolmap's count of an image's points does not notice it."""
    made = scene(seed=65)
    image = next(iter(made.images.values()))
    number = next(number for number, keypoint in enumerate(image.points2D) if keypoint.has_point3D())
    before = memory.Scene(made).model.observations()
    image.points2D[number].point3D_id = 2**64 - 1
    after = memory.Scene(made).model.observations()
    assert len(after.pixel) == len(before.pixel) - 1 == after.track_length.sum() == after.image_count.sum()


def _with(made: Any, what: str) -> Any:
    """The same with a number that is none."""
    if what == "point 1":
        made.points3D[1].xyz = [np.nan, 0.0, 1.0]
    elif what == "the keypoint of image 1":
        next(each for each in made.images[1].points2D if each.has_point3D()).xy = [np.inf, 1.0]
    elif what == "camera 1":
        made.cameras[1].params = [np.nan, *made.cameras[1].params[1:]]
    else:
        made.frame(2).rig_from_world = pycolmap.Rigid3d(pycolmap.Rotation3d(), [np.nan, 0.0, 0.0])
    return made


@pytest.mark.parametrize("what", ["point 1", "the keypoint of image 1", "camera 1", "frame 2"])
def test_what_is_not_finite_is_named_by_colmaps_ids(what: str) -> None:
    with pytest.raises(FormatError, match=what):
        graphopt.colmap.bundle_adjustment(_with(scene(seed=2), what), device="cpu")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bounds": {"min_depth": 1.0}}, "bounds are a dict"),
        ({"pose_priors": 3}, "a prior is a int"),
        ({"residuals": 3}, "a residual is a int"),
        ({"device": 3}, "device is 3"),
    ],
)
def test_wrong_types_are_named(given: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        graphopt.colmap.bundle_adjustment(scene(), **({"device": "cpu"} | given))


def test_rigs_without_frames_are_not_replaced(tmp_path: Any) -> None:
    """They would be, unread."""
    scene().write_binary(tmp_path)
    kept = (tmp_path / "rigs.bin").read_bytes()
    (tmp_path / "frames.bin").unlink()
    with pytest.raises(FormatError, match=r"rigs\.bin: stands here without frames"):
        graphopt.colmap.bundle_adjustment(tmp_path, device="cpu")
    assert (tmp_path / "rigs.bin").read_bytes() == kept
