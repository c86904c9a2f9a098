"""Examples on shapes: the energy is what numpy says, the truth is found again, real meshes deform."""

import numpy as np
import pytest
from examples_modules import (
    command,
    cotangent_smoothing,
    embedded_deformation,
    face_fitting,
    intrinsic_images,
    meshes,
    nonrigid_alignment,
    own_types,
    procrustes,
    volumetric_deformation,
)
from scipy.spatial.transform import Rotation

__all__ = ["own_types"]  # a fixture of this module

# ------------------------------------------------------------------ Procrustes


def test_procrustes_finds_scales_and_turns_again():
    """Where there is no noise, everything fits; the scales are those of the sets."""
    sets = procrustes.generated(noise=0.0)
    mean, similarities, summary = procrustes.align(sets, device="cpu")
    assert summary.final_chi2 < 1e-12
    sizes = np.sqrt(((sets - sets.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)))
    np.testing.assert_allclose(similarities[:, 7], sizes[0] / sizes, rtol=1e-6)
    np.testing.assert_allclose(mean, sets[0], atol=1e-6)


def test_procrustes_with_noise_has_numpys_energy():
    """chi2 is the sum of squared distances to the mean shape, which is the mean of the moved sets."""
    sets = procrustes.generated(noise=0.02, seed=3)
    mean, similarities, summary = procrustes.align(sets, device="cpu")
    moved = np.stack(
        [
            s[7] * Rotation.from_quat(s[3:7]).apply(points) + s[:3]
            for s, points in zip(similarities, sets, strict=True)
        ]
    )
    assert ((moved - mean) ** 2).sum() == pytest.approx(summary.final_chi2, rel=1e-9)
    np.testing.assert_allclose(moved.mean(axis=0), mean, atol=1e-5)


# ------------------------------------------------------------------ embedded deformation


def test_a_rigid_motion_costs_nothing():
    """Targets that are a rigid motion of the mesh are met by nodes that all are that motion."""
    mesh = meshes.grid(8, 12)
    turn = Rotation.from_rotvec([0.3, -0.2, 0.5])
    rows = np.arange(0, len(mesh.points), 5)
    shift = np.array([1.0, 2.0, 3.0])
    targets = turn.apply(mesh.points[rows]) + shift
    deformed, summary, _, _ = embedded_deformation.deform(mesh, rows, targets, 20, device="cpu")
    assert summary.final_chi2 < 1e-8
    np.testing.assert_allclose(deformed.points, turn.apply(mesh.points) + shift, atol=1e-3)


def test_embedded_deformation_has_numpys_energy():
    """All three terms, written once more."""
    mesh, rows, targets = embedded_deformation.mesh_deformation.generated()
    deformed, summary, places, nodes = embedded_deformation.deform(mesh, rows, targets, 30, device="cpu")
    a, t = nodes[:, :9].reshape(-1, 3, 3), nodes[:, 9:]
    gram = np.einsum("nki,nkj->nij", a, a)
    rotation = (gram[:, [0, 0, 1], [1, 2, 2]] ** 2).sum() + ((gram[:, range(3), range(3)] - 1.0) ** 2).sum()
    near, _ = embedded_deformation.influence(mesh.points, places)
    i, j = embedded_deformation.neighbours(near).T
    smooth = np.einsum("nij,nj->ni", a[i], places[j] - places[i]) + places[i] + t[i] - places[j] - t[j]
    fit = 100.0 * ((deformed.points[rows] - targets) ** 2).sum()
    assert rotation + 10.0 * (smooth**2).sum() + fit == pytest.approx(summary.final_chi2, rel=1e-9)


@pytest.mark.data
def test_opts_raptor_follows_its_markers(shared_data):
    """Opt's mesh and markers: half of them are met to 3 % of the longest way, all to half of it."""
    folder = shared_data / "graphics" / "opt"
    mesh = meshes.read(folder / "raptor_simplify2k.off")
    markers = folder / "raptor_simplify2k.mrk"
    rows, targets = embedded_deformation.mesh_deformation.read_markers(markers, mesh, 0.0)
    deformed, _, _, _ = embedded_deformation.deform(mesh, rows, targets, device="cpu")
    way = np.linalg.norm(mesh.points[rows] - targets, axis=1).max()
    missed = np.linalg.norm(deformed.points[rows] - targets, axis=1)
    assert np.median(missed) < 0.03 * way and missed.max() < 0.5 * way


