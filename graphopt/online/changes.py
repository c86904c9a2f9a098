"""What an update of an `Online` changes beside what it adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import numpy as np

from graphopt.errors import GraphError

NO_IDS = np.empty(0, np.int64)
_OF_VERTICES = ("free", "fix", "remove_vertices", "marginalize")


class Changes(TypedDict, total=False):
    """Keyword arguments of `Online.update`; made in this order, after vertices and edges are added."""

    free: Any
    """Ids of fixed vertices to estimate; before edges are added."""
    remove: Any
    """Handles of edges (`OnlineReport.handles`)."""
    replace: Iterable[tuple[int, dict[str, Any]]]
    """(handle, {"measurement": ..., "information": ..., "kernel": ..., "kernel_width": ...}) pairs; what is
    not given stays."""
    switch_off: Any
    """Handles of edges that do not count until they are switched on."""
    switch_on: Any
    """Handles."""
    trust: Any
    """Handles of closures that are right, whatever the other edges say."""
    fix: Any
    """Ids of vertices to keep where they are."""
    remove_vertices: Any
    """Ids; their edges go with them."""
    marginalize: Any
    """Ids of vertices that leave a prior on their neighbours."""


def checked_changes(changes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Ids and handles (n,) int64 by name, of those that are given; without `replace`."""
    found = {}
    for name, values in changes.items():
        if name == "replace" or values is None:
            continue
        array = np.atleast_1d(np.asarray(values))
        if array.size == 0:
            continue
        if array.dtype.kind not in "iu" or array.ndim != 1:
            what = "ids of vertices" if name in _OF_VERTICES else "handles of edges (OnlineReport.handles)"
            raise GraphError(f"{name} has shape {array.shape} of {array.dtype}, expected (n,) {what}.")
        found[name] = np.ascontiguousarray(array, np.int64)
    return found
