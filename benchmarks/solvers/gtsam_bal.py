"""gtsam 4.3.0 on BAL: `GeneralSFMFactorCal3Bundler`, the same camera as ours (pose, f, k1, k2)."""

from __future__ import annotations

import time
from pathlib import Path

import gtsam


def load(path: Path) -> tuple[gtsam.NonlinearFactorGraph, gtsam.Values]:
    """Build factors with unit noise and the file's start values."""
    data = gtsam.SfmData.FromBalFile(str(path))
    graph, start = gtsam.NonlinearFactorGraph(), gtsam.Values()
    unit = gtsam.noiseModel.Unit.Create(2)
    for camera in range(data.numberCameras()):
        start.insert(gtsam.symbol("c", camera), data.camera(camera))
    for track_number in range(data.numberTracks()):
        track = data.track(track_number)
        point = gtsam.symbol("p", track_number)
        start.insert(point, track.point3())
        for measurement in range(track.numberMeasurements()):
            camera, pixel = track.measurement(measurement)
            graph.add(gtsam.GeneralSFMFactorCal3Bundler(pixel, unit, gtsam.symbol("c", camera), point))
    return graph, start


def trace(path: Path, half_cost_target: float, limit: int) -> tuple[float | None, float, int]:
    """Iterate LM; return (seconds to the target or None, seconds per iteration, iterations done)."""
    graph, start = load(path)
    parameters = gtsam.LevenbergMarquardtParams()
    parameters.setOrderingType("METIS")
    started = time.perf_counter()
    optimizer = gtsam.LevenbergMarquardtOptimizer(graph, start, parameters)
    spent, setup = 0.0, time.perf_counter() - started
    for number in range(1, limit + 1):
        started = time.perf_counter()
        optimizer.iterate()
        spent += time.perf_counter() - started
        if optimizer.error() <= half_cost_target:
            return setup + spent, spent / number, number
    return None, spent / limit, limit