# ------------------------------------------------------------------ volumetric deformation


def test_a_turned_lattice_is_rigid_and_points_turn_with_it():
    """Where all outer layers turn alike, the lattice turns, and what is inside with it."""
    shape, cell, corner = (4, 5, 3), 0.7, np.array([1.0, -2.0, 0.5])
    turn = Rotation.from_rotvec([0.1, 0.4, -0.3])
    rest = corner + cell * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    targets = np.full((*shape, 3), np.nan)
    for layer in (0, -1):
        targets[:, layer] = turn.apply(rest[:, layer].reshape(-1, 3)).reshape(4, 3, 3)
    lattice, _, summary = volumetric_deformation.bend(corner, cell, shape, targets, device="cpu")
    assert summary.final_chi2 < 1e-10
    inside = np.random.default_rng(0).uniform(corner, corner + cell * (np.array(shape) - 1), (40, 3))
    moved = volumetric_deformation.interpolate(inside, corner, cell, lattice)
    np.testing.assert_allclose(moved, turn.apply(inside), atol=1e-5)


def test_volumetric_deformation_has_less_energy_than_a_straight_blend():
    """The energy, written in scipy for the best rotations, is chi2; a linear blend of the ends has more."""
    corner, cell, shape = np.zeros(3), 1.0, (7, 3, 2)
    targets = volumetric_deformation.turned_end(corner, cell, shape, 60.0)
    lattice, rest, summary = volumetric_deformation.bend(corner, cell, shape, targets, device="cpu")

    def energy(points):
        total = 0.0
        for place in np.ndindex(shape):
            steps = [
                (np.array(place) + sign * np.array(step))
                for step in volumetric_deformation.STEPS
                for sign in (1, -1)
            ]
            inside = [tuple(step) for step in steps if ((step >= 0) & (step < shape)).all()]
            before = np.array([rest[place] - rest[neighbour] for neighbour in inside])
            after = np.array([points[place] - points[neighbour] for neighbour in inside])
            total += Rotation.align_vectors(after, before)[1] ** 2
        held = np.isfinite(targets)
        return total + 100.0 * ((points - targets)[held] ** 2).sum()

    assert energy(lattice) == pytest.approx(summary.final_chi2, rel=1e-5)
    part = np.linspace(0.0, 1.0, 7)[:, None, None, None]
    first, last = rest + (targets[:1] - rest[:1]), rest + (targets[-1:] - rest[-1:])
    assert energy(lattice) < 0.8 * energy((1.0 - part) * first + part * last)


# ------------------------------------------------------------------ cotangent smoothing


def test_cotangent_smoothing_has_numpys_energy_and_removes_noise():
    """Weights from the smoothed positions; the result is nearer to the sheet without noise."""
    noisy, clean = cotangent_smoothing.generated(0.15), cotangent_smoothing.generated(0.0)
    smoothed, summary = cotangent_smoothing.smooth(noisy, 0.5, device="cpu")
    p = smoothed.points
    i, j, k, m = cotangent_smoothing.hinges(noisy).T

    def cot(a, b):
        return (a * b).sum(axis=1) / np.linalg.norm(np.cross(a, b), axis=1)

    weight = 0.5 * (cot(p[i] - p[k], p[j] - p[k]) + cot(p[i] - p[m], p[j] - p[m]))
    rough = np.maximum(weight, cotangent_smoothing.LEAST_WEIGHT) * ((p[i] - p[j]) ** 2).sum(axis=1)
    energy = ((p - noisy.points) ** 2).sum() + 0.5 * rough.sum()
    assert energy == pytest.approx(summary.final_chi2, rel=1e-6)
    inner = (np.abs(clean.points[:, :2] - clean.points[:, :2].mean(axis=0)) < 7).all(axis=1)
    before, after = (np.abs(points - clean.points)[inner, 2].mean() for points in (noisy.points, p))
    assert after < 0.7 * before


