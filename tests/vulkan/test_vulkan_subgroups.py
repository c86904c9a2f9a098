"""No kernel depends on the size of a subgroup: llvmpipe with subgroups of 4, 8 and 16 gives the same bits.

Its subgroup is as wide as its vectors, which LP_NATIVE_VECTOR_WIDTH sets for a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from vulkan_devices import shared_device

import graphopt

PROGRAM = """
import hashlib, json, sys
sys.path[:0] = sys.argv[1:]
from graphopt.device import VulkanDevice
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.program import Context
from vulkan_problems import make_problem

device = VulkanDevice(validation=True)
digests = {}
for precision, schur, dims in (
    ("double", "explicit", [6] * 6),
    ("double", "implicit", [6, 3, 6, 3, 6, 6]),
    ("mixed", "explicit", [6, 3, 6, 3, 6, 6]),
    ("mixed", "implicit", [6] * 6),
):
    problem = make_problem(dims, [3, 2] * 14, degree=4)
    configuration = Configuration("pcg", schur, tolerance=1e-12, max_iterations=60)
    system = DampedSystem(Context(device, precision), problem.layout, configuration)
    system.values[:], system.b[:] = problem.values, problem.b
    system.upload()
    assert system.solve(0.37)
    digests[f"{precision} {schur} {dims}"] = hashlib.sha256(system.dx.tobytes()).hexdigest()
print(json.dumps([device.info["subgroup_size"], digests, device.messages]))
"""


def solve_with_subgroups_of(size: int) -> tuple[int, dict[str, str], list[str]]:
    """Subgroup size of the device in a process of its own, digests of its steps, validation messages."""
    environment = {**os.environ, "LP_NATIVE_VECTOR_WIDTH": str(32 * size), "LP_NUM_THREADS": "0"}
    folders = [Path(__file__).parents[1] / "helpers", Path(graphopt.__file__).parents[1]]
    command = [sys.executable, "-c", PROGRAM, *map(str, folders)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return tuple(json.loads(result.stdout.splitlines()[-1]))


def test_steps_do_not_depend_on_the_subgroup_size():
    """Explicit and implicit Schur complement, blocks of one and of several sizes, both precisions."""
    if "llvmpipe" not in shared_device("address").name:
        pytest.skip("only llvmpipe's subgroup size can be chosen over such a range")
    results = {size: solve_with_subgroups_of(size) for size in (4, 8, 16)}
    for size, (actual, digests, messages) in results.items():
        assert actual == size and messages == []
        assert digests == results[8][1]
