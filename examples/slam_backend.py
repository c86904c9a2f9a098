"""The back end of a SLAM program: frames and IMU samples in, optimized poses out.

What a front end delivers comes from a generated flight with known truth. Like a front end it loses tracks
that it has not seen for some time: a place that is seen again has other tracks, until the loop is closed.
"""

from __future__ import annotations

import argparse

import numpy as np

import slam_bridge as sb
from graphopt.geometry import SE3
from slam_bridge.generator import generate_problem

MEMORY = 8  # keyframes after which a front end no longer knows a track


def main() -> None:
    """Run the back end over a generated flight, and say how far it is from the truth."""
    parser = argparse.ArgumentParser(description="A SLAM back end on slam_bridge.")
    parser.add_argument("--keyframes", type=int, default=126)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    count = arguments.keyframes
    size = {"keyframes": count, "landmarks": 20 * count, "observations": 150 * count}
    flight = generate_problem("MH01", **size, mismatches=0.02, seed=arguments.seed)
    assert flight.truth is not None and flight.noise is not None and flight.map.rig is not None

    backend = sb.Backend(flight.map.rig, flight.noise)
    for number, (stamp, samples, seen) in enumerate(front_end(flight)):
        for moment, gyro, acc in samples:
            backend.add_imu(moment, gyro, acc)
        start = {} if number else {"pose": flight.truth.world_T_body[0], "velocity": flight.truth.velocity[0]}
        backend.add_frame(stamp, (seen["track"], seen["pixel"]), right=seen["right"], **start)
        if number and number % 5 == 0:
            backend.local()

    true = SE3(flight.truth.world_T_body)
    first_T_last = SE3(true.storage[0]).inverse() * SE3(true.storage[-1])  # a place recogniser says this
    print(backend.close_loop(0, count - 1, first_T_last.storage).report())
    print(backend.finish().report())
    found = np.stack([backend.pose(frame) for frame in range(count)])
    errors = found[:, :3] - flight.truth.world_T_body[:, :3]
    print(f"position error {np.sqrt((errors**2).sum(axis=1).mean()):.3g} m rms over {count} keyframes")


def front_end(flight):
    """Stamps, IMU samples since the last frame, and tracks with their pixels, frame by frame."""
    world, imu = flight.map, flight.imu
    seen, given, number_of = world.observations, 0, {}
    for number, row in enumerate(np.argsort(world.keyframes["stamp"])):
        stamp = int(world.keyframes["stamp"][row])
        until = int(np.searchsorted(imu.stamps, stamp)) + 1
        part = slice(given, until)
        samples = list(zip(imu.stamps[part].tolist(), imu.gyro[part], imu.acc[part], strict=True))
        given = until
        rows = seen.rows_where("keyframe", [world.keyframes.ids[row]])
        tracks = []
        for point in seen["landmark"][rows].tolist():
            track, last = number_of.get(point, (-1, -MEMORY))
            if number - last >= MEMORY:
                track = point + len(world.landmarks) * number
            number_of[point] = track, number
            tracks.append(track)
        yield stamp, samples, {"track": tracks, "pixel": seen["pixel"][rows], "right": seen["right"][rows]}


if __name__ == "__main__":
    main()
