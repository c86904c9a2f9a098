"""The cache folder: damaged entries are made anew, whatever they are, and it stays below its size."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import completed

from graphopt import disk_cache
from graphopt.errors import OptionError

PROGRAM = """
import numpy as np, graphopt
graph = graphopt.Graph()
graph.add_vertices("VERTEX_SE2", [0, 1, 2], np.zeros((3, 3)))
graph.add_edges("EDGE_SE2", [[0, 1], [1, 2]], [1.0, 0.0, 0.1])
summary = graphopt.optimize(graph, "gn", 2, device="vulkan")
print(summary.is_usable, repr(graph.vertex(2).estimate.tolist()))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder of 1 MiB."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("GRAPHOPT_CACHE_SIZE", "1")
    return tmp_path


def name_of(number: int) -> str:
    """An entry."""
    return f"{number:040x}.program"


def damaged(content: bytes, other: bytes, kind: str) -> bytes:
    """What a full disk, a crash, a bad disk or a confusion of names leaves of an entry."""
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 4
    return {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "flipped": bytes(flipped),
        "zeros": bytes(len(content)),
        "longer": content + bytes(8),
        "another": other,
    }[kind]


@pytest.mark.parametrize("kind", ["empty", "not empty"])
def test_a_folder_in_the_place_of_an_entry_gives_way_if_it_is_empty(kind, folder):
    place = folder / name_of(0)
    place.mkdir()
    if kind == "not empty":
        (place / "notes").write_text("the user's")
    assert disk_cache.load(name_of(0)) is None
    error = disk_cache.store(name_of(0), b"content")
    if kind == "empty":
        assert error is None and disk_cache.load(name_of(0)) == b"content"
    else:
        assert isinstance(error, OSError) and (place / "notes").exists()


@pytest.mark.parametrize("kind", ["empty", "cut", "flipped", "zeros", "longer", "another"])
def test_damaged_entries_count_as_missing(kind, folder):
    for number, content in enumerate((b"first" * 100, b"second" * 90)):
        disk_cache.store(name_of(number), content)
    path, other = folder / name_of(0), folder / name_of(1)
    path.write_bytes(damaged(path.read_bytes(), other.read_bytes(), kind))
    assert disk_cache.load(name_of(0)) is None
    disk_cache.store(name_of(0), b"anew")
    assert disk_cache.load(name_of(0)) == b"anew" and disk_cache.load(name_of(1)) == b"second" * 90


def test_an_optimization_makes_damaged_entries_anew(tmp_path, monkeypatch):
    """Programs, SPIR-V and pipelines, all of them damaged: same result, whole entries."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))

    def optimize() -> tuple[str, str]:
        done = completed([sys.executable, "-c", PROGRAM], timeout=300)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout, done.stderr

    result = optimize()
    assert result[0].startswith("True ")
    paths = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "written"]
    assert {path.suffix for path in paths} >= {".program", ".spv", ".bin"}
    for kind in ("cut", "flipped", "another"):
        contents = {path: path.read_bytes() for path in paths}
        for path, content in contents.items():
            other = next((contents[p] for p in paths if p.suffix == path.suffix and p != path), b"")
            path.write_bytes(damaged(content, other, kind))
        assert optimize() == result, kind
        assert all(disk_cache.load(str(path.relative_to(tmp_path))) is not None for path in paths), kind


def test_what_was_not_used_for_longest_goes_first(folder):
    """1 MiB holds 256 entries of a block: old ones go; one that is read, downloads and other files stay."""
    (folder / "data").mkdir()
    foreign = [folder / "data" / "big.bin", folder / "notes.txt", folder / "spirv.txt"]
    for path in foreign:
        path.write_bytes(bytes(1 << 20))
    now = time.time()
    for number in range(1000):
        disk_cache.store(name_of(number), bytes(3000))
        os.utime(folder / name_of(0), (now - 7200.0, now - 7200.0))
        assert disk_cache.load(name_of(0)) is not None
    kept = sorted(folder.glob("*.program"))
    assert 200 <= len(kept) <= 256 + 16 + 1
    assert name_of(999) in [path.name for path in kept]
    assert not (folder / name_of(1)).exists()
    assert all(path.stat().st_size == 1 << 20 for path in foreign)


STORES = """
import sys
from graphopt import disk_cache
for number in range(150):
    name = f"spirv/k-{number % 97:032x}.spv"
    assert disk_cache.store(name, bytes([number % 97]) * 20000) is None
    content = disk_cache.load(name)
    assert content is None or content == bytes([number % 97]) * 20000
"""


def test_many_processes_share_the_folder(folder):
    """Removing while others read and write loses entries, and never shows a wrong one."""
    running = [subprocess.Popen([sys.executable, "-c", STORES]) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0] * 3
    entries = list((folder / "spirv").iterdir())
    assert sum(entry.stat().st_size for entry in entries) < 1.3 * (1 << 20)
    assert all(entry.suffix == ".spv" for entry in entries)


def test_threads_store_at_once(folder):
    barrier = threading.Barrier(8)

    def store(number: int) -> bool:
        barrier.wait()
        errors = [disk_cache.store(name_of(k), bytes([k % 251]) * 9000) for k in range(number, 80 + number)]
        return errors == [None] * 80

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(store, range(8)))


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "10 GB", "many"])
def test_a_size_that_is_none_is_refused(size, folder, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_SIZE", size)
    with pytest.raises(OptionError, match=r"GRAPHOPT_CACHE_SIZE is .* MiB"):
        disk_cache.store(name_of(0), b"")
