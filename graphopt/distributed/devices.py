"""Which device a rank takes, and how many threads.

    cpu                    every rank its share of the cores
    vulkan                 the ranks of a host take its GPUs in order, one each
    vulkan:0,vulkan:1,cpu  the ranks of a host take these in order; a device that is named twice is shared
    vulkan,cpu,vulkan      likewise: the first GPU, the cores, the second GPU

In order: that of the launcher's local ranks (SLURM_LOCALID and others), else of the ranks.

Two ranks on one GPU are slower than one, so that is an error unless it was asked for by naming it twice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graphopt.cpu_kernels import kernels
from graphopt.distributed.communicator import Communicator, ThreadCommunicator, agreed
from graphopt.errors import DeviceError, OptionError

LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)
"""Where Open MPI, MPICH and Intel MPI, MVAPICH and Slurm say which rank of its host a process is."""


@dataclass(frozen=True)
class Assignment:
    """Where a rank computes."""

    device: str
    """"cpu", or "vulkan:N"."""
    threads: int
    """Of the CPU."""
    threads_alone: int
    """Of the CPU, while the other ranks wait for this one."""


def rank_devices(device: str) -> list[str]:
    """The devices of a list separated by commas; `OptionError` for an empty one in it."""
    names = [word.strip() for word in device.split(",")]
    if not all(names):
        raise OptionError(f"device is '{device}', expected names separated by commas, as vulkan:0,vulkan:1.")
    return names


def assign_device(comm: Communicator, device: str) -> Assignment:
    """This rank's device; collective. `DeviceError` on all ranks where there are not enough."""
    host = comm.host_of() + node_of_launcher()
    hosts = comm.share((host, _cores()))
    locals_ = comm.share(local_rank_of_launcher())
    mates = [rank for rank, (name, _) in enumerate(hosts) if name == host]
    place = mates.index(comm.rank)
    told_places = [locals_[rank] for rank in mates]
    if sorted(told_place for told_place in told_places if told_place is not None) == list(range(len(mates))):
        place = told_places[place]
    names = rank_devices(device)
    error = _complaint(names, mates, host)
    told = next((message for message in comm.share(error) if message is not None), None)
    if told is not None:
        raise agreed(DeviceError(told))
    name = names[place] if len(names) > 1 else names[0]
    if name == "vulkan":
        before = names[:place].count(name) if len(names) > 1 else place
        name = f"vulkan:{_gpus()[before]}"
    threads = _threads(hosts, mates)
    polling = 0 if isinstance(comm, ThreadCommunicator) else len(mates) - 1
    return Assignment("cpu" if name == "auto" else name, threads, _threads_alone(threads, polling))


def assignments_of_threads(names: Sequence[str]) -> list[Assignment]:
    """Those of ranks that will be threads of this process, in order, before they are started."""
    threads = _threads([("", _cores())] * len(names), range(len(names)))
    alone = _threads_alone(threads, 0)
    return [Assignment("cpu" if name == "auto" else name, threads, alone) for name in names]


def local_rank_of_launcher() -> int | None:
    """Which of its host's ranks the launcher says that this process is; None: it says nothing."""
    for name in LOCAL_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def node_of_launcher() -> str:
    """Tells hosts of one name apart (containers): " (node 3)" under Slurm."""
    node = os.environ.get("SLURM_NODEID", "")
    return f" (node {node})" if node else ""


def _complaint(names: Sequence[str], mates: Sequence[int], host: str) -> str | None:
    """Why the devices do not serve the ranks of a host."""
    count = len(mates)
    if len(names) > 1:
        if len(names) != count:
            return (
                f"--device names {len(names)} devices, but {count} ranks run on {host}: name one for each, "
                f"or start {len(names)} ranks per host."
            )
        return _too_few(names.count("vulkan"), host) if "vulkan" in names else None
    name = names[0]
    if name in ("cpu", "auto") or count == 1:
        return None
    if name == "vulkan":
        return _too_few(count, host)
    return (
        f"Ranks {mates[0]} and {mates[1]} of {host} would both take {name}. Use --device vulkan, which gives "
        f"each its own, or share it on purpose: --device {','.join([name] * count)}."
    )


def _too_few(count: int, host: str) -> str | None:
    """Why so many ranks of a host cannot have a GPU each."""
    found = len(_gpus())
    if found >= count:
        return None
    shared = ",".join(["vulkan:0"] * count)
    return (
        f"{count} ranks run on {host}, which has {found} Vulkan device{'s' * (found != 1)}: start "
        f"{max(found, 1)} rank{'s' * (found != 1)} per host, or let them share one: --device {shared}."
    )


def _gpus() -> list[int]:
    """Indices of Vulkan devices: the GPUs, of software drivers one where there is no GPU."""
    from graphopt.device.listing import list_devices

    devices = list_devices()
    real = [each_device.index for each_device in devices if each_device.kind != "cpu"]
    return real or [each_device.index for each_device in devices[:1]]


def _cores() -> tuple[int, ...]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _threads(hosts: Sequence[tuple[str, tuple[int, ...]]], mates: Sequence[int]) -> int:
    """Cores per rank: those that the launcher has bound a rank to, shared with whom has the same."""
    if "GRAPHOPT_NUM_THREADS" in os.environ:
        return kernels.num_threads()
    use = Counter(core for rank in mates for core in hosts[rank][1])
    own = hosts[mates[0]][1] if not use else _cores()
    return max(int(sum(1.0 / use[core] for core in own) + 1e-9), 1)


def _threads_alone(threads: int, polling: int) -> int:
    """Those of this process: ranks that are threads sleep while they wait, and those of MPI poll."""
    if "GRAPHOPT_NUM_THREADS" in os.environ:
        return threads
    return max(len(_cores()) - polling, threads)


@contextmanager
def threads_of_ranks(number: int | None) -> Iterator[None]:
    """Within it parallel loops of this process use `number` threads; None: as many as before."""
    before = kernels.num_threads()
    number = before if number is None else number
    if number != before:
        kernels.set_num_threads(number)
    try:
        yield
    finally:
        if number != before:
            kernels.set_num_threads(before)
