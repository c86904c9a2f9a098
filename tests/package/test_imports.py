"""What a first call loads: nothing that takes long and that it does not need."""

from __future__ import annotations

import subprocess
import sys

FIRST_CALL = """
import sys
import graphopt
from graphopt.evaluate import datasets
graph = datasets.manhattan(40)
graphopt.optimize(graph, method="{method}")
graphopt.optimize(datasets.ba(3, 60))
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"scipy", "matplotlib", "rich", "sympy"}}))
"""


def test_an_optimization_does_not_load_scipy():
    """scipy alone takes longer to load than small graphs take to solve."""
    for method in ("auto", "lm"):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_CALL.format(method=method)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["[]"]


def test_every_public_name_can_be_loaded():
    """Also in a process that has loaded nothing yet, and without a warning."""
    script = "import graphopt\nfor name in graphopt.__all__: getattr(graphopt, name)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
