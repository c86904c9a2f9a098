"""`graphopt g2o -inc`: edges are added in the order of their ids; each few poses the graph is optimized.

With Gauss-Newton these optimizations stand on `graphopt.Online`, see `SparseOptimizer.optimize`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from graphopt.cli.g2o.output import dump_edges


class Incremental:
    """Adds the edges of a loaded optimizer again, one by one."""

    def __init__(self, optimizer: Any, iterations: int, every: int, verbose: bool, gui: bool):
        self._optimizer = optimizer
        self._iterations, self._every = iterations, every
        self._verbose, self._gui = verbose, gui
        self._largest = optimizer.max_dimension()
        self._poses = self._optimized = 0
        self._seconds = 0.0
        self._new_vertices: list[Any] = []
        self._new_edges: list[Any] = []

    def run(self) -> None:
        """Add all edges and optimize on the way and at the end."""
        optimizer = self._optimizer
        _say("# incremental settings")
        _say(f"#\t solve every {self._every}\n#\t iterations  {self._iterations}")
        vertices = list(optimizer.vertices().values())
        edges = sorted(optimizer.edges(), key=_order)
        for vertex in vertices:
            optimizer.remove_vertex(vertex)
        optimizer.set_verbose(False)
        for edge in edges:
            self._add(edge)
            if self._poses - self._optimized >= self._every:
                self._optimize()
            if not self._verbose:
                sys.stderr.write(".")
        for vertex in vertices:  # those without an edge
            optimizer.add_vertex(vertex)
        if self._poses > self._optimized or not optimizer.active_edges():
            self._optimize()
        sys.stderr.write("\n")

    def _add(self, edge: Any) -> None:
        optimizer = self._optimizer
        fresh = [vertex for vertex in edge.vertices() if optimizer.vertex(vertex.id()) is None]
        for new_vertex in fresh:
            optimizer.add_vertex(new_vertex)
            self._poses += new_vertex.dimension() == self._largest
        optimizer.add_edge(edge)
        self._new_vertices += fresh
        self._new_edges.append(edge)
        known = set(edge.vertices()) - set(fresh)
        if len(fresh) == 1 and known and edge.initial_estimate_possible(known, fresh[0]) > 0.0:
            edge.initial_estimate(known, fresh[0])

    def _optimize(self) -> None:
        optimizer = self._optimizer
        start = time.perf_counter()
        optimizer.update_initialization(self._new_vertices, self._new_edges)
        done = optimizer.optimize(self._iterations, online=True)
        self._new_vertices, self._new_edges = [], []
        seconds = time.perf_counter() - start
        self._seconds += seconds
        self._optimized = self._poses
        if self._verbose:
            _say(
                f"nodes= {len(optimizer.vertices())}\t edges= {len(optimizer.edges())}\t "
                f"chi2= {optimizer.chi2():g}\t time= {seconds:g}\t iterations= {done}\t "
                f"cumTime= {self._seconds:g}"
            )
        if self._gui:
            sys.stdout.write(dump_edges(sorted(optimizer.edges(), key=lambda edge: edge.internal_id())))
            sys.stdout.flush()


def _order(edge: Any) -> tuple[int, int, int]:
    """The largest id, then edges to larger vertices (odometry) first, as g2o sorts them."""
    vertices = edge.vertices()
    return max(vertex.id() for vertex in vertices), -vertices[-1].dimension(), edge.internal_id()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
