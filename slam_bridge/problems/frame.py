"""The graph of one frame against known landmarks, kept from frame to frame: only numbers change.

Each camera has room for as many edges as the fullest frame so far needed, rounded up to a power of two; who
of them takes part says a mask. On the CPU all iterations of a round run natively (`optimizer.native_loop`),
on other devices the edges beyond have an information of zero and `graphopt.optimize` runs the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.graph.columns import Columns
from graphopt.graph.sets import EdgeSet
from graphopt.optimizer.algorithm import Outcome
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.gauss_newton import GaussNewton
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.native_loop import native_loop_for
from graphopt.optimizer.run import ENDINGS
from graphopt.optimizer.signals import StopSignals
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.registry import SolverOptions
from graphopt.solver.reuse import edge_errors
from graphopt.solver.structure import Structure
from graphopt.types import slam3d, visual_inertial
from graphopt.types.base import EdgeType
from graphopt.types.robust_kernels import robust_kernel
from slam_bridge.cameras import Rig
from slam_bridge.options import RULES, Clock, SolveOptions, optimize
from slam_bridge.single_pose import numbers_of, pose_of

POSE = 0
"""Vertex id of the frame's pose."""
_NO_KERNEL = 1e9
"""Width at which a robust kernel does nothing."""
_NATIVE = {"lm": LevenbergMarquardt, "gn": GaussNewton, "dogleg": Dogleg}


@dataclass(frozen=True, eq=False)
class FrameObservations:
    """n landmarks at known places, seen in one frame."""

    points: np.ndarray
    """(n, 3) in the world [m]."""
    pixel: np.ndarray
    """(n, 2) [px]."""
    camera: np.ndarray
    """(n,) int."""
    right: np.ndarray
    """(n,) [px], NaN: none."""
    depth: np.ndarray
    """(n,) [m], NaN: none."""
    sigma: np.ndarray
    """(n,) [px]."""
    depth_sigma: np.ndarray
    """(n,) [m]."""

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def of(
        cls,
        points: Any,
        pixel: Any,
        camera: Any = 0,
        right: Any = None,
        depth: Any = None,
        sigma: Any = 1.0,
        depth_sigma: Any = None,
    ) -> FrameObservations:
        """From arrays; what is one number for all is spread, None is NaN."""
        where = np.asarray(points, float).reshape(-1, 3)
        n = len(where)
        pixels = np.asarray(pixel, float)
        if pixels.shape != (n, 2):
            raise OptionError(f"pixel has shape {pixels.shape}, expected ({n}, 2): one per point.")
        numbers = [
            np.full(n, np.nan) if one is None else np.broadcast_to(np.asarray(one, float), (n,))
            for one in (right, depth, sigma, depth_sigma)
        ]
        cameras = np.broadcast_to(np.asarray(camera, np.int64), (n,))
        return cls(where, pixels, cameras, numbers[0], numbers[1], numbers[2], numbers[3])


@dataclass(eq=False)
class _Kind:
    """Edges of one type: which observations, which numbers of theirs."""

    type: EdgeType
    rows: np.ndarray
    """(e,) observations, sorted by camera."""
    places: np.ndarray | slice
    """(e,) rows of the edge set."""
    image: np.ndarray
    """(e, k) measured numbers of the image."""
    weight: np.ndarray
    """(e,) 1 / sigma^2."""


