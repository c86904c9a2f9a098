"""Examples on images: exact solutions, energies and minima without the library, and Opt's pictures."""

from pathlib import Path

import numpy as np
import pytest
from examples_modules import (
    command,
    image_warping,
    images,
    optical_flow,
    own_types,
    poisson_editing,
    shape_from_shading,
    to_be_gained,
)

import graphopt

__all__ = ["own_types"]  # a fixture of this module

OPT = ("graphics", "opt")


def opt_files(shared_data, *names):
    """Paths of Opt's files as arguments."""
    return [str(shared_data.joinpath(*OPT, name)) for name in names]


# ------------------------------------------------------------------ Poisson image editing


def pasted_by_scipy(target, source, mask):
    """The normal equations of the energy, solved directly."""
    from scipy.sparse import lil_matrix
    from scipy.sparse.linalg import spsolve

    row_of = {place: k for k, place in enumerate(zip(*np.nonzero(mask), strict=True))}
    matrix, right = lil_matrix((len(row_of), len(row_of))), np.zeros((len(row_of), 3))
    for (i, j), k in row_of.items():
        for p, q in ((i, j + 1), (i, j - 1), (i + 1, j), (i - 1, j)):
            if 0 <= p < mask.shape[0] and 0 <= q < mask.shape[1]:
                matrix[k, k] += 1.0
                right[k] += source[i, j] - source[p, q]
                if (p, q) in row_of:
                    matrix[k, row_of[p, q]] -= 1.0
                else:
                    right[k] += target[p, q]
    result = target.copy()
    result[mask] = spsolve(matrix.tocsr(), right)
    return result


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
def test_pasted_picture_is_that_of_scipy(solver):
    """A linear problem: one iteration solves it."""
    target, source, mask = poisson_editing.generated(24)
    mask[0, :5] = True  # also at the border
    found, _ = poisson_editing.paste(target, source, mask, device="cpu", linear_solver=solver)
    expected = pasted_by_scipy(target, source, mask)
    np.testing.assert_allclose(found, expected, atol=1e-10 if solver == "cholesky" else 1e-5)
    np.testing.assert_array_equal(found[~mask], target[~mask])


@pytest.mark.data
def test_faces(shared_data, tmp_path):
    """Opt's pictures: no seam, and the source's gradients inside."""
    paths = opt_files(shared_data, "poisson0.png", "poisson1.png", "poisson_mask.png")
    result, summary = poisson_editing.main(
        ["--data", *paths, "--device", "cpu", "-o", str(tmp_path / "faces.png")]
    )
    target, source, mask = (images.read(Path(path)) for path in paths)
    mask = mask[:, :, 0] > 0.5
    seam = mask ^ images.shifted(mask, (0, 1))
    seam[:, -1] = False

    def jump(picture):
        wanted = picture - images.shifted(picture, (0, 1)) - source + images.shifted(source, (0, 1))
        return np.abs(wanted[seam]).mean()

    assert jump(result) < 0.25 * jump(np.where(mask[:, :, None], source, target))
    assert summary.final_chi2 == pytest.approx(2.50826, rel=1e-4)
    assert images.read(tmp_path / "faces.png").shape == (320, 4 * 448, 3)


# ------------------------------------------------------------------ image warping


def warp_residual(inside, constraints, fit=100.0, rigid=0.01):
    """Residuals at (x, y, angle) of the pixels inside, written without the library."""
    y, x = np.nonzero(inside)
    row_of = {place: k for k, place in enumerate(zip(y.tolist(), x.tolist(), strict=True))}
    pairs = [
        (k, row_of[i + p, j + q], -q, -p)
        for (i, j), k in row_of.items()
        for p, q in ((0, 1), (0, -1), (1, 0), (-1, 0))
        if (i + p, j + q) in row_of
    ]
    first, second, before_x, before_y = np.array(pairs).T
    held = [row_of[int(b), int(a)] for a, b in constraints[:, :2]]

    def residual(state):
        px, py, angle = state.reshape(3, -1)
        cos, sin = np.cos(angle[first]), np.sin(angle[first])
        along = px[first] - px[second] - (cos * before_x - sin * before_y)
        across = py[first] - py[second] - (sin * before_x + cos * before_y)
        missed = np.stack([px[held], py[held]], axis=1) - constraints[:, 2:]
        return np.concatenate(
            [np.sqrt(rigid) * along, np.sqrt(rigid) * across, np.sqrt(fit) * missed.ravel()]
        )

    return residual


