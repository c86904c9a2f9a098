"""The C library, built once per run."""

import shutil

import c_library
import pytest


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Folder with the installed library and the examples, built by CMake and a compiler alone."""
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("needs cmake and a C++ compiler")
    return c_library.install(tmp_path_factory.getbasetemp().parent)


@pytest.fixture(scope="session")
def library(installed):
    """The library, loaded."""
    return c_library.load(installed)
