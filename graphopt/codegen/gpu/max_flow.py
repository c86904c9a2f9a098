"""Minimum cuts of small graphs, by Dinic's algorithm; importing scipy would take longer than a cut."""

from __future__ import annotations

from collections.abc import Sequence

INFINITE = float("inf")


def source_side(num_nodes: int, edges: Sequence[tuple[int, int, float]], source: int, sink: int) -> set[int]:
    """Nodes on the source's side of the minimum cut that is nearest to it.

    edges: (from, to, capacity). A capacity may be `INFINITE`, as long as not all of a path are.
    """
    flow = _Flow(num_nodes, edges)
    while (levels := flow.levels(source))[sink] >= 0:
        flow.augment(source, sink, levels)
    return {node for node, level in enumerate(levels) if level >= 0}


class _Flow:
    """What is left of the capacities; edge k and its reverse, k ^ 1, are next to each other."""

    def __init__(self, num_nodes: int, edges: Sequence[tuple[int, int, float]]):
        self.targets: list[int] = []
        self.left: list[float] = []
        self.leaving: list[list[int]] = [[] for _ in range(num_nodes)]
        for begin, end, capacity in edges:
            for node, other, size in ((begin, end, capacity), (end, begin, 0.0)):
                self.leaving[node].append(len(self.targets))
                self.targets.append(other)
                self.left.append(size)

    def levels(self, source: int) -> list[int]:
        """Per node how many edges it is from the source, -1: it cannot be reached."""
        found = [-1] * len(self.leaving)
        found[source] = 0
        queue = [source]
        for node in queue:
            for edge in self.leaving[node]:
                if self.left[edge] > 0.0 and found[self.targets[edge]] < 0:
                    found[self.targets[edge]] = found[node] + 1
                    queue.append(self.targets[edge])
        return found

    def augment(self, source: int, sink: int, levels: Sequence[int]) -> None:
        """Send what goes along shortest paths, until none is left."""
        targets, left, leaving = self.targets, self.left, self.leaving
        next_edge = [0] * len(leaving)  # those before it lead nowhere any more
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min([left[edge] for edge in path])
                full = 0
                for place in range(len(path) - 1, -1, -1):
                    edge = path[place]
                    left[edge] -= amount
                    left[edge ^ 1] += amount
                    if left[edge] <= 0.0:
                        full = place
                node = targets[path[full] ^ 1]
                del path[full:]
            edges, place, level = leaving[node], next_edge[node], levels[node] + 1
            while place < len(edges):
                edge = edges[place]
                if left[edge] > 0.0 and levels[targets[edge]] == level:
                    break
                place += 1
            next_edge[node] = place
            if place < len(edges):
                path.append(edges[place])
                node = targets[edges[place]]
            elif path:
                node = targets[path.pop() ^ 1]
                next_edge[node] += 1
            else:
                return
