"""GLSL to SPIR-V: in process, by subprocess, through the cache."""

from __future__ import annotations

import shutil

import pytest

from graphopt import pyglslang
from graphopt.device import spirv
from graphopt.device.errors import ShaderError

SIMPLE = """#version 450
#extension GL_GOOGLE_include_directive : require
#include "value.glsl"
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer Out { float x; };
void main() { x = VALUE * SCALE; }
"""


@pytest.fixture
def folder(tmp_path):
    """A shader and a header that it includes."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "value.glsl").write_text("#define VALUE 2.0\n")
    (tmp_path / "simple.comp").write_text(SIMPLE)
    return tmp_path


def compile_simple(folder, **defines):
    """Compile that shader."""
    return pyglslang.compile_file(folder / "simple.comp", include=[folder / "include"], defines=defines)


def test_includes_and_defines_reach_the_shader(folder):
    """The result is SPIR-V, and changes with a macro and with an included file."""
    first = compile_simple(folder, SCALE="3.0")
    assert first[:4] == b"\x03\x02\x23\x07"
    assert compile_simple(folder, SCALE="3.0") == first
    assert compile_simple(folder, SCALE="4.0") != first
    (folder / "include" / "value.glsl").write_text("#define VALUE 5.0\n")
    assert compile_simple(folder, SCALE="3.0") != first


def test_errors_name_file_and_line(folder):
    """A mistake in the shader or in an included file is a ShaderError with file:line."""
    with pytest.raises(ShaderError, match=r"simple\.comp:6: error: .*SCALE"):
        compile_simple(folder)
    (folder / "include" / "value.glsl").write_text("\nfloat broken = nothing;\n")
    with pytest.raises(ShaderError, match=r"value\.glsl:\d+: error"):
        compile_simple(folder, SCALE="1.0")
    with pytest.raises(ShaderError, match=r"inline:3: error"):
        pyglslang.compile_source("#version 450\nvoid main() {\n  nothing();\n}", name="inline")


@pytest.mark.skipif(shutil.which("glslangValidator") is None, reason="no glslangValidator on the PATH")
def test_the_subprocess_gives_the_same(folder, monkeypatch):
    """A subprocess of glslangValidator as fallback: same SPIR-V, same form of errors."""
    native = compile_simple(folder, SCALE="3.0")
    monkeypatch.setattr(pyglslang, "_native", lambda: None)
    assert compile_simple(folder, SCALE="3.0") == native
    with pytest.raises(ShaderError, match=r"simple\.comp:6: error: .*SCALE"):
        compile_simple(folder)


def test_without_any_compiler_the_error_says_what_to_install(folder, monkeypatch):
    """No native module and nothing on the PATH."""
    monkeypatch.setattr(pyglslang, "_native", lambda: None)
    monkeypatch.setattr(pyglslang, "_validator", lambda: None)
    assert not pyglslang.is_available()
    with pytest.raises(ShaderError, match="apt-get install glslang-tools"):
        compile_simple(folder, SCALE="1.0")


def test_development_cache_follows_the_sources(folder, tmp_path, monkeypatch):
    """An unchanged shader is compiled once; a changed include compiles it again."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(spirv, "SHADERS", folder)
    (folder / "include" / "value.glsl").write_text("#define VALUE 2.0\n#define SCALE 1.0\n")
    count = []
    original = pyglslang.compile_file
    monkeypatch.setattr(pyglslang, "compile_file", lambda *a, **k: count.append(1) or original(*a, **k))
    spirv.load.cache_clear()
    first = spirv.load("simple", "address", "double")
    spirv.load.cache_clear()
    assert spirv.load("simple", "address", "double") == first and len(count) == 1
    (folder / "include" / "value.glsl").write_text("#define VALUE 3.0\n#define SCALE 1.0\n")
    spirv.load.cache_clear()
    assert spirv.load("simple", "address", "double") != first and len(count) == 2
    spirv.load.cache_clear()


def test_shipped_spirv_is_used_without_a_compiler(tmp_path, monkeypatch):
    """An installed package needs no compiler; a missing shader's error says where it was sought."""
    monkeypatch.setattr(spirv, "SHADERS", tmp_path / "absent")
    monkeypatch.setattr(spirv, "SHIPPED", tmp_path)
    (tmp_path / "thing.address.double.spv").write_bytes(b"spirv")
    spirv.load.cache_clear()
    assert spirv.load("thing", "address", "double") == b"spirv"
    with pytest.raises(ShaderError, match=r"thing\.storage\.mixed"):
        spirv.load("thing", "storage", "mixed")
    spirv.load.cache_clear()
