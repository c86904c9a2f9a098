"""Poses of a depth camera from matched points and from all pixels (BundleFusion, Dai et al., TOG 2017).

    E = w_sparse sum over matches (a in frame i, b in frame j)   |T_i a - T_j b|^2
      + sum over pairs of frames (i, j), pixels p of i:
            rho( |n_i (p - i_T_j p_j)|^2 / s_depth^2  +  |I_j(u) - I_i|^2 / s_light^2 )

T_i = world_T_i; u = pixel of j where p is seen, p_j = D_j(u) (u, 1) the point there, n_i the normal at p.
Depth D and brightness I are sampled images: each edge follows p over frame j as the poses move; pixels that
leave the frame count nothing.

Run: python examples/bundle_fusion.py [--frames N] [--sparse-only] [--device ...] [-o OUT.png]
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import command
import images
import numpy as np

import graphopt
from graphopt.geometry import SE3, components, stack

ROWS, COLUMNS, FOCAL = 36, 48, 48.0
DEPTH_NOISE, LIGHT_NOISE = 0.002, 0.02  # [m], of brightness
Pose = graphopt.group_type("FusionPose", SE3)  # world_T_camera
Depth = graphopt.image_type(tag="IMAGE_FUSION_DEPTH", channels=1)
Light = graphopt.image_type(tag="IMAGE_FUSION_LIGHT", channels=1)


@dataclass
class Frame:
    """What a camera sees (ROWS, COLUMNS)."""

    depth: np.ndarray  # [m]
    light: np.ndarray  # 0 to 1
    points: np.ndarray  # (rows, columns, 3) of the camera [m]
    normals: np.ndarray  # (rows, columns, 3)


@graphopt.edge_type(vertices=(Pose, Pose), measurement_dim=6)
def EdgeMatch(world_T_i, world_T_j, points):
    """Distance of two points that are one."""
    return world_T_i.act(points[..., :3]) - world_T_j.act(points[..., 3:])


@graphopt.edge_type(vertices=(Pose, Pose), parameters=(Depth, Light), measurement_dim=7)
def EdgeAligned(world_T_i, world_T_j, depth, light, pixel):
    """Distance along the normal to what frame j has there, and difference of brightness."""
    point, normal = pixel[..., :3], pixel[..., 3:6]
    x, y, z = components((world_T_j.inverse() * world_T_i).act(point))
    u, v = FOCAL * x / z + 0.5 * COLUMNS, FOCAL * y / z + 0.5 * ROWS
    d = depth(u, v)
    there = stack(d * (u - 0.5 * COLUMNS) / FOCAL, d * (v - 0.5 * ROWS) / FOCAL, d)
    off = point - (world_T_i.inverse() * world_T_j).act(there)
    along = sum(a * b for a, b in zip(components(normal), components(off), strict=True))
    seen = (z > 0.1) & (u > 0.0) & (u < COLUMNS - 1.0) & (v > 0.0) & (v < ROWS - 1.0)
    difference = (light(u, v) - pixel[..., 6]) / LIGHT_NOISE
    return stack(np.where(seen, along / DEPTH_NOISE, 0.0), np.where(seen, difference, 0.0))


def unproject(depth: np.ndarray) -> np.ndarray:
    """Points (rows, columns, 3) of the camera."""
    v, u = np.mgrid[:ROWS, :COLUMNS]
    return depth[..., None] * np.dstack(
        [(u - 0.5 * COLUMNS) / FOCAL, (v - 0.5 * ROWS) / FOCAL, np.ones_like(u)]
    )


def frame_of(depth: np.ndarray, light: np.ndarray) -> Frame:
    """With points, and normals from neighbouring ones."""
    points = unproject(depth)
    normals = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0))
    return Frame(depth, light, points, normals / np.linalg.norm(normals, axis=2, keepdims=True))


def build(frames: list[Frame], matches: dict, start: np.ndarray, dense: bool, step: int = 2):
    """Graph and poses; matches: (i, j) -> (m, 6) points; of the pixels every `step`-th is used."""
    graph = graphopt.Graph()
    poses = graph.add_array(Pose, start, fixed=np.arange(len(frames)) == 0)
    for number, frame in enumerate(frames):
        graph.add_parameters(Depth, [2 * number], graphopt.Image(frame.depth))
        graph.add_parameters(Light, [2 * number + 1], graphopt.Image(frame.light))
    for (i, j), points in matches.items():
        weight = np.eye(3) / (5.0 * DEPTH_NOISE) ** 2
        graph.add_edges(EdgeMatch, np.tile(poses.ids[[i, j]], (len(points), 1)), points, weight)
    for i, j in combinations(range(len(frames)), 2) if dense else ():
        frame, inner = frames[i], (slice(1, -1, step), slice(1, -1, step))
        data = np.dstack([frame.points, frame.normals, frame.light])[inner].reshape(-1, 7)
        graph.add_edges(
            EdgeAligned, np.tile(poses.ids[[i, j]], (len(data), 1)), data, parameters=[2 * j, 2 * j + 1],
            kernel="Huber", kernel_width=3.0,
        )  # fmt: skip
    return graph, poses


def fuse(frames: list[Frame], matches: dict, start: np.ndarray, dense: bool = True, **options):
    """Poses (n, 7) and the summary: first from the matches, then, where `dense`, from the pixels as well."""
    graph, poses = build(frames, matches, start, False)
    summary = graphopt.optimize(graph, **options)
    if dense:
        graph, poses = build(frames, matches, poses.estimate, True)
        rules = graphopt.AutoOptions(max_iterations=30, function_tolerance=1e-6, contest=False)
        summary = graphopt.optimize(graph, options=rules, **options)
    return poses.estimate.copy(), summary


def surface(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Height [m] and brightness of a wall with waves, at (x, y) of the world."""
    height = 1.0 + 0.06 * np.sin(5.0 * x + 1.0) * np.cos(4.0 * y) + 0.04 * np.sin(7.0 * y + 2.0 * x)
    return height, 0.5 + 0.2 * np.sin(14.0 * x) * np.sin(11.0 * y + 0.5) + 0.15 * np.cos(9.0 * (x + y))


