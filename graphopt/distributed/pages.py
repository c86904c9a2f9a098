"""Memory of the host that all ranks of it have, for their devices to import.

Threads have one mapping; processes map one file of a file system in memory, which has no name any more once
all have it. Large pages (2 MiB), where the system gives some: devices find their way through fewer of them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from graphopt.distributed.communicator import Communicator, ThreadCommunicator, together
from graphopt.errors import DeviceError

_IN_MEMORY = Path("/dev/shm")
_LARGE = 1 << 21


def shared_pages(comm: Communicator, nbytes: int, alignment: int) -> np.ndarray:
    """Zeros for `nbytes` of each rank, uint8. Collective; `OSError` on all ranks.

    It begins and ends at multiples of `alignment` bytes; `DeviceError` where processes cannot have that.
    """
    size = max(-(-comm.size * nbytes // alignment), 1) * alignment
    if isinstance(comm, ThreadCommunicator):
        return comm.share(aligned_zeros(size, alignment) if comm.rank == 0 else None)[0]
    path = comm.share(together(comm, lambda: _made(size) if comm.rank == 0 else ""))[0]
    try:
        return together(comm, lambda: _mapped(path, alignment))
    finally:
        if comm.rank == 0:
            os.unlink(path)


def aligned_zeros(size: int, alignment: int) -> np.ndarray:
    """(size,) uint8."""
    most = max(alignment, _LARGE)
    # private: shared mappings have no large pages where the system is as it comes
    mapped = mmap.mmap(-1, size + most, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = _in_large_pages(mapped)
    first = -memory.ctypes.data % most
    chosen = memory[first : first + size]
    chosen[:] = 0  # by the host, in large pages, before a driver takes small ones
    return chosen


def _in_large_pages(mapped: mmap.mmap) -> np.ndarray:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)


def _made(size: int) -> str:
    """Path of a new file that has its memory."""
    folder = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    descriptor, path = tempfile.mkstemp(prefix="graphopt-", dir=folder)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
    return path


def _mapped(path: str, alignment: int) -> np.ndarray:
    with open(path, "r+b") as file:
        memory = _in_large_pages(mmap.mmap(file.fileno(), 0))
    if memory.ctypes.data % alignment:
        raise DeviceError(f"transport='pages': memory of processes is aligned to {mmap.PAGESIZE} bytes only.")
    return memory
