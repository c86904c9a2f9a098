"""The documentation's pages for newcomers run; everything the site's navigation names is there."""

import os
import re
from pathlib import Path

import pytest

from graphopt.types import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("quickstart.md", "from_g2o.md", "from_gtsam.md", "from_ceres.md")


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """All Python blocks of a page, one after the other; `print(...)  # x` prints what the comment says."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    known = set(registry.all_types())
    try:
        names: dict = {"__name__": "documentation"}
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    finally:
        for kind in set(registry.all_types()) - known:
            registry.unregister(kind)


def test_printed_comments_are_true(tmp_path, monkeypatch, capsys):
    """Of the five minutes' page: what stands behind a print is what is printed (up to an ellipsis)."""
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S))
    expected = re.findall(r"print\(.*\)  # (.*)", code)
    assert expected
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "quickstart.md", "exec"), {"__name__": "documentation"})
    printed = capsys.readouterr().out
    for line in expected:
        assert line.partition("...")[0] in printed, line


def test_pages_of_the_navigation():
    """Each file of mkdocs.yml is there, and each page is in it."""
    named = set(re.findall(r"[\w/]+\.(?:md|ipynb)", (ROOT / "mkdocs.yml").read_text()))
    there = {os.fspath(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.*")}
    there = {name for name in there if name.endswith((".md", ".ipynb")) and "checkpoint" not in name}
    assert named == there
