"""The graph of a selection of a map, kept from call to call: only values change where the structure repeats.

    vertex                        id                      edges
    pose of keyframe k            4 k                     EDGE_VI_PIXEL_*, EDGE_VI_STEREO, EDGE_VI_DEPTH
    velocity, gyro, acc bias      4 k + 1, 2, 3           EDGE_IMU_INERTIAL_COMBINED, EDGE_VI_PRIOR_*
    landmark p                    4 K + p                 EDGE_SE3_PRIOR: measured poses, the gauge
    of camera c: mounting,        4 K + M + 3 c           EDGE_VI_CALIB_PIXEL_* where calibration is estimated
    intrinsics, time offset       ... + 1, + 2

K keyframes, M landmarks. *Gauge*: IMU and cameras see down, but neither north nor the origin: four
directions. Where no keyframe is fixed and no pose measured, the first free keyframe's position and its turn
about gravity are held by a prior that is zero at the start and at the answer. Without inertial states all
of its pose is fixed.

Outliers, and observations of landmarks whose position is not finite, stay in the graph with an information
of zero: their places in H stay, so that another judgement changes values only, not the structure, whose
analysis (and memory on a device) is kept by `graphopt.solver.reuse`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import graphopt
from graphopt import edge_errors
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.graph.columns import Columns
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.strategies.quantiles import chi2_quantile
from graphopt.types import inertial, marginal, slam3d, visual_inertial
from graphopt.types.base import EdgeType, ParameterType, VertexType
from graphopt.types.robust_kernels import robust_kernel
from slam_bridge.cameras import Rig
from slam_bridge.marginal_prior import LANDMARK, POSE, MarginalPrior
from slam_bridge.options import SolveOptions
from slam_bridge.selection import Selection

CALIBRATION = ("extrinsics", "intrinsics", "time_offset")
"""What of the cameras may be estimated."""
_STATES = (
    (inertial.VertexVelocity, "velocity"),
    (inertial.VertexGyroBias, "gyro_bias"),
    (inertial.VertexAccBias, "acc_bias"),
)
_BODY = 0  # parameter: identity; camera c has mounting 1 + 3 c, intrinsics 2 + 3 c, stereo 3 + 3 c


@dataclass(eq=False)
class _Pixels:
    """Edges of observations: rows of the selection's observations, and the edge set they are in."""

    edge_set: EdgeSet
    rows: np.ndarray
    """(e,) which observation each edge is of."""
    weight: np.ndarray
    """(e,) 1 / sigma^2, the same for all numbers of an observation."""
    takes_part: np.ndarray | None = None
    """(e,) bool, None: all do."""
    chi2: np.ndarray | None = None
    """(e,) as `Window.observation_chi2` found it last, outliers too."""


