"""Maps survive g2o files, the drop-in's objects, COLMAP models, pySLAM's and Osmap's files."""

import json
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt import g2o
from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge import SolveOptions, global_ba
from slam_bridge.exchange import (
    graph_of_map,
    map_of_graph,
    optimizer_of_map,
    options_of_graph,
    read_colmap_map,
    read_osmap,
    read_pyslam_map,
    write_colmap_map,
    write_osmap,
    write_pyslam_map,
)
from slam_bridge.generator.problem import generate_problem

SMALL: Any = {"keyframes": 20, "landmarks": 150, "observations": 480}


@pytest.fixture(scope="module")
def stereo():
    """One rectified pinhole camera on a body, with holes in the ids."""
    world = generate_problem("MH01", **SMALL, seed=5).map
    world.remove_landmarks(world.landmarks.ids[3:7])
    world.remove_keyframes(world.keyframes.ids[4])
    world.keyframes["fixed"][0] = True
    return world


@pytest.fixture(scope="module")
def fisheye():
    """Two fisheye cameras."""
    return generate_problem("room2", **SMALL, seed=6).map


def errors_of(world):
    """(o, 2 or 3) projections - pixels: the same whatever frame the body is."""
    seen, poses = world.observations, world.keyframes["world_T_body"]
    inside = world.rig.in_cameras(
        seen["camera"],
        poses[world.keyframes.rows(seen["keyframe"])],
        world.landmarks["position"][world.landmarks.rows(seen["landmark"])],
    )
    return world.rig.project(seen["camera"], inside)[0] - seen["pixel"]


def in_order(world):
    """Observations by keyframe, camera, landmark: row numbers, pixels, right columns, sigmas, errors."""
    seen = world.observations
    k, m = world.keyframes.rows(seen["keyframe"]), world.landmarks.rows(seen["landmark"])
    order = np.lexsort((m, seen["camera"], k))
    table = np.column_stack(
        [k, m, seen["camera"], seen["pixel"], seen["right"], seen["sigma"], errors_of(world)]
    )
    return table[order]


def assert_same(found, world, columns: Any = slice(None), tolerance=1e-8):
    assert len(found.keyframes) == len(world.keyframes)
    np.testing.assert_allclose(
        found.landmarks["position"],
        world.landmarks["position"],
        atol=1e-9 + 1e-3 * tolerance,
        rtol=1e-6 * tolerance,
    )
    np.testing.assert_allclose(in_order(found)[:, columns], in_order(world)[:, columns], atol=tolerance)


@pytest.mark.parametrize("form", ["g2o", "states"])
def test_g2o_file_keeps_map_and_kernels(stereo, form, tmp_path):
    """Poses, landmarks, pixels, noise, who is fixed, kernel and its width; the error is the same."""
    options = SolveOptions(kernel="Cauchy", confidence=0.97)
    graph = graph_of_map(stereo, form, options)
    graphopt.write(graph, tmp_path / "map.g2o")
    again = graphopt.read(tmp_path / "map.g2o")
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    found = map_of_graph(again, visual_only=True)
    assert_same(found, stereo)
    np.testing.assert_array_equal(found.keyframes["fixed"], stereo.keyframes["fixed"])
    kept = options_of_graph(again)
    assert kept.kernel == "Cauchy" and kept.confidence == pytest.approx(0.97, rel=1e-9)


def test_kernels_of_some_edges_and_bad_comments(stereo, tmp_path):
    """Edges keep kernels of their own; a comment that names no kernel or edge is an error with its line."""
    graph = graph_of_map(stereo, options=SolveOptions(kernel=None))
    edges = graph.edge_sets[0]
    kernel = np.zeros(len(edges), int)
    kernel[[0, 1, 2, 7]], kernel[20:40:3] = 1, 3
    edges.kernel, edges.kernel_width = kernel, np.where(kernel == 1, 2.5, 0.75)
    path = tmp_path / "some.g2o"
    graphopt.write(graph, path)
    found = next(edge_set for edge_set in graphopt.read(path).edge_sets if edge_set.type is edges.type)
    np.testing.assert_array_equal(found.kernel, kernel)
    np.testing.assert_array_equal(found.kernel_width[kernel > 0], edges.kernel_width[kernel > 0])
    text = path.read_text()
    layout = "expected '# kernel"
    for line, message in (
        (f"# kernel: {edges.type.tag} Hubert 1.0", "robust kernel 'Hubert' is unknown. Known: None"),
        ("# kernel: EDGE_SE2 Huber 1.0", "the file has no edge EDGE_SE2"),
        ("# kernel: X Huber", layout),
    ):
        path.write_text(f"{text}{line}\n")
        with pytest.raises(FormatError, match=rf"some\.g2o:{text.count(chr(10)) + 1}: .*{message}"):
            graphopt.read(path)


def test_graphs_that_are_no_maps(stereo, fisheye):
    """What a form or a map cannot hold is said, with a way out."""
    with pytest.raises(OptionError, match=r"one pinhole camera; the map has kb8, kb8.*states"):
        graph_of_map(fisheye)
    with pytest.raises(OptionError, match=r"samples.*\.vib"):
        map_of_graph(graph_of_map(stereo, "states"))
    graph = graphopt.Graph()
    graph.add_vertices(graphopt.types.slam3d.VertexSE3, [0, 1])
    with pytest.raises(OptionError, match="no landmarks"):
        map_of_graph(graph)
    assert_same(map_of_graph(graph_of_map(fisheye, "states"), visual_only=True), fisheye)


