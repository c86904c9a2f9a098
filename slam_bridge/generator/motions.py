"""Built-in trajectories with the character of a published sequence, for machines that lack its ground truth.

Positions are sums of sinusoids with random frequencies and phases, so the path crosses itself again and
again: in rooms and halls the frequencies, outdoors and in corridors the extent is scaled until the path has
the character's length. The body rests for a second, then starts smoothly. On a helicopter the cameras turn
slowly and tilt little; by hand they look around; a walker looks ahead, and his gait shakes them.
"""

from __future__ import annotations

import numpy as np

from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Rig
from slam_bridge.generator.characters import Character
from slam_bridge.generator.trajectory import Trajectory

_EXTENT = {
    "room": (2.0, 2.0, 0.6),
    "hall": (6.0, 4.5, 1.3),
    "corridor": (3.0, 1.0, 0.0),
    "outdoors": (1.0, 0.8, 0.0),
}
"""Largest distance from the middle [m]; of the last two only the ratio counts."""
_HEIGHT = 1.6
_SHAKE = 0.03  # of a body in the air [m]
_REST, _RAMP = 1.0, 3.0
_WAVES = 4  # sinusoids of a sum
START_STAMP = 1_500_000_000_000_000_000
"""[ns] of every built-in trajectory."""
_SAMPLES_PER_SECOND = 40


def built_in(character: Character, rig: Rig, seed: int = 0) -> Trajectory:
    """A trajectory of the body of this rig; the first camera looks ahead."""
    generator = np.random.default_rng([seed, 1, sum(character.name.encode())])
    stamps = START_STAMP + np.arange(0, round(character.duration * _SAMPLES_PER_SECOND) + 1) * (
        10**9 // _SAMPLES_PER_SECOND
    )
    times = (stamps - START_STAMP) * 1e-9
    moving = _moving_time(times)
    walks = character.place in ("corridor", "outdoors")
    place = _walk(character, moving, generator) if walks else _flight(character, moving, generator)
    yaw, pitch, roll = _directions(character, place, moving, generator)
    world_R_cam = _looking(yaw, pitch, roll)
    cam_R_body = SO3(rig[0].body_T_cam[3:]).inverse()
    rotation = SO3(np.asarray(world_R_cam.storage)) * SO3(
        np.broadcast_to(cam_R_body.storage, (len(times), 4))
    )
    poses = np.asarray(SE3.from_parts(place, rotation.storage).storage)
    return Trajectory.fit(stamps, poses, source=f"built-in trajectory like {character.name}, seed {seed}")


def _moving_time(times: np.ndarray) -> np.ndarray:
    """Seconds of motion: none at rest, growing smoothly to one per second."""
    x = np.clip((times - _REST) / _RAMP, 0.0, 1.0)
    return _RAMP * (x**3 - 0.5 * x**4) + np.clip(times - _REST - _RAMP, 0.0, None)


def _waves(generator: np.random.Generator, t: np.ndarray, low: float, high: float) -> np.ndarray:
    """Sum of sinusoids with frequencies [Hz] between low and high, of size 1 at most."""
    frequency = generator.uniform(low, high, _WAVES)
    phase = generator.uniform(0.0, 2.0 * np.pi, _WAVES)
    size = 1.0 / np.arange(1, _WAVES + 1)
    waves = size[:, None] * np.sin(2.0 * np.pi * frequency[:, None] * t + phase[:, None])
    return waves.sum(axis=0) / size.sum()


def _path_length(place: np.ndarray) -> float:
    return float(np.linalg.norm(np.diff(place, axis=0), axis=1).sum())


