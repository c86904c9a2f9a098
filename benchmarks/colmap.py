"""Bundle adjustment of a COLMAP model by phase, beside pycolmap's where it is installed.

    python benchmarks/colmap.py [--images 400] [--points 20000] [--track 6] [--device cpu --device vulkan]

A model of images on a ring about a cloud of points, each point seen by neighbouring images, keypoints with a
pixel of noise, poses and points disturbed; one SIMPLE_RADIAL camera for all, or `--cameras N`. Seconds of
reading, converting, solving, putting back and writing: from files, of a `pycolmap.Reconstruction`, and of
pycolmap's own adjustment with the same options. The cost is half of chi2 [px^2].

    python benchmarks/colmap.py --covariances --images 1778 --points 993923 --track 5 --device vulkan

prints of the covariances of all poses, gauge by two cameras: wall time, the host's processor time, and how
long the host waited for the device.

    python benchmarks/colmap.py --conversion --images 1000 --points 1000000 --track 5

prints of a `pycolmap.Reconstruction` how long reading it into a graph and setting all numbers of it take.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import seconds_at_device

import graphopt.colmap
from graphopt.colmap import ColmapModel, Options, problem_of, read_colmap, solve, write_colmap
from graphopt.colmap.adjustment import opened
from graphopt.colmap.model import ColmapCamera, ColmapImages, ColmapPoints
from graphopt.colmap.problem import refined_model
from graphopt.geometry import SE3, SO3

pycolmap: Any
try:
    import pycolmap
except ImportError:
    pycolmap = None

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


PHASES = ("read", "convert", "solve", "put back", "write")


def clocked(
    phases: dict[str, float], name: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Call a function, and note its seconds."""
    began = time.perf_counter()
    result = function(*arguments, **options)
    phases[name] = phases.get(name, 0.0) + time.perf_counter() - began
    return result


def of_folder(folder: str, out: str, device: str, precision: str) -> tuple[dict[str, float], Any]:
    """From files to files, without pycolmap."""
    phases: dict[str, float] = {}
    model = clocked(phases, "read", read_colmap, folder)
    problem = clocked(phases, "convert", problem_of, model, Options())
    summary = clocked(phases, "solve", solve, problem, device=device, precision=precision)
    refined = clocked(phases, "put back", refined_model, problem)
    clocked(phases, "write", write_colmap, refined, out)
    return phases, summary


def in_place(folder: str, out: str, device: str, precision: str) -> tuple[dict[str, float], Any]:
    """A reconstruction of pycolmap's, refined here."""
    phases: dict[str, float] = {}
    scene = clocked(phases, "read", pycolmap.Reconstruction, folder)
    config = graphopt.colmap.Config(images=frozenset(scene.images), fixed_gauge="TWO_CAMS_FROM_WORLD")
    summary = graphopt.colmap.bundle_adjustment(scene, config=config, device=device, precision=precision)
    phases["convert"], phases["put back"] = summary.seconds["convert"], summary.seconds["put_back"]
    phases["solve"] = summary.seconds["total"]
    clocked(phases, "write", scene.write_binary, out)
    return phases, summary


def ceres(folder: str, out: str, threads: int) -> tuple[dict[str, float], Any]:
    """pycolmap's own adjustment."""
    phases: dict[str, float] = {}
    scene = clocked(phases, "read", pycolmap.Reconstruction, folder)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.ceres.solver_options.num_threads = threads
    config = pycolmap.BundleAdjustmentConfig()
    for image in scene.images:
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    make = pycolmap.create_default_bundle_adjuster
    adjuster = clocked(phases, "convert", make, options, config, scene)
    summary = clocked(phases, "solve", adjuster.solve).ceres_summary
    clocked(phases, "write", scene.write_binary, out)
    return phases, summary


def show_covariances(model: ColmapModel, device: str, calls: int) -> None:
    """One line per call."""
    for call in range(calls):
        with seconds_at_device() as spent:
            wall, processor = time.perf_counter(), time.process_time()
            found = graphopt.colmap.covariance(model, device=device)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(
            f"covariances of {len(found.poses)} poses, {device}, call {call + 1}: {1e3 * wall:.0f} ms; "
            f"host {1e3 * processor:.0f} ms of processor time, {1e3 * spent['wait']:.0f} ms waiting for it",
            flush=True,
        )


def show_conversion(model: ColmapModel, calls: int) -> None:
    """One line per call."""
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(model, folder)
        scene = pycolmap.Reconstruction(folder)
    for call in range(calls):
        wall, processor = time.perf_counter(), time.process_time()
        taken, put = opened(scene)
        problem = problem_of(taken, Options())
        read = time.perf_counter() - wall
        for vertices in problem.graph.vertex_sets:
            vertices.estimate[~vertices.fixed] *= 1.0 + 1e-12
        put(refined_model(problem))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(
            f"conversion, call {call + 1}: there {1e3 * read:.0f} ms, both ways {1e3 * wall:.0f} ms; "
            f"{1e3 * processor:.0f} ms of processor time",
            flush=True,
        )


def show(name: str, runs: list[tuple[dict[str, float], Any]]) -> None:
    """One line: the phases of the first and of the fastest later run, and the cost."""
    for which, (phases, summary) in (("first", runs[0]), ("best", min(runs[1:] or runs, key=_seconds))):
        seconds = ", ".join(f"{phase} {phases.get(phase, 0.0):.3f}" for phase in PHASES)
        total = sum(phases.values())
        print(f"{name}, {which}: {seconds}; {total:.3f} s, cost {summary.final_cost:.9g}", flush=True)


def _seconds(run: tuple[dict[str, float], Any]) -> float:
    return sum(run[0].values())


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
    parser.add_argument("--covariances", action="store_true", help="of all poses, and nothing else")
    parser.add_argument("--conversion", action="store_true", help="of a reconstruction, and nothing else")
    args = parser.parse_args()
    model = make(args.images, args.points, args.track, args.cameras)
    print(f"{args.images} images, {args.points} points, {len(model.points.track)} observations")
    if args.covariances:
        for device in args.device or ("cpu",):
            show_covariances(model, device, args.calls)
        return
    if args.conversion:
        show_conversion(model, args.calls)
        return
    with tempfile.TemporaryDirectory() as folder:
        source, out = f"{folder}/source", f"{folder}/out"
        write_colmap(model, source)
        os.mkdir(out)
        for device in args.device or ("cpu",):
            for precision in args.precision or ("double",):
                where = f"{device} {precision}"
                runs = [of_folder(source, f"{folder}/ours", device, precision) for _ in range(args.calls)]
                show(f"files, {where}", runs)
                if pycolmap is not None:
                    runs = [in_place(source, out, device, precision) for _ in range(args.calls)]
                    show(f"reconstruction, {where}", runs)
        if pycolmap is None:
            print("pycolmap is not installed")
        else:
            show(
                f"pycolmap, {args.threads} threads",
                [ceres(source, out, args.threads) for _ in range(args.calls)],
            )


if __name__ == "__main__":
    main()