class Window:
    """A graph that follows selections of a map.

    Keep one per kind of problem. `load` swaps new values into the graph where a selection has the structure
    of the last one, and builds a new graph where it has not.
    """

    def __init__(self, hold_gauge: bool = True, gauge_sigma: float = 1e-3) -> None:
        self.hold_gauge = hold_gauge
        """False: leave unobservable directions open, as for marginalization."""
        self.gauge_sigma = gauge_sigma
        """[m, rad] of the prior that holds the gauge; it is part of covariances."""
        self.graph = graphopt.Graph()
        self.num_built = 0
        """Graphs that were built; the other loads found theirs."""
        self._shape: tuple[Any, ...] = ()
        self._estimate: tuple[str, ...] = ()
        self._pixels: list[_Pixels] = []
        self._held: list[tuple[VertexSet, np.ndarray]] = []

    def load(
        self,
        selection: Selection,
        options: SolveOptions,
        inliers: np.ndarray | None = None,
        imu_inliers: np.ndarray | None = None,
        estimate: tuple[str, ...] = (),
        imu_kernel: str | None = None,
    ) -> graphopt.Graph:
        """The graph of a selection. inliers (o,) and imu_inliers (i,) bool: who takes part; None: all.

        estimate: which of `CALIBRATION` is free. imu_kernel: robust kernel of the IMU measurements.
        """
        for vertices, fixed in self._held:
            vertices.fixed[:] = fixed
        self._held = []
        shape = (imu_kernel, *_shape_of(selection, options, estimate))
        if not _same(shape, self._shape):
            self._build(selection, options, estimate, imu_kernel)
            self._shape, self._estimate = shape, estimate
            self.num_built += 1
        self._fill(selection, inliers, imu_inliers)
        return self.graph

    def hold(self, s: Selection, poses: np.ndarray, states: np.ndarray, landmarks: np.ndarray) -> None:
        """Until the next `load` hold (k,) poses, (k,) velocities and biases, (m,) landmarks (bool).

        For what nothing measures, where steps are not damped. The structure is another one meanwhile.
        """
        kinds = [(slam3d.VertexSE3, poses), (slam3d.VertexPointXYZ, landmarks)]
        kinds += [(kind, states[s.inertial]) for kind, _ in _STATES]
        for kind, chosen in kinds:
            if chosen.any():
                vertices = self.graph.vertex_set(kind)
                self._held.append((vertices, vertices.fixed.copy()))
                vertices.fixed[: len(chosen)] |= chosen

    # ---------------------------------------------------------------- building

    def _build(
        self, s: Selection, options: SolveOptions, estimate: tuple[str, ...], imu_kernel: str | None
    ) -> None:
        self.graph = graph = graphopt.Graph()
        k, m = len(s.keyframes), len(s.landmarks)
        numbers = np.arange(k)
        held = s.fixed.copy()
        if self.hold_gauge and _has_gauge(s) and not s.inertial.any():
            held[np.argmax(~held)] = True  # nothing else holds a purely visual problem
        mountings = _calibration_vertices(s, 4 * k + m, estimate)
        poses = np.concatenate([s.world_T_body, mountings[0][1]]) if mountings else s.world_T_body
        pose_ids = np.concatenate([4 * numbers, mountings[0][0]]) if mountings else 4 * numbers
        pose_fixed = np.concatenate([held, mountings[0][2]]) if mountings else held
        _adopt_vertices(graph, slam3d.VertexSE3, pose_ids, poses, pose_fixed)
        with_states = np.flatnonzero(s.inertial)
        for part, (kind, name) in enumerate(_STATES, 1):
            if len(with_states):
                values = getattr(s, name)[with_states]
                _adopt_vertices(graph, kind, 4 * with_states + part, values, s.fixed[with_states])
        if m:
            fixed = np.full(m, s.points_fixed)
            _adopt_vertices(graph, slam3d.VertexPointXYZ, 4 * k + np.arange(m), s.points, fixed, True)
        self._add_calibration(s, mountings)
        self._add_observations(s, options, estimate)
        if len(s.imu):
            states = 4 * s.imu_ends[:, :, None] + np.arange(4)
            width = chi2_quantile(options.imu_confidence, 15) ** 0.5
            kind = inertial.EdgeInertialCombined
            self._adopt_edges(kind, states.reshape(-1, 8), kernel=imu_kernel, width=width)
        gauge = self._needs_gauge_prior(s)
        if len(s.pose_prior_keyframe) or gauge:
            count = len(s.pose_prior_keyframe) + int(gauge)
            holders = np.append(s.pose_prior_keyframe, [np.argmax(~s.fixed)])[:count]
            body = np.full((count, 1), _BODY)
            self._adopt_edges(slam3d.EdgeSE3Prior, 4 * holders[:, None], parameters=body)
        self._add_priors(s)

    def _adopt_edges(
        self,
        kind: EdgeType,
        vertices: np.ndarray,
        parameters: np.ndarray | None = None,
        kernel: str | None = None,
        width: float = 1.0,
    ) -> EdgeSet:
        """Add an edge set without measurements and information yet."""
        count, dim = len(vertices), kind.residual_dim
        first = self.graph.next_order()
        columns = {
            "sequence": np.arange(first, first + count),
            "vertices": np.ascontiguousarray(vertices, np.int64),
            "measurement": np.zeros((count, kind.measurement_dim)),
            "information": np.zeros((count, dim, dim)),
            "kernel": np.full(count, robust_kernel(kernel).number, np.int32),
            "kernel_width": np.full(count, float(width)),
            "level": np.zeros(count, np.int32),
            "parameters": np.zeros((count, 0), np.int64) if parameters is None else parameters,
        }
        made = EdgeSet(kind, Columns.holding(columns))
        self.graph.adopt(made)
        return made

    def _add_calibration(self, s: Selection, mountings: list[Any]) -> None:
        graph = self.graph
        offsets: list[tuple[int, Any]] = [(_BODY, SE3.identity_storage)]
        if s.rig is None:
            _adopt_parameters(graph, slam3d.ParameterSE3Offset, offsets)
            return
        if mountings:
            for kind, ids, values, fixed in mountings[1]:
                _adopt_vertices(graph, kind, ids, values, fixed)
        intrinsics: dict[Any, list[tuple[int, Any]]] = {}
        stereo: list[tuple[int, Any]] = []
        for c, camera in enumerate(s.rig):
            offsets.append((1 + 3 * c, camera.body_T_cam))
            kind = visual_inertial.INTRINSICS_PARAMETERS[camera.model]
            intrinsics.setdefault(kind, []).append((2 + 3 * c, camera.intrinsics))
            if camera.baseline is not None:
                stereo.append((3 + 3 * c, np.append(camera.intrinsics, camera.baseline)))
        _adopt_parameters(graph, slam3d.ParameterSE3Offset, offsets)
        for kind, of_model in intrinsics.items():
            _adopt_parameters(graph, kind, of_model)
        if stereo:
            _adopt_parameters(graph, visual_inertial.ParameterStereoCamera, stereo)

    def _add_observations(self, s: Selection, options: SolveOptions, estimate: tuple[str, ...]) -> None:
        self._pixels = []
        if s.rig is None:
            return
        seen = s.observations
        k, m = len(s.keyframes), len(s.landmarks)
        vertices = np.empty((len(seen), 2), np.int64)
        np.multiply(seen.keyframe, 4, out=vertices[:, 0])
        np.add(seen.landmark, 4 * k, out=vertices[:, 1])
        stereo = np.isfinite(seen.right)
        if "intrinsics" in estimate and stereo.any():
            raise OptionError(
                f"{np.count_nonzero(stereo)} observations are of a rectified pair, whose intrinsics cannot "
                "be estimated: rectified pixels were made with them. Observe with two cameras of the rig "
                "instead."
            )
        calibrating = bool(estimate)
        for model in dict.fromkeys(camera.model for camera in s.rig):
            if stereo.all():
                break
            chosen = ~stereo
            if len(s.rig) > 1:
                chosen &= np.isin(seen.camera, _cameras_of(s, model))
            rows = np.flatnonzero(chosen)
            if not len(rows):
                continue
            camera = seen.camera[rows]
            if calibrating:
                kind, parameters = visual_inertial.CALIB_PIXEL_EDGES[model], None
                ends = np.concatenate([vertices[rows], 4 * k + m + _parameters_of(camera, 0, 1, 2)], axis=1)
            else:
                kind, parameters = visual_inertial.PIXEL_EDGES[model], _parameters_of(camera, 1, 2)
                ends = vertices[rows]
            self._add_pixels(kind, rows, ends, parameters, options, seen.sigma[rows])
        first = 4 * k + m if calibrating else None
        self._add_pairs(s, vertices, stereo, first, options)
        self._add_depths(s, vertices, first, options)

    def _add_pairs(
        self,
        s: Selection,
        vertices: np.ndarray,
        stereo: np.ndarray,
        calibration: int | None,
        options: SolveOptions,
    ) -> None:
        """Observations of rectified pairs; calibration: id of the cameras' first vertex, None: constants."""
        seen = s.observations
        rows, ends, camera, sigma = np.flatnonzero(stereo), vertices, seen.camera, seen.sigma
        if len(rows) < len(seen):
            ends, camera, sigma = vertices[rows], camera[rows], sigma[rows]
        if calibration is None:
            kind, parameters = visual_inertial.EdgeStereo, _parameters_of(camera, 1, 3)
        else:
            kind, parameters = visual_inertial.EdgeCalibStereo, _parameters_of(camera, 3)
            ends = np.concatenate([ends, calibration + _parameters_of(camera, 0, 2)], axis=1)
        self._add_pixels(kind, rows, ends, parameters, options, sigma)

    def _add_depths(
        self, s: Selection, vertices: np.ndarray, calibration: int | None, options: SolveOptions
    ) -> None:
        seen = s.observations
        rows = np.flatnonzero(np.isfinite(seen.depth))
        if not len(rows):
            return
        camera, ends = seen.camera[rows], vertices[rows]
        kind, parameters = visual_inertial.EdgeDepth, _parameters_of(camera, 1)
        if calibration is not None:
            kind, parameters = visual_inertial.EdgeCalibDepth, None
            ends = np.concatenate([ends, calibration + _parameters_of(camera, 0)], axis=1)
        self._add_pixels(kind, rows, ends, parameters, options, seen.depth_sigma[rows])

    def _add_pixels(
        self,
        kind: EdgeType,
        rows: np.ndarray,
        vertices: np.ndarray,
        parameters: np.ndarray | None,
        options: SolveOptions,
        sigma: np.ndarray,
    ) -> None:
        if not len(rows):
            return
        width = chi2_quantile(options.confidence, kind.residual_dim) ** 0.5
        edges = self._adopt_edges(kind, vertices, parameters, options.kernel, width)
        self._pixels.append(_Pixels(edges, rows, 1.0 / (sigma * sigma)))

    def _add_priors(self, s: Selection) -> None:
        """A dense edge of each prior, or an edge per state and pair of a large one, see `_prior_parts`."""
        vertices: dict[EdgeType, list[list[int]]] = {}
        for prior in s.priors:
            for states in _prior_parts(prior):
                ids = [_state_id(prior, state, s) for state in states]
                vertices.setdefault(_prior_type(prior, states), []).append(ids)
        for kind, ends in vertices.items():
            self._adopt_edges(kind, np.array(ends))

    # ---------------------------------------------------------------- values

    def _fill(self, s: Selection, inliers: np.ndarray | None, imu_inliers: np.ndarray | None) -> None:
        graph, k = self.graph, len(s.keyframes)
        graph.vertex_set(slam3d.VertexSE3).estimate[:k] = s.world_T_body
        with_states = np.flatnonzero(s.inertial)
        for kind, name in _STATES:
            if len(with_states):
                graph.vertex_set(kind).estimate = getattr(s, name)[with_states]
        nowhere = s.landmarks_nowhere()
        if len(s.landmarks):
            graph.vertex_set(slam3d.VertexPointXYZ).estimate = _finite(s.points, nowhere)
        if nowhere.any():
            known = ~nowhere[s.observations.landmark]
            inliers = known if inliers is None else known & inliers
        if self._estimate:
            self._fill_calibration(s)
        for pixels in self._pixels:
            _fill_pixels(pixels, s, inliers)
        if len(s.imu):
            edges = graph.edge_set(inertial.EdgeInertialCombined)
            edges.measurement = s.imu_measurement
            takes_part = 1.0 if imu_inliers is None else imu_inliers[:, None, None].astype(float)
            edges.information = s.imu_information * takes_part
        self._fill_pose_priors(s)
        self._fill_priors(s)

    def _fill_calibration(self, s: Selection) -> None:
        """Vertices of the cameras as the selection has them, so that a call starts from its own rig."""
        graph, k = self.graph, len(s.keyframes)
        (_, mountings, _), others = _calibration_vertices(s, 4 * k + len(s.landmarks), self._estimate)
        graph.vertex_set(slam3d.VertexSE3).estimate[k:] = mountings
        for kind, _, values, _ in others:
            graph.vertex_set(kind).estimate = values

    def _fill_pose_priors(self, s: Selection) -> None:
        gauge = self._needs_gauge_prior(s)
        count = len(s.pose_prior_keyframe)
        if not count and not gauge:
            return
        edges = self.graph.edge_set(slam3d.EdgeSE3Prior)
        edges.measurement[:count] = s.pose_prior
        edges.information[:count] = s.pose_prior_information
        if gauge:
            pose = s.world_T_body[np.argmax(~s.fixed)]
            edges.measurement[count] = pose
            edges.information[count] = gauge_information(pose, s.gravity, self.gauge_sigma)

    def _fill_priors(self, s: Selection) -> None:
        used: dict[int, int] = {}
        for prior in s.priors:
            for states in _prior_parts(prior):
                edges = self.graph.edge_set(_prior_type(prior, states))
                row = used[id(edges)] = used.get(id(edges), -1) + 1
                edges.measurement[row], edges.information[row] = _prior_numbers(prior, states)

    def _needs_gauge_prior(self, s: Selection) -> bool:
        return bool(self.hold_gauge and s.inertial.any() and _has_gauge(s))

    # ---------------------------------------------------------------- results

    def states(self, s: Selection) -> Selection:
        """The selection with the graph's estimates."""
        graph, k = self.graph, len(s.keyframes)
        poses = graph.vertex_set(slam3d.VertexSE3).estimate[:k].copy()
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        poses[s.fixed] = s.world_T_body[s.fixed]
        changes: dict[str, np.ndarray] = {"world_T_body": poses}
        with_states = np.flatnonzero(s.inertial)
        for kind, name in _STATES:
            if len(with_states):
                changes[name] = getattr(s, name).copy()
                changes[name][with_states] = graph.vertex_set(kind).estimate
        if len(s.landmarks):
            changes["points"] = graph.vertex_set(slam3d.VertexPointXYZ).estimate.copy()
            nowhere = s.landmarks_nowhere()
            changes["points"][nowhere] = s.points[nowhere]
        return s.with_changes(**changes, **(self._found_calibration(s) if self._estimate else {}))

    def _found_calibration(self, s: Selection) -> dict[str, Any]:
        """The rig as estimated, its time offsets beside it: those of the cameras are in the stamps."""
        found = self.calibration(s)
        cameras = [
            replace(camera, body_T_cam=mounting, intrinsics=intrinsics)
            for camera, (mounting, intrinsics, _) in zip(s.rig or (), found, strict=True)
        ]
        return {"rig": Rig(cameras), "time_offset": np.array([offset for *_, offset in found])}

    def calibration(self, s: Selection) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Per camera mounting (7,), intrinsics and time offset [s] as estimated."""
        assert s.rig is not None
        first = 4 * len(s.keyframes) + len(s.landmarks)
        values = [self.graph.vertex(first + number).estimate.copy() for number in range(3 * len(s.rig))]
        return [(values[3 * c], values[3 * c + 1], float(values[3 * c + 2][0])) for c in range(len(s.rig))]

    def observation_chi2(self, s: Selection) -> tuple[np.ndarray, np.ndarray]:
        """chi2 (o,) of each observation at the graph's estimates, outliers too, and its dimension (o,)."""
        total, dims = np.zeros(len(s.observations)), np.zeros(len(s.observations), np.int64)
        for pixels in self._pixels:
            error = edge_errors(self.graph, pixels.edge_set)
            np.multiply(error, error, out=error)
            chi2 = pixels.chi2 = pixels.weight * sum(error.T[1:], start=error[:, 0])  # faster than along rows
            if len(pixels.rows) == len(total):  # all, in their order
                total += chi2
                dims += error.shape[1]
            else:
                total[pixels.rows] += chi2
                dims[pixels.rows] += error.shape[1]
        return total, dims

    def imu_chi2(self, s: Selection) -> np.ndarray:
        """chi2 (i,) of each IMU measurement at the graph's estimates, rejected ones too."""
        if not len(s.imu):
            return np.zeros(0)
        error = edge_errors(self.graph, self.graph.edge_set(inertial.EdgeInertialCombined))
        return np.einsum("id,ide,ie->i", error, s.imu_information, error)

    def chi2_by_edge_set(self) -> dict[str, float]:
        """Robustified chi2 of each edge set by tag, after `observation_chi2` at the same estimates."""
        result: dict[str, float] = {}
        known = {id(pixels.edge_set): pixels for pixels in self._pixels}
        for edges in self.graph.edge_sets:
            pixels = known.get(id(edges))
            if pixels is not None and pixels.chi2 is not None:
                chi2 = pixels.chi2
                if pixels.takes_part is not None:
                    chi2 = np.where(pixels.takes_part, chi2, 0.0)
            else:
                error = edge_errors(self.graph, edges)
                chi2 = np.einsum("ed,edf,ef->e", error, edges.information, error)
            number = int(edges.kernel[0]) if len(edges) else 0
            if number:
                chi2 = robust_kernel(number).function(chi2, edges.kernel_width)[0]
            result[edges.type.tag] = result.get(edges.type.tag, 0.0) + float(np.sum(chi2))
        return result


