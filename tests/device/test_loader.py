"""Where the Vulkan loader has no driver, the error says why and what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"VK_DRIVER_FILES": ""}, "VK_DRIVER_FILES is ''"),
        ({"VK_DRIVER_FILES": "/none/a.json"}, "/none/a.json does not exist"),
        ({"VK_ICD_FILENAMES": "/none/a.json:/none/b.json"}, "/none/b.json does not exist"),
    ],
)
def test_a_loader_without_drivers_is_told_with_the_way_out(setting, says):
    """Which variable points nowhere, or what to install; the CPU in any case."""
    program = "import graphopt.device as d\ntry: d.list_devices()\nexcept d.DeviceError as e: print(e)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VK_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=clean | setting,
    )
    assert says in done.stdout and "device='cpu'" in done.stdout and "VK_LOADER_DEBUG" in done.stdout
