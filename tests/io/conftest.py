"""What tests of files share."""

import pytest

from graphopt import io


@pytest.fixture
def read_text(tmp_path):
    """Write a text to a file and read it."""

    def read(text, name="a.g2o"):
        path = tmp_path / name
        path.write_text(text)
        return io.read_with_report(path)

    return read