def test_hinges_are_the_inner_edges():
    """A sheet of r x c vertices has (r - 1)(c - 2) + (r - 2)(c - 1) + (r - 1)(c - 1) of them."""
    mesh = meshes.grid(5, 7)
    found = cotangent_smoothing.hinges(mesh)
    assert len(found) == 4 * 5 + 3 * 6 + 4 * 6
    triangles = {frozenset(triangle) for triangle in mesh.triangles.tolist()}
    for i, j, k, m in found.tolist():
        assert frozenset((i, j, k)) in triangles and frozenset((i, j, m)) in triangles and k != m


# ------------------------------------------------------------------ non-rigid alignment


def test_the_sheet_finds_the_scan_and_leaves_the_ball():
    """Off by a few noise levels, though a tenth of the scan is another object."""
    template, points, directions, truth = nonrigid_alignment.generated(seed=1)
    aligned, _ = nonrigid_alignment.align(template, points, directions, device="cpu")
    from scipy.spatial import cKDTree

    surface = cKDTree(truth.points)
    _, nearest = surface.query(aligned.points)
    normal = nonrigid_alignment.normals(truth)[nearest]
    distance = np.abs(((aligned.points - truth.points[nearest]) * normal).sum(axis=1))
    assert np.median(distance) < 0.03
    assert np.percentile(distance, 90) < 0.15
    start = np.abs(((template.points - truth.points) * nonrigid_alignment.normals(truth)).sum(axis=1))
    assert np.median(distance) < 0.1 * np.median(start)


# ------------------------------------------------------------------ intrinsic images


def test_albedo_and_shading_are_told_apart():
    """Both are near the truth up to the scale that nobody can see; their product is the picture."""
    picture, albedo, shading = intrinsic_images.generated()
    found, light, _ = intrinsic_images.separate(picture, device="cpu")
    np.testing.assert_allclose(found * light[..., None], picture, atol=0.03)
    scale = np.median(light / shading)
    np.testing.assert_allclose(light / scale, shading, rtol=0.15)
    np.testing.assert_allclose(np.median(np.abs(found * scale - albedo)), 0.0, atol=0.05)


# ------------------------------------------------------------------ face fitting


@pytest.mark.parametrize("num_weights", [12, 40])
def test_weights_of_a_face_are_found(num_weights):
    """The answer is a linear least-squares problem's at the pose that was found."""
    mean, basis, marks, pose, weights = face_fitting.generated(num_weights, 200, sigma=0.001)
    found_pose, found, summary = face_fitting.fit(mean, basis, marks, 0.001, device="cpu")
    assert np.abs(found - weights).max() < 0.1
    np.testing.assert_allclose(found_pose[:3], pose[:3], atol=0.01)
    turn = Rotation.from_quat(found_pose[3:])
    columns = turn.apply(basis.reshape(-1, 3)).reshape(num_weights, -1).T / 0.001
    rest = (marks - turn.apply(mean) - found_pose[:3]).ravel() / 0.001
    linear = np.linalg.lstsq(
        np.vstack([columns, np.eye(num_weights)]), np.r_[rest, np.zeros(num_weights)], rcond=None
    )
    np.testing.assert_allclose(found, linear[0], atol=1e-5)
    assert float(linear[1][0]) == pytest.approx(summary.final_chi2, rel=1e-6)


# ------------------------------------------------------------------ what cannot work


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (embedded_deformation, ["--nodes", "3"], "more than 4"),
        (volumetric_deformation, ["--cells", "1"], "at least 2"),
        (cotangent_smoothing, ["--strength", "0"], "above 0"),
        (nonrigid_alignment, ["--rounds", "0"], "at least 1"),
        (face_fitting, ["--weights", "400"], "1 to 300"),
    ],
)
def test_options_that_cannot_work_are_refused(module, arguments, words):
    """By name, with what is expected."""
    with pytest.raises(command.ExampleError, match=words):
        module.main(arguments)
