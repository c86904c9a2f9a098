"""What a first call loads: nothing that takes long and that it does not need."""

from __future__ import annotations

from processes import python

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
        assert python("-c", FIRST_CALL.format(method=method)).stdout.split() == ["[]"]


def test_every_public_name_can_be_loaded():
    """Also in a process that has loaded nothing yet, and without a warning."""
    script = "import graphopt\nfor name in graphopt.__all__: getattr(graphopt, name)"
    python("-W", "error", "-c", script)
