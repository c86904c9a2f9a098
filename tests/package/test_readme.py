"""The README's Python code runs and gives what its comments say; its commands and links exist."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from graphopt.cli import parsers

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS)
def test_code_prints_what_its_comment_says(code, own_types):
    """Each block ends with a comment whose beginning is the last line that the block prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    claim = re.sub(r"\s+", " ", code.strip().splitlines()[-1].lstrip("# "))
    result = re.sub(r"\s+", " ", printed.getvalue().strip().splitlines()[-1])
    assert claim.replace("[ ", "[").startswith(result.replace("[ ", "["))


def test_commands_parse():
    """Every `graphopt` command in the README is one that the parser takes."""
    commands = re.findall(r"^graphopt (.+)$", README, re.MULTILINE)
    assert commands
    for command in commands:
        parsers.parse(command.split(), "0")


def test_links_lead_somewhere():
    """Every relative link names a file or folder of the repository."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    missing = [link for link in links if not (ROOT / link).exists()]
    assert links
    assert not missing


def test_system_packages_are_those_of_the_makefile():
    """The packages that the README names are those that `make` installs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    packages = re.search(r"^SYSTEM_PACKAGES = (.+)$", makefile, re.MULTILINE).group(1)
    assert f"apt-get install {packages}\n" in README