def generated(num_frames: int = 6, matches_per_pair: int = 12, seed: int = 0):
    """Frames, matches, start and true poses of a camera that moves along the wall."""
    rng = np.random.default_rng(seed)
    poses, frames = [], []
    for k in range(num_frames):
        turn = np.array([0.05 * np.sin(k), 0.06 * np.cos(1.7 * k), 0.03 * k])
        pose = SE3.exp(np.r_[0.08 * k, 0.04 * np.sin(2.0 * k), 0.02 * np.cos(k), turn])
        origin, along = (
            np.asarray(pose.storage)[:3],
            np.asarray(pose.act(unproject(np.ones((ROWS, COLUMNS))))),
        )
        along, depth = along - origin, np.ones((ROWS, COLUMNS))
        for _ in range(60):  # where the ray meets the wall
            at = origin + depth[..., None] * along
            depth = (surface(at[..., 0], at[..., 1])[0] - origin[2]) / along[..., 2]
        light = surface(at[..., 0], at[..., 1])[1]
        noisy = depth + rng.normal(0.0, 0.25 * DEPTH_NOISE, depth.shape)
        frames.append(frame_of(noisy, light + rng.normal(0.0, 0.25 * LIGHT_NOISE, depth.shape)))
        poses.append(np.asarray(pose.storage))
    truth = np.stack(poses)
    matches = {}
    for i, j in combinations(range(num_frames), 2):
        x, y = rng.uniform(-0.2, 0.4, (2, matches_per_pair))
        world = np.stack([x, y, surface(x, y)[0]], axis=1)
        both = [np.asarray(SE3(truth[k]).inverse().act(world)) for k in (i, j)]
        matches[i, j] = np.hstack(both) + rng.normal(0.0, 5.0 * DEPTH_NOISE, (matches_per_pair, 6))
    moved = [np.asarray((SE3(pose) * SE3.exp(rng.normal(0.0, 0.03, 6))).storage) for pose in truth]
    return frames, matches, np.stack([truth[0], *moved[1:]]), truth


def errors(poses: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Distance (n,) of the cameras' centres from the true ones [m]."""
    return np.linalg.norm(poses[:, :3] - truth[:, :3], axis=1)


def main(argv: list[str] | None = None):
    """Fuse; poses, truth and the summary."""
    parser = command.parser(__doc__, output="picture .png: depth and brightness of the frames, side by side")
    parser.add_argument("--frames", type=int, default=6, metavar="N", help="default: 6")
    parser.add_argument("--sparse-only", action="store_true", help="matched points only")
    args = parser.parse_args(argv)
    if args.frames < 2:
        raise command.ExampleError(f"--frames is {args.frames}, expected 2 or more.")
    frames, matches, start, truth = generated(args.frames)
    poses, summary = fuse(frames, matches, start, not args.sparse_only, device=args.device)
    print(f"{len(frames)} frames of {COLUMNS} x {ROWS} pixels, {sum(map(len, matches.values()))} matches")
    print(summary.brief_report())
    after, before = (1e3 * errors(estimate, truth).mean() for estimate in (poses, start))
    print(f"centres off by {after:.2f} mm, at the start {before:.2f} mm")
    if args.output:
        near, far = (
            f(frame.depth.min() if f is min else frame.depth.max() for frame in frames) for f in (min, max)
        )
        upper = np.hstack([(far - frame.depth) / (far - near) for frame in frames])
        images.write(args.output, np.vstack([upper, np.hstack([frame.light for frame in frames])]))
    return poses, truth, summary


if __name__ == "__main__":
    command.run(main)
