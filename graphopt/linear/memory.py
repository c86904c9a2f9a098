"""Memory of the host: what a factorisation needs is compared with what is there before it starts."""

from __future__ import annotations

from pathlib import Path

from graphopt.errors import SolverError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_WORTH_A_LOOK = 1 << 26  # bytes: less is always there


def available_bytes() -> int | None:
    """Memory that can be taken now, in this container; None where the system does not say (not Linux)."""
    known = [size for size in (_system(), _container()) if size is not None]
    return min(known, default=None)


def require(nbytes: int, what: str) -> None:
    """Raise `SolverError` if so much is not available."""
    room = available_bytes() if nbytes >= _WORTH_A_LOOK else None
    if room is not None and nbytes > room:
        raise SolverError(
            f"{what} takes {nbytes / 2**20:,.0f} MiB; {room / 2**20:,.0f} MiB are available. Use "
            "linear_solver='pcg', mark landmarks as marginalized (schur), or optimize a part of the graph."
        )


def _system() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _container() -> int | None:
    """What the control group leaves; pages of files are given back when they are needed."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        files = int(parts["inactive_file"]) + int(parts["active_file"])
        return None if limit == "max" else max(0, int(limit) - int(used) + files)
    except (OSError, ValueError, KeyError):
        return None
