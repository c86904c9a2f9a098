"""Units of evaluation for tests, in a module that other processes can import."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.pipeline.system import peak_memory


def count_calls(folder: str, name: str) -> dict[str, Any]:
    """A unit that leaves a trace of each call; "bad" fails, "worse" has a bug."""
    with Path(folder, "calls").open("a") as file:
        file.write(f"{name}\n")
    if name == "bad":
        raise OptionError("this one fails")
    if name == "worse":
        raise ZeroDivisionError("a bug")
    return {
        "problem": name,
        "solver": "auto",
        "seconds": 1.0,
        "chi2": np.float64(2.0),
        "vertices": np.int64(3),
    }


def taking_memory(size: int) -> dict[str, Any]:
    """A unit that measures the peak of its process after it has taken some memory."""
    peak_before = peak_memory()
    np.ones(size).sum()
    return {"grown": peak_memory() - peak_before}


def slow(seconds: float) -> dict[str, Any]:
    """A unit that takes its time."""
    time.sleep(seconds)
    return {"seconds": seconds}


def sizes(paths: list[str]) -> dict[str, list[int]]:
    """Of files."""
    return {"sizes": [Path(path).stat().st_size for path in paths]}
