"""The tutorial in docs/types.md runs, and prints what its comments say."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np

from graphopt.types import registry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "types.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_tutorial_runs(tmp_path):
    """All blocks in one session; a comment behind print(...) holds what is printed, or parts with dots."""
    before = set(registry.all_types())
    scope = {}
    try:
        for number, block in enumerate(BLOCKS):
            printed = io.StringIO()
            file = tmp_path / f"block{number}.py"
            file.write_text(block)
            with contextlib.redirect_stdout(printed):
                exec(compile(block, str(file), "exec"), scope)
            for claim in re.findall(r"print\(.*\)\s+# (.+)$", block, re.MULTILINE):
                parts = [part.strip() for part in claim.split("...") if part.strip()]
                assert parts and all(part in printed.getvalue() for part in parts), printed.getvalue()
        cameras = np.array([[0, 0, -8, 0, 0, 0, 1, 300, 0, 0], [1, 0, -8, 0, 0, 0, 1, 300, 0, 0]], float)
        points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
        camera, point = (x.ravel() for x in np.mgrid[:2, :20])
        seen = points[point] + cameras[camera, :3]
        pixels = -300.0 * seen[:, :2] / seen[:, 2:]
        _, _, summary = scope["adjust"](cameras, points + 0.01, camera, point, pixels)
        assert summary.final_chi2 < 1e-6 * summary.initial_chi2
    finally:
        for kind in set(registry.all_types()) - before:
            registry.unregister(kind)
