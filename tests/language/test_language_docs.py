"""The code in docs/types.md and docs/grids.md runs, and prints what its comments say."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("own_types")

DOCS = Path(__file__).resolve().parents[2] / "docs"


def session(page: str, folder: Path) -> dict:
    """Run all blocks in one session; a comment behind print(...) holds what is printed, or parts of it."""
    scope: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        printed = io.StringIO()
        file = folder / f"block{number}.py"
        file.write_text(block)
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(file), "exec"), scope)
        for claim in re.findall(r"print\(.*\)\s+# (.+)$", block, re.MULTILINE):
            parts = [part.strip() for part in claim.split("...") if part.strip()]
            assert parts and all(part in printed.getvalue() for part in parts), printed.getvalue()
    return scope


def test_residuals_of_your_own_run(tmp_path):
    """And the first function adjusts two cameras."""
    scope = session("types.md", tmp_path)
    cameras = np.array([[0, 0, -8, 0, 0, 0, 1, 300, 0, 0], [1, 0, -8, 0, 0, 0, 1, 300, 0, 0]], float)
    points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    camera, point = (x.ravel() for x in np.mgrid[:2, :20])
    seen = points[point] + cameras[camera, :3]
    pixels = -300.0 * seen[:, :2] / seen[:, 2:]
    _, _, summary = scope["adjust"](cameras, points + 0.01, camera, point, pixels)
    assert summary.final_chi2 < 1e-6 * summary.initial_chi2


def test_grids_and_images_run(tmp_path):
    """Stencils, sampled images, computed values."""
    session("grids.md", tmp_path)