def test_warped_bar_is_at_its_minimum():
    """The energy that numpy computes, and nothing to be gained there."""
    inside = np.zeros((7, 16), bool)
    inside[2:5, 1:15] = True
    constraints = np.array([[2, 3, 2, 4], [8, 3, 8, 1], [13, 3, 13, 4]], float)
    places, summary = image_warping.warp(inside, constraints, device="cpu")
    residual, found = warp_residual(inside, constraints), places[inside].T.ravel()
    assert residual(found) @ residual(found) == pytest.approx(summary.final_chi2, rel=1e-9)
    assert to_be_gained(residual, found) < 1e-5 < to_be_gained(residual, found + 0.01 * np.sin(found))
    assert np.isnan(places[~inside]).all()


def test_rendering_leaves_a_picture_in_its_place():
    """Pixels that stay have their colour."""
    picture, inside, _ = image_warping.generated()
    y, x = np.mgrid[: inside.shape[0], : inside.shape[1]].astype(float)
    rendered = image_warping.render(picture, np.dstack([x, y]), samples=8)
    assert np.abs(rendered - picture)[2:-2, 2:-2].mean() < 0.1
    moved = image_warping.render(picture, np.dstack([x + 5.0, y]), samples=8)
    np.testing.assert_allclose(moved[:, 10:-10], rendered[:, 5:-15], atol=1e-12)


@pytest.mark.data
def test_cat(shared_data, tmp_path):
    """Opt's cat: the constraints are met, and nothing is stretched much."""
    paths = opt_files(shared_data, "cat512.png", "cat512_mask.png", "cat512.constraints")
    output = tmp_path / "cat.png"
    places, summary = image_warping.main(
        ["--data", *paths, "--shrink", "8", "--device", "cpu", "-o", str(output)]
    )
    _, inside, constraints = image_warping.read([Path(path) for path in paths], 8)
    x, y = constraints[:, :2].round().astype(int).T
    np.testing.assert_allclose(places[y, x, :2], constraints[:, 2:], atol=0.01)
    residual = warp_residual(inside, np.column_stack([x, y, constraints[:, 2:]]))
    error = residual(places[inside].T.ravel())
    assert error @ error == pytest.approx(summary.final_chi2, rel=1e-9)
    assert summary.final_chi2 == pytest.approx(1.6428, rel=1e-3)
    stretch = np.linalg.norm(np.diff(places[:, :, :2], axis=1), axis=2)
    assert np.nanmedian(np.abs(stretch - 1.0)) < 0.1
    assert images.read(output).shape == (64, 128, 3)


# ------------------------------------------------------------------ shape from shading


def shading_residual(scan, fit=2000.0, smooth=1000.0, largest=0.17):
    """Residuals at the depth, the robust ones as roots of their cost, written without the library."""
    rows, columns = scan.depth.shape
    f_x, f_y, c_x, c_y = scan.camera
    y, x = np.mgrid[:rows, :columns].astype(float)
    a, b = (x - c_x) / f_x, (y - c_y) / f_y
    mean = 0.5 * scan.intensity[1:, 1:] + 0.25 * (scan.intensity[1:, :-1] + scan.intensity[:-1, 1:])

    def residual(flat):
        d = flat.reshape(rows, columns)
        points = np.stack([a * d, b * d, d])
        here = points[:, 1:, 1:]
        normal = np.cross(points[:, :-1, 1:] - here, points[:, 1:, :-1] - here, axis=0)
        n_x, n_y, n_z = normal / np.linalg.norm(normal, axis=0)
        bands = np.stack(
            [np.ones_like(n_x), n_y, n_z, n_x, n_x * n_y, n_y * n_z, 2 * n_z**2 - n_x**2 - n_y**2]
        )
        bands = np.concatenate([bands, [n_z * n_x, n_x**2 - n_y**2]])
        difference = np.tensordot(scan.light, bands, 1) - mean
        beside = (difference[:, :-1] - difference[:, 1:])[:-1]
        below = (difference[:-1] - difference[1:])[:, :-1]
        laplacian = 4.0 * points[:, 1:-1, 1:-1] - points[:, 1:-1, :-2] - points[:, 1:-1, 2:]
        laplacian = laplacian - points[:, :-2, 1:-1] - points[:, 2:, 1:-1]
        shades = np.concatenate([beside.ravel(), below.ravel()])
        shades = shades / np.sqrt(1.0 + (shades / largest) ** 2)
        scanned = np.sqrt(fit) * (d - scan.depth).ravel()
        return np.concatenate([scanned, np.sqrt(smooth) * laplacian.ravel(), shades])

    return residual


