"""Do covariances mean what they say? Normalised squared errors against generated truths, over many seeds.

    python benchmarks/consistency.py                     200 seeds of every case
    python benchmarks/consistency.py --seeds 50 --case mono-start

    e' inv(C) e, e: estimate against truth, C: the covariance that the result reports

is chi-square of dim(e) numbers where noise is white and as told, so its mean over the seeds lies within the
99 % band of chi-square. Each seed has another path, another scene, other noise and biases.

    stereo        full-inertial BA of a rectified pair: state (15) of the last keyframe
    mono          the same of one camera; and log of the distance between the ends ("scale")
    mono-start    one camera, unit and frame of the map arbitrary, nothing known of velocities and biases:
                  global BA, then `inertial_initialization`: state and scale after its last stage
    inertial-only stage 1 alone on exact poses: direction of gravity, scale and biases (9)
    default       mono with the default options: robust kernel, rounds of outlier classification at 95 %
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.stats import chi2

import slam_bridge as sb
from graphopt.geometry import SE3, SO3
from slam_bridge.exchange import VibProblem, normalised_squares
from slam_bridge.generator import generate_problem
from slam_bridge.generator.characters import character
from slam_bridge.generator.imu import perfect_imu
from slam_bridge.generator.sensors import sensors
from slam_bridge.generator.sequence import trajectory_like
from slam_bridge.problems.scale import scale_deviation

PATHS = ("V103", "V201", "V102", "V203")
PLAIN = sb.SolveOptions(
    device="cpu", iterations=100, rounds=2, kernel=None, confidence=1 - 1e-12, function_tolerance=1e-12
)
Squares = dict[str, tuple[float, int]]
"""Normalised squared errors by name, and of how many numbers each is."""


def problem_of(seed: int, stereo: bool) -> VibProblem:
    """24 keyframes in 10 s of flight, 120 landmarks, 600 observations."""
    like = PATHS[seed % len(PATHS)]
    sizes = {"keyframes": 24, "landmarks": 120, "observations": 600, "seconds": 10.0}
    made = generate_problem(like, **sizes, place="room", sensor="euroc", mismatches=0.0, seed=seed)
    if not stereo:
        made.map.observations["right"][:] = np.nan
    return made


def of_a_map(problem: VibProblem, result: sb.Result, scale: bool) -> Squares:
    """State of the last keyframe, and the scale."""
    assert problem.truth is not None
    if not result.is_usable:
        return {}
    last = result.keyframes.ids[-1:]
    found = {"state": (float(normalised_squares(result, problem.truth, last)[0]), 15)}
    if scale:
        off = np.log(_reach(result.keyframes.world_T_body, problem.truth.world_T_body))
        found["scale"] = ((off / scale_deviation(result)) ** 2, 1)
    return found


def _reach(poses: np.ndarray, true: np.ndarray) -> float:
    away = np.linalg.norm(poses[:, :3] - poses[0, :3], axis=1)
    far = int(np.argmax(away))
    return float(away[far] / np.linalg.norm(true[far, :3] - true[0, :3]))


def full(seed: int, stereo: bool, options: sb.SolveOptions = PLAIN) -> Squares:
    """Full-inertial BA from drifted states without biases."""
    problem = problem_of(seed, stereo)
    return of_a_map(problem, sb.full_inertial_ba(problem.map, options=options), not stereo)


def start(seed: int) -> Squares:
    """A map of one camera, as a visual SLAM has it, is initialized."""
    problem, rng = problem_of(seed, False), np.random.default_rng([seed, 9])
    world = problem.map
    turn = np.asarray(SO3.exp(rng.normal(size=3)).storage)
    world.transform([*rng.normal(size=3), *turn, np.exp(0.5 * rng.normal())])
    world.keyframes["velocity"][:] = 0.0
    sb.global_ba(world, options=PLAIN)
    result = sb.inertial_initialization(world, options=PLAIN)
    return of_a_map(problem, result, True)


def inertial_only(seed: int) -> Squares:
    """Stage 1 on exact poses, with biases as widely spread as their priors say."""
    rng, noise = np.random.default_rng([seed, 8]), sb.ImuNoise(1.7e-3, 2e-2, 1e-9, 1e-9)  # biases do not walk
    known = character(PATHS[seed % len(PATHS)])
    path = replace(trajectory_like(known, sensors("euroc", ()).rig, None, seed), duration=12.0)
    sigmas = np.repeat([0.01, 0.1], 3)
    bias = sigmas * rng.normal(size=6)
    clean = perfect_imu(path.at(path.stamps(200.0)))
    white = np.repeat([noise.gyro_density, noise.acc_density], 3) * np.sqrt(200.0)
    moved = np.concatenate([clean.gyro, clean.acc], axis=1) + bias
    moved += white * rng.normal(size=moved.shape)
    samples = sb.ImuSamples(clean.stamps, moved[:, :3], moved[:, 3:])
    stamps = path.stamps(2.0)
    true, turn = SE3(path.at(stamps).world_T_body), SO3.exp(rng.normal(size=3))
    unit = float(np.exp(0.5 * rng.normal()))
    poses = SE3.from_parts(turn.act(true.translation) / unit, (turn * true.rotation).storage).storage
    measured = [
        interval for interval in sb.preintegrate_intervals(samples, stamps, noise) if interval is not None
    ]
    found = sb.initialize(
        poses, measured, gyro_bias_sigma=sigmas[0], acc_bias_sigma=sigmas[3], acc_scale_sigma=0.0
    )
    if not found.is_usable or found.covariance is None:
        return {}
    down = (SO3(found.world_R_map) * turn).act(np.array([0.0, 0.0, -1.0]))
    biases = found.keyframes.gyro_bias[0], found.keyframes.acc_bias[0]
    off = [down[1], -down[0], np.log(unit / found.scale), *(bias - np.concatenate(biases))]
    return {"start": (float(np.array(off) @ np.linalg.solve(found.covariance, off)), 9)}


CASES: dict[str, Callable[[int], Squares]] = {
    "stereo": partial(full, stereo=True),
    "mono": partial(full, stereo=False),
    "mono-start": start,
    "inertial-only": inertial_only,
    "default": partial(full, stereo=False, options=sb.SolveOptions(device="cpu")),
}


@dataclass(frozen=True)
class Verdict:
    """Of one quantity over all seeds."""

    name: str
    count: int
    """Seeds with an answer."""
    mean: float
    """Of e' inv(C) e / dim(e)."""
    low: float
    high: float
    """99 % band of the mean."""

    @property
    def is_consistent(self) -> bool:
        """Within the band."""
        return self.low < self.mean < self.high


def verdicts(case: str, seeds: range) -> list[Verdict]:
    """Of each quantity of a case."""
    found = [CASES[case](seed) for seed in seeds]
    result = []
    for name in dict.fromkeys(name for run in found for name in run):
        squares = [run[name] for run in found if name in run]
        dim = sum(dims for _, dims in squares)
        low, high = chi2.ppf([0.005, 0.995], dim) / dim
        result.append(Verdict(name, len(squares), sum(square for square, _ in squares) / dim, low, high))
    return result


def main() -> None:
    """Print a line per case and quantity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--case", choices=CASES, action="append", help="may be repeated (default: all)")
    args = parser.parse_args()
    for case in args.case or CASES:
        for verdict in verdicts(case, range(args.first, args.first + args.seeds)):
            print(
                f"{case:14} {verdict.name:8} {verdict.count:5} of {args.seeds} seeds: "
                f"mean {verdict.mean:.3f}, 99 % band {verdict.low:.3f} to {verdict.high:.3f}, "
                f"{'inside' if verdict.is_consistent else 'OUTSIDE'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