# ------------------------------------------------------------------------ structure


def _shape_of(s: Selection, options: SolveOptions, estimate: tuple[str, ...]) -> tuple[Any, ...]:
    """Everything that the graph's structure, and its constants, depend on."""
    seen = s.observations
    return (
        s.fixed, s.inertial, len(s.landmarks), s.points_fixed, s.imu_ends, seen.keyframe, seen.landmark,
        seen.camera, np.isfinite(seen.right), np.isfinite(seen.depth), seen.sigma, seen.depth_sigma,
        s.pose_prior_keyframe, _prior_shape(s), _rig_shape(s.rig, estimate), options.kernel,
        options.confidence, options.imu_confidence, estimate,
    )  # fmt: skip


def _rig_shape(rig: Rig | None, estimate: tuple[str, ...]) -> Any:
    """Of cameras whose calibration is estimated the models, and what rectified pairs are constants of."""
    if not estimate or rig is None:
        return rig
    pairs = [[*camera.intrinsics, camera.baseline] for camera in rig if camera.baseline is not None]
    return [(camera.model, camera.baseline) for camera in rig], np.array(pairs).tobytes()


def _prior_shape(s: Selection) -> np.ndarray:
    parts = [
        [k, kind, owner]
        for k, prior in enumerate(s.priors)
        for kind, owner in zip(prior.kind, prior.owner, strict=True)
    ]
    names = np.array(parts, np.int64).reshape(-1, 3)
    if len(names):  # by number in the selection: ids move on with a sliding window
        is_point = names[:, 1] == LANDMARK
        places = np.where(
            is_point, np.searchsorted(s.landmarks, names[:, 2]), np.searchsorted(s.keyframes, names[:, 2])
        )
        names[:, 2] = places
    return names


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and (a.tobytes() == b.tobytes())
    return a is b or a == b


