"""Every application of Opt and Thallo is an example, in the gallery and in the benchmark's tables."""

import os
import re
import subprocess
import sys

import pytest
from examples_modules import FOLDER, ROOT

THALLO = {
    "BundleFusion", "Face Fit", "Shape/Shading", "Bundle Adjust", "Deconv. 11x11", "Deconv. 15x15",
    "SV Deconv.", "ARAP", "COT", "EMD", "IW", "IID", "OF", "PIE", "RNA", "SFS", "VMD",
}  # fmt: skip


def run(*arguments, status=0):
    """What the benchmark prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHOPT_NUM_THREADS": "1", "COLUMNS": "400"}
    if os.environ.get("GRAPHOPT_TEST_INSTALLED"):
        environment.pop("PYTHONPATH")
    command = [sys.executable, str(ROOT / "benchmarks" / "applications.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_all_rows_of_thallos_tables_are_there():
    """By the names that the option offers where it is given another one."""
    text = run("--only", "nothing", status=2)
    assert all(name in text for name in THALLO)


@pytest.mark.slow
def test_all_rows_run():
    """Small: each has a time, none an error."""
    text = run("--scale", "0.34")
    rows = {
        cells[0]: cells
        for line in text.splitlines()
        if len(cells := [c.strip() for c in line.split("│")[1:-1]]) > 8
    }
    assert set(rows) == THALLO
    assert all(float(cells[5]) > 0.0 for cells in rows.values())


def test_a_row_has_published_times_beside():
    """Poisson editing, as Thallo's table 2 has it."""
    text = run("--scale", "0.2", "--tables", "2", "--only", "PIE")
    line = next(line for line in text.splitlines() if "PIE" in line)
    assert [float(number) for number in re.findall(r"[\d.]+", line)[-4:]] == [28.49, 29.98, 32.43, 75404.39]


def test_ablation_counts_operations():
    """Simplification leaves fewer than there were, in every table."""
    for table in run("--tables", "figure15").split("as operations")[1:]:
        counts = [int(number) for number in re.findall(r"│ [a-z -]+ +│ +(\d+) │", table)]
        assert counts[1] < counts[0]


def test_the_gallery_shows_what_examples_draw():
    """Each example of the page exists; each picture is of one that writes pictures."""
    gallery, examples = (
        (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("gallery", "examples")
    )
    named = set(re.findall(r"`(\w+)\.py", examples))
    drawn = set(re.findall(r"\(gallery/(\w+)\.png\)", gallery))
    assert drawn <= named and len(drawn) >= 12
    for name in named:
        assert (FOLDER / f"{name}.py").exists(), name
    for name in drawn:
        assert "picture" in (FOLDER / f"{name}.py").read_text(encoding="utf-8"), name