def test_refined_depth_is_at_its_minimum():
    """The energy that numpy computes, nothing to be gained there, and nearer to the truth than the scan."""
    scan = shape_from_shading.generated(18)
    depth, summary = shape_from_shading.refine(scan, device="cpu")
    residual = shading_residual(scan)
    error = residual(depth.ravel())
    assert error @ error == pytest.approx(summary.final_chi2, rel=1e-9)
    assert to_be_gained(residual, depth.ravel()) < 1e-3 < to_be_gained(residual, scan.depth.ravel())
    truth = shape_from_shading.generated(18, noise=0.0).depth
    assert np.abs(depth - truth).mean() < 0.8 * np.abs(scan.depth - truth).mean()


@pytest.mark.data
def test_relief(shared_data, tmp_path):
    """Opt's scan of a relief: the refined depth explains the picture better, and is near the scan."""
    arguments = ["--data", *opt_files(shared_data, "shape_from_shading"), "--shrink", "4", "--device", "cpu"]
    scan, depth, summary = shape_from_shading.main([*arguments, "-o", str(tmp_path / "relief.png")])
    assert summary.final_chi2 < 0.8 * summary.initial_chi2
    known = scan.depth > 0.0
    assert 11_000 < known.sum() < 12_500
    assert 0.37 < scan.depth[known].min() < scan.depth[known].max() < 0.57
    assert np.abs(depth - scan.depth)[known].mean() < 0.001
    np.testing.assert_array_equal(depth[~known], 0.0)


# ------------------------------------------------------------------ optical flow


def test_flow_of_a_turned_pattern():
    """The true motion, and the energy that numpy computes."""
    from scipy.ndimage import map_coordinates

    first, following, truth = optical_flow.generated()
    flow, summary = optical_flow.estimate(images.gray(first), images.gray(following), device="cpu")
    off = np.linalg.norm(flow - truth, axis=2)[6:-6, 6:-6]
    assert off.mean() < 0.1
    gray, after = images.gray(first), images.gray(following).astype(np.float32)
    y, x = np.mgrid[:64, :64]
    seen = map_coordinates(
        after.astype(float), [y + flow[:, :, 1], x + flow[:, :, 0]], order=1, mode="nearest"
    )
    cost = np.log1p(((seen - gray) / optical_flow.NOISE) ** 2).sum()
    for axis in (0, 1):
        weight = 10.0 * np.exp(-np.abs(np.diff(gray, axis=axis)) / 0.1)
        squared = weight * (np.diff(flow, axis=axis) ** 2).sum(axis=2)
        cost += np.where(squared <= 0.09, squared, 0.6 * np.sqrt(squared) - 0.09).sum()
    assert summary.final_chi2 == pytest.approx(cost, rel=1e-6)


@pytest.mark.data
def test_dancing_dog(shared_data, tmp_path):
    """Along the flow the frames differ by a third of what they do in place."""
    paths = opt_files(shared_data, "dogdance0.png", "dogdance1.png")
    output = tmp_path / "flow.png"
    arguments = ["--data", *paths, "--shrink", "4", "--device", "cpu", "-o", str(output)]
    flow, before, after = optical_flow.main(arguments)
    assert after < before / 3.0
    assert 2.0 < np.abs(flow).max() < 12.0
    assert images.read(output).shape == (240, 320, 3)


