"""`graphopt devices --why` names what is missing, in broken set-ups made of folders and variables."""

import json
import os
import sys
from pathlib import Path

import pytest
from processes import completed

from graphopt.device.why import System, lacks


def written(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files; text "->" makes a link to nothing."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("nothing") if text == "->" else path.write_text(text)
    return root


MANIFEST = json.dumps({"ICD": {"library_path": "libvulkan_some.so"}})
GOOD = {"usr/share/vulkan/icd.d/some.json": MANIFEST, "dev/dri/renderD128": ""}
NVIDIA = {
    **GOOD,
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  580.82.07  Release\n",
}
LIBRARY = "usr/lib/x86_64-linux-gnu/libGLX_nvidia.so."
BROKEN = {
    "no loader": (GOOD, {}, {"libvulkan.so.1"}, "loader", "libvulkan1"),
    "no manifest": ({"dev/dri/renderD128": ""}, {}, (), "ICD file", "mesa-vulkan-drivers"),
    "damaged manifest": ({**GOOD, "etc/vulkan/icd.d/a.json": "{"}, {}, (), "ICD file", "a.json"),
    "no library": (GOOD, {}, {"libvulkan_some.so"}, "driver library", "some.json"),
    "empty variable": (GOOD, {"VK_DRIVER_FILES": ""}, (), "environment", "unset VK_DRIVER_FILES"),
    "filter": (GOOD, {"VK_LOADER_DRIVERS_DISABLE": "*"}, (), "environment", "unset VK_LOADER_DRIVERS_DIS"),
    "compute only": (
        NVIDIA, {"NVIDIA_DRIVER_CAPABILITIES": "compute"}, (), "graphics capability", "graphics",
    ),
    "other version": ({**NVIDIA, LIBRARY + "535.1.2": ""}, {}, (), "driver version", "libnvidia-gl-580"),
    "permission": ({**GOOD, "dev/dri/renderD128": "->"}, {}, (), "permission", "usermod"),
    "no node": (
        {"usr/share/vulkan/icd.d/some.json": MANIFEST, "sys/bus/pci/devices/0/class": "0x030200\n"}, {}, (),
        "device node", "--device /dev/dri",
    ),
}  # fmt: skip


def looked_at(root, variables, unloadable):
    def load(name):
        if name in unloadable:
            raise OSError(f"{name}: cannot open shared object file")

    return lacks(System(variables, root, load))


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_missing_is_named_with_the_line_to_add(name, tmp_path):
    """That alone."""
    files, variables, unloadable, what, add = BROKEN[name]
    (found,) = looked_at(written(tmp_path, files), variables, unloadable)
    assert found.what == what
    assert add in found.add


@pytest.mark.parametrize("files", [GOOD, {**NVIDIA, LIBRARY + "580.82.07": ""}])
def test_nothing_is_missing(files, tmp_path):
    """Of drivers of Mesa and NVIDIA that are whole."""
    assert looked_at(written(tmp_path, files), {}, ()) == []


@pytest.mark.parametrize(
    "variables,says",
    [
        ({"VK_DRIVER_FILES": "/none/a.json"}, "/none/a.json does not exist"),
        ({"VK_DRIVER_FILES": "."}, "no drivers"),  # an empty folder
        ({"VK_DRIVER_FILES": "/dev/null"}, "/dev/null is no manifest"),
        ({"VK_ICD_FILENAMES": ""}, "unset VK_ICD_FILENAMES"),
        ({"LD_LIBRARY_PATH": "."}, "libvulkan1"),
    ],
)
def test_the_command_in_a_broken_environment(variables, says, tmp_path):
    """With JSON; the last has a file in the loader's place that is no library."""
    (tmp_path / "libvulkan.so.1").write_bytes(b"")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("VK_")}
    words = [sys.executable, "-m", "graphopt", "devices", "--why", "--json"]
    variables = {key: str(tmp_path) if value == "." else value for key, value in variables.items()}
    done = completed(words, timeout=60.0, env=clean | variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert any(says in line for lack in json.loads(done.stdout)["missing"] for line in lack.values())


def test_a_list_may_name_a_folder(tmp_path):
    """As the loader takes it."""
    root = written(tmp_path, GOOD)
    variables = {"VK_DRIVER_FILES": str(root / "usr/share/vulkan/icd.d")}
    assert looked_at(root, variables, ()) == []
    (broken,) = looked_at(root, variables, {"libvulkan_some.so"})
    assert broken.what == "driver library"