def _cameras_of(s: Selection, model: str) -> list[int]:
    return [c for c, camera in enumerate(s.rig or ()) if camera.model == model]


def _has_gauge(s: Selection) -> bool:
    """Nothing holds position and heading of the whole."""
    if not len(s.keyframes) or s.fixed.any() or len(s.pose_prior_keyframe):
        return False
    gravity = s.gravity if s.inertial.any() else None
    return not any((prior.kind == POSE).any() and prior.is_absolute(gravity) for prior in s.priors)


def gauge_information(world_T_body: np.ndarray, gravity: np.ndarray, sigma: float) -> np.ndarray:
    """(6, 6) information of a pose prior on position and the turn about gravity, to sigma [m, rad]."""
    down = np.asarray(SE3(world_T_body).rotation.inverse().act(gravity / np.linalg.norm(gravity)))
    information = np.zeros((6, 6))
    information[:3, :3] = np.eye(3) / sigma**2
    information[3:, 3:] = 4.0 * np.outer(down, down) / sigma**2  # the residual is half the turn
    return information


def _adopt_vertices(
    graph: graphopt.Graph,
    kind: VertexType,
    ids: np.ndarray,
    estimates: np.ndarray,
    fixed: np.ndarray,
    marginalized: bool = False,
) -> None:
    first = graph.next_order()
    columns = {
        "sequence": np.arange(first, first + len(ids)),
        "ids": np.array(ids, np.int64),
        "estimate": np.array(estimates, float),
        "fixed": np.array(fixed, bool),
        "marginalized": np.full(len(ids), marginalized),
    }
    graph.adopt(VertexSet(kind, Columns.holding(columns)))


