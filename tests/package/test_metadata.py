"""What the installed package says of itself: version, licence, types."""

from importlib import metadata
from pathlib import Path

import pytest

import graphopt
import slam_bridge

ROOT = Path(__file__).resolve().parents[2]


def test_type_checkers_see_both_packages():
    """PEP 561's marker stands beside the code."""
    for package in (graphopt, slam_bridge):
        assert package.__file__ is not None
        assert (Path(package.__file__).parent / "py.typed").is_file()


def test_metadata():
    """One version, an SPDX licence, Python versions."""
    try:
        found = metadata.metadata("graphopt")
    except metadata.PackageNotFoundError:
        pytest.skip("graphopt is not installed here, `make test` does that")
    assert found["Version"] == graphopt.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert "Programming Language :: Python :: 3.13" in found.get_all("Classifier", [])


def test_the_version_stands_once():
    """pyproject.toml takes it from the package."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text and graphopt.__version__ not in text
