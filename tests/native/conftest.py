"""The C library, built once per run."""

import os
import shutil

import c_library
import pytest


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Folder with the installed library and the examples, built by CMake and a compiler alone."""
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("needs cmake and a C++ compiler")
    own = tmp_path_factory.getbasetemp()  # of a process; the folder of the run is above it
    return c_library.install(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session")
def library(installed):
    """The library, loaded."""
    return c_library.load(installed)
