"""What ranks keep on a device is written before it is read, and no launch runs into another one.

Fresh memory is filled with NaN, as float64 and float32; the validation layer watches synchronization.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rank_programs import PROBLEMS, estimates, on_all
from vulkan_devices import vulkan_runtime

from graphopt.device.vulkan import VulkanDevice
from graphopt.distributed.resident import ResidentIterating

vulkan_runtime()

DEVICES = "vulkan:0,vulkan:0"
WAYS = [
    {},
    {"preconditioner": "jacobi"},
    {"schedule": "blocks"},
    {"schedule": "matrix-free"},
    {"schedule": "jacobians"},
    {"precision": "mixed"},
    {"transport": "pages"},
]


def run(name, options):
    """Chi2 per iteration and estimates."""
    graph = PROBLEMS[name]()
    summary = on_all(graph, None, "lm", 3, device=DEVICES, schur="implicit", **options)
    return [iteration.chi2 for iteration in summary.iterations], estimates(graph)


def poison(monkeypatch):
    """Fill all memory of a device when it is handed out; returns the list of sizes that were."""
    allocate, filled = VulkanDevice.allocate, []

    def poisoned(self, nbytes, *args, **kwargs):
        buffer = allocate(self, nbytes, *args, **kwargs)
        self.write(buffer, np.full(buffer.size // 4, 0xFFFFFFFF, np.uint32))
        filled.append(nbytes)
        return buffer

    monkeypatch.setattr(VulkanDevice, "allocate", poisoned)
    return filled


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("name", ["adjustment", "mixed"])
def test_nothing_is_read_before_it_is_written(name, options, monkeypatch):
    """The same bits, whatever the memory held before."""
    expected = run(name, options)
    filled = poison(monkeypatch)
    assert run(name, options) == expected
    assert len(filled) > 20


def test_what_is_not_cleared_is_found(monkeypatch):
    """The test above would fail where a part of a message is not written."""
    poison(monkeypatch)
    monkeypatch.setattr(ResidentIterating, "_clear", lambda *_: None)
    with np.errstate(all="ignore"):
        chi2, _ = run("adjustment", {})
    assert not np.isfinite(chi2).all() or chi2[-1] > 0.9 * chi2[0]


SYNCHRONIZATION = """
import gc, json, sys
sys.path.insert(0, sys.argv[1])
from rank_programs import PROBLEMS, on_all
import graphopt
from graphopt.device.recording import VulkanRecorder
from graphopt.device.vulkan import VulkanDevice
if sys.argv[2] == "without barriers":
    VulkanRecorder.barrier = lambda self: self
for name, options in json.loads(sys.argv[3]):
    two = {"device": "vulkan:0,vulkan:0", "schur": "implicit"}
    on_all(PROBLEMS[name](), None, "lm", 2, **two, **options)
devices = [one for one in gc.get_objects() if isinstance(one, VulkanDevice)]
print(json.dumps([[one.access for one in devices], [text for one in devices for text in one.messages]]))
"""


@pytest.mark.parametrize("barriers", ["with barriers", "without barriers"])
def test_synchronization(barriers):
    """The layer finds no hazard between launches and copies, and many where barriers are left out."""
    # it follows buffers that kernels have by descriptor, not those by address
    layer = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
    environment = os.environ | {
        "GRAPHOPT_VALIDATION": "1",
        "GRAPHOPT_MASK_FEATURES": "buffer_address",
        "VK_LAYER_ENABLES": f"{layer}:VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT",
    }
    ways = [way for way in WAYS if "precision" not in way]  # which changes kernels, not their order
    cases = [("mixed", options) for options in (ways if barriers == "with barriers" else ways[:1])]
    helpers = str(Path(__file__).resolve().parent.parent / "helpers")
    command = [sys.executable, "-c", SYNCHRONIZATION, helpers, barriers, json.dumps(cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    accesses, messages = json.loads(done.stdout)
    assert set(accesses) == {"storage"}
    if barriers == "with barriers":
        assert messages == []
    else:
        assert any("SYNC-HAZARD" in text for text in messages)
