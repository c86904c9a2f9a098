"""Mistakes that users make: the message alone says where, what was expected, and the way out."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from failing_runs import determined_model

import graphopt
import graphopt.colmap
import slam_bridge
from graphopt import error_codes
from graphopt.cli.main import main
from graphopt.cli.parsers import UsageError
from graphopt.errors import FormatError, GraphOptError
from graphopt.online import Online

EYE3, EYE6 = np.eye(3), np.eye(6)


def plane(count: int = 3) -> graphopt.Graph:
    """Poses 1, 2, ... of the plane in a row."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(1, count + 1), np.zeros((count, 3)))
    ends = np.stack([np.arange(1, count), np.arange(2, count + 1)], axis=1)
    graph.add_edges("EDGE_SE2", ends, [1.0, 0.0, 0.0], 100 * EYE3)
    return graph


def loop(count: int = 12) -> graphopt.Graph:
    """A circle of poses in space that face outwards, at the truth but for noise of 1 mm."""
    angle = 2 * np.pi * np.arange(count) / count
    pose = np.zeros((count, 7))
    pose[:, :3] = np.stack([5 * np.cos(angle), 5 * np.sin(angle), angle], axis=1)
    pose[:, 5:] = np.stack([np.sin(angle / 2 + 0.4), np.cos(angle / 2 + 0.4)], axis=1)
    ends = np.stack([np.arange(count), (np.arange(count) + 1) % count], axis=1)
    poses = graphopt.geometry.SE3(pose)
    relative = graphopt.geometry.SE3(pose[ends[:, 0]]).between(graphopt.geometry.SE3(pose[ends[:, 1]]))
    noise = np.random.default_rng(1).normal(0, 1e-3, (count, 3))
    measured = relative.storage + np.pad(noise, ((0, 0), (0, 4)))
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", np.arange(count), poses.storage)
    graph.add_edges("EDGE_SE3:QUAT", ends, measured, 1e6 * EYE6)
    return graph


def found(graph: graphopt.Graph) -> None:
    """Raise what `Graph.check` says, so that findings are tested as errors are."""
    raise FormatError(" ".join(finding.message for finding in graph.check() if finding.severity != "note"))


def edge(graph, vertices, *values, tag="EDGE_SE2", **options):
    """Add one edge."""
    graph.add_edges(tag, [vertices], *values, **options)
    return graph


def with_landmark(graph, tag):
    """Landmark 50 at the origin."""
    graph.add_vertices(tag, [50], np.zeros((1, graphopt.types.registry.vertex_type(tag).storage_dim)))
    return graph


def residual_of(function):
    """Optimize with a residual function of two poses of the plane and one number."""
    kinds = ("VERTEX_SE2", "VERTEX_SE2")
    kind = graphopt.edge_type(tag="EDGE_PLANTED", vertices=kinds, measurement_dim=1)(function)
    try:
        graph = plane()
        edge(graph, [1, 2], [[1.0]], tag=kind)
        graphopt.optimize(graph, throw=True)
    finally:
        graphopt.types.registry.unregister(kind)


def with_if(a, b, z):
    """A distance that is cut off."""
    gap = a.translation[..., 0] - b.translation[..., 0] - z
    if gap > 1.0:
        gap = gap * 0.0
    return np.stack([gap], axis=-1)


def with_math(a, b, z):
    """A function of the standard library."""
    return np.stack([math.sin(a.angle) - z], axis=-1)


def with_sqrt(a, b, z):
    """A distance, which has no derivative at zero: poses 1 and 2 start at the same place."""
    gap = a.translation - b.translation
    return np.stack([np.sqrt(np.sum(gap * gap, axis=-1)) - z], axis=-1)


def with_attribute(a, b, z):
    """A name of another library."""
    return np.stack([a.x - z], axis=-1)


def written(folder, name, text):
    """A file that is read."""
    (folder / name).write_text(text, encoding="utf-8")
    return graphopt.read(folder / name)


def cut_archive(folder):
    """Half of a graph's archive."""
    path = folder / "whole.npz"
    graphopt.write(plane(), path)
    (folder / "half.npz").write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    graphopt.read(folder / "half.npz")


def set_nan(folder):
    """A live view gets a NaN."""
    graph = plane()
    graph.vertex_set("VERTEX_SE2").estimate[1, 0] = np.nan
    graphopt.optimize(graph, throw=True)


