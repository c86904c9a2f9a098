"""Programs that the package carries: the same as compiled ones, found for built-in types only."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
from processes import python

from graphopt import codegen
from graphopt.codegen import builtin
from graphopt.types import registry, robust_kernels

EDGE = registry.edge_type("EdgeSE2PointXY")
POINT = registry.vertex_type("VertexPointXY")


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """An empty place for the file of built-in programs, and no cache."""
    path = tmp_path / "builtin_programs.bin"
    monkeypatch.setattr(builtin, "BUILTIN_FILE", path)
    monkeypatch.setenv("GRAPHOPT_CACHE", "off")
    builtin.carried_programs.cache_clear()
    yield path
    builtin.carried_programs.cache_clear()


def compiled(edge=EDGE):
    """chi2 and linearize of an edge, by name."""
    kernels = codegen.compile_edge(edge)
    return {p.name: p for p in (kernels.chi2, kernels.linearize)}


def test_a_carried_program_is_the_compiled_one(own_file):
    """Writing programs and finding them again changes nothing, and tracing is not done."""
    expected = compiled()
    own_file.write_bytes(builtin.encode_programs(expected))
    builtin.carried_programs.cache_clear()
    for name, program in expected.items():
        found = builtin.builtin_program(EDGE, name)
        assert found is not None and found.name == name
        for part in ("code", "constants", "input_registers", "output_registers"):
            np.testing.assert_array_equal(getattr(found, part), getattr(program, part))


def test_built_in_types_are_not_traced_where_the_file_has_them(own_file, monkeypatch):
    """compile_edge does not call the residual then."""
    own_file.write_bytes(builtin.encode_programs(compiled()))
    builtin.carried_programs.cache_clear()

    def refuse(edge_type):
        raise AssertionError("traced")

    monkeypatch.setattr("graphopt.codegen.edge.trace_edge", refuse)
    assert compiled().keys() == {"EdgeSE2PointXY.chi2.full", "EdgeSE2PointXY.linearize.full"}
    with pytest.raises(AssertionError, match="traced"):
        codegen.compile_edge(EDGE, "identity")  # is not in this file


def test_a_type_of_the_same_name_is_another_type(own_file):
    """A user's edge or kernel that is called like a built-in one gets its own program."""
    own_file.write_bytes(builtin.encode_programs(compiled()))
    builtin.carried_programs.cache_clear()
    other = dataclasses.replace(EDGE, residual=lambda pose, point, z: 2.0 * EDGE.residual(pose, point, z))
    inputs = np.random.default_rng(0).normal(size=(5, compiled()["EdgeSE2PointXY.chi2.full"].num_inputs))
    ours, theirs = (p["EdgeSE2PointXY.chi2.full"].run(inputs) for p in (compiled(), compiled(other)))
    np.testing.assert_allclose(theirs[:, 2:], 2.0 * ours[:, 2:], rtol=1e-14)

    def huber(chi2, width):
        return chi2 * width, width + 0.0 * chi2

    assert builtin.builtin_program(huber, "huber.kernel") is None
    assert builtin.builtin_program(robust_kernels.huber, "huber.kernel") is None  # not in this file


@pytest.mark.parametrize("damage", ["sources", "magic", "missing", "empty"])
def test_a_file_of_other_sources_is_not_used(own_file, damage):
    """Edited sources, another format, no file: types are compiled."""
    data = builtin.encode_programs(compiled())
    if damage == "sources":
        data = data.replace(builtin.sources_hash().encode(), b"0" * 64)
    elif damage == "magic":
        data = b"x" + data[1:]
    elif damage == "empty":
        data = b""
    if damage != "missing":
        own_file.write_bytes(data)
    builtin.carried_programs.cache_clear()
    assert builtin.builtin_program(EDGE, "EdgeSE2PointXY.chi2.full") is None
    assert len(compiled()) == 2


@pytest.mark.skipif(
    "GRAPHOPT_TEST_INSTALLED" not in os.environ, reason="only an installed package carries programs"
)
def test_the_installed_package_carries_every_program():
    """A fresh process finds chi2, linearize, errors and oplus of all built-in types without compiling."""
    from graphopt.codegen import prebuild

    assert builtin.BUILTIN_FILE.exists()
    names = set(builtin.carried_programs().names())
    for kind in prebuild.BUILTIN_TYPES:
        if isinstance(kind, prebuild.VertexType):
            assert f"{kind.name}.oplus" in names
        elif isinstance(kind, prebuild.EdgeType):
            for variant in codegen.INFORMATION_VARIANTS:
                for suffix in ("", ".robust"):
                    assert f"{kind.name}.linearize.{variant}{suffix}" in names
            assert f"{kind.name}.errors.identity" in names


def test_prebuild_needs_no_native_module():
    """The build step runs before, or without, the native modules."""
    code = (
        "import sys\n"
        "sys.modules['graphopt.cpu_kernels'] = None\n"
        "from graphopt.codegen import prebuild\n"
        "programs = prebuild.builtin_programs()\n"
        "print(next(programs).name, next(programs).name)\n"
    )
    result = python("-c", code, environment={"GRAPHOPT_CACHE": "off"})
    assert result.stdout.split()[0].endswith(".oplus")


def test_points_oplus_is_found(own_file):
    """compile_vertex looks the vertex's program up as well."""
    program = codegen.compile_vertex(POINT)
    own_file.write_bytes(builtin.encode_programs({program.name: program}))
    builtin.carried_programs.cache_clear()
    assert codegen.compile_vertex(POINT).code.tolist() == program.code.tolist()
    assert builtin.builtin_program(POINT, "VertexPointXY.oplus") is not None
