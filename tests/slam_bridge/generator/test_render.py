"""Rendered images are geometrically exact: corners of known place appear where the camera projects them."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera
from slam_bridge.generator import Box, Face, ImageMaker, ImageOptions, Renderer, Scene, Texture, sensors
from slam_bridge.generator.images import _TARGET
from slam_bridge.generator.scene import FACE_AXES, scene_around
from slam_bridge.generator.texture import LEVELS
from slam_bridge.generator.trajectory import Trajectory

SQUARE = 0.5  # [m]
TEXEL = 0.005
LOOKING_X = SE3.from_parts(
    np.zeros(3), SO3.from_matrix(np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])).storage
)
MODELS = {
    "pinhole": ("pinhole", [225.0, 226.0, 179.7, 120.2]),
    "radtan": ("radtan", [225.0, 223.0, 178.0, 119.0, -0.28, 0.07, 2e-4, 2e-5, 0.0]),
    "kb8": ("kb8", [105.0, 105.5, 179.0, 121.0, 3.5e-3, 7e-4, -2e-3, 2e-4]),
    "double_sphere": ("double_sphere", [90.0, 90.5, 179.0, 120.0, -0.2, 0.6]),
    "omni": ("omni", [195.0, 196.0, 179.0, 120.0, 0.9, -0.05, 0.01, 1e-4, 1e-4]),
}


def checker(columns: int, rows: int) -> Texture:
    """Squares of `SQUARE`."""
    n = round(SQUARE / TEXEL)
    grid = (np.add.outer(np.arange(rows), np.arange(columns)) % 2) * 170 + 40
    return Texture(np.kron(grid, np.ones((n, n))).astype(np.uint8), TEXEL)


def checker_box(half: np.ndarray, centre: np.ndarray, yaw: float = 0.0) -> Box:
    faces = [Face(checker(*(round(2 * half[axis] / SQUARE) for axis in axes))) for axes in FACE_AXES]
    return Box(np.asarray(centre, float), np.asarray(half, float), yaw, tuple(faces))


def checker_scene() -> Scene:
    room = checker_box(np.array([3.0, 2.5, 1.5]), np.array([0.5, 0.0, 0.0]))
    return Scene(room, (checker_box(np.array([0.5, 0.5, 0.75]), np.array([2.2, -1.0, -0.75]), 0.5),))


def corners_of(box: Box, face: int, shift: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """(n, 3) corners of squares inside a face, in the world, shifted along the face."""
    across, down = FACE_AXES[face]
    counts = [round(2 * box.half[axis] / SQUARE) for axis in (across, down)]
    i, j = np.meshgrid(np.arange(1, counts[0]), np.arange(1, counts[1]), indexing="ij")
    local = np.zeros((i.size, 3))
    local[:, face // 2] = box.half[face // 2] * (1 if face % 2 else -1)
    local[:, across] = i.ravel() * SQUARE - box.half[across] + shift[0]
    local[:, down] = j.ravel() * SQUARE - box.half[down] + shift[1]
    return box.centre + local @ box.world_R_box.T


def saddle(grey: np.ndarray, at: np.ndarray, reach: int = 5) -> np.ndarray:
    """Corner nearest to a pixel (u, v): where image gradients point past (Foerstner), iterated."""
    gy, gx = np.gradient(gaussian_filter(grey, 1.2))
    for _ in range(5):
        u0, v0 = np.rint(at).astype(int)
        window = np.s_[v0 - reach : v0 + reach + 1, u0 - reach : u0 + reach + 1]
        v, u = np.mgrid[window]
        weight = np.exp(-((u - at[0]) ** 2 + (v - at[1]) ** 2) / 8.0)
        a, b, c = (
            np.sum(weight * product)
            for product in (gx[window] ** 2, gx[window] * gy[window], gy[window] ** 2)
        )
        right = [
            np.sum(weight * (gx[window] ** 2 * u + gx[window] * gy[window] * v)),
            np.sum(weight * (gx[window] * gy[window] * u + gy[window] ** 2 * v)),
        ]
        at = np.linalg.solve([[a, b], [b, c]], right)
    return at


def visible(view, camera: Camera, points: np.ndarray, pixels: np.ndarray, face: int) -> np.ndarray:
    """Corners whose neighbourhood lies in one face of the image."""
    width, height = camera.resolution
    kept = []
    for k, (u, v) in enumerate(np.nan_to_num(pixels, nan=-1.0)):
        u0, v0 = round(u), round(v)
        if camera.sees(points[k]) and 9 <= u0 < width - 9 and 9 <= v0 < height - 9:
            near = view.face[v0 - 8 : v0 + 9, u0 - 8 : u0 + 9]
            kept.append(bool((near == face).all()))
        else:
            kept.append(False)
    return np.array(kept, bool)


@pytest.mark.parametrize(
    ("name", "supersample"), [*((name, None) for name in MODELS), ("pinhole", 1), ("kb8", 1), ("kb8", 3)]
)
def test_corners_appear_where_the_camera_projects_them(name, supersample):
    """To 0.1 pixel, on walls and on a turned box, in every model; with one ray per pixel 95 % of them."""
    camera = Camera(LOOKING_X.storage, MODELS[name][0], np.array(MODELS[name][1]), resolution=(360, 240))
    scene = checker_scene()
    renderer = Renderer(camera, scene) if supersample is None else Renderer(camera, scene, supersample)
    turned = SO3.exp(np.array([0.03, -0.05, 0.1])).storage
    pose = np.asarray(SE3.from_parts(np.array([-0.3, 0.2, 0.1]), turned).storage)
    view = renderer.render(pose)
    errors, faces = [], set()
    for number, box in enumerate((scene.room, *scene.boxes)):
        for face in range(6):
            points = camera.in_camera(pose, corners_of(box, face))
            pixels = camera.project(points)
            steps = [
                camera.project(camera.in_camera(pose, corners_of(box, face, corner))) - pixels
                for corner in ((SQUARE, 0.0), (0.0, SQUARE))
            ]
            # the next line of the grid must lie outside of the window in which a corner is measured
            area = np.abs(steps[0][:, 0] * steps[1][:, 1] - steps[0][:, 1] * steps[1][:, 0])
            apart = area / np.maximum(*(np.linalg.norm(step, axis=1) for step in steps))
            seen = visible(view, camera, points, pixels, 6 * number + face)
            for k in np.flatnonzero(seen & (apart > 14.0)):
                errors.append(saddle(view.grey.astype(float), pixels[k]) - pixels[k])
                faces.add(6 * number + face)
    errors = np.array(errors)
    assert len(errors) > 15 and len(faces) >= 2
    assert np.quantile(np.abs(errors), 0.95) < 0.1
    assert np.abs(errors).max() < (0.3 if supersample == 1 else 0.1)
    assert np.abs(errors.mean(axis=0)).max() < 0.02


def test_depth_is_the_distance_to_the_faces():
    """Depth times ray, from the camera's place, lies on the face that the pixel names."""
    rig = sensors("tumvi").rig.scaled(0.25)
    scene = checker_scene()
    pose = np.array([0.2, -0.1, 0.0, 0.0, 0.0, 0.0, 1.0])
    view = Renderer(rig[0], scene).render(pose)
    u, v = np.meshgrid(np.arange(128), np.arange(128))
    rays = rig[0].unproject(np.stack([u, v], axis=-1).astype(float))
    places = (SE3(pose) * SE3(rig[0].body_T_cam)).act(rays * view.depth[..., None])
    assert (view.face >= 0).mean() > 0.9 and len(np.unique(view.face)) > 4
    for number, box in enumerate((scene.room, *scene.boxes)):
        for face in range(6):
            local = box.to_box(places[view.face == 6 * number + face])
            side = box.half[face // 2] * (1 if face % 2 else -1)
            np.testing.assert_allclose(local[:, face // 2], side, atol=1e-4)
            assert (np.abs(local) <= box.half + 1e-4).all()


def test_pixels_without_a_ray_are_black():
    """A fisheye's corners, beyond what its model reaches, have grey 0, face -1 and infinite depth."""
    camera = Camera(
        LOOKING_X.storage, "kb8", np.array([20.0, 20.0, 63.5, 63.5, 0.1, -0.1, 0, 0]), resolution=(128, 128)
    )
    view = Renderer(camera, checker_scene()).render(np.array([0, 0, 0, 0, 0, 0, 1.0]))
    assert view.face[0, 0] == -1 and view.grey[0, 0] == 0.0 and np.isinf(view.depth[0, 0])
    assert view.face[64, 64] >= 0 and view.grey[64, 64] > 30.0


def test_texture_levels_keep_the_mean_and_the_place():
    """A large footprint gives the mean of its surroundings; a small one the texel itself."""
    generator = np.random.default_rng(0)
    texture = Texture(generator.integers(0, 256, (256, 256)).astype(np.uint8), 0.01)
    at = np.array([0.105, 1.285], np.float32)
    fine = texture.sample(at, at[::-1].copy(), np.full(2, 0.001, np.float32))
    np.testing.assert_allclose(fine, [texture.grey[128, 10], texture.grey[10, 128]], atol=0.1)
    coarse = texture.sample(np.float32([1.28]), np.float32([1.28]), np.float32([0.01 * 2 ** (LEVELS - 1)]))
    assert coarse[0] == pytest.approx(texture.grey[96:160, 96:160].mean(), abs=4.0)


def still() -> Trajectory:
    """Two seconds at one place, turning about z by 1 rad/s."""
    stamps = np.arange(0, 2_000_000_000, 10_000_000, dtype=np.int64)
    turned = SO3.exp(np.stack([0 * stamps, 0 * stamps, stamps * 1e-9], axis=1).astype(float)).storage
    return Trajectory.fit(stamps, SE3.from_parts(np.zeros((len(stamps), 3)), turned).storage)


def test_exposure_noise_and_blur():
    """Factor, automatic exposure, noise and motion blur do what they say."""
    camera = Camera(LOOKING_X.storage, "pinhole", np.array([150.0, 150, 60, 40]), resolution=(120, 80))
    renderer = Renderer(camera, checker_scene())

    def image(stamp: int = 1_000_000_000, **options) -> np.ndarray:
        return ImageMaker(renderer, still(), ImageOptions(**{"noise": 0.0, **options})).image(stamp)

    plain = image()
    np.testing.assert_allclose(image(exposure=0.5), 0.5 * plain, rtol=1e-5)
    assert image(exposure="auto").mean() == pytest.approx(_TARGET, rel=0.05)
    assert np.std(image(noise=4.0) - plain) == pytest.approx(4.0, rel=0.1)
    blurred = image(shutter=0.04, blur_samples=9)
    across = [np.abs(np.diff(image, axis=1)).max(axis=1).mean() for image in (plain, blurred)]
    assert across[1] < 0.5 * across[0]  # six pixels along the rows
    turned = ImageMaker(renderer, still(), ImageOptions(noise=0.0)).image(1_020_000_000)
    assert np.abs(turned - plain).mean() > 5.0


@pytest.mark.parametrize(
    "options", [{"exposure": "bright"}, {"shutter": 1.0}, {"noise": -1.0}, {"exposure": 0.0}]
)
def test_image_options_are_checked(options):
    """What no camera has is refused."""
    with pytest.raises(OptionError):
        ImageOptions(**options)


@pytest.mark.parametrize("place", ["room", "hall", "corridor", "outdoors"])
def test_scenes_leave_the_trajectory_free(place):
    """The path stays within the room and outside of all boxes; the same seed gives the same scene."""
    path = np.arange(200.0)[:, None] * [0.02, 0.01, 0.0] + np.array([0.0, 0.0, 1.5])
    rest = np.broadcast_to([0.0, 0.0, 0.0, 1.0], (200, 4))
    trajectory = Trajectory.fit(np.arange(200, dtype=np.int64) * 50_000_000, np.hstack([path, rest]))
    scene, again = scene_around(trajectory, place, 5), scene_around(trajectory, place, 5)
    assert (np.abs(scene.room.to_box(path)) < scene.room.half - 0.3).all()
    assert len(scene.boxes) > 0
    for box, same in zip(scene.boxes, again.boxes, strict=True):
        assert (np.abs(box.to_box(path)) > box.half).any(axis=1).all()
        np.testing.assert_array_equal(box.centre, same.centre)
    np.testing.assert_array_equal(scene.room.faces[2].texture.grey, again.room.faces[2].texture.grey)
