"""A copy of the sources, to build or test them in other ways than the checkout: mutate.py, watch_tests.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def native_isa() -> str:
    """Instruction set of this processor, as in the name of its module."""
    return subprocess.check_output([str(ROOT / "tools/native_isa.sh")], text=True).strip()


def configuration(source: Path, build: Path, settings: dict[str, str]) -> list[str]:
    """Command that configures a build for this processor.

    Programs of edge types stay bytecode: as machine code they take most of the time.
    """
    settings = {
        "GRAPHOPT_CPU_ISAS": native_isa(),
        "GRAPHOPT_PREBUILD": "OFF",
        "GRAPHOPT_COMPILED_PROGRAMS": "OFF",
        "Python_EXECUTABLE": sys.executable,
        **settings,
    }
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    return ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *defined]


class Workshop:
    """Folder with the sources that git knows, and what was built of the package (here, else as installed)."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.changed: list[str] = []
        """Sources that were there in another version."""
        folder.mkdir(parents=True, exist_ok=True)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
            source, target = ROOT / name, folder / name
            known = target.exists()
            if source.is_file() and not (known and target.read_bytes() == source.read_bytes()):
                self.changed += [name] * known
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                shutil.copymode(source, target)
        package = _package()
        for built in (*package.glob("*.so"), *package.glob("device/spirv/*")):
            target = folder / "graphopt" / built.relative_to(package)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(built, target)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GRAPHOPT_")},
            "PYTHONPATH": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GRAPHOPT_SHARED": os.environ.get("GRAPHOPT_SHARED", str(ROOT.parent / "shared")),
        }

    def run(self, words: list[str], timeout: float) -> tuple[int | None, str]:
        """Status and output of a command in the folder; None after `timeout` seconds: its processes end."""
        with subprocess.Popen(
            words, cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                printed, _ = process.communicate(timeout=timeout)
                return process.returncode, printed
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return None, ""


def _package() -> Path:
    """Folder of the built package: the checkout's own, else the installed one."""
    own = ROOT / "graphopt"
    if any(own.glob("*.so")):
        return own
    where = "import graphopt, pathlib; print(pathlib.Path(graphopt.__file__).parent)"
    return Path(subprocess.check_output([sys.executable, "-c", where], cwd="/", text=True).strip())
