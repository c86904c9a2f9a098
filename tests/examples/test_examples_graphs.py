"""Examples on graphs and meshes with types of their own: the built-in types' answers, and scipy's."""

import lzma
from pathlib import Path

import numpy as np
import pytest
from examples_modules import (
    command,
    mesh_deformation,
    meshes,
    own_types,
    pose_graph,
    snavely,
    to_be_gained,
)

import graphopt

__all__ = ["own_types"]  # a fixture of this module

# ------------------------------------------------------------------ bundle adjustment


def test_own_camera_is_the_built_in_one(tmp_path):
    """The same chi2 before and after, and a file that has it."""
    bal = graphopt.datasets.ba(cameras=8, points=300)
    before = bal.chi2()
    summary = snavely.main(["--device", "cpu", "-o", str(tmp_path / "solved.txt")])
    assert summary.initial_chi2 == pytest.approx(before, rel=1e-9)
    graphopt.optimize(bal, device="cpu")
    assert summary.final_chi2 == pytest.approx(bal.chi2(), rel=1e-6)
    assert graphopt.read(tmp_path / "solved.txt").chi2() == pytest.approx(summary.final_chi2, rel=1e-9)


@pytest.mark.data
def test_ladybug(shared_data):
    """BAL's problem-49-7776: half of chi2 ends at 13,344, as with other solvers."""
    summary = snavely.main(["--data", str(shared_data / "bal/problem-49-7776-pre.txt.xz"), "--device", "cpu"])
    assert summary.initial_chi2 == pytest.approx(2.0 * 850912.5, rel=1e-6)
    assert summary.final_chi2 < 2.0 * 13350.0


def test_a_graph_without_cameras_is_refused(tmp_path):
    """With its name."""
    graphopt.write(graphopt.datasets.manhattan(nodes=20), tmp_path / "plane.g2o")
    with pytest.raises(command.ExampleError, match=r"plane\.g2o has no observations of BAL cameras"):
        snavely.main(["--data", str(tmp_path / "plane.g2o")])


# ------------------------------------------------------------------ pose graphs


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("intel.g2o", 546.461112),
        ("M3500.g2o.xz", 137.912951),
        ("smallGrid3D.g2o", 458.153791),
        ("sphere2500.g2o.xz", 727.149),
        ("parking-garage.g2o.xz", 1.23868394),
    ],
)
def test_pose_graph_reaches_the_known_minimum(shared_data, name, best):
    """Of g2o and of the built-in types."""
    summary = pose_graph.main(["--data", str(shared_data / "posegraph" / name), "--device", "cpu"])
    assert summary.final_chi2 == pytest.approx(best, rel=2e-5)


@pytest.mark.data
def test_start_values_from_the_motions(shared_data):
    """Where the file has none, and where they are asked for: MIT's minimum is found from there only."""
    folder = shared_data / "posegraph"
    edges_only = pose_graph.main(["--data", str(folder / "CSAIL.g2o"), "--device", "cpu"])
    built_in = graphopt.io.read_with_report(folder / "CSAIL.g2o")[0]
    graphopt.initialize(built_in)
    graphopt.optimize(built_in, device="cpu")
    assert edges_only.final_chi2 == pytest.approx(built_in.chi2(), rel=1e-4)
    assert edges_only.final_chi2 < 41.0
    asked = pose_graph.main(["--data", str(folder / "MIT.g2o"), "--initialize", "chordal", "--device", "cpu"])
    assert asked.final_chi2 == pytest.approx(41.1632688, rel=1e-4)


@pytest.mark.parametrize("plane", [True, False])
def test_generated_pose_graph(tmp_path, plane):
    """The built-in types' minimum, and a row per pose."""
    summary = pose_graph.main(["--device", "cpu", "-o", str(tmp_path / "poses.csv"), *["--plane"][:plane]])
    kind = graphopt.datasets.manhattan(nodes=300, seed=1) if plane else None
    graph = kind or graphopt.datasets.sphere(nodes_per_level=20, laps=15, seed=1)
    assert summary.initial_chi2 == pytest.approx(graph.chi2(), rel=1e-9)
    graphopt.optimize(graph, device="cpu")
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-6)
    assert len((tmp_path / "poses.csv").read_text().splitlines()) == graph.num_vertices + 1


# ------------------------------------------------------------------ meshes


def energy(mesh, rows, targets, fit=100.0):
    """Residuals of the energy at (positions, rotation vectors), written without the library."""
    from scipy.spatial.transform import Rotation

    edges = mesh.edges()
    weight = np.sqrt(mesh.cotangent_weights(edges))[:, None]

    def residual(state):
        points, vectors = state.reshape(2, -1, 3)
        turned = Rotation.from_rotvec(vectors)
        parts = []
        for i, j in (edges.T, edges.T[::-1]):
            parts.append(weight * (points[i] - points[j] - turned[i].apply(mesh.points[i] - mesh.points[j])))
        parts.append(np.sqrt(fit) * (points[rows] - targets))
        return np.concatenate(parts).ravel()

    return residual