def test_objects_of_the_drop_in(stereo):
    """A map becomes vertices and edges, whose error is the graph's; optimized there, it comes back."""
    optimizer = optimizer_of_map(stereo)
    optimizer.set_algorithm(
        g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverSE3(g2o.LinearSolverDenseSE3()))
    )
    assert_same(map_of_graph(optimizer.graph()), stereo)
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    before = optimizer.active_robust_chi2()
    assert before == pytest.approx(graph_of_map(stereo).chi2(), rel=1e-6)
    optimizer.optimize(5)
    found = map_of_graph(optimizer.graph())
    assert graph_of_map(found).chi2() < 0.5 * before


def test_colmap_model(stereo, fisheye, tmp_path):
    """Rig, poses, landmarks, pixels; the sentences name what is lost. Binary and text."""
    lost = write_colmap_map(stereo, tmp_path / "stereo")
    assert any("right images" in message for message in lost) and any("IMU" in message for message in lost)
    found = read_colmap_map(tmp_path / "stereo")
    np.testing.assert_array_equal(found.keyframes["stamp"], stereo.keyframes["stamp"])
    without_right_and_sigma = [0, 1, 2, 3, 4, 7, 8]
    assert_same(found, stereo, without_right_and_sigma)
    write_colmap_map(fisheye, tmp_path / "fisheye", as_text=True)
    found = read_colmap_map(tmp_path / "fisheye", sigma=2.0)
    assert found.rig is not None and fisheye.rig is not None
    assert len(found.rig) == 2 and found.rig[1].model == "kb8"
    assert_same(found, fisheye, without_right_and_sigma, 1e-7)
    assert (found.observations["sigma"] == 2.0).all()
    body = SE3(fisheye.rig[0].body_T_cam).inverse() * SE3(fisheye.rig[1].body_T_cam)
    np.testing.assert_allclose(found.rig[1].body_T_cam[:3], body.translation, atol=1e-12)


def test_colmap_model_of_others(shared_data):
    """A model that COLMAP's users published: projections fit, and bundle adjustment makes them fit better."""
    world = read_colmap_map(shared_data / "colmap" / "gtsfm_lund_door_12")
    away = np.linalg.norm(errors_of(world), axis=1)
    assert len(world.keyframes) == 12 and np.nanmedian(away) < 2.0
    result = global_ba(world, options=SolveOptions(device="cpu", confidence=0.999))
    assert result.is_usable
    assert np.nanmedian(np.linalg.norm(errors_of(world), axis=1)) <= np.nanmedian(away)


def test_pyslam_map(stereo, fisheye, tmp_path):
    """Octaves are those of sigma; a folder, and arrays as strings, as older versions wrote them, are read."""
    path = tmp_path / "map.json"
    write_pyslam_map(stereo, path)
    base = stereo.observations["sigma"].min()
    found = read_pyslam_map(tmp_path, sigma=base)
    assert_same(found, stereo, tolerance=1e-6)
    assert np.abs(found.keyframes["stamp"] - stereo.keyframes["stamp"]).max() < 1000
    reference = stereo.landmarks["reference"]
    rows = stereo.keyframes.find(reference)
    np.testing.assert_array_equal(found.landmarks["reference"][rows >= 0], rows[rows >= 0])
    content = json.loads(path.read_text())
    for keyframe in content["map"]["keyframes"]:
        for name in ("pose", "kpsu", "kps_ur", "octaves", "points"):
            keyframe[name] = json.dumps(keyframe[name])
    content["map"]["points"][0]["_is_bad"] = True
    path.write_text(json.dumps(content["map"]))
    assert len(read_pyslam_map(path).landmarks) == len(stereo.landmarks) - 1
    path.write_text('{"keyframes": [{"pose": 3}], "points": []}')
    with pytest.raises(FormatError, match=r"map\.json: no map of pySLAM"):
        read_pyslam_map(path)
    with pytest.raises(OptionError, match="one pinhole camera"):
        write_pyslam_map(fisheye, path)


def test_osmap(stereo, tmp_path):
    """To the 32 bits of its floats; features in several messages; cut files and archives are refused."""
    path = tmp_path / "orb.yaml"
    assert any("right columns" in message for message in write_osmap(stereo, path))
    base = float(stereo.observations["sigma"].min())
    found = read_osmap(path, sigma=base)
    kept = [0, 1, 2, 3, 4, 6]
    assert_same(found, stereo, kept, 1e-3)
    features = (tmp_path / "orb.features").read_bytes()
    sizes = bytes([len(features) & 127 | 128, len(features) >> 7 & 127 | 128, len(features) >> 14])
    (tmp_path / "orb.features").write_bytes(sizes + features)
    path.write_text(path.read_text() + "Options descriptions: [ FEATURES_FILE_DELIMITED ]\n")
    assert_same(read_osmap(path, sigma=base), stereo, kept, 1e-3)
    (tmp_path / "orb.keyframes").write_bytes((tmp_path / "orb.keyframes").read_bytes()[:-3])
    with pytest.raises(FormatError, match=r"orb\.yaml: damaged.*cut off"):
        read_osmap(path)
    with pytest.raises(FormatError, match=r"boost archive.*Osmap"):
        read_osmap(tmp_path / "atlas.osa")


def test_quaternions_of_matrices_are_kept():
    """Any turn of a keyframe survives the matrices of pySLAM and Osmap."""
    turns = SO3.exp(np.random.default_rng(1).normal(size=(200, 3)) * 2.0)
    again = SO3.from_matrix(turns.to_matrix())
    assert np.abs(np.asarray((turns.inverse() * again).log())).max() < 1e-9
