"""The graph of one frame against known landmarks, kept from frame to frame: only numbers change.

Each camera has room for as many edges as the fullest frame so far needed, rounded up to a power of two.
Outliers, and the edges beyond, have an information of zero. On the CPU all rounds run natively, with what
judges observations between them (`SmallLoop.run_rounds`); on other devices `graphopt.optimize` runs each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt import SolverOptions, edge_errors
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.graph.columns import Columns
from graphopt.graph.sets import EdgeSet, VertexSet
from graphopt.optimizer import Dogleg, GaussNewton, LevenbergMarquardt
from graphopt.optimizer.algorithm import Outcome
from graphopt.optimizer.native_loop import native_loop_for
from graphopt.optimizer.run import ENDINGS
from graphopt.optimizer.signals import StopSignals
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.types import slam3d, visual_inertial
from graphopt.types.base import EdgeType
from graphopt.types.robust_kernels import robust_kernel
from slam_bridge.cameras import Rig
from slam_bridge.options import RULES, Clock, SolveOptions, optimize
from slam_bridge.single_pose import pose_of
from slam_bridge.tables import FARTHEST_PIXEL, whole_numbers

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
    covariance: np.ndarray | None = None
    """(n, 3, 3) of the points in the world [m^2], infinite where a place is open; None: they are exact."""

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
        covariance: Any = None,
    ) -> FrameObservations:
        """From arrays; what is one number for all is spread, None is NaN.

        covariance (n, 3, 3): of the points, as `landmark_covariances` has it. None takes points for exact: of
        points that a stereo pair has seen once most right matches then are outliers in the next frame.
        """
        where = np.asarray(points, float)
        where = where.reshape(0, 3) if where.size == 0 else np.atleast_2d(where)
        if where.ndim != 2 or where.shape[1] != 3:
            raise OptionError(f"points has shape {where.shape}, expected (n, 3).")
        n = len(where)
        pixels = np.asarray(pixel, float)
        pixels = pixels.reshape(0, 2) if pixels.size == 0 else pixels
        if pixels.shape != (n, 2):
            raise OptionError(f"pixel has shape {pixels.shape}, expected ({n}, 2): one per point.")
        numbers = [
            np.full(n, np.nan) if values is None else np.broadcast_to(np.asarray(values, float), (n,))
            for values in (right, depth, sigma, depth_sigma)
        ]
        cameras = np.broadcast_to(whole_numbers(camera), (n,))
        spread = None if covariance is None else np.asarray(covariance, float)
        return cls(where, pixels, cameras, numbers[0], numbers[1], numbers[2], numbers[3], spread)


@dataclass(eq=False)
class _Kind:
    """Edges of one type: which observations, which numbers of theirs."""

    type: EdgeType
    rows: np.ndarray
    """(e,) observations, sorted by camera."""
    image: np.ndarray
    """(e, k) measured numbers of the image."""
    weight: np.ndarray
    """(e,) 1 / sigma^2."""


@dataclass(eq=False)
class _Judged:
    """An edge set of observations."""

    edges: EdgeSet
    weight: np.ndarray
    """(c,) 1 / sigma^2."""
    observation: np.ndarray
    """(c,) int32 which observation an edge is of, -1: none."""

    def part_of(self, chosen: np.ndarray) -> np.ndarray:
        """(c,) bool: edges of these observations (n,) bool."""
        padded = np.zeros(len(chosen) + 1, bool)  # the last one is that of edges without observation
        padded[:-1] = chosen
        return np.take(padded, self.observation)

    def take(self, places: np.ndarray | slice, kind: _Kind, points: np.ndarray) -> None:
        """Edges in these places are of a kind's observations of points (e, 3), no others."""
        self.observation.fill(-1)
        self.observation[places] = kind.rows
        self.weight[places] = kind.weight
        width = kind.image.shape[1]
        measurement = self.edges.measurement
        measurement[places, :width], measurement[places, width:] = kind.image, points


