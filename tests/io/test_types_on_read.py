"""Types that are made on first use are made by a file that has them, also in a process without them."""

import json

import numpy as np
import pytest
from processes import python

import graphopt
from graphopt.io.extra_types import AS_COLMAP, Refined, define, free_rig_edge, projection_types, sensor_vertex
from graphopt.types import registry

SCRIPT = (
    "import json, sys, graphopt; g = graphopt.read(sys.argv[1]); "
    "print(json.dumps([g.chi2(), [one.type.tag for one in g.edge_sets]]))"
)


def graph_of(model: str, refined: Refined) -> graphopt.Graph:
    """One image, one image on a rig whose place is estimated, three points."""
    rng = np.random.default_rng(0)
    types, free = projection_types(model, refined), free_rig_edge(model, refined)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:EXPMAP", [0], [[0.1, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0]])
    graph.add_vertices("VERTEX_TRACKXYZ", [1, 2, 3], rng.uniform([-1, -1, 4], [1, 1, 6], (3, 3)))
    graph.add_vertices(
        types.camera, [4], [np.r_[500.0, 500.0, 320.0, 240.0, np.zeros(8)][: types.camera.storage_dim]]
    )
    graph.add_vertices(sensor_vertex(), [5], [[0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    pixels = rng.uniform(100, 400, (3, 2))
    graph.add_edges(types.edge, [(0, k, 4) for k in (1, 2, 3)], pixels)
    graph.add_edges(free, [(0, k, 4, 5) for k in (1, 2, 3)], pixels)
    return graph


@pytest.mark.parametrize("refined", [AS_COLMAP, Refined(True, True, True), Refined(True, False, False)])
def test_a_fresh_process_reads_them(tmp_path, refined):
    """Fixed or moving intrinsics, places on rigs: the same chi2."""
    graph = graph_of("OPENCV", refined)
    graphopt.write(graph, tmp_path / "a.g2o")
    found = python("-c", SCRIPT, str(tmp_path / "a.g2o"))
    assert not found.stderr, found.stderr
    chi2, tags = json.loads(found.stdout)
    assert chi2 == pytest.approx(graph.chi2(), rel=1e-12)
    assert tags == [edge_set.type.tag for edge_set in graph.edge_sets] and "_SENSOR" in tags[1]


def test_only_known_tags_are_made():
    """Other tags stay unknown, and so their lines are kept as they are."""
    for tag in (
        "EDGE_PROJECT_NOSUCH_SENSOR",
        "EDGE_PROJECT_OPENCV_SENSOR_X",
        "VERTEX_CAMERA_OPENCV_SENSOR",
        "EDGE_SE3",
    ):
        assert not define(tag), tag
        assert tag == "EDGE_SE3" or registry.find(tag) is None
    assert (
        define("EDGE_PROJECT_RADIAL_SENSOR_C") and registry.find("EDGE_PROJECT_RADIAL_SENSOR_C") is not None
    )
