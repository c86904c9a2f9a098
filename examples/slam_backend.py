"""The back end of a SLAM program: frames are tracked, windows optimized, a loop is closed, all is optimized.

What a front end delivers (stamps, IMU measurements, matched stereo pixels) comes from a generated map with
known truth; like a front end it loses tracks that were not seen for some time, so that a place which is seen
again gets landmarks of its own, until the loop is closed.
"""

from __future__ import annotations

import argparse

import numpy as np

import slam_bridge as sb
from graphopt.geometry import SE3
from slam_bridge.exchange import truth_errors
from slam_bridge.generator import generate_problem

STATE = ("world_T_body", "velocity", "gyro_bias", "acc_bias")
FAR = 20.0  # [m]: a landmark begins closer, where the right image says how far it is
MEMORY = 8  # keyframes after which a front end no longer knows a track


def main() -> None:
    """Run the back end over all keyframes of a generated map."""
    parser = argparse.ArgumentParser(description="A SLAM back end on slam_bridge.")
    parser.add_argument("--keyframes", type=int, default=126)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    count = arguments.keyframes
    size = {"keyframes": count, "landmarks": 20 * count, "observations": 150 * count}
    problem = generate_problem("MH01", **size, mismatches=0.02, seed=arguments.seed)
    world, tracks = run(problem.map)
    print(close_loop(world, tracks))
    print(sb.full_inertial_ba(world).report())
    assert problem.truth is not None
    errors = truth_errors(world, problem.truth)
    print(", ".join(f"{name} {errors[name]:.4g}" for name in ("position_m", "rotation_deg", "scale")))


def run(source: sb.Map) -> tuple[sb.Map, dict[int, list[int]]]:
    """Track the keyframes of a map, one after the other; the landmarks that each track has had."""
    assert source.rig is not None
    world, camera = sb.Map(source.rig), source.rig[0]
    window, tracker = sb.Window(), sb.FrameGraph(source.rig)
    landmark: dict[int, tuple[int, int]] = {}  # of a track, and the keyframe that saw it last
    had: dict[int, list[int]] = {}
    measured = dict(zip(source.imu["second"].tolist(), source.imu.ids.tolist(), strict=True))
    for number, row in enumerate(np.argsort(source.keyframes["stamp"])):
        rows = source.observations.rows_where("keyframe", [source.keyframes.ids[row]])
        track = source.observations["landmark"][rows]
        seen = {name: source.observations[name][rows] for name in ("pixel", "camera", "right", "sigma")}
        known = np.array(
            [number - landmark[t][1] < MEMORY if t in landmark else False for t in track.tolist()]
        )
        with np.errstate(divide="ignore"):
            local = camera.locate(seen["pixel"], seen["right"])
        near = known | (local[:, 2] > 0.0) & (local[:, 2] < FAR)
        track, known, local = track[near].tolist(), known[near], local[near]
        seen = {name: values[near] for name, values in seen.items()}
        state = sb.FrameState(*(source.keyframes[name][row].copy() for name in STATE))
        if number:  # the IMU predicts, known landmarks correct
            before = world.keyframes.ids[-1]
            imu = source.preintegrated[measured[int(source.keyframes.ids[row])]]
            last = sb.FrameState(*(world.keyframes[name][-1].copy() for name in STATE))
            state = last.predicted(imu, world.gravity)
            ids = [landmark[t][0] for t, is_known in zip(track, known, strict=True) if is_known]
            points = world.landmarks["position"][world.landmarks.rows(ids)]
            matched = sb.FrameObservations.of(points, **{k: v[known] for k, v in seen.items()})
            tracked = sb.pose_optimization(source.rig, state.world_T_body, matched, graph=tracker)
            if tracked.is_usable:
                state.world_T_body[:] = tracked.keyframes.world_T_body[0]
        numbers = (state.world_T_body, *state.vectors)
        frame = world.add_keyframe(
            int(source.keyframes["stamp"][row]), **dict(zip(STATE, numbers, strict=True))
        )
        if number:
            world.add_imu(before, frame, imu)
        fresh = [t for t, is_known in zip(track, known, strict=True) if not is_known]
        added = world.add_landmarks(camera.in_world(state.world_T_body, local[~known]), reference=frame)
        for t, new in zip(fresh, added.tolist(), strict=True):
            landmark[t] = new, number
            had.setdefault(t, []).append(new)
        landmark.update({t: (landmark[t][0], number) for t in track})
        world.add_observations(frame, [landmark[t][0] for t in track], **seen)
        if number and number % 5 == 0:
            sb.local_inertial_ba(world, world.keyframes.ids[-10:], window=window)
    return world, had


def close_loop(world: sb.Map, tracks: dict[int, list[int]]) -> str:
    """Align two keyframes that saw the same tracks as different landmarks, and merge these."""
    table, frames = world.observations, world.keyframes
    rig, row_of = world.rig, {}
    assert rig is not None
    for row, (landmark, frame) in enumerate(zip(table["landmark"], table["keyframe"], strict=True)):
        row_of.setdefault(int(landmark), {})[int(frame)] = row
    shared: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of two keyframes: rows of both observations
    twice = [(ids[0], ids[-1]) for ids in tracks.values() if len(ids) > 1]
    for old, new in twice:
        for one, first in row_of[old].items():
            for two, second in row_of[new].items():
                shared.setdefault((one, two), []).append((first, second))
    if not shared:
        return "no place was seen twice"
    (one, two), pairs = max(shared.items(), key=lambda item: len(item[1]))
    rows = np.array(pairs).T
    points = [
        rig[0].in_camera(
            frames["world_T_body"][frames.rows(frame)],
            world.landmarks["position"][world.landmarks.rows(table["landmark"][chosen])],
        )
        for frame, chosen in zip((one, two), rows, strict=True)
    ]
    pixels = [table["pixel"][chosen] for chosen in rows]
    aligned = sb.sim3_alignment(points[0], points[1], (rig[0], rig[0]), pixels[0], pixels[1], fix_scale=True)
    if not aligned.is_usable:
        return aligned.report()
    mounting = SE3(rig[0].body_T_cam)
    between = mounting * SE3(aligned.extra["first_S_second"][:7]) * mounting.inverse()
    world.add_loops(one, two, between.storage, aligned.extra["information"])
    done = sb.essential_graph_optimization(world, mode="4dof")
    if len(done.rejected["loop"]):
        return done.report()
    world.merge_landmarks([old for old, _ in twice], [new for _, new in twice])
    return f"{aligned.report()}\n{done.report()}"


if __name__ == "__main__":
    main()
