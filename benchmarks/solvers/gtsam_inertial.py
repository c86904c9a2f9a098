"""gtsam 4.3.0 on visual-inertial maps: the factors that `slam_bridge`'s windows have, with its own LM.

states of keyframe k        x k Pose3 world_T_body, v k, b k ConstantBias
landmark m                  l m Point3
pixel, with right column    GenericProjectionFactorCal3_S2, GenericStereoFactor3D
IMU                         CombinedImuFactor, from the samples (GTSAM holds them between stamps)
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import gtsam
import numpy as np

from graphopt.geometry import SO3
from slam_bridge.cameras import Camera
from slam_bridge.selection import Selection

_KEY = gtsam.symbol
_HELD = 1e-6
"""Standard deviation of what is fixed: constraints would have GTSAM factorize by QR, ten times slower."""


@dataclass(frozen=True)
class GtsamRun:
    """One optimization."""

    build: float
    """Making factors and values from Python [s]; a C++ program does it much faster."""
    solve: float
    """Optimizer and its iterations [s]."""
    iterations: int
    error_before: float
    """Twice GTSAM's error: chi2."""
    error: float
    world_T_body: np.ndarray
    """(k, 7) of the selection's keyframes."""


def solve(s: Selection, iterations: int) -> GtsamRun:
    """Levenberg-Marquardt on a selection of a map; fixed keyframes have tight priors."""
    start = time.perf_counter()
    graph, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
    _add_states(s, graph, values)
    _add_observations(s, graph)
    _add_imu(s, graph)
    built = time.perf_counter()
    parameters = gtsam.LevenbergMarquardtParams()
    parameters.setMaxIterations(iterations)
    parameters.setRelativeErrorTol(0.0)
    parameters.setAbsoluteErrorTol(0.0)
    before = 2.0 * graph.error(values)
    begun = time.perf_counter()
    optimizer = gtsam.LevenbergMarquardtOptimizer(graph, values, parameters)
    found = optimizer.optimize()
    end = time.perf_counter()
    poses = np.array([_storage(found.atPose3(_KEY("x", k))) for k in range(len(s.keyframes))])
    return GtsamRun(
        built - start, end - begun, optimizer.iterations(), before, 2.0 * optimizer.error(), poses
    )


def _pose(storage: np.ndarray) -> gtsam.Pose3:
    x, y, z, w = storage[3:].tolist()
    return gtsam.Pose3(gtsam.Rot3(w, x, y, z), storage[:3])


def _storage(pose: gtsam.Pose3) -> np.ndarray:
    return np.concatenate([pose.translation(), SO3.from_matrix(pose.rotation().matrix()).storage])


def _add_states(s: Selection, graph: gtsam.NonlinearFactorGraph, values: gtsam.Values) -> None:
    held6, held3 = (gtsam.noiseModel.Isotropic.Sigma(dim, _HELD) for dim in (6, 3))
    for k in range(len(s.keyframes)):
        pose = _pose(s.world_T_body[k])
        values.insert(_KEY("x", k), pose)
        if s.fixed[k]:
            graph.addPriorPose3(_KEY("x", k), pose, held6)
        if s.inertial[k]:
            bias = gtsam.imuBias.ConstantBias(s.acc_bias[k], s.gyro_bias[k])
            values.insert(_KEY("v", k), s.velocity[k])
            values.insert(_KEY("b", k), bias)
            if s.fixed[k]:
                graph.push_back(gtsam.PriorFactorVector(_KEY("v", k), s.velocity[k], held3))
                graph.addPriorConstantBias(_KEY("b", k), bias, held6)
    for m, point in enumerate(s.points):
        values.insert(_KEY("l", m), point)


def _calibration(camera: Camera, stereo: bool) -> object:
    fx, fy, cx, cy = camera.intrinsics[:4].tolist()
    if stereo:
        return gtsam.Cal3_S2Stereo(fx, fy, 0.0, cx, cy, camera.baseline)
    if camera.model != "pinhole":
        raise ValueError(f"no factor for a {camera.model} camera: GTSAM's project only what is ahead")
    return gtsam.Cal3_S2(fx, fy, 0.0, cx, cy)


def _add_observations(s: Selection, graph: gtsam.NonlinearFactorGraph) -> None:
    assert s.rig is not None
    seen, holds = s.observations, s.holds()
    mounting = [_pose(camera.body_T_cam) for camera in s.rig]
    stereo = [None if c.baseline is None else _calibration(c, True) for c in s.rig]
    mono = [_calibration(c, False) for c in s.rig]
    noises: dict[tuple[int, float], object] = {}
    for o in np.flatnonzero(holds).tolist():
        c, right, sigma = int(seen.camera[o]), float(seen.right[o]), float(seen.sigma[o])
        dim = 3 if np.isfinite(right) else 2
        if (dim, sigma) not in noises:
            noises[dim, sigma] = gtsam.noiseModel.Isotropic.Sigma(dim, sigma)
        keys = _KEY("x", int(seen.keyframe[o])), _KEY("l", int(seen.landmark[o]))
        u, v = seen.pixel[o].tolist()
        if dim == 3:
            measured = gtsam.StereoPoint2(u, right, v)
            factor = gtsam.GenericStereoFactor3D(measured, noises[3, sigma], *keys, stereo[c], mounting[c])
        else:
            factor = gtsam.GenericProjectionFactorCal3_S2(
                np.array([u, v]), noises[2, sigma], *keys, mono[c], mounting[c]
            )
        graph.push_back(factor)


def _add_imu(s: Selection, graph: gtsam.NonlinearFactorGraph) -> None:
    for measured, (i, j) in zip(s.preintegrated, s.imu_ends.tolist(), strict=True):
        noise = measured.noise
        parameters = gtsam.PreintegrationCombinedParams(s.gravity)
        for name, density in (
            ("setGyroscopeCovariance", noise.gyro_density),
            ("setAccelerometerCovariance", noise.acc_density),
            ("setBiasOmegaCovariance", noise.gyro_bias_density),
            ("setBiasAccCovariance", noise.acc_bias_density),
            ("setIntegrationCovariance", noise.integration_density),
        ):
            getattr(parameters, name)(density**2 * np.eye(3))
        bias = gtsam.imuBias.ConstantBias(measured.acc_bias, measured.gyro_bias)
        combined = gtsam.PreintegratedCombinedMeasurements(parameters, bias)
        samples = measured.samples
        for dt, acc, gyro in zip(samples.steps.tolist(), samples.acc, samples.gyro, strict=False):
            combined.integrateMeasurement(acc, gyro, dt)
        ends = [_KEY(name, k) for k in (i, j) for name in "xv"]
        graph.push_back(gtsam.CombinedImuFactor(*ends, _KEY("b", i), _KEY("b", j), combined))
