"""Published numbers, to stand beside measured ones: of other programs, on other machines.

Absolute trajectory errors: ORB-SLAM3 (Campos, Elvira, Gomez Rodriguez, Montiel, Tardos, arXiv:2007.11898v1,
2020: rms in metres on EuRoC and in the rooms of TUM-VI; the journal's version has slightly other numbers), as
collected for HybVIO (github.com/AaltoML/vio_benchmark, hybvio_runner/comparison_data). OpenVINS (Geneva,
Eckenhoff, Lee, Yang, Huang, ICRA 2020, table II): means of ten runs, "mono ov slam" and "stereo ov slam",
without MH01 to MH05 and V203. Times of
local-inertial bundle adjustment: Gopinath (MSc thesis, SFU 2023), tables 4.1 and 5.13: mean and deviation in
milliseconds of ORB-SLAM3 with g2o's block solver on a desktop CPU, and with that thesis' on its GPU.
"""

from __future__ import annotations

import re
from typing import Any

_EUROC = ("MH01", "MH02", "MH03", "MH04", "MH05", "V101", "V102", "V103", "V201", "V202", "V203")
_ROOMS = ("room1", "room2", "room3", "room4", "room5", "room6")
_ORB_SLAM3 = {
    "mono": (0.017, 0.017, 0.031, 0.066, 0.044, 0.033, 0.016, 0.037, 0.021, 0.022, None),
    "stereo": (0.025, 0.022, 0.027, 0.089, 0.058, 0.035, 0.021, 0.049, 0.032, 0.027, 0.361),
    "mono-inertial": (0.032, 0.053, 0.033, 0.099, 0.071, 0.043, 0.016, 0.025, 0.041, 0.015, 0.037),
    "stereo-inertial": (0.037, 0.031, 0.026, 0.059, 0.086, 0.037, 0.014, 0.023, 0.037, 0.014, 0.029),
}
"""By mode, in the order of `_EUROC` [m]; None: not successful."""
_VINS = {
    "mono-inertial": (0.084, 0.105, 0.074, 0.122, 0.147, 0.047, 0.066, 0.180, 0.056, 0.090, 0.244),
    "stereo": (0.540, 0.460, 0.330, 0.780, 0.500, 0.550, 0.230, None, 0.230, 0.200, None),
    "stereo-inertial": (0.166, 0.152, 0.125, 0.280, 0.284, 0.076, 0.069, 0.114, 0.066, 0.091, 0.096),
}
"""VINS-Mono and VINS-Fusion, as the same table has them."""
_NONE = (None,) * 5
_OPENVINS = {
    "mono-inertial": (*_NONE, 0.058, 0.076, 0.063, 0.124, 0.074, None),
    "stereo-inertial": (*_NONE, 0.061, 0.047, 0.059, 0.056, 0.047, None),
}
"""By mode, in the order of `_EUROC` [m]; None: not published."""
_FRAMES = {
    "euroc": dict(
        zip(_EUROC, (3682, 3040, 2700, 2033, 2273, 2912, 1710, 2149, 2280, 2348, 1922), strict=True)
    ),
    "tumvi": dict.fromkeys(_ROOMS, 2200),
    "kitti": {"00": 4541, "01": 1101, "02": 4661, "03": 801, "04": 271, "05": 2761, "06": 1101}
    | {"07": 1101, "08": 4071, "09": 1591, "10": 1201},
}
"""Images of whole sequences; of the rooms at least so many."""
_ORB_SLAM3_ROOMS = {
    "mono": (0.042, 0.026, 0.028, 0.046, 0.046, 0.043),
    "stereo": (0.077, 0.055, 0.076, 0.071, 0.066, 0.063),
    "mono-inertial": (0.010, 0.019, 0.042, 0.011, 0.017, 0.007),
    "stereo-inertial": (0.008, 0.012, 0.011, 0.008, 0.010, 0.006),
}
"""By mode, in the order of `_ROOMS` [m]."""
_ERRORS: dict[str, tuple[tuple[str, ...], dict[str, dict[str, Any]]]] = {
    "euroc": (_EUROC, {"orb_slam3": _ORB_SLAM3, "vins": _VINS, "openvins": _OPENVINS}),
    "tumvi": (_ROOMS, {"orb_slam3": _ORB_SLAM3_ROOMS}),
}
_LOCAL_BA = """
MH01 52.66 21.52 35.97 15.92 34.30 12.85
MH02 45.77 18.69 32.56 12.90 31.55 11.82
MH03 55.69 19.51 40.53 14.10 38.32 13.74
MH04 50.99 13.92 37.40 9.47 35.62 8.89
MH05 52.03 13.12 37.17 9.31 35.56 8.76
V101 61.49 13.77 43.22 9.40 41.51 8.34
V102 55.74 15.92 41.03 12.70 39.19 11.68
V103 49.75 14.07 34.18 9.27 33.06 8.59
V201 53.85 13.32 35.65 8.30 33.53 7.23
V202 54.59 12.84 38.20 9.84 36.39 9.03
V203 35.07 11.79 25.97 8.51 25.29 7.78
outdoors1 35.08 19.05 27.55 12.82 28.67 12.91
outdoors2 41.74 22.07 32.03 14.78 33.14 15.14
outdoors3 46.37 16.56 37.20 11.98 38.04 12.35
outdoors4 38.93 23.07 29.08 15.08 29.58 14.69
outdoors5 58.15 17.99 45.39 14.34 44.67 13.11
outdoors6 51.69 16.70 42.55 14.75 40.83 11.48
outdoors7 43.07 14.28 34.17 10.73 34.98 10.99
room1 75.85 18.29 60.47 17.04 57.01 17.04
room2 70.25 19.70 56.97 17.49 56.22 17.49
room3 75.91 18.00 63.56 18.36 59.10 18.36
room4 68.40 18.35 52.25 15.30 49.07 15.30
room5 75.65 15.87 61.08 15.51 58.86 15.51
room6 73.85 17.20 54.79 15.04 54.29 15.04
"""
"""Sequence; mean and deviation [ms] of CPU, GPU of table 4.1, GPU of table 5.13."""


