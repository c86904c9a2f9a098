"""How rows that several GPUs share get from one to the others in each iteration of the conjugate gradients.

    host     down into pinned memory, added by cores, and up again: any ranks, any devices
    pages    down into memory of the host that all devices have imported, and up from there: ranks of one host
    auto     pages for threads with messages of `LARGE` bytes and more, where all devices import; else host

All give the same bits in float64: sums are taken in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from graphopt.distributed.communicator import Communicator, ThreadCommunicator, agreed, together
from graphopt.distributed.devices import node_of_launcher
from graphopt.distributed.pages import shared_pages
from graphopt.errors import DeviceError, OptionError
from graphopt.option_names import TRANSPORTS

if TYPE_CHECKING:
    from graphopt.distributed.messages import Rows

LARGE = 200_000
"""Bytes of the rows of a message from which on `pages` was measured to win."""
MOST_GATHERED = 1 << 30
"""Bytes of what eliminations give, of all ranks, that a device may hold; more goes through the host."""


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
    is_worth = isinstance(comm, ThreadCommunicator) and getattr(own, "bytes_told", (0,))[0] >= LARGE
    if transport == "pages" or (transport == "auto" and all(comm.share(is_worth))):
        return _by_pages(comm, own, transport == "pages")
    return "host"


def _by_pages(comm: Communicator, own: Any, is_asked: bool) -> str:
    """Where it cannot be had: "host", or the error, if it was asked for."""
    device = getattr(own, "device", None)
    alignment = 0 if device is None else device.info.get("host_alignment", 0)
    hosts = comm.share(comm.host_of() + node_of_launcher())
    told = comm.share((_obstacle(device, alignment, hosts), alignment))
    reasons = [f"rank {rank}: {reason}" for rank, (reason, _) in enumerate(told) if reason is not None]
    if reasons and is_asked:
        raise agreed(DeviceError(f"transport='pages' cannot be used: {reasons[0]}"))
    if reasons:
        return "host"
    from graphopt.distributed.messages import Rows

    def way(nbytes: int, turns: int) -> Callable[..., Rows]:
        pages = shared_pages(comm, turns * nbytes, max(value for _, value in told))
        return partial(Rows, pages=pages, turns=turns, rank=comm.rank, size=comm.size)

    of_rows, of_sums = own.bytes_told  # the same on all ranks
    ways = way(of_rows, 2), way(of_sums, 1) if comm.size * of_sums <= MOST_GATHERED else None
    together(comm, lambda: own.tell_by(*ways))
    return "pages"


def _obstacle(device: Any, alignment: int, hosts: Sequence[str]) -> str | None:
    if device is None:
        return "it computes on the CPU (as with schur='explicit'), or has no edges. Use transport='host'."
    if not alignment:
        return (
            f"the driver of {device.name} does not work on memory of the host (VK_EXT_external_memory_host). "
            "Use transport='host'."
        )
    if len(set(hosts)) > 1:
        return (
            f"it shares no memory with ranks of another host ({hosts[0]}, {hosts[-1]}). Use transport='host'."
        )
    return None
