"""Bundle adjustment of a COLMAP model, beside `pycolmap.bundle_adjustment` where it is installed.

    python benchmarks/colmap.py [--images 400] [--points 20000] [--track 6] [--device cpu --device vulkan]

A model of images on a ring about a cloud of points, each point seen by neighbouring images, keypoints with a
pixel of noise, poses and points disturbed; one SIMPLE_RADIAL camera for all, or `--cameras N`. Per device and
precision: seconds of the first and of the best later call, from the model in memory to the refined graph
(what `graphopt.colmap.bundle_adjustment` does between taking the reconstruction's numbers and putting them
back), iterations, chi2 [px^2]. Of pycolmap: the whole call, and chi2 of its answer by the same formula.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np

import graphopt
from graphopt.colmap import ColmapModel, Options, problem_of, read_colmap, solve, write_colmap
from graphopt.colmap.model import ColmapCamera, ColmapImages, ColmapPoints
from graphopt.geometry import SE3, SO3

SIZE = (1920, 1280)
FOCAL, RADIAL = 1500.0, -0.02
RADIUS = 6.0


def make(images: int, points: int, track: int, cameras: int, seed: int = 0) -> ColmapModel:
    """A model with errors of about 3 cm and 0.3 degrees in its poses, 3 cm in its points."""
    rng = np.random.default_rng(seed)
    angle = np.arange(images) * (2.0 * np.pi / images)
    centre = RADIUS * np.stack([np.cos(angle), np.sin(angle), 0.1 * np.sin(5.0 * angle)], axis=1)
    ahead = -centre / np.linalg.norm(centre, axis=1, keepdims=True)
    right = np.cross(ahead, np.tile([0.0, 0.0, 1.0], (images, 1)))
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    turn = np.stack([right, np.cross(ahead, right), ahead], axis=2)
    pose = np.concatenate([centre, np.asarray(SO3.from_matrix(turn).storage)], axis=1)
    place = rng.uniform(-1.2, 1.2, (points, 3))
    first = rng.integers(images, size=points)
    image_row = ((first[:, None] + np.arange(track)) % images).ravel()
    point_row = np.repeat(np.arange(points), track)
    cam_T_world = SE3(pose).inverse()
    local = np.asarray(SE3(np.asarray(cam_T_world.storage)[image_row]).act(place[point_row]))
    plane = local[:, :2] / local[:, 2:]
    plane *= 1.0 + RADIAL * (plane**2).sum(axis=1, keepdims=True)
    pixel = FOCAL * plane + 0.5 * np.array(SIZE) + rng.normal(0.0, 1.0, plane.shape)
    turns = np.asarray(SO3.exp(rng.normal(0.0, 0.005, (images, 3))).storage)
    offsets = np.concatenate([rng.normal(0.0, 0.03, (images, 3)), turns], axis=1)
    start = np.asarray((cam_T_world * SE3(offsets)).storage)
    order = np.argsort(image_row, kind="stable")
    keypoint_start = np.searchsorted(image_row[order], np.arange(images + 1))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order)) - keypoint_start[image_row[order]]
    return ColmapModel(
        [
            ColmapCamera(
                k + 1, "SIMPLE_RADIAL", *SIZE, np.array([1.01 * FOCAL, SIZE[0] / 2, SIZE[1] / 2, 0.0])
            )
            for k in range(cameras)
        ],
        ColmapImages(
            np.arange(1, images + 1),
            start[:, [6, 3, 4, 5]],
            start[:, :3],
            1 + np.arange(images) % cameras,
            [f"{k:05d}.jpg" for k in range(images)],
            keypoint_start,
            pixel[order],
            point_row[order] + 1,
        ),
        ColmapPoints(
            np.arange(1, points + 1),
            place + rng.normal(0.0, 0.03, place.shape),
            np.zeros((points, 3), np.uint8),
            np.full(points, -1.0),
            np.arange(points + 1) * track,
            np.stack([image_row + 1, number], axis=1),
        ),
    )


def ours(model: ColmapModel, device: str, precision: str, calls: int) -> None:
    """Print one line."""
    spent = []
    for _ in range(calls):
        began = time.perf_counter()
        problem = problem_of(model, Options())
        summary = solve(problem, device=device, precision=precision)
        spent.append(time.perf_counter() - began)
    print(
        f"graphopt {device} {precision}: first {spent[0]:.3f} s, later {min(spent[1:]):.3f} s, of which "
        f"optimize {summary.seconds['total']:.3f} s, {len(summary.iterations)} iterations, "
        f"chi2 {problem.graph.chi2():.6f}",
        flush=True,
    )


def colmaps(model: ColmapModel, threads: int, calls: int) -> None:
    """Print one line of pycolmap, and one of ours in its place."""
    try:
        import pycolmap
    except ImportError:
        print("pycolmap is not installed")
        return
    pycolmap.logging.minloglevel = pycolmap.logging.Level.WARNING.value
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    solver: Any = getattr(options, "ceres", options)
    solver = solver.solver_options
    solver.num_threads = threads
    whole, inside = [], []
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(model, folder)
        for _ in range(calls):
            theirs, mine = pycolmap.Reconstruction(folder), pycolmap.Reconstruction(folder)
            began = time.perf_counter()
            pycolmap.bundle_adjustment(theirs, options)
            whole.append(time.perf_counter() - began)
            began = time.perf_counter()
            graphopt.colmap.bundle_adjustment(mine)
            inside.append(time.perf_counter() - began)
    with tempfile.TemporaryDirectory() as folder:
        theirs.write_binary(folder)
        chi2 = problem_of(read_colmap(folder), Options()).graph.chi2()
    print(f"pycolmap, {threads} threads: {min(whole):.3f} s, chi2 {chi2:.6f}")
    print(f"graphopt.colmap.bundle_adjustment of the same reconstruction, auto: {min(inside):.3f} s")


def main() -> None:
    """Print one line per solver."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--track", type=int, default=6, help="images that see a point")
    parser.add_argument("--cameras", type=int, default=1, help="intrinsics that the images share")
    parser.add_argument("--device", action="append")
    parser.add_argument("--precision", action="append", choices=("double", "mixed"))
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2, help="of pycolmap")
    args = parser.parse_args()
    model = make(args.images, args.points, args.track, args.cameras)
    print(f"{args.images} images, {args.points} points, {len(model.points.track)} observations")
    for device in args.device or ("cpu",):
        for precision in args.precision or ("double",):
            ours(model, device, precision, args.calls)
    colmaps(model, args.threads, args.calls)


if __name__ == "__main__":
    main()
