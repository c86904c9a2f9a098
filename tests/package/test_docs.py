"""The documentation's code runs and prints what its comments say; its pages, links and commands exist."""

import re
from pathlib import Path

import pytest

from graphopt.cli import parsers

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "checkpoint" not in path.name)
RUN = (
    "index.md",
    "quickstart.md",
    "pose_graphs.md",
    "bundle_adjustment.md",
    "gpu.md",
    "g2o.md",
    "batches.md",
    "constraints.md",
    "visual_inertial.md",
    "visual_inertial_problems.md",
    "arrays.md",
    "from_theseus.md",
    "api/expressions.md",
)
"""Pages whose code runs here. That of types.md and grids.md runs in tests/language, that of examples.md in
tests/symbolic; that of colmap.md needs a model."""


def name(page: Path) -> str:
    """As in mkdocs.yml."""
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> list[str]:
    """Python code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", RUN)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys, own_types):
    """All blocks of a page in one session; what stands behind a print is printed, up to an ellipsis."""
    code = "\n".join(blocks(DOCS / page))
    assert code
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "documentation"})
    printed = capsys.readouterr().out
    for line in re.findall(r"print\(.*\)  # (.*)", code):
        assert line.partition("...")[0] in printed, line


def test_the_first_page_shows_the_code_of_the_readme():
    """Where it runs as well, see test_readme.py."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(block in readme for block in blocks(DOCS / "index.md"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_fits_80_columns(page):
    """Blocks of Python."""
    assert not [line for block in blocks(page) for line in block.splitlines() if len(line) > 80]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_commands_exist(page):
    """Relative links name files; `graphopt` commands at the start of a line are taken by the parser."""
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not [link for link in missing if not link.startswith("gallery/")]  # drawn by `make gallery`
    for command in re.findall(r"^(?:    )?graphopt ((?!g2o|[A-Z]).+)$", text, re.MULTILINE):
        parsers.parse(re.split(r"\s+#|\s+&&", command)[0].split(), "0")


def test_every_page_is_in_the_menu_or_linked():
    """The menu has at most 20 pages beside the notebooks, all of them files; others are linked from these."""
    menu = re.findall(r"[\w/]+\.(?:md|ipynb)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sum(page.endswith(".md") for page in menu) <= 20 and all((DOCS / page).is_file() for page in menu)
    reached = set(menu)
    for page in filter(lambda page: page.endswith(".md"), menu):
        for link in re.findall(r"\]\(([^):#]+\.md)", (DOCS / page).read_text(encoding="utf-8")):
            reached.add((DOCS / page).parent.joinpath(link).resolve().relative_to(DOCS).as_posix())
    notebooks = {path for path in DOCS.rglob("*.ipynb") if "checkpoint" not in path.name}
    assert {name(page) for page in [*PAGES, *notebooks]} <= reached
