"""How rows that several GPUs share get from one to the others in each iteration of the conjugate gradients.

    host     down into pinned memory, added by cores, and up again: any ranks, any devices
    pages    down into memory of the host that all devices have imported, and up from there: ranks are threads
    nccl     from device to device by NCCL: NVIDIA GPUs, one per rank
    auto     host

All give the same bits in float64: sums are taken in the order of the ranks.
"""

from __future__ import annotations

from typing import Any

from graphopt.distributed.communicator import Communicator, ThreadCommunicator, agreed, together
from graphopt.distributed.nccl import nccl_rank
from graphopt.errors import DeviceError, OptionError

TRANSPORTS = ("auto", "host", "pages", "nccl")


def check_transport(transport: str) -> None:
    """`OptionError` for an unknown one."""
    if transport not in TRANSPORTS:
        raise OptionError(f"transport is '{transport}', expected one of {', '.join(TRANSPORTS)}.")


def connect(comm: Communicator, own: Any, transport: str) -> str:
    """Let a rank's side of the conjugate gradients talk that way; which way it is. Collective.

    own: an `iterating.Iterating`. `DeviceError` on all ranks where what was asked for cannot be had, with the
    first rank's reason.
    """
    if comm.size == 1:
        return "host"
    if transport == "nccl":
        ranks = nccl_rank(comm, getattr(own, "device", None))
        together(comm, lambda: own.gather_by(ranks))
        return "nccl"
    if transport == "pages":
        _share_pages(comm, own)
        return "pages"
    return "host"


def _share_pages(comm: Communicator, own: Any) -> None:
    from graphopt.distributed.messages import host_pages

    device = getattr(own, "device", None)
    alignment = 0 if device is None else device.info.get("host_alignment", 0)
    told = comm.share((_obstacle(comm, device, alignment), alignment))
    for rank, (reason, _) in enumerate(told):
        if reason is not None:
            raise agreed(DeviceError(f"transport='pages' cannot be used: rank {rank}: {reason}"))
    alignment = max(one for _, one in told)
    made = host_pages(own.row_bytes, comm.size, alignment) if comm.rank == 0 else None
    pages = comm.share(made)[0]  # the very array
    together(comm, lambda: own.share_pages(pages, comm.rank, comm.size))


def _obstacle(comm: Communicator, device: Any, alignment: int) -> str | None:
    if not isinstance(comm, ThreadCommunicator):
        return (
            "ranks of MPI do not share memory. Use transport='host', or threads: device='vulkan:0,vulkan:1'."
        )
    if device is None:
        return "it computes on the CPU, or has no edges. Use transport='host'."
    if not alignment:
        return (
            f"the driver of {device.name} does not work on memory of the host (VK_EXT_external_memory_host). "
            "Use transport='host'."
        )
    return None