class FrameGraph:
    """Graph of a frame: its pose, observations of known landmarks, and what `extend` adds."""

    def __init__(self, rig: Rig, extend: Callable[[graphopt.Graph], None] | None = None):
        """extend: adds other vertices and edges to a new graph that has the pose."""
        self.rig = rig
        self.graph = graphopt.Graph()
        self._extend = extend
        self._capacity: dict[str, int] = {}
        self._sets: dict[str, EdgeSet] = {}
        self._solver: CpuBlockSolver | None = None
        self._kinds: list[_Kind] = []
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._width: dict[int, float] | None = None
        """Kernel widths that the edges have, by dimension."""
        self._is_new = False
        """The graph's estimates are newer than the block solver's."""
        self._is_ahead = False
        """The block solver's estimates are newer than the graph's."""

    @property
    def solver(self) -> CpuBlockSolver:
        """The CPU's block solver of the graph."""
        if self._solver is None:
            asked = SolverOptions(device="cpu", linear_solver="dense", schur="off")
            self._solver = CpuBlockSolver(self.graph, Structure(self.graph.select()), asked)
        return self._solver

    def load(self, seen: FrameObservations, world_T_body: np.ndarray) -> None:
        """Take a frame's observations and pose (7,); `OptionError` for pixels and sigmas that are none."""
        _refuse_non_finite(seen)
        kinds = list(self._sorted(seen))
        wanted = {kind.type.tag: self._room(kind, seen) for kind in kinds}
        if (
            any(self._capacity.get(tag, 0) < room for tag, room in wanted.items())
            or not self.graph.num_vertices
        ):
            self._build(
                {**self._capacity, **{t: max(r, self._capacity.get(t, 0)) for t, r in wanted.items()}}
            )
        self.graph.vertex_set(slam3d.VertexSE3).estimate[0] = world_T_body
        self._is_new, self._is_ahead = True, False
        for kind in kinds:
            kind.places = self._places(kind, seen)
            edges = self._sets[kind.type.tag]
            points = seen.points[kind.rows]
            if not np.isfinite(points).all():  # they take no part; no weight makes up for a NaN
                points = np.where(np.isfinite(points).all(axis=1, keepdims=True), points, 1.0)
            edges.measurement[kind.places] = np.concatenate([kind.image, points], axis=1)
            for d in range(kind.type.residual_dim):
                edges.information[kind.places, d, d] = kind.weight
        self._kinds = kinds

    def _places(self, kind: _Kind, seen: FrameObservations) -> np.ndarray | slice:
        if len(self.rig) == 1:
            return slice(0, len(kind.rows))
        camera = seen.camera[kind.rows]
        start = np.searchsorted(camera, np.arange(len(self.rig)))
        return camera * self._capacity[kind.type.tag] + np.arange(len(camera)) - start[camera]

    def _sorted(self, seen: FrameObservations) -> Any:
        """Observations by type of edge, each sorted by camera."""
        order = np.argsort(seen.camera, kind="stable") if len(self.rig) > 1 else np.arange(len(seen))
        stereo = np.isfinite(seen.right)[order]
        nothing = np.zeros(0, np.int64)
        weight = seen.sigma**-2.0
        for model in dict.fromkeys(camera.model for camera in self.rig):
            numbers = [c for c, camera in enumerate(self.rig) if camera.model == model]
            rows = order[~stereo]
            if len(numbers) < len(self.rig):
                rows = rows[np.isin(seen.camera[rows], numbers)]
            if len(rows):
                kind = visual_inertial.POSE_PIXEL_EDGES[model]
                yield _Kind(kind, rows, nothing, seen.pixel[rows], weight[rows])
        rows = order[stereo]
        if len(rows):
            image = np.concatenate([seen.pixel[rows], seen.right[rows, None]], axis=1)
            yield _Kind(visual_inertial.EdgePoseStereo, rows, nothing, image, weight[rows])
        rows = order[np.isfinite(seen.depth)[order]]
        if len(rows):
            image, weight = seen.depth[rows, None], seen.depth_sigma[rows] ** -2.0
            yield _Kind(visual_inertial.EdgePoseDepth, rows, nothing, image, weight)

    def _room(self, kind: _Kind, seen: FrameObservations) -> int:
        most = len(kind.rows)
        if len(self.rig) > 1:
            most = int(np.bincount(seen.camera[kind.rows], minlength=1).max())
        return max(256, 1 << (most - 1).bit_length())

    def _build(self, capacity: dict[str, int]) -> None:
        self.graph, self._solver, self._capacity = graphopt.Graph(), None, capacity
        self._width = None
        graph, count = self.graph, len(self.rig)
        graph.add_vertices(slam3d.VertexSE3, [POSE])
        graph.add_parameters(slam3d.ParameterSE3Offset, [0], [SE3.identity_storage])
        for c, camera in enumerate(self.rig):
            graph.add_parameters(slam3d.ParameterSE3Offset, [1 + 3 * c], [camera.body_T_cam])
            kind = visual_inertial.INTRINSICS_PARAMETERS[camera.model]
            graph.add_parameters(kind, [2 + 3 * c], [camera.intrinsics])
            baseline = 1.0 if camera.baseline is None else camera.baseline
            stereo = np.append(camera.intrinsics[:4], baseline)
            graph.add_parameters(visual_inertial.ParameterStereoCamera, [3 + 3 * c], [stereo])
        for tag, room in capacity.items():
            self._sets[tag] = _empty_edges(
                graph, tag, room * count, np.repeat(np.arange(count), room), self.rig
            )
        if self._extend is not None:
            self._extend(graph)

    def optimize(
        self, inliers: np.ndarray, width: Callable[[int], float] | None, options: SolveOptions, clock: Clock
    ) -> graphopt.Summary:
        """One round with these observations (n,) bool. width: of the kernel by dimension; None: no kernel."""
        if options.device in ("auto", "cpu") and options.configuration is None and options.method in _NATIVE:
            self.choose(inliers, width)
            return self._run_natively(inliers, options, clock)
        self.finish()
        self._set_widths(width)
        self._mask_by_information(inliers)
        return optimize(self.graph, options, clock)

    def _set_widths(self, width: Callable[[int], float] | None) -> None:
        wanted = {dim: _NO_KERNEL if width is None else width(dim) for dim in (1, 2, 3)}
        if wanted == self._width:
            return
        self._width = wanted
        for edges in self._sets.values():
            edges.kernel_width = wanted[edges.type.residual_dim]

    def choose(self, inliers: np.ndarray, width: Callable[[int], float] | None) -> None:
        """Let these observations (n,) bool take part in the CPU's block solver, at the graph's estimates."""
        self._set_widths(width)
        solver = self.solver
        used = {kind.type.tag: kind for kind in self._kinds}
        masks = []
        for group in solver.structure.groups:
            mask = np.zeros(len(group.rows), bool)
            kind = used.get(group.edge_set.type.tag)
            if kind is not None:
                mask[kind.places] = inliers[kind.rows]
            elif group.edge_set.type.tag not in self._capacity:
                mask[:] = True
            masks.append(mask)
        solver.choose_edges(masks)
        if self._is_new:
            self._take_estimates()
            self._known.clear()
            self._is_new = False
        solver.take_edge_data(self._known)

    def _take_estimates(self) -> None:
        """The graph's estimates -> the block solver."""
        self.solver.restore(
            [
                np.stack([numbers_of(one) for one in vertices.estimate])
                if vertices.type is slam3d.VertexSE3
                else vertices.estimate
                for vertices in self.solver.structure.selection.vertex_sets
            ]
        )

    def _run_natively(self, inliers: np.ndarray, options: SolveOptions, clock: Clock) -> graphopt.Summary:
        solver = self.solver
        rules = RULES[options.method](
            max_iterations=options.iterations, function_tolerance=options.function_tolerance
        )
        algorithm = _NATIVE[options.method](rules)
        summary = graphopt.Summary(1, int(inliers.sum()), options.method)
        signals = StopSignals(options.stop, clock.left, time.perf_counter())
        native = native_loop_for(algorithm, solver)
        assert native is not None, "a frame is small"
        algorithm.start(solver, np.nan)
        self._is_ahead = True
        outcome = native.run(rules, summary, signals)
        summary.termination = ENDINGS.get(outcome, graphopt.TerminationType.NO_CONVERGENCE)
        if signals.reason is not None and outcome is Outcome.CONTINUE:
            summary.termination = signals.reason
        summary.take_description(solver.describe())
        clock.book(summary)
        return summary

    def _mask_by_information(self, inliers: np.ndarray) -> None:
        for edges in self._sets.values():
            edges.information[:] = 0.0
        for kind in self._kinds:
            edges = self._sets[kind.type.tag]
            for d in range(kind.type.residual_dim):
                edges.information[kind.places, d, d] = kind.weight * inliers[kind.rows]

    def chi2(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """chi2 (n,) of each observation at the graph's estimates, outliers too, and its dimension (n,)."""
        total, dims = np.zeros(count), np.zeros(count, np.int64)
        for kind in self._kinds:
            error = self._errors(kind)
            total[kind.rows] += kind.weight * np.einsum("ed,ed->e", error, error)
            dims[kind.rows] += error.shape[1]
        return total, dims

    def _errors(self, kind: _Kind) -> np.ndarray:
        edges = self._sets[kind.type.tag]
        if self._solver is None:
            return edge_errors(self.graph, edges)[kind.places]
        for _, values in self._solver.errors_of(edges):
            return values[kind.places]
        raise AssertionError("every edge set of a frame is part of its structure")

    def finish(self) -> None:
        """Bring the block solver's estimates into the graph."""
        if self._is_ahead and self._solver is not None:
            self._solver.finish()
            self._is_ahead = False

    @property
    def pose(self) -> np.ndarray:
        """(7,) world_T_body, with a unit quaternion."""
        return self.pose_in_row(0)

    def pose_in_row(self, row: int) -> np.ndarray:
        """(7,) of one of the graph's poses, with a unit quaternion."""
        vertices = self.graph.vertex_set(slam3d.VertexSE3)
        if self._is_ahead and self._solver is not None:
            number = [one is vertices for one in self._solver.structure.selection.vertex_sets].index(True)
            return pose_of(self._solver.snapshot()[number][row])
        pose = vertices.estimate[row].copy()
        pose[3:] /= np.linalg.norm(pose[3:])
        return pose


def _refuse_non_finite(seen: FrameObservations) -> None:
    if np.isfinite(seen.pixel).all() and (seen.sigma > 0.0).all():
        return
    bad = ~(np.isfinite(seen.pixel).all(axis=1) & (seen.sigma > 0.0))
    row = int(np.argmax(bad))
    raise OptionError(
        f"observation in row {row}: pixel {seen.pixel[row]} px with sigma {seen.sigma[row]} px, expected "
        "finite numbers and sigma > 0. Leave such rows out."
    )


def _empty_edges(graph: graphopt.Graph, tag: str, count: int, camera: np.ndarray, rig: Rig) -> EdgeSet:
    """Edges that see a point ahead of each camera; who of them takes part is said later."""
    kind = next(one for one in _EDGE_TYPES if one.tag == tag)
    dim = kind.residual_dim
    second = [3 if kind is visual_inertial.EdgePoseStereo else 2][: len(kind.parameters) - 1]
    measurement = np.zeros((count, kind.measurement_dim))
    measurement[:, -1] = 1.0
    first = graph.next_order()
    columns = {
        "sequence": np.arange(first, first + count),
        "vertices": np.full((count, 1), POSE),
        "measurement": measurement,
        "information": np.tile(2.0 * np.eye(dim), (count, 1, 1)),  # diagonal, and not the identity
        "kernel": np.full(count, robust_kernel("Huber").number, np.int32),
        "kernel_width": np.ones(count),
        "level": np.zeros(count, np.int32),
        "parameters": 3 * camera[:, None] + np.array([1, *second]),
    }
    made = EdgeSet(kind, Columns.holding(columns))
    graph.adopt(made)
    return made


_EDGE_TYPES = (
    *visual_inertial.POSE_PIXEL_EDGES.values(),
    visual_inertial.EdgePoseStereo,
    visual_inertial.EdgePoseDepth,
)
