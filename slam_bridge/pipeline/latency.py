"""How long frames took, in memory that does not grow with the run."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

_LOW, _PER_DECADE, _BINS = 1e-5, 200, 1600
"""Bins from 10 us to 1000 s, each 1.2 % wide."""


@dataclass(frozen=True)
class Latency:
    """Seconds from `add_images` to the frame's pose."""

    count: int = 0
    median: float = 0.0
    p99: float = 0.0
    """99 % of the frames took no longer."""
    worst: float = 0.0

    def __str__(self) -> str:
        numbers = (1e3 * self.median, 1e3 * self.p99, 1e3 * self.worst)
        return "median {:.1f} ms, 99 % {:.1f} ms, worst {:.1f} ms".format(*numbers)


class Latencies:
    """A histogram of seconds; quantiles are exact to the width of a bin."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)
        self._worst = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """One frame."""
        place = int(_PER_DECADE * np.log10(max(seconds, _LOW) / _LOW))
        with self._lock:
            self._counts[min(place, _BINS - 1)] += 1
            self._worst = max(self._worst, seconds)

    def summary(self) -> Latency:
        """Median, 99 %, worst."""
        with self._lock:
            counts, worst = self._counts.cumsum(), self._worst
        total = int(counts[-1])
        if not total:
            return Latency()
        places = np.searchsorted(counts, [0.5 * total, 0.99 * total])
        median, p99 = (_LOW * 10.0 ** ((places + 1) / _PER_DECADE)).tolist()
        return Latency(total, min(median, worst), min(p99, worst), worst)