# ------------------------------------------------------------------ files


def test_pictures_are_read_as_colours(tmp_path):
    """Gray is repeated, opacity dropped, and what is written is read again."""
    picture = np.random.default_rng(0).random((6, 8, 3))
    images.write(tmp_path / "a.png", picture)
    np.testing.assert_allclose(images.read(tmp_path / "a.png"), picture, atol=1.0 / 255.0)
    images.write(tmp_path / "b.png", picture[:, :, 0])
    gray = images.read(tmp_path / "b.png")
    np.testing.assert_array_equal(gray[:, :, 0], gray[:, :, 2])
    np.testing.assert_allclose(images.gray(gray), picture[:, :, 0], atol=1.0 / 255.0)


def test_sizes_are_halved_and_doubled():
    """Means of squares; a linear picture stays linear."""
    y, x = np.mgrid[:9, :12].astype(float)
    np.testing.assert_allclose(images.shrink(x, 2), 2.0 * x[:4, :6] + 0.5)
    larger = images.enlarge(images.shrink(x, 2), (8, 12))
    np.testing.assert_allclose(larger[:, 1:-1], x[:8, 1:-1])
    np.testing.assert_array_equal(images.largest(y * 12 + x, 3)[0], [26, 29, 32, 35])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"short", "too short"),
        (np.array([2, 2, 1, 0, 0], "<i4").tobytes(), "2 x 2 x 1 numbers of type 0 do not fit 20 bytes"),
        (np.array([2, 2, 1, 9, 0], "<i4").tobytes(), "of type 9"),
    ],
)
def test_a_wrong_dump_is_named(tmp_path, content, message):
    """One sentence with its path."""
    (tmp_path / "a.imagedump").write_bytes(content)
    with pytest.raises(command.ExampleError, match=message):
        images.read_dump(tmp_path / "a.imagedump")


def test_wrong_input_is_explained(tmp_path):
    """Pictures of two sizes, constraints that are none, a factor of zero, a folder without a scan."""
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    images.write(small, np.ones((8, 8)))
    images.write(large, np.ones((8, 12)))
    (tmp_path / "bad.constraints").write_text("2\n1 2 3 4\n")
    cases = [
        (optical_flow, [small, large], [], "shape \\(4, 6\\), expected \\(4, 4\\)"),
        (poisson_editing, [small, small], [], "got 2 paths, expected 3"),
        (image_warping, [small, small, tmp_path / "bad.constraints"], [], "cannot be read as constraints"),
        (optical_flow, [small, small], ["--shrink", "0"], "cannot be shrunk by 0"),
        (shape_from_shading, [tmp_path], [], "has no default_targetDepth"),
        (optical_flow, [small, tmp_path / "bad.constraints"], [], "cannot be read as a picture"),
    ]
    for module, paths, more, message in cases:
        with pytest.raises(command.ExampleError, match=message):
            module.main(["--data", *map(str, paths), *more])


def test_an_image_of_another_size_is_taken():
    """A sampled image is a parameter of the edge: the next one needs no new edge type."""
    for size in (24, 40):
        first, following, _ = optical_flow.generated(size)
        flow, summary = optical_flow.estimate(images.gray(first), images.gray(following), device="cpu")
        assert flow.shape == (size, size, 2)
        assert isinstance(summary, graphopt.Summary)


def test_dots_are_where_points_are():
    """Two clouds in two panels: the corners of a square, its middle in another colour."""
    corners = np.array([[0.0, 0.0, 5.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    picture = images.dots([[corners, np.array([[0.5, 0.5, 0.0]])], [corners[:1]]], size=101)
    assert picture.shape == (101, 202, 3)
    drawn = (picture[:, :101] < 1.0).any(axis=2)
    assert drawn[:8, :8].any() and drawn[-8:, -8:].any() and drawn[47:54, 47:54].any()
    assert not drawn[10:40].any()
    assert (picture[50, 50] != picture[3, 3]).any()