def _adopt_parameters(graph: graphopt.Graph, kind: ParameterType, values: list[tuple[int, Any]]) -> None:
    """Parameters of one type, each an id and its numbers."""
    first = graph.next_order()
    columns = {
        "sequence": np.arange(first, first + len(values)),
        "ids": np.array([id_ for id_, _ in values], np.int64),
        "values": np.array([numbers for _, numbers in values], float),
    }
    graph.adopt(ParameterSet(kind, Columns.holding(columns)))


def calibration_ids(s: Selection, camera: int, estimate: tuple[str, ...]) -> list[int]:
    """Ids of the free vertices of a camera, in the order of `CALIBRATION`."""
    first = 4 * len(s.keyframes) + len(s.landmarks) + 3 * camera
    return [first + part for part, name in enumerate(CALIBRATION) if name in estimate]


def _calibration_vertices(s: Selection, first: int, estimate: tuple[str, ...]) -> list[Any]:
    """[(ids, mountings, fixed), [(type, ids, values, fixed) of intrinsics and time offsets]]; [] for none."""
    unknown = [name for name in estimate if name not in CALIBRATION]
    if unknown:
        raise OptionError(f"cannot estimate {', '.join(unknown)}; possible are {', '.join(CALIBRATION)}.")
    if not estimate:
        return []
    if s.rig is None:
        raise OptionError("there are no cameras whose calibration could be estimated: Map(rig).")
    numbers = np.arange(len(s.rig))
    mountings = np.stack([camera.body_T_cam for camera in s.rig])
    others: list[Any] = []
    for model in dict.fromkeys(camera.model for camera in s.rig):
        of = np.array(_cameras_of(s, model))
        values = np.stack([s.rig[c].intrinsics for c in of])
        held = np.full(len(of), "intrinsics" not in estimate)
        others.append((visual_inertial.INTRINSICS_VERTICES[model], first + 3 * of + 1, values, held))
    # the stamps were already moved by what was known of the offset
    held = np.full(len(numbers), "time_offset" not in estimate)
    offsets = np.zeros(len(numbers)) if s.time_offset is None else s.time_offset
    others.append((visual_inertial.VertexTimeOffset, first + 3 * numbers + 2, offsets[:, None], held))
    return [(first + 3 * numbers, mountings, np.full(len(numbers), "extrinsics" not in estimate)), others]