def published(kind: str, name: str, mode: str) -> dict[str, Any]:
    """What was published about a sequence in a mode; empty where nothing is known.

    "orb_slam3_ate_m", "vins_ate_m", "openvins_ate_m", and "local_ba_cpu_s", "local_ba_gpu_4_1_s",
    "local_ba_gpu_5_13_s" with mean and std.
    """
    key, results = _key(name), {}
    names, programs = _ERRORS.get(kind, ((), {}))
    for program, by_mode in programs.items() if key in names else ():
        error = by_mode[mode][names.index(key)] if mode in by_mode else None
        if error is not None:
            results[f"{program}_ate_m"] = error
    for line in _LOCAL_BA.split("\n"):
        sequence, *numbers = line.split() or [""]
        if sequence == key and mode == "stereo-inertial" and kind in ("euroc", "tumvi"):
            values = [1e-3 * float(number) for number in numbers]
            for place, label in enumerate(("cpu", "gpu_4_1", "gpu_5_13")):
                mean, deviation = values[2 * place : 2 * place + 2]
                results[f"local_ba_{label}_s"] = {"mean": mean, "std": deviation}
    return results


def is_whole(kind: str, name: str, frames: int) -> bool:
    """A sequence has the images of the published one, but for a few; others are clips, or were rendered."""
    count = _FRAMES.get(kind, {}).get(_key(name.split()[0]))
    return count is not None and frames >= 0.95 * count


def _key(name: str) -> str:
    """MH01 of MH_01_easy, room1 of dataset-room1_512_16."""
    if match := re.match(r"(MH|V\d)_?(\d\d)", name):
        return "".join(match.groups())
    match = re.match(r"(?:dataset-)?([a-z]+\d)", name)
    return match.group(1) if match else name
