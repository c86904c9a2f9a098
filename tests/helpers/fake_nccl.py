"""CUDA's driver and NCCL on the memory of a software driver, as a shared library: see fake_nccl.cpp."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from graphopt.device.listing import list_devices
from graphopt.distributed import nccl

SOURCE = Path(__file__).with_name("fake_nccl.cpp")


def build(folder: Path) -> Path:
    """Compile it; skips where there is no compiler, or no driver that exports memory as a file."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    first = list_devices()[0]
    if first.kind != "cpu" or not first.features["exports_memory"]:
        pytest.skip("needs a software driver that exports memory")
    made = folder / "fake_nccl.so"
    command = [
        "c++",
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
        str(SOURCE),
        "-o",
        str(made),
        "-lrt",
    ]
    subprocess.run(command, check=True)
    return made


def install(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    """Let it be CUDA and NCCL; ranks may share the one device that there is."""
    monkeypatch.setenv("FAKE_CUDA_UUIDS", list_devices()[0].features["uuid"])
    monkeypatch.setenv("NCCL_P2P_DIRECT_DISABLE", "1")  # which the library sets for good
    nccl.libraries.cache_clear()
    monkeypatch.setattr(nccl, "open_library", lambda name: ctypes.CDLL(str(library)))
    monkeypatch.setattr(nccl, "_sharing", lambda places: [])