def set_zero_information(folder):
    """Informations of zero."""
    graph = plane()
    graph.edge_set("EDGE_SE2").information[:] = 0.0
    graphopt.optimize(graph, throw=True)


def changed(name, function):
    """The loop with one of its arrays changed."""
    graph = loop()
    sets = graph.vertex_set("VERTEX_SE3:QUAT") if name == "estimate" else graph.edge_set("EDGE_SE3:QUAT")
    getattr(sets, name)[:] = function(getattr(sets, name).copy())
    found(graph)


def inverse(rows):
    """world_T_body as body_T_world."""
    return graphopt.geometry.SE3(rows).inverse().storage


def w_first(rows):
    """Quaternions as w, x, y, z."""
    rows[:, 3:7] = np.roll(rows[:, 3:7], 1, axis=1)
    return rows


ORIGIN = ("VERTEX_SE2", [0], np.zeros((1, 3)), True)
NEXT, STEP = ("VERTEX_SE2", [1], np.zeros((1, 3))), ("EDGE_SE2", [[0, 1]], [[1.0, 0, 0]], EYE3)


def grown(*arguments, **changes):
    """Update an `Online` that holds pose 0."""
    online = Online()
    online.update([ORIGIN])
    return online.update(*arguments, **changes)


def batch(count=3, **changed):
    """Optimize three planes at once."""
    given = {"estimates": {"VERTEX_SE2": np.zeros((3, count, 3))}}
    return graphopt.optimize_batch(plane(), **{**given, **changed})


def adjusted(change=None, **options):
    """Adjust a COLMAP model with a mistake in it."""
    model = determined_model()
    if change is not None:
        change(model)
    return graphopt.colmap.bundle_adjustment(model, **options)


def names_camera_nine(model):
    """Image 3 does."""
    model.images.camera_ids[2] = 9


def names_image_77(model):
    """The track of point 1 does."""
    model.points.track[3, 0] = 77