def test_bent_sheet_is_at_its_minimum():
    """The energy that numpy computes, and nothing to be gained there."""
    from scipy.spatial.transform import Rotation

    mesh = meshes.grid(2, 5)
    rows = np.flatnonzero((mesh.points[:, 0] == 0.0) | (mesh.points[:, 0] == 4.0))
    targets = mesh.points[rows] + np.where(mesh.points[rows, :1] == 4.0, [-1.5, 0.0, 1.5], 0.0)
    graph, frames = mesh_deformation.build(mesh, rows, targets)
    start = np.concatenate([mesh.points.ravel(), np.zeros(mesh.points.size)])
    summary = graphopt.optimize(graph, device="cpu")
    turned = Rotation.from_quat(frames.estimate[:, 3:]).as_rotvec()
    found = np.concatenate([frames.estimate[:, :3].ravel(), turned.ravel()])
    residual = energy(mesh, rows, targets)
    assert residual(start) @ residual(start) == pytest.approx(summary.initial_chi2, rel=1e-9)
    assert residual(found) @ residual(found) == pytest.approx(summary.final_chi2, rel=1e-9)
    assert to_be_gained(residual, found) < 1e-5 < to_be_gained(residual, start)


@pytest.mark.data
def test_raptor(shared_data, tmp_path):
    """Opt's mesh and markers: the head moves by 0.5, the feet stay."""
    folder = shared_data / "graphics" / "opt"
    paths = [str(folder / f"raptor_simplify2k.{suffix}") for suffix in ("off", "mrk")]
    deformed, summary = mesh_deformation.main(
        ["--data", *paths, "--device", "cpu", "-o", str(tmp_path / "r.obj")]
    )
    assert summary.final_chi2 == pytest.approx(0.0344878, rel=1e-3)
    rows, targets = mesh_deformation.read_markers(Path(paths[1]), deformed, 0.0)
    assert np.linalg.norm(deformed.points[rows] - targets, axis=1).max() < 0.002
    edges = deformed.edges()
    at_rest = meshes.read(Path(paths[0])).points
    stretch = np.linalg.norm(np.diff(deformed.points[edges], axis=1), axis=2) / np.linalg.norm(
        np.diff(at_rest[edges], axis=1), axis=2
    )
    assert np.median(np.abs(stretch - 1.0)) < 0.01
    np.testing.assert_allclose(meshes.read(tmp_path / "r.obj").points, deformed.points, atol=1e-8)


@pytest.mark.data
def test_knight_is_turned(shared_data, tmp_path):
    """libigl's mesh and selection."""
    folder = shared_data / "graphics" / "libigl"
    paths = [str(folder / name) for name in ("decimated-knight.off", "decimated-knight-selection.dmat")]
    _, summary = mesh_deformation.main(
        ["--data", *paths, "--device", "cpu", "-o", str(tmp_path / "knight.png")]
    )
    assert summary.final_chi2 < 0.01
    assert (tmp_path / "knight.png").stat().st_size > 10_000


@pytest.mark.data
def test_all_meshes_are_read(shared_data):
    """.off, .obj and .ply, plain and compressed, with the counts of the index."""
    counts = {
        "opt/raptor_simplify2k.off": (2000, 4036), "opt/small_armadillo.ply": (130, 256),
        "opt/head.ply": (689, 1355), "opt/cone.ply": (74, 144), "libigl/cow.off": (2762, 5520),
        "libigl/arm.obj.xz": (8311, 16618), "libigl/bunny.off.xz": (3485, 6966),
        "common3d/spot.obj.xz": (2930, 5856),
    }  # fmt: skip
    for name, (num_points, num_triangles) in counts.items():
        mesh = meshes.read(shared_data / "graphics" / name)
        assert (len(mesh.points), len(mesh.triangles)) == (num_points, num_triangles), name
        assert np.isfinite(mesh.points).all(), name


PLY = """ply
format ascii 1.0
element vertex 4
property float x
property float y
property float z
property uchar red
element face 1
property list uchar int vertex_indices
end_header
0 0 0 255
1 0 0 255
1 1 0 255
0 1 0 255
4 0 1 2 3
"""


def test_polygons_are_cut_into_triangles(tmp_path):
    """In every format; .xz as well."""
    square = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    (tmp_path / "a.ply").write_text(PLY)
    (tmp_path / "a.off").write_text("OFF 4 1 0  # a square\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n")
    text = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf -4/1/1 -3/1/1 -2//1 -1\n"
    (tmp_path / "a.obj.xz").write_bytes(lzma.compress(text.encode()))
    for name in ("a.ply", "a.off", "a.obj.xz"):
        mesh = meshes.read(tmp_path / name)
        np.testing.assert_array_equal(mesh.points, square)
        np.testing.assert_array_equal(mesh.triangles, [[0, 1, 2], [0, 2, 3]])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.stl", "", "expected one of .off, .obj, .ply"),
        ("a.off", "4 1 0", "cannot be read as .off mesh"),
        ("a.off", "OFF 3 1 0 0 0 0 1 0 0 1 1 0 3 0 1 7", "a vertex that does not exist"),
        ("a.obj", "v 0 0\n", "cannot be read as .obj mesh"),
        ("a.ply", PLY.replace("vertex 4", "vertex 9"), "cannot be read as .ply mesh"),
    ],
)
def test_a_wrong_mesh_is_named(tmp_path, name, text, message):
    """One sentence with its path."""
    (tmp_path / name).write_text(text)
    with pytest.raises(command.ExampleError, match=message):
        meshes.read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.mrk", "1 0 0 0 0.1 77", "names vertex 77, the mesh has 18"),
        ("a.mrk", "2 0 0 0 0.1 3", "cannot be read as markers"),
        ("a.dmat", "1 2 0 1", "2 groups for 18 vertices"),
    ],
)
def test_wrong_markers_are_named(tmp_path, name, text, message):
    """One sentence with their path."""
    (tmp_path / name).write_text(text)
    with pytest.raises(command.ExampleError, match=message):
        mesh_deformation.read_markers(tmp_path / name, meshes.grid(3, 6), 0.0)
