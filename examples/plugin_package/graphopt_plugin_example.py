"""One of each thing that a package can add to graphopt; pyproject.toml beside this file names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

import graphopt
from graphopt.errors import FormatError
from graphopt.io import Format
from graphopt.linear import LinearSolver
from graphopt.optimizer import AlgorithmBase, Method, Outcome, Step, StopRules
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.devices import Device
from graphopt.solver.trial import Damping


class SuperLu:
    """Solves A x = b by SuperLU; see `graphopt.register_linear_solver`."""

    def __init__(self, pattern):
        dims, offsets = pattern.dims.astype(np.int64), np.asarray(pattern.offsets, np.int64)
        row = np.asarray(pattern.row_idx, np.int64)
        col = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
        sizes = dims[row] * dims[col]
        block = np.repeat(np.arange(len(row)), sizes)
        within = np.arange(pattern.values_size) - np.asarray(pattern.value_offsets)[block]
        self._rows = offsets[row][block] + within % dims[row][block]
        self._columns = offsets[col][block] + within // dims[row][block]
        self._is_upper = self._rows <= self._columns  # diagonal blocks are there in full
        self._dim = pattern.dim

    def factorize(self, values, damping=None):
        """Take A = H + D."""
        kept = self._is_upper
        upper = sp.csc_matrix(
            (values[kept], (self._rows[kept], self._columns[kept])), shape=(self._dim, self._dim)
        )
        whole = upper + sp.triu(upper, 1).T + sp.diags(np.zeros(self._dim) if damping is None else damping)
        try:
            self._factor = splu(whole.tocsc())
        except RuntimeError:  # singular
            return False
        return True

    def solve(self, b, out=None):
        """x of A x = b."""
        x = self._factor.solve(b)
        if out is None:
            return x
        out[:] = x
        return out


SUPERLU = LinearSolver(SuperLu)


@dataclass(frozen=True)
class DampedOptions(StopRules):
    """Options of `DampedGaussNewton`."""

    damping: float = 1e-9
    """Of the first trial, times the diagonal of H."""


class DampedGaussNewton(AlgorithmBase):
    """Gauss-Newton whose step is shortened by a growing damping until chi2 falls."""

    def step(self, iteration, signals):
        """Linearize, try, accept the first trial that lowers chi2."""
        self.solver.linearize()
        damping = self.options.damping
        for trials in range(1, 20):
            trial = self.solver.trial(Damping(damping, scaled=True))
            if trial.solved and trial.chi2 <= self.chi2:
                self.solver.discard_top()
                self.chi2 = trial.chi2
                return Step(Outcome.CONTINUE, trial.chi2, damping, trials, trial.step_size)
            if trial.solved:
                self.solver.pop()
            if signals.should_stop():
                break
            damping *= 10.0
        return Step(Outcome.NO_IMPROVEMENT, self.chi2, damping, trials)


DAMPED = Method(DampedGaussNewton, DampedOptions)


@graphopt.edge_type(tag="EDGE_XY_DISTANCE", vertices=("VERTEX_XY", "VERTEX_XY"), measurement_dim=1)
def edge_xy_distance(a, b, distance):
    """Measured distance of two points [m]."""
    x, y = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    return np.stack([np.sqrt(x * x + y * y) - distance], axis=-1)


def read_xyd(content, path, report):
    """Lines "id x y" are points, lines "d id id distance" distances."""
    graph = graphopt.Graph()
    for number, line in enumerate(content.decode().splitlines(), 1):
        words = line.split()
        try:
            if words and words[0] == "d":
                graph.add_edge(edge_xy_distance, [int(words[1]), int(words[2])], [float(words[3])])
            elif words:
                graph.add_vertex("VERTEX_XY", int(words[0]), [float(words[1]), float(words[2])])
        except (IndexError, ValueError) as error:
            expected = "'id x y' or 'd id id distance'"
            raise FormatError(f"{path}:{number}: expected {expected}, got {line!r}") from error
    return graph


def write_xyd(graph):
    """The content of a file, and what it does not hold."""
    points, edges = graph.vertex_set("VERTEX_XY"), graph.edge_set("EDGE_XY_DISTANCE")
    lines = [
        f"{id_} {x!r} {y!r}"
        for id_, (x, y) in zip(points.ids.tolist(), points.estimate.tolist(), strict=True)
    ]
    ends = edges.vertices.tolist()
    lines += [f"d {a} {b} {d!r}" for (a, b), (d,) in zip(ends, edges.measurement.tolist(), strict=True)]
    return ("\n".join(lines) + "\n").encode(), ["information matrices are not written"]


XYD = Format("xyd", "points in the plane and distances", read_xyd, write_xyd)


class CountingSolver(CpuBlockSolver):
    """The CPU, counting linearizations."""

    count = 0

    def linearize(self):
        """Count, and do it."""
        CountingSolver.count += 1
        return super().linearize()


COUNTING = Device(CountingSolver)
