"""Other programs in tests: each ends, with all that it started."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import graphopt

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-gl=angle --use-angle=swiftshader "
    "--enable-unsafe-swiftshader --proxy-server=direct://"
).split()


def completed(words: list[str], *, timeout: float, **options) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with both streams as text; `timeout` [s] ends the children of the process, too.

    Those that live on would keep the streams open, and whoever reads them would wait for ever.
    """
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    with process:
        try:
            written = process.communicate(timeout=timeout)
        except BaseException:
            _end_session(process.pid)
            raise
    return subprocess.CompletedProcess(words, process.returncode, *written)


def python(
    *words: str,
    path: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
    status: int = 0,
    **options,
) -> subprocess.CompletedProcess[str]:
    """A fresh Python that finds `path` and the package that is tested; it has to end with this status."""
    folders = [*path, Path(graphopt.__file__).resolve().parents[1]]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **(environment or {})}
    done = completed([sys.executable, *words], timeout=timeout, env=variables, **options)
    assert done.returncode == status, done.stderr
    return done


def _end_session(leader: int) -> None:
    """The leader and what it started, also what has a process group of its own, as the ranks of mpirun."""
    os.killpg(leader, signal.SIGKILL)
    for stat in Path("/proc").glob("[0-9]*/stat"):  # none where there is no such folder
        with contextlib.suppress(OSError):
            session = stat.read_text().rpartition(")")[2].split()[3]
            if int(session) == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def page_in_browser(address: str, folder: Path, milliseconds: int) -> str:
    """The page as headless Chromium has it after so much of its own time; without Chromium a skip.

    Chromium that does not end within a minute is started once more: it is not what is tested.
    """
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    own = [CHROMIUM, *_FLAGS, f"--virtual-time-budget={milliseconds}", "--dump-dom", address]
    try:
        done = completed([*own, f"--user-data-dir={folder / 'first'}"], timeout=60)
    except subprocess.TimeoutExpired:
        done = completed([*own, f"--user-data-dir={folder / 'second'}"], timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
