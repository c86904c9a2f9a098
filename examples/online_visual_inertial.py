"""A fixed-lag visual-inertial window: keyframes with stereo landmarks and an IMU, the old ones marginalized.

    chi2 = sum over pixels of |e|^2 / sigma^2 + sum over IMU measurements of e' Omega e

Each keyframe is one update of `graphopt.Online`. The keyframe that leaves the window is marginalized with the
landmarks that it saw first: those that stayed would all be tied to each other by its prior. The flight is
synthetic, its truth is known.

Run: python examples/online_visual_inertial.py [--keyframes 60] [--lag 10]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import command
import numpy as np

import slam_bridge as sb
from graphopt import Graph, Online
from graphopt.online import Edges, Vertices
from graphopt.types.inertial import VertexAccBias, VertexGyroBias, VertexVelocity
from graphopt.types.slam3d import VertexPointXYZ, VertexSE3
from graphopt.types.visual_inertial import EdgeStereo
from slam_bridge.evaluation.windows import CAMERA, STEP, make_map, motion
from slam_bridge.selection import Selection, select

KINDS = (VertexSE3, VertexVelocity, VertexGyroBias, VertexAccBias)
"""Of a state."""
LEAST_DISPARITY = 2.0
"""[px] between both images of a landmark that is new; of less its distance is too uncertain to begin with."""


class Flight:
    """A map as a graph: states of keyframe k have the ids 4 k to 4 k + 3, landmarks those from 4 K on."""

    def __init__(self, keyframes: int, points: int, observations: int):
        world = make_map(keyframes, points, observations)
        self.selection: Selection = select(world, world.keyframes.ids, inertial=world.keyframes.ids)
        self.graph: Graph = sb.Window(hold_gauge=False).load(self.selection, sb.SolveOptions())
        self.first_landmark = 4 * keyframes
        self.first_seen: dict[int, int] = {}
        self.gone: set[int] = set()

    def edges_of(self, keyframe: int) -> list[Edges]:
        """Edges whose newest state is of this keyframe, of new landmarks those that say how far they are."""
        found = []
        for edges in self.graph.edge_sets:
            newest = np.where(edges.vertices < self.first_landmark, edges.vertices // 4, -1).max(axis=1)
            rows = np.flatnonzero(newest == keyframe)
            if edges.type is EdgeStereo:
                pixel, ids = edges.measurement[rows], edges.vertices[rows, 1]
                is_known = np.isin(ids, list(self.first_seen))
                is_near = pixel[:, 0] - pixel[:, 2] > LEAST_DISPARITY
                rows = rows[(is_known | is_near) & ~np.isin(ids, list(self.gone))]
            arrays = (edges.vertices, edges.measurement, edges.information, edges.kernel, edges.kernel_width)
            own = edges.parameters[rows] if edges.type.parameters else None
            if len(rows):
                found.append(Edges(edges.type, *(array[rows] for array in arrays), own))
        return found

    def state(self, keyframe: int, before: list[np.ndarray] | None) -> list[np.ndarray]:
        """Pose, velocity and biases: of the map, or as the IMU predicts from the state before."""
        if before is None:
            truth = motion(STEP * np.array([keyframe]))
            s = self.selection
            return [truth[0][0], truth[1][0], s.gyro_bias[keyframe], s.acc_bias[keyframe]]
        measured = self.selection.preintegrated[keyframe - 1]
        state = sb.FrameState(*before).predicted(measured)
        return [state.world_T_body, *state.vectors]

    def landmarks(self, keyframe: int, edges: list[Edges], pose: np.ndarray) -> Iterator[Vertices]:
        """Those that are new, where the pair of images says."""
        for seen in [one for one in edges if one.type is EdgeStereo]:
            new = [row for row, id_ in enumerate(seen.vertices[:, 1].tolist()) if id_ not in self.first_seen]
            ids, pixel = seen.vertices[new, 1], seen.measurements[new]
            self.first_seen.update(dict.fromkeys(ids.tolist(), keyframe))
            yield Vertices(
                VertexPointXYZ, ids, CAMERA.in_world(pose, CAMERA.locate(pixel[:, :2], pixel[:, 2]))
            )

    def leave(self, keyframe: int) -> list[int]:
        """Ids of a keyframe's states and of the landmarks that it saw first, which are not observed again."""
        landmarks = [id_ for id_, first in self.first_seen.items() if first == keyframe]
        self.gone.update(landmarks)
        return [*range(4 * keyframe, 4 * keyframe + 4), *landmarks]


def feed(flight: Flight, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses (K, 7) as they were when they came, and milliseconds of each update."""
    online = Online()
    for parameters in flight.graph.parameter_sets:
        online.add_parameters(parameters.type, parameters.ids, parameters.values)
    state, poses, seconds = None, [], []
    for keyframe in range(len(flight.selection.keyframes)):
        state, edges = flight.state(keyframe, state), flight.edges_of(keyframe)
        vertices = [
            Vertices(kind, [4 * keyframe + part], values[None], keyframe == 0)
            for part, (kind, values) in enumerate(zip(KINDS, state, strict=True))
        ]
        vertices += flight.landmarks(keyframe, edges, state[0])
        old = flight.leave(keyframe - lag) if keyframe > lag else []
        start = time.perf_counter()
        online.update(vertices, edges, marginalize=old)
        seconds.append(time.perf_counter() - start)
        state = [online.estimate(4 * keyframe + part) for part in range(4)]
        poses.append(state[0])
    print(f"{len(online)} vertices and {online.num_edges} edges are left, {online.memory_bytes >> 10} KiB")
    return np.array(poses), 1e3 * np.array(seconds)


def main(argv: list[str] | None = None) -> float:
    """Command line; the position error [m]."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keyframes", type=int, default=60)
    parser.add_argument("--landmarks", type=int, default=20, help="new ones per keyframe")
    parser.add_argument("--lag", type=int, default=10, help="keyframes")
    args = parser.parse_args(argv)
    points = args.landmarks * args.keyframes
    flight = Flight(args.keyframes, points, 7 * points)
    poses, times = feed(flight, args.lag)
    truth = motion(STEP * np.arange(args.keyframes))[0]
    error = float(np.sqrt(((poses - truth)[:, :3] ** 2).sum(axis=1).mean()))
    print(f"median {np.median(times):.1f} ms, worst {times.max():.1f} ms, position error {error:.3g} m rms")
    return error


if __name__ == "__main__":
    command.run(main)