class FrameGraph:
    """Graph of a frame: its pose, observations of known landmarks, and what `extend` adds."""

    def __init__(self, rig: Rig, extend: Callable[[graphopt.Graph], None] | None = None):
        """extend: adds other vertices and edges to a new graph that has the pose."""
        self.rig = rig = Rig.of(rig)
        self.graph = graphopt.Graph()
        self._extend = extend
        self._all_paired = all(camera.baseline is not None for camera in rig)
        self._capacity: dict[str, int] = {}
        self._judged: dict[str, _Judged] = {}
        self._poses: VertexSet
        self._solver: CpuBlockSolver | None = None
        self._width: dict[int, float] | None = None
        """Kernel widths that the graph's edges have, by dimension."""
        self._is_ahead = False
        """The block solver's estimates are newer than the graph's."""

    @property
    def solver(self) -> CpuBlockSolver:
        """The CPU's block solver of the graph."""
        if self._solver is None:
            asked = SolverOptions(device="cpu", linear_solver="dense", schur="off")
            self._solver = CpuBlockSolver(self.graph, Structure(self.graph.select()), asked)
        return self._solver

    def refuse_other(self, rig: Rig) -> None:
        """`OptionError` if the graph was made for another rig."""
        if not self.rig.is_same(rig):
            raise OptionError("the graph was made for another rig; make one for this.")

    def load(self, seen: FrameObservations, world_T_body: np.ndarray) -> None:
        """Take a frame's observations and pose (7,); `OptionError` for pixels and sigmas that are none."""
        _refuse_non_finite(seen)
        if len(seen) and not (seen.camera.min() >= 0 and seen.camera.max() < len(self.rig)):
            raise OptionError(
                f"camera is {seen.camera.min()} to {seen.camera.max()}; the rig has 0 to {len(self.rig) - 1}."
            )
        self._refuse_without_pair(seen)
        kinds = list(self._sorted(seen))
        wanted = {kind.type.tag: self._room(kind, seen) for kind in kinds}
        if not self.graph.num_vertices or any(
            self._capacity.get(tag, 0) < room for tag, room in wanted.items()
        ):
            rooms = {tag: max(room, self._capacity.get(tag, 0)) for tag, room in wanted.items()}
            self._build({**self._capacity, **rooms})
        self._poses.estimate[0] = world_T_body
        self._is_ahead = False
        points = seen.points
        if not (
            kernels.all_finite(points) or np.isfinite(points).all()
        ):  # they take no part; no weight makes up for a NaN
            points = np.where(np.isfinite(points).all(axis=1, keepdims=True), points, 1.0)
        for tag, judged in self._judged.items():
            if tag not in wanted:
                judged.observation.fill(-1)
        for kind in kinds:
            own = points if len(kind.rows) == len(points) and len(self.rig) == 1 else points[kind.rows]
            self._judged[kind.type.tag].take(self._places(kind, seen), kind, own)

    def _refuse_without_pair(self, seen: FrameObservations) -> None:
        """Right columns are of a rectified pair, depths have a sigma."""
        has_depth = seen.depth == seen.depth  # not NaN; infinite ones are none either
        if self._all_paired and not has_depth.any():
            return
        stereo = np.isfinite(seen.right)
        pairs = np.array([camera.baseline is not None for camera in self.rig])
        for bad, text in (
            (stereo & ~pairs[seen.camera], "right is {right} px, but camera {camera} has no baseline"),
            (
                has_depth & ~((seen.depth > 0.0) & (seen.depth_sigma > 0.0)),
                "depth is {depth} m with depth_sigma {depth_sigma} m, expected both > 0",
            ),
        ):
            if bad.any():
                row = int(np.argmax(bad))
                names = ("right", "depth", "depth_sigma", "camera")
                named = {name: getattr(seen, name)[row] for name in names}
                raise OptionError(f"observation in row {row}: {text.format(**named)}.")

    def _places(self, kind: _Kind, seen: FrameObservations) -> np.ndarray | slice:
        if len(self.rig) == 1:
            return slice(0, len(kind.rows))
        camera = seen.camera[kind.rows]
        start = np.searchsorted(camera, np.arange(len(self.rig)))
        return camera * self._capacity[kind.type.tag] + np.arange(len(camera)) - start[camera]

    def _sorted(self, seen: FrameObservations) -> Any:
        """Observations by type of edge, each sorted by camera."""
        stereo = np.isfinite(seen.right)
        weight = 1.0 / (seen.sigma * seen.sigma)
        if len(self.rig) > 1:
            order = np.argsort(seen.camera, kind="stable")
            mono, pairs = order[~stereo[order]], order[stereo[order]]
        else:
            mono, pairs = np.flatnonzero(~stereo), np.flatnonzero(stereo)
        for model in dict.fromkeys(camera.model for camera in self.rig) if len(mono) else ():
            numbers = [c for c, camera in enumerate(self.rig) if camera.model == model]
            rows = mono
            if len(numbers) < len(self.rig):
                rows = rows[np.isin(seen.camera[rows], numbers)]
            if len(rows):
                kind = visual_inertial.POSE_PIXEL_EDGES[model]
                yield _Kind(kind, rows, seen.pixel[rows], weight[rows])
        if len(pairs):
            chosen = slice(None) if len(self.rig) == 1 and len(pairs) == len(seen) else pairs
            image = np.empty((len(pairs), 3))
            image[:, :2], image[:, 2] = seen.pixel[chosen], seen.right[chosen]
            yield _Kind(visual_inertial.EdgePoseStereo, pairs, image, weight[chosen])
        has_depth = np.isfinite(seen.depth)
        if has_depth.any():
            rows = order[has_depth[order]] if len(self.rig) > 1 else np.flatnonzero(has_depth)
            image, weight = seen.depth[rows, None], seen.depth_sigma[rows] ** -2.0
            yield _Kind(visual_inertial.EdgePoseDepth, rows, image, weight)

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
            edges = _empty_edges(graph, tag, room * count, np.repeat(np.arange(count), room))
            self._judged[tag] = _Judged(edges, np.zeros(len(edges)), np.full(len(edges), -1, np.int32))
        if self._extend is not None:
            self._extend(graph)
        self._poses = graph.vertex_set(slam3d.VertexSE3)

    def is_native(self, options: SolveOptions) -> bool:
        """Rounds run natively: on the CPU, with one of g2o's methods."""
        return (
            options.device in ("auto", "cpu") and options.configuration is None and options.method in _NATIVE
        )

    def run_rounds(
        self,
        holds: np.ndarray,
        limits: np.ndarray,
        min_observations: int,
        options: SolveOptions,
        clock: Clock,
    ) -> tuple[graphopt.Summary, np.ndarray, np.ndarray, int]:
        """All rounds natively, first with the observations of `holds` (n,) bool; as `rounds_of` returns.

        limits (5,): largest chi2 of an inlier, by dimension.
        """
        self._enter(holds)
        rules = RULES[options.method](
            max_iterations=options.iterations, function_tolerance=options.function_tolerance
        )
        algorithm = _NATIVE[options.method](rules)
        summary = graphopt.Summary(1, int(np.count_nonzero(holds)), options.method)
        signals = StopSignals(options.stop, clock.left, time.perf_counter())
        native = native_loop_for(algorithm, self.solver)
        assert native is not None, "a frame is small"
        algorithm.start(self.solver, np.nan)
        inliers, chi2 = holds.copy(), np.where(holds, 0.0, np.inf)
        judging = {
            "edges": [
                (number, judged_group.weight, judged_group.observation)
                for number, judged_group in self._judged_groups()
            ],
            "limits": limits.tolist(),
            "rounds": options.rounds,
            "robust_rounds": 0 if options.kernel is None else (options.rounds + 1) // 2,
            "min_observations": min_observations,
            "holds": holds,
            "inliers": inliers,
            "chi2": chi2,
        }
        outcome, rounds = native.run_rounds(rules, summary, signals, judging)
        if rounds:
            summary.termination = ENDINGS.get(outcome, graphopt.TerminationType.NO_CONVERGENCE)
        if signals.reason is not None and outcome is Outcome.CONTINUE:
            summary.termination = signals.reason
        summary.take_description(self.solver.describe())
        clock.book(summary)
        return summary, inliers, chi2, rounds

    def _judged_groups(self) -> Iterator[tuple[int, _Judged]]:
        """Edge sets of observations and their numbers in the block solver."""
        for number, group in enumerate(self.solver.structure.groups):
            judged = self._judged.get(group.edge_set.type.tag)
            if judged is not None:
                yield number, judged

    def _enter(self, chosen: np.ndarray) -> None:
        """The CPU's block solver takes the graph's estimates, and these observations (n,) bool.

        Their weights are set later.
        """
        solver, known = self.solver, {}
        masks = [np.ones(len(group.rows), bool) for group in solver.structure.groups]
        for number, judged in self._judged_groups():
            masks[number] = judged.part_of(chosen)
            edges = judged.edges
            known[number] = edges.measurement, np.zeros((len(edges), edges.type.residual_dim))
        solver.choose_edges(masks)
        solver.restore(
            [
                kernels.pose_matrices(vertices.estimate)
                if vertices.type is slam3d.VertexSE3
                else vertices.estimate
                for vertices in solver.structure.selection.vertex_sets
            ]
        )
        solver.take_edge_data(known)
        self._is_ahead = True

    def linearized(self, inliers: np.ndarray) -> CpuBlockSolver:
        """The CPU's block solver, linearized at the answer with these observations, without kernels."""
        if not self._is_ahead:
            self._enter(inliers)
        for number, judged in self._judged_groups():
            self.solver.set_weights(number, judged.weight * judged.part_of(inliers), _NO_KERNEL)
        self.solver.linearize()
        return self.solver

    def optimize(
        self, inliers: np.ndarray, limits: np.ndarray | None, options: SolveOptions, clock: Clock
    ) -> graphopt.Summary:
        """One round on any device with these observations (n,) bool; kernels as wide as `limits` (5,) say."""
        self.finish()
        widths = {dim: _NO_KERNEL if limits is None else limits[dim] ** 0.5 for dim in (1, 2, 3)}
        for judged in self._judged.values():
            edges, weight = judged.edges, judged.weight * judged.part_of(inliers)
            for d in range(edges.type.residual_dim):
                edges.information[:, d, d] = weight
            if widths != self._width:
                edges.kernel_width = widths[edges.type.residual_dim]
        self._width = widths
        return optimize(self.graph, options, clock)

    def chi2(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """chi2 (n,) of each observation at the graph's estimates, outliers too, and its dimension (n,)."""
        total, dims = np.zeros(count), np.zeros(count, np.int64)
        for judged in self._judged.values():
            used = np.flatnonzero(judged.observation >= 0)
            error, rows = edge_errors(self.graph, judged.edges)[used], judged.observation[used]
            total[rows] += judged.weight[used] * np.einsum("ed,ed->e", error, error)
            dims[rows] += error.shape[1]
        return total, dims

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
        vertices = self._poses
        if self._is_ahead and self._solver is not None:
            return pose_of(self._solver.present(vertices)[row])
        pose = vertices.estimate[row].copy()
        pose[3:] /= np.linalg.norm(pose[3:])
        return pose


def _refuse_non_finite(seen: FrameObservations) -> None:
    pixel = seen.pixel
    if not len(pixel):
        return
    inside = pixel.max() <= FARTHEST_PIXEL and pixel.min() >= -FARTHEST_PIXEL  # not so for NaN
    if inside and (seen.sigma > 0.0).all():
        return
    bad = ~((np.abs(pixel) <= FARTHEST_PIXEL).all(axis=1) & (seen.sigma > 0.0))
    row = int(np.argmax(bad))
    raise OptionError(
        f"observation in row {row}: pixel {seen.pixel[row]} px with sigma {seen.sigma[row]} px, expected "
        f"finite numbers up to {FARTHEST_PIXEL:g} px and sigma > 0. Leave such rows out."
    )


def _empty_edges(graph: graphopt.Graph, tag: str, count: int, camera: np.ndarray) -> EdgeSet:
    """Edges that see a point ahead of each camera; who of them takes part is said later."""
    kind = next(edge_type for edge_type in _EDGE_TYPES if edge_type.tag == tag)
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
