"""What a first call loads: nothing that takes long and that it does not need."""

from __future__ import annotations

from processes import python

import graphopt

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


def test_the_drop_in_loads_without_scipy():
    """The build writes its stubs, in an environment that has no scipy yet."""
    script = "import sys, graphopt.g2o; print('scipy' in sys.modules)"
    assert python("-c", script).stdout.split() == ["False"]


COMMAND = """
import sys
from graphopt.cli.main import main
assert main(["optimize", *sys.argv[1:]]) == {status}
print(sorted({{"scipy", "graphopt.distributed", "graphopt._vulkan"}} & set(sys.modules)))
"""


def test_the_command_loads_neither_ranks_nor_a_device_that_nobody_needs(tmp_path):
    """Without `--distributed`; no device is opened for a file that is not there."""
    path = tmp_path / "a.g2o"
    graphopt.write(graphopt.evaluate.datasets.manhattan(40), path)
    runs = ((0, str(path), "cpu"), (2, str(tmp_path / "missing.g2o"), "vulkan"))
    for status, name, device in runs:
        done = python("-c", COMMAND.format(status=status), name, "--device", device)
        assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_can_be_loaded():
    """Also in a process that has loaded nothing yet, and without a warning."""
    script = "import graphopt\nfor name in graphopt.__all__: getattr(graphopt, name)"
    python("-W", "error", "-c", script)
