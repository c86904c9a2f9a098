"""Under `make test` the tests run against the installed package, not against the source tree."""

import os
from pathlib import Path

import pytest

import graphopt


@pytest.mark.skipif(
    "GRAPHOPT_TEST_INSTALLED" not in os.environ, reason="only `make test` installs the package"
)
def test_the_installed_package_is_tested():
    """graphopt is imported from the environment's site-packages, with its native modules."""
    folder = Path(graphopt.__file__).parent
    assert folder.parent.name == "site-packages"
    assert list(folder.glob("_cpu_*.so")), f"no native modules in {folder}"