def command(*words):
    """The command's words, whose complaint is on stderr."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        status = main([str(word) for word in words])
    assert status == 2
    raise FormatError(printed.getvalue().strip())


SE2_LINES = "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\n"

MISTAKES = {
    # name: (what is done, code, words of the message: place, expected, way out)
    "estimates of another shape": (
        lambda _: graphopt.Graph().add_vertices("VERTEX_SE2", [1, 2], np.zeros((2, 7))),
        "E206",
        ("VERTEX_SE2", "(2, 7)", "(2, 3)"),
    ),
    "measurement too short": (
        lambda _: edge(plane(), [1, 3], [[1.0, 2.0]]),
        "E206",
        ("EDGE_SE2", "(1, 2)", "(1, 3)"),
    ),
    "standard deviations as information": (
        lambda _: edge(plane(), [1, 3], [1.0, 0.0, 0.0], [[0.1, 0.1, 0.01]]),
        "E206",
        ("EDGE_SE2", "(3, 3)", "np.diag(1 / sigma**2)"),
    ),
    "information that is not symmetric": (
        lambda _: edge(plane(), [1, 3], [1.0, 0.0, 0.0], [np.triu(np.ones((3, 3)))]),
        "E306",
        ("EDGE_SE2", "row 0", "1, 3", "(Omega + Omega.T) / 2"),
    ),
    "information as covariance": (
        lambda _: changed("information", np.linalg.inv),
        "",
        ("covariances", "np.linalg.inv"),
    ),
    "angles in degrees": (
        lambda _: found(edge(plane(), [1, 3], [0.0, 0.0, 90.0])),
        "",
        ("EDGE_SE2", "90", "np.deg2rad"),
    ),
    "quaternions w first": (
        lambda _: changed("measurement", w_first),
        "",
        ("measurements", "w first", "x, y, z, w", "np.roll"),
    ),
    "poses in the wrong frame": (
        lambda _: changed("estimate", inverse),
        "",
        ("estimates", "inverse", "cam_T_world"),
    ),
    "measurements the wrong way round": (
        lambda _: changed("measurement", inverse),
        "",
        ("measurements", "inverse"),
    ),
    "swapped ids of pose and landmark": (
        lambda _: edge(with_landmark(plane(), "VERTEX_XY"), [50, 1], [1.0, 0.0], tag="EDGE_SE2_XY"),
        "E305",
        ("EDGE_SE2_XY", "50, 1", "VERTEX_XY", "expected a VERTEX_SE2"),
    ),
    "types of two conventions": (
        lambda _: edge(loop(), [1, 2], [1.0, 0, 0, 0, 0, 0, 1], tag="EDGE_SE3:EXPMAP"),
        "E305",
        ("EDGE_SE3:EXPMAP", "vertex 1", "VERTEX_SE3:QUAT", "expected a VERTEX_SE3:EXPMAP"),
    ),
    "edge to a vertex that is missing": (
        lambda _: edge(plane(), [3, 4], [1.0, 0.0, 0.0]),
        "E302",
        ("EDGE_SE2", "vertex 4", "Add the vertices first"),
    ),
    "edge of a vertex with itself": (
        lambda _: edge(plane(), [2, 2], [1.0, 0.0, 0.0]),
        "E304",
        ("EDGE_SE2", "vertex 2 twice", "different"),
    ),
    "id used twice": (
        lambda _: plane().add_vertices("VERTEX_SE2", [3], [[0.0, 0.0, 0.0]]),
        "E303",
        ("row 0", "vertex 3 exists"),
    ),
    "id given twice at once": (
        lambda _: plane().add_vertices("VERTEX_SE2", [7, 7], np.zeros((2, 3))),
        "E303",
        ("id 7", "rows 0 and 1"),
    ),
    "ids that are fractions": (
        lambda _: plane().add_vertices("VERTEX_SE2", [0.5], np.zeros((1, 3))),
        "E204",
        ("VERTEX_SE2 ids", "float64", "integers"),
    ),
    "unknown tag": (
        lambda _: plane().add_vertices("VERTEX_SE4", [9], np.zeros((1, 3))),
        "E401",
        ("VERTEX_SE4", "VERTEX_SE2"),
    ),
    "NaN in an estimate": (
        lambda _: plane().add_vertices("VERTEX_SE2", [8, 9], [[0.0, 0, 0], [np.nan, 0, 0]]),
        "E308",
        ("row 1", "id 9", "nan"),
    ),
    "NaN in a live view": (set_nan, "E700", ("EDGE_SE2", "1, 2", "row 0")),
    "quaternion of length 0": (
        lambda _: graphopt.Graph().add_vertices("VERTEX_SE3:QUAT", [1], np.zeros((1, 7))),
        "E307",
        ("id 1", "qx, qy, qz, qw", "(0, 0, 0, 1)"),
    ),
    "edge without its sensor's parameter": (
        lambda _: edge(
            with_landmark(loop(), "VERTEX_TRACKXYZ"), [1, 50], [0.0, 0.0, 1.0], tag="EDGE_SE3_TRACKXYZ"
        ),
        "E315",
        ("EDGE_SE3_TRACKXYZ", "PARAMS_SE3OFFSET", "ids"),
    ),
    "nothing fixed for covariances": (
        lambda _: graphopt.compute_covariances(plane()),
        "E704",
        ("vertex 3", "Fix a vertex", "set_fixed", "singular='hold'"),
    ),
    "everything fixed": (
        lambda _: graphopt.optimize(plane(), fix=[1, 2, 3]),
        "E309",
        ("no active edge", "not fixed"),
    ),
    "informations of zero": (set_zero_information, "E704", ("EDGE_SE2", "1, 2", "find_singular_directions")),
    "id that is not there": (lambda _: graphopt.optimize(plane(), fix=[99]), "E301", ("vertex 99",)),
    "device of another name": (
        lambda _: graphopt.optimize(plane(), device="cuda:0"),
        "E806",
        ("'cuda", "cpu", "vulkan:1"),
    ),
    "precision of a GPU": (
        lambda _: graphopt.optimize(plane(), device="cpu", precision="mixed"),
        "E808",
        ("precision 'mixed'", "precision='auto'"),
    ),
    "unknown kernel": (
        lambda _: edge(plane(), [1, 3], [1.0, 0.0, 0.0], kernel="Hubber"),
        "E104",
        ("'Hubber'", "Huber", "Cauchy"),
    ),
    "kernel of width 0": (
        lambda _: plane().add_edges("EDGE_SE2", [[1, 3], [2, 3]], [0.0, 0, 0], kernel=1, kernel_width=[1, 0]),
        "E308",
        ("kernel_width", "row 1", "positive"),
    ),
    "unknown method": (
        lambda _: graphopt.optimize(plane(), method="levenberg"),
        "E104",
        ("method", "'levenberg'", "lm"),
    ),
    "unknown option": (
        lambda _: graphopt.optimize(plane(), iterations=5),
        "E101",
        ("'iterations'", "'max_iterations'"),
    ),
    "negative time": (
        lambda _: graphopt.optimize(plane(), time_limit=-1),
        "E106",
        ("time_limit", "-1", "> 0"),
    ),
    "options that contradict": (
        lambda _: graphopt.optimize(plane(), schur="implicit", linear_solver="cholesky"),
        "E109",
        ("schur 'implicit'", "linear_solver 'pcg'", "schur='explicit'"),
    ),
    "if on a symbol": (
        lambda _: residual_of(with_if),
        "E601",
        ("with_if", "if gap > 1.0", "np.where"),
    ),
    "math.sin of a symbol": (lambda _: residual_of(with_math), "E602", ("math.sin(a.angle)", "np.sin")),
    "sqrt at zero": (lambda _: residual_of(with_sqrt), "E700", ("EDGE_PLANTED", "1, 2")),
    "attribute of another library": (
        lambda _: residual_of(with_attribute),
        "E202",
        ("'x'", "a.x - z", "translation"),
    ),
    "file that is missing": (lambda folder: graphopt.read(folder / "no.g2o"), "E511", ("no.g2o",)),
    "folder in place of a file": (
        lambda folder: graphopt.read(folder),
        "E504",
        ("cameras.bin", "COLMAP", "a file"),
    ),
    "empty file": (lambda folder: written(folder, "empty.g2o", ""), "E501", ("empty.g2o:1",)),
    "file that is cut off": (
        lambda folder: written(folder, "cut.g2o", SE2_LINES + "EDGE_SE2 0 1 1 0 0 1 0 0 1"),
        "E502",
        ("cut.g2o:3", "EDGE_SE2", "expected 12", "cut off"),
    ),
    "archive that is cut off": (cut_archive, "E502", ("half.npz", "truncated")),
    "file with a missing vertex": (
        lambda folder: written(folder, "ids.g2o", SE2_LINES + "EDGE_SE2 0 7 1 0 0 1 0 0 1 0 1\n"),
        "E503",
        ("ids.g2o:3", "vertex 7"),
    ),
    "suffix of no format": (
        lambda folder: graphopt.write(plane(), folder / "out.xyz"),
        "E504",
        ("out.xyz", ".g2o", "format="),
    ),
    "folder that is missing": (
        lambda folder: graphopt.write(plane(), folder / "none" / "out.g2o"),
        "E511",
        ("out.g2o",),
    ),
    "Online: an edge before its vertex": (
        lambda _: grown(edges=[STEP]),
        "E315",
        ("Edge 0", "vertex 1", "add it in the same update"),
    ),
    "Online: a vertex without an edge": (
        lambda _: grown([NEXT]),
        "E315",
        ("Vertex 1", "add an edge or a prior"),
    ),
    "Online: edges where vertices stand": (lambda _: grown([STEP]), "E401", ("no vertex type", "'EDGE_SE2'")),
    "Online: ends in place of a handle": (
        lambda _: grown(remove=[(0, 1)]),
        "E300",
        ("remove", "(1, 2)", "OnlineReport.handles"),
    ),
    "Online: an option mistyped": (lambda _: Online(lagg=3), "E101", ("'lagg'", "'lag'")),
    "Online: a change mistyped": (lambda _: grown(removed=[1]), "E101", ("'removed'", "'remove'")),
    "Online: a budget with a unit": (lambda _: grown(budget="5ms"), "E111", ("'5ms'", "seconds above 0")),
    "batch: a list of graphs": (
        lambda _: graphopt.optimize_batch([plane(), plane()]),
        "E300",
        ("a list", "one Graph", "arrays of all problems"),
    ),
    "batch: an array without a name": (
        lambda _: batch(measurements=np.zeros((3, 2, 3))),
        "E200",
        ("measurements", "dict", "tag"),
    ),
    "batch: other numbers of problems": (
        lambda _: batch(measurements={"EDGE_SE2": np.zeros((2, 2, 3))}),
        "E200",
        ("measurements['EDGE_SE2']", "2 problems", "has 3"),
    ),
    "batch: a method for one graph": (
        lambda _: batch(method="auto"),
        "E109",
        ("'auto'", "'lm', 'gn' or 'dogleg'"),
    ),
    "COLMAP: an option of Options": (
        lambda _: adjusted(refine_focal_lenght=False),
        "E101",
        ("'refine_focal_lenght'", "Options(refine_focal_length=...)"),
    ),
    "COLMAP: a field mistyped": (
        lambda _: graphopt.colmap.Options(refine_focal=False),
        "E101",
        ("'refine_focal'", "'refine_focal_length'"),
    ),
    "COLMAP: a camera that is missing": (
        lambda _: adjusted(names_camera_nine),
        "E503",
        ("image 3", "camera 9"),
    ),
    "COLMAP: an image that is missing": (lambda _: adjusted(names_image_77), "E503", ("point 1", "image 77")),
    "COLMAP: covariances by name": (
        lambda _: graphopt.colmap.covariance(determined_model(), poses=["1.jpg"]),
        "E110",
        ("image 1.jpg",),
    ),
    "command: a file that is missing": (
        lambda _: command("optimize", "no.g2o"),
        "",
        ("no.g2o", "No such file"),
    ),
    "command: a method in capitals": (
        lambda _: command("optimize", "no.g2o", "--method", "LM"),
        "",
        ("'LM'", "Did you mean 'lm'?"),
    ),
    "command: an option of another name": (
        lambda _: command("optimize", "no.g2o", "--max-iterations", 5),
        "",
        ("'--max-iterations'", "'--iterations'"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_leads_to_the_fix(name, tmp_path):
    """It names the place, what was expected and the way out; errors of this package have their code."""
    action, code, words = MISTAKES[name]
    with pytest.raises((GraphOptError, OSError)) as caught:
        action(tmp_path)
    message = str(caught.value)
    assert not [word for word in words if word not in message], message
    if code:
        assert error_codes.cause_of(type(caught.value), message).code == code, message
    if code and isinstance(caught.value, GraphOptError):
        assert message.endswith(f"[graphopt explain {code}]") and caught.value.code == code


def test_correct_numbers_are_not_doubted():
    """Neither a loop at its truth, nor start values that are far off."""
    graph = loop()
    assert {finding.kind for finding in graph.check()} == {"gauge"}
    graph.vertex_set("VERTEX_SE3:QUAT").estimate[:, :3] += np.random.default_rng(2).normal(0, 3, (12, 3))
    assert {finding.kind for finding in graph.check()} == {"gauge"}


def error_classes() -> set[type[GraphOptError]]:
    """All of this package."""
    for package in (graphopt, slam_bridge):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            if re.search(r"^class \w*(Error|Stopped)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
                importlib.import_module(
                    ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts])
                )

    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    return {kind for kind in below(GraphOptError) if kind.__module__.startswith(("graphopt", "slam_bridge"))}


def test_every_error_has_a_code_and_every_code_an_error():
    """Each class has a cause for any message; each row's example is found by the row itself."""
    kinds = {kind.__name__: kind for kind in (*error_classes(), UsageError)}
    assert all(error_codes.cause_of(kind, "anything") for kind in kinds.values())
    codes = [cause.code for cause in error_codes.CAUSES]
    assert len(set(codes)) == len(codes)
    for cause in error_codes.CAUSES:
        named = [kinds.get(name) or getattr(builtins, name) for name in cause.errors.split()]
        assert error_codes.cause_of(named[0], cause.example) is cause, cause.code


def test_a_quoted_error_leaves_one_code():
    """An error that quotes another one is explained as a whole, also after a pickle."""
    inner = graphopt.errors.UnknownIdError("There is no vertex 3.")
    outer = graphopt.errors.OptionError(f"fix: {inner} Known: 1, 2.")
    assert str(outer) == "fix: There is no vertex 3. Known: 1, 2. [graphopt explain E104]"
    assert str(graphopt.errors.GraphError()) == ""


def test_the_command_explains_codes(capsys):
    """Each has a page, in lower case too; to an unknown one: all; errors in JSON carry theirs."""
    for code in error_codes.causes():
        assert main(["explain", code if code != "E302" else "e302"]) == 0
        assert capsys.readouterr().out.startswith(f"## {code}: ")
    assert main(["explain", "E999"]) == 2 and "E302" in capsys.readouterr().err
    assert main(["info", "no.g2o", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "E511"
    assert main(["optimise"]) == 2 and "[graphopt explain E901]" in capsys.readouterr().err
