"""Covariances are those of `pycolmap.estimate_ba_covariance` with the same gauge, to 1e-6."""

import copy
from typing import Any

import numpy as np
import pytest
from pycolmaps import adjuster_for_covariances, need_field, need_sensor_poses

import graphopt.colmap
from graphopt.errors import OptionError, SolverError
from graphopt.vulkan.cholesky import DeviceCholesky
from tests.colmap.test_adjustment import scene
from tests.colmap.test_config import all_images

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


def constant_points(made: Any) -> Any:
    config = all_images(made, "UNSPECIFIED")
    for point in sorted(made.points3D)[:3]:
        config.add_constant_point(point)
    return config


def constant_frames(made: Any) -> Any:
    config = all_images(made, "UNSPECIFIED")
    for frame in sorted(made.frames)[:2]:
        config.set_constant_rig_from_world_pose(frame)
    return config


CASES = {
    "two cameras": (all_images, {}),
    "constant points": (constant_points, {}),
    "constant frames": (constant_frames, {}),
    "rotations held": (constant_frames, {"constant_rig_from_world_rotation": True}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_covariances_are_colmaps(name: str) -> None:
    """Poses of reference cameras, intrinsics, and points given all others."""
    config_of, fields = CASES[name]
    made = scene(seed=31)
    graphopt.colmap.bundle_adjustment(made, device="cpu")
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    for field, value in fields.items():
        need_field(options, field, value)
    theirs = copy.deepcopy(made)
    adjuster = adjuster_for_covariances()(options, config_of(theirs), theirs)
    asked = pycolmap.BACovarianceOptions()
    asked.damping = 1e-12
    expected = pycolmap.estimate_ba_covariance(asked, theirs, adjuster)
    assert expected is not None
    found = graphopt.colmap.covariance(
        made, intrinsics=True, points="conditional", options=options, config=config_of(made)
    )
    for identifier in made.images:
        close(found.get_cam_cov_from_world(identifier), expected.get_cam_cov_from_world(identifier))
    for identifier, camera in theirs.cameras.items():
        close(found.intrinsics.get(identifier), expected.get_other_params_cov(camera.params))
    for point in sorted(made.points3D)[:20]:
        close(found.get_point_cov(point), expected.get_point_cov(point))


def close(found: np.ndarray | None, expected: np.ndarray | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_cameras_on_rigs_are_propagated() -> None:
    """Against finite differences of cam_T_world = sensor_T_rig rig_T_world, both uncertain."""
    need_sensor_poses()
    made = scene(seed=32, cameras_per_rig=2)
    graphopt.colmap.bundle_adjustment(made, device="cpu")
    model = graphopt.colmap.memory.Scene(made).model
    problem = graphopt.colmap.problem_of(model, graphopt.colmap.Options(), hold_scale=True)
    found = graphopt.colmap.covariance(made)
    row = next(row for row in range(len(model.images.ids)) if problem.places.offset[row] >= 0 and row > 4)
    frame, sensor = (
        int(problem.places.owner[row]),
        problem.first_sensor + int(problem.places.offset[row]),
    )
    pairs = [(frame, frame), (frame, sensor), (sensor, sensor)]
    blocks = graphopt.compute_marginals(problem.graph, pairs)
    joint = np.block(
        [
            [blocks[frame, frame], blocks[frame, sensor]],
            [blocks[frame, sensor].T, blocks[sensor, sensor]],
        ]
    )
    from graphopt.geometry import SE3, SO3

    start = [np.array(problem.graph.vertex(id_).estimate) for id_ in (frame, sensor)]
    types = [problem.graph.vertex(id_).type for id_ in (frame, sensor)]

    def composed(delta: np.ndarray) -> SE3:
        rig, cam = (kind.oplus(x, d) for kind, x, d in zip(types, start, np.split(delta, 2), strict=True))
        return SE3(np.asarray(cam)) * SE3(np.asarray(rig))

    columns = []
    for k in range(12):
        step = 1e-6 * np.eye(12)[k]
        ahead, behind = composed(step), composed(-step)
        turned = SO3(ahead.quaternion) * SO3(behind.quaternion).inverse()
        columns.append(
            np.concatenate([turned.log(), np.asarray(ahead.translation - behind.translation)]) / 2e-6
        )
    jacobian = np.stack(columns, axis=1)
    expected = jacobian @ joint @ jacobian.T
    np.testing.assert_allclose(
        found.poses[int(model.images.ids[row])], expected, atol=1e-7 * np.abs(expected).max()
    )


def test_a_free_gauge_is_refused_or_projected() -> None:
    made = scene(seed=33)
    graphopt.colmap.bundle_adjustment(made, device="cpu")
    with pytest.raises(SolverError, match="singular"):
        graphopt.colmap.covariance(made, gauge="UNSPECIFIED")
    found = graphopt.colmap.covariance(made, gauge="UNSPECIFIED", singular="pseudo-inverse")
    assert set(found.poses) == set(made.images)
    with pytest.raises(OptionError, match="image 99"):
        graphopt.colmap.covariance(made, poses=[99])
    with pytest.raises(OptionError, match="conditional"):
        graphopt.colmap.covariance(made, points="all")


@pytest.mark.parametrize("intrinsics", [False, True])
def test_a_queue_of_the_gpu_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, intrinsics: bool) -> None:
    """On a GPU it makes the queue of S itself, which software drivers leave to the CPU."""
    made = scene(seed=32)
    found = []
    for queue in ("cpu", "gpu"):
        asked: list[str] = []
        monkeypatch.setattr(
            "graphopt.vulkan.kernels.schur.choose_work_queues",
            lambda *_, queue=queue, asked=asked: asked.append(queue) or queue,
        )
        found.append(graphopt.colmap.covariance(made, intrinsics=intrinsics, device="vulkan"))
        assert asked == [queue]
    expected = graphopt.colmap.covariance(made, intrinsics=intrinsics)
    assert found[0].poses.keys() == found[1].poses.keys() == expected.poses.keys()
    for one, covariance in expected.poses.items():
        np.testing.assert_array_equal(found[0].poses[one], found[1].poses[one])
        np.testing.assert_allclose(
            found[1].poses[one], covariance, rtol=1e-6, atol=1e-9 * np.abs(covariance).max()
        )
    for one, covariance in expected.intrinsics.items():
        np.testing.assert_allclose(found[1].intrinsics[one], covariance, rtol=1e-6)


def test_buffers_past_4_gib_are_divided_or_addressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With that limit at 2 kB: H and S by addresses, columns of the inverse solved for some at a time."""
    made = scene(seed=34)
    usual = graphopt.colmap.covariance(made, intrinsics=True, device="vulkan")
    monkeypatch.setattr("graphopt.vulkan.program.LARGE_BYTES", 2000)
    monkeypatch.setattr("graphopt.vulkan.cholesky.factor._LARGE_BYTES", 2000)
    monkeypatch.setattr("graphopt.vulkan.cholesky.inverse._MOST_ENTRIES", 1)
    solved: list[int] = []
    record = DeviceCholesky.record_solve

    def noted(self: Any, recorder: Any, rhs: Any, x: Any, num_rhs: int = 1) -> None:
        solved.append(num_rhs)
        record(self, recorder, rhs, x, num_rhs)

    monkeypatch.setattr(DeviceCholesky, "record_solve", noted)
    divided = graphopt.colmap.covariance(made, intrinsics=True, device="vulkan")
    rows = 6 * len(made.frames) - 7 + 2
    assert len(solved) > 1 and max(solved) * rows * 8 < 2000  # columns of the inverse, some at a time
    assert usual.poses.keys() == divided.poses.keys() != set()
    for one, covariance in usual.poses.items():
        np.testing.assert_allclose(divided.poses[one], covariance, atol=1e-9 * np.abs(covariance).max())
    for one, covariance in usual.intrinsics.items():
        np.testing.assert_allclose(divided.intrinsics[one], covariance, atol=1e-9 * np.abs(covariance).max())