def _parameters_of(camera: np.ndarray, *parts: int) -> np.ndarray:
    """(e, parts) ids of some parameters of cameras (e,)."""
    ids = np.empty((len(camera), len(parts)), np.int64)
    first = 3 * camera.astype(np.int64)
    for column, part in enumerate(parts):
        np.add(first, part, out=ids[:, column])
    return ids


# ------------------------------------------------------------------------ values


def _finite(points: np.ndarray, nowhere: np.ndarray) -> np.ndarray:
    """Points (m, 3) with a finite place for those that have none: no weight makes up for a NaN."""
    if not nowhere.any():
        return points
    middle = points[~nowhere].mean(axis=0) if not nowhere.all() else np.ones(3)
    return np.where(nowhere[:, None], middle + np.array([0.1, 0.2, 0.3]), points)


_DEPTHS = (visual_inertial.EdgeDepth, visual_inertial.EdgeCalibDepth)
_PAIRS = (visual_inertial.EdgeStereo, visual_inertial.EdgeCalibStereo)


def _fill_pixels(pixels: _Pixels, s: Selection, inliers: np.ndarray | None) -> None:
    edges, seen = pixels.edge_set, s.observations
    rows = pixels.rows if len(pixels.rows) < len(seen) else slice(None)
    if edges.type in _DEPTHS:
        measured = [seen.depth]
    else:
        measured = [*seen.pixel.T, seen.right] if edges.type in _PAIRS else [*seen.pixel.T]
        if edges.type.measurement_dim > edges.type.residual_dim:
            measured += [*seen.flow.T]
    measurement, information = edges.measurement, edges.information
    for place, column in zip(measurement.T, measured, strict=True):  # numpy is slow along short rows
        place[:] = column[rows]
    pixels.takes_part = None if inliers is None or inliers.all() else inliers[rows]
    weight = pixels.weight if pixels.takes_part is None else pixels.weight * pixels.takes_part
    for d in range(information.shape[1]):
        information[:, d, d] = weight


