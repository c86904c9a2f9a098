"""What the summary says about the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.scattering import Share
from graphopt.distributed.solver import DistributedBlockSolver
from graphopt.distributed.worth import Worth
from graphopt.optimizer.summary import Summary


def describe_alone(summary: Summary, comm: Communicator, worth: Worth) -> None:
    """Fill `ranks` and `partition` where rank 0 has done all."""
    told = {"rank": 0, "host": comm.host_of(), "device": summary.device, "device_name": summary.device_name}
    sizes = {"edges": summary.edges, "kept": summary.vertices, "eliminated": 0}
    seconds = sum(iteration.seconds for iteration in summary.iterations)
    times = {"memory_bytes": summary.memory_bytes, "seconds": seconds, "seconds_communicating": 0.0}
    summary.ranks = comm.share([told | sizes | times])[0]
    summary.partition = {"method": "none", "ranks": 1, "of": comm.size, "reason": worth.reason}


def describe_ranks(
    summary: Summary,
    comm: Communicator,
    share: Share,
    solver: DistributedBlockSolver,
    iterating: float,
    waited: float,
) -> None:
    """Fill `ranks`, `partition` and what is a sum over the ranks. Collective.

    iterating: seconds of this rank's iterations. waited: those of them that it spent in collectives.
    """
    part = solver.part
    own: dict[str, Any] = {
        "rank": comm.rank,
        "host": comm.host_of(),
        "device": summary.device,
        "device_name": summary.device_name,
        "edges": share.graph.num_edges,
        "kept": len(part.kept_blocks),
        "eliminated": 0 if part.structure is None else part.structure.num_blocks - part.structure.num_kept,
        "memory_bytes": summary.memory_bytes + share.graph.nbytes,
        "seconds": iterating,
        "seconds_communicating": waited,
    }
    summary.ranks = comm.share(own)
    busy = [max(rank["seconds"] - rank["seconds_communicating"], 0.0) for rank in summary.ranks]
    mean = sum(busy) / len(busy)
    total = sum(rank["seconds"] for rank in summary.ranks)
    communicating = sum(rank["seconds_communicating"] for rank in summary.ranks)
    edges = [rank["edges"] for rank in summary.ranks]
    having = np.zeros(len(share.kept_ids), np.int64)
    for blocks in comm.share(part.kept_blocks):
        having[blocks] += 1
    summary.partition = {
        "method": share.partition,
        "kept": len(share.kept_ids),
        "kept_copies": sum(rank["kept"] for rank in summary.ranks),
        "shared_scalars": int(share.kept_dims[having > 1].sum()),
        "edge_imbalance": max(edges) * len(edges) / max(sum(edges), 1),
        "imbalance": max(busy) / mean if mean > 0.0 else 1.0,
        "communication_share": communicating / total if total else 0.0,
        "transport": solver.transport,
    }
    summary.memory_bytes = sum(rank["memory_bytes"] for rank in summary.ranks)
    names = sorted({rank["device_name"] for rank in summary.ranks if rank["edges"]})
    summary.device_name = f"{comm.size} ranks: {'; '.join(names)}"
    summary.device = ",".join(rank["device"] for rank in summary.ranks)