def _flight(character: Character, t: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Within fixed walls: time runs as fast as the path's length demands."""
    extent = np.array(_EXTENT[character.place])
    state = generator.bit_generator.state
    pace, place = 1.0, np.zeros((len(t), 3))
    for _ in range(6):
        generator.bit_generator.state = state
        base = 0.25 * character.speed / float(np.linalg.norm(extent)) * pace
        columns = [_waves(generator, t, 0.4 * base, 1.8 * base) for _ in range(3)]
        place = np.stack(columns, axis=1) * extent + [0.0, 0.0, _HEIGHT]
        place += np.stack([_SHAKE * _waves(generator, t, 0.3, 0.9) for _ in range(3)], axis=1)
        pace *= character.length / _path_length(place)
    return place


def _walk(character: Character, t: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Around a loop and back to its begin: the loop is as large as the path's length demands."""
    laps = 2.0 if character.length > 500.0 else 1.0
    phase = 2.0 * np.pi * laps * t / t[-1]
    shape = np.array(_EXTENT[character.place])
    ways = [np.cos(phase), np.sin(phase)]
    for k in (2, 3):
        for way in ways:
            way += 0.25 / k * np.sin(k * phase + generator.uniform(0.0, 2.0 * np.pi))
    flat = np.stack([ways[0] * shape[0], ways[1] * shape[1], np.zeros(len(t))], axis=1)
    flat *= character.length / _path_length(flat)
    side = np.stack([-np.gradient(flat[:, 1]), np.gradient(flat[:, 0])], axis=1)
    side /= np.linalg.norm(side, axis=1, keepdims=True) + 1e-12
    flat[:, :2] += 0.02 * np.sin(2.0 * np.pi * 0.9 * t)[:, None] * side
    flat[:, 2] = _HEIGHT + 0.025 * np.sin(2.0 * np.pi * 1.8 * t) + 0.2 * _waves(generator, t, 0.005, 0.02)
    return flat


def _directions(
    character: Character, place: np.ndarray, t: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Yaw, pitch, roll of the first camera (n,) [rad]."""
    if character.place in ("corridor", "outdoors"):
        step = np.gradient(place[:, :2], axis=0)
        step[np.linalg.norm(step, axis=1) < 1e-6] = np.nan
        known = np.isfinite(step[:, 0])
        heading = np.unwrap(np.arctan2(step[known, 1], step[known, 0]))
        ahead = np.interp(np.arange(len(t)), np.flatnonzero(known), heading)
        width = 2 * _SAMPLES_PER_SECOND  # the eyes are steadier than the steps
        kernel = np.hanning(2 * width + 1) / np.hanning(2 * width + 1).sum()
        ahead = np.convolve(np.pad(ahead, width, mode="edge"), kernel, mode="valid")
        gait = [0.02 * np.sin(2.0 * np.pi * f * t + p) for f, p in ((1.8, 0.5), (0.9, 1.0))]
        return (
            ahead + 0.25 * _waves(generator, t, 0.03, 0.2),
            gait[0] + 0.1 * _waves(generator, t, 0.02, 0.1),
            gait[1],
        )
    by_hand = character.sensor == "tumvi"
    turn, tilt, fast = (3.0, 0.45, 0.12) if by_hand else (3.6, 0.14, 0.05)
    quick = fast * max(character.speed, 0.4) / 0.6
    yaw = turn * _waves(generator, t, 0.2 * quick, 1.0 * quick)
    pitch = tilt * _waves(generator, t, quick, 5.0 * quick) - 0.05
    roll = tilt * _waves(generator, t, quick, 5.0 * quick)
    return yaw, pitch, roll


def _looking(yaw: np.ndarray, pitch: np.ndarray, roll: np.ndarray) -> SO3:
    """world_R_cam (n,): z ahead, y down, of a world with z up."""
    c, s = np.cos, np.sin
    ahead = np.stack([c(yaw) * c(pitch), s(yaw) * c(pitch), s(pitch)], axis=-1)
    level = np.stack([s(yaw), -c(yaw), np.zeros_like(yaw)], axis=-1)
    below = np.cross(ahead, level)
    right = c(roll)[:, None] * level + s(roll)[:, None] * below
    down = c(roll)[:, None] * below - s(roll)[:, None] * level
    return SO3.from_matrix(np.stack([right, down, ahead], axis=-1))