_DENSE_UP_TO = 30


def _prior_parts(prior: MarginalPrior) -> list[tuple[int, ...]]:
    """Which states each edge of a prior holds: all, or one and two each.

    Of a large prior the information is shared out: an edge per state has its diagonal block, an edge per pair
    the blocks between them. These alone are indefinite; their sum is the prior.
    """
    count = len(prior.kind)
    if int(prior.dims.sum()) <= _DENSE_UP_TO:
        return [tuple(range(count))]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count) if _block(prior, i, j).any()]
    return [*((i,) for i in range(count)), *pairs]


def _block(prior: MarginalPrior, i: int, j: int) -> np.ndarray:
    first = prior.starts
    return prior.information[first[i] : first[i + 1], first[j] : first[j + 1]]


_KINDS = (*marginal.STATE_TYPES, slam3d.VertexPointXYZ)


def _state_type(prior: MarginalPrior, state: int) -> VertexType:
    return _KINDS[int(prior.kind[state])]


def _prior_type(prior: MarginalPrior, states: tuple[int, ...]) -> EdgeType:
    return marginal.prior_edge(*(_state_type(prior, state) for state in states))


def _state_id(prior: MarginalPrior, state: int, s: Selection) -> int:
    kind, owner = int(prior.kind[state]), int(prior.owner[state])
    if kind == LANDMARK:
        return 4 * len(s.keyframes) + int(np.searchsorted(s.landmarks, owner))
    return 4 * int(np.searchsorted(s.keyframes, owner)) + kind


def _prior_numbers(prior: MarginalPrior, states: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Measurement and information of one edge of a prior."""
    first = prior.starts
    rows = np.concatenate([np.arange(first[state], first[state + 1]) for state in states])
    references = [prior.reference[state, : _state_type(prior, state).storage_dim] for state in states]
    information = prior.information[np.ix_(rows, rows)].copy()
    if len(states) == 2 and len(prior.kind) > 2:  # of a pair only what is between the two
        size = int(prior.dims[states[0]])
        information[:size, :size] = information[size:, size:] = 0.0
    return np.concatenate([*references, prior.offset[rows]]), information
